//! The rules of the layout that a compiler does not check.

use std::path::{Path, PathBuf};

/// Lines that a source file may have; a longer one wants to be two.
const FILE_LINES_MAX: usize = 500;

fn sources(under: &str) -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(under);
    let mut files = Vec::new();
    let mut folders = vec![root];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs" || extension == "sql") {
                let text = std::fs::read_to_string(&path).expect("a text file");
                files.push((path, text));
            }
        }
    }
    assert!(!files.is_empty());
    files
}

fn is_under(path: &Path, part: &str) -> bool {
    path.to_string_lossy().contains(part)
}

#[test]
fn no_driver_type_is_named_above_the_stores() {
    for (path, text) in sources("src") {
        let in_a_store = is_under(&path, "/store/sqlite");
        assert!(in_a_store || !text.contains("rusqlite::"), "{} names the driver", path.display());
    }
}

#[test]
fn the_stores_know_nothing_of_the_engine_or_the_client() {
    for (path, text) in sources("src").iter().filter(|(path, _)| is_under(path, "/store")) {
        for word in ["crate::engine", "crate::client", "Engine,", "Client,"] {
            assert!(!text.contains(word), "{} names {word}", path.display());
        }
    }
}

#[test]
fn there_is_no_sql_in_the_server() {
    for (path, text) in sources("../dormouse-server/src") {
        for word in ["rusqlite", "select ", "insert into", "update instances"] {
            assert!(!text.contains(word), "{} holds {word:?}", path.display());
        }
    }
}

#[test]
fn nothing_is_unbounded_left_open_or_too_long() {
    for (path, text) in sources("src").into_iter().chain(sources("../dormouse-server/src")) {
        for word in ["unbounded_channel", "todo!", "unimplemented!", "allow(dead_code", "TODO", "FIXME"] {
            assert!(!text.contains(word), "{} holds {word}", path.display());
        }
        let lines = text.lines().count();
        assert!(lines <= FILE_LINES_MAX, "{} has {lines} lines", path.display());
    }
}

#[test]
fn time_comes_in_through_the_clock() {
    for (path, text) in sources("src") {
        let is_the_clock = is_under(&path, "/clock.rs");
        assert!(is_the_clock || !text.contains("Timestamp::now()"), "{} reads the clock", path.display());
    }
}

#[test]
fn no_hot_statement_has_a_returning_clause() {
    let hot = [
        "insert.sql",
        "deliver.sql",
        "claim_take.sql",
        "commit_next.sql",
        "save.sql",
        "record.sql",
        "join.sql",
    ];
    for (path, text) in sources("src/store/sqlite") {
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        let statement = text.lines().filter(|line| !line.starts_with("--")).collect::<String>();
        assert!(!hot.contains(&name.as_str()) || !statement.contains("returning"), "{name}");
    }
}
