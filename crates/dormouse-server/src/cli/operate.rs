//! Commands that operate on instances and queues.

use serde_json::{Value, json};

use super::conn::{Conn, encode};
use super::output::{Output, items, line, text};
use super::{Failure, instance_path, json_argument, with_document};

/// Which instances to cancel, and why.
#[derive(Debug, clap::Args)]
pub struct Cancel {
    /// The instances, by their ids or keys
    #[arg(required = true, value_name = "INSTANCE")]
    instances: Vec<String>,
    /// The reason; stored with each instance and in its history
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Only if it is at this seq, as `get` shows it; for one instance only
    #[arg(long, value_name = "SEQ")]
    if_seq: Option<u64>,
}

pub(super) async fn cancel(conn: &Conn, output: Output, args: Cancel) -> Result<(), Failure> {
    if args.if_seq.is_some() && args.instances.len() > 1 {
        return Err(Failure::usage("--if-seq works with one instance: cancel them one by one"));
    }
    let body = json!({ "reason": args.reason, "expected_seq": args.if_seq });
    for instance in &args.instances {
        let cancelled = conn.post(&format!("{}/cancel", instance_path(instance)), &body).await?;
        output.show(&cancelled, |cancelled| {
            let told = match text(cancelled, "cancel").as_str() {
                "requested" => {
                    "it will end when its running step ends, or after it has undone its work".to_owned()
                }
                "already_ended" => format!("it was already {}", text(cancelled, "status")),
                _ => format!("cancelled, with {} descendants", text(cancelled, "descendants")),
            };
            line(&format!("{instance}: {told}"));
        });
    }
    Ok(())
}

/// What to run again, and from which step.
#[derive(Debug, clap::Args)]
pub struct Retry {
    /// The instance, by its id or its key
    instance: String,
    /// Run from this step instead of its own
    #[arg(long)]
    step: Option<String>,
    /// Run with this state: JSON, @file, or - for standard input
    #[arg(long, value_name = "JSON")]
    state: Option<String>,
    /// Only if it is at this seq, as `get` shows it
    #[arg(long, value_name = "SEQ")]
    if_seq: Option<u64>,
}

pub(super) async fn retry(conn: &Conn, output: Output, args: Retry) -> Result<(), Failure> {
    let state = args.state.as_deref().map(|text| json_argument("--state", text)).transpose()?;
    let body = json!({ "step": args.step, "expected_seq": args.if_seq });
    let body = with_document(body, "state", state);
    let retried = conn.post(&format!("{}/retry", instance_path(&args.instance)), &body).await?;
    output.show(&retried, |retried| line(&format!("{} runs again", text(retried, "id"))));
    Ok(())
}

/// Which state to replace.
#[derive(Debug, clap::Args)]
pub struct Edit {
    /// The instance, by its id or its key
    instance: String,
    /// The whole state: JSON, @file, or - for standard input
    #[arg(long, value_name = "JSON", required_unless_present = "set", conflicts_with = "set")]
    state: Option<String>,
    /// Replace a member of the state, such as `cents=7`; a value that is not JSON is text; repeatable
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,
    /// Only if it is at this seq, as `get` shows it
    #[arg(long, value_name = "SEQ")]
    if_seq: Option<u64>,
}

pub(super) async fn edit(conn: &Conn, output: Output, args: Edit) -> Result<(), Failure> {
    let state = args.state.as_deref().map(|text| json_argument("--state", text)).transpose()?;
    let mut body = with_document(json!({ "expected_seq": args.if_seq }), "state", state);
    body.extend(super::bulk::members(&args.set)?.map(|set| ("set".to_owned(), set)));
    let edited = conn.post(&format!("{}/edit", instance_path(&args.instance)), &body).await?;
    output.show(&edited, |edited| line(&format!("{} has its new state", text(edited, "id"))));
    Ok(())
}

/// What to pause or resume.
#[derive(Debug, clap::Args)]
pub struct Brake {
    /// An instance, by its id or its key
    #[arg(required_unless_present = "queue")]
    instance: Option<String>,
    /// A queue, by its name
    #[arg(long, conflicts_with = "instance")]
    queue: Option<String>,
    /// Only if the instance is at this seq, as `get` shows it
    #[arg(long, value_name = "SEQ", conflicts_with = "queue")]
    if_seq: Option<u64>,
    /// Accept a queue that no machine, worker or instance names
    #[arg(long, requires = "queue")]
    even_if_unknown: bool,
}

/// `verb` is `pause` or `resume`.
pub(super) async fn brake(conn: &Conn, output: Output, args: Brake, verb: &str) -> Result<(), Failure> {
    let (what, path) = match (&args.instance, &args.queue) {
        (Some(instance), _) => (instance.clone(), instance_path(instance)),
        (None, Some(queue)) => (format!("queue {queue}"), format!("/v1/queues/{}", encode(queue))),
        (None, None) => return Err(Failure::usage("name an instance, or a queue with --queue")),
    };
    let body = match args.queue {
        Some(_) => json!({ "even_if_unknown": args.even_if_unknown }),
        None => args.if_seq.map_or_else(|| json!({}), |seq| json!({ "expected_seq": seq })),
    };
    let done = conn.post(&format!("{path}/{verb}"), &body).await?;
    output.show(&done, |_| line(&format!("{what} is {verb}d")));
    Ok(())
}

/// Which share to weigh.
#[derive(Debug, clap::Args)]
pub struct Weigh {
    /// The share, by its name; the namespace's own share has the name of the namespace
    share: String,
    /// How many instances it is served in each of its turns, from 1 to 1000
    weight: u32,
}

pub(super) async fn weigh(conn: &Conn, output: Output, args: &Weigh) -> Result<(), Failure> {
    let path = format!("/v1/shares/{}/weigh", encode(&args.share));
    let weighed = conn.post(&path, &json!({ "weight": args.weight })).await?;
    output.show(&weighed, |weighed| {
        line(&format!("share {} has weight {}", text(weighed, "share"), text(weighed, "weight")));
    });
    Ok(())
}

/// Which tags to add and to remove.
#[derive(Debug, clap::Args)]
pub struct Tag {
    /// The instance, by its id or its key
    instance: String,
    /// Add this tag; repeatable
    #[arg(long, value_name = "TAG", required_unless_present = "remove")]
    add: Vec<String>,
    /// Remove this tag; repeatable
    #[arg(long, value_name = "TAG")]
    remove: Vec<String>,
}

pub(super) async fn tag(conn: &Conn, output: Output, args: Tag) -> Result<(), Failure> {
    let body = json!({ "add": args.add, "remove": args.remove });
    let tagged = conn.post(&format!("{}/tags", instance_path(&args.instance)), &body).await?;
    output.show(&tagged, |tagged| match text(tagged, "tags").as_str() {
        "" => line(&format!("{} has no tags", args.instance)),
        tags => line(&format!("{}: {tags}", args.instance)),
    });
    Ok(())
}

/// From which event to start a new instance, and what to change.
#[derive(Debug, clap::Args)]
pub struct Fork {
    /// The instance, by its id or its key
    instance: String,
    /// The event to start from, by its number in the history
    #[arg(long, value_name = "SEQ")]
    from: u64,
    /// Change a part of the state, such as `basket.lines.0=7`; a value that is not JSON is text
    #[arg(long, value_name = "PATH=VALUE")]
    set: Vec<String>,
    /// Start at this step instead of the event's
    #[arg(long)]
    step: Option<String>,
    /// A key for the new instance
    #[arg(long)]
    key: Option<String>,
}

pub(super) async fn fork(conn: &Conn, output: Output, args: Fork) -> Result<(), Failure> {
    let path = instance_path(&args.instance);
    let mut body = json!({ "seq": args.from, "step": args.step, "key": args.key });
    if !args.set.is_empty() {
        let mut state = state_after(conn, &path, args.from).await?;
        for change in &args.set {
            set(&mut state, change)?;
        }
        body["state"] = state;
    }
    let forked = conn.post(&format!("{path}/fork"), &body).await?;
    output.show(&forked, |forked| line(&format!("started {}", text(forked, "id"))));
    Ok(())
}

async fn state_after(conn: &Conn, path: &str, seq: u64) -> Result<Value, Failure> {
    let page = conn.get(&format!("{path}/history?after={}&limit=1", seq.saturating_sub(1))).await?;
    let event = items(&page, "items").find(|event| event["seq"] == seq);
    let missing = || Failure::new(3, format!("there is no event {seq} in its history"));
    Ok(event.ok_or_else(missing)?["state"].clone())
}

/// Sets one value in a document. The path is names and indexes, joined by dots.
fn set(state: &mut Value, change: &str) -> Result<(), Failure> {
    let (path, value) = change
        .split_once('=')
        .ok_or_else(|| Failure::usage(format!("--set {change:?} is not of the form PATH=VALUE")))?;
    let refuse = |part: &str| Failure::usage(format!("--set {path}: there is no {part:?} in the state"));
    let (parents, last) = path.rsplit_once('.').map_or((None, path), |(parents, last)| (Some(parents), last));
    let mut place = state;
    for part in parents.into_iter().flat_map(|parents| parents.split('.')) {
        let next = match place {
            Value::Array(items) => part.parse().ok().and_then(|index: usize| items.get_mut(index)),
            other => other.get_mut(part),
        };
        place = next.ok_or_else(|| refuse(part))?;
    }
    let value = serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned()));
    match place {
        Value::Object(members) => {
            members.insert(last.to_owned(), value);
        }
        Value::Array(items) => {
            let index: Option<usize> = last.parse().ok();
            *index.and_then(|index| items.get_mut(index)).ok_or_else(|| refuse(last))? = value;
        }
        _ => return Err(refuse(last)),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_state_is_set_by_its_path() {
        let mut state = json!({ "basket": { "lines": [1, 2] }, "note": "a" });
        for change in ["basket.lines.1=7", "note=two words", "basket.gift=true"] {
            set(&mut state, change).expect("a place");
        }
        assert_eq!(state, json!({ "basket": { "lines": [1, 7], "gift": true }, "note": "two words" }));
        for change in ["nothing.here=1", "basket.lines.9=1", "note.x=1", "no value"] {
            assert!(set(&mut state, change).is_err(), "{change}");
        }
    }
}
