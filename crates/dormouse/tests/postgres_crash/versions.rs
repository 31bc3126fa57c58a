//! Two versions of a machine at once, each with workers of its own.

use std::time::Duration;

use dormouse::prelude::*;
use dormouse::{Client, InstanceId, Status};

use super::SOON;
use super::database::Database;
use super::processes::{Start, Worker, deaf};

#[derive(Serialize, Deserialize)]
pub enum Greeting {
    Greet,
    Part,
}

/// Ends with its version and the process that ended it.
type Greeted = (u32, u32);

macro_rules! greeting {
    ($name:ident, $version:literal) => {
        pub struct $name;

        impl Machine for $name {
            const NAME: &'static str = "greeting";
            const VERSION: u32 = $version;
            type State = Greeting;
            type Output = Greeted;

            async fn step(&self, state: Greeting, _cx: &Context) -> StepResult<Self> {
                Ok(match state {
                    Greeting::Greet => Outcome::sleep(Duration::from_millis(5), Greeting::Part),
                    Greeting::Part => Outcome::done(($version, std::process::id())),
                })
            }
        }
    };
}

greeting!(OldGreeting, 1);
greeting!(NewGreeting, 2);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_of_two_versions_leave_each_others_instances_alone() {
    let database = Database::start("versions").await;
    let client = database.client().await;
    let mut old = Start::new(&database, "old").run(deaf());
    old.said("serves").await;
    let (early_old, early_new) = (start::<OldGreeting>(&client).await, start::<NewGreeting>(&client).await);
    check::<OldGreeting>(&client, &early_old, &old).await;
    // By then the old worker has passed the new ones by, again and again.
    for id in &early_new {
        let row = client.get(*id).await.expect("a read").expect("it is there");
        assert_eq!((row.status, row.seq, row.attempt), (Status::Runnable, 1, 0));
    }
    let mut new = Start::new(&database, "new").run(deaf());
    new.said("serves").await;
    check::<NewGreeting>(&client, &early_new, &new).await;
    let (late_old, late_new) = (start::<OldGreeting>(&client).await, start::<NewGreeting>(&client).await);
    check::<OldGreeting>(&client, &late_old, &old).await;
    check::<NewGreeting>(&client, &late_new, &new).await;
}

async fn start<M: Machine<State = Greeting>>(client: &Client) -> Vec<InstanceId> {
    let new = (0..20).map(|_| NewInstance::of::<M>(Greeting::Greet));
    let inserted = client.start_many(new).await.expect("a start");
    inserted.iter().map(dormouse::Inserted::id).collect()
}

/// All of them ended as their own version, in this process.
async fn check<M: Machine<Output = Greeted>>(client: &Client, ids: &[InstanceId], by: &Worker) {
    for id in ids {
        let greeted = client.wait::<M>(*id, SOON).await.expect("it ends");
        assert_eq!(greeted, (M::VERSION, by.pid()));
    }
}
