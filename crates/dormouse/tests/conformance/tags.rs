//! Tags: words that instances are found by.

use std::time::Duration;

use dormouse::store::{Filter, TagChange};
use dormouse::{Error, Instance, InstanceId, NewInstance, Status, Transition};

use crate::kit::*;

suite![
    tags_are_kept_in_order_and_each_once,
    instances_are_found_by_all_of_their_tags,
    a_list_by_tag_comes_newest_first_a_page_at_a_time,
    tags_are_looked_for_in_one_namespace,
    tags_are_changed_without_a_transition,
    too_many_or_unfit_tags_are_refused_and_nothing_is_stored,
    a_refused_start_leaves_no_tag_behind,
    children_have_their_own_tags_and_a_fork_takes_them_along,
    tags_go_with_their_instance,
];

async fn tags_are_kept_in_order_and_each_once(kit: Kit) {
    let plain = kit.insert(m()).await;
    assert!(kit.get(plain).await.tags.is_empty());
    let id = kit.insert(m().tag("vip").tag("é").tag("b").tag("vip").tag("it's \"so\"")).await;
    assert_eq!(kit.get(id).await.tags, ["b", "it's \"so\"", "vip", "é"]);
    let longest = "x".repeat(dormouse::TAG_BYTES_MAX);
    let many = (0..dormouse::TAGS_MAX - 1).fold(m().tag(longest.clone()), |new, n| new.tag(n.to_string()));
    let many = kit.client().start_many([many]).await.expect("as many as may be")[0].id();
    assert_eq!(kit.get(many).await.tags.len(), dormouse::TAGS_MAX);
    assert_eq!(found(&kit, &[&longest]).await, [many]);
}

async fn instances_are_found_by_all_of_their_tags(kit: Kit) {
    let worker = kit.worker("w").await;
    let a = kit.insert(m().tag("a")).await;
    let both = kit.insert(m().tag("a").tag("b").key("both").queue("slow")).await;
    let b = kit.insert(m().tag("b")).await;
    let none = kit.insert(m()).await;
    assert_eq!(found(&kit, &["a"]).await, [both, a]);
    assert_eq!(found(&kit, &["b"]).await, [b, both]);
    assert_eq!(found(&kit, &["a", "b"]).await, [both]);
    assert_eq!(found(&kit, &["b", "a", "b"]).await, [both]);
    assert!(found(&kit, &["A"]).await.is_empty());
    assert!(found(&kit, &["a", "nobody has it"]).await.is_empty());
    assert!(found(&kit, &["a\0"]).await.is_empty());
    assert_eq!(found(&kit, &[]).await, [none, b, both, a]);
    // With every other condition, whichever index it goes by.
    let claimed = kit.claim_one(worker).await;
    kit.commit(worker, commit(&claimed, fail("boom"))).await;
    let claimed = kit.claim_one(worker).await;
    assert_eq!((claimed.id, kit.status(a).await), (b, Status::Failed));
    kit.commit(worker, commit(&claimed, wait_for(&["go"], "end"))).await;
    let with = async |tag: &str, filter: Filter| {
        let found = kit.list(Filter { tags: vec![tag.to_owned()], ..filter }).await;
        found.into_iter().map(|instance| instance.id).collect::<Vec<_>>()
    };
    for namespace in [None, Some("default".to_owned())] {
        let any = || Filter { namespace: namespace.clone(), ..Filter::default() };
        let status = Some(Status::Failed);
        assert_eq!(with("a", Filter { status, ..any() }).await, [a]);
        assert!(with("b", Filter { status, ..any() }).await.is_empty());
        assert_eq!(with("b", Filter { awaiting: Some("go".to_owned()), ..any() }).await, [b]);
        assert!(with("a", Filter { awaiting: Some("go".to_owned()), ..any() }).await.is_empty());
        assert_eq!(with("a", Filter { key_prefix: Some("bo".to_owned()), ..any() }).await, [both]);
        assert!(with("c", Filter { key_prefix: Some("bo".to_owned()), ..any() }).await.is_empty());
        assert_eq!(with("a", Filter { queue: Some("slow".to_owned()), ..any() }).await, [both]);
        assert_eq!(with("a", Filter { after: Some(both), ..any() }).await, [a]);
        assert_eq!(
            with("a", Filter { roots: true, machine: Some("m".to_owned()), ..any() }).await,
            [both, a]
        );
    }
}

async fn a_list_by_tag_comes_newest_first_a_page_at_a_time(kit: Kit) {
    let tagged = |n: u32| if n.is_multiple_of(2) { m().tag("even") } else { m() };
    let inserted = kit.insert_many((0..20).map(tagged).collect()).await;
    let mut expected: Vec<_> = inserted.iter().step_by(2).map(dormouse::Inserted::id).collect();
    expected.reverse();
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let filter = Filter { tags: vec!["even".to_owned()], after, limit: 3, ..Filter::default() };
        let page = kit.client().list(filter).await.expect("a read");
        seen.extend(page.instances.into_iter().map(|instance| instance.id));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(seen, expected);
}

async fn tags_are_looked_for_in_one_namespace(kit: Kit) {
    let here = kit.insert(m().tag("t")).await;
    let tenant = kit.client().in_namespace("tenant").expect("a good name");
    let there = tenant.start_many([m().tag("t")]).await.expect("a start")[0].id();
    assert_eq!(found(&kit, &["t"]).await, [here]);
    let theirs = Filter { tags: vec!["t".to_owned()], ..Filter::default() };
    let theirs = tenant.list(theirs).await.expect("a read").instances;
    assert_eq!(theirs.iter().map(|row| row.id).collect::<Vec<_>>(), [there]);
    let error = tenant.tag(here).add("x").await.expect_err("it is not theirs");
    assert!(matches!(error, Error::NotFound(_)), "{error}");
}

async fn tags_are_changed_without_a_transition(kit: Kit) {
    let worker = kit.worker("w").await;
    let id = kit.insert(m().key("k").tag("a").tag("b")).await;
    let before = kit.get(id).await;
    let client = kit.client();
    assert_eq!(client.tag("k").add("c").add("a").remove("b").await.expect("it is there"), ["a", "c"]);
    assert_eq!(kit.get(id).await, Instance { tags: vec!["a".to_owned(), "c".to_owned()], ..before.clone() });
    assert_eq!((found(&kit, &["c", "a"]).await, found(&kit, &["b"]).await), (vec![id], vec![]));
    assert_eq!(client.tag(id).remove("nobody has it").await.expect("no error"), ["a", "c"]);
    assert_eq!(client.tag(id).await.expect("nothing to change"), ["a", "c"]);
    // While a step runs, and after its end.
    let claimed = kit.claim_one(worker).await;
    assert_eq!(client.tag(id).remove("a").remove("c").await.expect("it runs"), [""; 0]);
    kit.commit(worker, commit(&claimed, done())).await;
    assert!(kit.get(id).await.tags.is_empty(), "a commit does not bring them back");
    assert_eq!(client.tag(id).add("late").await.expect("it has ended"), ["late"]);
    assert_eq!(found(&kit, &["late"]).await, [id]);
    assert_eq!(kit.story(id).await.len(), 2, "no event tells of tags");
    let error = client.tag(InstanceId(999)).add("x").await.expect_err("nobody");
    assert!(matches!(error, Error::NotFound(_)), "{error}");
}

async fn too_many_or_unfit_tags_are_refused_and_nothing_is_stored(kit: Kit) {
    let client = kit.client();
    let many = |count: usize| (0..count).fold(m(), |new, n| new.tag(format!("t{n}")));
    let long = "x".repeat(dormouse::TAG_BYTES_MAX + 1);
    for (new, told) in [
        (many(9), "at most 8"),
        (m().tag(""), "empty"),
        (m().tag(long.clone()), "64 bytes"),
        (m().tag("a\nb"), "control"),
        (m().tag("\0"), "control"),
    ] {
        let error = client.start_many([m(), new]).await.expect_err("it is refused");
        assert!(matches!(error, Error::InvalidName { what: "tag" | "list of tags", .. }), "{error}");
        assert!(error.to_string().contains(told), "{error}");
    }
    assert!(kit.list(Filter::default()).await.is_empty());
    let id = kit.insert(many(8)).await;
    let before = kit.get(id).await;
    for (call, told) in [
        (client.tag(id).add("one too many"), "at most 8"),
        (client.tag(id).add(long), "64 bytes"),
        (client.tag(id).remove(""), "empty"),
        (client.tag(id).add("x").remove("x"), "both added and removed"),
    ] {
        let error = call.await.expect_err("it is refused");
        assert!(error.to_string().contains(told), "{error}");
        assert_eq!(kit.get(id).await, before);
    }
    assert_eq!(client.tag(id).add("new").remove("t0").await.expect("eight again").len(), 8);
    // What comes by the store alone is bounded too.
    let change = TagChange { add: vec!["a".to_owned()], remove: Vec::new() };
    assert!(kit.store.tag("default".to_owned(), id.into(), change).await.is_err());
    assert!(found(&kit, &["a"]).await.is_empty());
}

async fn a_refused_start_leaves_no_tag_behind(kit: Kit) {
    let holder = kit.insert(m().key("k").tag("first")).await;
    let inserted = kit.insert_many(vec![m().key("k").tag("second"), m().tag("second")]).await;
    assert_eq!(inserted[0].id(), holder);
    assert_eq!(found(&kit, &["second"]).await, [inserted[1].id()]);
    assert_eq!(kit.get(holder).await.tags, ["first"]);
}

async fn children_have_their_own_tags_and_a_fork_takes_them_along(kit: Kit) {
    let worker = kit.worker("w").await;
    let parent = kit.insert(m().tag("parent")).await;
    let claimed = kit.claim_one(worker).await;
    let child = || NewInstance::named("c", 1, at("start"));
    let children = vec![child(), child().tag("child")];
    kit.commit(worker, commit(&claimed, Transition::Spawn(spawn(children, "join")))).await;
    let [second, first] = &kit.list(Filter { parent: Some(parent), ..Filter::default() }).await[..] else {
        panic!("two children");
    };
    assert_eq!((first.tags.len(), &second.tags[..]), (0, &["child".to_owned()][..]));
    assert_eq!(found(&kit, &["child"]).await, [second.id]);
    let client = kit.client();
    let fork = client.fork(parent, 1, |new| new).await.expect("a fork");
    assert_eq!(found(&kit, &["parent"]).await, [fork, parent]);
    let other = client.fork(parent, 1, |mut new| {
        new.tags = vec!["other".to_owned()];
        new
    });
    assert_eq!(kit.get(other.await.expect("a fork")).await.tags, ["other"]);
}

async fn tags_go_with_their_instance(kit: Kit) {
    let worker = kit.worker("w").await;
    let gone = kit.insert(m().tag("t").tag("u")).await;
    let stays = kit.insert(m().tag("t")).await;
    let claimed = kit.claim_one(worker).await;
    assert_eq!(claimed.id, gone);
    kit.commit(worker, commit(&claimed, done())).await;
    kit.advance(Duration::from_secs(60));
    assert_eq!(kit.client().collect(Duration::from_secs(30)).await.expect("a sweep").instances, 1);
    assert_eq!(found(&kit, &["t"]).await, [stays]);
    assert!(found(&kit, &["u"]).await.is_empty());
}

/// Who has all of these tags, in the order of a list, of the default namespace.
async fn found(kit: &Kit, tags: &[&str]) -> Vec<InstanceId> {
    let tags = tags.iter().map(ToString::to_string).collect();
    let page = kit.client().list(Filter { tags, limit: 1_000, ..Filter::default() }).await.expect("a read");
    page.instances.into_iter().map(|instance| instance.id).collect()
}
