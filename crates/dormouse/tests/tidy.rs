//! The rules of the layout that a compiler does not check.

use std::collections::{BTreeSet, HashMap};
use std::iter::Peekable;
use std::path::{Path, PathBuf};
use std::str::Chars;

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
        for (driver, store) in [("rusqlite", "/store/sqlite"), ("sqlx", "/store/postgres")] {
            let names_it = code(&text).contains(&format!("{driver}::"));
            assert!(is_under(&path, store) || !names_it, "{} names {driver}", path.display());
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

/// The groups of the layout, by path under `src`, and the groups that each may name. The longest path counts.
const GROUPS: [(&str, &str); 18] = [
    ("", "nouns"),
    ("rules", "rules"),
    ("check", "check"),
    ("store", "seam"),
    ("poke", "seam"),
    ("store/sqlite", "sqlite"),
    ("store/postgres", "postgres"),
    ("client", "client"),
    ("diff", "client"),
    ("explain", "client"),
    ("transport", "transport"),
    ("transport/envelope", "nouns"),
    ("engine", "engine"),
    // What joins a client or an engine to one store, and so names both.
    ("open", "joints"),
    ("client/within", "joints"),
    ("testing", "joints"),
    ("lib", "joints"),
    ("prelude", "joints"),
];

/// Which groups a group may name besides itself: nouns <- rules <- seam <- stores; seam <- client <- transport <- engine.
fn may_name(group: &str) -> &'static [&'static str] {
    match group {
        "nouns" => &[],
        "rules" => &["nouns"],
        "check" | "seam" => &["nouns", "rules"],
        "sqlite" | "postgres" => &["nouns", "rules", "seam"],
        "client" => &["nouns", "rules", "check", "seam"],
        "transport" => &["nouns", "rules", "seam", "client"],
        "engine" => &["nouns", "rules", "seam", "client", "transport"],
        "joints" => {
            &["nouns", "rules", "check", "seam", "sqlite", "postgres", "client", "transport", "engine"]
        }
        other => panic!("there is no group {other:?}"),
    }
}

fn group_of(module: &[String]) -> &'static str {
    let path = module.join("/");
    let is_in = |prefix: &str| {
        prefix.is_empty() || path == prefix || path.strip_prefix(prefix).is_some_and(|p| p.starts_with('/'))
    };
    let found = GROUPS.iter().filter(|(prefix, _)| is_in(prefix)).max_by_key(|(prefix, _)| prefix.len());
    found.expect("every path is in a group").1
}

/// A file's code without its comments and its tests, which may name anything.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]").next().unwrap_or_default();
    let line = |line: &str| line.split("//").next().unwrap_or_default().to_owned();
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// Every path in some code that starts with `crate`, `self` or `super`, with the trees of `use` taken apart.
fn paths(code: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for root in ["crate::", "self::", "super::"] {
        for (at, _) in code.match_indices(root) {
            let before = code[..at].chars().next_back();
            if !before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':') {
                tree(&mut code[at..].chars().peekable(), &mut Vec::new(), &mut found);
            }
        }
    }
    found
}

/// Reads one path of names, or a tree of them in braces, under a stem.
fn tree(text: &mut Peekable<Chars<'_>>, stem: &mut Vec<String>, found: &mut Vec<Vec<String>>) {
    let depth = stem.len();
    loop {
        while text.next_if(|c| c.is_whitespace()).is_some() {}
        if text.next_if_eq(&'{').is_some() {
            loop {
                tree(text, stem, found);
                while text.next_if(|c| c.is_whitespace()).is_some() {}
                match text.next() {
                    Some(',') => {}
                    // `as another_name`, or the end of the braces.
                    Some('}') | None => break,
                    Some(_) => while text.next_if(|c| !matches!(c, ',' | '}')).is_some() {},
                }
            }
            break;
        }
        let mut name = String::new();
        while let Some(c) = text.next_if(|c| c.is_alphanumeric() || *c == '_') {
            name.push(c);
        }
        if name.is_empty() {
            break;
        }
        stem.push(name);
        if !(text.next_if_eq(&':').is_some() && text.next_if_eq(&':').is_some()) {
            found.push(stem.clone());
            break;
        }
    }
    stem.truncate(depth);
}

/// The module that a file is, as a path under `src`.
fn module_of(path: &Path) -> Vec<String> {
    let under = path.with_extension("");
    let under = under.to_string_lossy();
    let (_, under) = under.rsplit_once("/src/").expect("a file under src");
    under.split('/').map(str::to_owned).collect()
}

/// What a path names from `crate` on: names that the root re-exports are followed to where they are.
fn resolved(path: &[String], module: &[String], exports: &HashMap<String, Vec<String>>) -> Vec<String> {
    let ups = path.iter().take_while(|name| *name == "super").count();
    let (mut base, rest) = match path[0].as_str() {
        "crate" => (Vec::new(), &path[1..]),
        "self" => (module.to_vec(), &path[1..]),
        _ => (module[..module.len().saturating_sub(ups)].to_vec(), &path[ups..]),
    };
    if let ([], Some(exported)) = (base.as_slice(), rest.first().and_then(|name| exports.get(name))) {
        return exported.clone();
    }
    base.extend(rest.iter().cloned());
    base
}

#[test]
fn dependencies_point_one_way() {
    let files = sources("src");
    let rust = || files.iter().filter(|(path, _)| path.extension().is_some_and(|kind| kind == "rs"));
    let (_, root) = rust().find(|(path, _)| path.ends_with("src/lib.rs")).expect("the root");
    let exported =
        paths(&code(root)).into_iter().map(|path| (path.last().unwrap().clone(), path[1..].to_vec()));
    // Modules win over what has their name: `crate::client` is not what it exports.
    let exports: HashMap<_, _> = exported.filter(|(name, path)| *name != path[0] && path.len() > 1).collect();
    assert_eq!(exports["Client"], ["client", "Client"], "the root's exports are read");
    let mut wrong = BTreeSet::new();
    let mut seen = 0;
    for (path, text) in rust() {
        let module = module_of(path);
        let group = group_of(&module);
        for named in paths(&code(text)) {
            let target = resolved(&named, &module, &exports);
            let other = group_of(&target);
            seen += 1;
            if other != group && !may_name(group).contains(&other) {
                wrong.insert(format!("{} ({group}) names {} ({other})", module.join("/"), target.join("::")));
            }
        }
    }
    assert!(seen > 500, "paths are found: {seen}");
    assert!(wrong.is_empty(), "{}", wrong.into_iter().collect::<Vec<_>>().join("\n"));
}

#[test]
fn a_path_against_the_direction_is_seen_however_it_is_written() {
    let of = |code: &str| {
        let module = ["context".to_owned(), "behind".to_owned()];
        let resolve = |path: Vec<String>| group_of(&resolved(&path, &module, &HashMap::new()));
        paths(code).into_iter().map(resolve).collect::<Vec<_>>()
    };
    assert_eq!(
        of("use crate::{Json, store::{Rider, sqlite::{self, InCommit as _}}};"),
        ["nouns", "seam", "sqlite", "sqlite"]
    );
    assert_eq!(of("fn f(of: &crate::engine::Engine) {}"), ["engine"]);
    assert_eq!(of("use super::super::client::Client;\nuse super::Own;"), ["client", "nouns"]);
    assert_eq!(of("pub(crate) use self::here;"), ["nouns"]);
}
