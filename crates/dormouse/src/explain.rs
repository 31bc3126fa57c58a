//! Explains why an instance is not moving, in one sentence.

use jiff::{SignedDuration, Timestamp, TimestampRound};

use crate::store::{BreakerStatus, Held, LaneView, Situation, TransportView, WorkerView};
use crate::{Instance, InstanceId, SendRate, Status};

/// How many holders of a limit are named.
const HOLDERS_SHOWN: usize = 10;

/// `claimed_ahead`: whether a worker of this process has claimed it and not started its step yet.
pub(crate) fn explain(situation: &Situation, claimed_ahead: bool) -> String {
    let instance = &situation.instance;
    let until =
        instance.wake_at.map(|at| format!(" until {}", moment(at, situation.now))).unwrap_or_default();
    let told = match instance.status {
        Status::Done => "it is done".to_owned(),
        Status::Failed => {
            format!("it failed: {}", instance.last_error.as_deref().unwrap_or("no reason was given"))
        }
        Status::Cancelled => format!("it was cancelled{}", cancelled(instance)),
        Status::Executing if claimed_ahead => {
            let queue = &instance.queue;
            format!("a worker of this process has claimed it and waits for a free place in queue {queue:?}")
        }
        Status::Executing => executing(situation),
        Status::Scheduled if instance.attempt > 0 => retrying(situation),
        Status::Scheduled => format!("it sleeps{until}"),
        Status::AwaitingSignal => format!("it is parked on the {}{until}", signals(&instance.awaits)),
        Status::AwaitingChildren => format!(
            "it is parked on its children{until}: {} still to end",
            instance.barrier.map_or_else(|| "some".to_owned(), |left| left.to_string())
        ),
        Status::AwaitingCompletion => format!(
            "it is parked on a unit{until}: {} still to come",
            instance.barrier.map_or_else(|| "some answers".to_owned(), answers)
        ),
        Status::Runnable => runnable(situation),
    };
    let pause = if instance.paused && !instance.status.is_terminal() && instance.status != Status::Runnable {
        "; it is paused, so it will not run even then until it is resumed"
    } else {
        ""
    };
    let key = instance.key.as_ref().map(|key| format!(" {key:?}")).unwrap_or_default();
    format!("instance {}{key} ({} at {:?}): {told}{pause}", instance.id, instance.machine, instance.step)
}

fn answers(left: u32) -> String {
    if left == 1 { "1 answer".to_owned() } else { format!("{left} answers") }
}

fn retrying(situation: &Situation) -> String {
    let Instance { step, attempt, wake_at, last_error, .. } = &situation.instance;
    let when = wake_at.map(|at| moment(at, situation.now)).unwrap_or_default();
    match last_error {
        Some(error) => {
            format!("its step {step:?} failed {} and will be tried again at {when}: {error}", times(*attempt))
        }
        None => format!("its step {step:?} asked to run again at {when}, after {} so far", tries(*attempt)),
    }
}

fn executing(situation: &Situation) -> String {
    let instance = &situation.instance;
    let holder = situation.workers.iter().find(|worker| Some(worker.id) == instance.worker);
    let cancel = if instance.cancel_requested {
        format!("; it will be cancelled when that ends{}", cancelled(instance))
    } else {
        String::new()
    };
    match holder {
        Some(worker) => {
            format!(
                "its step runs on worker {:?}, since {}{cancel}",
                worker.name,
                moment(instance.changed_at, situation.now)
            )
        }
        None => "the worker that ran its step is gone: the next reaper will take it back".to_owned(),
    }
}

/// With which ancestor, and why.
fn cancelled(instance: &Instance) -> String {
    let with = instance.cancelled_with.map(|id| format!(" with instance {id}")).unwrap_or_default();
    let reason = instance.cancel_reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    format!("{with}{reason}")
}

fn runnable(situation: &Situation) -> String {
    let instance = &situation.instance;
    if instance.paused {
        return "it is paused; resume it to let it run".to_owned();
    }
    if situation.queue_paused {
        return format!("its queue {:?} is paused; resume the queue to let it run", instance.queue);
    }
    if instance.lane_blocked {
        let lane = instance.lane.as_deref().unwrap_or_default();
        return match &situation.lane {
            Some(LaneView { width, holders, turn_at: Some(at), turn_is_later, .. })
                if holders.len() < *width as usize =>
            {
                let when = if *turn_is_later { "after" } else { "at" };
                format!("its turn in limit {lane:?} is {when} {}", tenths(*at))
            }
            Some(LaneView { is_limited: true, width, holders, .. }) => {
                let count = holders.len();
                format!("it waits for a place in limit {lane:?} ({count} of {width}{})", numbers(holders))
            }
            Some(LaneView { holders, .. }) if !holders.is_empty() => {
                format!("its lane {lane:?} is held by instance {}", holders[0])
            }
            _ => format!("it waits for its lane {lane:?}"),
        };
    }
    if let Some(reason) = unserved(instance, &situation.workers) {
        return reason;
    }
    in_line(situation)
}

/// Its place in line: more urgent rows go first, and then shares take turns.
fn in_line(situation: &Situation) -> String {
    let Situation { instance, ahead, urgent, weight, .. } = situation;
    let (queue, share) = (&instance.queue, instance.share.as_ref().unwrap_or(&instance.namespace));
    let count = |count: usize, what: &str| match count {
        1 => format!("1 {what}"),
        1000.. => format!("1,000 {what}s or more"),
        count => format!("{count} {what}s"),
    };
    // What is counted up to a bound is at least so much.
    let turns = if *ahead < 1000 { ahead / *weight as usize } else { 1000 };
    let in_share = match (*ahead, turns) {
        (0, _) => format!("it is next in its share {share:?}"),
        (_, 0) => format!("it is served in the next turn of its share {share:?}"),
        (_, turns) => format!("its share {share:?} has {} before it", count(turns, "turn")),
    };
    match (*ahead, *urgent) {
        (0, 0) if instance.share.is_none() => {
            "it is next in its queue and will be claimed at once".to_owned()
        }
        (0, 0) => format!("{in_share} in queue {queue:?} and will be claimed at once"),
        (_, 0) => format!("it waits its turn in queue {queue:?}: {in_share}"),
        (_, urgent) => {
            let urgent = count(urgent, "row");
            format!(
                "it waits its turn in queue {queue:?}: {urgent} of more urgent priorities go first, and {in_share}"
            )
        }
    }
}

/// Some instances, the first few by their numbers.
fn numbers(ids: &[InstanceId]) -> String {
    let mut ids: Vec<_> = ids.iter().map(|id| id.0).collect();
    ids.sort_unstable();
    let first: Vec<_> = ids.iter().take(HOLDERS_SHOWN).map(|id| format!("#{id}")).collect();
    match ids.len().saturating_sub(HOLDERS_SHOWN) {
        0 if first.is_empty() => String::new(),
        0 => format!(": {}", first.join(", ")),
        more => format!(": {} and {more} more", first.join(", ")),
    }
}

/// Why none of these live workers can run a runnable instance; `None` if one can.
pub(crate) fn unserved(instance: &Instance, live: &[WorkerView]) -> Option<String> {
    let runs = (instance.machine.clone(), instance.version);
    if live.is_empty() {
        return Some("it could run, but no worker is live".to_owned());
    }
    if !live.iter().any(|worker| worker.namespaces.contains(&instance.namespace)) {
        return Some(format!("no live worker serves namespace {:?}", instance.namespace));
    }
    if !live.iter().any(|worker| worker.machines.iter().any(|(machine, _)| *machine == instance.machine)) {
        return Some(format!("no live worker runs machine {:?}", instance.machine));
    }
    if !live.iter().any(|worker| worker.machines.contains(&runs)) {
        let Instance { version, machine, .. } = instance;
        return Some(format!("no live worker runs version {version} of machine {machine:?}"));
    }
    if !live.iter().any(|worker| worker.machines.contains(&runs) && worker.queues.contains(&instance.queue)) {
        return Some(format!("no live worker that runs it serves its queue {:?}", instance.queue));
    }
    None
}

/// What holds a transport's sends up, and until when; `None` if nothing does.
pub(crate) fn held(transport: &TransportView, now: Timestamp) -> Option<String> {
    let TransportView { name, limits, in_flight, breaker, .. } = transport;
    let until = transport.held_until.map(|at| moment(at, now)).unwrap_or_default();
    Some(match transport.held? {
        Held::Breaker => {
            let error = breaker.error.as_deref().unwrap_or("no reason was given");
            let after =
                if breaker.failures == 1 { "1 failure" } else { &format!("{} failures", breaker.failures) };
            match breaker.status {
                BreakerStatus::HalfOpen => {
                    format!("transport {name:?} is half open after {after} and waits for its probe: {error}")
                }
                _ => format!("transport {name:?} is open until {until} after {after}: {error}"),
            }
        }
        Held::Rate => {
            let SendRate { count, period, .. } = limits.rate?;
            format!("the next turn in transport {name:?} ({count} in {period:?}) is at {until}")
        }
        Held::InFlight => {
            let width = limits.in_flight?;
            format!("it waits for a place in transport {name:?} ({in_flight} of {width} in flight)")
        }
        Held::Busy => return None,
    })
}

fn signals(names: &[String]) -> String {
    let quoted: Vec<_> = names.iter().map(|name| format!("{name:?}")).collect();
    match quoted.as_slice() {
        [one] => format!("signal {one}"),
        many => format!("signals {}", many.join(" or ")),
    }
}

fn tries(count: u32) -> String {
    if count == 1 { "one try".to_owned() } else { format!("{count} tries") }
}

fn times(count: u32) -> String {
    if count == 1 { "once".to_owned() } else { format!("{count} times") }
}

/// A moment to a tenth of a second.
fn tenths(at: Timestamp) -> Timestamp {
    at.round(TimestampRound::new().smallest(jiff::Unit::Millisecond).increment(100)).unwrap_or(at)
}

/// A moment, and how far off it is.
pub(crate) fn moment(at: Timestamp, now: Timestamp) -> String {
    let away = SignedDuration::from_secs(at.duration_since(now).as_secs());
    let told = at.round(jiff::Unit::Second).unwrap_or(at);
    match away.as_secs() {
        0 => format!("{told} (now)"),
        1.. => format!("{told} (in {away:#})"),
        _ => format!("{told} ({:#} ago)", away.abs()),
    }
}
