//! What operators and callers do by SQL alone.

use std::time::Duration;

use dormouse::store::Filter;
use dormouse::{InstanceId, Status};

use crate::World;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_by_sql_says_why_and_from_where_on() {
    let world = World::new().await;
    let start = "select dormouse.start('till', '{\"order\":1}', step => 'Open', version => 1, even_if_unknown => true, key => 'k')";
    let id = InstanceId(world.one::<i64>(start).await);
    let stale = world.fails("select dormouse.cancel('k', expected_seq => 7)").await;
    assert_eq!(stale, ("55000".to_owned(), format!("instance {id} is at seq 1 and not at 7")));
    for unfit in [
        "select dormouse.cancel('k', reason => '')",
        "select dormouse.cancel('k', reason => e' \\n')",
        "select dormouse.cancel('k', reason => e'a\\x1bb')",
        "select dormouse.cancel('k', reason => repeat('x', 1025))",
    ] {
        assert_eq!(world.fails(unfit).await.0, "22023", "{unfit}");
    }
    let row = world.client().get(id).await.expect("a read").expect("it is there");
    assert_eq!((row.status, row.cancel_reason), (Status::Runnable, None), "nothing was changed");
    let cancelled: String =
        world.one("select dormouse.cancel('k', reason => e'it''s\\nover', expected_seq => 1)").await;
    assert_eq!(cancelled, "cancelled");
    let row = world.client().get(id).await.expect("a read").expect("it is there");
    assert_eq!((row.status, row.cancel_reason.as_deref()), (Status::Cancelled, Some("it's\nover")));
    let again: String = world.one("select dormouse.cancel('k', 'default', 'again')").await;
    assert_eq!(again, "cancelled", "its status, as it had ended before");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_started_by_sql_may_have_tags() {
    let world = World::new().await;
    for unfit in [
        "select dormouse.start('m', step => 's', version => 1, even_if_unknown => true, tags => array['a', ''])",
        "select dormouse.start('m', step => 's', version => 1, even_if_unknown => true, tags => array['a', null])",
        "select dormouse.start('m', step => 's', version => 1, even_if_unknown => true, tags => array[repeat('x', 65)])",
        "select dormouse.start('m', step => 's', version => 1, even_if_unknown => true, tags => array['1','2','3','4','5','6','7','8','9'])",
    ] {
        assert_eq!(world.fails(unfit).await.0, "22023", "{unfit}");
    }
    let tagged = "select dormouse.start('m', step => 's', version => 1, even_if_unknown => true, tags => array['b', 'é', 'a', 'b'])";
    let id = InstanceId(world.one::<i64>(tagged).await);
    world
        .one::<i64>(
            "select dormouse.start('m', step => 's', version => 1, even_if_unknown => true, tags => '{}')",
        )
        .await;
    let found = world.client().list(Filter { tags: vec!["é".to_owned()], ..Filter::default() }).await;
    let found = found.expect("a read").instances;
    assert_eq!((found.len(), found[0].id, &found[0].tags.join(" ")[..]), (1, id, "a b é"));
    // What is collected leaves nothing behind.
    world.client().cancel(id).await.expect("a live instance");
    assert_eq!(world.client().collect(Duration::ZERO).await.expect("a sweep").instances, 1);
    assert_eq!(world.one::<i64>("select count(*) from dormouse.tags").await, 0);
}
