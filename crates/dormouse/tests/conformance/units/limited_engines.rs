//! Engines that share a limited transport: what arrives at the other side.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dormouse::store::BreakerStatus;
use dormouse::{
    Breaker, Dispatch, Engine, Error, Interaction, InteractionStatus, SendRate, Sending, Sent, Setting,
    Status, Transition, Transport, TransportChange,
};
use tokio::sync::watch;

use super::kit::*;
use super::limited::view;
use crate::kit::*;
use crate::slow::Slow;

suite![
    two_engines_send_no_more_than_the_rate_lets_in_any_window,
    a_rate_holds_over_a_crash,
    two_engines_have_no_more_in_flight_than_may_be_and_go_on_at_once,
    a_partner_that_is_down_is_left_alone_and_found_again,
    what_the_other_side_rejects_does_not_open_the_breaker,
    a_limit_that_is_changed_holds_at_once_for_engines_that_wait,
    an_engine_declares_its_limits_and_refuses_impossible_ones,
];

const SECOND: Duration = Duration::from_secs(1);

async fn two_engines_send_no_more_than_the_rate_lets_in_any_window(kit: Kit) {
    let bank = Bank::new(&kit);
    let sending = Sending { rate: Some(SendRate::per_second(5).burst(3)), ..Sending::default() };
    let engines = [serve(&kit, &bank, sending, 20).await, serve(&kit, &bank, sending, 20).await];
    start(&kit).await;
    bank.got(3).await;
    for sent in 4..=20 {
        kit.advance(SECOND / 5);
        bank.got(sent).await;
    }
    let arrived = bank.arrived();
    for (first, from) in arrived.iter().enumerate() {
        for (last, to) in arrived.iter().enumerate().skip(first) {
            let most = 3 + (to.duration_since(*from).as_millis() / 200) as usize;
            assert!(last - first < most, "{} in {from} to {to}", last - first + 1);
        }
    }
    assert_eq!(arrived.len(), 20);
    stop(engines).await;
}

async fn a_rate_holds_over_a_crash(kit: Kit) {
    let bank = Bank::new(&kit);
    let sending = Sending { rate: Some(SendRate::per_minute(1).burst(2)), ..Sending::default() };
    let first = serve(&kit, &bank, sending, 6).await;
    start(&kit).await;
    bank.got(2).await;
    drop(first);
    let second = serve(&kit, &bank, sending, 6).await;
    kit.advance(SECOND * 60);
    bank.got(3).await;
    let arrived = bank.arrived();
    assert_eq!(arrived[2].duration_since(arrived[1]).as_secs(), 60);
    second.shutdown().await;
}

async fn two_engines_have_no_more_in_flight_than_may_be_and_go_on_at_once(kit: Kit) {
    let bank = Bank::new(&kit);
    let sending = Sending { in_flight_max: Some(3), ..Sending::default() };
    let engines = [serve(&kit, &bank, sending, 40).await, serve(&kit, &bank, sending, 40).await];
    let id = start(&kit).await;
    for answered in 0..40 {
        bank.got((answered + 3).min(40)).await;
        let key = bank.keys.lock().expect("no panic")[answered].clone();
        let item = items(&kit, id).await.into_iter().find(|item| item.idempotency_key == key);
        bank.open.fetch_sub(1, Ordering::SeqCst);
        engines[0].client().complete(item.expect("an item").id, &1).await.expect("an answer");
    }
    assert_eq!(bank.open_most.load(Ordering::SeqCst), 3, "at any instant");
    kit.until(id, Status::Done).await;
    stop(engines).await;
}

async fn a_partner_that_is_down_is_left_alone_and_found_again(kit: Kit) {
    let bank = Bank::new(&kit);
    bank.is_down.store(true, Ordering::SeqCst);
    let breaker = Some(Breaker::after(4).open_for(SECOND * 10, SECOND * 40));
    let sending = Sending { breaker, concurrency_max: 2, backoff: SECOND * 100, ..Sending::default() };
    let engines = [serve(&kit, &bank, sending, 30).await, serve(&kit, &bank, sending, 30).await];
    let id = start(&kit).await;
    until(&kit, BreakerStatus::Open).await;
    // What was under way when it opened is reported, too.
    let is_reported = |item: &Interaction| item.sends == 0 || item.error.is_some();
    eventually(&kit, async || items(&kit, id).await.iter().all(is_reported)).await;
    let opened_at = bank.arrived().len();
    kit.advance(SECOND * 10);
    bank.got(opened_at + 1).await;
    until(&kit, BreakerStatus::Open).await;
    eventually(&kit, async || items(&kit, id).await.iter().all(is_reported)).await;
    let before = bank.arrived().len();
    assert!((5..=9).contains(&before), "four in a row, what was under way with them, and a probe: {before}");
    let tried = |items: Vec<Interaction>| items.iter().filter(|item| item.sends > 0).count();
    assert_eq!(tried(items(&kit, id).await), before, "the others are not counted as sent");
    for (probe, open_for) in [(1, 20), (2, 40)] {
        kit.advance(SECOND * open_for);
        bank.got(before + probe).await;
        until(&kit, BreakerStatus::Open).await;
        assert_eq!(bank.arrived().len(), before + probe, "one probe");
    }
    bank.is_down.store(false, Ordering::SeqCst);
    kit.advance(SECOND * 40);
    bank.got(before + 3).await;
    until(&kit, BreakerStatus::Closed).await;
    kit.advance(SECOND * 300);
    let sent =
        |items: Vec<Interaction>| items.iter().all(|item| item.status == InteractionStatus::Dispatched);
    eventually(&kit, async || sent(items(&kit, id).await)).await;
    stop(engines).await;
}

async fn what_the_other_side_rejects_does_not_open_the_breaker(kit: Kit) {
    let bank = Bank { rejects: true, ..Bank::new(&kit) };
    let breaker = Some(Breaker::after(2).open_for(SECOND, SECOND));
    let engine = serve(&kit, &bank, Sending { breaker, ..Sending::default() }, 20).await;
    let id = start(&kit).await;
    kit.until(id, Status::Done).await;
    assert_eq!(bank.arrived().len(), 20);
    assert_eq!(view(&kit).await.breaker.failures, 0);
    engine.shutdown().await;
}

async fn a_limit_that_is_changed_holds_at_once_for_engines_that_wait(kit: Kit) {
    let bank = Bank::new(&kit);
    let sending = Sending { rate: Some(SendRate::new(1, SECOND * 3_600)), ..Sending::default() };
    let engine = serve(&kit, &bank, sending, 9).await;
    start(&kit).await;
    bank.got(1).await;
    let client = engine.client();
    client
        .set_transport("bank", TransportChange::new().rate(Setting::Off).in_flight(4))
        .await
        .expect("a change");
    bank.got(4).await;
    client
        .set_transport("bank", TransportChange::new().in_flight(Setting::Declared))
        .await
        .expect("a change");
    bank.got(9).await;
    engine.shutdown().await;
}

async fn an_engine_declares_its_limits_and_refuses_impossible_ones(kit: Kit) {
    let bank = Bank::new(&kit);
    let engine = serve(&kit, &bank, Sending { in_flight_max: Some(3), ..Sending::default() }, 1).await;
    let id = start(&kit).await;
    bank.got(1).await;
    let declared = view(&kit).await.declared.expect("it is declared");
    assert_eq!(
        (declared.in_flight, declared.breaker),
        (Some(3), Some(Breaker::default())),
        "a breaker by default"
    );
    engine.client().cancel(id).await.expect("a cancel");
    engine.shutdown().await;
    for sending in [
        Sending { rate: Some(SendRate::per_second(0)), ..Sending::default() },
        Sending { in_flight_max: Some(0), ..Sending::default() },
        Sending { breaker: Some(Breaker::after(0)), ..Sending::default() },
    ] {
        let refused = kit.engine().transport_with("bank", bank.clone(), sending).start().await.err();
        assert!(matches!(refused, Some(Error::InvalidLimit { .. })), "{refused:?}");
    }
}

/// The other side: counts what arrives, when by the store's time, and what is open at an instant.
#[derive(Clone)]
struct Bank {
    now: Arc<dyn Fn() -> jiff::Timestamp + Send + Sync>,
    arrived: Arc<Mutex<Vec<jiff::Timestamp>>>,
    keys: Arc<Mutex<Vec<String>>>,
    got: Arc<watch::Sender<usize>>,
    open: Arc<AtomicUsize>,
    open_most: Arc<AtomicUsize>,
    is_down: Arc<AtomicBool>,
    rejects: bool,
}

impl Bank {
    fn new(kit: &Kit) -> Self {
        let clock = kit.clock();
        Self {
            now: Arc::new(move || dormouse::Clock::now(&clock)),
            arrived: Arc::default(),
            keys: Arc::default(),
            got: Arc::new(watch::Sender::new(0)),
            open: Arc::default(),
            open_most: Arc::default(),
            is_down: Arc::default(),
            rejects: false,
        }
    }

    async fn got(&self, requests: usize) {
        let mut got = self.got.subscribe();
        let enough = tokio::time::timeout(SOON, got.wait_for(|got| *got >= requests)).await;
        assert!(enough.is_ok(), "{requests} requests come soon, not {}", *self.got.borrow());
    }

    fn arrived(&self) -> Vec<jiff::Timestamp> {
        self.arrived.lock().expect("no panic").clone()
    }
}

impl Transport for Bank {
    fn send<'a>(&'a self, asked: &'a Interaction) -> Pin<Box<dyn Future<Output = Sent> + Send + 'a>> {
        Box::pin(async move {
            let open = self.open.fetch_add(1, Ordering::SeqCst) + 1;
            self.open_most.fetch_max(open, Ordering::SeqCst);
            self.arrived.lock().expect("no panic").push((self.now)());
            self.keys.lock().expect("no panic").push(asked.idempotency_key.clone());
            self.got.send_modify(|got| *got += 1);
            if self.is_down.load(Ordering::SeqCst) {
                return Sent::Retry { reason: "connection refused".to_owned(), after: None };
            }
            if self.rejects { Sent::Rejected("no".to_owned()) } else { Sent::Accepted }
        })
    }
}

/// An engine whose machine asks the bank for so many things.
async fn serve(kit: &Kit, bank: &Bank, sending: Sending, requests: usize) -> Engine {
    let names: Vec<String> = (0..requests).map(|n| n.to_string()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let dispatch = Dispatch { transport: "bank".to_owned(), in_flight: Some(1_000), ..each(&names) };
    let machine = Slow::new(move |at, _| {
        let dispatch = dispatch.clone();
        async move { Ok(if at.step == "start" { Transition::Dispatch(dispatch) } else { done() }) }
    });
    // Only pokes and moments make it look again.
    let engine = kit.engine().poll(SECOND * 600).dyn_machine(Arc::new(machine));
    engine.transport_with("bank", bank.clone(), sending).start().await.expect("the engine starts")
}

async fn start(kit: &Kit) -> dormouse::InstanceId {
    let written = kit.store.insert(vec![m()]).await.expect("an insert");
    kit.store.poke(&written.effects);
    written.value[0].id()
}

async fn stop(engines: [Engine; 2]) {
    for engine in engines {
        engine.shutdown().await;
    }
}

async fn until(kit: &Kit, status: BreakerStatus) {
    eventually(kit, async || view(kit).await.breaker.status == status).await;
}

/// Waits for what a change in this process makes true.
async fn eventually(kit: &Kit, mut is_so: impl AsyncFnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + SOON;
    let mut changes = kit.store.hub().changes();
    loop {
        changes.borrow_and_update();
        if is_so().await {
            return;
        }
        assert!(tokio::time::timeout_at(deadline, changes.changed()).await.is_ok(), "not so soon");
    }
}
