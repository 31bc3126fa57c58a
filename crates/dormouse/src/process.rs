//! Which process a worker is, so that one that is gone need not be waited for.

use std::path::Path;

/// A process, told apart from every other one that ever had its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// The machine it runs on, by name.
    pub host: String,
    /// Its number there.
    pub pid: u32,
    /// Its process namespace and the tick of its start; empty where that cannot be told.
    pub birth: String,
}

impl Process {
    /// This process.
    pub fn current() -> Self {
        let pid = std::process::id();
        let birth = pid_namespace()
            .zip(Life::of(pid))
            .map(|(namespace, life)| format!("{namespace}:{}", life.started))
            .unwrap_or_default();
        Self { host: host(), pid, birth }
    }

    /// Whether it can be told from here that this process has ended. Where it cannot (another machine, another
    /// container, no `/proc`), its lease decides.
    pub fn is_gone(&self) -> bool {
        let Some((namespace, started)) = self.birth.rsplit_once(':') else { return false };
        if self.host != host() || pid_namespace().as_deref() != Some(namespace) {
            return false;
        }
        Life::of(self.pid).is_none_or(|life| life.ended || life.started != started)
    }
}

/// What `/proc` says of a process.
struct Life {
    ended: bool,
    started: String,
}

impl Life {
    fn of(pid: u32) -> Option<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name in parentheses may hold anything; the fields after it are the state, 18 more, and the start.
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        let ended = matches!(fields.next()?, "Z" | "X");
        Some(Self { ended, started: fields.nth(18)?.to_owned() })
    }
}

/// Containers that share a host's name do not see each other's processes.
fn pid_namespace() -> Option<String> {
    let link = std::fs::read_link(Path::new("/proc/self/ns/pid")).ok()?;
    Some(link.to_string_lossy().into_owned())
}

/// This machine's name, as other workers on the same database see it.
fn host() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .ok()
        .or_else(|| std::env::var("HOSTNAME").ok())
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "localhost".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_not_gone() {
        assert!(!Process::current().is_gone());
    }

    #[test]
    fn a_number_that_another_process_has_now_is_not_the_one_that_had_it() {
        let mut before = Process::current();
        before.birth.push('0');
        assert!(before.is_gone());
    }

    #[test]
    fn what_cannot_be_told_from_here_is_left_to_the_lease() {
        let here = Process { pid: u32::MAX, ..Process::current() };
        assert!(here.is_gone());
        assert!(!Process { host: "elsewhere".to_owned(), ..here.clone() }.is_gone());
        assert!(!Process { birth: "pid:[1]:7".to_owned(), ..here.clone() }.is_gone());
        assert!(!Process { birth: String::new(), ..here }.is_gone());
    }
}
