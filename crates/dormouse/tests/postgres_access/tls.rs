//! Encryption, with the server's certificate checked.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use dormouse::store::postgres::PostgresStore;
use private_postgres::Server;
use tempfile::TempDir;

use crate::journey::{engine, everything};
use crate::private::{ask_for_passwords, connect, execute, migrated, number, server};

#[tokio::test]
async fn a_server_is_spoken_to_only_if_its_certificate_is_of_a_known_authority_and_its_name() {
    let Some(dir) = certificates() else { return };
    let server = server(&[]);
    let url = migrated(&server, "tls").await;
    encrypt(&server, dir.path()).await;
    execute(&mut connect(&url).await, "alter role postgres password 'open sesame'").await;
    let url = url.replace("postgres@127.0.0.1", "postgres:open%20sesame@localhost");
    let with = |mode: &str, authority: &str| {
        format!("{url}?sslmode={mode}&sslrootcert={}", dir.path().join(authority).display())
    };
    let known = "hostssl all all 127.0.0.1/32 scram-sha-256\nhostssl all all ::1/128 scram-sha-256\n";
    ask_for_passwords(&server, known).await;

    let engine = engine(&with("verify-full", "ca.crt")).await;
    everything(&engine.client()).await;
    engine.shutdown().await;
    let mut conn = connect(&with("verify-full", "ca.crt")).await;
    let encrypted = "select count(*) from pg_stat_ssl where pid = pg_backend_pid() and ssl";
    assert_eq!(number(&mut conn, encrypted).await, 1);

    let wrong_authority = refusal(&with("verify-full", "other.crt")).await;
    assert!(wrong_authority.contains("sslrootcert=FILE"), "{wrong_authority}");
    // Its certificate is for localhost.
    let wrong_name = refusal(&with("verify-full", "ca.crt").replace("localhost", "127.0.0.1")).await;
    assert!(wrong_name.contains("sslrootcert=FILE"), "{wrong_name}");
    PostgresStore::connect(with("require", "other.crt").split('&').next().expect("an address"))
        .await
        .expect("who asks for no check gets none");
    let plain = refusal(&format!("{url}?sslmode=disable")).await;
    assert!(plain.contains("no encryption"), "{plain}");
}

#[tokio::test]
async fn a_server_without_encryption_is_refused_where_it_is_asked_for() {
    let server = server(&[]);
    let url = migrated(&server, "plain").await.replace("postgres@", "postgres:sesame@");
    let refused = refusal(&format!("{url}?sslmode=verify-full")).await;
    assert!(refused.contains("sslmode="), "{refused}");
}

async fn refusal(url: &str) -> String {
    let error = PostgresStore::connect(url).await.err().expect("it is refused");
    let said = format!("{error} {error:?}");
    assert!(!said.contains("sesame"), "{said}");
    said
}

/// An authority, another one, and a certificate of the first for `localhost`; none without openssl.
fn certificates() -> Option<TempDir> {
    if Command::new("openssl").arg("version").stdout(Stdio::null()).status().is_err() {
        eprintln!("skipped: there is no `openssl` on the path, which makes the certificates of this test");
        return None;
    }
    let dir = TempDir::new().expect("a directory");
    let openssl = |args: &str| {
        let output = Command::new("openssl").args(args.split(' ')).current_dir(dir.path()).output();
        let output = output.expect("openssl runs");
        assert!(output.status.success(), "openssl {args}: {}", String::from_utf8_lossy(&output.stderr));
    };
    for name in ["ca", "other"] {
        openssl(&format!(
            "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN={name} -keyout {name}.key -out {name}.crt"
        ));
    }
    openssl("req -newkey rsa:2048 -nodes -subj /CN=localhost -keyout server.key -out server.csr");
    fs::write(dir.path().join("names"), "subjectAltName=DNS:localhost\n").expect("a file");
    openssl(
        "x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -extfile names -out server.crt",
    );
    Some(dir)
}

/// Gives a server its certificate, and waits until it uses it.
async fn encrypt(server: &Server, certificates: &Path) {
    let owner = fs::metadata(server.data()).expect("a directory");
    for name in ["server.crt", "server.key"] {
        let path = server.data().join(name);
        fs::copy(certificates.join(name), &path).expect("a copy");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("its mode");
        chown(&path, Some(owner.uid()), Some(owner.gid())).expect("its owner");
    }
    append(&server.data().join("postgresql.conf"), "ssl = on\n");
    server.reload().expect("a running server");
    let mut conn = connect(&server.url("postgres")).await;
    while number(&mut conn, "select (current_setting('ssl') = 'on')::integer").await == 0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn append(path: &Path, line: &str) {
    let mut file = fs::File::options().append(true).open(path).expect("a file");
    file.write_all(line.as_bytes()).expect("a line");
}
