//! Mail: what an outcome sends to other instances. It is committed with the outcome, and delivered right after it.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::limits::{Limits, check_name, check_reason};
use crate::{Error, InstanceId, Json, NewInstance, NewSignal, Result, Signal, Target};

/// One piece of mail: an instance to start, a signal to another instance, or the cancel of one.
///
/// An outcome takes it with [`Outcome::mail`](crate::Outcome::mail), and so do jobs and the acts of a flow, with
/// [`Context::mail`](crate::Context::mail). It stays in the sender's namespace.
///
/// Its JSON form is an object of one field: `{"signal": {"to": {"key": "order:42"}, "signal": {…}}}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Mail {
    /// Starts a detached instance: nobody waits for it, and it is not cancelled with its sender.
    Start(Box<NewInstance>),
    /// Puts a signal into another instance's inbox.
    Signal {
        /// The other instance.
        to: Target,
        /// The signal.
        signal: NewSignal,
    },
    /// Cancels another instance. One that has ended stays as it is.
    Cancel {
        /// The other instance.
        to: Target,
        /// Why.
        reason: Option<String>,
    },
}

impl Mail {
    /// Starts a detached instance.
    pub fn start(new: NewInstance) -> Self {
        Self::Start(Box::new(new))
    }

    /// Signals another instance, by id or by key.
    pub fn signal<T: Serialize>(to: impl Into<Target>, signal: Signal<T>, payload: &T) -> Result<Self> {
        Ok(Self::Signal { to: to.into(), signal: NewSignal::of(signal, payload)? })
    }

    /// Signals another instance by the signal's name, with a payload in JSON.
    pub fn signal_raw(to: impl Into<Target>, signal: NewSignal) -> Self {
        Self::Signal { to: to.into(), signal }
    }

    /// Keeps a signal for so long if no instance has its key when it is delivered. Other mail is left as it is.
    #[must_use]
    pub fn keep_for(self, duration: Duration) -> Self {
        match self {
            Self::Signal { to, signal } => Self::Signal { to, signal: signal.keep_for(duration) },
            other => other,
        }
    }

    /// Cancels another instance, by id or by key.
    pub fn cancel(to: impl Into<Target>) -> Self {
        Self::Cancel { to: to.into(), reason: None }
    }

    /// Its word: `start`, `signal` or `cancel`.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Start(_) => "start",
            Self::Signal { .. } => "signal",
            Self::Cancel { .. } => "cancel",
        }
    }

    /// Whom it is for. Mail of one sender to one address arrives in order. A start without a key has none.
    pub(crate) fn address(&self) -> Option<String> {
        match self {
            Self::Start(new) => new.key.as_ref().map(|key| format!("key:{key}")),
            Self::Signal { to: Target::Key(key), .. } | Self::Cancel { to: Target::Key(key), .. } => {
                Some(format!("key:{key}"))
            }
            Self::Signal { to: Target::Id(id), .. } | Self::Cancel { to: Target::Id(id), .. } => {
                Some(format!("id:{id}"))
            }
        }
    }

    /// About how many bytes its documents take.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Start(new) => {
                let signals = new.signals.iter().map(|signal| signal.payload.as_str().len());
                new.at.state.as_str().len() + signals.sum::<usize>()
            }
            Self::Signal { signal, .. } => signal.payload.as_str().len(),
            Self::Cancel { reason, .. } => reason.as_ref().map_or(0, String::len),
        }
    }

    /// What a history says of it: no documents.
    pub(crate) fn told(&self) -> serde_json::Value {
        let to = |to: &Target| match to {
            Target::Id(id) => json!(id),
            Target::Key(key) => json!(key),
        };
        match self {
            Self::Start(new) => match &new.key {
                Some(key) => json!({ "start": new.machine, "key": key }),
                None => json!({ "start": new.machine }),
            },
            Self::Signal { to: target, signal } => json!({ "signal": signal.name, "to": to(target) }),
            Self::Cancel { to: target, .. } => json!({ "cancel": to(target) }),
        }
    }

    /// Refuses mail that could not be stored. A start is checked by the client, as every start is.
    pub(crate) fn check(&self, limits: &Limits, sender: InstanceId, key: Option<&str>) -> Result<()> {
        let to = match self {
            Self::Start(_) => return Ok(()),
            Self::Signal { to, signal } => {
                signal.check(limits)?;
                signal.check_kept_by(to)?;
                to
            }
            Self::Cancel { to, reason } => {
                reason.as_deref().map_or(Ok(()), check_reason)?;
                to
            }
        };
        let is_own = match to {
            Target::Id(id) => *id == sender,
            Target::Key(to) => {
                check_name("key", to)?;
                Some(to.as_str()) == key
            }
        };
        if is_own {
            return Err(Error::InvalidOutcome(format!(
                "it sends mail ({}) to its own instance; go on with `next`, or end, instead",
                self.kind()
            )));
        }
        Ok(())
    }
}

impl From<NewInstance> for Mail {
    fn from(new: NewInstance) -> Self {
        Self::start(new)
    }
}

/// Refuses more mail than one outcome may send.
pub(crate) fn check_amount(mail: &[Mail], limits: &Limits) -> Result<()> {
    let bytes: usize = mail.iter().map(Mail::bytes).sum();
    let over = |what: String, max: usize| {
        let advice = "send the rest with a later outcome, or store the bulk elsewhere";
        Err(Error::InvalidOutcome(format!("it sends {what} and the limit is {max}; {advice}")))
    };
    if mail.len() > limits.mail_max {
        return over(format!("{} pieces of mail", mail.len()), limits.mail_max);
    }
    if bytes > limits.mail_bytes_max {
        return over(format!("{bytes} bytes of mail"), limits.mail_bytes_max);
    }
    Ok(())
}

/// Pieces of mail that the event of an outcome names.
const TOLD_MAX: usize = 16;

/// What the event of an outcome says of its mail: the first pieces, and how many there are.
pub(crate) fn told(mail: &[Mail]) -> (Json, u64) {
    let first: Vec<_> = mail.iter().take(TOLD_MAX).map(Mail::told).collect();
    (Json::from(json!(first)), mail.len() as u64)
}

/// The id of a piece of mail that waits. Ids grow in the order in which mail was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MailId(pub i64);

impl fmt::Display for MailId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAID: Signal<u64> = Signal::named("paid");

    #[test]
    fn mail_to_oneself_is_refused_by_id_and_by_key_and_a_start_with_the_own_key_is_not() {
        let limits = Limits::default();
        let check = |mail: Mail| mail.check(&limits, InstanceId(7), Some("order:7"));
        let refused = |mail: Mail| matches!(check(mail), Err(Error::InvalidOutcome(why)) if why.contains("own instance"));
        assert!(refused(Mail::signal(InstanceId(7), PAID, &1).expect("mail")));
        assert!(refused(Mail::signal("order:7", PAID, &1).expect("mail")));
        assert!(refused(Mail::cancel(InstanceId(7))));
        assert!(check(Mail::cancel("order:8")).is_ok());
        let at = crate::At { step: "start".into(), state: Json::null() };
        assert!(check(Mail::start(NewInstance::named("m", 1, at).key("order:7"))).is_ok());
    }

    #[test]
    fn an_outcome_sends_so_much_mail_and_no_more() {
        let limits = Limits { mail_max: 2, mail_bytes_max: 4, ..Limits::default() };
        let mail = |payload: u64| Mail::signal("k", PAID, &payload).expect("mail");
        assert!(check_amount(&[mail(1), mail(2)], &limits).is_ok());
        assert!(check_amount(&[mail(1), mail(2), mail(3)], &limits).is_err());
        assert!(check_amount(&[mail(12), mail(345)], &limits).is_err());
    }

    #[test]
    fn an_event_names_the_first_pieces_and_counts_all() {
        let mail = vec![Mail::cancel("a"); 40];
        let (first, total) = told(&mail);
        assert_eq!(total, 40);
        assert_eq!(first.decode::<Vec<serde_json::Value>>("mail").expect("a list").len(), 16);
    }
}
