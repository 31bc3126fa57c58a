//! Traces: what an instance starts, asks and sends is in its trace.

use dormouse::store::{Filter, InteractionFilter};
use dormouse::{Error, InstanceId, Json, Mail, NewSignal, Status, Trace, Transition};

use crate::kit::*;
use crate::units::kit::one;

suite![
    a_trace_is_stored_with_its_instance_and_comes_with_its_claim,
    the_trace_of_a_signal_comes_with_it_whatever_its_target_does,
    a_trace_that_is_none_is_refused_and_nothing_is_stored,
    children_mail_forks_and_requests_are_in_the_trace_of_their_instance,
    a_step_reads_its_trace_and_those_of_its_signals,
];

const ORDER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const PAYMENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";

fn trace(text: &str) -> Option<Trace> {
    Some(text.parse().expect("a trace"))
}

async fn a_trace_is_stored_with_its_instance_and_comes_with_its_claim(kit: Kit) {
    let worker = kit.worker("w").await;
    let (traced, other) = (kit.insert(m().trace(ORDER)).await, kit.insert(m()).await);
    let claimed = kit.claim(worker, 2).await;
    assert_eq!(claimed.iter().map(|row| row.trace.clone()).collect::<Vec<_>>(), [trace(ORDER), None]);
    for (id, expected) in [(traced, trace(ORDER)), (other, None)] {
        assert_eq!(kit.get(id).await.trace, expected);
        let whole = kit.client().get(id).await.expect("a read").expect("an instance");
        assert_eq!(whole.trace, expected);
        assert_eq!(kit.client().head(id).await.expect("a read").expect("an instance").trace, expected);
    }
}

async fn the_trace_of_a_signal_comes_with_it_whatever_its_target_does(kit: Kit) {
    let worker = kit.worker("w").await;
    let id = kit.insert(m().signal(signal("early").trace(ORDER))).await;
    let claimed = kit.claim_one(worker).await;
    assert_eq!(claimed.inbox[0].trace, trace(ORDER));
    kit.deliver(id, signal("meanwhile").trace(PAYMENT)).await;
    kit.commit(worker, commit(&claimed, wait_for(&["go"], "gone"))).await;
    kit.deliver(id, signal("go").trace(PAYMENT)).await;
    kit.deliver(id, signal("late")).await;
    let expected = [trace(ORDER), trace(PAYMENT), trace(PAYMENT), None];
    let inbox = kit.client().inbox(id).await.expect("a read");
    assert_eq!(inbox.iter().map(|signal| signal.trace.clone()).collect::<Vec<_>>(), expected);
    let woken = kit.claim_one(worker).await;
    assert_eq!(woken.inbox.iter().map(|signal| signal.trace.clone()).collect::<Vec<_>>(), expected);
}

async fn a_trace_that_is_none_is_refused_and_nothing_is_stored(kit: Kit) {
    let client = kit.client();
    let bad = ["", "x", &ORDER.to_uppercase(), &format!("{ORDER}-more"), &ORDER.replace("4bf9", "é")];
    for bad in bad {
        let refused = client.start_many([m().trace(bad)]).await;
        assert!(matches!(refused, Err(Error::InvalidTrace(_))), "{bad}: {refused:?}");
    }
    assert!(kit.list(Filter::default()).await.is_empty());
    let id = kit.insert(m()).await;
    let refused = client.signal_raw(id, signal("go").trace("00-no")).await;
    assert!(matches!(refused, Err(Error::InvalidTrace(_))), "{refused:?}");
    assert_eq!(kit.get(id).await.inbox, 0);
}

async fn children_mail_forks_and_requests_are_in_the_trace_of_their_instance(kit: Kit) {
    let other = kit.insert(m_at(at("waits")).key("other")).await;
    let engine = kit
        .run(|at, cx| {
            Ok(match &*at.step {
                "start" => Transition::Spawn(spawn(vec![m_at(crate::kit::at("child"))], "ask")),
                "ask" => Transition::Dispatch(one("a")),
                "waits" => wait_for(&["go"], "waited"),
                "waited" if cx.received_all().next().is_none() => wait_for(&["go"], "waited"),
                "answered" => {
                    cx.mail(Mail::start(m_at(crate::kit::at("mailed")).key("mailed")));
                    cx.mail(Mail::signal_raw("other", NewSignal::new("go", Json::null())));
                    done()
                }
                _ => sleep("later", std::time::Duration::from_secs(3600)),
            })
        })
        .await;
    kit.until(other, Status::AwaitingSignal).await;
    let id = kit.insert(m().trace(ORDER).key("order")).await;
    kit.until(id, Status::AwaitingChildren).await;
    let children = kit.list(Filter { parent: Some(id), ..Filter::default() }).await;
    assert_eq!(children[0].trace, trace(ORDER));
    kit.client().cancel(children[0].id).await.expect("a cancel");
    kit.until(id, Status::AwaitingCompletion).await;
    let filter = InteractionFilter { instance: Some(id), limit: 10, ..InteractionFilter::default() };
    let asked = kit.client().interactions(filter).await.expect("a read");
    assert_eq!(asked.items[0].trace, trace(ORDER));
    kit.client().complete(asked.items[0].id, &"yes").await.expect("an answer");
    kit.until(id, Status::Done).await;
    let woken = kit.until(other, Status::Scheduled).await;
    assert_eq!(woken.trace, None, "a signal does not move its target into its trace");
    let mailed = started(&kit, "mailed").await;
    assert_eq!(kit.get(mailed).await.trace, trace(ORDER));
    let fork = kit.client().fork(id, 1, |new| new).await.expect("a fork");
    assert_eq!(kit.get(fork).await.trace, trace(ORDER));
    engine.shutdown().await;
}

/// An instance that mail starts, once it is there.
async fn started(kit: &Kit, key: &str) -> InstanceId {
    let mut changes = kit.store.hub().changes();
    let deadline = tokio::time::Instant::now() + SOON;
    loop {
        changes.borrow_and_update();
        if let Some(found) = kit.client().head(key).await.expect("a read") {
            return found.id;
        }
        tokio::time::timeout_at(deadline, changes.changed())
            .await
            .expect("mail is delivered")
            .expect("a hub");
    }
}

async fn a_step_reads_its_trace_and_those_of_its_signals(kit: Kit) {
    let engine = kit
        .run(|at, cx| match &*at.step {
            "start" => Ok(wait_for(&["paid"], "paid")),
            _ => {
                let text = |trace: Option<&Trace>| trace.map(|trace| trace.as_str().to_owned());
                let signal = cx.received_all().next().and_then(|signal| signal.trace.as_ref());
                let output = Json::from(serde_json::json!([text(cx.trace()), text(signal)]));
                Ok(Transition::Done { output })
            }
        })
        .await;
    let id = kit.insert(m().trace(ORDER)).await;
    kit.until(id, Status::AwaitingSignal).await;
    kit.client().signal_raw(id, signal("paid").trace(PAYMENT)).await.expect("a signal");
    let output = kit.until(id, Status::Done).await.output.expect("an output");
    assert_eq!(output.as_str(), serde_json::json!([ORDER, PAYMENT]).to_string());
    engine.shutdown().await;
}
