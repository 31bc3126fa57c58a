//! `GET /v1/events`: changes as they happen, as server-sent events.
//!
//! The stream reads the history, whose rows are numbered in commit order. A watcher that reconnects with the last
//! number it saw misses nothing that is still stored.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::Response;
use axum::response::IntoResponse;
use axum::response::sse::{Event, KeepAlive, Sse};
use dormouse::store::Change;
use futures_util::stream;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;
use tokio::sync::broadcast::error::RecvError;

use crate::feed::{Interest, Listener, News, ROWS_MAX};
use crate::places::Place;
use crate::problem::Problem;
use crate::route::{Call, Reply};
use crate::server::App;
use crate::view::{ChangeView, ProgressView};

const RETRY: Duration = Duration::from_secs(2);

/// Which changes to stream.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Query {
    /// Only changes of this machine's instances.
    machine: Option<String>,
    /// Only changes of this instance.
    instance: Option<i64>,
    /// Only changes of instances in this queue.
    queue: Option<String>,
    /// Start after this position, like the header `Last-Event-ID`; without either, start from now.
    after: Option<i64>,
}

pub(super) async fn watch(call: Call<Query>) -> Result<Stream, Problem> {
    let last = match &call.parts.last_event_id {
        None => call.query.after,
        Some(text) => Some(text.trim().parse().map_err(|_| {
            Problem::invalid(
                "Last-Event-ID is not a number from this stream: send the last `id` that you received",
            )
        })?),
    };
    let place = call.app.streams.take(&call.caller)?;
    let Query { machine, instance, queue, .. } = call.query;
    let namespace = call.caller.namespace;
    let interest = Interest { namespace: Some(namespace.clone()), machine, instance, queue };
    // Subscribe before the first read, so that no change is lost in between.
    let live = call.app.feed.listen(interest.clone()).await?;
    let store = &call.app.store;
    let start = match last {
        Some(last) => last,
        None => store.changes(Some(namespace.clone()), None, 0).await?.next,
    };
    let watcher = Watcher {
        app: call.app,
        _place: place,
        namespace,
        interest,
        last: start,
        is_behind: last.is_some(),
        live,
        ready: VecDeque::from([Event::default().retry(RETRY).comment("watching")]),
    };
    let events = stream::unfold(watcher, |mut watcher| async move {
        Some((Ok::<_, Infallible>(watcher.next().await?), watcher))
    });
    Ok(Stream(Sse::new(events).keep_alive(KeepAlive::default()).into_response()))
}

struct Watcher {
    app: Arc<App>,
    /// Counts this watcher against the limit while it is connected.
    _place: Place,
    namespace: String,
    interest: Interest,
    /// The last change that was read, sent or not.
    last: i64,
    /// Whether the watcher has to read the history itself before it follows the feed.
    is_behind: bool,
    live: Listener,
    ready: VecDeque<Event>,
}

impl Watcher {
    /// The next event; `None` when the server stops or cannot read.
    async fn next(&mut self) -> Option<Event> {
        let stopping = self.app.stopping.clone();
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            stopping.run_until_cancelled(self.gather()).await??;
        }
    }

    /// Waits for something to send. Returns `None` when the stream is over.
    async fn gather(&mut self) -> Option<()> {
        if self.is_behind {
            let store = &self.app.store;
            let read = store.changes(Some(self.namespace.clone()), Some(self.last), ROWS_MAX).await;
            let read =
                read.inspect_err(|error| tracing::warn!(%error, "a watcher could not catch up")).ok()?;
            self.is_behind = read.more;
            if read.next < self.last {
                self.start_over(read.next);
            }
            read.changes.iter().for_each(|change| self.tell(change));
            self.last = read.next;
            return Some(());
        }
        match self.live.recv().await {
            Ok(News::Progress(report)) => {
                let report = ProgressView::from((*report).clone());
                let data = serde_json::to_string(&report).expect("names and documents can be written");
                self.ready.push_back(Event::default().event("progress").data(data));
            }
            Ok(News::Changes(stretch)) => {
                if stretch.is_empty() {
                    self.is_behind = true;
                }
                let last = self.last;
                stretch.iter().filter(|change| change.id > last).for_each(|change| self.tell(change));
                self.last = stretch.last().map_or(self.last, |last| last.max(self.last));
            }
            Err(RecvError::Lagged(_)) => self.is_behind = true,
            Err(RecvError::Closed) => return None,
        }
        Some(())
    }

    /// The newest part of the history was collected and numbers start over: a watcher should read the current state
    /// again.
    fn start_over(&mut self, position: i64) {
        self.ready.push_back(Event::default().event("reset").id(position.to_string()).data("{}"));
    }

    fn tell(&mut self, change: &Change) {
        if self.interest.is_in(change) {
            let data = serde_json::to_string(&ChangeView::from(change)).expect("names can be written");
            self.ready.push_back(Event::default().event("change").id(change.id.to_string()).data(data));
        }
    }
}

/// A stream of events.
pub(super) struct Stream(Response<Body>);

impl Reply for Stream {
    const MEDIA: &'static str = "text/event-stream";

    fn schema(schemas: &mut SchemaGenerator) -> Option<Schema> {
        // The schema of the `data` of each event.
        Some(schemas.subschema_for::<ChangeView<'static>>())
    }

    fn into_response(self) -> Response<Body> {
        self.0
    }
}
