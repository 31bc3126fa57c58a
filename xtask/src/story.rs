//! `cargo xtask story`: an installation on three hosts with one PostgreSQL, by the files in `deploy/`, from the first start
//! to a restored backup. It prints what happened when; the guide has such a list.

mod host;
mod net;
mod pager;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use private_postgres::{Binaries, Server};

use self::host::{Host, wait_until};
use self::net::{Cable, Net};
use self::pager::Pager;
use crate::{Result, built, install_packages, postgres, root, run, shop, tools, upgrade};

const HOSTS: [&str; 3] = ["a", "b", "c"];
/// Set in the process that runs beside the bridge: the network's id.
const INSIDE: &str = "DORMOUSE_STORY_NET";
const COMMITS: &str = "dormouse_commits_total";
const REAPED: &str = "dormouse_reaped_total";
/// The queues of the demo shop.
const QUEUES: [&str; 2] = ["default", "warehouse"];
/// How many outcomes show that a process works.
const WORKS: u64 = 50;
const WORKS_WITHIN: Duration = Duration::from_secs(60);
const LOAD: Duration = Duration::from_secs(20);
/// The rule waits for two minutes; a scrape and an evaluation come before that.
const PAGED_WITHIN: Duration = Duration::from_secs(300);
/// A lease of 15 s, and the time until somebody looks.
const TAKEN_BACK_WITHIN: Duration = Duration::from_secs(60);
const BACK_WITHIN: Duration = Duration::from_secs(300);

/// Walks it, with the upgrade from this commit, or else from the one that `cargo xtask upgrade` takes.
pub(crate) fn walk(pg_bin: Option<&Path>, from: Option<String>) -> Result {
    let from = from.map_or_else(upgrade::earlier, Ok)?;
    if let Some(net) = env::var_os(INSIDE) {
        let net = net.to_str().and_then(|id| id.parse().ok()).ok_or("it has no network")?;
        return inside(net, pg_bin, &from);
    }
    require_all(pg_bin)?;
    shop::build()?;
    upgrade::built_from(&from)?;
    let net = Net::lay(&HOSTS)?;
    let this = env::current_exe().map_err(|error| format!("this program has no path: {error}"))?;
    let mut again = net.at_the_hub(&this);
    again.args(["story", "--from", &from]).env(INSIDE, net.id().to_string());
    if let Some(dir) = pg_bin {
        again.arg("--pg-bin").arg(dir);
    }
    run(&mut again)
}

fn require_all(pg_bin: Option<&Path>) -> Result {
    let is_root = Command::new("id").arg("-u").output().is_ok_and(|told| told.stdout == b"0\n");
    if !cfg!(target_os = "linux") || !is_root {
        return Err("the hosts are network namespaces, which only root can make, on Linux".to_owned());
    }
    let runs = |program| Command::new(program).arg("--version").output().is_ok();
    let programs = [("ip", "iproute2"), ("nsenter", "util-linux"), ("prometheus", "prometheus")];
    let missing: Vec<_> =
        programs.iter().filter(|(program, _)| !runs(program)).map(|(_, package)| *package).collect();
    if !missing.is_empty() {
        install_packages(&missing)?;
    }
    postgres::install_missing(pg_bin)
}

fn inside(net: u32, pg_bin: Option<&Path>, from: &str) -> Result {
    let dir = root().join("target/story").join(net.to_string());
    fs::create_dir_all(&dir).map_err(|error| format!("cannot make {}: {error}", dir.display()))?;
    let programs = (upgrade::built_from(from)?, PathBuf::from(built("dormouse").get_program()));
    let told = Story::begin(net, pg_bin, &dir, programs).and_then(|mut story| {
        story.deploy()?;
        story.upgrade()?;
        story.back_up()?;
        story.lose_a_process()?;
        story.lose_a_host()?;
        story.restore()
    });
    match told {
        Ok(()) => {
            // Leftovers are removed with the rest of `target`.
            let _ = fs::remove_dir_all(&dir);
            Ok(())
        }
        Err(error) => Err(format!("{error}\nthe logs are in {}", dir.display())),
    }
}

struct Story {
    net: u32,
    dir: PathBuf,
    old: PathBuf,
    new: PathBuf,
    started: Instant,
    // Dropped before the server that they work on.
    hosts: Vec<Host>,
    pager: Option<Pager>,
    server: Server,
    key: String,
}

impl Story {
    /// PostgreSQL at the hub, for hosts that have a password.
    fn begin(net: u32, pg_bin: Option<&Path>, dir: &Path, (old, new): (PathBuf, PathBuf)) -> Result<Story> {
        let started = Instant::now();
        let binaries = pg_bin.map_or_else(Binaries::find, Binaries::at)?;
        let server = Server::start(&binaries, &dir.join("postgres"), &[("listen_addresses", "*")])?;
        let rules = "host all postgres 127.0.0.1/32 trust\nhost all dormouse 10.77.0.0/24 scram-sha-256\n";
        tools::write(&server.data().join("pg_hba.conf"), rules)?;
        server.reload()?;
        let hosts = HOSTS.into_iter().enumerate().map(|host| Host::new(net, host, dir));
        let hosts = hosts.collect::<Result<_>>()?;
        let story = Story {
            net,
            dir: dir.to_owned(),
            old,
            new,
            started,
            hosts,
            pager: None,
            server,
            key: String::new(),
        };
        story.psql("create role dormouse login password 'secret'")?;
        story.psql("create database dormouse owner dormouse")?;
        story.note("PostgreSQL runs, with a role and a database");
        Ok(story)
    }

    /// The first start, with the old program.
    fn deploy(&mut self) -> Result {
        let db = self.url("dormouse");
        for host in &self.hosts {
            host.install(&self.old)?;
            host.configure(&db)?;
        }
        run(self.hosts[0].dormouse(&["migrate"])?.stdout(Stdio::null()))?;
        let create = ["keys", "create", "--label", "prometheus", "--scope", "read"];
        let told = self.hosts[0].dormouse(&create)?.output().map_err(|error| error.to_string())?;
        self.key = String::from_utf8_lossy(&told.stdout).trim().to_owned();
        if self.key.is_empty() {
            return Err(format!("no API key was made: {}", String::from_utf8_lossy(&told.stderr)));
        }
        self.note("the program, the settings and the unit are on three hosts; the database is migrated, and an API key made");
        for (at, name) in HOSTS.iter().enumerate() {
            let took = self.hosts[at].start()?;
            self.note(&format!("host {name} is ready, {took:.1?} after its unit was started"));
        }
        let addresses: Vec<_> = self.hosts.iter().map(|host| host.address.clone()).collect();
        self.pager = Some(Pager::start(&self.dir, &self.key, &addresses)?);
        self.note("Prometheus scrapes them, with the kit's rules");
        self.load()
    }

    /// The new program, host by host, while the others work.
    fn upgrade(&mut self) -> Result {
        self.hosts[0].install(&self.new)?;
        let started = Instant::now();
        run(self.hosts[0].dormouse(&["migrate"])?.stdout(Stdio::null()))?;
        self.note(&format!("`dormouse migrate` with the new program, under load: {:.1?}", started.elapsed()));
        let opened = self.hosts[1].dormouse(&["stats"])?.stdout(Stdio::null()).stderr(Stdio::null()).status();
        let run_on = opened.map_err(|error| format!("cannot run the old program: {error}"))?.success();
        if run_on {
            self.work("the old program on the new schema")?;
        } else {
            self.note("this release contracts the schema: the old program does not start on it any more");
        }
        for (at, name) in HOSTS.iter().enumerate() {
            let stopped = self.hosts[at].stop()?;
            self.hosts[at].install(&self.new)?;
            let ready = self.hosts[at].start()?;
            self.note(&format!(
                "host {name} has the new program: stopped in {stopped:.1?}, ready again in {ready:.1?}"
            ));
            if run_on {
                self.work("all hosts, of both releases")?;
            }
        }
        self.work("the new program on all hosts")?;
        for host in &self.hosts {
            if self.pager().paged("DormouseDown", &host.address) {
                return Err(format!("the upgrade of host {} paged somebody", host.name));
            }
        }
        Ok(())
    }

    fn back_up(&self) -> Result {
        let started = Instant::now();
        let file = self.dir.join("dump");
        let mut dump = Command::new(self.server.binaries().dir().join("pg_dump"));
        run(dump.arg("--format=custom").arg("--file").arg(&file).arg(self.server.url("dormouse")))?;
        let bytes = fs::metadata(&file).map_or(0, |file| file.len());
        let took = started.elapsed();
        self.note(&format!("`pg_dump` under load: {took:.1?}, {} KiB", bytes / 1024));
        Ok(())
    }

    /// A process that dies on a host that lives: systemd starts it again.
    fn lose_a_process(&mut self) -> Result {
        self.hosts[2].kill();
        self.note("the process on host c is killed (`kill -9`)");
        thread::sleep(self.hosts[2].restart_pause()?);
        self.hosts[2].start()?;
        self.works(&self.hosts[2])?;
        self.note("systemd would have started it again after its pause: so did this; it works");
        Ok(())
    }

    /// A host that nobody reaches, while it thinks that everybody else is gone.
    fn lose_a_host(&self) -> Result {
        let (lost, others) = (&self.hosts[1], [&self.hosts[0], &self.hosts[2]]);
        let reaped = || others.iter().map(|host| host.counter(&self.key, REAPED)).sum::<Result<u64>>();
        let before = reaped()?;
        net::cable(self.net, lost.name, Cable::Cut)?;
        let cut = Instant::now();
        self.note("host b is lost: its cable is cut, its process lives");
        wait_until(TAKEN_BACK_WITHIN, "the claims of the lost host are taken back", || {
            Ok(reaped()? > before)
        })?;
        let claims = reaped()? - before;
        self.note(&format!("{claims} claims of host b were taken back, {:.1?} after the cut", cut.elapsed()));
        others.iter().try_for_each(|host| self.works(host))?;
        self.note(&format!("hosts a and c have committed {WORKS} outcomes each since"));
        wait_until(PAGED_WITHIN, "somebody is paged", || {
            Ok(self.pager().paged("DormouseDown", &lost.address))
        })?;
        self.note(&format!(
            "`DormouseDown` pages for host b, {:.0?} after the cut; alerts so far: {}",
            cut.elapsed(),
            self.pager().alerts().join(", ")
        ));
        net::cable(self.net, lost.name, Cable::Whole)?;
        let mended = Instant::now();
        self.note("the cable is mended");
        wait_until(BACK_WITHIN, "the lost host answers", || Ok(lost.counter(&self.key, COMMITS).is_ok()))?;
        let from = lost.counter(&self.key, COMMITS)?;
        let works = || Ok(lost.counter(&self.key, COMMITS)? >= from + WORKS);
        wait_until(BACK_WITHIN, "the lost host works", works)?;
        self.note(&format!("host b works again, {:.1?} after that, without a restart", mended.elapsed()));
        Ok(())
    }

    /// Back to the dump, in another database.
    fn restore(&mut self) -> Result {
        for host in &mut self.hosts {
            host.stop()?;
        }
        self.note("all hosts are stopped");
        self.psql("create database restored owner dormouse")?;
        let mut restore = Command::new(self.server.binaries().dir().join("pg_restore"));
        restore.arg("--exit-on-error").arg("--dbname").arg(self.server.url("restored"));
        run(restore.arg(self.dir.join("dump")))?;
        self.note("the dump is restored into a new database");
        let db = self.url("restored");
        for host in &self.hosts {
            host.configure(&db)?;
        }
        for queue in QUEUES {
            run(self.hosts[0].dormouse(&["pause", "--queue", queue])?.stdout(Stdio::null()))?;
        }
        self.hosts[0].start()?;
        self.note("host a runs on it, with its queues paused, to look");
        for queue in QUEUES {
            run(self.hosts[0].dormouse(&["resume", "--queue", queue])?.stdout(Stdio::null()))?;
        }
        for host in &mut self.hosts[1..] {
            host.start()?;
        }
        self.work("all hosts, on the restored database")?;
        let doctor = self.hosts[0].dormouse(&["doctor"])?.stdout(Stdio::null()).status();
        match doctor.map_err(|error| error.to_string())?.code() {
            Some(0 | 7) => Ok(()),
            code => Err(format!("`dormouse doctor` ended with {code:?} at the end")),
        }
    }

    fn load(&self) -> Result {
        let counts =
            || self.hosts.iter().map(|host| host.counter(&self.key, COMMITS)).collect::<Result<Vec<_>>>();
        let before = counts()?;
        thread::sleep(LOAD);
        let done = counts()?.into_iter().zip(before).map(|(after, before)| (after - before).to_string());
        let done = done.collect::<Vec<_>>().join(", ");
        self.note(&format!("{LOAD:?} later they have committed {done} outcomes"));
        Ok(())
    }

    /// Every host commits.
    fn work(&self, who: &str) -> Result {
        let started = Instant::now();
        self.hosts.iter().try_for_each(|host| self.works(host))?;
        let took = started.elapsed();
        self.note(&format!("{who}: each host has committed {WORKS} more outcomes, in {took:.1?}"));
        Ok(())
    }

    fn works(&self, host: &Host) -> Result {
        let from = host.counter(&self.key, COMMITS)?;
        let works = || Ok(host.counter(&self.key, COMMITS)? >= from + WORKS);
        wait_until(WORKS_WITHIN, &format!("host {} works", host.name), works).map(drop)
    }

    fn pager(&self) -> &Pager {
        self.pager.as_ref().expect("it runs from the first start on")
    }

    /// The address of a database as the hosts know it. The bridge is private, so it needs no TLS.
    fn url(&self, database: &str) -> String {
        let (hub, port) = (net::hub(), self.server.port());
        format!("postgres://dormouse:secret@{hub}:{port}/{database}?sslmode=disable")
    }

    fn psql(&self, sql: &str) -> Result {
        let mut psql = Command::new(self.server.binaries().dir().join("psql"));
        psql.args(["--quiet", "--no-psqlrc", "--set=ON_ERROR_STOP=1", "--command", sql]);
        run(psql.arg(self.server.url("postgres")))
    }

    fn note(&self, what: &str) {
        println!("| {:.1} s | {what} |", self.started.elapsed().as_secs_f64());
    }
}
