//! `serve` with a certificate of its own.

use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

/// `dormouse serve` over TLS, until the test is over.
struct Serving {
    dir: TempDir,
    process: Child,
    port: u16,
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Serving {
    fn start() -> Self {
        let dir = TempDir::new().expect("a directory");
        write_certificate(&dir, "one-ca.pem");
        let mut command = dormouse(&dir);
        command.args([
            "serve",
            "--create",
            "--bind",
            "127.0.0.1:0",
            "--tls-certificate",
            "tls.crt",
            "--tls-key",
            "tls.key",
        ]);
        let mut process = command.stderr(Stdio::piped()).spawn().expect("a process");
        let mut lines = BufReader::new(process.stderr.take().expect("it is piped")).lines();
        let port = loop {
            let line = lines.next().expect("it says where it serves").expect("text");
            if let Some((_, after)) = line.split_once("serving https://127.0.0.1:") {
                break after.split(',').next().and_then(|port| port.parse().ok()).expect("a port");
            }
        };
        // It would fail if nobody read its log.
        std::thread::spawn(move || lines.for_each(drop));
        Self { dir, process, port }
    }

    fn run(&self, ca_file: &str, args: &[&str]) -> Output {
        let server = format!("https://localhost:{}", self.port);
        dormouse(&self.dir)
            .args(["--server", &server, "--ca-file", ca_file])
            .args(args)
            .output()
            .expect("a run")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

fn dormouse(dir: &TempDir) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dormouse"));
    command.current_dir(dir.path()).env_remove("RUST_LOG");
    for name in ["DB", "SERVER", "CA_FILE", "CONFIG", "BIND", "API_KEY"] {
        command.env_remove(format!("DORMOUSE_{name}"));
    }
    command
}

/// Writes a certificate for localhost, its key, and its authority's certificate under this name.
fn write_certificate(dir: &TempDir, authority_file: &str) {
    let mut params = CertificateParams::new([]).expect("no names");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a key");
    let authority = params.self_signed(&key).expect("a certificate");
    let issuer = Issuer::new(params, key);
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(["localhost".to_owned()]).expect("a name");
    let certificate = params.signed_by(&key, &issuer).expect("a certificate");
    for (name, text) in
        [("tls.key", key.serialize_pem()), ("tls.crt", certificate.pem()), (authority_file, authority.pem())]
    {
        std::fs::write(dir.path().join(name), text).expect("a file");
    }
}

#[track_caller]
fn succeeds(output: &Output) {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn it_serves_requests_and_streams_over_tls_and_nothing_in_plain() {
    let serving = Serving::start();
    let start = ["start", "greeter", "--step", "Hello", "--key", "a", "--even-if-unknown"];
    succeeds(&serving.run("one-ca.pem", &start));
    // A stream is written by other code than a response that ends.
    let server = format!("https://localhost:{}", serving.port);
    let mut watch = dormouse(&serving.dir);
    watch.args(["--server", &server, "--ca-file", "one-ca.pem", "--json", "watch"]).stdout(Stdio::piped());
    let mut watching = watch.spawn().expect("a process");
    let mut lines = BufReader::new(watching.stdout.take().expect("it is piped")).lines();
    // What happens before it listens is not shown, so something happens until it is.
    let (seen, is_seen) = std::sync::mpsc::channel();
    std::thread::spawn(move || seen.send(lines.next()));
    let started = Instant::now();
    let line = loop {
        succeeds(&serving.run("one-ca.pem", &["fork", "a", "--from", "1"]));
        match is_seen.recv_timeout(Duration::from_millis(50)) {
            Ok(line) => break line.expect("a line").expect("text"),
            Err(_) => assert!(started.elapsed() < Duration::from_secs(30), "nothing came"),
        }
    };
    let _ = watching.kill();
    let _ = watching.wait();
    assert!(line.contains("greeter"), "{line}");

    let mut plain = TcpStream::connect(("127.0.0.1", serving.port)).expect("a connection");
    plain.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("it is sent");
    let mut answer = Vec::new();
    // It may be reset instead of closed.
    let _ = plain.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP/"), "{answer:?}");
}

#[test]
fn a_renewed_certificate_is_used_without_a_restart_and_a_broken_one_is_not() {
    let serving = Serving::start();
    succeeds(&serving.run("one-ca.pem", &["ls"]));
    write_certificate(&serving.dir, "other-ca.pem");
    let started = Instant::now();
    while !serving.run("other-ca.pem", &["ls"]).status.success() {
        assert!(started.elapsed() < Duration::from_secs(30), "the renewed certificate is not used");
    }
    std::fs::write(serving.file("tls.crt"), "no certificate").expect("a file");
    // Longer than it takes to look at the files again.
    let until = Instant::now() + Duration::from_secs(2);
    while Instant::now() < until {
        succeeds(&serving.run("other-ca.pem", &["ls"]));
    }
}

#[test]
fn health_asks_the_server_of_the_same_settings() {
    let serving = Serving::start();
    let health = |args: &[&str]| {
        let bind = format!("127.0.0.1:{}", serving.port);
        let mut command = dormouse(&serving.dir);
        command.env("DORMOUSE_BIND", bind).env("DORMOUSE_TLS_CERTIFICATE", "tls.crt");
        command.arg("health").args(args).output().expect("a run")
    };
    succeeds(&health(&[]));
    let ready = health(&["--ready"]);
    succeeds(&ready);
    assert_eq!(String::from_utf8_lossy(&ready.stdout), "ready\n");
    // A certificate that is not the server's is not trusted.
    write_certificate(&serving.dir, "tls-ca.pem");
    let refused = dormouse(&serving.dir)
        .env("DORMOUSE_BIND", format!("127.0.0.1:{}", serving.port))
        .env("DORMOUSE_TLS_CERTIFICATE", "tls-ca.pem")
        .arg("health")
        .output()
        .expect("a run");
    assert_eq!(refused.status.code(), Some(6), "{}", String::from_utf8_lossy(&refused.stderr));
}

#[test]
fn a_certificate_without_its_key_is_refused_before_it_serves() {
    let dir = TempDir::new().expect("a directory");
    write_certificate(&dir, "ca.pem");
    let refused = |args: &[&str], told: &str| {
        let output = dormouse(&dir).arg("serve").args(args).output().expect("a run");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && error.contains(told), "{error}");
    };
    refused(&["--tls-certificate", "tls.crt"], "a TLS certificate needs its key");
    refused(&["--tls-certificate", "tls.key", "--tls-key", "tls.key"], "contains no PEM certificate");
    refused(&["--tls-certificate", "ca.pem", "--tls-key", "tls.key"], "it is not the key of ca.pem");
}
