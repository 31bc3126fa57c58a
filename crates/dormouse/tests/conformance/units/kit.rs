//! Units in one line each.

use dormouse::store::{Completed, Completion, InteractionFilter, Receipt, Which};
use dormouse::{
    Ask, Dispatch, INTERACTION_API, InstanceId, Interaction, InteractionId, InteractionStatus, Json,
    OnFailure, Shape, Transition, UnitView, WorkerId,
};
use serde::Serialize;

use crate::kit::*;

/// A request of one.
pub(crate) fn one(request: &str) -> Dispatch {
    Dispatch { shape: Shape::One, on_failure: OnFailure::Fail, in_flight: None, ..each(&[request]) }
}

/// A request for each of these.
pub(crate) fn each(requests: &[&str]) -> Dispatch {
    let ask = |(item, request): (usize, &&str)| Ask {
        request: Json::encode("request", request).expect("a text"),
        idempotency_key: format!("key-{item}"),
        correlation_id: None,
        for_assignee: None,
        for_group: None,
    };
    Dispatch {
        at: at("answered"),
        shape: Shape::Each,
        asks: requests.iter().enumerate().map(ask).collect(),
        items: requests.len(),
        transport: INTERACTION_API.to_owned(),
        timeout: None,
        item_timeout: None,
        in_flight: Some(64),
        on_failure: OnFailure::Report,
        quorum: None,
        outputs_max: 10_000,
    }
}

/// An instance of `m` that is parked on this unit.
pub(super) async fn parked(kit: &Kit, worker: WorkerId, dispatch: Dispatch) -> InstanceId {
    let id = kit.insert(m()).await;
    let claimed = kit.claim_one(worker).await;
    assert_eq!(claimed.id, id);
    let receipt = kit.commit(worker, commit(&claimed, Transition::Dispatch(dispatch))).await;
    assert!(matches!(receipt, Receipt::Released), "{receipt:?}");
    id
}

pub(super) async fn unit(kit: &Kit, instance: InstanceId) -> UnitView {
    kit.store.unit(instance).await.expect("a read").expect("it has a unit")
}

pub(super) async fn items(kit: &Kit, instance: InstanceId) -> Vec<Interaction> {
    kit.store.items(unit(kit, instance).await.id, 0, 1_000).await.expect("a read")
}

/// What became of each item of an instance's unit, in words.
pub(super) async fn verdicts(kit: &Kit, instance: InstanceId) -> Vec<String> {
    let told = |item: Interaction| match (item.output, item.error) {
        (Some(output), _) => format!("{} {output}", item.status),
        (None, Some(error)) => format!("{} {error}", item.status),
        (None, None) => item.status.to_string(),
    };
    items(kit, instance).await.into_iter().map(told).collect()
}

/// What waits to be sent or answered.
pub(super) async fn pending(kit: &Kit) -> Vec<Interaction> {
    let status = Some(InteractionStatus::Pending);
    let filter = InteractionFilter { status, limit: 10_000, ..InteractionFilter::default() };
    kit.store.interactions(filter).await.expect("a read").items
}

pub(super) fn completion(to: impl Into<Which>, output: impl Serialize) -> Completion {
    let output = Json::encode("output", &output).expect("an output");
    Completion {
        namespace: "default".to_owned(),
        to: to.into(),
        result: Ok(output),
        assignee: None,
        by: None,
        proof: None,
    }
}

pub(super) async fn answer(kit: &Kit, completion: Completion) -> Completed {
    kit.store.complete(vec![completion]).await.expect("a completion").value.remove(0)
}

pub(super) async fn complete(kit: &Kit, id: InteractionId, output: impl Serialize) -> Completed {
    answer(kit, completion(id, output)).await
}

pub(super) async fn fail_item(kit: &Kit, id: InteractionId, reason: &str) -> Completed {
    answer(kit, Completion { result: Err(reason.to_owned()), ..completion(id, ()) }).await
}
