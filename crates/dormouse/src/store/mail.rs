//! The part of the store that keeps mail, and signals for instances to come: sending mail is part of an outcome, all else
//! about it is here.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::json;

use super::{Bounds, Portion, Reply, Written};
use crate::{InboxMax, InstanceId, KeptId, KeptMax, KeptSignal, Limits, MailId, NewSignal, Target};

/// The verbs of mail.
///
/// [`Store::commit`](super::Store::commit) writes mail with the outcome that sends it. A piece is delivered by one
/// transaction that removes it and does what it says: so it is delivered once, whoever tries and however often.
///
/// Mail of one sender to one address (an id, or a key) is delivered in the order in which it was sent. A piece whose
/// addressee another transaction holds is put off, and the later ones to that address with it; nothing else waits for it.
pub trait MailStore: Send + Sync + 'static {
    /// The first `rows_max` pieces of mail that are due, and when there are more. It takes nothing: several may deliver at
    /// the same time, and each piece goes to one of them.
    fn mail_due(&self, rows_max: usize) -> Reply<'_, MailDue>;

    /// Delivers, refuses or puts off pieces of mail, and answers for each, in order. Effects: those of the inserts, signals
    /// and cancels.
    ///
    /// What cannot be delivered is an event `mail.undelivered` in its sender's history. It is recorded as soon as no step of
    /// the sender runs; until then the piece stays. An error means that nothing was delivered.
    fn post(&self, batch: Vec<Post>, bounds: MailBounds) -> Reply<'_, Written<Vec<Posted>>>;

    /// Signals of a namespace that are kept for instances to come, in the order in which they came.
    fn kept(&self, namespace: String, filter: KeptFilter, bounds: Bounds) -> Reply<'_, Portion<KeptSignal>>;

    /// How much is kept, for each namespace in which something is, or for this one: up to 1,000 of them.
    fn kept_counts(&self, namespace: Option<String>) -> Reply<'_, Vec<KeptCount>>;

    /// Removes a kept signal, and answers whether it was there.
    fn drop_kept(&self, namespace: String, id: KeptId) -> Reply<'_, bool>;

    /// The first `rows_max` pieces of mail of an instance that still wait, in the order in which they were sent.
    fn mail_of(&self, sender: InstanceId, rows_max: usize) -> Reply<'_, Vec<MailView>>;
}

/// Which kept signals a list shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeptFilter {
    /// Only those for this key.
    pub key: Option<String>,
    /// Only those after this one.
    pub after: Option<KeptId>,
}

/// How much is kept in a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct KeptCount {
    /// The namespace.
    pub namespace: String,
    /// Signals.
    pub signals: u64,
    /// Bytes of their payloads.
    pub bytes: u64,
}

/// Mail that is due.
#[derive(Clone, Debug, Default)]
pub struct MailDue {
    /// The first pieces.
    pub mail: Vec<DueMail>,
    /// When the next piece is due, if these are all that are due now.
    pub next: Option<Timestamp>,
}

/// A piece of mail that is due.
#[derive(Clone, Debug)]
pub struct DueMail {
    /// Its id.
    pub id: MailId,
    /// Its namespace.
    pub namespace: String,
    /// How often it was put off.
    pub tries: u32,
    /// The signal that it is, if it is one and is to be delivered: the target's machine may refuse it.
    pub signal: Option<(Target, NewSignal)>,
}

/// What to do with a piece of mail.
#[derive(Clone, Debug)]
pub struct Post {
    /// The piece.
    pub id: MailId,
    /// What to do with it.
    pub how: Posting,
}

/// What to do with a piece of mail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Posting {
    /// Deliver it.
    Deliver,
    /// It cannot be delivered, for this reason.
    Refuse(String),
    /// Try it again later.
    PutOff,
}

/// What mail may do at its target, by the limits of whoever delivers it.
#[derive(Clone, Copy, Debug)]
pub struct MailBounds {
    /// How much an inbox may hold.
    pub inbox_max: InboxMax,
    /// How long a chain of starts may be.
    pub depth_max: u32,
    /// How much may be kept in a namespace.
    pub kept_max: KeptMax,
}

impl From<&Limits> for MailBounds {
    fn from(limits: &Limits) -> Self {
        Self { inbox_max: limits.inbox(), depth_max: limits.mail_depth_max, kept_max: limits.kept() }
    }
}

/// What became of a piece of mail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Posted {
    /// It was delivered.
    Delivered,
    /// It cannot be delivered, and its sender's history says so.
    Undelivered,
    /// It is tried again later.
    PutOff,
    /// It is gone, or another worker delivers it at this moment.
    Gone,
}

/// A piece of mail that waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MailView {
    /// Its id.
    pub id: MailId,
    /// The instance that sent it.
    pub sender: InstanceId,
    /// The event of its sender that sent it.
    pub seq: u64,
    /// What it is: `start`, `signal` or `cancel`.
    pub kind: String,
    /// The machine to start, or the name of the signal.
    pub name: Option<String>,
    /// Whom it is for: the id or the key of an instance.
    pub to: Option<Target>,
    /// When it was sent.
    pub at: Timestamp,
    /// When it is tried next.
    pub deliver_at: Timestamp,
    /// How often it was put off.
    pub tries: u32,
    /// Why it cannot be delivered: this is recorded when its sender's step ends.
    pub undelivered: Option<String>,
}

impl MailView {
    /// What the event of its delivery's failure says it was, as the event that sent it does.
    pub(crate) fn told(&self) -> serde_json::Value {
        let to = match &self.to {
            Some(Target::Id(id)) => json!(id),
            Some(Target::Key(key)) => json!(key),
            None => serde_json::Value::Null,
        };
        match (&*self.kind, &self.to) {
            ("start", None) => json!({ "start": self.name }),
            ("start", Some(_)) => json!({ "start": self.name, "key": to }),
            ("signal", _) => json!({ "signal": self.name, "to": to }),
            _ => json!({ "cancel": to }),
        }
    }
}

/// The reasons for which a store finds that mail cannot be delivered, in the words of the event.
pub(crate) mod reason {
    pub(crate) const NO_TARGET: &str = "the target is unknown or has ended";
    pub(crate) const INBOX_FULL: &str = "the inbox of the target is full";
    pub(crate) const KEPT_FULL: &str = "no more signals can be kept in this namespace";
    pub(crate) const TOO_DEEP: &str = "the chain of starts by mail is at its limit";

    pub(crate) fn key_taken(holder: i64) -> String {
        format!("its key is taken by instance {holder}")
    }
}

/// The target that an address means.
pub(crate) fn target(address: &str) -> Option<Target> {
    match address.split_once(':')? {
        ("id", id) => Some(Target::Id(InstanceId(id.parse().ok()?))),
        ("key", key) => Some(Target::Key(key.to_owned())),
        _ => None,
    }
}
