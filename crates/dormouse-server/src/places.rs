//! Limits for long-lasting requests: long polls and event streams. No key and no namespace can take all places.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::access::Caller;
use crate::problem::{Cause, Problem};

/// How many long-lasting requests of one kind may be open at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtOnce {
    /// In the whole server.
    pub in_all: usize,
    /// For one namespace.
    pub per_namespace: usize,
    /// For one API key; without keys, for all callers together.
    pub per_key: usize,
}

impl AtOnce {
    /// This many in all, of which one namespace gets at most half, and one key at most a quarter.
    pub const fn of(in_all: usize) -> Self {
        Self { in_all, per_namespace: in_all.div_ceil(2), per_key: in_all.div_ceil(4) }
    }
}

pub(crate) struct Places {
    /// The kind of request, for error messages.
    what: &'static str,
    at_once: AtOnce,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    in_all: usize,
    by_namespace: HashMap<String, usize>,
    by_key: HashMap<String, usize>,
}

/// A place, until it is dropped.
pub(crate) struct Place {
    places: Arc<Places>,
    namespace: String,
    who: String,
}

impl Places {
    pub(crate) fn new(what: &'static str, at_once: AtOnce) -> Arc<Self> {
        Arc::new(Self { what, at_once, taken: Mutex::default() })
    }

    /// Takes a place for this caller, or fails with the share that is used up.
    pub(crate) fn take(self: &Arc<Self>, caller: &Caller) -> Result<Place, Problem> {
        let Caller { who, namespace, .. } = caller;
        let AtOnce { in_all, per_namespace, per_key } = self.at_once;
        let mut taken = self.lock();
        let count = |by: &HashMap<String, usize>, name: &str| by.get(name).copied().unwrap_or(0);
        if count(&taken.by_key, who) >= per_key {
            return Err(self.too_many("key", "this API key has", per_key));
        }
        if count(&taken.by_namespace, namespace) >= per_namespace {
            return Err(self.too_many("namespace", "this namespace has", per_namespace));
        }
        if taken.in_all >= in_all {
            let told = format!(
                "this server has too many {} open (the limit is {in_all}); try again later",
                self.what
            );
            return Err(Problem::new(Cause::Unavailable, told));
        }
        taken.in_all += 1;
        *taken.by_namespace.entry(namespace.clone()).or_default() += 1;
        *taken.by_key.entry(who.clone()).or_default() += 1;
        Ok(Place { places: self.clone(), namespace: namespace.clone(), who: who.clone() })
    }

    fn too_many(&self, of: &str, whose: &str, limit: usize) -> Problem {
        let what = self.what;
        let told = format!("{whose} too many {what} open (the limit is {limit}); close some first");
        Problem::new(Cause::TooManyAtOnce, told).with("of", of).with("limit", limit)
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().expect("no code panics while it holds this lock")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.lock();
        taken.in_all -= 1;
        let free = |by: &mut HashMap<String, usize>, name: &str| {
            if let Some(count) = by.get_mut(name) {
                *count -= 1;
                if *count == 0 {
                    by.remove(name);
                }
            }
        };
        free(&mut taken.by_namespace, &self.namespace);
        free(&mut taken.by_key, &self.who);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(who: &str, namespace: &str) -> Caller {
        Caller { who: who.to_owned(), namespace: namespace.to_owned(), ..Caller::nobody() }
    }

    #[test]
    fn neither_a_key_nor_a_namespace_takes_all_places_and_a_place_comes_back() {
        let places = Places::new("waits", AtOnce { in_all: 5, per_namespace: 3, per_key: 2 });
        let take = |who: &str, namespace: &str| places.take(&caller(who, namespace));
        let refused = |taken: Result<Place, Problem>| match taken {
            Ok(_) => panic!("there was a place"),
            Err(problem) => (problem.cause, problem.members.get("of").cloned()),
        };
        let mut held = vec![take("a", "one"), take("a", "one")];
        assert_eq!(refused(take("a", "one")), (Cause::TooManyAtOnce, Some("key".into())));
        held.push(take("b", "one"));
        assert_eq!(refused(take("b", "one")), (Cause::TooManyAtOnce, Some("namespace".into())));
        held.extend([take("c", "two"), take("c", "two")]);
        assert_eq!(refused(take("d", "two")), (Cause::Unavailable, None));
        assert!(held.iter().all(Result::is_ok));
        held.clear();
        assert!(take("a", "one").is_ok());
        let taken = places.lock();
        assert!(taken.in_all == 0 && taken.by_key.is_empty() && taken.by_namespace.is_empty());
    }
}
