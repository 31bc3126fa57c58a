//! Routes of schedules.

use std::time::Duration;

use dormouse::jiff::{SignedDuration, Timestamp};
use dormouse::{
    At, CatchUp, Client, Declaration, Error, Json, Missed, MissedWhy, Schedule, ScheduleView, Status, Timing,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::instances::limit;
use super::overlap::OverlapWord;
use crate::cursor::{self, List};
use crate::problem::Problem;
use crate::route::{Answer, Call, Nothing};
use crate::sight;
use crate::span::{self, SPAN_PATTERN};
use crate::view::{InstanceSummary, Page, StatusWord};

/// The most moments that are listed.
const NEXT_MAX: usize = 1_000;
const NEXT: usize = 10;

/// A schedule to create, or what to change of one: what is absent stays as it is.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ScheduleFields")]
pub(super) struct Fields {
    /// Its name, unique in its namespace. Needed to create one; it cannot be changed.
    #[schemars(length(min = 1, max = 200))]
    name: Option<String>,
    /// When it happens: a cron expression of 5 fields, or of 6 with seconds first. Give this or `every`.
    #[schemars(length(max = 255))]
    cron: Option<String>,
    /// When it happens: again and again after this long, such as `5m`, counted from `from`, or else from 1970.
    #[schemars(extend("pattern" = SPAN_PATTERN))]
    every: Option<String>,
    /// The time zone of the cron expression, by its IANA name; `UTC` by default.
    zone: Option<String>,
    /// The machine that each occurrence starts.
    #[schemars(length(min = 1, max = 255))]
    machine: Option<String>,
    /// The version of its code; by default the newest one at the time of the occurrence.
    version: Option<u32>,
    /// The step to start at; optional for a flow, a job, and a machine that declares its graph.
    step: Option<String>,
    /// The state that the step needs. `{{scheduled_at}}`, `{{schedule}}` and `{{number}}` in its texts stand for the
    /// occurrence.
    #[schemars(with = "Option<serde_json::Value>")]
    state: Option<Json>,
    /// The queue of what it starts; by default the machine's own.
    queue: Option<String>,
    /// The priority of what it starts; lower runs earlier.
    priority: Option<i32>,
    /// The lane of what it starts.
    lane: Option<String>,
    /// The share of what it starts; by default the namespace's own.
    share: Option<String>,
    /// The tags of what it starts.
    #[schemars(length(max = 8), inner(length(min = 1, max = 64)))]
    tags: Option<Vec<String>>,
    /// The start of the keys of what it starts, before `@` and the moment; by default the schedule's name.
    #[schemars(length(max = 200))]
    key_prefix: Option<String>,
    /// Create it even if no worker has declared the machine; its runs wait until one does.
    #[serde(default)]
    even_if_unknown: bool,
    /// What happens at an occurrence while an earlier run lives; `skip` by default.
    overlap: Option<OverlapWord>,
    /// What happens to occurrences that nobody was there to start: `none`, `last`, or the age up to which all of them
    /// are started, such as `1h`; `last` by default.
    catch_up: Option<String>,
    /// Delays each occurrence by up to this much, always by the same share.
    #[schemars(extend("pattern" = SPAN_PATTERN))]
    jitter: Option<String>,
    /// Nothing happens before this moment.
    from: Option<Timestamp>,
    /// Nothing happens after this moment.
    until: Option<Timestamp>,
    /// It is done after it has started this many.
    #[schemars(range(min = 1))]
    runs_max: Option<u64>,
}

/// A schedule.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Schedule")]
pub(super) struct View {
    name: String,
    /// The instance that it is.
    id: i64,
    #[schemars(with = "StatusWord")]
    status: Status,
    paused: bool,
    #[serde(flatten)]
    settings: Settings,
    /// When it starts something next; absent if nothing is to come.
    next: Option<Timestamp>,
    /// How many runs it has started.
    started: u64,
    /// The occurrence that was started last.
    last: Option<Timestamp>,
    /// How many occurrences were not started.
    missed: u64,
    /// The last of those, oldest first.
    recently_missed: Vec<MissedView>,
    /// How many live runs its overlap policy watches.
    running: usize,
    /// Whether occurrences wait for a run to end.
    waiting: bool,
    /// What code declares, if somebody changed that at run time.
    declared: Option<Settings>,
    /// Why its last command was refused, or why its last step failed and is tried again.
    error: Option<String>,
    created_at: Timestamp,
}

/// What can be set of a schedule.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ScheduleSettings")]
struct Settings {
    #[serde(skip_serializing_if = "Option::is_none")]
    cron: Option<String>,
    /// The seconds between two occurrences.
    #[serde(skip_serializing_if = "Option::is_none")]
    every_seconds: Option<f64>,
    zone: String,
    machine: String,
    version: Option<u32>,
    /// The step to start at; absent if code makes the state.
    step: Option<String>,
    #[schemars(with = "Option<serde_json::Value>")]
    state: Option<Json>,
    queue: Option<String>,
    priority: i32,
    lane: Option<String>,
    share: Option<String>,
    tags: Vec<String>,
    key_prefix: Option<String>,
    overlap: OverlapWord,
    /// `none`, `last`, or the seconds up to which all are started.
    catch_up: String,
    jitter_seconds: f64,
    from: Option<Timestamp>,
    until: Option<Timestamp>,
    runs_max: Option<u64>,
}

/// Occurrences that were not started, one after the other for one reason.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Missed")]
struct MissedView {
    /// The last of them.
    at: Timestamp,
    count: u64,
    why: MissedWord,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "MissedWhy")]
enum MissedWord {
    /// An earlier run still lived.
    Overlap,
    /// Nobody was there to start it.
    Late,
    /// A later occurrence took its place.
    Replaced,
    /// Too much was waiting to be started.
    Full,
}

impl From<Missed> for MissedView {
    fn from(Missed { at, count, why }: Missed) -> Self {
        let why = match why {
            MissedWhy::Overlap => MissedWord::Overlap,
            MissedWhy::Late => MissedWord::Late,
            MissedWhy::Replaced => MissedWord::Replaced,
            MissedWhy::Full => MissedWord::Full,
        };
        Self { at, count, why }
    }
}

impl From<Schedule> for Settings {
    fn from(schedule: Schedule) -> Self {
        let Schedule { when, zone, starts, overlap, catch_up, jitter, from, until, runs_max, .. } = schedule;
        let (cron, every_seconds) = match when {
            Timing::Cron(expression) => (Some(expression), None),
            Timing::Every(every) => (None, Some(every.as_secs_f64())),
        };
        let (step, state) = starts.at.map(|At { step, state }| (step.into_owned(), state)).unzip();
        Self {
            cron,
            every_seconds,
            zone,
            machine: starts.machine,
            version: starts.version,
            step,
            state,
            queue: starts.queue,
            priority: starts.priority,
            lane: starts.lane,
            share: starts.share,
            tags: starts.tags,
            key_prefix: starts.key_prefix,
            overlap: overlap.into(),
            catch_up: match catch_up {
                CatchUp::None => "none".to_owned(),
                CatchUp::Last => "last".to_owned(),
                CatchUp::Within(window) => format!("{}s", window.as_secs()),
            },
            jitter_seconds: jitter.as_secs_f64(),
            from,
            until,
            runs_max,
        }
    }
}

impl From<ScheduleView> for View {
    fn from(view: ScheduleView) -> Self {
        let is_changed = view.is_changed();
        Self {
            name: view.schedule.name.clone(),
            id: view.id.0,
            status: view.status,
            paused: view.paused,
            settings: view.schedule.into(),
            next: view.next,
            started: view.started,
            last: view.last,
            missed: view.missed,
            recently_missed: view.recently_missed.into_iter().map(Into::into).collect(),
            running: view.running,
            waiting: view.is_waiting,
            declared: view.declared.filter(|_| is_changed).map(Into::into),
            error: view.error,
            created_at: view.created_at,
        }
    }
}

impl Fields {
    /// The schedule with these parts instead of its own.
    async fn change(self, mut schedule: Schedule, client: &Client) -> Result<Schedule, Problem> {
        let parse = |text: &str| span::parse(text).map_err(Problem::invalid);
        match (self.cron, self.every) {
            (Some(_), Some(_)) => return Err(Problem::invalid("give `cron` or `every`, not both")),
            (Some(cron), None) => schedule.when = Timing::Cron(cron),
            (None, Some(every)) => schedule.when = Schedule::every("", parse(&every)?).when,
            (None, None) => {}
        }
        schedule.zone = self.zone.unwrap_or(schedule.zone);
        schedule.overlap = self.overlap.map_or(schedule.overlap, Into::into);
        schedule.catch_up = match self.catch_up.as_deref() {
            None => schedule.catch_up,
            Some("none") => CatchUp::None,
            Some("last") => CatchUp::Last,
            Some(window) => CatchUp::Within(signed(parse(window)?)),
        };
        schedule.jitter = self.jitter.as_deref().map(parse).transpose()?.map_or(schedule.jitter, signed);
        schedule.from = self.from.or(schedule.from);
        schedule.until = self.until.or(schedule.until);
        schedule.runs_max = self.runs_max.or(schedule.runs_max);
        let starts = &mut schedule.starts;
        if let Some(machine) = self.machine {
            // Another machine has other versions, steps and states.
            (starts.version, starts.at) = (None, None);
            starts.machine = machine;
        }
        starts.even_if_unknown |= self.even_if_unknown;
        starts.version = self.version.or(starts.version);
        starts.queue = self.queue.or(starts.queue.take());
        starts.priority = self.priority.unwrap_or(starts.priority);
        starts.lane = self.lane.or(starts.lane.take());
        starts.share = self.share.or(starts.share.take());
        starts.tags = self.tags.unwrap_or(std::mem::take(&mut starts.tags));
        starts.key_prefix = self.key_prefix.or(starts.key_prefix.take());
        let before = starts.at.take();
        let named = self.step.or(before.as_ref().map(|at| at.step.to_string()));
        let step = match named {
            Some(step) => Some(step),
            None => first_step(client, &starts.machine).await?,
        };
        let state = self.state.or(before.map(|at| at.state));
        starts.at = match (step, state) {
            (Some(step), state) => Some(At { step: step.into(), state: state.unwrap_or_else(Json::null) }),
            (None, Some(_)) => return Err(Problem::invalid("`step` is missing: name the step to start at")),
            (None, None) => None,
        };
        Ok(schedule)
    }
}

fn signed(span: Duration) -> SignedDuration {
    SignedDuration::try_from(span).unwrap_or(SignedDuration::MAX)
}

/// The step that instances of a machine start at, if it declares one.
async fn first_step(client: &Client, machine: &str) -> Result<Option<String>, Problem> {
    let declared = client.declarations().await?;
    let declared = declared.iter().find(|declared| declared.name == machine);
    Ok(declared.and_then(|declared: &std::sync::Arc<Declaration>| super::start::first(declared)))
}

pub(super) async fn create(call: Call<Nothing, Fields>) -> Result<Answer<View>, Problem> {
    let mut fields = call.body;
    let missing = || Problem::invalid("`name` is missing: give the schedule a name");
    let name = fields.name.take().ok_or_else(missing)?;
    if fields.cron.is_none() && fields.every.is_none() {
        return Err(Problem::invalid("`cron` or `every` is missing: say when it happens"));
    }
    if fields.machine.is_none() {
        return Err(Problem::invalid("`machine` is missing: say what it starts"));
    }
    let schedule = fields.change(Schedule::cron(&*name, ""), &call.client).await?;
    match call.client.schedules().create(schedule).await {
        Ok(_) => {
            let location = format!("{}/{}", call.parts.full_path, crate::cli::conn::encode(&name));
            Answer::created(location, found(&call.client, &name).await?)
        }
        Err(error) => Err(sight::refused(error, &call.caller, &call.client).await),
    }
}

async fn found(client: &Client, name: &str) -> Result<View, Problem> {
    let found = client.schedules().get(name).await?;
    Ok(found.ok_or_else(|| Error::NoSchedule(name.to_owned()))?.into())
}

/// Which page of schedules to list.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ListQuery {
    /// The `next` of the previous page.
    cursor: Option<String>,
    /// At most this many; 50 by default, up to 500. A page may have fewer although there are more.
    #[schemars(range(min = 1, max = 500))]
    limit: Option<usize>,
}

pub(super) async fn list(call: Call<ListQuery>) -> Result<Answer<Page<View>>, Problem> {
    let ((after, _), limit) = (cursor::after(call.query.cursor.as_deref())?, limit(call.query.limit)?);
    let (schedules, next) = call.client.schedules().list(after, limit).await?;
    let next = next.map(|id| cursor::encode(List::Instances, id.0));
    Answer::ok(Page { items: schedules.into_iter().map(Into::into).collect(), next })
}

pub(super) async fn get(call: Call) -> Result<Answer<View>, Problem> {
    Answer::ok(found(&call.client, call.path("schedule")).await?)
}

/// How many moments to list.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NextQuery {
    /// At most this many; 10 by default, up to 1,000.
    #[schemars(range(min = 1, max = 1000))]
    count: Option<usize>,
}

/// The next moments of a schedule, without jitter.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "NextOccurrences")]
pub(super) struct NextView {
    next: Vec<Timestamp>,
}

pub(super) async fn next(call: Call<NextQuery>) -> Result<Answer<NextView>, Problem> {
    let count = match call.query.count.unwrap_or(NEXT) {
        count @ 1..=NEXT_MAX => count,
        count => return Err(Problem::invalid(format!("`count` is 1 to {NEXT_MAX}, not {count}"))),
    };
    Answer::ok(NextView { next: call.client.schedules().next(call.path("schedule"), count).await? })
}

/// How many runs to list.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RunsQuery {
    /// At most this many; 50 by default, up to 500.
    #[schemars(range(min = 1, max = 500))]
    limit: Option<usize>,
}

pub(super) async fn runs(call: Call<RunsQuery>) -> Result<Answer<Page<InstanceSummary>>, Problem> {
    let limit = limit(call.query.limit)?;
    let runs = call.client.schedules().runs(call.path("schedule"), limit).await?;
    Answer::ok(Page { items: runs.into_iter().map(Into::into).collect(), next: None })
}

pub(super) async fn change(call: Call<Nothing, Fields>) -> Result<Answer<View>, Problem> {
    let name = call.path("schedule").to_owned();
    if call.body.name.as_ref().is_some_and(|other| *other != name) {
        return Err(Problem::invalid(
            "`name` cannot be changed: create another schedule and delete this one",
        ));
    }
    let before = call.client.schedules().get(&name).await?;
    let before = before.filter(|view| !view.status.is_terminal());
    let before = before.ok_or_else(|| Error::NoSchedule(name.clone()))?;
    let schedule = call.body.change(before.schedule, &call.client).await?;
    match call.client.schedules().change(schedule).await {
        Ok(()) => Answer::ok(found(&call.client, &name).await?),
        Err(error) => Err(sight::refused(error, &call.caller, &call.client).await),
    }
}

/// A schedule that was acted on.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ScheduleRef")]
pub(super) struct Ref {
    name: String,
}

impl Ref {
    fn of<B>(call: &Call<Nothing, B>) -> Self {
        Self { name: call.path("schedule").to_owned() }
    }
}

pub(super) async fn run(call: Call<Nothing, Nothing>) -> Result<Answer<Ref>, Problem> {
    call.client.schedules().run(call.path("schedule")).await?;
    Answer::ok(Ref::of(&call))
}

pub(super) async fn pause(call: Call<Nothing, Nothing>) -> Result<Answer<Ref>, Problem> {
    call.client.schedules().pause(call.path("schedule")).await?;
    Answer::ok(Ref::of(&call))
}

pub(super) async fn resume(call: Call<Nothing, Nothing>) -> Result<Answer<Ref>, Problem> {
    call.client.schedules().resume(call.path("schedule")).await?;
    Answer::ok(Ref::of(&call))
}

pub(super) async fn reset(call: Call<Nothing, Nothing>) -> Result<Answer<Ref>, Problem> {
    call.client.schedules().reset(call.path("schedule")).await?;
    Answer::ok(Ref::of(&call))
}

pub(super) async fn delete(call: Call<Nothing, Nothing>) -> Result<Answer<Ref>, Problem> {
    call.client.schedules().delete(call.path("schedule")).await?;
    Answer::ok(Ref::of(&call))
}

/// Which occurrences to start.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Backfill")]
pub(super) struct BackfillBody {
    /// From this moment.
    from: Timestamp,
    /// Up to and with this moment, which is past.
    to: Timestamp,
}

/// The result of a backfill.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Backfilled")]
pub(super) struct BackfillView {
    /// How many occurrences are in that range. Those that were started before are not started again.
    occurrences: u64,
}

pub(super) async fn backfill(call: Call<Nothing, BackfillBody>) -> Result<Answer<BackfillView>, Problem> {
    let BackfillBody { from, to } = call.body;
    let occurrences = call.client.schedules().backfill(call.path("schedule"), from, to).await?;
    Answer::ok(BackfillView { occurrences })
}
