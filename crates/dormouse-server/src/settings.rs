//! Settings: from a file, from the environment and from flags. The later wins.

pub(crate) mod known;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use dormouse::store::shown;
use dormouse::{EngineBuilder, Retention};
use serde_json::Value;

use self::known::{KNOWN, Kind, Known};
use crate::cli::Failure;
use crate::span;

/// The file that is read if there is one and no other is named.
pub(crate) const USUAL_FILE: &str = "dormouse.toml";
/// A larger file is refused.
const FILE_BYTES_MAX: u64 = 64 * 1024;

/// The settings that were set, and where.
#[derive(Clone, Default)]
pub(crate) struct Settings(BTreeMap<&'static str, Found>);

#[derive(Clone, Debug)]
struct Found {
    text: String,
    origin: Origin,
}

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Origin {
    File(PathBuf),
    Environment(&'static str),
    Flag,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Environment(name) => f.write_str(name),
            Self::Flag => f.write_str("command line"),
        }
    }
}

/// A setting as `dormouse config` shows it.
pub(crate) struct Shown {
    pub(crate) known: &'static Known,
    /// Without secrets; empty if it is not set and has no default.
    pub(crate) value: String,
    pub(crate) origin: String,
}

impl Settings {
    /// Reads the named file, or else the usual one if it exists, and the environment.
    pub(crate) fn load(
        file: Option<&Path>,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, Failure> {
        let mut settings = Self::default();
        let usual = Path::new(USUAL_FILE);
        if let Some(path) = file.or_else(|| usual.exists().then_some(usual)) {
            let refused = |why: String| Failure::usage(format!("{}: {why}", path.display()));
            for (known, text) in read(path).map_err(refused)? {
                settings.0.insert(known.name, Found { text, origin: Origin::File(path.to_owned()) });
            }
        }
        for known in KNOWN {
            let Some(text) = environment(known.env).filter(|text| !text.is_empty()) else { continue };
            // What RUST_LOG accepts is its reader's business.
            known.kind.check(&text).map_err(|why| Failure::usage(format!("{}: {why}", known.env)))?;
            settings.0.insert(known.name, Found { text, origin: Origin::Environment(known.env) });
        }
        Ok(settings)
    }

    /// These settings, under what the command line sets. Its options may themselves come from the environment.
    pub(crate) fn under(mut self, flags: impl IntoIterator<Item = (&'static str, Option<String>)>) -> Self {
        for (name, text) in flags {
            let Some(text) = text else { continue };
            let is_same = self.0.get(name).is_some_and(|found| found.text == text);
            if !is_same {
                self.0.insert(name, Found { text, origin: Origin::Flag });
            }
        }
        self
    }

    /// Every setting, set or not.
    pub(crate) fn shown(&self) -> impl Iterator<Item = Shown> {
        KNOWN.iter().map(|known| {
            let found = self.0.get(known.name);
            let value =
                found.map_or_else(|| known.default.to_owned(), |found| hidden(known.kind, &found.text));
            let origin = found.map_or_else(|| "default".to_owned(), |found| found.origin.to_string());
            Shown { known, value, origin }
        })
    }

    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        debug_assert!(KNOWN.iter().any(|known| known.name == name), "{name} is not a setting");
        self.0.get(name).map(|found| found.text.as_str())
    }

    pub(crate) fn path(&self, name: &str) -> Option<PathBuf> {
        self.text(name).map(PathBuf::from)
    }

    pub(crate) fn number(&self, name: &str) -> Option<usize> {
        self.checked(name, |text| text.parse().ok())
    }

    pub(crate) fn is_on(&self, name: &str) -> Option<bool> {
        self.checked(name, |text| text.parse().ok())
    }

    pub(crate) fn span(&self, name: &str) -> Option<Duration> {
        self.checked(name, |text| span::parse(text).ok())
    }

    pub(crate) fn list(&self, name: &str) -> Vec<String> {
        let parts = self.text(name).into_iter().flat_map(|text| text.split(','));
        parts.map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()).collect()
    }

    /// Parses a value that was checked when it was read.
    fn checked<T>(&self, name: &str, parse: impl Fn(&str) -> Option<T>) -> Option<T> {
        self.text(name).and_then(parse)
    }

    /// An engine with these settings. What is not set stays as the program built it.
    pub(crate) fn engine(&self, mut builder: EngineBuilder) -> EngineBuilder {
        if let Some(queues) = self.checked("worker.queues", |text| known::places(text).ok()) {
            builder = builder.queues(queues);
        }
        if let Some(name) = self.text("worker.name") {
            builder = builder.worker_name(name);
        }
        if let Some(lease) = self.span("worker.lease") {
            builder = builder.lease(lease);
        }
        if let Some(every) = self.span("worker.poll") {
            builder = builder.poll(every);
        }
        if let Some(within) = self.span("worker.drain") {
            builder = builder.drain(within);
        }
        if let Some(crashes) = self.number("worker.crashes_max") {
            builder = builder.crashes_max(u32::try_from(crashes).unwrap_or(u32::MAX));
        }
        let (ended, events) = (self.span("retention.ended"), self.span("retention.events"));
        if ended.is_some() || events.is_some() {
            let every = self.span("retention.every").unwrap_or(Duration::from_secs(60));
            builder = builder.retention(Retention { ended, events }, every);
        }
        self.limited(builder)
    }

    fn limited(&self, builder: EngineBuilder) -> EngineBuilder {
        let mut limits = *builder.client().limits();
        for (name, limit) in [
            ("limits.document_bytes_max", &mut limits.document_bytes_max),
            ("limits.document_depth_max", &mut limits.document_depth_max),
            ("limits.inbox_max", &mut limits.inbox_max),
            ("limits.inbox_bytes_max", &mut limits.inbox_bytes_max),
            ("limits.reading_bytes_max", &mut limits.reading_bytes_max),
            ("limits.children_max", &mut limits.children_max),
            ("limits.items_max", &mut limits.items_max),
            ("limits.each_max", &mut limits.each_max),
        ] {
            *limit = self.number(name).unwrap_or(*limit);
        }
        builder.limits(limits)
    }
}

fn hidden(kind: Kind, text: &str) -> String {
    match kind {
        Kind::Secret => "(hidden)".to_owned(),
        Kind::Database if text.contains("://") => shown(text),
        _ => text.to_owned(),
    }
}

/// The settings in a file, checked.
fn read(path: &Path) -> Result<Vec<(&'static Known, String)>, String> {
    let size = std::fs::metadata(path).map_err(|error| error.to_string())?.len();
    if size > FILE_BYTES_MAX {
        return Err(format!("it has {size} bytes; settings have at most {FILE_BYTES_MAX}"));
    }
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    parse(&text)
}

fn parse(text: &str) -> Result<Vec<(&'static Known, String)>, String> {
    let file: serde_json::Map<String, Value> =
        basic_toml::from_str(text).map_err(|error| format!("it is not TOML: {error}"))?;
    let mut found = Vec::new();
    for (key, value) in file {
        match value {
            Value::Object(table) if KNOWN.iter().any(|known| known.name.starts_with(&format!("{key}."))) => {
                for (inner, value) in table {
                    found.push(one(format!("{key}.{inner}"), value)?);
                }
            }
            value => found.push(one(key, value)?),
        }
    }
    Ok(found)
}

fn one(name: String, value: Value) -> Result<(&'static Known, String), String> {
    let Some(known) = KNOWN.iter().find(|known| known.name == name) else {
        return Err(unknown(&name));
    };
    let text =
        written(known.kind, value).ok_or_else(|| format!("{name}: a value of another type is expected"))?;
    known.kind.check(&text).map_err(|why| format!("{name}: {why}"))?;
    Ok((known, text))
}

/// A value of the file as the environment would write it.
fn written(kind: Kind, value: Value) -> Option<String> {
    match (kind, value) {
        (Kind::List, Value::Array(items)) => {
            let items: Option<Vec<_>> = items.iter().map(Value::as_str).collect();
            Some(items?.join(","))
        }
        (Kind::Places, Value::Object(places)) => {
            let places = places.iter().map(|(name, number)| Some(format!("{name}={}", number.as_u64()?)));
            Some(places.collect::<Option<Vec<_>>>()?.join(","))
        }
        (Kind::Number, Value::Number(number)) => Some(number.to_string()),
        (Kind::Switch, Value::Bool(on)) => Some(on.to_string()),
        (Kind::List | Kind::Places | Kind::Number | Kind::Switch, _) => None,
        (_, Value::String(text)) => Some(text),
        _ => None,
    }
}

fn unknown(name: &str) -> String {
    /// A name that is less alike is not what was meant.
    const LIKENESS_MIN: f64 = 0.8;
    let likeness = |known: &'static Known| (strsim::jaro_winkler(name, known.name), known.name);
    let nearest = KNOWN.iter().map(likeness).max_by(|one, other| one.0.total_cmp(&other.0));
    match nearest.filter(|(likeness, _)| *likeness >= LIKENESS_MIN) {
        Some((_, nearest)) => format!("there is no setting {name:?}; the nearest is {nearest}"),
        None => format!("there is no setting {name:?}; `dormouse config` lists all of them"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nothing(_: &str) -> Option<String> {
        None
    }

    #[test]
    fn a_file_is_read_into_settings() {
        let text = "db = 'shop.db'\n[serve]\nallow_hosts = ['a', 'b']\nwaits_max = 5\nrun_machines = false\n\
            [worker]\nlease = '30s'\n[worker.queues]\ndefault = 8\nslow = 2\n";
        let found: Vec<_> =
            parse(text).expect("settings").into_iter().map(|(known, text)| (known.name, text)).collect();
        for expected in [
            ("db", "shop.db"),
            ("serve.allow_hosts", "a,b"),
            ("serve.waits_max", "5"),
            ("serve.run_machines", "false"),
            ("worker.lease", "30s"),
            ("worker.queues", "default=8,slow=2"),
        ] {
            assert!(found.contains(&(expected.0, expected.1.to_owned())), "{expected:?} is not in {found:?}");
        }
    }

    #[test]
    fn a_mistake_in_a_file_is_refused_with_what_to_do() {
        for (text, told) in [
            ("dbb = 'x'", "there is no setting \"dbb\"; the nearest is db"),
            ("[serve]\nbnd = '0.0.0.0:1'", "there is no setting \"serve.bnd\"; the nearest is serve.bind"),
            (
                "[somewhere]\nelse = 1",
                "there is no setting \"somewhere\"; `dormouse config` lists all of them",
            ),
            ("[serve]\nwaits_max = 'many'", "serve.waits_max: a value of another type is expected"),
            ("[serve]\nbind = 'localhost'", "serve.bind: \"localhost\" is not an IP address and a port"),
            ("[worker]\nlease = 'long'", "worker.lease: \"long\" is not a span of time"),
            ("[worker]\nqueues = { default = 'x' }", "worker.queues: a value of another type is expected"),
            ("[log]\nform = 'xml'", "log.form: \"xml\" is not one of text, json"),
            ("db = ", "it is not TOML"),
        ] {
            let refused = parse(text).expect_err(text);
            assert!(refused.contains(told), "{refused}\nis not\n{told}");
        }
    }

    #[test]
    fn a_flag_wins_over_the_environment_and_the_environment_over_the_file() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("settings.toml");
        let text = "db = 'file.db'\nnamespace = 'file'\n[worker]\nlease = '30s'\n";
        std::fs::write(&file, text).expect("a file");
        let environment = |name: &str| match name {
            "DORMOUSE_DB" | "DORMOUSE_NAMESPACE" => Some("environment".to_owned()),
            _ => None,
        };
        let settings = Settings::load(Some(&file), environment).expect("settings");
        let settings = settings.under([("db", Some("flag.db".to_owned())), ("namespace", None)]);
        let shown: BTreeMap<_, _> =
            settings.shown().map(|shown| (shown.known.name, (shown.value, shown.origin))).collect();
        let is =
            |name, value: &str, origin: &str| assert_eq!(shown[name], (value.to_owned(), origin.to_owned()));
        is("db", "flag.db", "command line");
        is("namespace", "environment", "DORMOUSE_NAMESPACE");
        is("worker.lease", "30s", &file.display().to_string());
        is("worker.poll", "1s", "default");
    }

    #[test]
    fn secrets_are_not_shown_and_mistakes_in_the_environment_name_the_variable() {
        let environment = |name: &str| match name {
            "DORMOUSE_DB" => Some("postgres://me:hunter2@host/db".to_owned()),
            "DORMOUSE_RESUME_KEYS" => Some("hunter2".to_owned()),
            _ => None,
        };
        let dir = tempfile::tempdir().expect("a directory");
        let empty = dir.path().join("empty.toml");
        std::fs::write(&empty, "").expect("a file");
        let settings = Settings::load(Some(&empty), environment).expect("settings");
        for shown in settings.shown() {
            assert!(!shown.value.contains("hunter2"), "{}: {}", shown.known.name, shown.value);
        }
        let wrong = |name: &str| (name == "DORMOUSE_LEASE").then(|| "long".to_owned());
        let refused = Settings::load(Some(&empty), wrong).err().expect("it is refused").to_string();
        assert!(refused.starts_with("DORMOUSE_LEASE: \"long\" is not a span of time"), "{refused}");
        let absent = Settings::load(Some(Path::new("absent.toml")), nothing).err().expect("it is refused");
        assert!(absent.to_string().starts_with("absent.toml: "), "{absent}");
    }
}
