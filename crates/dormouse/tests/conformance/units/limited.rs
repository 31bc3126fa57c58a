//! Transports with a rate, or with so many in flight: what is handed out, whoever asks.

use std::time::Duration;

use dormouse::store::{Held, Namespaces, NewWorker, Outbox, SendOutcome, SendReport, TransportView};
use dormouse::{
    Breaker, Dispatch, Error, Interaction, SendRate, Setting, Transition, TransportChange, TransportLimits,
    WorkerId,
};

use super::kit::*;
use crate::kit::*;

suite![
    no_more_is_handed_out_than_the_rate_lets,
    what_waits_for_its_turn_is_not_counted_as_sent,
    no_window_has_more_sends_than_the_bucket_lets,
    another_transport_goes_on,
    a_changed_rate_holds_at_once_and_what_was_sent_counts,
    a_send_that_is_repeated_takes_its_turn_again,
    a_clock_that_is_turned_back_gives_nothing_back_and_stops_nobody,
    no_more_are_in_flight_than_may_be,
    every_end_of_a_request_frees_its_place,
    what_a_dead_sender_left_keeps_its_place_and_goes_first,
    fewer_places_let_those_in_flight_go_on,
    namespaces_take_turns_at_a_limited_transport,
    a_rate_and_places_hold_together,
    what_an_operator_set_holds_before_what_code_declares,
    transports_are_listed_with_what_is_in_use,
    limits_that_let_nothing_out_are_refused_and_nothing_is_stored,
    one_that_waits_says_for_what,
];

pub(super) const LEASE: Duration = Duration::from_secs(30);
const SECOND: Duration = Duration::from_secs(1);

async fn no_more_is_handed_out_than_the_rate_lets(kit: Kit) {
    let worker = kit.worker("w").await;
    limit(&kit, TransportChange::new().rate(SendRate::new(2, SECOND * 10).burst(3))).await;
    ask(&kit, worker, 10).await;
    let first = take(&kit, 10).await;
    assert_eq!((first.taken.len(), first.gate.held), (3, Some(Held::Rate)));
    assert_eq!(first.next, Some(kit.now() + SECOND * 5), "the moment of the next one");
    for _ in 0..3 {
        let none = take(&kit, 10).await;
        assert_eq!((none.taken.len(), none.next), (0, first.next));
    }
    kit.advance(SECOND * 5 - Duration::from_micros(1));
    assert!(take(&kit, 10).await.taken.is_empty());
    kit.advance(Duration::from_micros(1));
    assert_eq!(take(&kit, 10).await.taken.len(), 1);
    kit.advance(SECOND * 3600);
    assert_eq!(take(&kit, 10).await.taken.len(), 3, "a burst, however long the pause was");
}

async fn what_waits_for_its_turn_is_not_counted_as_sent(kit: Kit) {
    let worker = kit.worker("w").await;
    limit(&kit, TransportChange::new().rate(SendRate::per_second(1))).await;
    let id = ask(&kit, worker, 3).await;
    take(&kit, 10).await;
    take(&kit, 10).await;
    let sends: Vec<_> = items(&kit, id).await.iter().map(|item| item.sends).collect();
    assert_eq!(sends, [1, 0, 0]);
}

async fn no_window_has_more_sends_than_the_bucket_lets(kit: Kit) {
    let worker = kit.worker("w").await;
    let (count, period, burst) = (7, Duration::from_millis(3_001), 4);
    limit(&kit, TransportChange::new().rate(SendRate::new(count, period).burst(burst))).await;
    ask(&kit, worker, 400).await;
    kit.advance(Duration::from_secs(7_200));
    let mut random = fastrand::Rng::with_seed(7);
    // When each was sent, by a clock that nobody turns.
    let (mut true_us, mut sent) = (0_u64, Vec::new());
    for round in 0..150 {
        let wanted = random.usize(1..10);
        sent.extend(take(&kit, wanted).await.taken.iter().map(|_| true_us));
        let pause = match random.u8(0..10) {
            0 => 20_000_000,
            1..4 => 0,
            _ => random.u64(0..900_000),
        };
        kit.advance(Duration::from_micros(pause));
        true_us += pause;
        if round % 40 == 39 {
            kit.turn_back(Duration::from_secs(600));
        }
    }
    assert!(sent.len() > 100, "{}", sent.len());
    for (first, from) in sent.iter().enumerate() {
        for (last, to) in sent.iter().enumerate().skip(first) {
            let window_us = u128::from(to - from);
            let most = u128::from(burst) + window_us * u128::from(count) / period.as_micros();
            let found = last - first + 1;
            assert!(found as u128 <= most, "{found} in {window_us} us, not {most}");
        }
    }
}

async fn another_transport_goes_on(kit: Kit) {
    let worker = kit.worker("w").await;
    limit(&kit, TransportChange::new().rate(SendRate::per_minute(1)).in_flight(1)).await;
    ask(&kit, worker, 5).await;
    parked(&kit, worker, Dispatch { transport: "post".to_owned(), ..each(&["a", "b", "c"]) }).await;
    assert_eq!(take(&kit, 10).await.taken.len(), 1);
    let other = kit.store.outbox("post".to_owned(), Namespaces::All, 10, LEASE).await.expect("a take");
    assert_eq!((other.taken.len(), other.gate.held), (3, None));
}

async fn a_changed_rate_holds_at_once_and_what_was_sent_counts(kit: Kit) {
    let worker = kit.worker("w").await;
    limit(&kit, TransportChange::new().rate(SendRate::per_minute(1).burst(2))).await;
    ask(&kit, worker, 30).await;
    assert_eq!(take(&kit, 10).await.taken.len(), 2);
    limit(&kit, TransportChange::new().rate(SendRate::per_second(1).burst(3))).await;
    let one_more = take(&kit, 10).await;
    assert_eq!(one_more.taken.len(), 1, "two of three were sent");
    assert_eq!(one_more.next, Some(kit.now() + SECOND));
    kit.advance(SECOND);
    assert_eq!(take(&kit, 10).await.taken.len(), 1);
    limit(&kit, TransportChange::new().rate(Setting::Off)).await;
    let rest = take(&kit, 10).await;
    assert_eq!((rest.taken.len(), rest.gate.held), (10, None));
}

async fn a_send_that_is_repeated_takes_its_turn_again(kit: Kit) {
    let worker = kit.worker("w").await;
    limit(&kit, TransportChange::new().rate(SendRate::per_second(1))).await;
    ask(&kit, worker, 1).await;
    let taken = take(&kit, 10).await.taken.remove(0);
    tell(&kit, &taken, SendOutcome::Retry { after: Duration::ZERO, error: "busy".to_owned() }).await;
    let none = take(&kit, 10).await;
    assert_eq!((none.taken.len(), none.next), (0, Some(kit.now() + SECOND)));
    kit.advance(SECOND);
    assert_eq!(take(&kit, 10).await.taken[0].sends, 2);
}

async fn a_clock_that_is_turned_back_gives_nothing_back_and_stops_nobody(kit: Kit) {
    let worker = kit.worker("w").await;
    ask(&kit, worker, 10).await;
    kit.advance(SECOND * 7_200);
    limit(&kit, TransportChange::new().rate(SendRate::per_second(1))).await;
    assert_eq!(take(&kit, 10).await.taken.len(), 1);
    kit.turn_back(SECOND * 3_600);
    let none = take(&kit, 10).await;
    assert_eq!((none.taken.len(), none.next), (0, Some(kit.now() + SECOND)));
    kit.advance(SECOND);
    assert_eq!(take(&kit, 10).await.taken.len(), 1);
}

async fn no_more_are_in_flight_than_may_be(kit: Kit) {
    let worker = kit.worker("w").await;
    limit(&kit, TransportChange::new().in_flight(3)).await;
    let id = ask(&kit, worker, 6).await;
    let first = take(&kit, 2).await;
    assert_eq!((first.taken.len(), first.gate.held), (2, None), "all that was wanted");
    let second = take(&kit, 10).await;
    assert_eq!((second.taken.len(), second.gate.held), (1, Some(Held::InFlight)));
    for taken in first.taken.iter().chain(&second.taken) {
        tell(&kit, taken, SendOutcome::Sent).await;
    }
    let full = take(&kit, 10).await;
    assert_eq!((full.taken.len(), full.gate.held, full.next), (0, Some(Held::InFlight), None));
    complete(&kit, first.taken[0].id, 1).await;
    assert_eq!(take(&kit, 10).await.taken.len(), 1, "one place is free");
    assert!(take(&kit, 10).await.taken.is_empty());
    let sends: Vec<_> = items(&kit, id).await.iter().map(|item| item.sends).collect();
    assert_eq!(sends, [1, 1, 1, 1, 0, 0]);
}

async fn every_end_of_a_request_frees_its_place(kit: Kit) {
    let worker = kit.worker("w").await;
    limit(&kit, TransportChange::new().in_flight(1)).await;
    let timeout = Dispatch { item_timeout: Some(SECOND * 60), ..by_bank(each(&["late"])) };
    let late = parked(&kit, worker, timeout).await;
    let cancelled = parked(&kit, worker, by_bank(each(&["cancelled"]))).await;
    ask(&kit, worker, 6).await;
    let poked = |written: &dormouse::store::Effects| written.queues.contains("gate\tbank");
    let full = |outbox: &Outbox| assert!(outbox.taken.is_empty(), "{:?}", outbox.taken);

    let taken = take_one(&kit).await;
    assert_eq!(taken.instance, late);
    tell(&kit, &taken, SendOutcome::Sent).await;
    full(&take(&kit, 10).await);
    kit.advance(SECOND * 60);
    assert!(poked(&kit.store.due(100).await.expect("the clock").effects), "a timeout");

    let taken = take_one(&kit).await;
    assert_eq!(taken.instance, cancelled);
    full(&take(&kit, 10).await);
    let request = dormouse::store::CancelRequest::default();
    let cancel = kit.store.cancel("default".to_owned(), cancelled.into(), request).await.expect("a cancel");
    assert!(poked(&cancel.effects), "a cancel");

    let taken = take_one(&kit).await;
    let answered = kit.store.complete(vec![completion(taken.id, 1)]).await.expect("an answer");
    assert!(poked(&answered.effects), "an answer, before the send is reported");
    let taken = take_one(&kit).await;
    tell(&kit, &taken, SendOutcome::Sent).await;
    full(&take(&kit, 10).await);
    fail_item(&kit, taken.id, "no").await;
    for outcome in [
        SendOutcome::Rejected("never".to_owned()),
        SendOutcome::Retry { after: SECOND, error: "busy".to_owned() },
    ] {
        let taken = take_one(&kit).await;
        full(&take(&kit, 10).await);
        let report = SendReport { id: taken.id, sends: taken.sends, outcome };
        assert!(poked(&kit.store.sent(vec![report]).await.expect("a report").effects));
    }
    take_one(&kit).await;
}

async fn what_a_dead_sender_left_keeps_its_place_and_goes_first(kit: Kit) {
    let worker = kit.worker("w").await;
    limit(&kit, TransportChange::new().in_flight(2)).await;
    ask(&kit, worker, 5).await;
    let died = take(&kit, 10).await;
    assert_eq!(died.taken.len(), 2);
    let full = take(&kit, 10).await;
    assert_eq!((full.taken.len(), full.next), (0, Some(kit.now() + LEASE)), "then they are sent again");
    kit.advance(LEASE);
    let again = take(&kit, 10).await;
    let ids = |outbox: &Outbox| outbox.taken.iter().map(|taken| taken.id).collect::<Vec<_>>();
    assert_eq!(ids(&again), ids(&died), "nothing else: they may have been sent");
    assert!(again.taken.iter().all(|taken| taken.sends == 2));
}

async fn fewer_places_let_those_in_flight_go_on(kit: Kit) {
    let worker = kit.worker("w").await;
    ask(&kit, worker, 8).await;
    let taken = take(&kit, 4).await.taken;
    limit(&kit, TransportChange::new().in_flight(2)).await;
    for one in &taken[..2] {
        assert!(take(&kit, 10).await.taken.is_empty());
        complete(&kit, one.id, 1).await;
    }
    assert!(take(&kit, 10).await.taken.is_empty(), "two of two");
    complete(&kit, taken[2].id, 1).await;
    assert_eq!(take(&kit, 10).await.taken.len(), 1);
    limit(&kit, TransportChange::new().in_flight(Setting::Off)).await;
    assert_eq!(take(&kit, 10).await.taken.len(), 3, "the rest");
}

async fn namespaces_take_turns_at_a_limited_transport(kit: Kit) {
    let worker = kit.worker("w").await;
    limit(&kit, TransportChange::new().rate(SendRate::per_second(1))).await;
    for namespace in ["a", "b", "c"] {
        let mut theirs = m();
        theirs.namespace = namespace.to_owned();
        let id = kit.insert(theirs).await;
        let claimed = kit.claim_one(worker).await;
        assert_eq!(claimed.id, id);
        let asks = Transition::Dispatch(by_bank(each(&["1", "2", "3"])));
        kit.commit(worker, commit(&claimed, asks)).await;
    }
    let mut served = Vec::new();
    for _ in 0..6 {
        served.extend(take(&kit, 10).await.taken.into_iter().map(|taken| taken.namespace));
        kit.advance(SECOND);
    }
    assert_eq!(served, ["a", "b", "c", "a", "b", "c"]);
    let only = Namespaces::Only(vec!["a".to_owned(), "b".to_owned()]);
    for expected in ["a", "b"] {
        let taken = kit.store.outbox("bank".to_owned(), only.clone(), 10, LEASE).await.expect("a take").taken;
        assert_eq!(taken.iter().map(|taken| &*taken.namespace).collect::<Vec<_>>(), [expected]);
        kit.advance(SECOND);
    }
}

async fn a_rate_and_places_hold_together(kit: Kit) {
    let worker = kit.worker("w").await;
    limit(&kit, TransportChange::new().rate(SendRate::per_second(1).burst(3)).in_flight(4)).await;
    ask(&kit, worker, 10).await;
    let first = take(&kit, 10).await;
    assert_eq!((first.taken.len(), first.gate.held), (3, Some(Held::Rate)));
    kit.advance(SECOND * 10);
    let second = take(&kit, 10).await;
    assert_eq!((second.taken.len(), second.gate.held), (1, Some(Held::InFlight)));
}

async fn what_an_operator_set_holds_before_what_code_declares(kit: Kit) {
    let client = kit.client();
    let declared = |count| TransportLimits {
        rate: Some(SendRate::per_second(count)),
        in_flight: Some(9),
        breaker: None,
    };
    kit.store.declare_transport("bank".to_owned(), declared(5)).await.expect("a write");
    assert_eq!(view(&kit).await.limits, declared(5));
    let set = client.set_transport("bank", TransportChange::new().rate(SendRate::per_minute(1))).await;
    let set = set.expect("a change");
    assert_eq!((set.limits.rate, set.limits.in_flight), (Some(SendRate::per_minute(1)), Some(9)));
    assert_eq!((set.declared, set.changed), (Some(declared(5)), vec!["rate".to_owned()]));
    kit.store.declare_transport("bank".to_owned(), declared(6)).await.expect("a write");
    assert_eq!(
        view(&kit).await.limits.rate,
        Some(SendRate::per_minute(1)),
        "an engine that starts changes nothing"
    );
    limit(&kit, TransportChange::new().rate(Setting::Off).in_flight(2)).await;
    let off = view(&kit).await.limits;
    assert_eq!((off.rate, off.in_flight), (None, Some(2)));
    limit(&kit, TransportChange::new().rate(Setting::Declared).in_flight(Setting::Declared)).await;
    let back = view(&kit).await;
    assert_eq!((back.limits, back.changed), (declared(6), vec![]));
}

async fn transports_are_listed_with_what_is_in_use(kit: Kit) {
    let worker = kit.worker("w").await;
    let client = kit.client();
    assert_eq!(client.transports().await.expect("a read"), []);
    assert_eq!(client.transport("bank").await.expect("a read"), None);
    limit(&kit, TransportChange::new().rate(SendRate::per_second(1)).in_flight(7)).await;
    client.set_transport("abc", TransportChange::new().in_flight(1)).await.expect("a change");
    ask(&kit, worker, 3).await;
    take(&kit, 10).await;
    let listed = client.transports().await.expect("a read");
    assert_eq!(listed.iter().map(|one| &*one.name).collect::<Vec<_>>(), ["abc", "bank"]);
    let TransportView { in_flight, held, held_until, changed_at, declared, .. } = &listed[1];
    assert_eq!((*in_flight, *held, *held_until), (1, Some(Held::Rate), Some(kit.now() + SECOND)));
    assert_eq!((*changed_at, *declared), (Some(kit.now()), None));
    let after = kit.store.transports(Some("abc".to_owned()), 10).await.expect("a read");
    assert_eq!(after.len(), 1);
}

async fn limits_that_let_nothing_out_are_refused_and_nothing_is_stored(kit: Kit) {
    let client = kit.client();
    let change = TransportChange::new;
    for (name, change) in [
        ("bank", change().rate(SendRate::per_second(0))),
        ("bank", change().rate(SendRate::per_second(1).burst(0))),
        ("bank", change().rate(SendRate::new(1, Duration::ZERO))),
        ("bank", change().in_flight(0)),
        ("bank", change().breaker(Breaker::after(0))),
        ("api", change().in_flight(1)),
    ] {
        let refused = client.set_transport(name, change).await;
        assert!(matches!(refused, Err(Error::InvalidLimit { .. })), "{refused:?}");
    }
    for name in ["", "a\u{0}b", "a\nb"] {
        let refused = client.set_transport(name, change().in_flight(1)).await;
        assert!(matches!(refused, Err(Error::InvalidName { .. })), "{refused:?}");
        assert!(client.close_breaker(name).await.is_err());
    }
    assert_eq!(client.transports().await.expect("a read"), []);
    assert!(!client.close_breaker("nobody").await.expect("a write"));
}

async fn one_that_waits_says_for_what(kit: Kit) {
    let worker = NewWorker { transports: vec!["bank".to_owned()], ..kit.new_worker("w") };
    let worker = kit.store.register(worker).await.expect("a worker");
    limit(&kit, TransportChange::new().in_flight(1)).await;
    ask(&kit, worker, 1).await;
    let waits = ask(&kit, worker, 1).await;
    take_one(&kit).await;
    let told = kit.client().explain(waits).await.expect("a read");
    assert!(told.contains("waits for a place in transport \"bank\" (1 of 1 in flight)"), "{told}");
    let change = TransportChange::new().in_flight(Setting::Off).rate(SendRate::new(1, SECOND * 90));
    limit(&kit, change).await;
    take_one(&kit).await;
    let waits = ask(&kit, worker, 1).await;
    let told = kit.client().explain(waits).await.expect("a read");
    let turn = "the next turn in transport \"bank\" (1 in 90s) is at 2030-01-01T00:01:30Z (in 1m 30s)";
    assert!(told.contains(turn), "{told}");
}

/// An instance that asks the bank for so many things, all at once.
pub(super) async fn ask(kit: &Kit, worker: WorkerId, requests: usize) -> dormouse::InstanceId {
    let names: Vec<String> = (0..requests).map(|n| n.to_string()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    parked(kit, worker, by_bank(Dispatch { in_flight: Some(10_000), ..each(&names) })).await
}

fn by_bank(dispatch: Dispatch) -> Dispatch {
    Dispatch { transport: "bank".to_owned(), ..dispatch }
}

pub(super) async fn limit(kit: &Kit, change: TransportChange) {
    kit.client().set_transport("bank", change).await.expect("a change");
}

pub(super) async fn view(kit: &Kit) -> TransportView {
    kit.client().transport("bank").await.expect("a read").expect("it is known")
}

pub(super) async fn take(kit: &Kit, rows_max: usize) -> Outbox {
    kit.store.outbox("bank".to_owned(), Namespaces::All, rows_max, LEASE).await.expect("a take")
}

pub(super) async fn take_one(kit: &Kit) -> Interaction {
    let mut taken = take(kit, 10).await.taken;
    assert_eq!(taken.len(), 1, "{taken:?}");
    taken.remove(0)
}

pub(super) async fn tell(kit: &Kit, taken: &Interaction, outcome: SendOutcome) {
    let report = SendReport { id: taken.id, sends: taken.sends, outcome };
    kit.store.sent(vec![report]).await.expect("a report");
}
