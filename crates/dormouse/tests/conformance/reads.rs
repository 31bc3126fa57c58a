//! What reads cost: bounded in bytes as well as in rows, and nothing that was not asked for.

use std::sync::Arc;
use std::time::Duration;

use dormouse::store::{Bounds, Events, Filter, InteractionFilter, PAGE_BYTES_MAX, PLACES_MAX};
use dormouse::{Ask, Client, Dispatch, Error, Event, InstanceId, Json, OnFailure, Shape, Status, Transition};
use serde_json::json;

use crate::faulty::Faulty;
use crate::kit::*;

suite![
    a_history_is_read_up_to_a_bound_in_bytes_and_goes_on_from_there,
    a_history_is_read_backwards_from_its_end,
    an_inbox_is_read_up_to_a_bound_in_bytes_and_goes_on_from_there,
    a_page_with_documents_ends_at_its_bytes_and_one_of_heads_has_none,
    interactions_are_read_up_to_a_bound_in_bytes,
    stats_of_a_namespace_count_it_alone,
    stats_name_a_bounded_number_of_places_and_count_all,
    whoever_waits_looks_at_the_head_alone,
];

const KIB: usize = 1024;

/// A document of about this many bytes.
fn long(bytes: usize) -> serde_json::Value {
    json!("x".repeat(bytes))
}

/// An instance with a long state and many events that leave it as it is.
async fn often_retried(kit: &Kit, events: u64) -> InstanceId {
    let id = kit.insert(m_at(at_with("start", long(10 * KIB)))).await;
    while kit.get(id).await.seq < events {
        let client = kit.client();
        client.cancel(id).await.expect("it is live");
        client.retry(id).await.expect("it has ended");
    }
    id
}

fn bytes(events: &[Event]) -> usize {
    let data = |event: &Event| event.data.as_ref().map_or(0, |data| data.as_str().len());
    events.iter().map(|event| event.state.as_str().len() + data(event)).sum()
}

async fn a_history_is_read_up_to_a_bound_in_bytes_and_goes_on_from_there(kit: Kit) {
    let id = often_retried(&kit, 21).await;
    let bounds = Bounds { rows_max: 500, bytes_max: 45 * KIB };
    let mut read: Vec<Event> = Vec::new();
    loop {
        let after = Events::After(read.last().map_or(0, |event| event.seq));
        let page = kit.store.history(id, after, bounds).await.expect("a page");
        assert!(!page.items.is_empty() && bytes(&page.items) <= 56 * KIB, "{} bytes", bytes(&page.items));
        read.extend(page.items);
        if !page.more {
            break;
        }
        assert!(bytes(&read[read.len() - 5..]) >= 45 * KIB, "a page ends where its bytes are reached");
    }
    assert_eq!(read.iter().map(|event| event.seq).collect::<Vec<_>>(), (1..=21).collect::<Vec<u64>>());
    assert!(read.iter().all(|event| event.state.as_str().len() > 10 * KIB), "each has the state after it");
    let one = kit.store.history(id, Events::After(3), Bounds { rows_max: 500, bytes_max: 1 }).await;
    let one = one.expect("a page");
    assert_eq!((one.items.len(), one.items[0].seq, one.more), (1, 4, true), "one is always read");
    assert_eq!(kit.client().history(id).await.expect("all of it"), read);
}

async fn a_history_is_read_backwards_from_its_end(kit: Kit) {
    let id = often_retried(&kit, 9).await;
    let mut seqs = Vec::new();
    loop {
        let before = Events::Before(seqs.last().copied().unwrap_or(u64::MAX));
        let page = kit.client().history_page(id, before, Bounds::rows(4)).await.expect("a page");
        seqs.extend(page.items.iter().map(|event| event.seq));
        if !page.more {
            break;
        }
    }
    assert_eq!(seqs, (1..=9).rev().collect::<Vec<u64>>());
    let forwards = kit.history(id).await;
    let last = kit.store.history(id, Events::Before(u64::MAX), Bounds::rows(1)).await.expect("a page");
    assert_eq!(last.items.first(), forwards.last());
    let none = kit.store.history(id, Events::Before(1), Bounds::rows(4)).await.expect("a page");
    assert!(none.items.is_empty() && !none.more);
}

async fn an_inbox_is_read_up_to_a_bound_in_bytes_and_goes_on_from_there(kit: Kit) {
    let id = kit.insert(m()).await;
    for n in 0..9 {
        let payload = Json::from(json!([n, "x".repeat(10 * KIB)]));
        kit.deliver(id, dormouse::NewSignal { payload, ..signal("hello") }).await;
    }
    let bounds = Bounds { rows_max: 500, bytes_max: 25 * KIB };
    let (mut read, mut pages) = (Vec::new(), 0);
    loop {
        let after = read.last().map(|signal: &dormouse::InboxSignal| signal.id);
        let page = kit.client().inbox_page(id, after, bounds).await.expect("a page");
        assert_eq!(page.items.len(), 3);
        read.extend(page.items);
        pages += 1;
        if !page.more {
            break;
        }
    }
    assert_eq!((pages, read.len()), (3, 9));
    assert_eq!(kit.client().inbox(id).await.expect("all of it"), read);
    let one = kit.client().inbox_page(id, Some(read[4].id), Bounds::rows(1)).await.expect("a page");
    assert_eq!((&one.items[..], one.more), (&read[5..6], true));
}

async fn a_page_with_documents_ends_at_its_bytes_and_one_of_heads_has_none(kit: Kit) {
    let state = long(PAGE_BYTES_MAX / 4);
    let new = (0..10).map(|_| m_at(at_with("start", state.clone()))).collect();
    let mut ids: Vec<_> = kit.insert_many(new).await.iter().map(dormouse::Inserted::id).collect();
    ids.reverse();
    let mut filter = Filter { limit: 100, ..Filter::default() };
    let (mut listed, mut pages) = (Vec::new(), 0);
    loop {
        let page = kit.client().list(filter.clone()).await.expect("a page");
        assert!(page.instances.len() <= 4, "{} documents", page.instances.len());
        assert!(page.instances.iter().all(|instance| instance.state == Json::from(state.clone())));
        listed.extend(page.instances.iter().map(|instance| instance.id));
        pages += 1;
        match page.next {
            Some(next) => filter.after = Some(next),
            None => break,
        }
    }
    assert_eq!((pages, &listed), (3, &ids));
    let heads = Filter { limit: 100, heads_only: true, ..Filter::default() };
    let page = kit.client().list(heads).await.expect("a page");
    assert_eq!(page.instances.iter().map(|instance| instance.id).collect::<Vec<_>>(), ids);
    assert!(page.next.is_none() && page.instances.iter().all(|instance| instance.state == Json::null()));
    let whole = kit.get(ids[0]).await;
    let head = kit.client().head(ids[0]).await.expect("a read").expect("it is there");
    assert_eq!(format!("{head:?}"), format!("{:?}", dormouse::Instance { state: Json::null(), ..whole }));
    let elsewhere = kit.client().in_namespace("other").expect("a good name");
    assert!(elsewhere.head(ids[0]).await.expect("a read").is_none());
}

async fn interactions_are_read_up_to_a_bound_in_bytes(kit: Kit) {
    let worker = kit.worker("w").await;
    let ask = |item: u32| Ask {
        request: Json::from(long(PAGE_BYTES_MAX / 4)),
        idempotency_key: format!("key-{item}"),
        correlation_id: None,
        for_assignee: None,
        for_group: None,
    };
    let id = kit.insert(m()).await;
    let claimed = kit.claim_one(worker).await;
    let dispatch = Dispatch {
        at: at("answered"),
        shape: Shape::Each,
        asks: (0..6).map(ask).collect(),
        items: 6,
        transport: dormouse::INTERACTION_API.to_owned(),
        timeout: None,
        item_timeout: None,
        in_flight: None,
        on_failure: OnFailure::Fail,
        quorum: None,
        outputs_max: 10_000,
    };
    kit.commit(worker, commit(&claimed, Transition::Dispatch(dispatch))).await;
    for instance in [None, Some(id)] {
        let filter = InteractionFilter { instance, limit: 100, ..InteractionFilter::default() };
        let first = kit.client().interactions(filter.clone()).await.expect("a page");
        assert_eq!((first.items.len(), first.more), (4, true));
        let after = first.items.last().map(|last| last.id);
        let rest = kit.client().interactions(InteractionFilter { after, ..filter }).await.expect("a page");
        assert_eq!((rest.items.len(), rest.more), (2, false));
    }
}

async fn stats_of_a_namespace_count_it_alone(kit: Kit) {
    for (namespace, count) in [("default", 1), ("other", 2)] {
        let client = kit.client().in_namespace(namespace).expect("a good name");
        client.start_many(vec![m().even_if_unknown(); count]).await.expect("they start");
        client.pause_queue("default").await.expect("a brake");
    }
    for (namespace, count) in [(Some("default"), 1), (Some("other"), 2), (Some("third"), 0), (None, 3)] {
        let stats = kit.store.stats(namespace.map(str::to_owned)).await.expect("a read");
        assert_eq!(stats.count(Status::Runnable), count);
        assert_eq!(stats.instances.iter().map(|place| place.count).sum::<u64>(), count);
        let brakes = stats.paused_queues.iter().filter(|queue| queue.paused).count() as u64;
        assert_eq!(brakes, count.min(2) - u64::from(count == 2), "{namespace:?}");
        assert!(!stats.more_places);
    }
}

async fn stats_name_a_bounded_number_of_places_and_count_all(kit: Kit) {
    let client = kit.client();
    let names: Vec<_> = (0..PLACES_MAX + 10).collect();
    for names in names.chunks(1000) {
        let new = names.iter().map(|n| {
            let mut new = m().even_if_unknown();
            new.machine = format!("machine-{n:06}");
            new
        });
        client.start_many(new).await.expect("they start");
    }
    for namespace in [None, Some("default".to_owned())] {
        let stats = kit.store.stats(namespace).await.expect("a read");
        assert_eq!((stats.instances.len(), stats.more_places), (PLACES_MAX, true));
        assert_eq!(stats.count(Status::Runnable), names.len() as u64);
        assert!(stats.instances.is_sorted_by_key(|place| &place.machine));
        assert_eq!(stats.instances[0].machine, "machine-000000");
    }
}

async fn whoever_waits_looks_at_the_head_alone(kit: Kit) {
    let store = Arc::new(Faulty::on(kit.store.clone()));
    let client = Client::on(store.clone());
    let id = kit.insert(m_at(at_with("start", long(100 * KIB)))).await;
    let waited = client.wait_end(id, Duration::from_millis(600)).await;
    assert!(matches!(waited, Err(Error::StillLive { .. })), "{waited:?}");
    assert!(store.calls("head") >= 2, "it looked {} times", store.calls("head"));
    assert_eq!(store.calls("get"), 0, "no document is read to wait");
    kit.client().cancel(id).await.expect("it is live");
    let ended = client.wait_end(id, Duration::from_secs(30)).await.expect("it has ended");
    assert_eq!((ended.status, store.calls("get")), (Status::Cancelled, 1));
    assert!(ended.state.as_str().len() > 100 * KIB, "what it waited for is whole");
}
