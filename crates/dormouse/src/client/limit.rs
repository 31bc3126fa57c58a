//! Limits: set, removed and listed.

use std::collections::HashMap;

use super::Client;
use crate::limit::check_limit_name;
use crate::store::{LimitView, Written};
use crate::{Error, Limit, NewInstance, Result};

/// Limits listed in one read.
const PAGE: usize = 100;
/// How many writes a change of a limit makes for lanes that its first one did not settle. Workers settle the rest.
const WRITES_MAX: usize = 64;

impl Client {
    /// Limits how many instances of a lane run at a time, and how many of its steps start in a period: of the lane of this
    /// name, and of each lane of the family of this name. It replaces the name's limit, and holds at once, for all workers: if
    /// it is wider, the next in line can run; if it is narrower, those that run go on to their end. What was started before
    /// counts for a new rate.
    ///
    /// ```no_run
    /// # async fn shop(client: dormouse::Client) -> dormouse::Result<()> {
    /// use dormouse::{Limit, Rate};
    /// client.set_limit("partner", Limit::width(3)).await?; // for each of partner/acme, partner/globex, …
    /// client.set_limit("partner/acme", Limit::width(10)).await?;
    /// client.set_limit("stripe", Limit::rate(Rate::per_second(25).burst(5))).await?;
    /// # Ok(()) }
    /// ```
    pub async fn set_limit(&self, name: impl Into<String>, limit: Limit) -> Result<()> {
        let name = name.into();
        check_limit_name(&name)?;
        limit.check(&name)?;
        self.change_limit(name, Some(limit)).await.map(drop)
    }

    /// Removes the limit of a name. Its lanes go by their family's limit, or run one at a time. Returns whether there was
    /// one.
    pub async fn remove_limit(&self, name: impl Into<String>) -> Result<bool> {
        let name = name.into();
        check_limit_name(&name)?;
        self.change_limit(name, None).await
    }

    /// The limits of this namespace in the order of their names, with how much of each is in use.
    pub async fn list_limits(&self) -> Result<Vec<LimitView>> {
        let mut all = Vec::new();
        loop {
            let after = all.last().map(|last: &LimitView| last.name.clone());
            let page = self.store.limits(self.namespace.to_string(), after, PAGE).await?;
            let is_last = page.len() < PAGE;
            all.extend(page);
            if is_last {
                return Ok(all);
            }
        }
    }

    /// Refuses an instance that costs more than the bucket of its lane holds.
    pub(super) async fn check_costs(&self, batch: &[NewInstance]) -> Result<()> {
        let mut known: HashMap<&str, Option<u32>> = HashMap::new();
        for new in batch.iter().filter(|new| new.cost > 1) {
            let Some(lane) = new.lane.as_deref() else { continue };
            let burst = match known.get(lane) {
                Some(burst) => *burst,
                None => {
                    let limit = self.store.limit_of(self.namespace.to_string(), lane.to_owned()).await?;
                    let burst = limit.and_then(|limit| limit.rate).map(|rate| rate.burst);
                    known.insert(lane, burst);
                    burst
                }
            };
            if let Some(burst) = burst.filter(|burst| new.cost > *burst) {
                let reason = format!(
                    "a cost of {} is more than the burst of {burst}; start it with a smaller cost, or set a larger burst",
                    new.cost
                );
                return Err(Error::InvalidLimit { name: lane.to_owned(), reason });
            }
        }
        Ok(())
    }

    async fn change_limit(&self, name: String, limit: Option<Limit>) -> Result<bool> {
        let had = self.applied(self.store.set_limit(self.namespace.to_string(), name, limit).await?);
        for _ in 0..WRITES_MAX {
            let Written { value: more, effects } = self.store.settle_limits().await?;
            self.store.poke(&effects);
            if !more {
                break;
            }
        }
        Ok(had)
    }
}
