//! What the command line must not show, and who must not get access: with the real binary.

use std::io::{BufRead, BufReader};
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Place, dormouse, run, serve};

/// Everything that a command printed.
fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn help_shows_no_value_of_the_environment() {
    for args in [&["--help"][..], &["serve", "--help"], &["ls", "-h"], &["keys", "create", "--help"]] {
        let mut command = dormouse();
        for name in ["DB", "SERVER", "CA_FILE", "NAMESPACE"] {
            command.env(format!("DORMOUSE_{name}"), "postgres://ann:hunter2@db/shop");
        }
        command.env("DORMOUSE_AUTH", "keys").env("DORMOUSE_BIND", "127.0.0.1:4711");
        let output = command.env("DORMOUSE_API_KEY", "hunter2").args(args).output().expect("a run");
        let told = said(&output);
        assert!(output.status.success() && told.contains("DORMOUSE_DB"), "{told}");
        assert!(!told.contains("hunter2") && !told.contains("4711"), "{told}");
    }
}

#[test]
fn an_address_is_told_without_its_secrets_wherever_they_are() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut command = dormouse();
    let both = ["--db", "x.db", "--server", "https://ann:hunter2@example.com", "ls"];
    let output = command.args(both).output().expect("a run");
    assert!(!said(&output).contains("hunter2"), "{}", said(&output));
    for (variable, url) in [
        ("DORMOUSE_SERVER", "https://ann:hunter2@example.com"),
        ("DORMOUSE_SERVER", "ftp://ann:hunter2@example.com"),
        ("DORMOUSE_SERVER", "http://ann:hunter2@"),
        ("DORMOUSE_DB", "mysql://ann:hunter2@db/shop"),
        ("DORMOUSE_DB", "mysql://db/shop?password=hunter2"),
        ("DORMOUSE_DB", "postgres://ann:hunter2@127.0.0.1:1/shop"),
        ("DORMOUSE_DB", "postgres://ann@127.0.0.1:1/shop?password=hunter2&sslpassword=hunter2"),
        ("DORMOUSE_DB", "postgres://ann@127.0.0.1:port/shop?password=hunter2"),
        ("DORMOUSE_DB", "postgres://ann@127.0.0.1:1/shop?connections=hunter2"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://ann:hunter2@collector example"),
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://ann:hunter2@127.0.0.1:1/"),
    ] {
        let mut command = dormouse();
        command.env("RUST_LOG", "trace").env(variable, url).current_dir(dir.path());
        let output = command.arg("ls").output().expect("a run");
        assert!(!output.status.success());
        assert!(!said(&output).contains("hunter2"), "{url}: {}", said(&output));
    }
}

#[test]
fn a_server_logs_no_password_of_its_database() {
    let place = Place::with_postgres();
    let db = place.db.to_str().expect("text");
    let more = if db.contains('?') { "&" } else { "?" };
    let url = format!("{db}{more}password=hunter2&sslpassword=hunter2&pasword=hunter2");
    let mut command = dormouse();
    command.env("RUST_LOG", "trace").args(["--db", &url, "serve", "--bind", "127.0.0.1:0"]);
    let mut process = command.stderr(Stdio::piped()).spawn().expect("a server");
    let log = BufReader::new(process.stderr.take().expect("its log")).lines();
    let mut logged = String::new();
    for line in log {
        logged += &line.expect("text");
        logged.push('\n');
        if logged.contains("serving http://") {
            break;
        }
    }
    let _ = process.kill();
    let _ = process.wait();
    assert!(logged.contains("serving http://") && logged.contains("pasword"), "{logged}");
    assert!(!logged.contains("hunter2"), "{logged}");
}

#[test]
fn an_api_key_that_can_be_overheard_is_warned_of() {
    for (url, is_warned) in [
        ("http://dormouse.invalid", true),
        ("http://127.0.0.1:1", false),
        ("http://localhost:1", false),
        ("https://127.0.0.1:1", false),
    ] {
        let mut command = dormouse();
        let output = command.env("DORMOUSE_API_KEY", "dmk_a_b").args(["--server", url, "ls"]).output();
        let told = said(&output.expect("a run"));
        assert_eq!(told.contains("plain HTTP"), is_warned, "{url}: {told}");
        assert!(!told.contains("dmk_a_b"), "{told}");
    }
    let output = dormouse().args(["--server", "http://dormouse.invalid", "ls"]).output().expect("a run");
    assert!(!said(&output).contains("plain HTTP"), "there is no key to be read");
}

#[test]
fn what_is_stored_cannot_play_with_the_terminal() {
    let place = Place::with_db();
    let hostile = "a\u{9b}2Jb\u{202e}c\u{2067}d\u{85}e\u{7f}";
    let state = json!({ hostile: hostile }).to_string();
    // Names contain no control characters, but may contain everything else.
    let key = "k\u{202e}ey";
    let start = ["start", "shop", "--step", "Open", "--state", &state, "--key", key, "--even-if-unknown"];
    let id = place.json(&start)["id"].to_string();
    let payload = json!(hostile).to_string();
    place.text(&["signal", "note", &payload, "--to", &id]);
    place.text(&["cancel", &id, "--reason", "one\ntwo"]);
    let is_active = |c: char| {
        (c.is_control() && c != '\n') || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let commands: [&[&str]; 9] = [
        &["get", &id],
        &["ls"],
        &["history", &id, "--states"],
        &["history", &id],
        &["inbox", &id],
        &["result", &id],
        &["explain", &id],
        &["waiting"],
        &["audit"],
    ];
    for command in commands {
        for form in [&[][..], &["--json"]] {
            let told = said(&place.run(&[form, command].concat()));
            assert!(!told.contains(is_active), "{form:?} {command:?}: {told:?}");
        }
    }
    let shown = place.json(&["get", &id]);
    assert_eq!(
        (&shown["state"][hostile], &shown["key"]),
        (&json!(hostile), &json!(key)),
        "no letter is lost"
    );
    assert_eq!(place.ended(&["result", &id]), "cancelled: one\ntwo\n", "lines are kept");
    let missing = said(&place.run(&["get", "nobody\u{202e}\u{9b}"]));
    assert!(!missing.contains(is_active), "{missing:?}");
}

#[test]
#[cfg(unix)]
fn a_new_database_is_its_owners_alone_and_one_that_is_there_is_left_as_it_is() {
    use std::os::unix::fs::PermissionsExt as _;
    let place = Place::with_db();
    let mode = |suffix: &str| {
        let path = format!("{}{suffix}", place.db.display());
        std::fs::metadata(&path).unwrap_or_else(|error| panic!("{path}: {error}")).permissions().mode()
            & 0o777
    };
    assert_eq!(mode(""), 0o600);
    let server = serve(&place.db, &[]);
    place.json(&["start", "shop", "--step", "Open", "--even-if-unknown"]);
    assert_eq!((mode(""), mode("-wal"), mode("-shm")), (0o600, 0o600, 0o600));
    drop(server);
    std::fs::set_permissions(&place.db, std::fs::Permissions::from_mode(0o640)).expect("a mode");
    place.text(&["ls"]);
    assert_eq!(mode(""), 0o640, "whoever shares it on purpose goes on sharing it");
    let dir = place.db.parent().expect("a directory");
    let left = std::fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("an entry").file_name());
    let left: Vec<_> = left.filter(|name| name.to_string_lossy().ends_with(".new")).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn an_open_server_makes_no_key_and_closes_when_one_is_made_over_the_database() {
    for place in [Place::with_db(), Place::with_postgres()] {
        let server = serve(&place.db, &[]);
        let ask = |key: Option<&str>, args: &[&str]| {
            let mut command = dormouse();
            command.args(["--server", &server.url]).args(args);
            key.map(|key| command.env("DORMOUSE_API_KEY", key));
            command.output().expect("a run")
        };
        let create = ["keys", "create", "--label", "me", "--scope", "admin"];
        let refused = ask(None, &create);
        assert_eq!(refused.status.code(), Some(5), "{}", said(&refused));
        assert!(said(&refused).contains("--db"), "{}", said(&refused));
        assert_eq!(ask(None, &["ls"]).status.code(), Some(0));
        let made = run(&place.db, &[&["--json"][..], &create].concat());
        let made: Value = serde_json::from_slice(&made.stdout).expect("JSON");
        let deadline = Instant::now() + Duration::from_secs(30);
        while ask(None, &["ls"]).status.code() != Some(5) {
            assert!(Instant::now() < deadline, "it still lets anyone in");
        }
        let audit = String::from_utf8(run(&place.db, &["audit"]).stdout).expect("text");
        assert!(audit.contains("nobody, at 127.0.0.1") && audit.contains("unauthenticated"), "{audit}");
        let secret = made["secret"].as_str().expect("a secret");
        // Over a server, with a key: create, list, revoke.
        let other = ask(Some(secret), &["--json", "keys", "create", "--label", "robot", "--scope", "read"]);
        let other: Value = serde_json::from_slice(&other.stdout).expect("JSON");
        assert!(said(&ask(Some(secret), &["keys", "ls"])).contains("robot"));
        let revoked = ask(Some(secret), &["keys", "revoke", other["id"].as_str().expect("an id")]);
        assert!(said(&revoked).contains("revoked"), "{}", said(&revoked));
        assert_eq!(ask(Some(secret), &["keys", "revoke", "nobody"]).status.code(), Some(3));
    }
}
