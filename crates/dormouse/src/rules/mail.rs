//! Mail: an outcome sends it, and a piece of it comes back as undelivered.

use super::{Change, Data};
use crate::limits::storable;
use crate::mail::told;
use crate::{EventKind, Json, Mail};

/// A piece of mail that cannot be delivered.
#[derive(Clone, Debug)]
pub struct Undelivered<'a> {
    /// The event of its sender that sent it.
    pub seq: u64,
    /// What it was, as that event names it.
    pub what: Json,
    /// Why it cannot be delivered.
    pub reason: &'a str,
}

/// Adds the mail of an outcome to its change, and to its first event: the first pieces, and how many there are.
pub(super) fn send(change: &mut Change, mail: &[Mail]) {
    if mail.is_empty() {
        return;
    }
    change.mail = mail.to_vec();
    let (first, total) = told(mail);
    let event = change.events.first_mut().expect("an outcome is a transition");
    let data = event.data.take().unwrap_or_default();
    event.data = Some(data.with_json("mail", first).with("mail_total", total));
}

/// Mail of an instance could not be delivered: its history says so, and nothing else changes. While its step runs, that
/// cannot be recorded, as the step's outcome is committed by the `seq` at which it was claimed.
pub(crate) fn undelivered(change: &mut Change, mail: &Undelivered<'_>) {
    let data = Data::new()
        .with("seq", mail.seq)
        .with_json("mail", mail.what.clone())
        .with("reason", &*storable(mail.reason));
    change.record(EventKind::MailUndelivered, Some(data));
}
