//! API keys: who has one, and taking one back.

use dormouse::store::ApiKey;
use maud::{Markup, html};

use super::Answered;
use super::fields::segment;
use super::layout::Shell;
use super::parts::{self, time};
use super::visit::Visit;

pub(super) async fn show(visit: Visit) -> Answered {
    page(&visit, None).await
}

async fn page(visit: &Visit, made: Option<&str>) -> Answered {
    let store = &visit.app.store;
    let keys = store.api_keys(Some(visit.caller.namespace.clone())).await?;
    let now = store.about().await?.now;
    let s = &visit.shell;
    let columns = ["Key", "Label", "Scope", "Status", "Created", "Expires", ""];
    visit.page("API keys", &html! {
        h1 { "API keys" }
        @if let Some(secret) = made {
            p.notice #made role="status" { "The new key, which is shown only now: " code { (secret) } }
        }
        section.card #keys {
            @if keys.is_empty() {
                (parts::empty("There are no API keys.", &html! { "Create the first one on the database itself, with " code { "dormouse keys create" } "." }))
            } @else {
                (parts::table("API keys", &parts::columns(&columns), &html! {
                    @for key in &keys {
                        tr data-key=(key.id) {
                            th scope="row" { code { "dmk_" (key.id) } }
                            td { (parts::named(&key.label)) }
                            td { (key.scope) }
                            td { (status(key)) }
                            td { (time(key.created_at, now)) }
                            td { @if let Some(at) = key.expires_at { (time(at, now)) } @else { "never" } }
                            td { @if key.is_live { (parts::button(s, &format!("/keys/{}/revoke", segment(&key.id)), "", "Revoke", Some(&format!("Revoke {}", key.label)))) } }
                        }
                    }
                }))
            }
        }
        (new_key(s))
    })
}

fn status(key: &ApiKey) -> Markup {
    html! {
        @if key.revoked_at.is_some() { span.bad { "revoked" } }
        @else if key.is_live { "valid" }
        @else { span.muted { "expired" } }
    }
}

fn new_key(s: &Shell) -> Markup {
    html! {
        form.card #new-key method="post" action=(s.at("/keys")) {
            (s.token())
            h2 { "Another key" }
            label for="key-label" { "Label " span.muted { "(who uses it; shown in the audit log)" } }
            input #key-label name="label" maxlength="100" required;
            label for="key-scope" { "Scope" }
            select.choice #key-scope name="scope" { option value="read" { "read" } option value="operate" { "operate" } option value="admin" { "admin" } }
            label for="key-expires" { "Valid for " span.muted { "(such as 90d; forever unless set)" } }
            input #key-expires name="expires_in" spellcheck="false";
            button.primary type="submit" { "Create" }
        }
    }
}

pub(super) async fn create(visit: Visit) -> Answered {
    let form = &visit.form;
    let body = serde_json::json!({
        "label": form.text("label").unwrap_or_default(), "scope": form.get("scope"), "expires_in": form.text("expires_in"),
    });
    let made = visit.act_on("/v1/api-keys", &[], &body).await?;
    // Not a redirect: the secret must not be in an address.
    page(&visit, made["secret"].as_str()).await
}

pub(super) async fn revoke(visit: Visit) -> Answered {
    let key = visit.path("api_key").to_owned();
    visit.act("/v1/api-keys/{api_key}/revoke", ("api_key", &key), &serde_json::json!({})).await?;
    visit.go("/keys?notice=revoked")
}
