//! A host of the story: it does what systemd would do with the kit's unit.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use super::net;
use crate::shop::{counter_in, get};
use crate::{Result, root, run, tools};

const UNIT: &str = "deploy/systemd/dormouse.service";
const SETTINGS: &str = "deploy/dormouse.toml";
/// What the unit's paths are on a host here.
const PROGRAM: &str = "/usr/local/bin/dormouse";
const ETC: &str = "/etc/dormouse";
/// The port in the kit's settings.
const PORT: u16 = 7878;

const LOOK_EVERY: Duration = Duration::from_millis(50);
/// A host that takes longer to become ready is broken.
const READY_WITHIN: Duration = Duration::from_secs(30);

/// A host, with a program and its settings. Its process ends when this is dropped.
pub(super) struct Host {
    pub(super) name: &'static str,
    /// Its address and port.
    pub(super) address: String,
    net: u32,
    dir: PathBuf,
    unit: String,
    process: Option<Child>,
}

impl Host {
    /// Installs the files of the kit in `dir`, and the program.
    pub(super) fn new(net: u32, (number, name): (usize, &'static str), dir: &Path) -> Result<Host> {
        let dir = dir.join(name);
        fs::create_dir_all(&dir).map_err(|error| format!("cannot make {}: {error}", dir.display()))?;
        tools::write(&dir.join("dormouse.toml"), &tools::read(&root().join(SETTINGS))?)?;
        let place = dir.display().to_string();
        let unit = tools::read(&root().join(UNIT))?;
        let unit = unit.replace(PROGRAM, &format!("{place}/dormouse")).replace(ETC, &place);
        let address = format!("{}:{PORT}", net::address(number));
        Ok(Host { name, address, net, dir, unit, process: None })
    }

    /// Puts a program in place. The old one may still run.
    pub(super) fn install(&self, program: &Path) -> Result {
        let (new, place) = (self.dir.join("dormouse.new"), self.dir.join("dormouse"));
        let done = fs::copy(program, &new).and_then(|_| fs::rename(&new, &place));
        done.map_err(|error| format!("cannot install {}: {error}", place.display()))
    }

    /// The secrets that the unit reads, and where to listen, which `dev` of an older program takes from there alone.
    pub(super) fn configure(&self, db: &str) -> Result {
        let text = format!("DORMOUSE_DB={db}\nDORMOUSE_BIND=0.0.0.0:{PORT}\n");
        tools::write(&self.dir.join("environment"), &text)
    }

    /// A command of the installed program, with the unit's environment.
    pub(super) fn dormouse(&self, args: &[&str]) -> Result<Command> {
        let mut command = net::on_host(self.net, self.name, &self.dir.join("dormouse"));
        command.args(args).current_dir(&self.dir).env_remove("RUST_LOG");
        for setting in self.lines("Environment=") {
            command.envs(setting.split_once('='));
        }
        for file in self.lines("EnvironmentFile=-") {
            let text = tools::read(Path::new(file))?;
            command.envs(text.lines().filter_map(|line| line.split_once('=')));
        }
        Ok(command)
    }

    /// `systemctl start`: what the unit runs before, and then the service. The plain program has no machines, so its demo
    /// shop stands for a program of yours: `dev` where the unit says `serve`.
    pub(super) fn start(&mut self) -> Result<Duration> {
        let started = Instant::now();
        for command in self.lines("ExecStartPre=") {
            run(self.dormouse(&arguments(command))?.stdout(Stdio::null()))?;
        }
        let command = self.lines("ExecStart=").next().ok_or("the unit starts nothing")?;
        let args: Vec<&str> =
            arguments(command).into_iter().map(|word| if word == "serve" { "dev" } else { word }).collect();
        let log = self.log()?;
        let errors = log.try_clone().map_err(|error| error.to_string())?;
        let mut service = self.dormouse(&args)?;
        let process = service.stdin(Stdio::null()).stdout(log).stderr(errors).spawn();
        self.process = Some(process.map_err(|error| format!("cannot run the service: {error}"))?);
        // The kit's probe.
        let is_ready = || {
            let mut health = self.dormouse(&["health", "--ready"])?;
            let ended = health.stdout(Stdio::null()).stderr(Stdio::null()).status();
            Ok(ended.map_err(|error| format!("cannot run health: {error}"))?.success())
        };
        wait_until(READY_WITHIN, &format!("host {} is ready", self.name), is_ready)?;
        Ok(started.elapsed())
    }

    /// `systemctl stop`, and how long it took.
    pub(super) fn stop(&mut self) -> Result<Duration> {
        let started = Instant::now();
        let Some(process) = &mut self.process else { return Ok(Duration::ZERO) };
        run(Command::new("kill").arg(process.id().to_string()))?;
        let within =
            self.unit.lines().find_map(|line| line.strip_prefix("TimeoutStopSec=")?.strip_suffix('s'));
        let within =
            within.and_then(|seconds| seconds.parse().ok()).ok_or("the unit has no TimeoutStopSec")?;
        let process = self.process.as_mut().expect("it was there above");
        let name = format!("host {} stops before systemd would kill it", self.name);
        wait_until(Duration::from_secs(within), &name, || {
            process.try_wait().map(|ended| ended.is_some()).map_err(|error| error.to_string())
        })?;
        self.process = None;
        Ok(started.elapsed())
    }

    /// The end of a process that nothing warned.
    pub(super) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            // It may have ended by itself, which its log says.
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// A counter of its process, seen from the hub.
    pub(super) fn counter(&self, key: &str, name: &str) -> Result<u64> {
        Ok(counter_in(&get(&self.address, "/metrics", Some(key))?, name))
    }

    /// How many seconds systemd waits before it starts a service again.
    pub(super) fn restart_pause(&self) -> Result<Duration> {
        let text = self.lines("RestartSec=").next().and_then(|text| text.strip_suffix('s')?.parse().ok());
        text.map(Duration::from_secs).ok_or_else(|| "the unit has no RestartSec".to_owned())
    }

    fn lines<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.unit.lines().filter_map(move |line| line.strip_prefix(name))
    }

    fn log(&self) -> Result<fs::File> {
        let path = self.dir.join("log");
        let file = fs::File::options().create(true).append(true).open(&path);
        file.map_err(|error| format!("cannot write {}: {error}", path.display()))
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The words after the program.
fn arguments(command: &str) -> Vec<&str> {
    command.split_whitespace().skip(1).collect()
}

pub(super) fn wait_until(
    within: Duration,
    what: &str,
    mut is_so: impl FnMut() -> Result<bool>,
) -> Result<Duration> {
    let started = Instant::now();
    while !is_so()? {
        if started.elapsed() > within {
            return Err(format!("after {within:?}, this is still not so: {what}"));
        }
        thread::sleep(LOOK_EVERY);
    }
    Ok(started.elapsed())
}
