//! How each way in is called, and what its response means.

use std::pin::Pin;
use std::sync::Arc;

use clap::{CommandFactory as _, Parser};
use dormouse::store::postgres::{self, sqlx};
use dormouse::store::{Refusal, Which};
use dormouse::{At, Client, Error, InstanceId, InteractionId, Json, NewInstance, NewSignal, SignalId};
use dormouse_server::cli::{self, Command, Globals};
use sqlx::{AssertSqlSafe, Connection as _};

use super::table::{Bad, Place, Takes};
use super::world::{Partner, Subject, World};
use crate::kit::{SOON, is_success, tokens};
use crate::log;

/// The result of a try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Taken,
    /// Refused, with the last word of its problem type.
    Refused(String),
}

type Tried<'a> = Pin<Box<dyn Future<Output = Verdict> + 'a>>;

/// A kind of way in. Paths, bodies, statements and arguments are written with `$document` and the names of a subject.
#[derive(Clone, Copy)]
pub enum Way {
    /// A call of the library.
    Client(for<'a> fn(To<'a>) -> Tried<'a>),
    /// A call of the library that only PostgreSQL has.
    OnPostgres(for<'a> fn(To<'a>) -> Tried<'a>),
    /// A path, and a body for it.
    Http(&'static str, &'static str),
    /// A page of the dashboard, where its form goes, and its fields.
    Form(&'static str, &'static str, &'static [(&'static str, &'static str)]),
    /// A command line.
    Cli(&'static [&'static str]),
    /// A statement, with the document as its parameter.
    Sql(&'static str),
    /// The body of the answer to a webhook.
    Webhook(&'static str),
    /// A message to the subject of answers.
    Nats(&'static str),
}

impl Way {
    /// Where this way in is: one that does not have the code does not depend on where it is called.
    pub fn places(self, is_postgres: bool) -> &'static [Place] {
        match self {
            Self::Client(_) | Self::Http(..) | Self::Form(..) | Self::Cli(_) => {
                &[Place::WithCode, Place::Declared]
            }
            Self::OnPostgres(_) if is_postgres => &[Place::WithCode, Place::Declared],
            Self::Sql(_) if is_postgres => &[Place::Declared],
            // SQLite has no functions that another program could call.
            Self::OnPostgres(_) | Self::Sql(_) => &[],
            // Answers arrive in the transport's process, which has the code.
            Self::Webhook(_) | Self::Nats(_) => &[Place::WithCode],
        }
    }

    pub async fn tried(self, to: To<'_>) -> Verdict {
        match self {
            Self::Client(call) | Self::OnPostgres(call) => call(to).await,
            Self::Http(path, body) => over_http(to, path, body).await,
            Self::Form(page, action, fields) => by_form(to, page, action, fields).await,
            Self::Cli(args) => by_command(to, args).await,
            Self::Sql(statement) => by_sql(to, statement).await,
            Self::Webhook(body) => by_webhook(to, to.filled(body)).await,
            Self::Nats(message) => by_nats(to, to.filled(message)).await,
        }
    }
}

/// One try: the way in and its input.
#[derive(Clone, Copy)]
pub struct To<'a> {
    pub world: &'a World,
    pub place: Place,
    pub subject: &'a Subject,
    pub document: &'a str,
    /// Whether the try names something that does not exist.
    pub is_unknown: bool,
}

impl To<'_> {
    fn client(&self) -> &Client {
        &self.world.at(self.place).client
    }

    fn named<T>(&self, known: T, unknown: T) -> T {
        if self.is_unknown { unknown } else { known }
    }

    fn json(&self) -> Json {
        Json::parse("document", self.document).expect("JSON, unless the table says otherwise")
    }

    fn filled(&self, template: &str) -> String {
        let Subject { key, id, other, kept, interaction, correlation, token } = self.subject;
        let filled = template
            .replace("$machine", self.named("hall", "hal"))
            .replace("$step", self.named("Wait", "Wiat"))
            .replace("$signal", self.named("paid", "payed"))
            .replace("$kept", &self.named(*kept, 0).to_string())
            .replace("$interaction", &self.named(*interaction, 0).to_string())
            .replace("$correlation", self.named(correlation, "nobody's"))
            .replace("$token", self.named(token, "k1.e30.e30"))
            .replace("$other", &other.to_string())
            .replace("$key", key)
            .replace("$id", &id.to_string());
        // Last, so that nothing in it is replaced as a name.
        filled.replace("$document", self.document)
    }

    fn at(&self) -> At {
        At { step: "Wait".into(), state: self.json() }
    }

    fn instance_to_start(&self) -> NewInstance {
        NewInstance::named(self.named("hall", "hal"), 1, self.at()).key(&self.subject.key)
    }

    fn signal(&self) -> NewSignal {
        NewSignal::new(self.named("paid", "payed"), self.json())
    }

    fn instance(&self) -> InstanceId {
        InstanceId(self.subject.id)
    }

    fn interaction(&self) -> InteractionId {
        InteractionId(self.named(self.subject.interaction, 0))
    }
}

fn good(text: &str) -> Json {
    Json::parse("document", text).expect("JSON")
}

pub async fn start_many(to: To<'_>) -> Verdict {
    let beside = NewInstance::named("hall", 1, At { step: "Wait".into(), state: good(r#"{"order":1}"#) });
    let beside = beside.key(format!("{}:beside", to.subject.key));
    of(to.client().start_many([beside, to.instance_to_start()]).await)
}

pub async fn start_and_signal(to: To<'_>) -> Verdict {
    of(to
        .client()
        .start_and_signal(to.instance_to_start(), NewSignal::new("paid", good(r#"{"cents":7}"#)))
        .await)
}

pub async fn start_with_signal(to: To<'_>) -> Verdict {
    let at = At { step: "Wait".into(), state: good(r#"{"order":1}"#) };
    let new = NewInstance::named("hall", 1, at).key(&to.subject.key);
    of(to.client().start_and_signal(new, to.signal()).await)
}

pub async fn start_in(to: To<'_>) -> Verdict {
    let mut conn = connected(to).await;
    of(to.client().start_in(&mut conn, to.instance_to_start()).await)
}

pub async fn signal_in(to: To<'_>) -> Verdict {
    let mut conn = connected(to).await;
    of(to.client().signal_in(&mut conn, to.instance(), to.signal()).await)
}

pub async fn retry_raw(to: To<'_>) -> Verdict {
    let at = At { step: to.named("Wait", "Wiat").into(), ..to.at() };
    of(to.client().retry_raw(to.instance(), at).await)
}

pub async fn fork(to: To<'_>) -> Verdict {
    let at = At { step: to.named("Wait", "Wiat").into(), ..to.at() };
    let change = |mut new: NewInstance| {
        new.at = at;
        new.key(format!("{}:fork", to.subject.key))
    };
    of(to.client().fork(to.instance(), 1, change).await)
}

pub async fn signal_raw(to: To<'_>) -> Verdict {
    of(to.client().signal_raw(to.instance(), to.signal()).await)
}

pub async fn signal_many(to: To<'_>) -> Verdict {
    let beside = (InstanceId(to.subject.other).into(), NewSignal::new("paid", good(r#"{"cents":7}"#)));
    of(to.client().signal_many([beside, (to.instance().into(), to.signal())]).await)
}

pub async fn edit_signal(to: To<'_>) -> Verdict {
    let kept = SignalId(to.named(to.subject.kept, 0));
    of(to.client().edit_signal(to.instance(), kept, to.json()).await)
}

pub async fn complete(to: To<'_>) -> Verdict {
    of(to.client().complete(to.interaction(), &to.json()).await)
}

pub async fn complete_correlated(to: To<'_>) -> Verdict {
    let correlation = to.named(to.subject.correlation.as_str(), "nobody's").to_owned();
    of(to.client().complete(Which::Correlation(correlation), &to.json()).await)
}

pub async fn complete_as(to: To<'_>) -> Verdict {
    of(to.client().complete_as("ann", to.interaction(), &to.json()).await)
}

pub async fn complete_by_token(to: To<'_>) -> Verdict {
    let token = to.named(to.subject.token.as_str(), "k1.e30.e30");
    of(to.client().complete_by_token(&tokens(), token, Ok(to.json())).await)
}

pub async fn complete_many(to: To<'_>) -> Verdict {
    let which = Which::Id(to.interaction());
    let completion = to.client().completion(which.clone(), Ok(to.json()));
    let completed = to.client().complete_many(vec![completion]).await;
    of(completed.and_then(|mut completed| completed.remove(0).admitted(which)))
}

pub async fn fail(to: To<'_>) -> Verdict {
    let reason: String = serde_json::from_str(to.document).expect("a text");
    of(to.client().fail(to.interaction(), reason).await)
}

async fn connected(to: To<'_>) -> postgres::Connection {
    postgres::Connection::connect(to.world.site.database()).await.expect("a connection")
}

/// The verdict of the library, by the variant of its error.
fn of<T>(result: Result<T, Error>) -> Verdict {
    let Err(error) = result else { return Verdict::Taken };
    let word = match &error {
        Error::TooLarge { .. } => "too-large",
        Error::TooDeep { .. } => "too-deep",
        Error::HoldsNul { .. } => "holds-nul",
        Error::UnreadableDocument { .. } => "unreadable-document",
        Error::InvalidJson { .. } => "invalid-request",
        Error::InvalidState(_) => "invalid-state",
        Error::PayloadRefused { .. } => "payload-refused",
        Error::UndeclaredSignal { .. } => "undeclared-signal",
        Error::UnknownMachine { .. } => "undeclared-machine",
        Error::NoSignal { .. } => "no-signal",
        Error::TokenRefused(_) => "token-refused",
        Error::CompletionRefused { refusal: Refusal::Unknown, .. } => "not-found",
        Error::CompletionRefused { refusal: Refusal::Malformed | Refusal::Schema, .. } => "output-refused",
        other => return Verdict::Refused(format!("another error: {other}")),
    };
    Verdict::Refused(word.to_owned())
}

const TYPE_PREFIX: &str = "urn:dormouse:problem:";

/// The verdict of a problem, by its type.
fn of_type(kind: Option<&str>, told: &str) -> Verdict {
    let word = kind.and_then(|kind| kind.strip_prefix(TYPE_PREFIX));
    Verdict::Refused(word.map_or_else(|| format!("no problem type: {told}"), str::to_owned))
}

async fn over_http(to: To<'_>, path: &str, body: &str) -> Verdict {
    let answer = to.world.at(to.place).post_text(&to.filled(path), to.filled(body)).await;
    let told = answer.json();
    if !is_success(answer.status) {
        assert_eq!(told["status"], answer.status, "{told}");
        return of_type(told["type"].as_str(), &answer.text);
    }
    match &told["results"][0] {
        refused if refused["reason"].is_string() => of_type(refused["type"].as_str(), &answer.text),
        _ => Verdict::Taken,
    }
}

async fn by_form(to: To<'_>, page: &str, action: &str, fields: &[(&str, &str)]) -> Verdict {
    let browser = to.world.at(to.place).browser();
    let fields: Vec<_> = fields.iter().map(|(name, value)| (*name, to.filled(value))).collect();
    let fields: Vec<_> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let answer = browser.submit(&to.filled(page), &to.filled(action), &fields).await;
    if answer.status == 303 { Verdict::Taken } else { told(&answer.text) }
}

#[derive(Parser)]
struct Program {
    #[command(flatten)]
    globals: Globals,
    #[command(subcommand)]
    command: Command,
}

async fn by_command(to: To<'_>, args: &[&str]) -> Verdict {
    let server = format!("http://{}", to.world.at(to.place).address);
    let to_server = ["dormouse", "--json", "--server", &server].map(str::to_owned);
    let args = args.iter().map(|arg| to.filled(arg));
    let program =
        Program::try_parse_from(to_server.into_iter().chain(args)).unwrap_or_else(|error| panic!("{error}"));
    let machines = Arc::new(|builder| builder);
    match cli::run(&program.globals, program.command, machines, Program::command).await {
        Ok(_) => Verdict::Taken,
        Err(failure) if failure.problem_type().is_some() => {
            of_type(failure.problem_type(), &failure.to_string())
        }
        // Text that is not JSON is refused before anything is sent.
        Err(failure) => told(&failure.to_string()),
    }
}

/// The SQLSTATE of each problem, as in the guide.
const SQLSTATES: &[(&str, &[&str])] = &[
    ("too-large", &["54000"]),
    ("too-deep", &["54000"]),
    ("invalid-request", &["22P02"]),
    ("invalid-state", &["22023"]),
    ("payload-refused", &["22023"]),
    ("undeclared-signal", &["22023"]),
    ("undeclared-machine", &["42704"]),
    ("holds-nul", &["22P05"]),
    ("unreadable-document", &["22P05", "22003"]),
];

async fn by_sql(to: To<'_>, statement: &str) -> Verdict {
    let mut conn = connected(to).await;
    let statement = sqlx::query(AssertSqlSafe(to.filled(statement))).bind(to.document);
    let Err(error) = statement.fetch_one(&mut conn).await else { return Verdict::Taken };
    let refused = error.as_database_error().unwrap_or_else(|| panic!("{error}"));
    let verdict = told(refused.message());
    let Verdict::Refused(word) = &verdict else { unreachable!("it is an error") };
    let states = SQLSTATES.iter().find(|(of, _)| of == word).map_or(&[][..], |(_, states)| states);
    let state = refused.code().unwrap_or_default();
    assert!(states.contains(&&*state), "{state} for {word}: {error}");
    verdict
}

async fn by_webhook(to: To<'_>, body: String) -> Verdict {
    let waits = async |settled: &dyn Fn(&str) -> bool| {
        let deadline = tokio::time::Instant::now() + SOON;
        loop {
            let asked = to.world.asked(to.subject.id).await;
            if asked.resolved_at.is_some() {
                return asked;
            }
            if asked.error.as_deref().is_some_and(settled) {
                return asked;
            }
            assert!(tokio::time::Instant::now() < deadline, "no answer: {asked:?}");
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
    };
    let is_busy = |error: &str| error.starts_with(Partner::BUSY);
    waits(&is_busy).await;
    to.world.partner.says(Some(body));
    let asked = waits(&|error| !is_busy(error)).await;
    to.world.partner.says(None);
    match (asked.output, asked.error) {
        (Some(_), _) => Verdict::Taken,
        (None, error) => told(&error.unwrap_or_default()),
    }
}

async fn by_nats(to: To<'_>, message: String) -> Verdict {
    let broker = to.world.broker();
    let place = format!(" place={} ", broker.answer(message).await);
    let transport = format!("transport=\"{}\"", broker.name());
    let deadline = tokio::time::Instant::now() + SOON;
    loop {
        if let Some(line) = log::of_transport(&[&place, &transport, "was refused"]) {
            assert_eq!(broker.delivered_again().await, 0, "what is refused does not come again");
            return told(&line);
        }
        if to.world.asked(to.subject.id).await.resolved_at.is_some() {
            return Verdict::Taken;
        }
        assert!(tokio::time::Instant::now() < deadline, "nobody took the message");
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
}

/// How to recognize each problem where there is no type to read: in SQL, in a log, on a page.
const TOLD: &[(&str, &str)] = &[
    ("of JSON and the limit is", "too-large"),
    ("objects and arrays inside each other", "too-deep"),
    ("U+0000", "holds-nul"),
    ("half of a surrogate pair", "unreadable-document"),
    ("beyond what a 64-bit float holds", "unreadable-document"),
    ("invalid input syntax for type json", "invalid-request"),
    ("is not JSON", "invalid-request"),
    ("not valid JSON", "invalid-request"),
    ("cannot run from there", "invalid-state"),
    ("is refused by machine", "payload-refused"),
    ("takes no signal", "undeclared-signal"),
    ("no worker has declared a machine", "undeclared-machine"),
    ("no worker has registered a machine", "undeclared-machine"),
    ("in its inbox: it was consumed", "no-signal"),
    ("there is no such interaction", "not-found"),
    ("<title>Not found", "not-found"),
    ("its output is not of the type that the machine accepts", "output-refused"),
    ("its output does not fit the machine", "output-refused"),
];

/// The verdict of a sentence.
fn told(text: &str) -> Verdict {
    let word = TOLD.iter().find(|(part, _)| text.contains(part)).map(|(_, word)| (*word).to_owned());
    let start: String = text.chars().take(2_000).collect();
    Verdict::Refused(word.unwrap_or_else(|| format!("nothing known: {start}")))
}

/// What is sent: good, or bad in one way and good otherwise.
pub fn document(takes: Takes, bad: Option<Bad>) -> String {
    let text = |text: &str| match takes {
        Takes::Reason => format!("\"{text}\""),
        _ => with_note(takes, &format!("\"{text}\"")),
    };
    match bad {
        None | Some(Bad::UnknownName) => match takes {
            Takes::Reason => "\"nobody knows\"".to_owned(),
            _ => format!("{{{}}}", member(takes)),
        },
        Some(Bad::TooLarge) if takes == Takes::Reason => format!("\"{}\"", "x".repeat(BYTES_MAX + 1)),
        // One byte over the limit.
        Some(Bad::TooLarge) => text(&"x".repeat(BYTES_MAX + 1 - text("").len())),
        Some(Bad::TooDeep) => with_note(takes, &format!("{}{}", "[".repeat(64), "]".repeat(64))),
        Some(Bad::NotJson) if takes == Takes::Reason => "\"nobody".to_owned(),
        Some(Bad::NotJson) => format!("{{{},}}", member(takes)),
        Some(Bad::WrongType) => match takes {
            Takes::State => r#"{"order":"one"}"#,
            Takes::Payload => r#"{"cents":"much"}"#,
            Takes::Output => r#"{"stars":"many"}"#,
            Takes::Reason => "7",
        }
        .to_owned(),
        Some(Bad::WrongSchema) => match takes {
            Takes::Payload => r#"{"cents":0}"#,
            _ => r#"{"stars":6}"#,
        }
        .to_owned(),
        Some(Bad::Nul) => text(r"a\u0000b"),
        Some(Bad::LoneSurrogate) => text(r"a\ud800b"),
        Some(Bad::HugeNumber) => with_note(takes, "1e400"),
    }
}

const BYTES_MAX: usize = 1024 * 1024;

fn member(takes: Takes) -> &'static str {
    match takes {
        Takes::State => r#""order":1"#,
        Takes::Payload => r#""cents":7"#,
        Takes::Output | Takes::Reason => r#""stars":4"#,
    }
}

fn with_note(takes: Takes, note: &str) -> String {
    format!("{{{},\"note\":{note}}}", member(takes))
}
