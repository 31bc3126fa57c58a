//! A socket that gives up on a caller that does not read.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

use crate::body::BYTES_PER_SECOND;

/// Gives up on a caller that keeps writes waiting for too long: `within`, plus a second for each [`BYTES_PER_SECOND`]
/// bytes that the caller read. Only the time in which the socket takes no bytes counts.
pub(crate) struct Patient<S> {
    stream: S,
    patience: Patience,
    /// Since when a write waits, and the timer that ends the wait.
    waits: Option<(Instant, Pin<Box<Sleep>>)>,
    blocked: Blocked,
}

struct Patience {
    within: Duration,
    left: Duration,
}

impl Patience {
    /// The patience that is left after waiting for some bytes to be taken.
    fn spend(&mut self, waited: Duration, bytes: usize) {
        let earned = Duration::from_secs(1).mul_f64(bytes as f64 / BYTES_PER_SECOND as f64);
        self.left = (self.left.saturating_sub(waited) + earned).min(self.within);
    }
}

/// Whether a socket has unsent bytes and takes no more.
#[derive(Clone, Default)]
pub(crate) struct Blocked(Arc<AtomicBool>);

impl Blocked {
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl<S> Patient<S> {
    pub(crate) fn new(stream: S, within: Duration) -> Self {
        let patience = Patience { within, left: within };
        Self { stream, patience, waits: None, blocked: Blocked::default() }
    }

    pub(crate) fn blocked(&self) -> Blocked {
        self.blocked.clone()
    }

    /// Accounts for the result of a write.
    fn counted(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        self.blocked.0.store(written.is_pending(), Ordering::Relaxed);
        let Poll::Ready(written) = written else {
            let left = self.patience.left;
            let wait = || (Instant::now(), Box::pin(sleep(left)));
            ready!(self.waits.get_or_insert_with(wait).1.as_mut().poll(cx));
            let told = "the caller does not read the response";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, told)));
        };
        let waited = self.waits.take().map_or(Duration::ZERO, |(since, _)| since.elapsed());
        self.patience.spend(waited, *written.as_ref().unwrap_or(&0));
        Poll::Ready(written)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.counted(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, parts);
        self.counted(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // TLS accepts bytes that the socket does not take yet, and waits for it here.
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.counted(cx, flushed.map_ok(|()| 0)).map_ok(drop)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, into)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    async fn pair(within: Duration) -> (Patient<TcpStream>, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let caller =
            TcpStream::connect(listener.local_addr().expect("an address")).await.expect("a connection");
        (Patient::new(listener.accept().await.expect("it is there").0, within), caller)
    }

    const ANSWER: usize = 32 * 1024 * 1024;

    #[tokio::test]
    async fn a_caller_that_does_not_read_is_given_up() {
        let (mut patient, mut caller) = pair(Duration::from_millis(200)).await;
        let ended = patient.write_all(&vec![0; ANSWER]).await;
        assert_eq!(ended.expect_err("nobody reads").kind(), io::ErrorKind::TimedOut);
        drop(patient);
        let mut read = Vec::new();
        // Bytes that the system had accepted still arrive, or the connection is reset.
        let _ = caller.read_to_end(&mut read).await;
        assert!(read.len() < ANSWER);
    }

    #[tokio::test]
    async fn a_caller_that_reads_gets_all_of_it_even_if_that_takes_longer() {
        let (mut patient, mut caller) = pair(Duration::from_secs(1)).await;
        let started = Instant::now();
        let reads = tokio::spawn(async move {
            let (mut read, mut part) = (0, vec![0; ANSWER / 8]);
            while read < ANSWER {
                tokio::time::sleep(Duration::from_millis(200)).await;
                read += caller.read_exact(&mut part).await.expect("more of it");
            }
        });
        patient.write_all(&vec![0; ANSWER]).await.expect("it is read");
        reads.await.expect("no panic");
        assert!(started.elapsed() > Duration::from_secs(1), "it took longer than the patience");
    }

    #[test]
    fn waiting_uses_patience_up_and_bytes_earn_it_back() {
        let s = Duration::from_secs;
        let mut patience = Patience { within: s(60), left: s(60) };
        let mut left_after = |waited, bytes| {
            patience.spend(waited, bytes);
            patience.left
        };
        assert_eq!(left_after(s(50), 5 * BYTES_PER_SECOND), s(15));
        assert_eq!(left_after(s(2), 100 * BYTES_PER_SECOND), s(60), "never more than at first");
        for _ in 0..59 {
            left_after(s(1), 1);
        }
        assert!(left_after(s(1), 1) < Duration::from_millis(10), "a byte now and then is not enough");
    }
}
