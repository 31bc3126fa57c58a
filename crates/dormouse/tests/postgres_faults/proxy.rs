//! A network that misbehaves: a TCP proxy before the server, which cuts, stalls or swallows at any byte.

use std::net::Ipv4Addr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// What connections meet: each of them in each direction after some more bytes, drawn anew by each change.
#[derive(Clone, Debug)]
pub enum Weather {
    Clear,
    /// They end there, in the middle of whatever it was.
    Cut(Range<usize>),
    /// Nothing passes there until the weather changes; then everything does, however late.
    Stall(Range<usize>),
    /// Nothing passes there ever again, and nobody is told.
    Swallow(Range<usize>),
}

/// What a client sends to hear of pokes.
const LISTEN: &[u8] = b"LISTEN \"dormouse\"";

/// Ends with all its connections when dropped.
pub struct Proxy {
    pub port: u16,
    shared: Arc<Shared>,
    _end: tokio_util::sync::DropGuard,
}

struct Shared {
    weather: watch::Sender<Weather>,
    /// How many connections ever began to listen.
    listeners: watch::Sender<usize>,
    /// Counts up when those that listen by then fall silent.
    deafened: watch::Sender<usize>,
}

impl Proxy {
    pub async fn start(server_port: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let shared = Arc::new(Shared {
            weather: watch::Sender::new(Weather::Clear),
            listeners: watch::Sender::new(0),
            deafened: watch::Sender::new(0),
        });
        let end = CancellationToken::new();
        let (accepting, ending) = (shared.clone(), end.clone());
        tokio::spawn(async move {
            while let Some(accepted) = ending.run_until_cancelled(listener.accept()).await {
                let (client, _) = accepted.expect("a connection");
                tokio::spawn(connect(client, server_port, accepting.clone(), ending.child_token()));
            }
        });
        Self { port, shared, _end: end.drop_guard() }
    }

    pub fn set(&self, weather: Weather) {
        self.shared.weather.send_replace(weather);
    }

    /// Every connection that listens to pokes falls silent for ever, and no other one.
    pub fn deafen(&self) {
        self.shared.deafened.send_modify(|times| *times += 1);
    }

    /// How many connections ever began to listen.
    pub fn listeners(&self) -> watch::Receiver<usize> {
        self.shared.listeners.subscribe()
    }
}

async fn connect(client: TcpStream, server_port: u16, shared: Arc<Shared>, cut: CancellationToken) {
    // Nobody listens there while the server is down: then this end is closed, too.
    let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, server_port)).await else { return };
    client.set_nodelay(true).expect("an option");
    server.set_nodelay(true).expect("an option");
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let listens = Arc::new(AtomicBool::new(false));
    let pipe = |from, to| Pipe {
        from,
        to,
        weather: shared.weather.subscribe(),
        deafened: shared.deafened.subscribe(),
        shared: shared.clone(),
        listens: listens.clone(),
        left: usize::MAX,
        swallows: false,
    };
    let _cut_when_either_ends = cut.clone().drop_guard();
    let both = async {
        tokio::select! {
            () = pipe(from_client, to_server).run() => {}
            () = pipe(from_server, to_client).run() => {}
        }
    };
    cut.run_until_cancelled(both).await;
}

/// One direction of a connection.
struct Pipe {
    from: OwnedReadHalf,
    to: OwnedWriteHalf,
    weather: watch::Receiver<Weather>,
    deafened: watch::Receiver<usize>,
    shared: Arc<Shared>,
    listens: Arc<AtomicBool>,
    /// Bytes that still pass.
    left: usize,
    swallows: bool,
}

impl Pipe {
    /// Passes bytes until the connection ends.
    async fn run(mut self) {
        self.draw();
        let mut buffer = vec![0; 16 * 1024];
        loop {
            let read = tokio::select! {
                read = self.from.read(&mut buffer) => read,
                _ = self.weather.changed() => {
                    self.draw();
                    continue;
                }
            };
            let Ok(length @ 1..) = read else { return };
            self.notice_listening(&buffer[..length]);
            if !self.pass(&buffer[..length]).await {
                return;
            }
        }
    }

    /// Passes these, as far as the weather allows; whether the connection goes on.
    async fn pass(&mut self, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            if self.swallows || (self.listens.load(SeqCst) && self.deafened.has_changed().unwrap_or(true)) {
                return true;
            }
            let (now, later) = bytes.split_at(bytes.len().min(self.left));
            if self.to.write_all(now).await.is_err() {
                return false;
            }
            self.left = self.left.saturating_sub(now.len());
            bytes = later;
            if !bytes.is_empty() && !self.meet().await {
                return false;
            }
        }
        true
    }

    /// What happens where no more bytes may pass; whether the connection goes on.
    async fn meet(&mut self) -> bool {
        let weather = self.weather.borrow().clone();
        match weather {
            Weather::Clear => self.left = usize::MAX,
            Weather::Cut(_) => return false,
            Weather::Swallow(_) => self.swallows = true,
            Weather::Stall(_) => {
                if self.weather.changed().await.is_err() {
                    return false;
                }
                self.draw();
            }
        }
        true
    }

    /// Draws how much passes in this weather.
    fn draw(&mut self) {
        self.left = match self.weather.borrow_and_update().clone() {
            Weather::Clear => usize::MAX,
            Weather::Cut(bytes) | Weather::Stall(bytes) | Weather::Swallow(bytes) => fastrand::usize(bytes),
        };
    }

    fn notice_listening(&mut self, bytes: &[u8]) {
        if bytes.windows(LISTEN.len()).any(|window| window == LISTEN) {
            self.listens.store(true, SeqCst);
            self.shared.listeners.send_modify(|count| *count += 1);
        }
    }
}
