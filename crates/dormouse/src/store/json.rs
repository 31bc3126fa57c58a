//! What a worker sends and gets is the same after its way through JSON.

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::{Commit, Receipt};
use crate::rules::{Handed, Head, Hold, Input, Returned, decide};
use crate::{At, InboxSignal, InstanceId, Json, LaneChange, SignalId, Transition, When, WorkerId};

const NOW: Timestamp = Timestamp::UNIX_EPOCH;
const HOUR: Duration = Duration::from_secs(3600);

fn executing() -> Head {
    let head = Head { inbox: 2, inbox_bytes: 8, ..Head::new(InstanceId(1), "m", 1, "start") };
    decide(head, Input::Claim(WorkerId(7)), NOW).head
}

fn signal(id: i64, name: &str) -> InboxSignal {
    let (name, payload) = (name.to_owned(), Json::null());
    InboxSignal { id: SignalId(id), name, payload, dedup_key: None, at: NOW, trace: None }
}

fn back<T: Serialize + DeserializeOwned>(value: &T) -> T {
    serde_json::from_str(&serde_json::to_string(value).expect("it can be written")).expect("it can be read")
}

#[test]
fn an_outcome_a_change_a_commit_and_a_receipt_survive_their_json_form() {
    // Numbers keep their digits, so documents must pass through as they are.
    let at =
        At { step: "next".into(), state: Json::parse("state", r#"{"b":1.50,"a":[1e3]}"#).expect("JSON") };
    let transition = Transition::Await { at, names: vec!["paid".to_owned()], timeout: Some(When::In(HOUR)) };
    assert_eq!(back(&transition), transition);
    assert_eq!(serde_json::to_value(&transition).expect("JSON")["await"]["names"], json!(["paid"]));

    let (received, inbox) = ([SignalId(1)], [signal(1, "paid"), signal(2, "paid")]);
    let handed = Handed::of(&inbox, &transition, &received);
    let facts = handed.facts(&transition, &received);
    let mail = vec![crate::Mail::cancel("other")];
    let returned = Returned {
        transition: &transition,
        version: 1,
        hold: Hold::Keep,
        received: &received,
        mail: &mail,
        facts,
    };
    let change = decide(executing(), Input::Outcome(returned), NOW);
    assert_eq!(change.events.len(), 2, "it parks, and the second signal wakes it");
    assert_eq!(back(&change), change);

    let (head, received) = (executing(), received.to_vec());
    let (hold, lane) = (Hold::Keep, Some(LaneChange::To("l".to_owned())));
    let commit = Commit { head, version: 1, received, transition, hold, run: None, handed, lane, mail };
    assert_eq!(back(&commit), commit);

    let held = Receipt::Held { seq: 3, inbox: inbox.to_vec(), now: NOW };
    for receipt in [held, Receipt::Released, Receipt::Cancelled, Receipt::Stale, Receipt::Busy] {
        assert_eq!(back(&receipt), receipt);
    }
}
