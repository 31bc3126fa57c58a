//! The table: every way in, every bad input, and how each way in refuses it.

use super::ways::*;
use super::world::Scene;

/// Bad input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bad {
    TooLarge,
    TooDeep,
    NotJson,
    WrongType,
    WrongSchema,
    UnknownName,
    Nul,
    LoneSurrogate,
    HugeNumber,
}

pub const ALL: [Bad; 9] = [
    Bad::TooLarge,
    Bad::TooDeep,
    Bad::NotJson,
    Bad::WrongType,
    Bad::WrongSchema,
    Bad::UnknownName,
    Bad::Nul,
    Bad::LoneSurrogate,
    Bad::HugeNumber,
];

/// The kind of document that a way in takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// A state: its name is its machine's, or its step's.
    State,
    /// A signal's payload.
    Payload,
    /// The answer to an interaction.
    Output,
    /// Why there is no answer.
    Reason,
}

/// The expected result of a bad input on a way in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cell {
    /// It is refused with the problem type that ends in this word.
    Refused(&'static str),
    /// This input cannot arrive that way, or is valid there.
    Cannot(&'static str),
}

use Bad::*;
use Cell::{Cannot, Refused};

/// The usual result, the same for every way in.
pub fn usual(takes: Takes, bad: Bad) -> Cell {
    use Takes::*;
    match (bad, takes) {
        (TooLarge, _) => Refused("too-large"),
        (NotJson, _) => Refused("invalid-request"),
        (TooDeep | HugeNumber | WrongSchema, Reason) => Cannot("a reason is a text"),
        (Nul, Reason) => Cannot("the text of an error is mended, not refused"),
        (WrongType | LoneSurrogate, Reason) => Refused("invalid-request"),
        (TooDeep, _) => Refused("too-deep"),
        (Nul, _) => Refused("holds-nul"),
        (LoneSurrogate | HugeNumber, _) => Refused("unreadable-document"),
        (WrongType, State) => Refused("invalid-state"),
        (WrongType | WrongSchema, Payload) => Refused("payload-refused"),
        (WrongType | WrongSchema, Output) => Refused("output-refused"),
        (WrongSchema, State) => Cannot("a state has a type, and no schema"),
        (UnknownName, State) => Refused("undeclared-machine"),
        (UnknownName, Payload) => Refused("undeclared-signal"),
        (UnknownName, Output | Reason) => Refused("not-found"),
    }
}

/// Where a way in is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the process that has the machine's code.
    WithCode,
    /// In a process that has only the declarations of workers.
    Declared,
}

/// A way in: a row of the table.
pub struct Door {
    pub name: &'static str,
    pub takes: Takes,
    /// What it is tried on.
    pub scene: Scene,
    pub way: Way,
    /// Results that differ from the usual ones, and why.
    pub but: &'static [(Bad, Cell)],
}

impl Door {
    pub fn cell(&self, bad: Bad) -> Cell {
        let own = self.but.iter().find(|(of, _)| *of == bad).map(|(_, cell)| *cell);
        own.unwrap_or_else(|| usual(self.takes, bad))
    }
}

/// A client takes a [`dormouse::Json`], which is valid JSON by its type.
const TYPED: (Bad, Cell) = (NotJson, Cannot("a client takes JSON by its type"));
/// A step is part of a state; there is no machine to name.
const STEP: (Bad, Cell) = (UnknownName, Refused("invalid-state"));
/// A repair names a signal by its id.
const SIGNAL: (Bad, Cell) = (UnknownName, Refused("no-signal"));
const TOKEN: (Bad, Cell) = (UnknownName, Refused("token-refused"));
const RUST: &[(Bad, Cell)] = &[
    TYPED,
    (WrongType, Cannot("a client takes a text by its type")),
    (LoneSurrogate, Cannot("a client takes a text by its type")),
];

fn door(name: &'static str, takes: Takes, scene: Scene, way: Way, but: &'static [(Bad, Cell)]) -> Door {
    Door { name, takes, scene, way, but }
}

/// Every way in. To add one, add a row.
pub fn doors() -> Vec<Door> {
    use Scene::*;
    use Takes::*;
    use Way::{Cli, Client, Form, Http, Nats, OnPostgres, Sql, Webhook};
    vec![
        door("client.start_many", State, New, Client(|to| Box::pin(start_many(to))), &[TYPED]),
        door(
            "client.start_and_signal, state",
            State,
            New,
            Client(|to| Box::pin(start_and_signal(to))),
            &[TYPED],
        ),
        door(
            "client.start_and_signal, payload",
            Payload,
            New,
            Client(|to| Box::pin(start_with_signal(to))),
            &[TYPED],
        ),
        door("client.start_in", State, New, OnPostgres(|to| Box::pin(start_in(to))), &[TYPED]),
        door("client.retry_raw", State, Cancelled, Client(|to| Box::pin(retry_raw(to))), &[TYPED, STEP]),
        door("client.fork", State, Forked, Client(|to| Box::pin(fork(to))), &[TYPED, STEP]),
        door("client.signal_raw", Payload, Waiting, Client(|to| Box::pin(signal_raw(to))), &[TYPED]),
        door("client.signal_many", Payload, Waiting, Client(|to| Box::pin(signal_many(to))), &[TYPED]),
        door("client.signal_in", Payload, Waiting, OnPostgres(|to| Box::pin(signal_in(to))), &[TYPED]),
        door("client.edit_signal", Payload, Kept, Client(|to| Box::pin(edit_signal(to))), &[TYPED, SIGNAL]),
        door("client.complete, id", Output, Asked, Client(|to| Box::pin(complete(to))), &[TYPED]),
        door(
            "client.complete, correlation id",
            Output,
            Asked,
            Client(|to| Box::pin(complete_correlated(to))),
            &[TYPED],
        ),
        door("client.complete_as", Output, Asked, Client(|to| Box::pin(complete_as(to))), &[TYPED]),
        door(
            "client.complete_by_token",
            Output,
            Asked,
            Client(|to| Box::pin(complete_by_token(to))),
            &[TYPED, TOKEN],
        ),
        door("client.complete_many", Output, Asked, Client(|to| Box::pin(complete_many(to))), &[TYPED]),
        door("client.fail", Reason, Asked, Client(|to| Box::pin(fail(to))), RUST),
        door(
            "POST /v1/instances",
            State,
            New,
            Http("/v1/instances", r#"{"machine":"$machine","step":"Wait","state":$document,"key":"$key"}"#),
            &[],
        ),
        door(
            "POST /v1/instances, its signal",
            Payload,
            New,
            Http(
                "/v1/instances",
                r#"{"machine":"hall","step":"Wait","state":{"order":1},"key":"$key","signals":[{"name":"$signal","payload":$document}]}"#,
            ),
            &[],
        ),
        door(
            "POST /v1/instances/batch",
            State,
            New,
            Http(
                "/v1/instances/batch",
                r#"{"instances":[{"machine":"hall","step":"Wait","state":{"order":1},"key":"$key:beside"},{"machine":"$machine","step":"Wait","state":$document,"key":"$key"}]}"#,
            ),
            &[],
        ),
        door(
            "POST /retry",
            State,
            Cancelled,
            Http("/v1/instances/$id/retry", r#"{"step":"$step","state":$document}"#),
            &[STEP],
        ),
        door(
            "POST /fork",
            State,
            Forked,
            Http("/v1/instances/$id/fork", r#"{"seq":1,"step":"$step","state":$document,"key":"$key:fork"}"#),
            &[STEP],
        ),
        door(
            "POST /signals",
            Payload,
            Waiting,
            Http("/v1/instances/$id/signals", r#"{"name":"$signal","payload":$document}"#),
            &[],
        ),
        door(
            "POST /v1/signals/batch",
            Payload,
            Waiting,
            Http(
                "/v1/signals/batch",
                r#"{"signals":[{"target":$other,"name":"paid","payload":{"cents":7}},{"target":"key:$key","name":"$signal","payload":$document}]}"#,
            ),
            &[],
        ),
        door(
            "POST /inbox/edit",
            Payload,
            Kept,
            Http("/v1/instances/$id/inbox/$kept/edit", r#"{"payload":$document}"#),
            &[SIGNAL],
        ),
        door(
            "POST /complete",
            Output,
            Asked,
            Http("/v1/interactions/$interaction/complete", r#"{"output":$document}"#),
            &[],
        ),
        door(
            "POST /complete, correlation id",
            Output,
            Asked,
            Http("/v1/interactions/correlation:$correlation/complete", r#"{"output":$document}"#),
            &[],
        ),
        door(
            "POST /v1/interactions/batch",
            Output,
            Asked,
            Http(
                "/v1/interactions/batch",
                r#"{"answers":[{"interaction":$interaction,"output":$document}]}"#,
            ),
            &[],
        ),
        door(
            "POST /v1/resume",
            Output,
            Asked,
            Http("/v1/resume/$token", r#"{"output":$document}"#),
            &[TOKEN],
        ),
        door(
            "POST /fail",
            Reason,
            Asked,
            Http("/v1/interactions/$interaction/fail", r#"{"reason":$document}"#),
            &[],
        ),
        door(
            "POST /v1/resume, error",
            Reason,
            Asked,
            Http("/v1/resume/$token", r#"{"error":$document}"#),
            &[TOKEN],
        ),
        door(
            "a form: signal",
            Payload,
            Waiting,
            Form("/instances/$id", "/instances/$id/signal", &[("name", "$signal"), ("payload", "$document")]),
            &[],
        ),
        door(
            "a form: edit a signal",
            Payload,
            Kept,
            Form("/instances/$id", "/instances/$id/inbox/$kept/edit", &[("payload", "$document")]),
            &[SIGNAL],
        ),
        door(
            "a form: answer",
            Output,
            Asked,
            Form("/instances/$id", "/inbox/$interaction/complete", &[("output", "$document")]),
            &[],
        ),
        door(
            "a form: fork",
            State,
            Forked,
            Form(
                "/instances/$id",
                "/instances/$id/fork",
                &[("seq", "1"), ("step", "$step"), ("state", "$document"), ("key", "$key:fork")],
            ),
            &[STEP],
        ),
        door(
            "dormouse start",
            State,
            New,
            Cli(&["start", "$machine", "--step", "Wait", "--state", "$document", "--key", "$key"]),
            &[],
        ),
        door(
            "dormouse retry",
            State,
            Cancelled,
            Cli(&["retry", "$id", "--step", "$step", "--state", "$document"]),
            &[STEP],
        ),
        door(
            "dormouse signal",
            Payload,
            Waiting,
            Cli(&["signal", "$signal", "$document", "--to", "$id"]),
            &[],
        ),
        door(
            "dormouse signal --where",
            Payload,
            Waiting,
            Cli(&["signal", "$signal", "$document", "--where", "key=$key", "--yes"]),
            &[],
        ),
        door(
            "dormouse inbox edit",
            Payload,
            Kept,
            Cli(&["inbox", "edit", "$id", "$kept", "$document"]),
            &[SIGNAL],
        ),
        door(
            "dormouse interactions complete",
            Output,
            Asked,
            Cli(&["interactions", "complete", "$interaction", "$document"]),
            &[],
        ),
        door(
            "select dormouse.start",
            State,
            New,
            Sql("select dormouse.start('$machine', $1::text::json, key => '$key')::text"),
            &[],
        ),
        door(
            "select dormouse.signal, key",
            Payload,
            Waiting,
            Sql("select dormouse.signal('$key', '$signal', $1::text::json)"),
            &[],
        ),
        door(
            "select dormouse.signal, id",
            Payload,
            Waiting,
            Sql("select dormouse.signal($id, '$signal', $1::text::json)"),
            &[],
        ),
        door(
            "a webhook's answer",
            Output,
            AskedOf("partner"),
            Webhook(r#"{"output":$document}"#),
            &[
                (NotJson, Cannot("a body that is not an answer means that the request was accepted")),
                (UnknownName, Cannot("it answers the request that it comes back from")),
            ],
        ),
        door(
            "NATS, id",
            Output,
            AskedOf("bank"),
            Nats(r#"{"interaction":$interaction,"output":$document}"#),
            &[NATS_LARGE],
        ),
        door(
            "NATS, correlation id",
            Output,
            AskedOf("bank"),
            Nats(r#"{"correlation_id":"$correlation","output":$document}"#),
            &[NATS_LARGE],
        ),
    ]
}

const NATS_LARGE: (Bad, Cell) = (TooLarge, Cannot("the broker itself takes no message over 1 MiB"));
