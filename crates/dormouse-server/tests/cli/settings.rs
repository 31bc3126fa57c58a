//! Settings from a file, the environment and flags.

use serde_json::Value;
use tempfile::TempDir;

use super::dormouse;

/// What `config` says of each setting, in a directory with this `dormouse.toml`.
fn settings(dir: &TempDir, environment: &[(&str, &str)], args: &[&str]) -> Value {
    let mut command = dormouse();
    command.current_dir(dir.path()).args(["--json", "config"]).args(args).envs(environment.iter().copied());
    let output = command.output().expect("a run");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[track_caller]
fn is(settings: &Value, name: &str, value: &str, from: &str) {
    let setting =
        settings["settings"].as_array().expect("a list").iter().find(|setting| setting["name"] == name);
    let setting = setting.expect("it is listed");
    assert_eq!((setting["value"].as_str(), setting["from"].as_str()), (Some(value), Some(from)), "{name}");
}

fn with_file(text: &str) -> TempDir {
    let dir = TempDir::new().expect("a directory");
    std::fs::write(dir.path().join("dormouse.toml"), text).expect("a file");
    dir
}

#[test]
fn config_shows_each_setting_with_where_it_comes_from() {
    let dir = with_file("db = 'shop.db'\n[serve]\nbind = '127.0.0.1:1'\nwaits_max = 7\n");
    let environment = [("DORMOUSE_BIND", "127.0.0.1:2"), ("DORMOUSE_RESUME_KEYS", "hunter2")];
    let shown = settings(&dir, &environment, &["--streams-max", "9"]);
    is(&shown, "db", "shop.db", "dormouse.toml");
    is(&shown, "serve.bind", "127.0.0.1:2", "DORMOUSE_BIND");
    is(&shown, "serve.waits_max", "7", "dormouse.toml");
    is(&shown, "serve.streams_max", "9", "command line");
    is(&shown, "worker.lease", "15s", "default");
    is(&shown, "resume_keys", "(hidden)", "DORMOUSE_RESUME_KEYS");
    assert!(!shown.to_string().contains("hunter2"));
}

#[test]
fn every_command_goes_by_the_file() {
    let dir = with_file("db = 'shop.db'\n");
    let run = |args: &[&str]| dormouse().current_dir(dir.path()).args(args).output().expect("a run");
    assert!(run(&["migrate"]).status.success());
    assert!(dir.path().join("shop.db").exists());
    assert!(run(&["ls"]).status.success());
    let elsewhere = TempDir::new().expect("a directory");
    let named = dir.path().join("dormouse.toml");
    let mut command = dormouse();
    command.current_dir(elsewhere.path()).arg("--config").arg(&named).args(["--db", "other.db", "ls"]);
    let told = command.output().expect("a run");
    assert!(String::from_utf8_lossy(&told.stderr).contains("there is no database other.db"), "a flag wins");
}

#[test]
fn the_demo_listens_where_the_file_says_and_lets_in_whom_it_says() {
    let open = with_file("[serve]\nbind = '0.0.0.0:1'\n");
    let closed = with_file("[serve]\nauth = 'keys'\n");
    for (dir, expected) in
        [(open, "0.0.0.0:1 can be reached from other hosts"), (closed, "API keys are required")]
    {
        let output = dormouse().current_dir(dir.path()).arg("dev").output().expect("a run");
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && told.contains(expected), "{told}");
    }
}

#[test]
fn a_mistake_in_the_file_stops_every_command() {
    let dir = with_file("[serve]\nbnd = '127.0.0.1:1'\n");
    for args in [&["serve"][..], &["ls"], &["config"], &["dev"]] {
        let output = dormouse().current_dir(dir.path()).args(args).output().expect("a run");
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {told}");
        let expected = "dormouse.toml: there is no setting \"serve.bnd\"; the nearest is serve.bind";
        assert!(told.contains(expected), "{args:?}: {told}");
    }
    assert!(!dir.path().join("dormouse.db").exists(), "nothing was made");
}
