//! The directory of one server: its lock, its log and its data.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::Result;
use crate::account::Account;

/// Locked for as long as the directory is in use: the system unlocks it when the process ends, however it ends. Nothing
/// else may use this name, because everything beside an unlocked file is removed.
const LOCK: &str = "private-postgres.lock";
const LOG: &str = "log";
const DATA: &str = "data";

/// How long to wait for a lock that a sweep may hold for a moment.
const LOCK_MAX: Duration = Duration::from_secs(2);
/// How long to keep removing files that an ending server still writes.
const REMOVE_MAX: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(20);

/// Removed when dropped, except for the log if a test has failed.
pub(crate) struct Home {
    dir: PathBuf,
    data: PathBuf,
    pub(crate) account: Account,
    _lock: File,
}

impl Home {
    /// Locks `dir` for the caller, and removes what killed processes left in it and beside it.
    pub(crate) fn claim(dir: &Path) -> Result<Home> {
        let account = Account::unprivileged()?;
        let dir = std::path::absolute(dir).map_err(failed("use", dir))?;
        if dir.join(DATA).exists() && !dir.join(LOCK).exists() {
            return Err(format!("{} contains data that does not belong to a private server", dir.display()));
        }
        let lock = lock(&dir)?;
        if let Some(parent) = dir.parent() {
            sweep(parent);
        }
        remove_data(&dir).map_err(failed("empty", &dir))?;
        let data = make_data(&dir, &account)?;
        let home = Home { dir, data, account, _lock: lock };
        File::create(home.log_path()).map_err(failed("write to", &home.log_path()))?;
        Ok(home)
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// An empty directory that `account` owns and can reach.
    pub(crate) fn data(&self) -> &Path {
        &self.data
    }

    pub(crate) fn open_log(&self) -> Result<File> {
        let path = self.log_path();
        File::options().append(true).open(&path).map_err(failed("write to", &path))
    }

    pub(crate) fn log(&self) -> String {
        self.log_since(0)
    }

    pub(crate) fn log_bytes(&self) -> u64 {
        fs::metadata(self.log_path()).map_or(0, |metadata| metadata.len())
    }

    pub(crate) fn log_since(&self, bytes: u64) -> String {
        let mut text = Vec::new();
        // If the log cannot be read, return nothing: the caller is about to report something worse.
        let _ = File::open(self.log_path()).and_then(|mut file| {
            file.seek(SeekFrom::Start(bytes))?;
            file.read_to_end(&mut text)
        });
        String::from_utf8_lossy(&text).into_owned()
    }

    pub(crate) fn log_path(&self) -> PathBuf {
        self.dir.join(LOG)
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        // If it cannot be removed now, the next server that starts beside it removes it.
        let _ = remove_data(&self.dir);
        if !thread::panicking() {
            let _ = fs::remove_file(self.log_path());
        }
        let _ = fs::remove_file(self.dir.join(LOCK));
        // Stays if it contains the log, or something of the caller's.
        let _ = fs::remove_dir(&self.dir);
    }
}

fn lock(dir: &Path) -> Result<File> {
    let started = Instant::now();
    while started.elapsed() < LOCK_MAX {
        fs::create_dir_all(dir).map_err(failed("make", dir))?;
        match try_lock(dir) {
            Ok(Some(file)) => return Ok(file),
            Ok(None) => thread::sleep(POLL),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed("lock", dir)(error)),
        }
    }
    Err(format!("{} is in use; give each server and each pooler a directory of its own", dir.display()))
}

/// `None` if another process has the lock, or removed the file between opening and locking it.
fn try_lock(dir: &Path) -> io::Result<Option<File>> {
    let path = dir.join(LOCK);
    let file = File::options().create(true).append(true).open(&path)?;
    match file.try_lock() {
        Ok(()) => Ok((fs::metadata(&path)?.ino() == file.metadata()?.ino()).then_some(file)),
        Err(fs::TryLockError::WouldBlock) => Ok(None),
        Err(fs::TryLockError::Error(error)) => Err(error),
    }
}

/// Removes the homes under `parent` whose process was killed. A server that still runs on one notices within a minute
/// that its data is gone, and ends by itself.
fn sweep(parent: &Path) {
    let homes = fs::read_dir(parent).into_iter().flatten().flatten().map(|entry| entry.path());
    // The owner of a home without data is about to lock it.
    let with_data = |home: &PathBuf| home.join(LOCK).is_file() && home.join(DATA).symlink_metadata().is_ok();
    for home in homes.filter(with_data) {
        let Ok(Some(_lock)) = try_lock(&home) else { continue };
        let removed = remove_data(&home).and_then(|()| fs::remove_dir_all(&home));
        if let Err(error) = removed {
            eprintln!("cannot remove {}, which a killed process left: {error}", home.display());
        }
    }
}

fn make_data(dir: &Path, account: &Account) -> Result<PathBuf> {
    let data = dir.join(DATA);
    make_owned(&data, account)?;
    if account.reaches(&data) {
        return Ok(data);
    }
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970");
    let name = format!("private-postgres-{}-{}", std::process::id(), since_epoch.as_nanos());
    let elsewhere = std::env::temp_dir().join(name);
    eprintln!(
        "the user {} cannot reach {}: the data is in {}",
        account.name(),
        data.display(),
        elsewhere.display()
    );
    // Create the link first, so that a process that is killed between the two leaves nothing that cannot be found.
    fs::remove_dir(&data).and_then(|()| symlink(&elsewhere, &data)).map_err(failed("link", &data))?;
    make_owned(&elsewhere, account)?;
    if account.reaches(&elsewhere) {
        Ok(elsewhere)
    } else {
        Err(format!(
            "the user {} can reach neither {} nor {}; set TMPDIR to a directory that every user can enter",
            account.name(),
            dir.display(),
            elsewhere.display()
        ))
    }
}

fn make_owned(dir: &Path, account: &Account) -> Result {
    DirBuilder::new().mode(0o700).create(dir).map_err(failed("make", dir))?;
    account.own(dir)
}

fn remove_data(dir: &Path) -> io::Result<()> {
    let data = dir.join(DATA);
    match fs::read_link(&data) {
        Ok(elsewhere) => remove_tree(&elsewhere).and_then(|()| fs::remove_file(&data)),
        Err(_) => remove_tree(&data),
    }
}

fn remove_tree(tree: &Path) -> io::Result<()> {
    let started = Instant::now();
    loop {
        match fs::remove_dir_all(tree) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && !tree.exists() => return Ok(()),
            Err(_) if started.elapsed() < REMOVE_MAX => thread::sleep(POLL),
            ended => return ended,
        }
    }
}

pub(crate) fn failed<'a>(verb: &'a str, path: &'a Path) -> impl Fn(io::Error) -> String + 'a {
    move |error| format!("cannot {verb} {}: {error}", path.display())
}
