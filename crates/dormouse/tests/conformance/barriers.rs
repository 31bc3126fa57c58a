//! Barriers on children that count only some ends, end at the first failure, or let go of the rest.

use std::time::Duration;

use dormouse::prelude::*;
use dormouse::store::{Claimed, Filter, Receipt};
use dormouse::{
    Children, EventKind, InstanceId, NewInstance, Outcome, Quorum, Spawn, Status, Transition, Wake, WorkerId,
};

use crate::kit::*;

suite![
    a_quorum_counts_the_children_that_are_done,
    a_quorum_that_can_no_longer_be_reached_wakes_the_parent,
    a_quorum_larger_than_there_are_children_means_all_of_them,
    fail_fast_wakes_the_parent_at_the_first_failure_and_cancels_the_rest,
    fail_fast_counts_a_cancelled_child_as_a_failure,
    fail_fast_wakes_the_parent_as_usual_when_all_are_done,
    a_child_that_runs_when_it_is_let_go_of_is_cancelled_when_its_step_ends,
    a_deadline_lets_go_of_the_rest_where_the_spawn_says_so,
    a_quorum_lets_go_of_the_rest_where_the_spawn_says_so,
    a_rest_of_hundreds_is_let_go_of_some_at_a_time,
    a_parent_that_is_let_go_of_at_its_own_deadline_does_not_wake,
    the_next_round_has_a_plain_barrier_again,
    a_step_fails_fast_on_a_running_engine,
];

fn child() -> NewInstance {
    NewInstance::named("m", 1, at("child"))
}

/// Starts a parent that has committed this spawn.
async fn parent_of(kit: &Kit, worker: WorkerId, spawn: Spawn) -> InstanceId {
    let parent = kit.insert(m()).await;
    let claimed = kit.claim_one(worker).await;
    assert_eq!(claimed.id, parent);
    let receipt = kit.commit(worker, commit(&claimed, Transition::Spawn(spawn))).await;
    assert!(matches!(receipt, Receipt::Released));
    parent
}

async fn children_of(kit: &Kit, parent: InstanceId) -> Vec<InstanceId> {
    let filter = Filter { parent: Some(parent), ..Filter::default() };
    let mut ids: Vec<_> = kit.list(filter).await.into_iter().map(|child| child.id).collect();
    ids.sort_unstable();
    ids
}

async fn end_one(kit: &Kit, worker: WorkerId, end: Transition) -> InstanceId {
    let claimed = kit.claim_one(worker).await;
    kit.commit(worker, commit(&claimed, end)).await;
    claimed.id
}

fn statuses(claimed: &Claimed) -> Vec<Status> {
    claimed.children.iter().map(|child| child.status).collect()
}

async fn a_quorum_counts_the_children_that_are_done(kit: Kit) {
    let worker = kit.worker("w").await;
    let quorum = Some(Quorum::Done(2));
    let parent = parent_of(&kit, worker, Spawn { quorum, ..spawn(vec![child(); 4], "join") }).await;
    end_one(&kit, worker, done()).await;
    end_one(&kit, worker, fail("does not count")).await;
    let row = kit.get(parent).await;
    assert_eq!((row.status, row.barrier), (Status::AwaitingChildren, Some(1)));
    end_one(&kit, worker, done()).await;
    assert_eq!(kit.status(parent).await, Status::Runnable);
    let woken = kit.claim_one(worker).await;
    assert_eq!((woken.id, woken.wake), (parent, Some(Wake::Children)));
    assert_eq!(
        statuses(&woken),
        [Status::Done, Status::Failed, Status::Done, Status::Runnable],
        "one is left"
    );
}

async fn a_quorum_that_can_no_longer_be_reached_wakes_the_parent(kit: Kit) {
    let worker = kit.worker("w").await;
    let quorum = Some(Quorum::Done(3));
    let parent = parent_of(&kit, worker, Spawn { quorum, ..spawn(vec![child(); 4], "join") }).await;
    end_one(&kit, worker, fail("one may fail")).await;
    assert_eq!(kit.status(parent).await, Status::AwaitingChildren);
    end_one(&kit, worker, fail("two may not")).await;
    assert_eq!(kit.status(parent).await, Status::Runnable, "three of four cannot be done any more");
    use EventKind::*;
    assert_eq!(kit.story(parent).await, [Created, ChildrenSpawned, ChildrenJoined]);
    let spawned = kit.history(parent).await[1].data.clone().expect("what it waits for");
    let spawned: serde_json::Value = spawned.decode("data").expect("an object");
    assert_eq!((&spawned["barrier"], &spawned["spare"]), (&3.into(), &1.into()), "{spawned}");
}

async fn a_quorum_larger_than_there_are_children_means_all_of_them(kit: Kit) {
    let worker = kit.worker("w").await;
    for quorum in [Quorum::Done(u32::MAX), Quorum::Ended(u32::MAX)] {
        let spawning = Spawn { quorum: Some(quorum), ..spawn(vec![child(), child()], "join") };
        let parent = parent_of(&kit, worker, spawning).await;
        end_one(&kit, worker, done()).await;
        assert_eq!(kit.status(parent).await, Status::AwaitingChildren);
        end_one(&kit, worker, done()).await;
        assert_eq!(end_one(&kit, worker, done()).await, parent);
    }
}

fn fail_fast(children: Vec<NewInstance>) -> Spawn {
    Spawn { fail_fast: true, on_release: Children::Cancel, ..spawn(children, "join") }
}

async fn fail_fast_wakes_the_parent_at_the_first_failure_and_cancels_the_rest(kit: Kit) {
    let worker = kit.worker("w").await;
    let parent = parent_of(&kit, worker, fail_fast(vec![child(); 4])).await;
    let children = children_of(&kit, parent).await;
    end_one(&kit, worker, done()).await;
    let family = kit.claim_one(worker).await;
    kit.commit(worker, commit(&family, Transition::Spawn(spawn(vec![child().priority(9)], "join")))).await;
    let grandchild = children_of(&kit, children[1]).await[0];
    assert_eq!(kit.status(parent).await, Status::AwaitingChildren);
    let failing = kit.claim_one(worker).await;
    assert_eq!(failing.id, children[2]);
    let written = kit.store.commit(worker, vec![commit(&failing, fail("at once"))].into()).await;
    let effects = written.expect("a commit").effects;
    assert_eq!(effects.wake_at, Some(kit.now()), "the clock is told at once");
    assert_eq!(kit.due().await, 1, "the parent wakes in the sweep that lets go of the rest");
    assert_eq!(kit.status(grandchild).await, Status::Cancelled, "with all that is below them");
    let woken = kit.claim_one(worker).await;
    assert_eq!((woken.id, woken.wake, woken.attempt), (parent, Some(Wake::Children), 0));
    assert_eq!(statuses(&woken), [Status::Done, Status::Cancelled, Status::Failed, Status::Cancelled]);
    use EventKind::*;
    assert_eq!(kit.story(parent).await, [Created, ChildrenSpawned, ChildrenJoined]);
    assert!(kit.claim(worker, 10).await.is_empty(), "nobody else is left to run");
    kit.check_counts("letting go").await;
}

async fn fail_fast_counts_a_cancelled_child_as_a_failure(kit: Kit) {
    let worker = kit.worker("w").await;
    let parent = parent_of(&kit, worker, fail_fast(vec![child(), child()])).await;
    let children = children_of(&kit, parent).await;
    kit.client().cancel(children[1]).await.expect("it is live");
    assert_eq!(kit.due().await, 1);
    let woken = kit.claim_one(worker).await;
    assert_eq!((woken.id, statuses(&woken)), (parent, vec![Status::Cancelled, Status::Cancelled]));
}

async fn fail_fast_wakes_the_parent_as_usual_when_all_are_done(kit: Kit) {
    let worker = kit.worker("w").await;
    let parent = parent_of(&kit, worker, fail_fast(vec![child(), child()])).await;
    end_one(&kit, worker, done()).await;
    assert_eq!(kit.due().await, 0, "one is still to come");
    end_one(&kit, worker, done()).await;
    assert_eq!(kit.due().await, 1);
    let woken = kit.claim_one(worker).await;
    assert_eq!((woken.id, woken.wake), (parent, Some(Wake::Children)));
    assert_eq!(statuses(&woken), [Status::Done, Status::Done]);
}

async fn a_child_that_runs_when_it_is_let_go_of_is_cancelled_when_its_step_ends(kit: Kit) {
    let worker = kit.worker("w").await;
    let parent = parent_of(&kit, worker, fail_fast(vec![child(), child()])).await;
    let [running, failing] = kit.claim(worker, 2).await.try_into().expect("two rows");
    kit.commit(worker, commit(&failing, fail("at once"))).await;
    let swept = kit.store.due(100).await.expect("a sweep");
    assert_eq!((swept.value.woken, swept.effects.cancel), (1, vec![running.id]), "its worker hears of it");
    let woken = kit.claim_one(worker).await;
    assert_eq!(
        statuses(&woken),
        [Status::Executing, Status::Failed],
        "the parent does not wait for its step"
    );
    let (row, history) = (kit.get(parent).await, kit.history(parent).await);
    let receipt = kit.commit(worker, commit(&running, done())).await;
    assert!(matches!(receipt, Receipt::Cancelled), "{receipt:?}");
    assert_eq!(kit.status(running.id).await, Status::Cancelled);
    assert_eq!((kit.get(parent).await, kit.history(parent).await), (row, history), "it counts no more");
}

async fn a_deadline_lets_go_of_the_rest_where_the_spawn_says_so(kit: Kit) {
    let worker = kit.worker("w").await;
    let timeout = Some(Duration::from_secs(60).into());
    let spawning =
        Spawn { timeout, on_release: Children::Cancel, ..spawn(vec![child(), child(), child()], "join") };
    let parent = parent_of(&kit, worker, spawning).await;
    end_one(&kit, worker, fail("not fail-fast: it waits on")).await;
    assert_eq!(kit.due().await, 0);
    kit.advance(Duration::from_secs(60));
    assert_eq!(kit.due().await, 1);
    let woken = kit.claim_one(worker).await;
    assert_eq!((woken.id, woken.wake), (parent, Some(Wake::Timeout)));
    assert_eq!(statuses(&woken), [Status::Failed, Status::Cancelled, Status::Cancelled]);
    use EventKind::*;
    assert_eq!(kit.story(parent).await, [Created, ChildrenSpawned, ChildrenTimeout]);
}

async fn a_quorum_lets_go_of_the_rest_where_the_spawn_says_so(kit: Kit) {
    let worker = kit.worker("w").await;
    let (quorum, on_release) = (Some(Quorum::Done(1)), Children::Cancel);
    let parent =
        parent_of(&kit, worker, Spawn { quorum, on_release, ..spawn(vec![child(); 3], "join") }).await;
    end_one(&kit, worker, done()).await;
    assert_eq!(kit.due().await, 1);
    let woken = kit.claim_one(worker).await;
    assert_eq!((woken.id, woken.wake), (parent, Some(Wake::Children)));
    assert_eq!(statuses(&woken), [Status::Done, Status::Cancelled, Status::Cancelled]);
}

async fn a_rest_of_hundreds_is_let_go_of_some_at_a_time(kit: Kit) {
    let worker = kit.worker("w").await;
    let parent = parent_of(&kit, worker, fail_fast(vec![child(); 600])).await;
    end_one(&kit, worker, fail("at once")).await;
    let mut sweeps = 0;
    while kit.status(parent).await == Status::AwaitingChildren {
        let live = kit.list(Filter { status: Some(Status::Runnable), ..Filter::default() }).await.len();
        assert!(live > 0, "the parent waits for nobody");
        kit.due().await;
        kit.advance(Duration::from_millis(50));
        sweeps += 1;
        assert!(sweeps < 10, "{live} are left");
    }
    assert!(sweeps > 1, "it was one large write");
    let woken = kit.claim_one(worker).await;
    assert_eq!(woken.id, parent);
    assert_eq!(statuses(&woken)[1..], [Status::Cancelled; 599]);
}

async fn a_parent_that_is_let_go_of_at_its_own_deadline_does_not_wake(kit: Kit) {
    let worker = kit.worker("w").await;
    let timeout = Some(Duration::from_secs(60).into());
    let on_release = Children::Cancel;
    let top = parent_of(&kit, worker, Spawn { timeout, on_release, ..spawn(vec![child()], "join") }).await;
    let below = kit.claim_one(worker).await;
    let spawning = Spawn { timeout, on_release, ..spawn(vec![child().priority(9)], "join") };
    kit.commit(worker, commit(&below, Transition::Spawn(spawning))).await;
    kit.advance(Duration::from_secs(60));
    assert_eq!(kit.due().await, 1, "both are due, and one is let go of by the other");
    assert_eq!(kit.status(below.id).await, Status::Cancelled);
    assert_eq!(kit.claim_one(worker).await.id, top);
    assert!(kit.claim(worker, 10).await.is_empty());
}

async fn the_next_round_has_a_plain_barrier_again(kit: Kit) {
    let worker = kit.worker("w").await;
    let parent = parent_of(&kit, worker, fail_fast(vec![child(), child()])).await;
    end_one(&kit, worker, fail("at once")).await;
    kit.due().await;
    let woken = kit.claim_one(worker).await;
    kit.commit(worker, commit(&woken, Transition::Spawn(spawn(vec![child(), child()], "join")))).await;
    end_one(&kit, worker, fail("like any other end")).await;
    assert_eq!((kit.due().await, kit.status(parent).await), (0, Status::AwaitingChildren));
    end_one(&kit, worker, done()).await;
    let woken = kit.claim_one(worker).await;
    assert_eq!((woken.id, statuses(&woken)), (parent, vec![Status::Failed, Status::Done]));
}

/// Asks carriers for a price, and gives up when one refuses.
struct Quotes;

#[derive(Serialize, Deserialize)]
enum Quoting {
    Ask {},
    Told {},
}

impl Machine for Quotes {
    const NAME: &'static str = "quotes";
    type State = Quoting;
    type Output = Vec<String>;

    async fn step(&self, state: Quoting, cx: &Context) -> StepResult<Self> {
        Ok(match state {
            Quoting::Ask {} => {
                let carriers = [true, false].map(NewInstance::job::<Quote>);
                Outcome::spawn(Round::of(carriers).fail_fast(), Quoting::Told {})
            }
            Quoting::Told {} => {
                Outcome::done(cx.children().iter().map(|child| child.status.to_string()).collect())
            }
        })
    }
}

struct Quote;

impl Job for Quote {
    const NAME: &'static str = "quote";
    type Input = bool;
    type Output = ();

    fn retry(&self) -> dormouse::Retry {
        dormouse::Retry::never()
    }

    async fn run(&self, answers_never: bool, cx: &Context) -> Result<(), BoxError> {
        if answers_never {
            cx.cancelled().await;
        }
        Err("no such address".into())
    }
}

async fn a_step_fails_fast_on_a_running_engine(kit: Kit) {
    let engine = kit.engine().machine(Quotes).job(Quote).start().await.expect("an engine");
    let client = engine.client();
    let id = client.start::<Quotes>(Quoting::Ask {}).await.expect("a start");
    let told = client.wait::<Quotes>(id, SOON).await.expect("an end");
    assert_eq!(told[1], "failed");
    let children = children_of(&kit, id).await;
    kit.until(children[0], Status::Cancelled).await;
    engine.shutdown().await;
}
