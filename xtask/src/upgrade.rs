//! An upgrade under load: the program of an earlier commit and this one on one PostgreSQL, with the migration in between.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use crate::postgres::Database;
use crate::shop::{self, Shop, dormouse};
use crate::{Result, cargo, root, run, tools};

/// The commit, or later the release, that this one must run beside.
const FROM: &str = "xtask/upgrade-from";
/// What a database is made of: as long as it is the same, there is nothing to upgrade.
const STORE: &str = ":(glob)crates/dormouse/src/store/postgres/**/*.sql";
/// How many outcomes a process must commit in each phase.
const COMMITS: u64 = 100;
/// A process that takes longer to commit them is stuck.
const COMMITS_WITHIN: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// `cargo xtask upgrade`.
pub(crate) fn alone(pg_bin: Option<&Path>) -> Result {
    match earlier()? {
        Some(commit) => test(&commit, &Database::start(pg_bin)?),
        None => {
            println!("the store is as it was: there is nothing to upgrade");
            Ok(())
        }
    }
}

/// The earlier commit, if the store has changed since, or why it cannot be had.
pub(crate) fn earlier() -> Result<Option<String>> {
    let commit = tools::read(&root().join(FROM))?.trim().to_owned();
    let is_there = git(&["cat-file", "-e", &format!("{commit}^{{commit}}")]).stderr(Stdio::null()).status();
    if !is_there.is_ok_and(|status| status.success()) {
        return Err(format!("this clone does not have the commit {commit} to upgrade from"));
    }
    let unchanged = git(&["diff", "--quiet", &commit, "--", STORE]).status();
    let unchanged = unchanged.map_err(|error| format!("cannot run git: {error}"))?.success();
    Ok((!unchanged).then_some(commit))
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
fn commits(shop: &Shop, who: &str) -> Result {
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

/// Whether the program of a commit was built before.
pub(crate) fn is_built(commit: &str) -> bool {
    kept(commit).exists()
}

fn kept(commit: &str) -> PathBuf {
    root().join("target/upgrade").join(format!("dormouse-{commit}"))
}

/// The program of a commit, which is built once and kept. It has a target directory of its own: in ours, cargo would take
/// its crates for those of this commit, because they have the same names.
fn built_from(commit: &str) -> Result<PathBuf> {
    let (home, kept) = (root().join("target/upgrade"), kept(commit));
    if kept.exists() {
        return Ok(kept);
    }
    let source = home.join("source");
    let _ = fs::remove_dir_all(&source);
    fs::create_dir_all(&source).map_err(|error| format!("cannot make {}: {error}", source.display()))?;
    let archive = home.join("source.tar");
    run(git(&["archive", "--format=tar", commit, "--output"]).arg(&archive))?;
    run(Command::new("tar").arg("-xf").arg(&archive).arg("-C").arg(&source))?;
    let mut build =
        cargo("build --locked --package dormouse-server --bins --target-dir target/upgrade/target");
    run(build.arg("--manifest-path").arg(source.join("Cargo.toml")))?;
    let made = home.join("target/debug").join(format!("dormouse{}", std::env::consts::EXE_SUFFIX));
    fs::copy(&made, &kept).map_err(|error| format!("cannot keep {}: {error}", kept.display()))?;
    Ok(kept)
}

fn git(args: &[&str]) -> Command {
    let mut command = Command::new("git");
    command.args(args).current_dir(root());
    command
}
