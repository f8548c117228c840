//! Responses: JSON, and problems as `application/problem+json`.

use crate::types::Problem;
use axum::Json;
use axum::body::Body;
use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::extract::{Path, Query};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// A path parameter, or the reason why it cannot be read.
pub type PathResult<T> = Result<Path<T>, PathRejection>;

/// A JSON body, or the reason why it cannot be read.
pub type JsonResult<T> = Result<Json<T>, JsonRejection>;

/// Query parameters, or the reason why they cannot be read.
pub type QueryResult<T> = Result<Query<T>, QueryRejection>;

/// A JSON response, or a problem.
pub type Answer<T> = Result<Json<T>, Problem>;

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        // A problem is plain data and always serializes.
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

/// 413: the body is too large.
pub fn too_large() -> Problem {
    Problem::too_large("the request's body is larger than the daemon accepts")
        .with_remedy("a document may have 16 MiB; its rule files come on top, 48 MiB in all")
}

/// 400: a query parameter is above its maximum.
pub fn too_much(parameter: &str, maximum: impl std::fmt::Display) -> Problem {
    Problem::bad_request(format!("'{parameter}' is larger than {maximum}"))
}

/// The server, with a bounded number of places for calls. A call holds its place until the call ends, also if its
/// client goes away: however often clients come and go, at most this many calls have a thread.
pub(super) struct Calls<S> {
    server: Arc<S>,
    places: Arc<Semaphore>,
}

impl<S> Clone for Calls<S> {
    fn clone(&self) -> Self {
        Calls {
            server: self.server.clone(),
            places: self.places.clone(),
        }
    }
}

impl<S> Calls<S> {
    /// Creates places for at most `at_once` calls at a time.
    pub fn new(server: Arc<S>, at_once: usize) -> Self {
        Calls {
            server,
            places: Arc::new(Semaphore::new(at_once)),
        }
    }
}

/// Calls the server on a thread that may block, when there is a place.
pub(super) async fn blocking<S, T>(
    calls: Calls<S>,
    call: impl FnOnce(&S) -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem>
where
    S: Send + Sync + 'static,
    T: Send + 'static,
{
    // The semaphore is never closed.
    let place = calls.places.acquire_owned().await.ok();
    blocking_in(place, calls.server, call).await
}

/// Calls the server on a thread that may block, and drops `place` when the call has ended.
pub(super) async fn blocking_in<P, S, T>(
    place: P,
    server: Arc<S>,
    call: impl FnOnce(&S) -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem>
where
    P: Send + 'static,
    S: Send + Sync + 'static,
    T: Send + 'static,
{
    let called = move || {
        let _place = place;
        call(&server)
    };
    tokio::task::spawn_blocking(called)
        .await
        .unwrap_or_else(|_| {
            Err(
                Problem::failed("the daemon met an internal error; the request was given up")
                    .with_remedy("look at the daemon's log and report it"),
            )
        })
}

/// Calls the server as [`blocking`] does, for a call that cannot fail, and responds with JSON.
pub(super) async fn answer<S, T>(
    calls: Calls<S>,
    call: impl FnOnce(&S) -> T + Send + 'static,
) -> Answer<T>
where
    S: Send + Sync + 'static,
    T: Serialize + Send + 'static,
{
    blocking(calls, |server| Ok(call(server))).await.map(Json)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    // Catches: the place is held by the request and not by the call, as a layer of the router does.
    // promise: 8.10
    #[tokio::test]
    async fn a_call_has_its_place_until_it_ends_also_when_its_client_has_gone() {
        let calls = Calls::new(Arc::new(()), 1);
        let ((begun, has_begun), (release, released)) = (channel(), channel());
        let client = tokio::spawn(blocking(calls.clone(), move |()| {
            begun.send(()).expect("it is awaited");
            let _over = released.recv();
            Ok(())
        }));
        while has_begun.try_recv().is_err() {
            tokio::task::yield_now().await;
        }
        client.abort();
        assert!(client.await.expect_err("it has gone").is_cancelled());
        assert_eq!(calls.places.available_permits(), 0, "its call goes on");
        release.send(()).expect("it waits");
        let next = blocking(calls.clone(), |()| Ok(7)).await;
        assert_eq!(next.expect("there is a place again"), 7);
    }
}
