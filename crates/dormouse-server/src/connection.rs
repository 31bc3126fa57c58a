//! One connection. hyper reads requests and writes responses, except endless responses, which are written here.
//!
//! hyper keeps two buffers of 8 KiB and the state of the request for as long as a response takes. That is little for a
//! response that ends, but most of the cost of an event stream, which stays open for days and is almost always silent.
//! So the connection is taken from hyper when such a response begins.

use std::future::{pending, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{Method, Request, Response, header};
use futures_util::StreamExt as _;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::Service as _;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use jiff::Timestamp;
use jiff::fmt::rfc2822;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;

use crate::patient::Patient;
use crate::server::goes_on;

/// An accepted connection, before its first request.
pub(crate) struct Connection<S> {
    /// The socket, or TLS on it.
    pub(crate) stream: S,
    pub(crate) from: SocketAddr,
    pub(crate) router: Router,
    /// How long a response waits for a caller that does not read it.
    pub(crate) answer_within: Duration,
    pub(crate) stopping: CancellationToken,
    /// Counts the connection against the limit while it is open.
    pub(crate) place: OwnedSemaphorePermit,
}

/// An endless response on its way from the service to the task that will write it.
type GoesOn = Arc<Mutex<Option<Response<Body>>>>;

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> Connection<S> {
    /// Serves the connection in a task of its own until either side closes it.
    pub(crate) fn serve(self, http: &http1::Builder) {
        let Self { stream, from, router, answer_within, stopping, place } = self;
        let goes_on = GoesOn::default();
        let service = {
            let goes_on = goes_on.clone();
            hyper::service::service_fn(move |mut request: Request<Incoming>| {
                request.extensions_mut().insert(ConnectInfo(from));
                respond(router.clone(), request, goes_on.clone())
            })
        };
        let io = Patient::new(stream, answer_within);
        let blocked = io.blocked();
        let mut requests = Box::pin(http.serve_connection(TokioIo::new(io), service));
        let requests = async move {
            let mut stopped = pin!(stopping.cancelled());
            let mut is_stopping = false;
            let answer = poll_fn(|cx| {
                if !is_stopping && stopped.as_mut().poll(cx).is_ready() {
                    is_stopping = true;
                    requests.as_mut().graceful_shutdown();
                }
                if let Poll::Ready(ended) = requests.as_mut().poll(cx) {
                    return Poll::Ready(Err(ended));
                }
                // hyper has written as much as the socket takes. If it has more, because the caller sends requests
                // before it reads responses, it is polled again when there is room.
                if blocked.is_set() {
                    return Poll::Pending;
                }
                let taken = goes_on.lock().expect("no code panics while it holds this lock").take();
                taken.map_or(Poll::Pending, |answer| Poll::Ready(Ok(answer)))
            });
            match answer.await {
                Ok(answer) => {
                    let io = Pin::into_inner(requests).into_parts().io.into_inner();
                    // A task is as large as the largest future it ever awaits: this one is small.
                    tokio::spawn(async move {
                        log(stream_out(io, answer).await);
                        drop(place);
                    });
                }
                Err(ended) => {
                    log(ended);
                    drop(place);
                }
            }
        };
        tokio::spawn(requests);
    }
}

fn log<E: std::fmt::Display>(ended: Result<(), E>) {
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection broke off");
    }
}

/// Answers a request. An endless response is left for the task that polls this, which then takes the connection.
async fn respond(
    router: Router,
    request: Request<Incoming>,
    taken: GoesOn,
) -> Result<Response<Body>, std::convert::Infallible> {
    // The response to a HEAD request has no body.
    let is_get = request.method() == Method::GET;
    let answer = TowerToHyperService::new(router).call(request).await?;
    if !is_get || !goes_on(&answer) {
        return Ok(answer);
    }
    *taken.lock().expect("no code panics while it holds this lock") = Some(answer);
    pending().await
}

/// Writes a response that ends with the connection, until the caller hangs up.
async fn stream_out(
    mut io: Patient<impl AsyncRead + AsyncWrite + Unpin>,
    answer: Response<Body>,
) -> io::Result<()> {
    let (head, body) = answer.into_parts();
    io.write_all(&written(head)).await?;
    io.flush().await?;
    let mut body = body.into_data_stream();
    // Further requests on this connection are not answered.
    let mut ignored = [0; 64];
    loop {
        tokio::select! {
            part = body.next() => match part {
                Some(Ok(bytes)) => {
                    io.write_all(&bytes).await?;
                    io.flush().await?;
                }
                Some(Err(error)) => return Err(io::Error::other(error)),
                None => return io.shutdown().await,
            },
            read = io.read(&mut ignored) => if read? == 0 { return Ok(()) },
        }
    }
}

/// The head of an HTTP/1.1 response that ends with the connection.
fn written(head: axum::http::response::Parts) -> Vec<u8> {
    let mut text = Vec::with_capacity(512);
    let status = head.status;
    text.extend_from_slice(b"HTTP/1.1 ");
    text.extend_from_slice(status.as_str().as_bytes());
    text.extend_from_slice(format!(" {}\r\n", status.canonical_reason().unwrap_or_default()).as_bytes());
    let mut line = |name: &str, value: &[u8]| {
        text.extend_from_slice(name.as_bytes());
        text.extend_from_slice(b": ");
        text.extend_from_slice(value);
        text.extend_from_slice(b"\r\n");
    };
    for (name, value) in &head.headers {
        line(name.as_str(), value.as_bytes());
    }
    line(header::CONNECTION.as_str(), b"close");
    if let Ok(now) = rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&Timestamp::now()) {
        line(header::DATE.as_str(), now.as_bytes());
    }
    text.extend_from_slice(b"\r\n");
    text
}
