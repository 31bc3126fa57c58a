//! Identifies a worker's process, so that the claims of one that is gone can be taken back before its lease ends.

use std::io::ErrorKind;
use std::path::Path;

/// A process, distinguished from every other one that ever had its process id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// The machine it runs on, by name.
    pub host: String,
    /// Its process id there.
    pub pid: u32,
    /// The boot of that machine, the process namespace, and the tick of the start; empty where these are unknown.
    pub birth: String,
}

impl Process {
    /// This process.
    pub fn current() -> Self {
        let pid = std::process::id();
        let birth = match (surroundings(), Life::of(pid)) {
            (Some(surroundings), Life::Seen { started, .. }) => format!("{surroundings}:{started}"),
            _ => String::new(),
        };
        Self { host: host(), pid, birth }
    }

    /// Whether this process has certainly ended. If that cannot be known from here (another machine, even one of the
    /// same name, another container, a `/proc` that is missing or hides processes), this is false and its lease
    /// decides.
    pub fn is_gone(&self) -> bool {
        let Some((surroundings_then, started_then)) = self.birth.rsplit_once(':') else { return false };
        if self.host != host() || surroundings().as_deref() != Some(surroundings_then) {
            return false;
        }
        match Life::of(self.pid) {
            Life::Seen { ended, started } => ended || started != started_then,
            Life::Absent => shows_every_process(),
            Life::Unknown => false,
        }
    }
}

/// What `/proc` says of a process.
enum Life {
    Seen {
        ended: bool,
        started: String,
    },
    Absent,
    /// It may exist; its entry could not be read.
    Unknown,
}

impl Life {
    fn of(pid: u32) -> Self {
        match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
            Ok(stat) => Self::parse(&stat).unwrap_or(Self::Unknown),
            Err(error) if error.kind() == ErrorKind::NotFound => Self::Absent,
            Err(_) => Self::Unknown,
        }
    }

    fn parse(stat: &str) -> Option<Self> {
        // The name in parentheses may hold anything; the fields after it are the state, 18 more, and the start.
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        let ended = matches!(fields.next()?, "Z" | "X");
        Some(Self::Seen { ended, started: fields.nth(18)?.to_owned() })
    }
}

/// In which boot of which machine, and in which process namespace, this process runs. Machines may share a name, and
/// outside of containers every Linux has the same number for its process namespace; no two boots share an id.
fn surroundings() -> Option<String> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let namespace = std::fs::read_link("/proc/self/ns/pid").ok()?;
    Some(format!("{}:{}", boot.trim(), namespace.to_string_lossy()))
}

/// Whether a process that is not in `/proc` does not exist: a `/proc` can be mounted so that it hides those of other
/// users.
fn shows_every_process() -> bool {
    let shown = |mounts: String| hides_nothing(&mounts);
    Path::new("/proc/1").exists() && std::fs::read_to_string("/proc/self/mounts").is_ok_and(shown)
}

/// Whether the last of these mounts at `/proc`, which lies on top of the others, hides no process.
fn hides_nothing(mounts: &str) -> bool {
    let proc = mounts.lines().rev().find_map(|line| {
        let mut fields = line.split(' ').skip(1);
        (fields.next()? == "/proc").then_some(())?;
        (fields.next()? == "proc").then(|| fields.next()).flatten()
    });
    let shows_all = |option: &str| match option.split_once('=') {
        Some(("hidepid", value)) => matches!(value, "0" | "off"),
        _ => true,
    };
    proc.is_some_and(|options| options.split(',').all(shows_all))
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
        for birth in ["pid:[1]:7", "another boot:pid:[4026531836]:7", "7"] {
            assert!(!Process { birth: birth.to_owned(), ..here.clone() }.is_gone(), "{birth}");
        }
        assert!(!Process { birth: String::new(), ..here }.is_gone());
    }

    #[test]
    fn a_machine_of_the_same_name_is_another_machine() {
        let here = Process { pid: u32::MAX, ..Process::current() };
        let boot = here.birth.split(':').next().expect("a boot").to_owned();
        let birth = here.birth.replacen(&boot, "5a9c3d0e-0000-4000-8000-000000000000", 1);
        assert!(here.is_gone() && !Process { birth, ..here }.is_gone());
    }

    #[test]
    fn a_proc_that_hides_processes_says_nothing_of_those_it_does_not_show() {
        let root = "/dev/vda / ext4 rw 0 0\n";
        for (options, shows_all) in [
            ("rw,nosuid", true),
            ("rw,hidepid=0", true),
            ("rw,hidepid=off,gid=3", true),
            ("rw,hidepid=2", false),
            ("rw,hidepid=invisible", false),
            ("rw,hidepid=noaccess,gid=3", false),
            ("rw,hidepid=ptraceable", false),
        ] {
            let mounts = format!("{root}proc /proc proc {options} 0 0\n");
            assert_eq!(hides_nothing(&mounts), shows_all, "{options}");
        }
        assert!(!hides_nothing(root), "there is no /proc");
        let covered = "proc /proc proc rw 0 0\nproc /proc proc rw,hidepid=2 0 0\n";
        assert!(!hides_nothing(covered), "the later mount is the one that is seen");
    }

    #[test]
    fn what_cannot_be_read_is_not_absent() {
        assert!(matches!(Life::of(std::process::id()), Life::Seen { ended: false, .. }));
        assert!(matches!(Life::of(u32::MAX), Life::Absent));
        assert!(Life::parse("1 (a name) S").is_none(), "a line that was cut short");
    }
}
