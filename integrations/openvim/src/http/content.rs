//! The content of requests and answers: JSON, or YAML if the client says so.

use crate::fault::Fault;
use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderName, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use nfluid_control::yaml;
use serde_json::{Value, json};

const JSON: &str = "application/json";
const YAML: &str = "application/yaml";

/// The content of a request.
pub struct Content(pub Value);

/// The content of an answer, which [`write`] writes in the client's format.
#[derive(Clone)]
pub struct Answer(pub Value);

impl<S: Send + Sync> FromRequest<S> for Content {
    type Rejection = Fault;

    async fn from_request(request: Request, state: &S) -> Result<Self, Fault> {
        let is_yaml = says(request.headers(), CONTENT_TYPE, YAML);
        let is_json = says(request.headers(), CONTENT_TYPE, JSON)
            || !request.headers().contains_key(CONTENT_TYPE);
        if !is_yaml && !is_json {
            return Err(Fault {
                status: StatusCode::NOT_ACCEPTABLE,
                text: format!("Content-Type: {JSON} or {YAML} is expected"),
            });
        }
        let body = Bytes::from_request(request, state).await;
        let body = body.map_err(|error| Fault::bad(error.body_text()))?;
        if is_json {
            let read = serde_json::from_slice(&body);
            return read
                .map(Content)
                .map_err(|error| Fault::bad(format!("the request is no JSON: {error}")));
        }
        let text = std::str::from_utf8(&body)
            .map_err(|error| Fault::bad(format!("the request is no text: {error}")))?;
        let read = yaml::parse(text).map(|node| Content(node.to_json()));
        read.map_err(|error| {
            let line = error.mark.line;
            Fault::bad(format!(
                "the request is no YAML: line {line}: {}",
                error.message
            ))
        })
    }
}

fn says(headers: &HeaderMap, header: HeaderName, what: &str) -> bool {
    let value = headers.get(header).and_then(|value| value.to_str().ok());
    value.is_some_and(|value| value.contains(what))
}

impl IntoResponse for Answer {
    fn into_response(self) -> Response {
        let mut response = StatusCode::OK.into_response();
        response.extensions_mut().insert(self);
        response
    }
}

impl IntoResponse for Fault {
    fn into_response(self) -> Response {
        let kind = format!(
            "{} {}",
            self.status.as_u16(),
            self.status.canonical_reason().unwrap_or_default()
        );
        let error = json!({ "error": { "code": self.status.as_u16(), "type": kind, "description": self.text } });
        let mut response = self.status.into_response();
        response.extensions_mut().insert(Answer(error));
        response
    }
}

/// Writes the answers of all requests in the format that the client wants.
pub async fn write(request: Request, next: Next) -> Response {
    let wants_yaml = says(request.headers(), ACCEPT, YAML);
    let mut response = next.run(request).await;
    let Some(Answer(value)) = response.extensions_mut().remove::<Answer>() else {
        return response;
    };
    let (kind, text) = if wants_yaml {
        (YAML, yaml::to_text(&value))
    } else {
        (JSON, format!("{value:#}\n"))
    };
    (response.status(), [(CONTENT_TYPE, kind)], text).into_response()
}
