//! `cargo xtask docs`: the guide as a site, by mdBook.

use std::fs;
use std::process::Command;

use crate::{Result, root, run, tools};

/// Where the site is written.
const BOOK: &str = "target/book";
const GUIDE: &str = "docs/guide";
const MDBOOK: &str = "--version 0.5.4 --no-default-features --features search";

const SETTINGS: &str = "\
[book]
title = \"dormouse\"
description = \"Durable state machines that sleep until something happens\"
language = \"en\"

[build]
build-dir = \"site\"
";

pub(crate) fn make() -> Result {
    let mdbook = tools::installed_or_built("mdbook", MDBOOK)?;
    let home = root().join(BOOK);
    let pages = home.join("src");
    // What is no page any more must not stay.
    let _ = fs::remove_dir_all(&home);
    fs::create_dir_all(&pages).map_err(|error| format!("cannot make {}: {error}", pages.display()))?;
    tools::write(&home.join("book.toml"), SETTINGS)?;
    let guide = root().join(GUIDE);
    let index = tools::read(&guide.join("README.md"))?;
    tools::write(&pages.join("SUMMARY.md"), &summary(&index))?;
    let listed = fs::read_dir(&guide).map_err(|error| format!("cannot list {GUIDE}: {error}"))?;
    for entry in listed {
        let page = entry.map_err(|error| error.to_string())?.path();
        let name = page.file_name().unwrap_or_default();
        tools::write(&pages.join(name), &inside(&tools::read(&page)?))?;
    }
    run(Command::new(mdbook).arg("build").arg(&home))?;
    println!("the guide is in {BOOK}/site/index.html");
    Ok(())
}

/// mdBook's table of contents: the links of the guide's first page, in its order.
fn summary(index: &str) -> String {
    let entries = index.lines().filter_map(|line| {
        let (_, entry) = line.split_once(". [").or_else(|| line.split_once("- ["))?;
        let (title, rest) = entry.split_once("](")?;
        let (file, _) = rest.split_once(')')?;
        Some(format!("- [{title}]({file})\n"))
    });
    let entries: String = entries.collect();
    format!("# Summary\n\n[The guide](README.md)\n\n{entries}")
}

/// A page whose links out of the guide are plain text: the site has the guide alone.
fn inside(page: &str) -> String {
    let mut text = String::new();
    let mut rest = page;
    while let Some((before, after)) = rest.split_once("](../") {
        let Some((open, (_, behind))) = before.rfind('[').zip(after.split_once(')')) else { break };
        text.push_str(&before[..open]);
        text.push_str(&before[open + 1..]);
        rest = behind;
    }
    text.push_str(rest);
    text
}
