//! Drawing calls.

use std::time::Duration;

use dormouse::rules::Hold;
use dormouse::{
    Ask, At, Children, Dispatch, History, InstanceId, Json, Mail, NewInstance, NewSignal, OnFailure, Quorum,
    Shape, Spawn, Transition, When,
};
use fastrand::Rng;
use serde_json::json;

const STEPS: [&str; 3] = ["start", "middle", "end"];
const SIGNALS: [&str; 3] = ["a", "b", "c"];
const LANES: [&str; 2] = ["l1", "l2"];
const DEDUPS: [&str; 2] = ["d1", "d2"];

pub struct Draw(Rng);

impl Draw {
    pub fn new(seed: u64) -> Self {
        Self(Rng::with_seed(seed))
    }

    pub fn under(&mut self, bound: usize) -> usize {
        self.0.usize(..bound)
    }

    /// A place in a list of so many.
    pub fn pick(&mut self, count: usize) -> Option<usize> {
        (count > 0).then(|| self.0.usize(..count))
    }

    pub fn instance(&mut self, with_signals: bool) -> NewInstance {
        let mut new = NewInstance::named("m", 1, self.at()).even_if_unknown();
        new.priority = self.0.i32(-1..=1);
        new.lane = self.perhaps(3, |draw| draw.of(&LANES).to_owned());
        new.start_at = self.perhaps(6, Self::when);
        new.awaits = self.perhaps(4, |draw| (draw.names(), draw.perhaps(2, Self::when)));
        new.history = self.perhaps(8, |_| History::Off);
        if with_signals {
            new.signals =
                (0..self.under(3)).map(|_| NewSignal { dedup_key: None, ..self.signal() }).collect();
        }
        new
    }

    pub fn signal(&mut self) -> NewSignal {
        let signal = NewSignal::new(self.of(&SIGNALS), self.at().state);
        match self.perhaps(3, |draw| draw.of(&DEDUPS)) {
            Some(key) => signal.dedup(key),
            None => signal,
        }
    }

    pub fn outcome(&mut self) -> Transition {
        match self.under(26) {
            0..5 => Transition::Next { at: self.at(), ahead: true },
            5..8 => Transition::Replay {
                at: self.at(),
                delay: if self.0.bool() { Duration::ZERO } else { self.soon() },
                error: self.perhaps(2, |_| "it \"broke\"".to_owned()),
            },
            8..10 => Transition::Sleep { at: self.at(), until: self.when() },
            10..15 => {
                Transition::Await { at: self.at(), names: self.names(), timeout: self.perhaps(2, Self::when) }
            }
            15..19 => Transition::Spawn(self.spawn()),
            19..23 => Transition::Dispatch(self.dispatch()),
            23..25 => Transition::Done { output: self.at().state },
            _ => Transition::Fail { error: "no more".to_owned() },
        }
    }

    /// Mail of an instance to some of these, and to one that is not there.
    pub fn mail(&mut self, sender: InstanceId, ids: &[InstanceId]) -> Vec<Mail> {
        let count = self.perhaps(4, |draw| 1 + draw.under(3)).unwrap_or_default();
        let mut mail = Vec::new();
        for _ in 0..count {
            let to = self.pick(ids.len()).map_or(InstanceId(999_999), |place| ids[place]);
            let to = if self.under(8) == 0 { InstanceId(999_999) } else { to };
            if to == sender {
                continue;
            }
            mail.push(match self.under(5) {
                0 => Mail::cancel(to),
                _ => Mail::signal_raw(to, self.signal()),
            });
        }
        mail
    }

    fn spawn(&mut self) -> Spawn {
        let count = self.of(&[1, 2, 5]);
        Spawn {
            at: self.at(),
            children: (0..self.under(4)).map(|_| self.instance(false)).collect(),
            timeout: self.perhaps(3, Self::when),
            quorum: self.perhaps(2, |draw| draw.of(&[Quorum::Done(count), Quorum::Ended(count)])),
            fail_fast: self.under(4) == 0,
            on_release: self.of(&[Children::Cancel, Children::Keep]),
            on_cancel: self.of(&[Children::Cancel, Children::Keep]),
        }
    }

    fn dispatch(&mut self) -> Dispatch {
        let shape = self.of(&[Shape::One, Shape::Each, Shape::Each]);
        let asks = if shape == Shape::One { 1 } else { self.under(5) };
        let ask = |item| Ask {
            request: self.at().state,
            idempotency_key: format!("key-{item}"),
            correlation_id: None,
            for_assignee: None,
            for_group: None,
        };
        Dispatch {
            asks: (0..asks).map(ask).collect(),
            items: asks,
            at: self.at(),
            shape,
            transport: dormouse::INTERACTION_API.to_owned(),
            timeout: self.perhaps(3, Self::when),
            item_timeout: self.perhaps(2, Self::soon),
            in_flight: self.perhaps(2, |draw| draw.0.u32(1..=3)),
            on_failure: self.of(&[OnFailure::Fail, OnFailure::Report, OnFailure::Report]),
            quorum: self.perhaps(4, |draw| draw.0.u32(1..=3)),
            outputs_max: 2,
        }
    }

    pub fn answer(&mut self) -> Result<Json, String> {
        if self.under(3) == 0 { Err("no".to_owned()) } else { Ok(self.at().state) }
    }

    pub fn hold(&mut self) -> Hold {
        self.of(&[Hold::Keep, Hold::Release])
    }

    pub fn reason(&mut self) -> Option<&'static str> {
        self.perhaps(2, |_| "no \"longer\" wanted")
    }

    /// Where a retry leads, if not to where its instance was.
    pub fn elsewhere(&mut self) -> Option<At> {
        self.perhaps(3, Self::at)
    }

    /// How far time moves at once.
    pub fn pause(&mut self) -> Duration {
        let max_us = self.of(&[1, 1_000_000, 30_000_000]);
        Duration::from_micros(self.0.u64(..max_us))
    }

    fn names(&mut self) -> Vec<String> {
        (0..=self.under(2)).map(|_| self.of(&SIGNALS).to_owned()).collect()
    }

    fn at(&mut self) -> At {
        let state = if self.0.bool() { Json::null() } else { Json::from(json!({ "n": self.0.u32(..1000) })) };
        At { step: self.of(&STEPS).into(), state }
    }

    fn when(&mut self) -> When {
        When::In(self.soon())
    }

    /// Odd to the microsecond, so that hardly ever two moments come at once.
    fn soon(&mut self) -> Duration {
        Duration::from_micros(self.0.u64(1..20_000_000))
    }

    fn of<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.0.usize(..all.len())].clone()
    }

    /// One of these in `times` times.
    fn perhaps<T>(&mut self, times: usize, make: impl FnOnce(&mut Self) -> T) -> Option<T> {
        (self.under(times) == 0).then(|| make(self))
    }
}
