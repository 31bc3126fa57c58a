//! Every status and every input: what must hold of the change, whatever it is.

use super::*;

/// Heads in every status, each as a store could bring it about: by deciding.
fn heads() -> Vec<Head> {
    let after = |outcome: &Transition| decide(executing(), Input::Outcome(returned(outcome)), NOW).head;
    let mut heads: Vec<Head> = outcomes().iter().map(after).collect();
    heads.extend([executing(), Head::new(InstanceId(1), "m", 1, "start")]);
    heads.extend(heads.clone().into_iter().map(|head| decide(head, Input::Pause(true), NOW).head));
    let cause = || Cause { reason: Some("no".to_owned()), with: Some(InstanceId(3)) };
    heads.extend(heads.clone().into_iter().map(|head| {
        let unit = (head.status == Status::AwaitingCompletion).then(unit);
        decide(head, Input::Cancel(cause(), unit), NOW).head
    }));
    heads.extend(heads.clone().into_iter().map(|head| {
        let lane = Some("l".to_owned());
        Head { parent: Some((InstanceId(9), 1)), lane, keeps_history: false, ..head }
    }));
    for status in Status::ALL {
        assert!(heads.iter().any(|head| head.status == status), "no head is {status}");
    }
    heads
}

fn unit() -> UnitHead {
    UnitHead::opened(&dispatch(), Some(UnitId(5)))
}

/// All that can happen to an instance, and what it is called. What a store looks up is as the head has it.
fn inputs(head: &Head, check: &mut dyn FnMut(&str, Input<'_>)) {
    let parked_on = || (head.status == Status::AwaitingCompletion).then(unit);
    check("claim", Input::Claim(WorkerId(8)));
    for transition in outcomes() {
        for hold in [Hold::Keep, Hold::Release] {
            check("outcome", Input::Outcome(Returned { hold, ..returned(&transition) }));
        }
        if consumes(&transition) && head.inbox > 0 {
            let (received, data) = ([SignalId(1)], Some(Json::from(serde_json::json!([]))));
            let facts = Facts {
                consumed: Some(Consumed { signals: 1, bytes: 4, data }),
                inserted: 2,
                ..Facts::default()
            };
            check(
                "outcome",
                Input::Outcome(Returned { received: &received, facts, ..returned(&transition) }),
            );
        }
    }
    for name in ["paid", "other"] {
        check("signal", Input::Signal(&signal(4, name)));
    }
    check("clock", Input::Clock);
    for (round, status) in [(0, Status::Done), (1, Status::Done), (1, Status::Failed), (2, Status::Cancelled)]
    {
        for on_release in [crate::Children::Cancel, crate::Children::Keep] {
            for barrier in [None, Some(0), Some(1)].map(|spare| Some(Barrier { spare, on_release })) {
                check("child", Input::ChildEnd { round, status, barrier });
            }
        }
        check("child", Input::ChildEnd { round, status, barrier: None });
    }
    for how in [Answered::Completed, Answered::Failed("no"), Answered::NotSent("gone"), Answered::TimedOut] {
        for on_failure in [OnFailure::Fail, OnFailure::Report] {
            let unit = UnitHead { on_failure, ..unit() };
            check("answer", Input::Answer { unit, item: (InteractionId(1), 0), how });
        }
    }
    for status in [UnitStatus::Completed, UnitStatus::Failed, UnitStatus::TimedOut] {
        check("unit closed", Input::UnitClosed(unit(), status));
    }
    check("cancel", Input::Cancel(Cause::default(), parked_on()));
    for has_live_children in [false, true] {
        let request = &signal(4, crate::signal::CANCEL);
        check("undo", Input::Undo { request, unit: parked_on(), has_live_children });
    }
    check("let go", Input::LetGo(parked_on()));
    for last in [LastWait::default(), LastWait { until: Some(NOW), was_unit: true }] {
        check("retry", Input::Retry(None, last));
        check("retry", Input::Retry(Some(&at("elsewhere")), last));
    }
    check("pause", Input::Pause(true));
    check("pause", Input::Pause(false));
    for crashes_max in [1, 2, 3] {
        check("reap", Input::Reap(Crash { worker: Some("w"), crashes_max, place: 0 }));
    }
    check("given back", Input::GivenBack(None));
    check("unused", Input::Unused);
}

#[test]
fn whatever_happens_to_an_instance_in_whatever_status_leaves_a_sound_one() {
    let later = NOW + HOUR;
    for head in heads() {
        inputs(&head, &mut |name, input| {
            let what = format!("{name} at {}: {input:?}", head.status);
            let change = decide(head.clone(), input, later);
            sound(&what, &head, &change);
            if head.status.is_terminal() && name != "retry" {
                assert_eq!(
                    change,
                    Change::of(head.clone()),
                    "{what}: nothing but a retry moves what has ended"
                );
            }
            if !matches!(name, "outcome" | "retry") {
                assert_eq!(
                    (change.state, &change.output),
                    (None, &None),
                    "{what}: only a step and a retry move it"
                );
                assert_eq!(change.head.step, head.step, "{what}");
            }
        });
    }
}

/// What holds of every change.
fn sound(what: &str, before: &Head, change: &Change) {
    let Change { head, events, joins, .. } = change;
    let status = head.status;
    let is_parked = status.is_settled() && !status.is_terminal();
    assert_eq!(head.seq, before.seq + events.len() as u64, "{what}: seq counts the events");
    assert!(head.wake_at.is_none() || is_parked, "{what}: only what is parked has a moment");
    assert!(status != Status::Scheduled || head.wake_at.is_some(), "{what}: the clock alone wakes it");
    assert_eq!(head.worker.is_some(), status == Status::Executing, "{what}: who runs has a worker");
    assert_eq!(head.ended_at.is_some(), status.is_terminal(), "{what}: an end has its moment");
    assert!(!head.cancel_requested || status == Status::Executing, "{what}: only a running step is asked");
    assert!(head.crashes_seq <= head.seq, "{what}");
    assert_eq!(head.inbox == 0, head.inbox_bytes == 0, "{what}: an empty inbox holds no bytes");
    let waits_on = |on| status == on && head.barrier != Some(0);
    if waits_on(Status::AwaitingChildren) || status == Status::AwaitingCompletion {
        assert!(head.barrier.is_some_and(|to_come| to_come > 0), "{what}: it waits for something");
    }
    assert!(status != Status::AwaitingSignal || !head.awaits.is_empty(), "{what}: it awaits a name");
    assert!(!before.joined || joins.is_none(), "{what}: an end is taken off a barrier once");
    if let Some(join) = joins {
        assert!(head.joined && head.parent == Some((join.parent, join.round)), "{what}");
        assert_eq!(join.status, status, "{what}");
    }
    assert!(
        before.status.is_terminal() || !status.is_terminal() || head.joined,
        "{what}: each end is counted"
    );
    let let_go = before.status == Status::AwaitingCompletion && status != Status::AwaitingCompletion;
    assert_eq!(
        change.closes_unit.is_some_and(|_| let_go),
        let_go,
        "{what}: a unit is open while it is waited for"
    );
    let moved = before.step != head.step || before.version != head.version;
    assert!(!moved || !events.is_empty(), "{what}: every transition is an event");
}

#[test]
fn each_end_in_a_life_of_retries_is_counted_once() {
    let mut head = Head { parent: Some((InstanceId(9), 1)), ..executing() };
    let mut joins = 0;
    for outcome in [8, 10, 9].map(|place| outcomes().swap_remove(place)) {
        let fails = Transition::Fail { error: "no".to_owned() };
        for transition in [fails, outcome] {
            let change = decide(head, Input::Outcome(returned(&transition)), NOW);
            joins += u32::from(change.joins.is_some());
            let again = decide(change.head, Input::Retry(None, LastWait::default()), NOW).head;
            head = decide(again, Input::Claim(WorkerId(7)), NOW).head;
        }
    }
    assert_eq!(joins, 1);
}
