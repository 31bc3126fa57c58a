//! The kit in `deploy/`: every file is checked by the program that reads it, or by a linter.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs};

use crate::{Result, built, install_packages, root, run, shop, tools};

/// The programs that read the files, and the Debian packages that have them.
const READERS: [(&str, &str); 5] = [
    ("promtool", "prometheus"),
    ("nginx", "nginx-light"),
    ("caddy", "caddy"),
    ("systemd-analyze", "systemd"),
    ("openssl", "openssl"),
];
/// Every file of the kit, each of which something below, or the test `kit` of the server, looks at. A new one goes here
/// together with what checks it.
const FILES: [&str; 16] = [
    "Dockerfile",
    "Dockerfile.dockerignore",
    "compose.yaml",
    "dormouse.toml",
    "kubernetes/dormouse.toml",
    "kubernetes/kustomization.yaml",
    "kubernetes/migrate.yaml",
    "kubernetes/serve.yaml",
    "kubernetes/worker.yaml",
    "monitoring/dormouse.rules.test.yml",
    "monitoring/dormouse.rules.yml",
    "monitoring/grafana.json",
    "monitoring/prometheus.yml",
    "proxy/Caddyfile",
    "proxy/nginx.conf",
    "systemd/dormouse.service",
];
/// Where the files expect the program.
const INSTALLED: &str = "/usr/local/bin/dormouse";
/// The oldest version of Kubernetes that is still maintained and that the schemas know.
const KUBERNETES: &str = "1.31";
/// How much a unit may be exposed, in tenths, by systemd's own measure; 100 is everything.
const EXPOSURE_MAX: &str = "15";

/// What checks the kit.
pub(crate) struct Linters {
    python: PathBuf,
}

/// The linters, or why they are not available. Nothing else depends on them.
pub(crate) fn fetched() -> Result<Linters> {
    let missing: Vec<_> =
        READERS.iter().filter(|(program, _)| !is_there(program)).map(|(_, package)| *package).collect();
    if !missing.is_empty() {
        install_packages(&missing)?;
    }
    let python = tools::python("kit-python", "xtask/kit/requirements.txt")?;
    Ok(Linters { python })
}

/// `cargo xtask kit`.
pub(crate) fn alone() -> Result {
    test(&fetched()?)
}

pub(crate) fn test(linters: &Linters) -> Result {
    shop::build()?;
    let dir = root().join("target/kit").join(std::process::id().to_string());
    fs::create_dir_all(&dir).map_err(|error| format!("cannot make {}: {error}", dir.display()))?;
    let tested = tested_in(&dir, linters);
    // Leftovers are removed with the rest of `target`.
    let _ = fs::remove_dir_all(&dir);
    tested
}

fn tested_in(dir: &Path, linters: &Linters) -> Result {
    let deploy = root().join("deploy");
    files_are_known(&deploy)?;
    run(Command::new(&linters.python).arg(root().join("xtask/kit/extract.py")).arg(&deploy).arg(dir))?;
    commands_exist(&dir.join("commands"))?;
    images(linters, &deploy)?;
    kubernetes(linters, &deploy)?;
    monitoring(dir, &deploy)?;
    unit(dir, &deploy)?;
    proxies(dir, &deploy)
}

fn files_are_known(deploy: &Path) -> Result {
    let (mut found, mut dirs) = (Vec::new(), vec![deploy.to_owned()]);
    while let Some(dir) = dirs.pop() {
        let entries =
            fs::read_dir(&dir).map_err(|error| format!("cannot list {}: {error}", dir.display()))?;
        for path in entries.flatten().map(|entry| entry.path()) {
            if path.is_dir() { dirs.push(path) } else { found.push(path) }
        }
    }
    let unknown = found.iter().filter_map(|path| path.strip_prefix(deploy).ok()?.to_str());
    match unknown.filter(|path| !FILES.contains(path)).collect::<Vec<_>>() {
        unknown if !unknown.is_empty() => Err(format!(
            "nothing checks {unknown:?} in deploy/: add what does, and the file, to xtask/src/kit.rs"
        )),
        _ if found.len() != FILES.len() => {
            Err("a file that xtask/src/kit.rs lists is gone from deploy/".to_owned())
        }
        _ => Ok(()),
    }
}

/// Every command in the kit is one that the program has. With `--help`, it is parsed and not run.
fn commands_exist(file: &Path) -> Result {
    for command in tools::read(file)?.lines().filter(|command| !command.starts_with("CMD ")) {
        run(built("dormouse").args(command.split_whitespace()).arg("--help").stdout(Stdio::null()))?;
    }
    Ok(())
}

fn images(linters: &Linters, deploy: &Path) -> Result {
    run(linters.command("hadolint").args(["--failure-threshold", "info"]).arg(deploy.join("Dockerfile")))?;
    let schema = ["--builtin-schema", "vendor.compose-spec"];
    run(linters.command("check-jsonschema").args(schema).arg(deploy.join("compose.yaml")))
}

fn kubernetes(linters: &Linters, deploy: &Path) -> Result {
    let dir = deploy.join("kubernetes");
    let own = tools::read(&dir.join("dormouse.toml"))?;
    if own != tools::read(&deploy.join("dormouse.toml"))? {
        // kustomize reads nothing outside its directory.
        return Err(
            "deploy/kubernetes/dormouse.toml is a copy of deploy/dormouse.toml, and differs".to_owned()
        );
    }
    let mut validate = linters.command("kubernetes-validate");
    validate.args(["--quiet", "--strict", "--kubernetes-version", KUBERNETES]);
    run(validate.args(["migrate.yaml", "serve.yaml", "worker.yaml"].map(|file| dir.join(file))))
}

fn monitoring(dir: &Path, deploy: &Path) -> Result {
    let monitoring = deploy.join("monitoring");
    let promtool = |words: &[&str], file: PathBuf| run(Command::new("promtool").args(words).arg(file));
    promtool(&["check", "config", "--syntax-only"], monitoring.join("prometheus.yml"))?;
    promtool(&["check", "rules"], monitoring.join("dormouse.rules.yml"))?;
    promtool(&["check", "rules"], dir.join("dashboard.rules.yml"))?;
    promtool(&["test", "rules"], monitoring.join("dormouse.rules.test.yml"))
}

fn unit(dir: &Path, deploy: &Path) -> Result {
    // The program is where it was built, not where it will be installed.
    let program = built("dormouse").get_program().to_string_lossy().into_owned();
    let text = tools::read(&deploy.join("systemd/dormouse.service"))?.replace(INSTALLED, &program);
    let unit = dir.join("dormouse.service");
    tools::write(&unit, &text)?;
    let verified = Command::new("systemd-analyze").arg("verify").arg(&unit).output();
    let verified = verified.map_err(|error| format!("cannot run systemd-analyze: {error}"))?;
    let told = String::from_utf8_lossy(&verified.stderr);
    // A value that it cannot read is a warning to it, and the line is left out.
    if !verified.status.success() || told.contains("dormouse.service") {
        return Err(format!("systemd does not accept deploy/systemd/dormouse.service:\n{told}"));
    }
    let mut security = Command::new("systemd-analyze");
    security.args(["security", "--no-pager", "--offline=true", &format!("--threshold={EXPOSURE_MAX}")]);
    run(security.arg(&unit).stdout(Stdio::null()))
}

fn proxies(dir: &Path, deploy: &Path) -> Result {
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=dormouse.example.com"]);
    openssl.arg("-keyout").arg(dir.join("tls.key")).arg("-out").arg(dir.join("tls.crt"));
    run(openssl.stderr(Stdio::null()))?;
    let place = dir.display().to_string();
    let text = tools::read(&deploy.join("proxy/nginx.conf"))?.replace("/etc/dormouse", &place);
    // What the file is included into, with nothing outside this directory.
    let around = format!(
        "pid {place}/nginx.pid; error_log stderr; events {{}} http {{ access_log off;\n\
         client_body_temp_path {place}/body; proxy_temp_path {place}/proxy; fastcgi_temp_path {place}/fastcgi;\n\
         uwsgi_temp_path {place}/uwsgi; scgi_temp_path {place}/scgi;\n{text}\n}}\n"
    );
    let conf = dir.join("nginx.conf");
    tools::write(&conf, &around)?;
    run(Command::new("nginx").args(["-t", "-q", "-c"]).arg(&conf))?;
    let mut caddy = Command::new("caddy");
    caddy.args(["validate", "--adapter", "caddyfile", "--config"]).arg(deploy.join("proxy/Caddyfile"));
    run(caddy.env("HOME", dir).env("XDG_DATA_HOME", dir).env("XDG_CONFIG_HOME", dir).stderr(Stdio::null()))
}

impl Linters {
    /// A program beside this Python.
    fn command(&self, name: &str) -> Command {
        Command::new(self.python.with_file_name(format!("{name}{}", env::consts::EXE_SUFFIX)))
    }
}

fn is_there(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    // Debian keeps some of them where only root's path leads.
    let dirs = env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    dirs.into_iter().any(|dir| dir.join(program).is_file())
}
