//! Mail that a step sends passes the same doors as what a client sends.

use super::Client;
use crate::mail::check_amount;
use crate::store::{Bounds, KeptCount, KeptFilter, MailView, Portion};
use crate::{Context, Error, InstanceId, KeptId, KeptSignal, Mail, NewInstance, Result, Target};

/// Pieces of mail that one look returns.
const SHOWN_MAX: usize = 100;

impl Client {
    /// The mail of an instance that is not delivered yet, in the order in which it was sent: the first 100 pieces.
    pub async fn mail(&self, target: impl Into<Target>) -> Result<Vec<MailView>> {
        let id = self.head_of(target.into()).await?.id;
        self.store.mail_of(id, SHOWN_MAX).await
    }

    /// Signals that are kept for instances to come, in the order in which they came: the first 100 of this filter, or
    /// fewer if they are large.
    pub async fn kept_signals(&self, filter: KeptFilter) -> Result<Portion<KeptSignal>> {
        self.store.kept(self.namespace.to_string(), filter, Bounds::rows(SHOWN_MAX)).await
    }

    /// How much is kept for instances to come.
    pub async fn count_kept(&self) -> Result<KeptCount> {
        let namespace = self.namespace.to_string();
        let counts = self.store.kept_counts(Some(namespace.clone())).await?;
        Ok(counts.into_iter().next().unwrap_or(KeptCount { namespace, ..KeptCount::default() }))
    }

    /// Drops a kept signal. Returns whether it was there: its instance may have started, or its time may be over.
    pub async fn drop_kept(&self, id: KeptId) -> Result<bool> {
        self.store.drop_kept(self.namespace.to_string(), id).await
    }

    /// Checks the mail of an outcome; if one piece is refused, all are. What it starts is in its sender's trace.
    pub(crate) async fn admit_mail(&self, sender: &Context, mail: Vec<Mail>) -> Result<Vec<Mail>> {
        check_amount(&mail, &self.limits)?;
        mail.iter().try_for_each(|mail| mail.check(&self.limits, sender.id, sender.key.as_deref()))?;
        let signals: Vec<_> = mail
            .iter()
            .filter_map(|mail| match mail {
                Mail::Signal { to, signal } => Some((to.clone(), signal.clone())),
                _ => None,
            })
            .collect();
        self.check_all(&signals).await?;
        let starts: Vec<NewInstance> = mail
            .iter()
            .filter_map(|mail| match mail {
                Mail::Start(new) => {
                    let trace = new.trace.clone().or_else(|| sender.trace_onwards());
                    Some(NewInstance { trace, ..(**new).clone() })
                }
                _ => None,
            })
            .collect();
        let mut starts = self.admit_all(starts).await?.into_iter();
        let admitted = mail.into_iter().map(|mail| match mail {
            Mail::Start(_) => Mail::start(starts.next().expect("every start was admitted")),
            other => other,
        });
        Ok(admitted.collect())
    }

    /// Explains a key that no instance has, if signals are kept for it.
    pub(super) async fn explain_nothing(&self, target: Target) -> Result<String> {
        let Target::Key(key) = &target else { return Err(Error::NotFound(target)) };
        let kept = self.kept_signals(KeptFilter { key: Some(key.clone()), after: None }).await?;
        let Some(KeptSignal { name, until, .. }) = kept.items.first() else {
            return Err(Error::NotFound(target));
        };
        let count = match (kept.items.len(), kept.more) {
            (1, false) => "1 signal is kept".to_owned(),
            (count, false) => format!("{count} signals are kept"),
            (count, true) => format!("{count} or more signals are kept"),
        };
        Ok(format!("no instance has the key {key:?} yet; {count} for it, the first ({name:?}) until {until}"))
    }

    /// Adds a remark on mail that still waits.
    pub(super) async fn explain_mail(&self, sender: InstanceId) -> Result<String> {
        let waiting = self.store.mail_of(sender, SHOWN_MAX).await?;
        let Some(first) = waiting.first() else { return Ok(String::new()) };
        let to = match &first.to {
            Some(to @ Target::Id(_)) => format!(" to instance {to}"),
            Some(to @ Target::Key(_)) => format!(" to the instance {to}"),
            None => String::new(),
        };
        let name = first.name.as_ref().map(|name| format!(" {name:?}")).unwrap_or_default();
        let what = format!("{}{name}{to}", first.kind);
        let why = match &first.undelivered {
            Some(reason) => format!("cannot be delivered: {reason}"),
            None if first.tries > 0 => format!("was put off {} times", first.tries),
            None => "is about to be delivered".to_owned(),
        };
        let count = match waiting.len() {
            SHOWN_MAX.. => format!("{SHOWN_MAX} or more pieces of its mail wait"),
            1 => "1 piece of its mail waits".to_owned(),
            count => format!("{count} pieces of its mail wait"),
        };
        Ok(format!("; {count}, the first ({what}) {why}"))
    }
}
