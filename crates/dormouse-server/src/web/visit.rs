//! One visit to a page: the visitor, the namespace, and the submitted fields.

use axum::body::{Body, to_bytes};
use axum::http::{HeaderValue, Method, Response, StatusCode, header};
use dormouse::{Client, Error, Instance};
use maud::Markup;
use serde::Serialize;
use serde_json::Value;

use super::Answered;
use super::fields::Fields;
use super::layout::{self, Shell};
use super::session::SessionId;
use crate::access::Caller;
use crate::problem::Problem;
use crate::route::{Parts, parse_target};
use crate::server::{Act, App};

pub(super) struct Visit {
    pub(super) app: std::sync::Arc<App>,
    /// In the visitor's namespace.
    pub(super) client: Client,
    pub(super) caller: Caller,
    pub(super) session: Option<SessionId>,
    pub(super) shell: Shell,
    pub(super) path: Vec<(String, String)>,
    pub(super) query: Fields,
    pub(super) form: Fields,
    pub(super) head: axum::http::request::Parts,
}

impl Visit {
    /// A named part of the path.
    pub(super) fn path(&self, name: &str) -> &str {
        let found = self.path.iter().find(|(part, _)| part == name);
        found.map(|(_, value)| value.as_str()).expect("a page names the parts its handler asks for")
    }

    /// The instance that the path names.
    pub(super) async fn instance(&self) -> Result<Instance, Problem> {
        let target = parse_target(self.path("instance"))?;
        Ok(self.client.get(target.clone()).await?.ok_or(Error::NotFound(target))?)
    }

    /// A whole page.
    pub(super) fn page(&self, title: &str, body: &Markup) -> Answered {
        Ok(layout::page(&self.shell, StatusCode::OK, title, self.query.get("notice"), body))
    }

    /// Redirects to another page. Forms end this way, so that a reload does not send them again.
    pub(super) fn go(&self, path: &str) -> Answered {
        Ok(see_other(&self.shell.at(path)))
    }

    /// Runs a route of the API in the visitor's name.
    pub(super) async fn act(
        &self,
        path: &'static str,
        part: (&str, &str),
        body: &impl Serialize,
    ) -> Result<Value, Problem> {
        self.act_on(path, &[part], body).await
    }

    /// Like [`Visit::act`], for a route whose path has these parts.
    pub(super) async fn act_on(
        &self,
        path: &'static str,
        parts: &[(&str, &str)],
        body: &impl Serialize,
    ) -> Result<Value, Problem> {
        self.acted(path, parts, "", body).await
    }

    /// Like [`Visit::act`], for a route that takes a query and whose path has no parts.
    pub(super) async fn act_by_query(
        &self,
        path: &'static str,
        query: &str,
        body: &impl Serialize,
    ) -> Result<Value, Problem> {
        self.acted(path, &[], query, body).await
    }

    async fn acted(
        &self,
        path: &'static str,
        parts: &[(&str, &str)],
        query: &str,
        body: &impl Serialize,
    ) -> Result<Value, Problem> {
        let named = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let parts = Parts { path: parts.iter().map(named).collect(), ..Parts::default() };
        let body = Some(serde_json::to_string(body).expect("names and documents can be written"));
        let act = Act { method: Method::POST, path, parts, query: query.to_owned(), body };
        let response = self.app.act(&self.caller, act).await?;
        let bytes = to_bytes(response.into_body(), usize::MAX).await.unwrap_or_default();
        Ok(serde_json::from_slice(&bytes).unwrap_or_default())
    }
}

pub(super) fn see_other(to: &str) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SEE_OTHER;
    let to = HeaderValue::try_from(to).unwrap_or_else(|_| HeaderValue::from_static("/"));
    response.headers_mut().insert(header::LOCATION, to);
    response
}
