//! The command line as a person or a script uses it: over a database, and over a server.

#[path = "cli/habits.rs"]
mod habits;
mod postgres;
#[path = "cli/repair.rs"]
mod repair;
#[path = "cli/secrets.rs"]
mod secrets;
#[path = "cli/settings.rs"]
mod settings;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use self::postgres::Postgres;

/// A database, and perhaps a server over it: the same commands work on both.
struct Place {
    _dir: Option<TempDir>,
    _postgres: Option<Postgres>,
    db: PathBuf,
    server: Option<Server>,
}

/// A server that is stopped when the test is over.
struct Server {
    process: Child,
    url: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Place {
    fn with_db() -> Self {
        let dir = TempDir::new().expect("a directory");
        let db = dir.path().join("test.db");
        let place = Self { _dir: Some(dir), _postgres: None, db, server: None };
        assert!(run(&place.db, &["migrate"]).status.success());
        place
    }

    fn with_postgres() -> Self {
        let postgres = Postgres::create();
        let db = postgres.url().into();
        Self { _dir: None, _postgres: Some(postgres), db, server: None }
    }

    fn with_server(mut self) -> Self {
        self.server = Some(serve(&self.db, &[]));
        self
    }

    fn run(&self, args: &[&str]) -> Output {
        let mut command = dormouse();
        match &self.server {
            Some(server) => command.args(["--server", &server.url]),
            None => command.arg("--db").arg(&self.db),
        };
        command.args(args).output().expect("a run")
    }

    /// The JSON output of a command that must succeed.
    #[track_caller]
    fn json(&self, args: &[&str]) -> Value {
        let output = self.run(&[&["--json"], args].concat());
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    /// The text output of a command that must succeed.
    #[track_caller]
    fn text(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    }

    /// The text output of a command that must end with 1, as its instance is not done.
    #[track_caller]
    fn ended(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        String::from_utf8(output.stdout).expect("text")
    }

    /// The error output of a command that must end with this code.
    #[track_caller]
    fn fails(&self, code: i32, args: &[&str]) -> String {
        let output = self.run(args);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {told}");
        told
    }
}

fn dormouse() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dormouse"));
    let ours = ["DB", "SERVER", "CA_FILE", "API_KEY", "NAMESPACE", "CONFIG", "BIND"]
        .map(|name| format!("DORMOUSE_{name}"));
    for name in ours.into_iter().chain(["RUST_LOG".to_owned()]) {
        command.env_remove(name);
    }
    command.env("USER", "tester");
    command
}

fn run(db: &Path, args: &[&str]) -> Output {
    dormouse().arg("--db").arg(db).args(args).output().expect("a run")
}

/// Serves a database at a free port, and waits until it prints its address.
fn serve(db: &Path, args: &[&str]) -> Server {
    let mut command = dormouse();
    command.arg("--db").arg(db).args(["--log", "json", "serve", "--bind", "127.0.0.1:0"]).args(args);
    let mut process = command.stderr(Stdio::piped()).spawn().expect("a server");
    let mut log = BufReader::new(process.stderr.take().expect("its log")).lines();
    let url = loop {
        let line = log.next().expect("a line before the log ends").expect("text");
        let entry: Value = serde_json::from_str(&line).expect("a line of JSON");
        if let Some(address) = entry["fields"]["address"].as_str() {
            break format!("http://{address}");
        }
    };
    // Nobody reads the rest, and the server must not mind.
    std::thread::spawn(move || log.for_each(drop));
    Server { process, url }
}

#[test]
fn every_command_works_on_a_database() {
    every_command_works(&Place::with_db());
}

#[test]
fn every_command_works_over_a_server() {
    every_command_works(&Place::with_db().with_server());
}

#[test]
fn every_command_works_on_a_postgres_database() {
    every_command_works(&Place::with_postgres());
}

#[test]
fn every_command_works_over_a_server_on_postgres() {
    every_command_works(&Place::with_postgres().with_server());
}

#[test]
fn a_postgres_database_is_migrated_by_a_step_of_its_own() {
    let place = Place::with_postgres();
    assert_eq!(place.json(&["migrate"])["schema_found"], place.json(&["migrate"])["schema"]);
    assert!(place.text(&["migrate"]).contains("nothing to do"));
    assert!(place.text(&["migrate", "--sql"]).contains("create table dormouse.instances"));
    assert!(place.text(&["migrate", "--roles"]).contains("dormouse_engine"));
    let url = place.db.to_str().expect("an address");
    let (server, _) = url.rsplit_once('/').expect("an address names a database");
    // The server's own database has no schema of ours.
    let bare = run(Path::new(&format!("{server}/postgres")), &["ls"]);
    assert_eq!(bare.status.code(), Some(6));
    let told = String::from_utf8_lossy(&bare.stderr).into_owned();
    assert!(told.contains("dormouse migrate"), "{told}");
    let away = run(Path::new("postgres://nobody:secret@127.0.0.1:1/nothing"), &["ls"]);
    let told = String::from_utf8_lossy(&away.stderr).into_owned();
    assert_eq!(away.status.code(), Some(6), "{told}");
    assert!(told.contains("127.0.0.1:1") && !told.contains("secret"), "{told}");
}

fn every_command_works(place: &Place) {
    let start = ["start", "shop", "--step", "Open", "--state", r#"{"lines":[1,2]}"#, "--key", "order:1"];
    let told = place.fails(4, &start);
    assert!(told.contains("no worker has declared a machine \"shop\""), "{told}");
    let start = [&start[..], &["--even-if-unknown"]].concat();
    let id = place.json(&start)["id"].to_string();
    let told = place.fails(4, &start);
    assert_eq!(told, format!("error: the key \"order:1\" is taken by instance {id}\n"));
    assert!(place.text(&["ls"]).contains("order:1"));
    assert_eq!(
        place.json(&["ls", "--machine", "shop", "--all"])["items"].as_array().expect("items").len(),
        1
    );
    assert!(place.text(&["get", "order:1"]).contains("runnable"));
    assert_eq!(place.json(&["get", &id])["state"], json!({ "lines": [1, 2] }));
    assert!(place.text(&["history", &id, "--states"]).contains("created"));
    assert!(place.text(&["explain", &id]).contains("no worker is live"));
    assert_eq!(place.text(&["signal", "paid", "7", "--to", "order:1", "--dedup", "d"]), "accepted\n");
    assert_eq!(place.json(&["signal", "paid", "7", "--to", &id, "--dedup", "d"])["delivered"], "duplicate");
    assert!(place.text(&["inbox", &id]).contains("paid"));
    assert!(place.text(&["children", &id]).contains("no instances"));
    place.fails(7, &["result", &id, "--wait", "10ms"]);

    let would = place.text(&["signal", "note", "--where", "machine=shop,key=order:"]);
    assert_eq!(would, "1 live instances match; nothing was sent. Add --yes to send\n");
    assert_eq!(place.json(&["signal", "note", "--where", "machine=shop", "--yes"])["accepted"], 1);
    assert!(place.text(&["waiting"]).contains("no instance awaits a signal"));
    assert!(place.text(&["waiting", "paid"]).contains("no instances"));

    assert_eq!(place.text(&["pause", "order:1"]), "order:1 is paused\n");
    assert_eq!(place.json(&["get", &id])["paused"], true);
    assert_eq!(place.text(&["resume", "order:1"]), "order:1 is resumed\n");
    assert_eq!(place.text(&["pause", "--queue", "default"]), "queue default is paused\n");
    assert!(place.text(&["queues"]).contains("paused"));
    place.text(&["resume", "--queue", "default"]);
    assert_eq!(place.text(&["shares"]).trim(), "every share has weight 1");
    assert_eq!(place.text(&["weigh", "tenant-7", "3"]), "share tenant-7 has weight 3\n");
    assert!(place.text(&["shares"]).contains("tenant-7"));
    place.fails(4, &["weigh", "tenant-7", "0"]);

    place.fails(3, &["signal", "paid", "--to", "order:9"]);
    let kept = place.json(&["signal", "paid", "9", "--to", "order:9", "--keep-for", "1h"]);
    assert_eq!(kept["delivered"], "kept");
    assert!(place.text(&["explain", "order:9"]).contains("1 signal is kept for it"));
    let list = place.text(&["kept", "ls", "--key", "order:9"]);
    assert!(list.contains("order:9") && list.contains("paid"), "{list}");
    let told = place.text(&["signal", "paid", "--to", "order:9", "--keep-for", "1h"]);
    assert!(told.starts_with("kept as "), "{told}");
    let dropped = place.text(&["kept", "drop", &kept["id"].to_string()]);
    assert_eq!(dropped, format!("kept signal {} is dropped\n", kept["id"]));
    assert_eq!(place.json(&["kept", "ls"])["signals"], 1);
    place.fails(4, &["signal", "paid", "--to", "order:9", "--keep-for", "0s"]);

    assert!(place.text(&["limits", "ls"]).contains("no limits"));
    let set = place.text(&["limits", "set", "partner/acme", "--width", "3"]);
    assert_eq!(set, "limit partner/acme lets 3 run at a time\n");
    assert_eq!(place.json(&["limits", "ls"])["limits"][0]["width"], 3);
    assert!(place.text(&["limits", "ls"]).contains("partner/acme"));
    let set = place.text(&["limits", "set", "stripe", "--rate", "25", "--period", "1m", "--burst", "5"]);
    assert_eq!(set, "limit stripe lets 25 in 1m (burst 5) start\n");
    let set = place.text(&["limits", "set", "stripe", "--rate", "25", "--width", "1"]);
    assert_eq!(set, "limit stripe lets 1 run at a time, and 25 in 1s (burst 1) start\n");
    let listed = &place.json(&["limits", "ls"])["limits"][1];
    assert_eq!((&listed["rate"], &listed["period"], &listed["burst"]), (&json!(25), &json!("1s"), &json!(1)));
    for bad in [["--rate", "0"], ["--period", "0s"], ["--burst", "0"], ["--rate", "1000001"]] {
        place.fails(
            4,
            &[
                &["limits", "set", "l", "--width", "1", "--rate", "5"]
                    [..if bad[0] == "--rate" { 5 } else { 7 }],
                &bad,
            ]
            .concat(),
        );
    }
    place.fails(2, &["limits", "set", "l", "--rate=-5"]);
    assert_eq!(place.text(&["limits", "rm", "stripe"]), "removed limit stripe\n");
    assert_eq!(place.text(&["limits", "rm", "partner/acme"]), "removed limit partner/acme\n");
    assert_eq!(place.text(&["limits", "rm", "partner/acme"]), "there was no limit partner/acme\n");

    let fork = place.json(&[
        "fork",
        &id,
        "--from",
        "1",
        "--set",
        "lines.1=9",
        "--set",
        "note=hi",
        "--key",
        "order:2",
    ]);
    let fork = fork["id"].to_string();
    assert_eq!(place.json(&["get", &fork])["state"], json!({ "lines": [1, 9], "note": "hi" }));
    place.fails(3, &["fork", &id, "--from", "9", "--set", "a=1"]);
    operators_say_why_and_act_on_what_they_saw(place, &id, &fork);

    assert!(place.text(&["machines"]).contains("shop"));
    assert!(place.text(&["workers"]).contains("no worker serves"));
    assert_eq!(place.json(&["stats"])["statuses"]["cancelled"], 2);
    assert!(place.text(&["stats"]).contains("cancelled"));
    assert!(place.text(&["doctor"]).contains("ok       database"));
    place.json(&["start", "shop", "--step", "Open", "--even-if-unknown"]);
    let ill = place.run(&["--json", "doctor"]);
    assert_eq!(ill.status.code(), Some(7), "nobody runs what was started");
    assert!(String::from_utf8_lossy(&ill.stdout).contains("no worker is live, and 1 instance wait"));
    let told = "no live worker runs version 1 of shop, which has 1 live instance\n";
    assert!(place.text(&["machines"]).ends_with(told));

    assert_eq!(place.text(&["gc", "--ended-for", "0s"]), "2 instances removed, each with its history\n");
    place.fails(3, &["keys", "revoke", "nobody"]);
    let create = ["keys", "create", "--label", "robot", "--scope", "read", "--expires-in", "1d"];
    if place.server.is_some() {
        place.fails(5, &create);
    } else {
        let made = place.json(&create);
        assert!(place.text(&["keys", "ls"]).contains("robot"));
        assert!(place.text(&["keys", "revoke", made["id"].as_str().expect("an id")]).contains("revoked"));
    }
    let audit = place.text(&["audit", "--limit", "100"]);
    for what in ["instance.start", "instance.cancel", "queue.pause", "api_key.create", "gc"] {
        assert!(audit.contains(what), "{what} is not in\n{audit}");
    }
    assert_eq!(audit.contains("command line (tester)"), place.server.is_none(), "{audit}");
    place.fails(3, &["get", "12345"]);
    assert!(place.text(&["completions", "bash"]).contains("doctor"));
}

fn operators_say_why_and_act_on_what_they_saw(place: &Place, id: &str, fork: &str) {
    let start = ["start", "shop", "--step", "Open", "--tag", "vip", "--tag", "new", "--even-if-unknown"];
    let tagged = place.json(&start)["id"].to_string();
    assert_eq!(
        place.text(&["tag", &tagged, "--add", "late", "--remove", "new"]),
        format!("{tagged}: late, vip\n")
    );
    let found = place.json(&["ls", "--roots", "--tag", "vip", "--tag", "late"]);
    assert_eq!(found["items"].as_array().expect("items").len(), 1);
    assert!(place.text(&["ls", "--tag", "new"]).contains("no instances"));
    let would = place.text(&["signal", "note", "--where", "machine=shop,tag=vip"]);
    assert!(would.starts_with("1 live instances match"), "{would}");
    let told = place.text(&["get", &tagged]);
    assert!(told.contains("tags             late, vip\n"), "{told}");
    assert_eq!(
        place.text(&["tag", &tagged, "--remove", "vip", "--remove", "late"]),
        format!("{tagged} has no tags\n")
    );
    place.fails(2, &["tag", &tagged]);
    place.text(&["cancel", &tagged]);
    place.text(&["gc", "--ended-for", "0s"]);

    for verb in ["cancel", "retry", "pause", "resume"] {
        let told = place.fails(4, &[verb, id, "--if-seq", "77"]);
        assert_eq!(
            told,
            format!(
                "error: instance {id} is at seq 1 and not at 77: it moved in between; look at it again\n"
            )
        );
    }
    place.fails(2, &["cancel", id, fork, "--if-seq", "1"]);
    let reason = ["cancel", id, fork, "--reason", "nobody is there"];
    assert!(place.text(&reason).contains("cancelled, with 0 descendants"));
    assert!(place.text(&["get", id]).contains("cancel_reason    nobody is there\n"));
    assert!(place.text(&["ls", "--status", "cancelled"]).contains("nobody is there"));
    assert_eq!(place.ended(&["result", id]), "cancelled: nobody is there\n");
    assert_eq!(place.text(&["retry", id, "--if-seq", "2"]), format!("{id} runs again\n"));
    place.text(&["cancel", id, "--if-seq", "3"]);
    assert_eq!(place.ended(&["result", id]), "cancelled\n");
}

#[test]
fn a_watch_shows_what_changes_until_the_instance_ends() {
    let place = Place::with_db().with_server();
    let id = place.json(&["start", "shop", "--step", "Open", "--even-if-unknown"])["id"].to_string();
    let url = &place.server.as_ref().expect("a server").url;
    let mut command = dormouse();
    command.args(["--server", url, "--json", "watch", &id]).stdout(Stdio::piped());
    let mut watch = command.spawn().expect("a watch");
    let mut lines = BufReader::new(watch.stdout.take().expect("its output")).lines();
    // It does not report when it starts watching, so make changes until it prints the first one.
    let told = std::thread::spawn(move || lines.next());
    while !told.is_finished() {
        place.text(&["cancel", &id]);
        let _ = place.run(&["retry", &id]);
    }
    let change: Value =
        serde_json::from_str(&told.join().expect("a thread").expect("a line").expect("text")).expect("JSON");
    assert_eq!(change["instance"].to_string(), id);
    let _ = watch.kill();
    let _ = watch.wait();
}

#[test]
fn mistakes_on_the_command_line_are_told_with_what_to_do() {
    let place = Place::with_db();
    for (code, args, told) in [
        (2, &["start", "shop", "--step", "s", "--state", "{"][..], "--state is not JSON"),
        (2, &["start", "shop", "--step", "s", "--state", "@missing.json"], "cannot be read"),
        (2, &["signal", "paid"], "--to"),
        (2, &["signal", "paid", "--where", "colour=red"], "is not one of machine, status"),
        (2, &["pause"], "required"),
        (2, &["nonsense"], "unrecognized"),
        (4, &["start", "shop"], "`step` is missing"),
        (4, &["ls", "--limit", "0"], "`limit` is 1 to 500"),
        (2, &["ls", "--status", "asleep"], "possible values"),
        (4, &["worker"], "has no machines"),
        (1, &["serve", "--bind", "0.0.0.0:0"], "create an API key"),
        (1, &["serve", "--auth", "keys", "--bind", "127.0.0.1:0"], "there is no live one"),
    ] {
        let error = place.fails(code, args);
        assert!(error.contains(told), "{args:?}: {error}");
    }
    let missing = run(&place.db.with_file_name("missing.db"), &["ls"]);
    assert_eq!(missing.status.code(), Some(6));
    assert!(!place.db.with_file_name("missing.db").exists(), "looking makes no database");
    for (url, code, told) in [
        ("http://127.0.0.1:1", 6, "cannot reach"),
        ("https://127.0.0.1:1", 6, "cannot reach https://"),
        ("ftp://x", 2, "write https://host or http://host:port"),
        ("https://me:secret@example.com", 2, "leave out the user and password"),
    ] {
        let output = dormouse().args(["--server", url, "ls"]).output().expect("a run");
        assert_eq!(output.status.code(), Some(code), "{url}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(told), "{url}");
    }
}

#[test]
fn with_api_keys_a_command_needs_one() {
    let place = Place::with_db();
    let made =
        place.json(&["--namespace", "acme", "keys", "create", "--label", "robot", "--scope", "operate"]);
    let server = serve(&place.db, &[]);
    let ask = |key: Option<&str>, args: &[&str]| {
        let mut command = dormouse();
        command.args(["--server", &server.url]).args(args);
        key.map(|key| command.env("DORMOUSE_API_KEY", key));
        command.output().expect("a run")
    };
    assert_eq!(ask(None, &["ls"]).status.code(), Some(5));
    let secret = made["secret"].as_str().expect("a secret");
    assert_eq!(
        ask(Some(secret), &["start", "shop", "--step", "s", "--even-if-unknown"]).status.code(),
        Some(0)
    );
    assert_eq!(ask(Some(secret), &["keys", "ls"]).status.code(), Some(5), "it is no admin");
    assert_eq!(place.json(&["ls"])["items"], json!([]), "it is in the key's namespace");
    assert_eq!(place.json(&["--namespace", "acme", "ls"])["items"].as_array().expect("items").len(), 1);
}

#[test]
fn a_server_that_is_told_to_stop_drains_and_exits_0() {
    let place = Place::with_db();
    let mut server = serve(&place.db, &[]);
    let killed =
        Command::new("kill").args(["-TERM", &server.process.id().to_string()]).status().expect("kill");
    assert!(killed.success());
    assert_eq!(server.process.wait().expect("its end").code(), Some(0));
}

/// Runs the commands of a page of the guide as they are written, in a new directory.
#[test]
#[cfg(unix)]
fn the_tour_of_the_guide_works_as_it_is_written() {
    let page = include_str!("../../../docs/guide/cli.md");
    let tour = page.split("```sh\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a tour");
    let dir = TempDir::new().expect("a directory");
    let binary = Path::new(env!("CARGO_BIN_EXE_dormouse"));
    let path = format!(
        "{}:{}",
        binary.parent().expect("a folder").display(),
        std::env::var("PATH").expect("a path")
    );
    for line in tour.lines() {
        let output = Command::new("sh")
            .args(["-c", line])
            .current_dir(dir.path())
            .env("PATH", &path)
            .output()
            .expect("a run");
        let told = String::from_utf8_lossy(&output.stderr);
        // `doctor` finds nothing in a database where nothing waits.
        assert!(output.status.success(), "{line}\n{told}");
    }
}

#[test]
fn the_exit_codes_of_the_guide_are_those_of_the_help() {
    let page = include_str!("../../../docs/guide/cli.md");
    let help = String::from_utf8(dormouse().arg("--help").output().expect("help").stdout).expect("text");
    let codes =
        help.split("Exit codes:").nth(1).expect("exit codes").lines().filter(|line| !line.trim().is_empty());
    for line in codes {
        let (code, meaning) = line.trim().split_once("  ").expect("a code and its meaning");
        assert!(page.contains(&format!("| {code} | {meaning} |")), "{line}");
    }
}

#[test]
fn keys_of_resume_tokens_that_cannot_be_used_are_told_and_not_shown() {
    let place = Place::with_db();
    for wrong in ["sesame", "k1:sesame!", "k1:c2VzYW1l"] {
        let serve =
            dormouse().arg("--db").arg(&place.db).arg("serve").env("DORMOUSE_RESUME_KEYS", wrong).output();
        let serve = serve.expect("a run");
        let told = String::from_utf8_lossy(&serve.stderr);
        assert_eq!(serve.status.code(), Some(2), "{told}");
        assert!(
            told.contains("DORMOUSE_RESUME_KEYS") && !told.contains("ses") && !told.contains("c2V"),
            "{told}"
        );
    }
}
