//! A process that does not outlive the one that started it.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};

use crate::Result;

/// Stopped when dropped.
pub(crate) struct Process {
    child: Child,
    /// A shell that signals the child as soon as its own input ends. Only this process has the other end of that input,
    /// so it ends at the latest when this process does, even by `kill -9`.
    keeper: Child,
}

impl Process {
    /// The command's output goes to `log`; `signal` is the signal that stops it.
    pub(crate) fn start(command: &mut Command, log: File, signal: &str) -> Result<Process> {
        let program = command.get_program().to_string_lossy().into_owned();
        let failed = |error| format!("cannot run {program}: {error}");
        // Separate process groups, because Ctrl-C goes to the whole group, and the keeper must survive it.
        let log_too = log.try_clone().map_err(failed)?;
        let mut child = command.stdout(log).stderr(log_too).process_group(0).spawn().map_err(failed)?;
        let keeper = Command::new("sh")
            .args(["-c", "read -r _; kill -\"$1\" \"$2\"", "keeper", signal, &child.id().to_string()])
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn();
        match keeper {
            Ok(keeper) => Ok(Process { child, keeper }),
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(format!("cannot run the shell that would stop {program}: {error}"))
            }
        }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it has.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child of this process can be waited for")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.ended().is_some() {
            // Another process may have its id by now, and the keeper must not signal that one.
            let _ = self.keeper.kill();
            let _ = self.keeper.wait();
            return;
        }
        drop(self.keeper.stdin.take());
        if !self.keeper.wait().is_ok_and(|status| status.success()) {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}
