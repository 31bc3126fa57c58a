//! The breaker of a transport: when it opens, what it lets through, and when it closes.

use std::time::Duration;

use dormouse::store::{BreakerStatus, Held, Judged, NewWorker, SendTally};
use dormouse::{Breaker, Setting, TransportChange, TroubleKind, WorkerId};

use super::kit::*;
use super::limited::{LEASE, ask, limit, take, take_one, view};
use crate::kit::*;

suite![
    it_opens_after_so_many_failures_in_a_row_of_all_senders,
    a_response_in_between_keeps_it_closed,
    while_it_is_open_nothing_is_handed_out_or_counted_as_sent,
    after_its_time_one_probe_is_let_through,
    a_failed_probe_opens_it_for_twice_as_long_up_to_a_bound,
    a_probe_that_is_answered_closes_it,
    a_probe_that_nobody_reports_is_followed_by_another,
    a_send_from_before_says_nothing,
    an_operator_closes_it,
    one_that_is_off_never_opens,
    turning_it_off_lets_everything_through,
    a_clock_that_is_turned_back_does_not_keep_it_open,
    it_is_of_its_transport_alone,
    who_waits_for_it_and_who_looks_for_troubles_is_told,
];

const FIRST: Duration = Duration::from_secs(5);

async fn it_opens_after_so_many_failures_in_a_row_of_all_senders(kit: Kit) {
    breaker(&kit).await;
    assert_eq!(judge(&kit, 0, false, 1).await, Judged::Nothing);
    assert_eq!(judge(&kit, 0, false, 1).await, Judged::Nothing);
    assert_eq!(view(&kit).await.breaker.failures, 2);
    let until = kit.now() + FIRST;
    assert_eq!(judge(&kit, 0, false, 1).await, Judged::Opened { failures: 3, until, again: false });
    let view = view(&kit).await;
    assert_eq!((view.breaker.status, view.breaker.open_until), (BreakerStatus::Open, Some(until)));
    assert_eq!((view.held, view.held_until), (Some(Held::Breaker), Some(until)));
    assert_eq!(view.breaker.error.as_deref(), Some("connection refused"));
}

async fn a_response_in_between_keeps_it_closed(kit: Kit) {
    breaker(&kit).await;
    for _ in 0..5 {
        assert_eq!(judge(&kit, 0, false, 2).await, Judged::Nothing);
        assert_eq!(judge(&kit, 0, true, 0).await, Judged::Nothing);
    }
    assert_eq!(judge(&kit, 0, true, 2).await, Judged::Nothing, "two after a response");
    assert!(matches!(judge(&kit, 0, false, 1).await, Judged::Opened { failures: 3, .. }));
}

async fn while_it_is_open_nothing_is_handed_out_or_counted_as_sent(kit: Kit) {
    let worker = kit.worker("w").await;
    let id = ask(&kit, worker, 3).await;
    opened(&kit).await;
    kit.advance(FIRST - Duration::from_micros(1));
    for _ in 0..3 {
        let none = take(&kit, 10).await;
        assert_eq!((none.taken.len(), none.gate.held), (0, Some(Held::Breaker)));
        assert_eq!(none.next, Some(kit.now() + Duration::from_micros(1)));
    }
    assert!(items(&kit, id).await.iter().all(|item| item.sends == 0 && item.error.is_none()));
}

async fn after_its_time_one_probe_is_let_through(kit: Kit) {
    let worker = kit.worker("w").await;
    ask(&kit, worker, 3).await;
    opened(&kit).await;
    kit.advance(FIRST);
    assert_eq!(view(&kit).await.breaker.status, BreakerStatus::HalfOpen);
    let probe = take(&kit, 10).await;
    assert_eq!((probe.taken.len(), probe.gate.held, probe.gate.epoch), (1, Some(Held::Breaker), 1));
    let none = take(&kit, 10).await;
    assert_eq!((none.taken.len(), none.next), (0, Some(kit.now() + LEASE)), "while the probe is under way");
}

async fn a_failed_probe_opens_it_for_twice_as_long_up_to_a_bound(kit: Kit) {
    let worker = kit.worker("w").await;
    ask(&kit, worker, 20).await;
    opened(&kit).await;
    kit.advance(FIRST);
    for (epoch, times) in (1..).zip([2, 4, 4, 4]) {
        take_one(&kit).await;
        let until = kit.now() + FIRST * times;
        let failures = 3 + epoch as u32;
        assert_eq!(judge(&kit, epoch, false, 1).await, Judged::Opened { failures, until, again: true });
        kit.advance(FIRST * times - Duration::from_secs(1));
        assert!(take(&kit, 10).await.taken.is_empty());
        kit.advance(Duration::from_secs(1));
    }
}

async fn a_probe_that_is_answered_closes_it(kit: Kit) {
    let worker = kit.worker("w").await;
    ask(&kit, worker, 5).await;
    opened(&kit).await;
    kit.advance(FIRST);
    take_one(&kit).await;
    let tally = SendTally { epoch: 1, responded: true, ..SendTally::default() };
    let closed = kit.store.judge("bank".to_owned(), tally).await.expect("a judgement");
    assert_eq!(closed.value, Judged::Closed);
    assert!(closed.effects.queues.contains("gate\tbank"), "who waits for it goes on at once");
    let rest = take(&kit, 10).await;
    assert_eq!((rest.taken.len(), rest.gate.held), (4, None));
    assert_eq!(view(&kit).await.breaker.failures, 0);
    for _ in 0..2 {
        assert_eq!(judge(&kit, 2, false, 1).await, Judged::Nothing);
    }
    let until = kit.now() + FIRST;
    assert_eq!(judge(&kit, 2, false, 1).await, Judged::Opened { failures: 3, until, again: false });
}

async fn a_probe_that_nobody_reports_is_followed_by_another(kit: Kit) {
    let worker = kit.worker("w").await;
    ask(&kit, worker, 5).await;
    opened(&kit).await;
    kit.advance(FIRST);
    take_one(&kit).await;
    kit.advance(LEASE);
    take_one(&kit).await;
}

async fn a_send_from_before_says_nothing(kit: Kit) {
    opened(&kit).await;
    for (responded, failures) in [(true, 0), (false, 5)] {
        assert_eq!(judge(&kit, 0, responded, failures).await, Judged::Nothing);
    }
    let view = view(&kit).await.breaker;
    assert_eq!((view.status, view.failures), (BreakerStatus::Open, 3));
}

async fn an_operator_closes_it(kit: Kit) {
    let worker = kit.worker("w").await;
    ask(&kit, worker, 3).await;
    opened(&kit).await;
    assert!(take(&kit, 10).await.taken.is_empty());
    assert!(kit.client().close_breaker("bank").await.expect("a write"));
    assert!(!kit.client().close_breaker("bank").await.expect("a write"), "it is closed");
    let all = take(&kit, 10).await;
    assert_eq!((all.taken.len(), all.gate.epoch, all.gate.is_watched), (3, 2, false));
}

async fn one_that_is_off_never_opens(kit: Kit) {
    limit(&kit, TransportChange::new().breaker(Setting::Off)).await;
    for _ in 0..30 {
        assert_eq!(judge(&kit, 0, false, 10).await, Judged::Nothing);
    }
    assert!(!take(&kit, 1).await.gate.judges);
    assert_eq!(judge_of(&kit, "nobody", 0, false, 10).await, Judged::Nothing);
}

async fn turning_it_off_lets_everything_through(kit: Kit) {
    let worker = kit.worker("w").await;
    ask(&kit, worker, 3).await;
    opened(&kit).await;
    limit(&kit, TransportChange::new().breaker(Setting::Off)).await;
    assert_eq!(take(&kit, 10).await.taken.len(), 3);
}

async fn a_clock_that_is_turned_back_does_not_keep_it_open(kit: Kit) {
    let worker = kit.worker("w").await;
    ask(&kit, worker, 3).await;
    kit.advance(Duration::from_secs(7_200));
    opened(&kit).await;
    kit.turn_back(Duration::from_secs(3_600));
    let none = take(&kit, 10).await;
    assert_eq!(none.gate.held, Some(Held::Breaker));
    kit.advance(FIRST + Duration::from_secs(1));
    take_one(&kit).await;
    kit.turn_back(Duration::from_secs(3_600));
    take(&kit, 10).await;
    kit.advance(LEASE + Duration::from_secs(1));
    assert_eq!(take(&kit, 10).await.taken.len(), 1, "a probe that nobody reported");
}

async fn it_is_of_its_transport_alone(kit: Kit) {
    let worker = kit.worker("w").await;
    opened(&kit).await;
    let post = dormouse::Dispatch { transport: "post".to_owned(), ..each(&["a", "b"]) };
    parked(&kit, worker, post).await;
    let all = dormouse::store::Namespaces::All;
    assert_eq!(kit.store.outbox("post".to_owned(), all, 10, LEASE).await.expect("a take").taken.len(), 2);
}

async fn who_waits_for_it_and_who_looks_for_troubles_is_told(kit: Kit) {
    let worker = sender(&kit).await;
    let id = ask(&kit, worker, 2).await;
    opened(&kit).await;
    let told = kit.client().explain(id).await.expect("a read");
    let open =
        "transport \"bank\" is open until 2030-01-01T00:00:05Z (in 5s) after 3 failures: connection refused";
    assert!(told.contains(open), "{told}");
    let trouble = kit.client().troubles().await.expect("a read").remove(0);
    assert_eq!((trouble.kind, &*trouble.name, trouble.count), (TroubleKind::BreakerOpen, "bank", 2));
    let told = trouble.told();
    assert_eq!(
        told,
        "transport \"bank\" is open until 2030-01-01T00:00:05Z after 3 failures, and 2 requests wait: connection refused"
    );
    kit.advance(FIRST);
    take_one(&kit).await;
    let told = kit.client().explain(id).await.expect("a read");
    assert!(
        told.contains("is half open after 3 failures and waits for its probe: connection refused"),
        "{told}"
    );
    kit.client().close_breaker("bank").await.expect("a write");
    assert_eq!(kit.client().troubles().await.expect("a read"), []);
}

async fn sender(kit: &Kit) -> WorkerId {
    let worker = NewWorker { transports: vec!["bank".to_owned()], ..kit.new_worker("w") };
    kit.store.register(worker).await.expect("a worker")
}

/// One that opens after three failures, for five seconds at first and 20 at most.
async fn breaker(kit: &Kit) {
    limit(kit, TransportChange::new().breaker(Breaker::after(3).open_for(FIRST, FIRST * 4))).await;
}

async fn opened(kit: &Kit) {
    breaker(kit).await;
    let judged = judge(kit, 0, false, 3).await;
    assert_eq!(judged, Judged::Opened { failures: 3, until: kit.now() + FIRST, again: false });
}

async fn judge(kit: &Kit, epoch: i64, responded: bool, failures: u32) -> Judged {
    judge_of(kit, "bank", epoch, responded, failures).await
}

async fn judge_of(kit: &Kit, transport: &str, epoch: i64, responded: bool, failures: u32) -> Judged {
    let error = (failures > 0).then(|| "connection refused".to_owned());
    let tally = SendTally { epoch, responded, failures, error };
    kit.store.judge(transport.to_owned(), tally).await.expect("a judgement").value
}
