//! An upgrade under load: the program of an earlier commit and this one on one PostgreSQL, with the migration in between.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use crate::postgres::Database;
use crate::shop::{self, Shop, dormouse};
use crate::{Result, built, cargo, root, run, tools};

/// A new file here is a new schema version.
const MIGRATIONS: &str = "crates/dormouse/src/store/postgres/migrations/*.sql";
/// How many outcomes a process must commit in each phase.
const COMMITS: u64 = 100;
/// A process that takes longer to commit them is stuck.
const COMMITS_WITHIN: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// `cargo xtask upgrade`, from this commit or else from [`earlier`].
pub(crate) fn alone(pg_bin: Option<&Path>, from: Option<String>) -> Result {
    let from = from.map_or_else(earlier, Ok)?;
    test(&from, &Database::start(pg_bin)?)
}

/// What this program must run beside: the newest release or, before the first one, the commit before the newest migration.
/// An error says why it cannot be had.
pub(crate) fn earlier() -> Result<String> {
    let released = git_says(&["describe", "--tags", "--match=v*", "--abbrev=0", "HEAD^"]);
    if let Ok(tag) = released {
        return Ok(tag);
    }
    let added = git_says(&["log", "-1", "--format=%H", "--diff-filter=A", "--", MIGRATIONS])?;
    git_says(&["rev-parse", "--verify", "--quiet", &format!("{added}^")])
        .map_err(|_| "this clone does not have the commit before the newest migration".to_owned())
}

pub(crate) fn test(commit: &str, database: &Database) -> Result {
    let old = Program { path: built_from(commit)? };
    shop::build()?;
    let db = database.create("upgrade")?;
    run(old.command().args(["--db", &db, "migrate"]))?;
    let first = old.shop(&db)?;
    commits(&first, "the old program, before the migration")?;
    run(&mut dormouse(&["--db", &db, "migrate"]))?;
    let opened = old.command().args(["--db", &db, "--json", "stats"]).output();
    let opened = opened.map_err(|error| format!("cannot run the old program: {error}"))?;
    if !opened.status.success() {
        let told = String::from_utf8_lossy(&opened.stderr);
        // The second is for functions that changed without a new version, as between two commits.
        if !told.contains("upgrade the program") && !told.contains("with its own functions") {
            return Err(format!("the old program is refused, but not with what to do: {told}"));
        }
        println!("this version contracts the schema: the old program is refused, and says why: {told}");
        drop(first);
        return commits(&Shop::open(&db)?, "the new program, after the migration");
    }
    commits(&first, "the old program, after the migration")?;
    let new = Shop::open(&db)?;
    commits(&new, "the new program, beside the old one")?;
    commits(&first, "the old program, beside the new one")?;
    drop(first);
    let again = old.shop(&db)?;
    commits(&again, "the old program, started again on the newer schema")?;
    commits(&new, "the new program, after the old one was killed")?;
    drop(again);
    let checked = dormouse(&["--db", &db, "doctor"]).stdout(Stdio::null()).status();
    match checked.map_err(|error| format!("cannot run dormouse: {error}"))?.code() {
        Some(0 | 7) => Ok(()),
        code => Err(format!("`dormouse doctor` ended with {code:?} after the upgrade")),
    }
}

/// Waits until a process has committed as many outcomes again.
pub(crate) fn commits(shop: &Shop, who: &str) -> Result {
    let name = "dormouse_commits_total";
    let before = shop.counter(name)?;
    let started = Instant::now();
    while shop.counter(name)? < before + COMMITS {
        if started.elapsed() > COMMITS_WITHIN {
            return Err(format!("{who} did not commit {COMMITS} outcomes within {COMMITS_WITHIN:?}"));
        }
        thread::sleep(LOOK_EVERY);
    }
    println!("{who}: {COMMITS} outcomes in {:.1?}", started.elapsed());
    Ok(())
}

struct Program {
    path: PathBuf,
}

impl Program {
    fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.env_remove("RUST_LOG").current_dir(root().join("target"));
        command
    }

    fn shop(&self, db: &str) -> Result<Shop> {
        Shop::run_by(self.command(), db)
    }
}

/// The program of a commit, which is built once and kept. It shares what was built of other crates; its own ones are
/// elsewhere in its source than ours, as cargo would otherwise take them for ours, which have the same names.
pub(crate) fn built_from(commit: &str) -> Result<PathBuf> {
    let home = root().join("target/upgrade");
    let kept = home.join(format!("dormouse-{commit}"));
    if kept.exists() {
        return Ok(kept);
    }
    let source = home.join("source");
    let _ = fs::remove_dir_all(&source);
    fs::create_dir_all(&source).map_err(|error| format!("cannot make {}: {error}", source.display()))?;
    let archive = home.join("source.tar");
    run(git(&["archive", "--format=tar", commit, "--output"]).arg(&archive))?;
    run(Command::new("tar").arg("-xf").arg(&archive).arg("-C").arg(&source))?;
    let moved = fs::rename(source.join("crates"), source.join("earlier"));
    moved.map_err(|error| format!("cannot move the crates of {commit}: {error}"))?;
    let manifest = source.join("Cargo.toml");
    tools::write(&manifest, &tools::read(&manifest)?.replace("\"crates/", "\"earlier/"))?;
    // The packages and features of the tests' build, without the task runner, which runs.
    let packages = "--package dormouse --package dormouse-server --all-features --bins";
    let mut build = cargo(&format!("build --locked {packages} --target-dir target"));
    run(build.arg("--manifest-path").arg(&manifest))?;
    let made = PathBuf::from(built("dormouse").get_program());
    fs::copy(&made, &kept).map_err(|error| format!("cannot keep {}: {error}", kept.display()))?;
    // Cargo puts ours back, which is not built again.
    shop::build()?;
    Ok(kept)
}

fn git(args: &[&str]) -> Command {
    let mut command = Command::new("git");
    command.args(args).current_dir(root());
    command
}

/// The one line that it prints.
fn git_says(args: &[&str]) -> Result<String> {
    let told =
        git(args).stderr(Stdio::null()).output().map_err(|error| format!("cannot run git: {error}"))?;
    let line = String::from_utf8_lossy(&told.stdout).trim().to_owned();
    if told.status.success() && !line.is_empty() {
        Ok(line)
    } else {
        Err(format!("`git {}` found nothing", args.join(" ")))
    }
}
