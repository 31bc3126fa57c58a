//! What an instance waits on, in turn: the request that is not sent, the child that does not run, the holder of its lane.

use super::Client;
use crate::explain::{explain, held, moment, unserved};
use crate::store::{Filter, InteractionFilter, Situation, WorkerView};
use crate::{INTERACTION_API, Instance, InstanceId, Interaction, InteractionStatus, Result, Status, Target};

/// How many instances are followed, one from the other.
const FOLLOWED_MAX: usize = 4;
/// How many of an instance's children, and of its requests in each status, are looked at.
const LOOKED_AT_MAX: usize = 100;

/// What somebody waits on.
enum WaitsOn {
    /// Another instance.
    Instance(InstanceId),
    /// Something that this says all about.
    Told(String),
}

impl Client {
    /// The explanation of this instance, and of each one that it waits on.
    pub(super) async fn followed(&self, first: &Situation) -> Result<String> {
        let hub = self.store.hub();
        let mut told = explain(first, hub.is_claimed_ahead(first.instance.id));
        let mut seen = vec![first.instance.id];
        let mut next = self.waits_on(first).await?;
        while let Some(waits_on) = next.take() {
            match waits_on {
                WaitsOn::Told(more) => told.push_str(&format!("; {more}")),
                WaitsOn::Instance(id) if seen.contains(&id) || seen.len() > FOLLOWED_MAX => break,
                WaitsOn::Instance(id) => {
                    seen.push(id);
                    let namespace = first.instance.namespace.clone();
                    let Some(situation) = self.store.situation(namespace, Target::Id(id)).await? else {
                        break;
                    };
                    told.push_str(&format!("; {}", explain(&situation, hub.is_claimed_ahead(id))));
                    next = self.waits_on(&situation).await?;
                }
            }
        }
        Ok(told)
    }

    async fn waits_on(&self, situation: &Situation) -> Result<Option<WaitsOn>> {
        let Situation { instance, lane, .. } = situation;
        let holder = || lane.as_ref().and_then(|lane| lane.holders.first().copied());
        match instance.status {
            Status::AwaitingCompletion => Ok(self.request(situation).await?.map(WaitsOn::Told)),
            Status::AwaitingChildren => self.child(situation).await,
            Status::Runnable if instance.lane_blocked => Ok(holder().map(WaitsOn::Instance)),
            _ => Ok(None),
        }
    }

    /// The children that nobody can run, or else the oldest live one.
    async fn child(&self, Situation { instance, workers, .. }: &Situation) -> Result<Option<WaitsOn>> {
        let all = Filter {
            namespace: Some(instance.namespace.clone()),
            parent: Some(instance.id),
            heads_only: true,
            limit: LOOKED_AT_MAX,
            ..Filter::default()
        };
        let mut children = self.store.list(all).await?.instances;
        children.retain(|child| child.parent_round == Some(instance.round) && !child.status.is_terminal());
        let stuck = |child: &Instance| match child.status {
            Status::Runnable if !child.paused => unserved(child, workers),
            _ => None,
        };
        let reasons: Vec<String> = children.iter().filter_map(stuck).collect();
        if let Some(reason) = reasons.first() {
            let same = reasons.iter().filter(|other| *other == reason).count();
            return Ok(Some(WaitsOn::Told(format!("{same} of them cannot run: {reason}"))));
        }
        Ok(children.last().map(|oldest| WaitsOn::Instance(oldest.id)))
    }

    /// The request that most needs a look: one that nobody sends, one that fails, one that is not answered.
    async fn request(&self, situation: &Situation) -> Result<Option<String>> {
        let instance = &situation.instance;
        let mut open = Vec::new();
        for status in [InteractionStatus::Pending, InteractionStatus::Dispatched] {
            let filter = InteractionFilter {
                namespace: Some(instance.namespace.clone()),
                instance: Some(instance.id),
                status: Some(status),
                limit: LOOKED_AT_MAX,
                ..InteractionFilter::default()
            };
            open.extend(self.store.interactions(filter).await?.items);
        }
        let urgency = |asked: &&Interaction| {
            let is_sent = asked.transport != INTERACTION_API;
            match asked.status {
                InteractionStatus::Pending if is_sent && !has(&situation.workers, asked) => 0,
                InteractionStatus::Pending if asked.error.is_some() => 1,
                InteractionStatus::Pending if is_sent && asked.sends == 0 => 2,
                InteractionStatus::Pending if is_sent => 3,
                _ => 4,
            }
        };
        let Some(asked) = open.iter().min_by_key(urgency) else { return Ok(None) };
        let waits = asked.status == InteractionStatus::Pending && (asked.sends == 0 || asked.error.is_some());
        if waits && asked.transport != INTERACTION_API && has(&situation.workers, asked) {
            let transport = self.store.transport(asked.transport.clone()).await?;
            if let Some(held) = transport.and_then(|transport| held(&transport, situation.now)) {
                return Ok(Some(format!("interaction {} is not sent: {held}", asked.id)));
            }
        }
        Ok(Some(told(asked, situation)))
    }
}

/// Whether a live worker of the instance's namespace has the transport. One that did not say counts as having it.
fn has(workers: &[WorkerView], asked: &Interaction) -> bool {
    workers.iter().any(|worker| {
        let names = |names: &Vec<String>| names.contains(&asked.transport);
        worker.namespaces.contains(&asked.namespace) && worker.transports.as_ref().is_none_or(names)
    })
}

fn told(asked: &Interaction, Situation { now, workers, .. }: &Situation) -> String {
    let Interaction { id, transport, sends, .. } = asked;
    let at = |at: Option<jiff::Timestamp>| at.map(|at| moment(at, *now)).unwrap_or_default();
    match (asked.status, &asked.error) {
        (InteractionStatus::Dispatched, _) => {
            let when = at(asked.dispatched_at);
            format!("interaction {id} was sent by transport {transport:?} at {when} and is not answered yet")
        }
        _ if transport == INTERACTION_API => match &asked.assignee {
            Some(assignee) => format!("interaction {id} is claimed by {assignee:?} and not answered yet"),
            None => format!("interaction {id} waits for an answer through the interaction API"),
        },
        _ if !has(workers, asked) => {
            format!("interaction {id} is not sent, as no live worker has its transport {transport:?}")
        }
        (_, Some(error)) => {
            let (times, when) =
                (if *sends == 1 { "once".to_owned() } else { format!("{sends} times") }, at(asked.send_at));
            format!(
                "interaction {id} was sent {times} by transport {transport:?}, in vain, and is sent again at {when}: {error}"
            )
        }
        _ => format!("interaction {id} is about to be sent by transport {transport:?}"),
    }
}
