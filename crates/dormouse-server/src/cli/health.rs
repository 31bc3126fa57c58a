//! `health`: asks a server whether it is well. For places without an HTTP client, such as a slim container.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::ExitCode;
use std::time::Duration;

use super::conn::{Conn, Server};
use super::output::{Output, line, text};
use super::run;
use super::tls::Trust;
use super::{Failure, Globals};

/// What to ask.
#[derive(Debug, clap::Args)]
pub struct Health {
    /// Ask whether it can serve requests, which its database must be able to, and not only whether it answers
    #[arg(long)]
    ready: bool,
}

/// A server that takes longer is not well.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

pub(super) async fn health(globals: &Globals, output: Output, args: &Health) -> Result<ExitCode, Failure> {
    let server = match &globals.server {
        Some(url) => Server::parse(url, globals.ca_file.as_deref())?,
        None => own(globals)?,
    };
    let at = server.authority();
    let conn = Conn::There { server, api_key: None, namespace: None };
    let path = if args.ready { "/readyz" } else { "/healthz" };
    let answer = tokio::time::timeout(ANSWER_WITHIN, conn.get(path)).await;
    let told = || Failure::unreachable(format!("{at} did not answer within {} s", ANSWER_WITHIN.as_secs()));
    let value = answer.map_err(|_| told())??;
    output.show(&value, |value| line(&text(value, "status")));
    Ok(ExitCode::SUCCESS)
}

/// The server that `serve` starts with these settings, on this host.
fn own(globals: &Globals) -> Result<Server, Failure> {
    let mut address = run::bind(&globals.settings);
    if address.ip().is_unspecified() {
        address.set_ip(match address.ip() {
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    let certificate = globals.settings.path("serve.tls_certificate");
    let trust = certificate.as_deref().map(Trust::Only);
    Server::here(address, trust)
}
