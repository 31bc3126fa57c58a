//! What the documentation says is what the code does: its code runs, its links lead somewhere.

use std::fs;
use std::path::{Path, PathBuf};

/// The first machine, as both README files show it.
mod first_machine {
    include!("docs/first_machine.rs");

    #[test]
    fn it_runs() {
        let dir = tempfile::tempdir().expect("a directory");
        // It opens a file in the current directory. No other test of this binary depends on that one.
        std::env::set_current_dir(dir.path()).expect("a way there");
        main().expect("the first machine runs to its end");
    }
}

#[test]
fn the_first_machine_is_the_same_everywhere_and_under_40_lines() {
    let code = include_str!("docs/first_machine.rs");
    assert!(code.lines().count() < 40, "{} lines", code.lines().count());
    for readme in ["README.md", "crates/dormouse/README.md"] {
        assert_eq!(first_rust_block(&read(&root().join(readme))), code, "in {readme}");
    }
}

#[test]
fn every_relative_link_leads_to_a_file() {
    let pages = pages();
    assert!(pages.len() > 20, "only {} pages were found", pages.len());
    let mut broken = Vec::new();
    for page in pages {
        for link in links(&read(&page)) {
            let file = link.split('#').next().expect("a first part");
            let is_relative = !link.contains("://") && !file.is_empty();
            if is_relative && !page.parent().expect("a folder").join(file).exists() {
                broken.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "broken links:\n{}", broken.join("\n"));
}

#[test]
fn every_page_of_the_guide_is_compiled_and_linked() {
    let lib = read(&root().join("crates/dormouse/src/lib.rs"));
    let index = read(&root().join("docs/guide/README.md"));
    for page in markdown_in(&root().join("docs/guide")) {
        let name = page.file_name().expect("a name").to_string_lossy().into_owned();
        assert!(lib.contains(&format!("docs/guide/{name}")), "lib.rs does not include {name}");
        assert!(name == "README.md" || index.contains(&format!("({name})")), "{name} is not linked");
    }
}

#[test]
fn every_example_says_what_it_shows_and_is_under_150_lines() {
    let examples = root().join("crates/dormouse/examples");
    for example in fs::read_dir(&examples).expect("the examples").map(|entry| entry.expect("a file").path()) {
        let code = read(&example);
        assert!(code.starts_with("//! "), "{} has no header", example.display());
        assert!(code.lines().count() < 150, "{} is too long", example.display());
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Every page that a reader can come to.
fn pages() -> Vec<PathBuf> {
    let root = root();
    let mut pages: Vec<_> = ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "crates/dormouse/README.md"]
        .map(|page| root.join(page))
        .into();
    for folder in ["docs", "docs/guide", "docs/decisions"] {
        pages.extend(markdown_in(&root.join(folder)));
    }
    pages
}

fn markdown_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    entries
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .collect()
}

fn first_rust_block(page: &str) -> &str {
    let (_, after) = page.split_once("```rust").expect("a block of Rust");
    let (_, code) = after.split_once('\n').expect("a line after the fence");
    code.split_once("```").expect("an end of the block").0
}

/// The targets of a page's links, outside its blocks of code.
fn links(page: &str) -> Vec<&str> {
    let mut links = Vec::new();
    let mut is_code = false;
    for line in page.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        }
        if !is_code {
            let parts = line.split("](").skip(1);
            links.extend(parts.filter_map(|part| Some(part.split_once(')')?.0)));
        }
    }
    links
}
