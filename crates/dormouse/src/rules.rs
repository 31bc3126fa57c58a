//! The rules of an instance, once: a [`Head`] and an [`Input`] give a [`Change`], as data.
//!
//! Nothing here knows SQL, waits for anything, or reads a clock: the moment is an argument. A store loads the head under
//! its lock, looks up the few facts that a rule asks for, decides here, and writes what comes out. `check`, what-if and the
//! testing kit decide here too, so that what they show is what the stores do.
//!
//! One file for each kind of input, named after the design's words:
//!
//! | file | what happens to the instance |
//! |---|---|
//! | `start.rs` | it is inserted |
//! | `outcome.rs` | a step returned: next, replay, sleep, await, spawn, dispatch, done, stop |
//! | `signal.rs` | a signal arrives, is consumed, dropped or edited |
//! | `clock.rs` | its moment comes |
//! | `child.rs` | one of its children ends |
//! | `answer.rs` | the outside answers its unit |
//! | `cancel.rs` | somebody cancels it |
//! | `retry.rs` | somebody retries it after its end |
//! | `mail.rs` | mail that it sent comes back as undelivered |
//! | `pause.rs` | somebody puts its brake on or off |
//! | `claim.rs` | a worker takes it |
//! | `reap.rs` | its worker died, or gave it back |
//!
//! `lane.rs`, `rate.rs` and `key.rs` hold what must be true between instances: so many holders of a lane, so many starts in
//! a period, one holder of a key. `sends.rs` is about transports: how many sends one lets out.
//!
//! [`decide`] has no surprises: an input that cannot happen to an instance as it stands changes nothing. So a test may drive
//! a machine through [`start`] and [`decide`] with random inputs, and needs no store for it.
//!
//! ```
//! use dormouse::jiff::Timestamp;
//! use dormouse::rules::{Head, Input, decide};
//! use dormouse::{InstanceId, Status, Wake};
//!
//! let mut head = Head::new(InstanceId(1), "checkout", 1, "waiting");
//! head.status = Status::AwaitingSignal;
//! head.awaits = vec!["paid".to_owned()];
//! head.wake_at = Some(Timestamp::UNIX_EPOCH);
//! let change = decide(head, Input::Clock, Timestamp::UNIX_EPOCH);
//! assert_eq!(change.head.status, Status::Runnable);
//! assert_eq!(change.head.wake, Some(Wake::Timeout));
//! assert_eq!(change.events[0].kind.as_str(), "signal.timeout");
//! ```

mod answer;
mod cancel;
mod change;
mod child;
mod claim;
mod clock;
mod edit;
mod head;
mod key;
mod lane;
mod mail;
mod outcome;
mod pause;
mod rate;
mod reap;
mod retry;
mod sends;
mod signal;
mod start;
#[cfg(test)]
mod tests;

use jiff::Timestamp;

pub use self::answer::{Answered, UnitHead};
pub(crate) use self::answer::{answer, close, first_answer, send_recorded};
pub use self::cancel::{Cancelled, Cause};
pub(crate) use self::cancel::{ask_to_undo, cancel, cancelled_because, end_cancelled, let_go_by_parent};
pub use self::change::{Change, Data, Join, NewEvent};
pub(crate) use self::child::join;
pub use self::child::{Barrier, Released};
pub(crate) use self::claim::claim;
pub(crate) use self::clock::fire;
pub(crate) use self::edit::edit;
#[cfg(feature = "postgres")]
pub(crate) use self::edit::edit_refused;
pub use self::head::Head;
pub(crate) use self::key::{fail_for_taken_key, takes_key};
pub use self::lane::{change_lane, settle};
pub use self::mail::Undelivered;
pub(crate) use self::mail::undelivered;
pub(crate) use self::outcome::outcome;
pub use self::outcome::{
    Consumed, Facts, Handed, Hold, INBOX_WITH_RECEIPT_BYTES_MAX, Returned, consumes, owns, unseen,
};
pub(crate) use self::pause::pause;
pub(crate) use self::rate::AHEAD_NS;
pub use self::rate::{Bucket, Spent};
pub use self::reap::Crash;
pub(crate) use self::reap::{forget_claim, take_back};
pub use self::retry::LastWait;
pub(crate) use self::retry::retry;
pub(crate) use self::sends::{Allowed, TransportHead};
pub use self::sends::{BreakerStatus, Held, Judged, SendTally};
pub(crate) use self::signal::{arrive, awaited_by, leave, signal_data, wait_again, wake_by_signal};
pub(crate) use self::start::begin;
pub use self::start::{Begun, start};
use crate::{At, InboxSignal, InstanceId, Status, WorkerId};

/// Something that happens to an instance.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Input<'a> {
    /// A worker claims it.
    Claim(WorkerId),
    /// Its step returned. (Whether the commit still owns the claim is asked before: [`owns`].)
    Outcome(Returned<'a>),
    /// A signal was stored in its inbox.
    Signal(&'a InboxSignal),
    /// Its moment has come. (A unit has its own: [`Input::UnitClosed`].)
    Clock,
    /// A child of this round ended with this status; the barrier as it stands.
    ChildEnd {
        /// The round that the child belongs to.
        round: u32,
        /// How the child ended.
        status: Status,
        /// What is special about the barrier, if anything is.
        barrier: Option<Barrier>,
    },
    /// An item of its unit was resolved.
    Answer {
        /// The unit that it is parked on.
        unit: UnitHead,
        /// The interaction and its place among the items.
        item: (crate::InteractionId, u32),
        /// How it was resolved.
        how: Answered<'a>,
    },
    /// Its unit was closed as a whole: all of it was answered, or its deadline passed.
    UnitClosed(UnitHead, crate::UnitStatus),
    /// Somebody cancels it; its machine does not undo at this step.
    Cancel(Cause, Option<UnitHead>),
    /// Somebody cancels it; its machine undoes at this step.
    Undo {
        /// The request, as it is stored in the inbox.
        request: &'a InboxSignal,
        /// The unit that it is parked on.
        unit: Option<UnitHead>,
        /// Whether children of it live that are cancelled with it.
        has_live_children: bool,
    },
    /// The barrier of its parent was released without it: it is cancelled, and its end counts for nothing.
    LetGo(Option<UnitHead>),
    /// Somebody retries it, at its step or elsewhere.
    Retry(Option<&'a At>, LastWait),
    /// Somebody puts its brake on, or off.
    Pause(bool),
    /// Its worker died with its step.
    Reap(Crash<'a>),
    /// Its worker, of this name, gives it back; its step ran, or may have.
    GivenBack(Option<&'a str>),
    /// Its worker gives it back, and its step did not run.
    Unused,
    /// Mail that it sent cannot be delivered.
    Undelivered(Undelivered<'a>),
    /// Another instance holds the key that it would hold after what was decided before.
    KeyTaken(InstanceId),
}

/// Decides what becomes of an instance when something happens to it. An input that is impossible in its status changes
/// nothing.
pub fn decide(head: Head, input: Input<'_>, now: Timestamp) -> Change {
    let mut change = Change::of(head);
    if !can_happen(&change.head, &input, now) {
        return change;
    }
    match input {
        // However its claim ends, an instance that is to be cancelled ends with it.
        Input::Outcome(_) | Input::Reap(_) | Input::GivenBack(_) | Input::Unused
            if change.head.cancel_requested =>
        {
            end_cancelled(&mut change, None, now);
        }
        Input::Claim(worker) => claim(&mut change, worker),
        Input::Outcome(returned) => outcome(&mut change, &returned, now),
        Input::Signal(signal) => {
            arrive(&mut change.head, signal.payload.as_str().len());
            if awaited_by(&change.head, &signal.name) {
                wake_by_signal(&mut change, signal, now);
            }
        }
        Input::Clock => fire(&mut change, now),
        Input::ChildEnd { round, status, barrier } => {
            let _ = join(&mut change, round, status, barrier, now);
        }
        Input::Answer { mut unit, item, how } => {
            let asks_next = answer(&mut change, &mut unit, item, &how, now);
            unit.next_item += u32::from(asks_next);
            change.unit = Some(unit);
        }
        Input::UnitClosed(unit, status) => close(&mut change, &unit, status, now),
        Input::Cancel(cause, unit) => {
            cancelled_because(&mut change.head, &cause);
            let _ = cancel(&mut change, unit.as_ref(), now);
        }
        Input::Undo { request, unit, has_live_children } => {
            ask_to_undo(&mut change, request, unit.as_ref(), has_live_children, now);
        }
        Input::LetGo(unit) => {
            let_go_by_parent(&mut change.head);
            let _ = cancel(&mut change, unit.as_ref(), now);
        }
        Input::Retry(at, last) => retry(&mut change, at, last, now),
        Input::Pause(on) => pause(&mut change, on),
        Input::Reap(crash) => take_back(&mut change, crash.worker, Some(&crash), now),
        Input::GivenBack(worker) => take_back(&mut change, worker, None, now),
        Input::Unused => forget_claim(&mut change),
        Input::Undelivered(mail) => undelivered(&mut change, &mail),
        Input::KeyTaken(holder) => fail_for_taken_key(&mut change, holder, now),
    }
    change
}

/// Whether this can happen to an instance in its present status. Stores refuse the rest with a reason, before they
/// decide.
fn can_happen(head: &Head, input: &Input<'_>, now: Timestamp) -> bool {
    let status = head.status;
    match input {
        Input::Claim(_) => status == Status::Runnable && head.is_open(),
        Input::Outcome(_) | Input::Reap(_) | Input::GivenBack(_) | Input::Unused => {
            status == Status::Executing
        }
        Input::Clock => head.wake_at.is_some_and(|at| at <= now),
        Input::ChildEnd { .. } => status == Status::AwaitingChildren,
        Input::Answer { .. } | Input::UnitClosed(..) => status == Status::AwaitingCompletion,
        Input::Signal(_) | Input::Cancel(..) | Input::Undo { .. } | Input::LetGo(_) | Input::Pause(_) => {
            !status.is_terminal()
        }
        Input::Undelivered(_) => status != Status::Executing,
        Input::Retry(..) => matches!(status, Status::Failed | Status::Cancelled),
        // It follows from what was decided before, whatever that was.
        Input::KeyTaken(_) => true,
    }
}
