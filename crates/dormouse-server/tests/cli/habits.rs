//! What people expect of a command line without reading its guide.

use std::net::TcpListener;

use super::*;

#[test]
fn alone_it_prints_its_help_and_makes_nothing() {
    let dir = TempDir::new().expect("a directory");
    let output = dormouse().current_dir(dir.path()).output().expect("a run");
    let told = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success() && told.contains("Usage: dormouse"), "{told}");
    assert_eq!(std::fs::read_dir(dir.path()).expect("a directory").count(), 0, "it made a file");
}

#[test]
fn what_has_ended_is_neither_watched_nor_waited_for() {
    for place in [Place::with_db(), Place::with_db().with_server()] {
        place.json(&["start", "shop", "--step", "Open", "--key", "o:1", "--even-if-unknown"]);
        place.text(&["signal", "paid", "{\"cents\":1}", "--to", "o:1"]);
        place.text(&["cancel", "o:1", "--reason", "first line\nsecond line"]);
        let watched = place.json(&["watch", "o:1"]);
        assert_eq!((&watched["kind"], &watched["key"]), (&json!("cancelled"), &json!("o:1")));
        assert!(place.text(&["watch", "o:1"]).contains("cancelled at Open"));
        for wait in [&["result", "o:1"][..], &["result", "o:1", "--wait", "3h"]] {
            let output = place.run(wait);
            assert_eq!(output.status.code(), Some(1), "a script must not go on: {wait:?}");
            let told = String::from_utf8(output.stdout).expect("text");
            assert_eq!(told, "cancelled: first line\nsecond line\n");
        }
        assert!(place.text(&["explain", "o:1"]).contains("first line\nsecond line"));
        assert_eq!(place.json(&["get", "o:1"])["inbox"], 1);
        let inbox = place.json(&["inbox", "o:1"]);
        assert_eq!(inbox["items"].as_array().expect("items").len(), 1, "`get` and `inbox` agree: {inbox}");
    }
}

#[test]
fn a_wait_that_is_longer_than_a_request_may_be_is_asked_again() {
    let place = Place::with_db();
    place.json(&["start", "shop", "--step", "Open", "--key", "o:1", "--even-if-unknown"]);
    place.fails(2, &["result", "o:1", "--wait", "soon"]);
    assert_eq!(place.run(&["result", "o:1", "--wait", "50ms"]).status.code(), Some(7));
    let mut waits = dormouse();
    let mut waits =
        waits.arg("--db").arg(&place.db).args(["result", "o:1", "--wait", "2h"]).spawn().expect("a run");
    place.text(&["cancel", "o:1"]);
    assert_eq!(waits.wait().expect("its end").code(), Some(1));
}

#[test]
fn a_mistyped_path_is_no_new_database() {
    let dir = TempDir::new().expect("a directory");
    let db = dir.path().join("nofile.db");
    for command in ["serve", "worker"] {
        let output = run(&db, &[command]);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(6), "{told}");
        assert!(told.contains("there is no database") && told.contains("--create"), "{told}");
    }
    assert!(!db.exists());
    drop(serve(&db, &["--create"]));
    assert!(db.exists());
}

#[test]
fn a_busy_port_names_the_option_for_another() {
    let place = Place::with_db();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("its address").to_string();
    let told = place.fails(1, &["serve", "--bind", &address]);
    assert!(told.contains("--bind") && told.contains(&address), "{told}");
    let dev = dormouse().env("DORMOUSE_BIND", &address).arg("--db").arg(&place.db).arg("dev").output();
    assert!(String::from_utf8_lossy(&dev.expect("a run").stderr).contains(&address), "`dev` has it too");
}

#[test]
fn instances_are_listed_since_a_moment() {
    let place = Place::with_db();
    place.json(&["start", "shop", "--step", "Open", "--even-if-unknown"]);
    let listed =
        |since: &str| place.json(&["ls", "--since", since])["items"].as_array().expect("items").len();
    assert_eq!([listed("1h"), listed("2000-01-01T00:00:00Z"), listed("2999-01-01T00:00:00Z")], [1, 1, 0]);
    let told = place.fails(2, &["ls", "--since", "yesterday"]);
    assert!(told.contains("such as 30s or 1h30m") && told.contains("2030-01-01T12:00:00Z"), "{told}");
}

#[test]
fn values_are_completed_and_wrong_ones_are_mistakes_of_the_command_line() {
    let place = Place::with_db();
    assert!(place.text(&["completions", "bash"]).contains("awaiting_signal"));
    for args in [["ls", "--status"], ["interactions", "ls"]] {
        let args = [&args[..], if args[0] == "ls" { &["asleep"] } else { &["--status", "asleep"] }].concat();
        let told = place.fails(2, &args);
        assert!(told.contains("possible values"), "{told}");
    }
}

#[test]
fn what_a_server_refuses_says_what_to_do_here() {
    let place = Place::with_db();
    place.json(&["keys", "create", "--label", "robot", "--scope", "read"]);
    let server = serve(&place.db, &[]);
    let ask = |url: &str, key: &str| {
        let output = dormouse().args(["--server", url, "ls"]).env("DORMOUSE_API_KEY", key).output();
        let output = output.expect("a run");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for key in ["", "dmk_wrong"] {
        let (code, told) = ask(&server.url, key);
        assert!(code == Some(5) && told.contains("DORMOUSE_API_KEY"), "{told}");
    }
    let (code, told) = ask(&format!("{}/elsewhere", server.url), "");
    assert!(code == Some(6) && told.contains("/elsewhere"), "{code:?}: {told}");
}
