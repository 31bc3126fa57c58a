//! The user that a server runs as: PostgreSQL and PgBouncer refuse to run as root.

use std::ffi::OsStr;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::Result;

/// The users that root switches to: the first that exists.
const STAND_INS: [&str; 2] = ["postgres", "nobody"];

pub(crate) enum Account {
    /// The user that runs the tests.
    Own,
    /// Another one, since that user is root.
    StandIn { name: &'static str, uid: u32, gid: u32 },
}

impl Account {
    pub(crate) fn unprivileged() -> Result<Account> {
        if id(&["-u"]) != Some(0) {
            return Ok(Account::Own);
        }
        let stand_in =
            |name| Some(Account::StandIn { name, uid: id(&["-u", name])?, gid: id(&["-g", name])? });
        STAND_INS.into_iter().find_map(stand_in).ok_or_else(|| {
            format!(
                "PostgreSQL does not run as root, and none of the users {STAND_INS:?} exists to run it; \
                 add one of them, or run the tests as a user other than root"
            )
        })
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Account::Own => "of the tests",
            Account::StandIn { name, .. } => name,
        }
    }

    /// A command that this user will run.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        // This user may not have access to the directory of the tests.
        command.current_dir("/").stdin(Stdio::null());
        if let Account::StandIn { uid, gid, .. } = *self {
            // Setting the user also drops root's supplementary groups.
            command.uid(uid).gid(gid);
        }
        command
    }

    pub(crate) fn own(&self, path: &Path) -> Result {
        let Account::StandIn { name, uid, gid } = *self else { return Ok(()) };
        chown(path, Some(uid), Some(gid))
            .map_err(|error| format!("cannot give {} to the user {name}: {error}", path.display()))
    }

    /// Whether this user may enter every directory on the path.
    pub(crate) fn reaches(&self, dir: &Path) -> bool {
        self.command("test").arg("-x").arg(dir).status().is_ok_and(|status| status.success())
    }
}

fn id(args: &[&str]) -> Option<u32> {
    let output = Command::new("id").args(args).stderr(Stdio::null()).output().ok()?;
    String::from_utf8(output.stdout).ok()?.trim().parse().ok()
}
