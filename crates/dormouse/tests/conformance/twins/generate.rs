//! Random operations, weighed so that instances meet: few keys, few lanes, few names, many steps.

use std::time::Duration;

use dormouse::jiff::Timestamp;
use dormouse::store::{Hold, SendOutcome, Tried};
use dormouse::{
    Ask, At, Breaker, Children, Dispatch, History, Json, KeyScope, LaneChange, Limit, NewInstance, NewSignal,
    OnFailure, Quorum, Rate, SendRate, Setting, Shape, Spawn, Status, Transition, TransportChange, When,
};
use fastrand::Rng;
use serde_json::json;

use super::op::*;

const NAMESPACES: [&str; 3] = ["default", "default", "other"];
const QUEUES: [&str; 3] = ["default", "default", "slow"];
const MACHINES: [(&str, u32); 4] = [("m", 1), ("m", 1), ("m", 2), ("n", 1)];
const STEPS: [&str; 3] = ["start", "middle", "end"];
const KEYS: [&str; 4] = ["k1", "k2", "k10", "é"];
const LANES: [&str; 2] = ["l/1", "l/2"];
const LIMITS: [&str; 3] = ["l", "l", "l/1"];
/// One of them is a namespace's own.
const SHARES: [&str; 4] = ["s1", "s2", "é", "default"];
const TRACES: [&str; 2] = [
    "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00",
];
const SIGNALS: [&str; 3] = ["a", "b", "c"];
const DEDUPS: [&str; 2] = ["d1", "d2"];
const PEOPLE: [&str; 2] = ["ann", "bob"];
const GROUPS: [&str; 2] = ["cooks", "waiters"];
const REASONS: [&str; 2] = ["no \"longer\" wanted", "it's \\ over\n\té"];
/// More than an instance can have.
const TAGS: [&str; 16] =
    ["a", "b", "B", "ab", "é", "it's", "x y", "\"q\"", "z", "c", "d", "e", "f", "g", "h", "i"];
const WORKERS: [&str; 3] = ["w1", "w2", "w3"];

/// A sequence of operations, which is always the same for one seed.
pub fn sequence(seed: u64, ops: usize) -> Vec<Op> {
    let mut random =
        Random(Rng::with_seed(seed), Rng::with_seed(!seed), Rng::with_seed(seed.rotate_left(32) ^ 1));
    let long = Duration::from_secs(1_000_000);
    let mut sequence = vec![
        Op::Register { name: "w1", lease: long },
        Op::Register { name: "w2", lease: Duration::from_secs(300) },
    ];
    sequence.extend((0..ops).map(|_| random.op()));
    sequence
}

/// Limits and changes of lanes are drawn from a stream of their own, and rates from another: what else happens does not
/// depend on them.
struct Random(Rng, Rng, Rng);

impl Random {
    fn op(&mut self) -> Op {
        if self.1.u32(..60) == 0 {
            let width = self.1.u32(..4);
            let (namespace, name) = (NAMESPACES[self.1.usize(..3)], LIMITS[self.1.usize(..3)]);
            let limit = (width > 0).then(|| Limit::width(width));
            return Op::SetLimit { namespace, name, limit: self.rated(limit) };
        }
        if self.1.u32(..25) == 0 {
            return self.transport();
        }
        if self.1.u32(..60) == 0 {
            return Op::DropKept { namespace: NAMESPACES[self.1.usize(..3)], place: self.1.usize(..4) };
        }
        match self.0.u32(0..229) {
            0..13 => Op::Insert(self.some(3, Self::instance)),
            13..30 => Op::Deliver(self.some(3, |random| (random.whom(Whom::Waiting), random.perhaps_kept()))),
            30..55 => Op::Claim(self.claim()),
            55..104 => Op::Commit(self.some(4, Self::outcome)),
            104..112 => Op::Due { rows_max: self.bound() },
            112..118 => Op::Advance(self.pause()),
            118 => Op::Weigh {
                namespace: self.of(&NAMESPACES),
                share: self.of(&SHARES),
                weight: self.0.u32(1..4),
            },
            119 => Op::Register { name: self.of(&WORKERS), lease: self.lease() },
            120..122 => Op::Heartbeat { worker: self.pick(), lease: self.lease() },
            122 => Op::Deregister { worker: self.pick() },
            123..126 => Op::Reap { rows_max: self.bound() },
            126 => Op::Release(self.some(3, Self::pick), self.of(&[Tried::No, Tried::Yes])),
            127..132 => {
                let reason = self.perhaps(2, |random| random.of(&REASONS));
                Op::Cancel { whom: self.whom(Whom::Live), reason, seq: self.expected() }
            }
            132..138 => {
                let at = self.perhaps(3, Self::at);
                Op::Retry { whom: self.whom(Whom::Ended), at, seq: self.expected() }
            }
            138..140 => Op::Pause(self.whom(Whom::Live), self.expected()),
            140..143 => Op::Resume(self.whom(Whom::Live), self.expected()),
            143 => Op::PauseQueue { namespace: self.of(&NAMESPACES), queue: self.of(&QUEUES) },
            144..146 => Op::ResumeQueue { namespace: self.of(&NAMESPACES), queue: self.of(&QUEUES) },
            146 => Op::CollectEnded {
                namespace: self.perhaps(2, |random| random.of(&NAMESPACES)),
                age: self.pause(),
                rows_max: self.bound(),
            },
            147 => Op::CollectEvents { age: self.pause(), rows_max: self.bound() },
            148..150 => Op::Get(self.whom(Whom::Any)),
            150..154 => Op::Situation(self.whom(Whom::Live)),
            154..158 => Op::List(self.filter()),
            158..161 => Op::Stats(self.perhaps(2, |random| random.of(&NAMESPACES))),
            161..164 => Op::Backlog { namespace: self.perhaps(2, |random| random.of(&NAMESPACES)) },
            164..176 => Op::Complete(self.some(3, Self::answer)),
            176..186 => Op::Outbox {
                namespaces: self.perhaps(3, |random| random.of(&[vec!["default"], vec!["other", "default"]])),
                rows_max: self.bound(),
                lease: self.pause(),
            },
            186..198 => Op::Sent(self.some(3, |random| (random.pick(), random.send_outcome()))),
            198..205 => Op::Due { rows_max: self.bound() },
            205..212 => Op::Advance(self.pause()),
            212..216 => {
                let (add, remove) = (self.some(12, |random| random.of(&TAGS).to_owned()), self.tags());
                Op::Tag { whom: self.whom(Whom::Live), add, remove }
            }
            216..218 => Op::List(self.filter()),
            218..224 => {
                let payload = self.perhaps(2, |random| random.at().state);
                let whom = if self.0.bool() { self.whom(Whom::Live) } else { self.whom(Whom::Ended) };
                Op::Amend { whom, signal: self.pick(), payload, seq: self.expected() }
            }
            226..229 => {
                let whom = if self.0.bool() { self.whom(Whom::Live) } else { self.whom(Whom::Ended) };
                Op::Edit { whom, state: self.at().state, seq: self.expected() }
            }
            _ => Op::Assign { item: self.pick(), who: self.of(&PEOPLE), lease: self.pause() },
        }
    }

    fn transport(&mut self) -> Op {
        let random = &mut self.1;
        let seconds = |random: &mut Rng| Duration::from_micros(random.u64(1_000..90_000_000));
        match random.u32(..8) {
            0..3 => {
                let mut change = TransportChange::new();
                change.rate = match random.u32(..4) {
                    0 => Setting::Keep,
                    1 => Setting::Off,
                    _ => {
                        let rate = SendRate::new(random.u32(1..9), seconds(random));
                        Setting::To(rate.burst(random.u32(1..5)))
                    }
                };
                change.in_flight = match random.u32(..4) {
                    0 => Setting::Keep,
                    1 => Setting::Declared,
                    _ => Setting::To(random.u32(1..6)),
                };
                change.breaker = match random.u32(..4) {
                    0 => Setting::Keep,
                    1 => Setting::Off,
                    _ => {
                        let first = seconds(random);
                        Setting::To(
                            Breaker::after(random.u32(1..4)).open_for(first, first * random.u32(1..5)),
                        )
                    }
                };
                Op::SetTransport(change)
            }
            3..7 => {
                let (is_old, responded) = (random.u32(..5) == 0, random.u32(..3) == 0);
                Op::Judge { is_old, responded, failures: random.u32(..4) }
            }
            _ => Op::CloseBreaker,
        }
    }

    /// A limit, perhaps with a rate. Rates are drawn from a stream of their own.
    fn rated(&mut self, limit: Option<Limit>) -> Option<Limit> {
        let random = &mut self.2;
        let rate =
            Rate::new(random.u32(1..4), Duration::from_secs(random.u64(1..200))).burst(random.u32(1..5));
        match random.u32(..4) {
            0 => limit,
            1 => limit.map(|_| Limit::rate(rate)),
            _ => limit.map(|limit| limit.and_rate(rate)),
        }
    }

    fn instance(&mut self) -> New {
        let (machine, version) = self.of(&MACHINES);
        let mut instance = NewInstance::named(machine, version, self.at());
        instance.namespace = self.of(&NAMESPACES).to_owned();
        instance.queue = self.of(&QUEUES).to_owned();
        instance.priority = self.0.i32(-1..=1);
        instance.key = self.perhaps(3, |random| random.of(&KEYS).to_owned());
        instance.key_scope = self.scope();
        instance.lane = self.perhaps(3, |random| random.of(&LANES).to_owned());
        instance.cost = [1, 1, 2, 5][self.2.usize(..4)];
        instance.share = self.perhaps(2, |random| random.of(&SHARES).to_owned());
        instance.trace = self.perhaps(3, |random| random.of(&TRACES).to_owned());
        instance.start_at = self.perhaps(5, Self::when);
        instance.awaits = self.perhaps(5, |random| (random.names(), random.perhaps(2, Self::when)));
        instance.history = self.of(&[None, Some(History::On), Some(History::On), Some(History::Off)]);
        instance.signals = self.perhaps(4, |random| random.some(2, Self::signal)).unwrap_or_default();
        instance.tags = self.perhaps(3, Self::tags).unwrap_or_default();
        New { instance, forked_from: self.perhaps(10, |random| (random.pick(), random.0.u64(1..5))) }
    }

    fn expected(&mut self) -> Expected {
        self.of(&[Expected::Any, Expected::Any, Expected::Right, Expected::Right, Expected::Wrong])
    }

    fn claim(&mut self) -> Claim {
        let only = |random: &mut Self| random.of(&[vec!["default"], vec!["other"], vec!["other", "other"]]);
        let machines = [vec![("m", 1), ("m", 2), ("n", 1)], vec![("m", 1), ("n", 1)], vec![("m", 2)]];
        Claim {
            worker: self.pick(),
            queue: self.of(&QUEUES),
            namespaces: self.perhaps(3, only),
            machines: self.of(&[&machines[..], &machines[..1], &machines[..1]].concat()),
            rows_max: self.of(&[1, 3, 5, 20]),
            goes_on: self.0.u32(0..4) > 0,
            later_than: self.perhaps(6, |random| random.0.i32(-2..=1)),
            places: [0, 1, 3, usize::MAX][self.2.usize(..4)],
        }
    }

    fn outcome(&mut self) -> Outcome {
        let transition = match self.0.u32(0..29) {
            0..5 => Transition::Next { at: self.at(), ahead: true },
            5..8 => Transition::Replay {
                at: self.at(),
                delay: if self.0.bool() { Duration::ZERO } else { self.duration() },
                error: self.perhaps(2, |_| "it \"broke\"".to_owned()),
            },
            8..10 => Transition::Sleep { at: self.at(), until: self.when() },
            10..15 => {
                Transition::Await { at: self.at(), names: self.names(), timeout: self.perhaps(2, Self::when) }
            }
            15..19 => Transition::Spawn(self.spawn()),
            19..22 => Transition::Done { output: self.at().state },
            22..24 => Transition::Fail { error: self.of(&["no more", "it's \\ over\n"]).to_owned() },
            _ => Transition::Dispatch(self.dispatch()),
        };
        Outcome {
            step: self.pick(),
            transition,
            hold: self.of(&[Hold::Keep, Hold::Release]),
            lane: match self.1.u32(..20) {
                0 => Some(LaneChange::Leave),
                1..3 => Some(LaneChange::To(LANES[self.1.usize(..2)].to_owned())),
                _ => None,
            },
            lifts: self.0.u32(0..8) == 0,
            proof: match self.0.u32(0..30) {
                0 => Proof::WrongSeq,
                1 => Proof::WrongWorker,
                2 => Proof::Late,
                _ => Proof::Right,
            },
        }
    }

    fn spawn(&mut self) -> Spawn {
        let children = self.0.usize(0..=3);
        Spawn {
            at: self.at(),
            children: (0..children).map(|_| self.instance().instance).collect(),
            timeout: self.perhaps(2, Self::when),
            quorum: self.perhaps(3, Self::quorum),
            fail_fast: self.0.u32(..4) == 0,
            on_release: self.of(&[Children::Cancel, Children::Keep]),
            on_cancel: self.of(&[Children::Cancel, Children::Keep]),
        }
    }

    fn quorum(&mut self) -> Quorum {
        let count = self.of(&[1, 2, 3, u32::MAX]);
        self.of(&[Quorum::Done(count), Quorum::Ended(count)])
    }

    fn dispatch(&mut self) -> Dispatch {
        let others = [Shape::One, Shape::OneToMany, Shape::ManyToOne, Shape::ManyToMany];
        let shape = if self.0.u32(0..5) < 3 { Shape::Each } else { self.of(&others) };
        let asks = if shape == Shape::Each { self.0.usize(0..=5) } else { 1 };
        let ask = |item| Ask {
            request: self.at().state,
            idempotency_key: format!("key-{item}"),
            correlation_id: self.perhaps(2, |random| random.of(&KEYS).to_owned()),
            for_assignee: self.perhaps(3, |random| random.of(&PEOPLE).to_owned()),
            for_group: self.perhaps(3, |random| random.of(&GROUPS).to_owned()),
        };
        Dispatch {
            asks: (0..asks).map(ask).collect(),
            items: asks,
            at: self.at(),
            shape,
            transport: self.of(&["bank", dormouse::INTERACTION_API]).to_owned(),
            timeout: self.perhaps(3, |random| When::In(random.soon())),
            item_timeout: self.perhaps(2, Self::soon),
            in_flight: self.perhaps(2, |random| random.0.u32(1..=3)),
            on_failure: self.of(&[OnFailure::Fail, OnFailure::Report, OnFailure::Report]),
            quorum: self.perhaps(4, |random| random.0.u32(1..=4)),
            outputs_max: 2,
        }
    }

    fn answer(&mut self) -> Answer {
        let lists = ["[1, 2]", "[]", "[1,2,3]"].map(|list| Json::parse("output", list).expect("a list"));
        Answer {
            to: if self.0.u32(0..3) == 0 { Err(self.of(&KEYS)) } else { Ok(self.pick()) },
            namespace: self.perhaps(12, |random| random.of(&NAMESPACES)),
            result: match self.0.u32(0..4) {
                0 => Err(self.of(&["no", "it's \\ over\n"]).to_owned()),
                1 => Ok(self.of(&lists)),
                _ => Ok(self.at().state),
            },
            who: self.perhaps(4, |random| random.of(&PEOPLE)),
            by: self.perhaps(4, |random| random.of(&["carla", "resume token"])),
            token: self.perhaps(4, |random| random.0.u32(0..3) > 0),
        }
    }

    fn send_outcome(&mut self) -> SendOutcome {
        match self.0.u32(0..6) {
            0 => SendOutcome::Rejected("no such account".to_owned()),
            1 => SendOutcome::Retry { after: self.duration(), error: "busy".to_owned() },
            _ => SendOutcome::Sent,
        }
    }

    fn signal(&mut self) -> NewSignal {
        let mut signal = NewSignal::new(self.of(&SIGNALS), self.at().state);
        signal.trace = self.perhaps(3, |random| random.of(&TRACES).to_owned());
        match self.perhaps(3, |random| random.of(&DEDUPS)) {
            Some(key) => signal.dedup(key),
            None => signal,
        }
    }

    /// To be kept or not is drawn from the second stream.
    fn perhaps_kept(&mut self) -> NewSignal {
        let signal = self.signal();
        match self.1.u32(..2) {
            0 => signal,
            _ => signal.keep_for(Duration::from_micros(self.1.u64(1..100_000_000))),
        }
    }

    fn filter(&mut self) -> Filter {
        Filter {
            namespace: self.perhaps(2, |random| random.of(&NAMESPACES)),
            machine: self.perhaps(4, |random| random.of(&MACHINES).0),
            status: self.perhaps(3, |random| random.of(&Status::ALL)),
            queue: self.perhaps(4, |random| random.of(&QUEUES)),
            key_prefix: self.perhaps(4, |random| random.of(&["", "k1", "k", "é", "\u{10FFFF}"])),
            parent: self.perhaps(6, Self::pick),
            roots: self.0.u32(0..3) == 0,
            tags: self.perhaps(3, Self::tags).unwrap_or_default(),
            awaiting: self.perhaps(4, |random| random.of(&SIGNALS)),
            created_from: self.perhaps(5, Self::moment),
            created_before: self.perhaps(5, Self::moment),
            heads_only: self.0.u32(0..3) == 0,
            after: self.perhaps(4, Self::pick),
            limit: self.of(&[0, 1, 3, 100]),
        }
    }

    fn scope(&mut self) -> KeyScope {
        match self.0.u32(0..6) {
            0..3 => KeyScope::Live,
            3 => KeyScope::Always,
            _ => KeyScope::In(Status::ALL.into_iter().filter(|_| self.0.u32(0..3) == 0).collect()),
        }
    }

    fn tags(&mut self) -> Vec<String> {
        self.some(3, |random| random.of(&TAGS).to_owned())
    }

    fn names(&mut self) -> Vec<String> {
        self.some(3, |random| random.of(&SIGNALS).to_owned())
    }

    fn at(&mut self) -> At {
        let state = match self.0.u32(0..4) {
            0 => Json::null(),
            1 => Json::parse("state", r#"{"b": 1.50, "a":"é\"\\\u00e9"}"#).expect("it is JSON"),
            _ => Json::from(json!({ "n": self.0.u32(..1000) })),
        };
        At { step: self.of(&STEPS).into(), state }
    }

    fn whom(&mut self, mostly: impl Fn(Pick) -> Whom) -> Whom {
        match self.0.u32(0..20) {
            0..4 => Whom::Key(self.of(&NAMESPACES), self.of(&KEYS)),
            4 => Whom::Nobody,
            5..8 => Whom::Any(self.pick()),
            _ => mostly(self.pick()),
        }
    }

    /// Moments are odd to the microsecond, so that hardly ever two come at once: their order is nobody's promise.
    fn when(&mut self) -> When {
        match self.0.u32(0..40) {
            0 => When::At(Timestamp::MIN),
            1 => When::At(Timestamp::MAX),
            2..12 => When::At(self.moment()),
            _ => When::In(self.duration()),
        }
    }

    fn moment(&mut self) -> Timestamp {
        let start: Timestamp = "2030-01-01T00:00:00Z".parse().expect("a moment");
        start + Duration::from_micros(self.0.u64(..2_000_000_000))
    }

    fn duration(&mut self) -> Duration {
        match self.0.u32(0..40) {
            0 => Duration::MAX,
            1 => Duration::from_nanos(999),
            2 => Duration::from_micros(1),
            _ => Duration::from_nanos(self.0.u64(..200_000_000_000)),
        }
    }

    fn soon(&mut self) -> Duration {
        Duration::from_micros(self.0.u64(..20_000_000))
    }

    /// How far time moves at once.
    fn pause(&mut self) -> Duration {
        let max_us = self.of(&[1, 1_000_000, 100_000_000]);
        Duration::from_micros(self.0.u64(..max_us))
    }

    fn lease(&mut self) -> Duration {
        let max_us = self.of(&[100_000_000, 10_000_000_000, 1_000_000_000_000]);
        Duration::from_micros(self.0.u64(..max_us))
    }

    fn bound(&mut self) -> usize {
        self.of(&[1, 2, 100])
    }

    fn pick(&mut self) -> Pick {
        Pick(self.0.usize(..1000))
    }

    fn of<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.0.usize(..all.len())].clone()
    }

    /// One of these in `times` times.
    fn perhaps<T>(&mut self, times: u32, make: impl FnOnce(&mut Self) -> T) -> Option<T> {
        (self.0.u32(..times) == 0).then(|| make(self))
    }

    /// One of these, or a few.
    fn some<T>(&mut self, max: usize, mut make: impl FnMut(&mut Self) -> T) -> Vec<T> {
        let count = if self.0.bool() { 1 } else { self.0.usize(1..=max) };
        (0..count).map(|_| make(self)).collect()
    }
}
