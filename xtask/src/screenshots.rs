//! `cargo xtask screenshots`: pictures of every page of the dashboard, with the demo shop.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use crate::shop::{self, Shop, dormouse};
use crate::{Result, browser, root, run_within};

const PICTURES: &str = "docs/screenshots";
/// How long the shop runs before the pictures: its charts show the last minutes.
const BUSY_FOR: Duration = Duration::from_secs(75);
/// How long to wait until there is something to show on a page.
const SHOWN_WITHIN: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(200);
const PICTURE_MAX: Duration = Duration::from_secs(60);

#[derive(Clone, Copy)]
enum Theme {
    Light,
    Dark,
}

pub(crate) fn make() -> Result {
    browser::require()?;
    shop::build()?;
    let dir = root().join("target/screenshots").join(std::process::id().to_string());
    let unmade = |error| format!("cannot make {}: {error}", dir.display());
    fs::create_dir_all(&dir).map_err(unmade)?;
    fs::create_dir_all(root().join(PICTURES)).map_err(unmade)?;
    let made = picture_all(&dir);
    // Leftovers are removed with the rest of `target`.
    let _ = fs::remove_dir_all(&dir);
    made
}

fn picture_all(dir: &Path) -> Result {
    let shop = Shop::open(&format!("sqlite:{}", dir.join("shop.db").display()))?;
    println!("The shop runs for {BUSY_FOR:?} first, so that there is something to see.");
    thread::sleep(BUSY_FOR);
    let order = first(&shop, &["ls", "--machine", "order", "--status", "done", "--limit", "1"])?;
    let failed = first(&shop, &["ls", "--status", "failed", "--limit", "1"])?;
    let question = first(&shop, &["interactions", "ls", "--status", "pending", "--limit", "1"])?;
    for change in
        [&["pause", "--queue", "warehouse"][..], &["resume", "--queue", "warehouse"], &["retry", &failed]]
    {
        // For the audit log, which also records whether it succeeded.
        let _ = dormouse(&["--server", &shop.url]).args(change).output();
    }
    let pages = [
        ("overview", "/".to_owned(), 900),
        // A long list makes a large picture.
        ("instances", "/instances".to_owned(), 600),
        ("instance", format!("/instances/{order}"), 900),
        ("fork", format!("/instances/{order}/fork?seq=1"), 800),
        ("bulk", "/instances/bulk?which=all&verb=cancel&status=awaiting_signal".to_owned(), 600),
        ("waiting", "/waiting".to_owned(), 600),
        ("inbox", "/inbox".to_owned(), 600),
        ("question", format!("/inbox/{question}"), 800),
        ("machines", "/machines".to_owned(), 600),
        ("machine", "/machines/order".to_owned(), 1000),
        ("queues", "/queues".to_owned(), 600),
        ("workers", "/workers".to_owned(), 600),
        ("timeline", format!("/instances/{order}/timeline"), 600),
        ("moment", format!("/instances/{order}/at?seq=4"), 800),
        ("start", "/start?machine=order".to_owned(), 700),
        ("schedules", "/schedules".to_owned(), 600),
        ("limits", "/limits".to_owned(), 600),
        ("transports", "/transports".to_owned(), 600),
        ("keys", "/keys".to_owned(), 600),
        ("retention", "/retention".to_owned(), 600),
        ("audit", "/audit".to_owned(), 600),
    ];
    for (name, path, height) in &pages {
        let url = format!("{}{path}", shop.url);
        picture(dir, &url, *height, &format!("{name}.png"), Theme::Light)?;
        if ["overview", "instance"].contains(name) {
            picture(dir, &url, *height, &format!("{name}-dark.png"), Theme::Dark)?;
        }
    }
    Ok(())
}

/// The id of the first row that a command lists, as soon as it lists one.
fn first(shop: &Shop, args: &[&str]) -> Result<String> {
    let started = Instant::now();
    while started.elapsed() < SHOWN_WITHIN {
        let listed = dormouse(&["--server", &shop.url, "--json"]).args(args).output();
        let listed = listed.map_err(|error| format!("cannot run dormouse: {error}"))?;
        let text = String::from_utf8_lossy(&listed.stdout);
        if let Some((_, after)) = text.split_once("\"id\":") {
            return Ok(after.trim_start().chars().take_while(char::is_ascii_digit).collect());
        }
        thread::sleep(LOOK_EVERY);
    }
    Err(format!("`dormouse {}` listed nothing within {SHOWN_WITHIN:?}", args.join(" ")))
}

fn picture(dir: &Path, url: &str, height: u32, name: &str, theme: Theme) -> Result {
    let file: PathBuf = root().join(PICTURES).join(name);
    let mut chromium = Command::new("chromium");
    chromium.args([
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--hide-scrollbars",
    ]);
    chromium.arg(format!("--window-size=1280,{height}"));
    chromium.arg(format!("--user-data-dir={}", dir.join("profile").display()));
    chromium.arg(format!(
        "--blink-settings=preferredColorScheme={}",
        match theme {
            Theme::Dark => 0,
            Theme::Light => 1,
        }
    ));
    chromium.arg(format!("--screenshot={}", file.display())).arg(url).stderr(Stdio::null());
    run_within(PICTURE_MAX, &mut chromium)?;
    println!("{PICTURES}/{name}: {url}");
    Ok(())
}
