//! What is written to the audit log: every change, and refusals in a way that cannot fill it.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;

use axum::extract::ConnectInfo;
use axum::http::Extensions;
use dormouse::store::NewAudit;

use crate::access::Caller;
use crate::problem::Problem;
use crate::repeat;
use crate::server::App;

/// Old stored responses and old audit entries are removed after this many changes.
const TIDY_EVERY: u64 = 256;
const TIDY_ROWS_MAX: usize = 1024;

impl App {
    /// Records a refusal in the audit log, in a way that cannot fill it.
    pub(crate) async fn refused(
        &self,
        caller: &Caller,
        what: &str,
        target: Option<String>,
        problem: &Problem,
    ) {
        if problem.cause.status().is_client_error() {
            let entry = entry(caller, what, target, &problem.audited());
            self.refusals.note(&self.store, entry).await;
        }
    }

    /// The same for unauthenticated callers, who are distinguished by their address, if it is known.
    pub(crate) async fn refused_stranger(&self, extensions: &Extensions, what: &str, problem: &Problem) {
        if problem.cause.status().is_client_error() {
            let from = extensions.get::<ConnectInfo<SocketAddr>>();
            let who = from.map_or_else(|| "nobody".to_owned(), |from| format!("nobody, at {}", from.0.ip()));
            let entry = entry(&Caller { who, ..Caller::nobody() }, what, None, problem.cause.word());
            self.strangers.note(&self.store, entry).await;
        }
    }

    pub(crate) async fn record(
        &self,
        caller: &Caller,
        what: &str,
        target: Option<String>,
        result: &str,
    ) -> Result<(), Problem> {
        self.store.record_audit(vec![entry(caller, what, target, result)]).await?;
        if self.changes.fetch_add(1, Ordering::Relaxed) % TIDY_EVERY == TIDY_EVERY - 1 {
            // In a task of its own: the change neither waits for this nor fails with it.
            let (store, audit_for) = (self.store.clone(), self.audit_for);
            tokio::spawn(async move {
                let tidied = store.tidy(repeat::KEPT_FOR, audit_for, TIDY_ROWS_MAX).await;
                if let Err(error) = tidied {
                    tracing::warn!(%error, "could not remove old stored responses and audit entries; trying again later");
                }
            });
        }
        Ok(())
    }
}

fn entry(caller: &Caller, what: &str, target: Option<String>, result: &str) -> NewAudit {
    NewAudit {
        namespace: caller.namespace.clone(),
        who: caller.who.clone(),
        what: what.to_owned(),
        target: target.map(|target| target.chars().take(300).collect()),
        result: result.to_owned(),
    }
}
