//! The dashboard: pages rendered on the server, over the same database and with the same access checks as the API.
//!
//! A page reads with a [`Client`] in its visitor's namespace. Every change is a form, and a form does nothing itself:
//! it becomes a request to a route of the API (see [`Visit::act`]), with that route's scope, handler and entry in the
//! audit log.

mod act;
mod amend;
mod bulk;
mod chart;
mod commands;
mod diff;
mod fields;
mod form;
mod gantt;
mod go;
mod graph;
mod inbox;
mod instance;
mod instances;
mod json;
mod kept;
mod keys;
mod layout;
mod limits;
mod live;
mod login;
mod machines;
mod mail;
mod moments;
mod operations;
mod overview;
mod pace;
mod parts;
mod pulse;
mod retention;
mod schedules;
mod session;
mod start;
mod timeline;
mod transports;
mod versions;
mod visit;
mod waiting;
mod what_if;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{OriginalUri, RawPathParams, Request};
use axum::http::{HeaderMap, HeaderValue, Method, Response, header};
use axum::routing::{MethodFilter, on};
use dormouse::store::Scope;

use self::fields::Fields;
use self::layout::Shell;
use self::pulse::Pulse;
use self::session::{Sessions, is_forged};
use self::visit::Visit;
use crate::body::{self, Bounds};
use crate::problem::{Cause, Problem};
use crate::route::Needs;
use crate::server::App;

/// The size limit of forms that need no session. Signing in sends only a key, a token and the next page.
const PUBLIC_FORM_BYTES_MAX: usize = 16 * 1024;
const PUBLIC_FIELDS_MAX: usize = 16;
/// The field limit of other forms. A form for many instances has a field for each.
const FIELDS_MAX: usize = 4096;

/// Every page and form of the dashboard.
fn table() -> Vec<Page> {
    vec![
        Page::get("/", overview::show),
        Page::get("/instances", instances::show),
        Page::get("/instances/bulk", bulk::confirm).operate(),
        Page::post("/instances/bulk", bulk::act),
        Page::get("/instances/{instance}", instance::show),
        Page::get("/instances/{instance}/what-if", what_if::show),
        Page::get("/instances/{instance}/at", moments::show),
        Page::get("/instances/{instance}/timeline", gantt::show),
        Page::get("/instances/{instance}/fork", act::fork_form).operate(),
        Page::post("/instances/{instance}/fork", act::fork),
        Page::post("/instances/{instance}/signal", act::signal),
        Page::post("/instances/{instance}/cancel", act::cancel),
        Page::post("/instances/{instance}/retry", act::retry),
        Page::post("/instances/{instance}/edit", act::edit),
        Page::post("/instances/{instance}/pause", act::pause),
        Page::post("/instances/{instance}/resume", act::resume),
        Page::post("/instances/{instance}/tags", act::tag),
        Page::post("/instances/{instance}/inbox/{signal}/drop", amend::drop),
        Page::post("/instances/{instance}/inbox/{signal}/edit", amend::edit),
        Page::get("/go", go::to),
        Page::get("/start", start::show).operate(),
        Page::post("/start", start::start),
        Page::get("/transports", transports::show),
        Page::get("/keys", keys::show).admin(),
        Page::post("/keys", keys::create).admin(),
        Page::post("/keys/{api_key}/revoke", keys::revoke).admin(),
        Page::get("/retention", retention::show).admin(),
        Page::post("/retention", retention::collect).admin(),
        Page::get("/waiting", waiting::show),
        Page::get("/kept", kept::show),
        Page::post("/kept/{kept}/drop", kept::drop),
        Page::get("/inbox", inbox::show),
        Page::get("/inbox/{interaction}", inbox::one),
        Page::post("/inbox/{interaction}/claim", inbox::claim),
        Page::post("/inbox/{interaction}/complete", inbox::complete),
        Page::post("/inbox/{interaction}/fail", inbox::fail),
        Page::get("/machines", machines::show),
        Page::get("/machines/{machine}", machines::one),
        Page::get("/schedules", schedules::show),
        Page::post("/schedules", schedules::create),
        Page::get("/schedules/{schedule}", schedules::one),
        Page::post("/schedules/{schedule}/change", schedules::change),
        Page::post("/schedules/{schedule}/reset", schedules::reset),
        Page::post("/schedules/{schedule}/pause", schedules::pause),
        Page::post("/schedules/{schedule}/resume", schedules::resume),
        Page::post("/schedules/{schedule}/run", schedules::run),
        Page::post("/schedules/{schedule}/backfill", schedules::backfill),
        Page::post("/schedules/{schedule}/delete", schedules::delete),
        Page::get("/queues", operations::queues),
        Page::post("/queues/{queue}/pause", operations::pause_queue),
        Page::post("/queues/{queue}/resume", operations::resume_queue),
        Page::post("/transports", transports::set),
        Page::post("/transports/close", transports::close),
        Page::get("/limits", limits::show),
        Page::post("/limits", limits::set),
        Page::post("/limits/remove", limits::remove),
        Page::post("/shares", operations::weigh_share).admin(),
        Page::get("/workers", operations::workers),
        Page::get("/audit", operations::audit).admin(),
        Page::get("/live", live::watch),
        Page::get("/login", login::form).public(),
        Page::post("/login", login::enter).public(),
        Page::post("/logout", login::leave).public(),
        Page::post("/namespace", login::choose),
        Page::get("/assets/dormouse.css", layout::style).public(),
        Page::get("/assets/dormouse.js", layout::script).public(),
        Page::get("/assets/dormouse.svg", layout::icon).public(),
    ]
}

/// What the dashboard remembers between requests.
pub(crate) struct Web {
    sessions: Sessions,
    pulse: Pulse,
    is_behind_https: bool,
}

impl Web {
    pub(crate) fn new(is_behind_https: bool) -> Self {
        Self { sessions: Sessions::new(), pulse: Pulse::default(), is_behind_https }
    }
}

type Answered = Result<Response<Body>, Problem>;
type Running = Pin<Box<dyn Future<Output = Answered> + Send>>;

/// One entry of the table.
struct Page {
    method: Method,
    path: &'static str,
    needs: Needs,
    run: Box<dyn Fn(Visit) -> Running + Send + Sync>,
}

impl Page {
    /// A page to read.
    fn get<F, R>(path: &'static str, handler: F) -> Self
    where
        F: Fn(Visit) -> R + Send + Sync + 'static,
        R: Future<Output = Answered> + Send + 'static,
    {
        let run = Box::new(move |visit| Box::pin(handler(visit)) as _);
        Self { method: Method::GET, path, needs: Needs::Scope(Scope::Read), run }
    }

    /// A submitted form.
    fn post<F, R>(path: &'static str, handler: F) -> Self
    where
        F: Fn(Visit) -> R + Send + Sync + 'static,
        R: Future<Output = Answered> + Send + 'static,
    {
        Self { method: Method::POST, needs: Needs::Scope(Scope::Operate), ..Self::get(path, handler) }
    }

    /// A page that is useless to visitors who may only read.
    fn operate(self) -> Self {
        Self { needs: Needs::Scope(Scope::Operate), ..self }
    }

    fn admin(self) -> Self {
        Self { needs: Needs::Scope(Scope::Admin), ..self }
    }

    /// A page for visitors who have not signed in.
    fn public(self) -> Self {
        Self { needs: Needs::Nothing, ..self }
    }
}

/// Adds the pages to the routes of the API.
pub(crate) fn mount(mut router: Router, app: &Arc<App>) -> Router {
    for page in table() {
        let method = MethodFilter::try_from(page.method.clone()).expect("a plain method");
        let (path, page, app) = (page.path, Arc::new(page), app.clone());
        let handler = move |params: Result<RawPathParams, _>, full: OriginalUri, request: Request| {
            let (page, app) = (page.clone(), app.clone());
            let params: Result<_, axum::extract::rejection::RawPathParamsRejection> = params;
            let parts = params.map(|params| {
                params.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
            });
            async move {
                let shell = Shell::of(full.path(), &request);
                let entered = match parts {
                    Ok(parts) => enter(app, page, parts, shell.clone(), request).await,
                    Err(_) => Err((shell, Problem::invalid("the address is not valid UTF-8"))),
                };
                guarded(entered.unwrap_or_else(|(shell, problem)| layout::refusal(&shell, &problem)))
            }
        };
        router = router.route(path, on(method, handler));
    }
    router
}

/// Checks the visitor's access and returns the page. A refusal comes with the frame to show it in.
async fn enter(
    app: Arc<App>,
    page: Arc<Page>,
    path: Vec<(String, String)>,
    mut shell: Shell,
    request: Request,
) -> Result<Response<Body>, (Shell, Problem)> {
    let (head, body) = request.into_parts();
    let store = app.store.clone();
    let mut known = None;
    let admitted = async {
        // Public files do not depend on the store.
        let looked = app.door.look_for_keys(&*store).await;
        if page.needs != Needs::Nothing {
            looked?;
        }
        app.door.check_host(&head.method, &head.headers)?;
        let (caller, session) = session::visitor(&app, &head.headers, page.needs).await?;
        known = Some(caller.clone()).filter(|_| page.needs != Needs::Nothing);
        shell.admit(&app, &caller, session.as_ref(), page.needs);
        page.needs.check(&caller)?;
        let form = match page.method {
            Method::POST => form(&app, &page, &head.headers, body, &shell.csrf).await?,
            _ => Fields::default(),
        };
        let client = app.client.in_namespace(&caller.namespace)?;
        let query = Fields::parse(head.uri.query().unwrap_or_default().as_bytes());
        let (app, shell, head) = (app.clone(), shell.clone(), head.clone());
        Ok::<_, Problem>(Visit { app, client, caller, session, shell, path, query, form, head })
    };
    let visit = match admitted.await {
        Ok(visit) => visit,
        Err(problem) => {
            // A visitor who has not signed in goes to the sign-in page; that is not a refusal.
            if problem.cause != Cause::Unauthenticated {
                match known {
                    Some(visitor) => app.refused(&visitor, page.path, None, &problem).await,
                    None => app.refused_stranger(&head.extensions, "request", &problem).await,
                }
            }
            return Err((shell, problem));
        }
    };
    // A change runs to its end even if the visitor leaves.
    let ended = if page.method == Method::POST {
        let running = (page.run)(visit);
        tokio::spawn(running).await.unwrap_or_else(|error| Err(Problem::panicked(&error)))
    } else if page.needs == Needs::Nothing {
        (page.run)(visit).await
    } else {
        let namespace = visit.caller.namespace.clone();
        app.turns.take(&namespace, (page.run)(visit)).await
    };
    ended.map_err(|problem| (shell, problem))
}

/// The submitted form, if it comes from one of our pages.
async fn form(
    app: &App,
    page: &Page,
    headers: &HeaderMap,
    body: Body,
    csrf: &str,
) -> Result<Fields, Problem> {
    let (bytes_max, fields_max) = match page.needs {
        Needs::Nothing => (PUBLIC_FORM_BYTES_MAX, PUBLIC_FIELDS_MAX),
        _ => (app.bounds.bytes_max, FIELDS_MAX),
    };
    let sent = body::gather(body, Bounds { bytes_max, ..app.bounds }).await?;
    let form = Fields::of_form(&sent, fields_max)?;
    if is_forged(headers, form.get("csrf"), csrf) {
        let told = "the form did not come from a page of this server, or the page is older than the server process \
            or your session: go back, reload the page, and send the form again";
        return Err(Problem::new(Cause::UntrustedOrigin, told));
    }
    Ok(form)
}

/// A page runs and loads only what this server serves, and no other site may show it in a frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
                      connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

fn guarded(mut response: Response<Body>) -> Response<Body> {
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

/// Whether a request to an unknown route comes from a person in a browser.
pub(crate) fn wants_a_page(request: &Request) -> bool {
    let accepts = request.headers().get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    let is_api = request.uri().path().starts_with("/v1/");
    request.method() == Method::GET && !is_api && accepts.is_some_and(|accept| accept.contains("text/html"))
}

pub(crate) fn no_such_page(request: &Request) -> Response<Body> {
    let full = request.extensions().get::<OriginalUri>().map_or(request.uri(), |full| &full.0);
    let shell = Shell::of(full.path(), request);
    guarded(layout::refusal(&shell, &Problem::new(Cause::NoRoute, "there is no page at this address")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_signing_in_and_what_browsers_load_is_for_anyone_and_every_form_needs_more_than_looking() {
        for Page { method, path, needs, .. } in table() {
            let is_public = matches!(path, "/login" | "/logout") || path.starts_with("/assets/");
            assert_eq!(needs == Needs::Nothing, is_public, "{method} {path}");
            let may_look = needs == Needs::Scope(Scope::Read);
            assert!(method == Method::GET || !may_look, "{method} {path}");
        }
    }
}
