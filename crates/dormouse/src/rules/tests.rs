//! The rules that a person would look for by name, and what holds for every status and every input.

mod table;

use std::time::Duration;

use jiff::Timestamp;

use super::*;
use crate::{
    Dispatch, InboxSignal, Interaction, InteractionId, Json, LaneChange, OnFailure, Shape, SignalId, Spawn,
    Transition, UnitId, UnitStatus, Wake, When, WorkerId,
};

const NOW: Timestamp = Timestamp::UNIX_EPOCH;
const HOUR: Duration = Duration::from_secs(3600);

fn at(step: &'static str) -> At {
    At { step: step.into(), state: Json::null() }
}

fn executing() -> Head {
    let head = Head { inbox: 2, inbox_bytes: 8, ..Head::new(InstanceId(1), "m", 1, "start") };
    decide(head, Input::Claim(WorkerId(7)), NOW).head
}

fn signal(id: i64, name: &str) -> InboxSignal {
    let (name, payload) = (name.to_owned(), Json::null());
    InboxSignal { id: SignalId(id), name, payload, dedup_key: None, at: NOW, trace: None }
}

/// An outcome of a step that received nothing.
fn returned(transition: &Transition) -> Returned<'_> {
    let facts = Facts { inserted: 2, unit: Some(UnitId(5)), ..Facts::default() };
    Returned { transition, version: 1, hold: Hold::Release, received: &[], mail: &[], facts }
}

fn waits_for(names: &[&str], timeout: Option<When>) -> Transition {
    Transition::Await { at: at("waits"), names: names.iter().map(ToString::to_string).collect(), timeout }
}

fn dispatch() -> Dispatch {
    let ask = crate::Ask {
        request: Json::null(),
        idempotency_key: String::new(),
        correlation_id: None,
        for_assignee: None,
        for_group: None,
    };
    Dispatch {
        at: at("asks"),
        shape: Shape::Each,
        asks: vec![ask.clone(), ask],
        items: 2,
        transport: crate::INTERACTION_API.to_owned(),
        timeout: None,
        item_timeout: Some(HOUR),
        in_flight: None,
        on_failure: OnFailure::Report,
        quorum: None,
        outputs_max: 10,
    }
}

fn spawn() -> Spawn {
    Spawn {
        at: at("spawns"),
        children: vec![crate::NewInstance::named("m", 1, at("start")); 2],
        timeout: Some(HOUR.into()),
        quorum: None,
        fail_fast: false,
        on_release: crate::Children::Keep,
        on_cancel: crate::Children::Cancel,
    }
}

/// One of each outcome.
fn outcomes() -> Vec<Transition> {
    vec![
        Transition::Next { at: at("next"), ahead: true },
        Transition::Replay { at: at("start"), delay: Duration::ZERO, error: None },
        Transition::Replay { at: at("start"), delay: HOUR, error: Some("busy".to_owned()) },
        Transition::Sleep { at: at("sleeps"), until: HOUR.into() },
        waits_for(&["paid"], None),
        waits_for(&["paid"], Some(HOUR.into())),
        Transition::Spawn(spawn()),
        Transition::Dispatch(dispatch()),
        Transition::Dispatch(Dispatch { asks: vec![], items: 0, ..dispatch() }),
        Transition::Done { output: Json::null() },
        Transition::Fail { error: "no".to_owned() },
    ]
}

#[test]
fn re_await_does_not_spin() {
    let inbox = [(SignalId(1), "paid"), (SignalId(2), "other"), (SignalId(3), "paid")];
    let names = ["paid".to_owned()];
    let first_unseen = |handed: &[SignalId]| unseen(inbox.into_iter(), &names, handed);
    assert_eq!(first_unseen(&[]), Some(SignalId(1)), "the first that came, if none was handed");
    assert_eq!(first_unseen(&[SignalId(1)]), Some(SignalId(3)), "one that came meanwhile");
    assert_eq!(first_unseen(&[SignalId(1), SignalId(3)]), None, "what was handed wakes nobody again");

    let waits = waits_for(&["paid"], None);
    let parked = decide(executing(), Input::Outcome(returned(&waits)), NOW);
    assert_eq!(parked.head.status, Status::AwaitingSignal);
    assert_eq!((parked.consumes.len(), parked.head.inbox), (0, 2), "a pack accumulates");
    let came = signal(3, "paid");
    let facts = Facts { unseen: Some(&came), ..Facts::default() };
    let woken = decide(executing(), Input::Outcome(Returned { facts, ..returned(&waits) }), NOW);
    assert_eq!((woken.head.status, woken.head.wake), (Status::Runnable, Some(Wake::Signal)));
}

#[test]
fn a_barrier_is_joined_once() {
    let child = Head { parent: Some((InstanceId(9), 1)), ..executing() };
    let fails = Transition::Fail { error: "no".to_owned() };
    let ended = decide(child, Input::Outcome(returned(&fails)), NOW);
    assert_eq!(ended.joins.map(|join| (join.parent, join.round)), Some((InstanceId(9), 1)));
    let again = decide(ended.head, Input::Retry(None, LastWait::default()), NOW).head;
    let again = decide(again, Input::Claim(WorkerId(7)), NOW).head;
    assert_eq!(decide(again, Input::Outcome(returned(&fails)), NOW).joins, None);

    let parent = decide(executing(), Input::Outcome(returned(&Transition::Spawn(spawn()))), NOW).head;
    assert_eq!((parent.barrier, parent.round), (Some(2), 1));
    let end = |head: Head, round| {
        decide(head, Input::ChildEnd { round, status: Status::Failed, barrier: None }, NOW).head
    };
    assert_eq!(end(parent.clone(), 2), parent, "an end of another round");
    let woken = end(end(parent, 1), 1);
    assert_eq!((woken.status, woken.wake), (Status::Runnable, Some(Wake::Children)));
    assert_eq!(end(woken.clone(), 1), woken, "an end that comes after its barrier was released");
}

#[test]
fn a_barrier_that_counts_only_what_is_done_bears_what_it_can_spare() {
    let parent = decide(executing(), Input::Outcome(returned(&Transition::Spawn(spawn()))), NOW).head;
    let end = |status, spare| {
        let barrier = Some(Barrier { spare: Some(spare), on_release: crate::Children::Cancel });
        decide(parent.clone(), Input::ChildEnd { round: 1, status, barrier }, NOW)
    };
    let borne = end(Status::Failed, 1);
    assert_eq!((borne.head.barrier, borne.spare), (Some(2), Some(0)));
    let counted = end(Status::Done, 1);
    assert_eq!((counted.head.barrier, counted.spare), (Some(1), None));
    let released = end(Status::Cancelled, 0);
    assert_eq!(released.head.barrier, Some(0), "one more than it bears");
    assert_eq!(released.head.status, Status::AwaitingChildren, "the clock lets go of the rest first");
    assert_eq!(released.head.wake_at, Some(NOW));
    assert_eq!(decide(released.head, Input::Clock, NOW).head.wake, Some(Wake::Children));
}

#[test]
fn a_stale_commit_changes_nothing() {
    let head = executing();
    let seq = head.seq;
    assert!(owns(&head, WorkerId(7), seq));
    assert!(!owns(&head, WorkerId(8), seq), "another worker");
    assert!(!owns(&head, WorkerId(7), seq + 1), "a seq that it has not reached");
    assert!(!owns(&head, WorkerId(7), seq - 1), "a seq that it has left");
    let next = Transition::Next { at: at("next"), ahead: true };
    let lost = decide(head, Input::GivenBack(Some("w")), NOW).head;
    assert!(!owns(&lost, WorkerId(7), seq), "it was given back");
    assert_eq!(decide(lost.clone(), Input::Outcome(returned(&next)), NOW), Change::of(lost));
}

#[test]
fn a_lane_is_handed_over() {
    let lane = Some("l".to_owned());
    let runnable = Head { lane: lane.clone(), ..Head::new(InstanceId(1), "m", 1, "start") };
    let holder = Head { lane, ..executing() };
    for outcome in outcomes() {
        let after = decide(holder.clone(), Input::Outcome(returned(&outcome)), NOW).head;
        let mut settled = after.clone();
        let is_settled = settle(holder.is_open(), &mut settled);
        assert!(!settled.blocked, "{outcome:?} was in the lane and is not behind it");
        assert!(
            is_settled,
            "{outcome:?} ends, parks, or is given back to a lane that may have become narrower"
        );
    }
    let mut held = holder.clone();
    assert!(!settle(true, &mut held) && !held.blocked, "one that runs on has its place");
    let mut woken = runnable.clone();
    assert!(settle(false, &mut woken), "somebody has to look whether the lane is free");
    assert!(woken.blocked, "one that wakes stands behind the lane");
    let mut paused = Head { paused: true, ..runnable.clone() };
    assert!(settle(true, &mut paused) && paused.blocked, "a paused holder hands the lane on");
    let mut no_lane = Head { lane: None, ..runnable };
    assert!(!settle(false, &mut no_lane) && !no_lane.blocked);
}

#[test]
fn a_step_may_leave_its_lane() {
    let (from, to) = (Some("l".to_owned()), LaneChange::To("other".to_owned()));
    let holder = Head { lane: from.clone(), ..executing() };
    for outcome in outcomes() {
        let later = NOW + HOUR;
        let before = decide(holder.clone(), Input::Outcome(returned(&outcome)), later);
        let changed = |lane: &LaneChange| {
            let mut change = before.clone();
            change_lane(&mut change, lane, later);
            change
        };
        assert_eq!(
            changed(&LaneChange::To("l".to_owned())),
            before,
            "{outcome:?} leads to the lane it is in"
        );
        for lane in [&to, &LaneChange::Leave] {
            let Head { lane: led_to, runnable_at, status, .. } = changed(lane).head;
            let expected = if status.is_terminal() { from.as_deref() } else { lane.lane() };
            assert_eq!(led_to.as_deref(), expected, "{outcome:?}");
            assert!(status != Status::Runnable || runnable_at == later, "it stands at the end of the line");
        }
    }
}

#[test]
fn run_ahead_is_bounded() {
    let next = Transition::Next { at: at("next"), ahead: true };
    let after = |head: Head, hold| {
        let after = decide(head, Input::Outcome(Returned { hold, ..returned(&next) }), NOW + HOUR).head;
        (after.status, after.worker, after.runnable_at)
    };
    let (kept, released) = (Some(WorkerId(7)), (Status::Runnable, None, NOW + HOUR));
    assert_eq!(after(executing(), Hold::Keep), (Status::Executing, kept, NOW));
    assert_eq!(after(executing(), Hold::Release), released, "it has had its turn");
    assert_eq!(after(Head { paused: true, ..executing() }, Hold::Keep), released);
    let large = INBOX_WITH_RECEIPT_BYTES_MAX + 1;
    assert_eq!(after(Head { inbox_bytes: large, ..executing() }, Hold::Keep), released);
    let in_lane = Head { lane: Some("l".to_owned()), ..executing() };
    assert_eq!(after(in_lane, Hold::Release), (Status::Runnable, None, NOW), "it keeps its place in a lane");
}

#[test]
fn timers_need_no_sweep() {
    let soon = NOW + HOUR;
    let timed = [(2, Wake::Clock), (3, Wake::Clock), (5, Wake::Timeout), (6, Wake::Timeout)];
    for (outcome, wake) in timed.map(|(place, wake)| (outcomes().swap_remove(place), wake)) {
        let parked = decide(executing(), Input::Outcome(returned(&outcome)), NOW);
        assert_eq!(parked.head.wake_at, Some(soon), "{outcome:?} names its moment");
        assert_eq!(parked.arms, Some(When::In(HOUR)), "and how it was asked for");
        let early = decide(parked.head.clone(), Input::Clock, soon - Duration::from_micros(1));
        assert_eq!(early.head, parked.head, "{outcome:?} before its moment");
        let woken = decide(parked.head.clone(), Input::Clock, soon).head;
        assert_eq!((woken.status, woken.wake, woken.wake_at), (Status::Runnable, Some(wake), None));
        assert_eq!(woken.attempt, parked.head.attempt, "a timeout is a wake, not a failure");
    }
}

#[test]
fn a_cancel_of_a_running_step_ends_it_when_the_step_ends_whatever_the_outcome() {
    let cause = Cause { reason: Some("no longer wanted".to_owned()), with: None };
    let asked = decide(executing(), Input::Cancel(cause.clone(), None), NOW);
    assert!(asked.head.cancel_requested);
    assert_eq!((asked.head.status, asked.events.len()), (Status::Executing, 0), "it runs on for now");
    for outcome in outcomes() {
        let ended = decide(asked.head.clone(), Input::Outcome(returned(&outcome)), NOW);
        assert_eq!((ended.head.status, &*ended.head.step), (Status::Cancelled, "start"), "{outcome:?}");
        assert_eq!((ended.state, ended.output), (None, None), "its outcome is discarded");
        let data = ended.events[0].data.as_ref().expect("a reason").text(NOW);
        assert_eq!(data, r#"{"reason":"no longer wanted"}"#);
    }
    let parked = decide(executing(), Input::Outcome(returned(&waits_for(&["paid"], None))), NOW).head;
    assert_eq!(decide(parked, Input::Cancel(cause, None), NOW).head.status, Status::Cancelled, "at once");
}

#[test]
fn a_repeated_answer_gets_the_first() {
    let open: Interaction = serde_json::from_value(serde_json::json!({
        "id": 1, "unit": 5, "item": 0, "instance": 1, "namespace": "default", "machine": "m", "version": 1,
        "step": "asks", "transport": "bank", "status": "pending", "idempotency_key": "k", "sends": 0,
        "answered": false, "error": "the first send failed", "request": null,
    }))
    .expect("an interaction");
    assert_eq!(first_answer(&open), None, "a failed send is no answer");
    let yes = Json::from(serde_json::json!("yes"));
    let completed = Interaction { answered: true, error: None, output: Some(yes.clone()), ..open.clone() };
    assert_eq!(first_answer(&completed), Some(Ok(yes)));
    let failed = Interaction { answered: true, error: Some("no".to_owned()), ..open };
    assert_eq!(first_answer(&failed), Some(Err("no".to_owned())));

    // And it takes nothing off the barrier a second time: its unit is closed, or its item is not open.
    let parked = decide(executing(), Input::Outcome(returned(&Transition::Dispatch(dispatch()))), NOW).head;
    let answer = |head: Head, unit: UnitHead| {
        let (item, how) = ((InteractionId(1), 0), Answered::Completed);
        decide(head, Input::Answer { unit, item, how }, NOW)
    };
    let first = answer(parked, UnitHead::opened(&dispatch(), Some(UnitId(5))));
    assert_eq!(first.head.barrier, Some(1));
    let last = answer(first.head, first.unit.expect("the unit as it is now"));
    assert_eq!((last.head.status, last.closes_unit), (Status::Runnable, Some(UnitStatus::Completed)));
    let repeat = answer(last.head.clone(), last.unit.expect("the unit as it is now"));
    assert_eq!(repeat, Change::of(last.head));
}
