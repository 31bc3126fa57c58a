//! Another tenant's instance is as unknown as one that never was, whoever holds its lock at that moment: nobody waits
//! for it, or makes it wait.

use std::future::Future;
use std::time::Duration;

use dormouse::store::{Assigned, Brake, Completed, Completion, Delivery, Refusal, Store, UnitStore, Which};
use dormouse::{Client, Delivered, Error, INTERACTION_API, Json, NewInstance, NewSignal, Status, Target};

use crate::scene::{Hold, Scene};
use crate::verbs::{dispatch, m};

/// Only a failure takes that long.
const AFTER: Duration = Duration::from_secs(30);

async fn while_it_is_held<T>(verb: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(AFTER, future).await.unwrap_or_else(|_| panic!("{verb} waits for another tenant"))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_another_tenants_is_unknown_while_its_lock_is_held() {
    let scene = Scene::new(Hold::Instance, Status::Runnable).await;
    scene.park(&dispatch(INTERACTION_API, None)).await;
    let store = &scene.verbs.store;
    let id = scene.held[0];
    let unit = store.unit(id).await.expect("a read").expect("a unit");
    let asked = store.items(unit.id, 0, 1).await.expect("a read").remove(0).id;
    let stranger = || "stranger".to_owned();
    let client = Client::open(&scene.database.url).await.expect("it opens");
    let client = client.in_namespace("stranger").expect("a name");
    let own = |lane: Option<&str>| -> NewInstance {
        let new = m().even_if_unknown();
        match lane {
            Some(lane) => new.lane(lane),
            None => new,
        }
    };
    let plain = client.start_many(vec![own(None)]).await.expect("a start")[0].id();
    let in_lane = client.start_many(vec![own(Some("lane"))]).await.expect("a start")[0].id();
    let mut holder = scene.take_hold().await;
    sqlx::raw_sql("select from dormouse.interactions for update").execute(&mut holder).await.expect("locks");

    let (to, result) = (Which::Id(asked), Ok(Json::null()));
    let answer = Completion { namespace: stranger(), to, result, assignee: None, by: None, proof: None };
    let completed = while_it_is_held("an answer", store.complete(vec![answer.clone()])).await;
    assert_eq!(completed.expect("a verdict").value, [Completed::Refused(Refusal::OtherNamespace)]);
    let taken = store.assign(stranger(), asked, "me".to_owned(), AFTER);
    assert_eq!(while_it_is_held("a claim", taken).await.expect("a verdict"), Assigned::NotOpen);
    // Alone, beside an own one, and beside an own one in a lane, which is delivered in another way.
    for beside in [None, Some(plain), Some(in_lane)] {
        let to = |target: Target| Delivery {
            namespace: stranger(),
            target,
            signal: NewSignal::new("note", Json::null()),
            inbox_max: dormouse::InboxMax::default(),
            kept_max: dormouse::KeptMax::default(),
        };
        let batch = [Some(id), beside].into_iter().flatten().map(|id| to(id.into())).collect();
        let delivered = while_it_is_held("a signal", store.deliver(batch)).await.expect("a verdict").value;
        assert_eq!(delivered[0], Delivered::NoTarget, "{delivered:?}");
        assert_eq!(delivered.len() == 2, beside.is_some());
        assert!(delivered[1..].iter().all(|own| matches!(own, Delivered::Accepted { .. })), "{delivered:?}");
    }
    let paused = while_it_is_held("a brake", store.pause(stranger(), id.into(), Brake::On, None)).await;
    assert!(matches!(paused, Err(Error::NotFound(_))), "{paused:?}");
    let retried = while_it_is_held("a retry", store.retry(stranger(), id.into(), None, None)).await;
    assert!(matches!(retried, Err(Error::NotFound(_))), "{retried:?}");
    let cancelled = while_it_is_held("a cancel", async { client.cancel(id).await }).await;
    assert!(matches!(cancelled, Err(Error::NotFound(_))), "{cancelled:?}");
    let tagged = while_it_is_held("a tag", async { client.tag(id).add("mine").await }).await;
    assert!(matches!(tagged, Err(Error::NotFound(_))), "{tagged:?}");
    Scene::let_go(holder).await;
}
