//! Just enough of PostgreSQL's protocol for one query, so that these tests need no client.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

const ANSWER_MAX: Duration = Duration::from_secs(20);
const PROTOCOL_3: i32 = 196_608;

/// One connection of the user `postgres` to the database `postgres`.
pub(crate) struct Connection(TcpStream);

impl Connection {
    pub(crate) fn open(port: u16) -> io::Result<Connection> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_read_timeout(Some(ANSWER_MAX))?;
        let mut connection = Connection(stream);
        let startup = [&PROTOCOL_3.to_be_bytes()[..], b"user\0postgres\0database\0postgres\0\0"].concat();
        connection.send(&startup)?;
        connection.first_value()?;
        Ok(connection)
    }

    /// The first column of the last row, if there is one.
    pub(crate) fn ask(&mut self, sql: &str) -> io::Result<Option<String>> {
        self.0.write_all(b"Q")?;
        self.send(&[sql.as_bytes(), b"\0"].concat())?;
        self.first_value()
    }

    fn send(&mut self, body: &[u8]) -> io::Result<()> {
        let length = i32::try_from(body.len() + 4).expect("a short message");
        self.0.write_all(&[&length.to_be_bytes(), body].concat())
    }

    /// Reads up to the message that the server is ready for the next query.
    fn first_value(&mut self) -> io::Result<Option<String>> {
        let mut value = None;
        loop {
            let (kind, body) = self.receive()?;
            match kind {
                b'D' => value = Some(first_column(&body)),
                b'E' => return Err(io::Error::other(String::from_utf8_lossy(&body).replace('\0', " "))),
                b'Z' => return Ok(value),
                _ => {}
            }
        }
    }

    fn receive(&mut self) -> io::Result<(u8, Vec<u8>)> {
        let mut head = [0; 5];
        self.0.read_exact(&mut head)?;
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]);
        let mut body = vec![0; length as usize - 4];
        self.0.read_exact(&mut body)?;
        Ok((head[0], body))
    }
}

/// A row is a count of two bytes, then each column with its length in four.
fn first_column(row: &[u8]) -> String {
    let length = u32::from_be_bytes([row[2], row[3], row[4], row[5]]) as usize;
    String::from_utf8_lossy(&row[6..6 + length]).into_owned()
}
