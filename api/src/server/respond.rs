//! Answers: JSON, and problems as `application/problem+json`.

use super::Server;
use crate::types::Problem;
use axum::Json;
use axum::body::Body;
use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::extract::{Path, Query};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use std::sync::Arc;

/// A path parameter, or why it cannot be read.
pub type PathResult<T> = Result<Path<T>, PathRejection>;

/// A JSON body, or why it cannot be read.
pub type JsonResult<T> = Result<Json<T>, JsonRejection>;

/// Query parameters, or why they cannot be read.
pub type QueryResult<T> = Result<Query<T>, QueryRejection>;

/// A JSON answer, or a problem.
pub type Answer<T> = Result<Json<T>, Problem>;

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        // A problem is plain data: it cannot fail to serialize.
        let body = serde_json::to_vec(&self).unwrap_or_default();
        let kind = [(header::CONTENT_TYPE, "application/problem+json")];
        (status, kind, Body::from(body)).into_response()
    }
}

impl From<JsonRejection> for Problem {
    fn from(rejection: JsonRejection) -> Self {
        let status = rejection.status();
        if status == StatusCode::PAYLOAD_TOO_LARGE {
            return too_large();
        }
        Problem {
            status: status.as_u16(),
            ..Problem::bad_request(rejection.body_text())
        }
    }
}

impl From<QueryRejection> for Problem {
    fn from(rejection: QueryRejection) -> Self {
        Problem::bad_request(rejection.body_text())
    }
}

impl From<PathRejection> for Problem {
    fn from(rejection: PathRejection) -> Self {
        Problem::bad_request(rejection.body_text())
    }
}

/// 413.
pub fn too_large() -> Problem {
    Problem::too_large("the request's body is larger than the daemon accepts")
        .with_remedy("a document may have 16 MiB; its rule files come on top, 48 MiB in all")
}

/// 400: a query parameter is above its maximum.
pub fn too_much(parameter: &str, maximum: impl std::fmt::Display) -> Problem {
    Problem::bad_request(format!("'{parameter}' is larger than {maximum}"))
}

/// Calls the server on a thread that may block.
pub async fn blocking<S, T>(
    server: Arc<S>,
    call: impl FnOnce(&S) -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem>
where
    S: Server,
    T: Send + 'static,
{
    tokio::task::spawn_blocking(move || call(&server))
        .await
        .unwrap_or_else(|_| {
            Err(
                Problem::failed("the daemon met an internal error; the request was given up")
                    .with_remedy("look at the daemon's log and report it"),
            )
        })
}

/// As [`blocking`], for a call that cannot fail, answered as JSON.
pub async fn answer<S, T>(server: Arc<S>, call: impl FnOnce(&S) -> T + Send + 'static) -> Answer<T>
where
    S: Server,
    T: Serialize + Send + 'static,
{
    blocking(server, |server| Ok(call(server))).await.map(Json)
}
