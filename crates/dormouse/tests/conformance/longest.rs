//! Lists that an operator reads from the top: who failed last, and who has waited longest.

use std::time::Duration;

use dormouse::store::{Filter, Page};
use dormouse::{InstanceId, Status};

use crate::kit::*;

suite![
    what_failed_last_is_listed_first_page_after_page,
    a_page_goes_on_where_it_ended_though_its_last_instance_was_retried,
    who_has_waited_longest_is_first_though_another_is_older,
];

const SECOND: Duration = Duration::from_secs(1);

/// Instances that failed in the opposite order of their ids.
async fn failed(kit: &Kit, count: usize) -> Vec<InstanceId> {
    let worker = kit.worker("w").await;
    let mut ids = Vec::new();
    for _ in 0..count {
        ids.push(kit.insert(m()).await);
        kit.advance(SECOND);
    }
    let mut claimed = kit.claim(worker, count).await;
    claimed.sort_by_key(|row| std::cmp::Reverse(row.id));
    for row in &claimed {
        kit.commit(worker, commit(row, fail("no"))).await;
        kit.advance(SECOND);
    }
    ids
}

fn of_failed(page: Option<&Page>) -> Filter {
    let (after, after_at) = page.map_or((None, None), |page| (page.next, page.next_at));
    let status = Some(Status::Failed);
    Filter { status, after, after_at, limit: 2, heads_only: true, ..Filter::default() }
}

fn ids(page: &Page) -> Vec<InstanceId> {
    page.instances.iter().map(|instance| instance.id).collect()
}

async fn what_failed_last_is_listed_first_page_after_page(kit: Kit) {
    let failed = failed(&kit, 5).await;
    let mut listed = Vec::new();
    let mut page = kit.store.list(of_failed(None)).await.expect("a page");
    listed.extend(ids(&page));
    while page.next.is_some() {
        assert!(page.next_at.is_some(), "the order is not that of ids");
        page = kit.store.list(of_failed(Some(&page))).await.expect("a page");
        listed.extend(ids(&page));
    }
    assert_eq!(listed, failed, "the first that was inserted failed last");
    let by_id_alone = Filter { after: Some(failed[2]), ..of_failed(None) };
    assert_eq!(ids(&kit.store.list(by_id_alone).await.expect("a page")), failed[3..]);
}

async fn a_page_goes_on_where_it_ended_though_its_last_instance_was_retried(kit: Kit) {
    let failed = failed(&kit, 4).await;
    let page = kit.store.list(of_failed(None)).await.expect("a page");
    for id in ids(&page) {
        kit.client().retry(id).await.expect("it failed");
    }
    let rest = kit.store.list(of_failed(Some(&page))).await.expect("a page");
    assert_eq!(ids(&rest), failed[2..], "an operator who retries page by page misses none");
}

async fn who_has_waited_longest_is_first_though_another_is_older(kit: Kit) {
    let worker = kit.worker("w").await;
    let (older, stuck) = (kit.insert(m()).await, kit.insert(m()).await);
    for row in kit.claim(worker, 2).await {
        kit.commit(worker, commit(&row, wait_for(&["paid"], "start"))).await;
    }
    // The older one is asked again and again, and waits anew each time.
    for _ in 0..3 {
        kit.advance(SECOND);
        kit.deliver(older, signal("paid")).await;
        let row = kit.claim_one(worker).await;
        kit.commit(worker, commit(&row, wait_for(&["paid"], "start"))).await;
    }
    let backlog = kit.store.backlog(None).await.expect("a read");
    let [awaited] = backlog.awaiting.as_slice() else { panic!("{backlog:?}") };
    assert_eq!((awaited.oldest, awaited.count), (stuck, 2));
    assert_eq!(awaited.since, kit.get(stuck).await.changed_at);
    let first = Filter { awaiting: Some("paid".to_owned()), limit: 1, ..Filter::default() };
    let page = kit.store.list(first.clone()).await.expect("a page");
    assert_eq!(ids(&page), [stuck]);
    let next = Filter { after: page.next, after_at: page.next_at, ..first };
    assert_eq!(ids(&kit.store.list(next).await.expect("a page")), [older]);
}
