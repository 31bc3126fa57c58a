//! Signals: outside events with a name, a payload and perhaps a dedup key.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::limits::{Limits, check_name};
use crate::machine::Accepted;
use crate::{Error, Form, InstanceId, Json, Outline, Result, Trace};

/// A signal's name together with the type of its payload.
///
/// ```
/// # use dormouse::Signal;
/// # #[derive(serde::Serialize, serde::Deserialize)] struct Payment { amount: u64 }
/// const PAID: Signal<Payment> = Signal::named("payment_confirmed");
/// ```
pub struct Signal<T> {
    name: &'static str,
    payload: PhantomData<fn() -> T>,
}

impl<T> Signal<T> {
    /// A signal of this name.
    pub const fn named(name: &'static str) -> Self {
        Self { name, payload: PhantomData }
    }

    /// Its name.
    pub const fn name(&self) -> &'static str {
        self.name
    }
}

impl<T> Clone for Signal<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Signal<T> {}

impl<T> fmt::Debug for Signal<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Signal({:?})", self.name)
    }
}

impl<T> From<Signal<T>> for String {
    fn from(signal: Signal<T>) -> Self {
        signal.name.to_owned()
    }
}

/// A signal as a machine declares it. Its payloads are checked before they are stored: by its type in a process that
/// has the machine's code, and by the type's [`Outline`] in one that does not.
#[derive(Clone, Debug)]
pub struct Accepts {
    /// The signal's name.
    pub name: &'static str,
    /// Another name by which it may be sent.
    pub(crate) also: Option<String>,
    /// Returns why a payload does not decode into the declared type.
    pub check: fn(&Json) -> Result<(), String>,
    /// Makes example payloads of the declared type, the simplest first.
    pub examples: fn() -> Vec<Json>,
    /// Describes what its payloads look like.
    pub form: fn() -> Form,
    /// Describes what its payloads must look like so that they decode.
    pub outline: fn() -> Outline,
    /// The JSON Schema that its payloads fit.
    pub schema: Option<serde_json::Value>,
}

impl Accepts {
    /// Also refuses a payload that does not fit this JSON Schema, even in a process without the machine's code. The
    /// schema must contain everything that it refers to: nothing is fetched.
    ///
    /// ```
    /// # use dormouse::{Accepts, Signal};
    /// const PAYMENT: Signal<u64> = Signal::named("payment");
    ///
    /// let accepts = Accepts::from(PAYMENT).schema(serde_json::json!({ "type": "integer", "minimum": 1 }));
    /// ```
    #[cfg(feature = "schema")]
    #[must_use]
    pub fn schema(mut self, schema: serde_json::Value) -> Self {
        self.schema = Some(schema);
        self
    }
}

impl From<&Accepts> for Accepted {
    fn from(accepts: &Accepts) -> Self {
        Self {
            signal: accepts.name.to_owned(),
            also: accepts.also.clone(),
            form: (accepts.form)(),
            schema: accepts.schema.clone(),
            outline: (accepts.outline)(),
        }
    }
}

/// Examples of one payload: enough to cover its cases.
const EXAMPLES_MAX: usize = 6;

impl<T: DeserializeOwned> From<Signal<T>> for Accepts {
    fn from(signal: Signal<T>) -> Self {
        Self {
            name: signal.name,
            also: None,
            check: |payload| crate::json::decode_text::<T>(payload.as_str()).map(drop),
            form: Form::of::<T>,
            outline: Outline::of::<T>,
            schema: None,
            examples: || crate::sample::samples::<T>(EXAMPLES_MAX),
        }
    }
}

/// The id of a stored signal. Ids grow in the order of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SignalId(pub i64);

impl fmt::Display for SignalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The name, and the dedup key, of the signal that asks an instance to undo what it did and to end. A cancel sends it
/// to machines that declare that they undo.
pub(crate) const CANCEL: &str = "$cancel";

/// A signal on its way in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewSignal {
    /// Its name.
    pub name: String,
    /// Its payload.
    pub payload: Json,
    /// Its dedup key: another signal with this key is ignored for the life of the instance.
    pub dedup_key: Option<String>,
    /// The trace in which it was sent, as [`Trace`] writes it; checked when it is sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
    /// How long it is kept if no instance has the key that it is sent to yet; `None`: not at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_for: Option<Duration>,
}

impl NewSignal {
    /// A signal with a payload and no dedup key.
    pub fn new(name: impl Into<String>, payload: Json) -> Self {
        Self { name: name.into(), payload, dedup_key: None, trace: None, keep_for: None }
    }

    /// A signal with a payload of its type.
    pub fn of<T: Serialize>(signal: Signal<T>, payload: &T) -> Result<Self> {
        Ok(Self::new(signal.name(), Json::encode("signal payload", payload)?))
    }

    /// Sets the dedup key.
    #[must_use]
    pub fn dedup(mut self, key: impl Into<String>) -> Self {
        self.dedup_key = Some(key.into());
        self
    }

    /// Sets the trace in which it is sent, given as in the header `traceparent`. The step that receives it is linked with
    /// that trace.
    #[must_use]
    pub fn trace(mut self, trace: impl Into<String>) -> Self {
        self.trace = Some(trace.into());
        self
    }

    /// Keeps it for so long if no instance has the key that it is sent to yet: it is in the inbox of the instance that
    /// starts with that key in the meantime. At most [`KEEP_FOR_MAX`].
    #[must_use]
    pub fn keep_for(mut self, duration: Duration) -> Self {
        self.keep_for = Some(duration);
        self
    }

    pub(crate) fn check(&self, limits: &Limits) -> Result<()> {
        check_name("signal name", &self.name)?;
        if let Some(trace) = &self.trace {
            trace.parse::<Trace>()?;
        }
        if let Some(key) = &self.dedup_key {
            check_name("dedup key", key)?;
        }
        if let Some(duration) = self.keep_for
            && !(KEEP_FOR_MIN..=KEEP_FOR_MAX).contains(&duration)
        {
            return Err(Error::NotKept(format!(
                "it cannot be kept for {duration:?}: keep it for a millisecond or longer, and for 366 days at most"
            )));
        }
        limits.check_document("signal payload", &self.payload)
    }

    /// Refuses to keep a signal that is sent to an id: nobody starts an instance with that id.
    pub(crate) fn check_kept_by(&self, target: &Target) -> Result<()> {
        match (self.keep_for, target) {
            (Some(_), Target::Id(_)) => Err(Error::NotKept(
                "it is sent to an id, and only a key can have an instance later; send it to a key".to_owned(),
            )),
            _ => Ok(()),
        }
    }
}

/// The shortest time for which a signal is kept.
const KEEP_FOR_MIN: Duration = Duration::from_millis(1);
/// The longest time for which a signal is kept: 366 days.
pub const KEEP_FOR_MAX: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// The id of a kept signal. Ids grow in the order of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct KeptId(pub i64);

impl fmt::Display for KeptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A signal that is kept for an instance to come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptSignal {
    /// Its id while it is kept.
    pub id: KeptId,
    /// The key of the instance that it is kept for.
    pub key: String,
    /// Its name.
    pub name: String,
    /// Its payload.
    pub payload: Json,
    /// Its dedup key.
    pub dedup_key: Option<String>,
    /// When it was sent.
    pub at: Timestamp,
    /// When it expires.
    pub until: Timestamp,
}

/// A signal in an instance's inbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InboxSignal {
    /// Its id.
    pub id: SignalId,
    /// Its name.
    pub name: String,
    /// Its payload.
    pub payload: Json,
    /// Its dedup key.
    pub dedup_key: Option<String>,
    /// When it was stored.
    pub at: Timestamp,
    /// The trace in which it was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<Trace>,
}

/// The instance that a call addresses, in the caller's namespace: by id or by key.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// By id.
    Id(InstanceId),
    /// By key: the instance that holds it now, or else the newest one that held it.
    Key(String),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id(id) => write!(f, "{id}"),
            Self::Key(key) => write!(f, "with key {key:?}"),
        }
    }
}

impl From<InstanceId> for Target {
    fn from(id: InstanceId) -> Self {
        Self::Id(id)
    }
}

impl From<&str> for Target {
    fn from(key: &str) -> Self {
        Self::Key(key.to_owned())
    }
}

impl From<String> for Target {
    fn from(key: String) -> Self {
        Self::Key(key)
    }
}

/// The result of sending a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivered {
    /// It is in the inbox; `woke` says whether the instance was parked on it.
    Accepted {
        /// The stored signal.
        id: SignalId,
        /// Whether this delivery made the instance runnable.
        woke: bool,
    },
    /// A signal with this dedup key was delivered before; nothing changed.
    Duplicate,
    /// The target is unknown or has ended; nothing was stored.
    NoTarget,
    /// The target's inbox is full; nothing was stored.
    InboxFull,
    /// No instance has the key yet: the signal is kept for the one that starts with it.
    Kept {
        /// The kept signal.
        id: KeptId,
        /// When it expires.
        until: Timestamp,
    },
    /// No instance has the key yet, and as much is kept in its namespace as the limit allows; nothing was stored.
    KeptFull,
}
