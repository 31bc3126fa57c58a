//! Prometheus with the kit's files, and what its alerts are sent to.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::{Result, root, tools};

const MONITORING: &str = "deploy/monitoring";
/// What the kit's file scrapes, and where it has its API key.
const KIT_TARGETS: &str = "[\"127.0.0.1:7878\"]";
const KIT_KEY: &str = "/etc/prometheus/dormouse.key";

/// Scrapes the hosts, and pages. Ends when this is dropped.
pub(super) struct Pager {
    prometheus: Child,
    pages: Arc<Mutex<Vec<String>>>,
}

impl Pager {
    /// Starts Prometheus with its data in `dir`, an API key, and these hosts to scrape.
    pub(super) fn start(dir: &Path, key: &str, hosts: &[String]) -> Result<Pager> {
        let kit = root().join(MONITORING);
        let settings = tools::read(&kit.join("prometheus.yml"))?;
        if !settings.contains(KIT_TARGETS) || !settings.contains(KIT_KEY) {
            return Err(format!("{MONITORING}/prometheus.yml no longer has {KIT_TARGETS} and {KIT_KEY}"));
        }
        let listener = TcpListener::bind("127.0.0.1:0").map_err(|error| format!("no pager: {error}"))?;
        let pager = listener.local_addr().map_err(|error| error.to_string())?;
        let targets = format!("[\"{}\"]", hosts.join("\", \""));
        let key_file = dir.join("prometheus.key");
        let settings =
            settings.replace(KIT_TARGETS, &targets).replace(KIT_KEY, &key_file.display().to_string());
        // The kit leaves to its user whom to page.
        let alerting =
            format!("alerting:\n  alertmanagers:\n    - static_configs:\n        - targets: [\"{pager}\"]\n");
        tools::write(&key_file, key)?;
        tools::write(&dir.join("prometheus.yml"), &format!("{settings}{alerting}"))?;
        let rules = tools::read(&kit.join("dormouse.rules.yml"))?;
        tools::write(&dir.join("dormouse.rules.yml"), &rules)?;
        let pages = Arc::new(Mutex::new(Vec::new()));
        let kept = pages.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // A request that cannot be read is sent again.
                if let Ok(alerts) = taken(stream) {
                    kept.lock().expect("nobody panics with it").push(alerts);
                }
            }
        });
        let log = File::create(dir.join("prometheus.log")).map_err(|error| error.to_string())?;
        let mut command = Command::new("prometheus");
        command.arg(format!("--config.file={}", dir.join("prometheus.yml").display()));
        command.arg(format!("--storage.tsdb.path={}", dir.join("prometheus").display()));
        command.arg("--web.listen-address=127.0.0.1:9090").stdin(Stdio::null()).stdout(Stdio::null());
        let prometheus = command.stderr(log).spawn();
        let prometheus = prometheus.map_err(|error| format!("cannot run prometheus: {error}"))?;
        Ok(Pager { prometheus, pages })
    }

    /// Whether somebody was paged by this alert about this host.
    pub(super) fn paged(&self, alert: &str, host: &str) -> bool {
        let (alert, host) = (format!("\"alertname\":\"{alert}\""), format!("\"instance\":\"{host}\""));
        let pages = self.pages.lock().expect("nobody panics with it");
        // One request has several alerts.
        let alerts = pages.iter().flat_map(|page| page.split("\"annotations\":"));
        let mut all = alerts.filter(|page| page.contains("\"severity\":\"page\""));
        all.any(|page| page.contains(&alert) && page.contains(&host))
    }

    /// The names of the alerts so far.
    pub(super) fn alerts(&self) -> Vec<String> {
        let pages = self.pages.lock().expect("nobody panics with it");
        let mut names: Vec<_> = pages.iter().flat_map(|page| names_in(page)).collect();
        names.sort();
        names.dedup();
        names
    }
}

impl Drop for Pager {
    fn drop(&mut self) {
        // It may have ended by itself, which its log says.
        let _ = self.prometheus.kill();
        let _ = self.prometheus.wait();
    }
}

fn names_in(page: &str) -> Vec<String> {
    let named = page.split("\"alertname\":\"").skip(1);
    named.filter_map(|rest| Some(rest.split('"').next()?.to_owned())).collect()
}

/// The body of a request, which is answered.
fn taken(stream: TcpStream) -> std::io::Result<String> {
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 || line.trim().is_empty() {
            break;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    reader.get_mut().write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")?;
    Ok(String::from_utf8_lossy(&body).into_owned())
}
