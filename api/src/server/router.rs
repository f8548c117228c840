//! The routes and their bounds.

use super::function::{self, Places};
use super::limits::{
    BODY_BYTES_MAX, CALLS_MAX, CAPTURES_MAX, CONCURRENT_REQUESTS_MAX, CONCURRENT_WAITS_MAX,
    FUNCTION_BODIES_KIB_MAX, FUNCTION_BODY_BYTES_MAX, FUNCTIONS_AT_ONCE_MAX, REQUEST_TIME_MAX,
    SMALL_BODY_BYTES_MAX,
};
use super::respond::{Calls, too_large};
use super::shared::Shared;
use super::{Server, change, handlers, life, stream};
use crate::types::Problem;
use axum::error_handling::HandleErrorLayer;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{Method, header};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::{delete, get, post, put};
use axum::{BoxError, Router};
use std::sync::Arc;
use tokio::sync::Semaphore;
use tower::ServiceBuilder;

/// Returns all routes of the API, for `axum::serve` on a UNIX listener.
pub fn router<S: Server>(server: Arc<S>) -> Router {
    let documents = Router::new()
        .route("/v1/apply", post(change::apply::<S>))
        .route("/v1/delete", post(change::delete_objects::<S>))
        .route("/v1/restore", post(life::restore::<S>))
        .route("/v1/instances/{name}", put(change::create_instance::<S>))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(middleware::from_fn(refuse_large));
    let plain = changes()
        .merge(views())
        .layer(DefaultBodyLimit::max(SMALL_BODY_BYTES_MAX));
    let waits = Router::new().route("/v1/events", get(stream::events::<S>));
    let captures = Router::new().route("/v1/ports/{name}/capture", get(stream::capture::<S>));
    let bodies = Arc::new(Semaphore::new(FUNCTION_BODIES_KIB_MAX));
    let functions = Router::new()
        .route("/v1/functions", post(function::run_function::<S>))
        .layer(DefaultBodyLimit::max(FUNCTION_BODY_BYTES_MAX))
        .layer(middleware::from_fn_with_state(bodies, admit_function));
    bounded(documents.merge(plain), CONCURRENT_REQUESTS_MAX)
        .merge(bounded(waits, CONCURRENT_WAITS_MAX))
        .merge(captures)
        .merge(functions)
        .fallback(unknown_route)
        .method_not_allowed_fallback(unknown_method)
        .with_state(Shared {
            views: Calls::new(server.clone(), CALLS_MAX),
            changes: Calls::new(server.clone(), CALLS_MAX),
            server,
            captures: Arc::new(Semaphore::new(CAPTURES_MAX)),
            functions: Arc::new(Places::new(FUNCTIONS_AT_ONCE_MAX)),
        })
}

fn changes<S: Server>() -> Router<Shared<S>> {
    Router::new()
        .route("/v1/deployment", delete(change::delete_deployment::<S>))
        .route("/v1/instances/{name}", delete(change::delete_instance::<S>))
        .route("/v1/switches/{name}", delete(change::delete_switch::<S>))
        .route(
            "/v1/security-groups/{name}",
            delete(change::delete_security_group::<S>),
        )
        .route("/v1/links/{name}", delete(change::delete_link::<S>))
        .route("/v1/chains/{name}", delete(change::delete_chain::<S>))
        .route("/v1/uplinks/{name}", delete(change::delete_uplink::<S>))
        .route("/v1/groups/{name}", delete(change::delete_group::<S>))
        .route("/v1/flavors/{name}", delete(change::delete_flavor::<S>))
        .route("/v1/pools/{name}", delete(change::delete_pool::<S>))
        .route("/v1/templates/{name}", delete(change::delete_template::<S>))
        .route("/v1/instances/{name}/command", post(life::command::<S>))
        .route("/v1/instances/{name}/restart", post(change::restart::<S>))
        .route("/v1/instances/{name}/pause", post(life::pause::<S>))
        .route("/v1/instances/{name}/unpause", post(life::unpause::<S>))
        .route("/v1/instances/{name}/upgrade", post(life::upgrade::<S>))
        .route("/v1/instances/{name}/scale", post(life::scale::<S>))
        .route("/v1/instances/{name}/migrate", post(life::migrate::<S>))
}

fn views<S: Server>() -> Router<Shared<S>> {
    Router::new()
        .route("/v1/version", get(handlers::version::<S>))
        .route("/v1/capacity", get(handlers::capacity::<S>))
        .route("/v1/health", get(handlers::health::<S>))
        .route("/v1/deployment", get(handlers::deployment::<S>))
        .route("/v1/instances", get(handlers::instances::<S>))
        .route("/v1/instances/{name}", get(handlers::instance::<S>))
        .route("/v1/instances/{name}/image", get(life::image::<S>))
        .route("/v1/instances/{name}/logs", get(handlers::logs::<S>))
        .route(
            "/v1/instances/{name}/stats",
            get(handlers::instance_stats::<S>),
        )
        .route("/v1/groups", get(handlers::groups::<S>))
        .route("/v1/groups/{name}", get(handlers::group::<S>))
        .route("/v1/ports", get(handlers::ports::<S>))
        .route("/v1/ports/{name}", get(handlers::port::<S>))
        .route("/v1/switches", get(handlers::switches::<S>))
        .route("/v1/security-groups", get(handlers::security_groups::<S>))
        .route("/v1/switches/{name}", get(handlers::switch::<S>))
        .route(
            "/v1/security-groups/{name}",
            get(handlers::security_group::<S>),
        )
        .route("/v1/links", get(handlers::links::<S>))
        .route("/v1/links/{name}", get(handlers::link::<S>))
        .route("/v1/chains", get(handlers::chains::<S>))
        .route("/v1/chains/{name}", get(handlers::chain::<S>))
        .route("/v1/uplinks", get(handlers::uplinks::<S>))
        .route("/v1/uplinks/{name}", get(handlers::uplink::<S>))
        .route("/v1/io", get(handlers::io::<S>))
        .route("/v1/pools", get(handlers::pools::<S>))
        .route("/v1/pools/{name}", get(handlers::pool::<S>))
        .route("/v1/templates", get(handlers::templates::<S>))
        .route("/v1/templates/{name}", get(handlers::template::<S>))
        .route("/v1/stats", get(handlers::stats::<S>))
        .route("/v1/doctor", get(handlers::doctor::<S>))
        .route("/metrics", get(handlers::metrics::<S>))
}

/// Limits the routes to `at_once` requests at a time, and limits the time of each request. Further requests are
/// refused, not queued.
fn bounded<T: Clone + Send + Sync + 'static>(routes: Router<T>, at_once: usize) -> Router<T> {
    routes.layer(
        ServiceBuilder::new()
            .layer(HandleErrorLayer::new(refused))
            .load_shed()
            .concurrency_limit(at_once)
            .timeout(REQUEST_TIME_MAX),
    )
}

/// Refuses a body whose announced length is too large, before any of it is read.
async fn refuse_large(request: Request, next: Next) -> Result<Response, Problem> {
    if announced(&request).is_some_and(|length| length > BODY_BYTES_MAX) {
        return Err(too_large());
    }
    Ok(next.run(request).await)
}

/// Returns the length of the body that the request announces.
fn announced(request: &Request) -> Option<usize> {
    let length = request.headers().get(header::CONTENT_LENGTH)?;
    length.to_str().ok()?.parse().ok()
}

/// Admits a request with a function if the daemon has memory for its body, which is held until the function has ended.
/// A body of unknown length counts as the maximum.
async fn admit_function(
    State(bodies): State<Arc<Semaphore>>,
    request: Request,
    next: Next,
) -> Result<Response, Problem> {
    let length = announced(&request).unwrap_or(FUNCTION_BODY_BYTES_MAX);
    if length > FUNCTION_BODY_BYTES_MAX {
        return Err(too_large().with_remedy("program and input may have 8 MiB each"));
    }
    let kib = u32::try_from(length.div_ceil(1024)).unwrap_or(u32::MAX);
    let _room = bodies.try_acquire_many(kib).map_err(|_| {
        Problem::unavailable("too many functions at once: the daemon holds no more of them")
            .with_remedy("try again in a moment")
    })?;
    Ok(next.run(request).await)
}

async fn refused(error: BoxError) -> Problem {
    if error.is::<tower::timeout::error::Elapsed>() {
        return Problem::unavailable("the daemon did not finish in time; it may still be at it")
            .with_remedy("look at 'nfluid events' before you try again");
    }
    Problem::unavailable("the daemon serves too many requests at once")
        .with_remedy("try again in a moment")
}

async fn unknown_route(uri: axum::http::Uri) -> Problem {
    Problem::not_found(format!("there is no resource {}", uri.path()))
        .with_remedy("the API's resources are listed in openapi/nfluid.json")
}

async fn unknown_method(method: Method, uri: axum::http::Uri) -> Problem {
    Problem {
        status: 405,
        kind: "/problems/method-not-allowed".into(),
        title: "The resource does not take this method".into(),
        ..Problem::bad_request(format!("{} does not take {method}", uri.path()))
    }
}
