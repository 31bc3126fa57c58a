//! API keys, the audit log, collection.

use dormouse::When;
use dormouse::store::{AuditFilter, Collect, Scope};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::instances::limit;
use crate::access::{Pass, make_key};
use crate::cursor::{self, List};
use crate::problem::{Cause, Problem};
use crate::route::{Answer, Call, Nothing};
use crate::span::{self, SPAN_PATTERN};
use crate::view::{ApiKeyView, AuditView, Page};

const LABEL_CHARS_MAX: usize = 100;

/// An API key to create, in the caller's own namespace.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "NewApiKey")]
pub(super) struct NewKeyBody {
    /// A label that says who uses the key; shown in the audit log.
    #[schemars(length(min = 1, max = 100))]
    label: String,
    scope: ScopeWord,
    /// How long the key is valid, such as `90d`; forever unless set.
    #[schemars(extend("pattern" = SPAN_PATTERN))]
    expires_in: Option<String>,
}

#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "Scope")]
enum ScopeWord {
    /// Read.
    Read,
    /// Also start, signal, cancel, retry, pause and fork instances.
    Operate,
    /// Also manage API keys, read the audit log and remove old instances.
    Admin,
}

/// A new API key with its secret, which is shown only once.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "MadeApiKey")]
pub(super) struct MadeKeyView {
    /// The whole key with its secret. It is not stored and cannot be shown again.
    secret: String,
    #[serde(flatten)]
    key: ApiKeyView,
}

pub(super) async fn create_key(call: Call<Nothing, NewKeyBody>) -> Result<Answer<MadeKeyView>, Problem> {
    // Access to this host for a moment must not give someone a key that lasts.
    if call.caller.pass == Pass::Open {
        let told = "this server does not require API keys, so it does not create any: create one on \
            the database itself, with `keys create` and `--db`";
        return Err(Problem::new(Cause::Forbidden, told));
    }
    let NewKeyBody { label, scope, expires_in } = call.body;
    if label.trim().is_empty()
        || label.chars().count() > LABEL_CHARS_MAX
        || label.chars().any(char::is_control)
    {
        let told = format!("`label` says who uses the key: write 1 to {LABEL_CHARS_MAX} visible characters");
        return Err(Problem::new(Cause::InvalidName, told));
    }
    let scope = match scope {
        ScopeWord::Read => Scope::Read,
        ScopeWord::Operate => Scope::Operate,
        ScopeWord::Admin => Scope::Admin,
    };
    let expires = expires_in.as_deref().map(span::parse).transpose().map_err(Problem::invalid)?;
    let (new, secret) = make_key(label, call.caller.namespace, scope, expires.map(When::In))?;
    let key: ApiKeyView = call.app.store.add_api_key(new).await?.into();
    Answer::created(format!("{}/{}", call.parts.full_path, key.id), MadeKeyView { secret, key })
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ApiKeys")]
pub(super) struct KeysView {
    api_keys: Vec<ApiKeyView>,
}

pub(super) async fn keys(call: Call) -> Result<Answer<KeysView>, Problem> {
    let keys = call.app.store.api_keys(Some(call.caller.namespace)).await?;
    Answer::ok(KeysView { api_keys: keys.into_iter().map(Into::into).collect() })
}

pub(super) async fn revoke_key(call: Call<Nothing, Nothing>) -> Result<Answer<ApiKeyView>, Problem> {
    let id = call.path("api_key").trim_start_matches("dmk_").to_owned();
    let revoked = call.app.store.revoke_api_key(Some(call.caller.namespace), id).await?;
    let unknown = || Problem::new(Cause::NotFound, "there is no such API key in this namespace");
    Answer::ok(revoked.ok_or_else(unknown)?.into())
}

/// Which entries of the audit log to list.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AuditQuery {
    who: Option<String>,
    /// Only changes of this kind, such as `instance.cancel`.
    what: Option<String>,
    target: Option<String>,
    /// The `next` of the previous page.
    cursor: Option<String>,
    /// At most this many; 50 by default, up to 500.
    #[schemars(range(min = 1, max = 500))]
    limit: Option<usize>,
}

pub(super) async fn audit(call: Call<AuditQuery>) -> Result<Answer<Page<AuditView>>, Problem> {
    let AuditQuery { who, what, target, cursor, limit: asked } = call.query;
    let limit = limit(asked)?;
    let before = cursor.map(|cursor| cursor::decode(List::Audit, &cursor)).transpose()?;
    let namespace = Some(call.caller.namespace);
    let filter = AuditFilter { namespace, who, what, target, before, limit: limit + 1 };
    let mut entries = call.app.store.audit(filter).await?;
    let has_more = entries.len() > limit;
    entries.truncate(limit);
    let last = entries.last().filter(|_| has_more);
    let next = last.map(|entry| cursor::encode(List::Audit, entry.id));
    Answer::ok(Page { items: entries.into_iter().map(Into::into).collect(), next })
}

/// What to remove.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Collect")]
pub(super) struct GcBody {
    /// Instances that ended longer ago than this, such as `30d`.
    #[schemars(extend("pattern" = SPAN_PATTERN))]
    ended_for: String,
    /// Remove about this many at most, so that the response comes soon; all by default.
    limit: Option<usize>,
}

/// How much was removed.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Collected")]
pub(super) struct GcView {
    /// Removed instances, each with its history and inbox.
    instances: usize,
    /// Whether there may be more to remove.
    more: bool,
}

const GC_ROWS_MAX: usize = 256;

pub(super) async fn gc(call: Call<Nothing, GcBody>) -> Result<Answer<GcView>, Problem> {
    let ended_for = span::parse(&call.body.ended_for).map_err(Problem::invalid)?;
    let batch = Collect {
        namespace: Some(call.caller.namespace),
        ended_for: Some(ended_for),
        events_for: None,
        events_after: 0,
        rows_max: GC_ROWS_MAX,
    };
    let limit = call.body.limit.unwrap_or(usize::MAX);
    let mut gone = GcView { instances: 0, more: true };
    while gone.more && gone.instances < limit {
        let collected = call.client.store().collect(batch.clone()).await?;
        gone.instances += collected.instances;
        gone.more = collected.instances == GC_ROWS_MAX;
    }
    Answer::ok(gone)
}
