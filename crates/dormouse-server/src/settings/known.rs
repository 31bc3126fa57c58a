//! Every setting there is: the file, the environment, `dormouse config` and the guide go by this table.

use crate::span;

/// A setting.
#[derive(Debug)]
pub(crate) struct Known {
    /// Its name in the file: its table and its key.
    pub(crate) name: &'static str,
    /// The environment variable with the same meaning.
    pub(crate) env: &'static str,
    pub(crate) kind: Kind,
    /// What holds without it, for people; the code that uses the setting has the value.
    pub(crate) default: &'static str,
    pub(crate) about: &'static str,
}

/// What a value looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    /// Never shown.
    Secret,
    /// The address of a database: shown without its password.
    Database,
    /// An IP address and a port.
    Bind,
    Number,
    /// `true` or `false`.
    Switch,
    /// A span of time, such as `30s`.
    Span,
    /// Texts; with commas between them in the environment.
    List,
    /// Names with numbers: a table in the file, `default=64,slow=4` in the environment.
    Places,
    /// One of these words.
    Word(&'static [&'static str]),
}

impl Kind {
    /// Says what is wrong with a value.
    pub(super) fn check(self, text: &str) -> Result<(), String> {
        let refuse = |expected: &str| Err(format!("{text:?} is not {expected}"));
        match self {
            Self::Text | Self::Secret | Self::Database | Self::List => Ok(()),
            Self::Bind if text.parse::<std::net::SocketAddr>().is_err() => {
                refuse("an IP address and a port, such as 127.0.0.1:7878")
            }
            Self::Number if text.parse::<u64>().is_err() => refuse("a whole number of at least 0"),
            Self::Switch if !["true", "false"].contains(&text) => refuse("true or false"),
            Self::Span => span::parse(text).map(drop),
            Self::Places => places(text).map(drop),
            Self::Word(words) if !words.contains(&text) => refuse(&format!("one of {}", words.join(", "))),
            Self::Bind | Self::Number | Self::Switch | Self::Word(_) => Ok(()),
        }
    }
}

/// Queues and how many steps of each run at once.
pub(super) fn places(text: &str) -> Result<Vec<(String, usize)>, String> {
    let place = |part: &str| {
        let (name, number) = part.rsplit_once('=')?;
        Some((name.trim().to_owned(), number.trim().parse().ok()?))
    };
    let refused =
        |part: &str| format!("{part:?} is not a queue and its number of places, such as default=64");
    text.split(',').map(|part| place(part).ok_or_else(|| refused(part))).collect()
}

const fn known(
    name: &'static str,
    env: &'static str,
    kind: Kind,
    default: &'static str,
    about: &'static str,
) -> Known {
    Known { name, env, kind, default, about }
}

/// The settings, in the order in which they are shown.
#[rustfmt::skip] // A table.
pub(crate) const KNOWN: &[Known] = &[
    known("db", "DORMOUSE_DB", Kind::Database, "dormouse.db", "the database: a path, or postgres://user@host/database"),
    known("namespace", "DORMOUSE_NAMESPACE", Kind::Text, "", "the namespace to work in, instead of `default`"),
    known("resume_keys", "DORMOUSE_RESUME_KEYS", Kind::Secret, "", "the keys that sign and verify resume tokens"),
    known("serve.bind", "DORMOUSE_BIND", Kind::Bind, "127.0.0.1:7878", "the address to listen on"),
    known("serve.auth", "DORMOUSE_AUTH", Kind::Word(&["keys", "open"]), "", "who has access; by default anyone on this host until the first API key exists, then holders of a key"),
    known("serve.allow_hosts", "DORMOUSE_ALLOW_HOSTS", Kind::List, "", "further host names to answer to while no API key is required"),
    known("serve.waits_max", "DORMOUSE_WAITS_MAX", Kind::Number, "1024", "how many requests may wait for an instance at once"),
    known("serve.streams_max", "DORMOUSE_STREAMS_MAX", Kind::Number, "8192", "how many event streams and dashboard pages may be open at once"),
    known("serve.run_machines", "DORMOUSE_RUN_MACHINES", Kind::Switch, "true", "whether `serve` also runs the program's machines"),
    known("serve.tls_certificate", "DORMOUSE_TLS_CERTIFICATE", Kind::Text, "", "serve https with this certificate chain, a PEM file"),
    known("serve.tls_key", "DORMOUSE_TLS_KEY", Kind::Text, "", "the certificate's private key, a PEM file"),
    known("worker.name", "DORMOUSE_WORKER_NAME", Kind::Text, "", "the worker's name; by default a new one at each start"),
    known("worker.queues", "DORMOUSE_QUEUES", Kind::Places, "", "the queues to serve and their places, instead of the program's"),
    known("worker.lease", "DORMOUSE_LEASE", Kind::Span, "15s", "how long claims are safe without a heartbeat"),
    known("worker.poll", "DORMOUSE_POLL", Kind::Span, "1s", "how often to look for work that no poke announced"),
    known("worker.drain", "DORMOUSE_DRAIN", Kind::Span, "10s", "how long running steps may go on after a request to stop"),
    known("worker.crashes_max", "DORMOUSE_CRASHES_MAX", Kind::Number, "10", "how often in a row a step may be lost with its worker before its instance fails"),
    known("retention.ended", "DORMOUSE_RETENTION_ENDED", Kind::Span, "", "how long ended instances are kept; by default always"),
    known("retention.events", "DORMOUSE_RETENTION_EVENTS", Kind::Span, "", "how long events of live instances are kept; by default always"),
    known("retention.every", "DORMOUSE_RETENTION_EVERY", Kind::Span, "1m", "how often to collect"),
    known("limits.document_bytes_max", "DORMOUSE_DOCUMENT_BYTES_MAX", Kind::Number, "1048576", "the largest state, payload or output"),
    known("limits.document_depth_max", "DORMOUSE_DOCUMENT_DEPTH_MAX", Kind::Number, "64", "how deep a document may be nested"),
    known("limits.inbox_max", "DORMOUSE_INBOX_MAX", Kind::Number, "10000", "the most signals in one inbox"),
    known("limits.inbox_bytes_max", "DORMOUSE_INBOX_BYTES_MAX", Kind::Number, "16777216", "the most bytes of payloads in one inbox"),
    known("limits.reading_bytes_max", "DORMOUSE_READING_BYTES_MAX", Kind::Number, "268435456", "the most bytes that a step gets besides its state"),
    known("limits.children_max", "DORMOUSE_CHILDREN_MAX", Kind::Number, "10000", "the most children of one spawn"),
    known("limits.items_max", "DORMOUSE_ITEMS_MAX", Kind::Number, "10000", "the most items of one batch of a unit"),
    known("limits.each_max", "DORMOUSE_EACH_MAX", Kind::Number, "100000", "the most items of one `each` unit"),
    known("log.form", "DORMOUSE_LOG", Kind::Word(&["text", "json"]), "text", "the format of log lines"),
    known("log.filter", "RUST_LOG", Kind::Text, "info", "what is logged, such as `info,dormouse=debug`"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_a_valid_value_and_every_name_is_there_once() {
        for (at, setting) in KNOWN.iter().enumerate() {
            if !setting.default.is_empty() {
                setting.kind.check(setting.default).expect(setting.name);
            }
            let others = &KNOWN[..at];
            assert!(
                others.iter().all(|other| other.name != setting.name && other.env != setting.env),
                "{setting:?}"
            );
        }
    }

    #[test]
    fn the_defaults_are_those_of_the_engine() {
        let default = |name: &str| KNOWN.iter().find(|known| known.name == name).expect(name).default;
        let limits = dormouse::Limits::default();
        for (name, value) in [
            ("limits.document_bytes_max", limits.document_bytes_max),
            ("limits.document_depth_max", limits.document_depth_max),
            ("limits.inbox_max", limits.inbox_max),
            ("limits.inbox_bytes_max", limits.inbox_bytes_max),
            ("limits.reading_bytes_max", limits.reading_bytes_max),
            ("limits.children_max", limits.children_max),
            ("limits.items_max", limits.items_max),
            ("limits.each_max", limits.each_max),
        ] {
            assert_eq!(default(name), value.to_string(), "{name}");
        }
    }

    #[test]
    fn every_setting_is_in_the_guide() {
        let page = include_str!("../../../../docs/guide/settings.md");
        for Known { name, env, .. } in KNOWN {
            let row = page.lines().find(|line| line.starts_with(&format!("| `{name}`")));
            assert!(
                row.is_some_and(|row| row.contains(&format!("`{env}`"))),
                "{name} ({env}) is not there: {row:?}"
            );
        }
    }

    /// Variables of the command line as a client, and of the settings themselves.
    const OTHERS: [&str; 5] =
        ["DORMOUSE_CONFIG", "DORMOUSE_SERVER", "DORMOUSE_CA_FILE", "DORMOUSE_API_KEY", "DORMOUSE_IMAGE"];

    #[test]
    fn the_kit_names_no_setting_that_does_not_exist() {
        let files = files(&std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy"));
        assert!(files.len() > 10, "{files:?}");
        for file in files {
            let text = std::fs::read_to_string(&file).expect("a text");
            for name in variables(&text) {
                let is_known = KNOWN.iter().any(|known| known.env == name) || OTHERS.contains(&name);
                assert!(is_known, "{}: there is no {name}", file.display());
            }
            if file.extension().is_some_and(|extension| extension == "toml") {
                crate::settings::parse(&text).unwrap_or_else(|why| panic!("{}: {why}", file.display()));
            }
        }
    }

    fn files(dir: &std::path::Path) -> Vec<std::path::PathBuf> {
        let entries =
            std::fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("an entry").path());
        entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
    }

    /// The words that begin like one of our environment variables.
    fn variables(text: &str) -> impl Iterator<Item = &str> {
        let words = text.split(|character: char| !character.is_ascii_alphanumeric() && character != '_');
        words.filter(|word| word.starts_with("DORMOUSE_"))
    }
}
