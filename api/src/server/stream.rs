//! Responses that last as long as their client wants: events and captures.

use super::Server;
use super::limits::{CAPTURES_MAX, EVENT_WAIT_MAX, POSITION_MAX};
use super::problems::{Busy, Missing, Other};
use super::query::EventQuery;
use super::respond::{Answer, PathResult, QueryResult, answer, blocking, too_much};
use super::shared::Shared;
use crate::types::{EventPage, Problem};
use axum::body::{Body, Bytes};
use axum::extract::{Query, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use std::convert::Infallible;
use std::time::Duration;

/// Events after a position. Waits for an event if the request asks for it.
#[utoipa::path(
    get,
    path = "/v1/events",
    tag = "daemon",
    params(EventQuery),
    responses(
        (status = 200, body = EventPage),
        Other,
    )
)]
pub async fn events<S: Server>(
    State(shared): State<Shared<S>>,
    query: QueryResult<EventQuery>,
) -> Answer<EventPage> {
    let Query(EventQuery { since, wait_ms }) = query?;
    let wait = Duration::from_millis(wait_ms);
    if wait > EVENT_WAIT_MAX {
        return Err(too_much("wait_ms", EVENT_WAIT_MAX.as_millis()));
    }
    if since > POSITION_MAX {
        return Err(too_much("since", POSITION_MAX));
    }
    let mut newest = shared.server.newest_event();
    // An error means that the time is up or that the daemon ends. Both get the events that exist.
    let _ = tokio::time::timeout(wait, newest.wait_for(|seq| *seq > since)).await;
    answer(shared.views, move |server| server.events(since)).await
}

/// The frames of a port as a pcap stream, as long as the client listens.
#[utoipa::path(
    get,
    path = "/v1/ports/{name}/capture",
    tag = "ports",
    params(("name" = String, Path, description = "`instance.port`, or an uplink")),
    responses(
        (status = 200, body = Vec<u8>, content_type = "application/vnd.tcpdump.pcap"),
        Missing,
        Busy,
        Other,
    )
)]
pub async fn capture<S: Server>(
    State(shared): State<Shared<S>>,
    name: PathResult<String>,
) -> Result<Response, Problem> {
    let name = name?.0;
    let place = shared.captures.try_acquire_owned().map_err(|_| {
        Problem::unavailable(format!("{CAPTURES_MAX} captures run already"))
            .with_remedy("end one of them first")
    })?;
    let frames = blocking(shared.views, move |server| server.capture(&name)).await?;
    let chunks = stream::unfold((frames, place), |(mut frames, place)| async move {
        let chunk = frames.recv().await?;
        Some((Ok::<_, Infallible>(Bytes::from(chunk)), (frames, place)))
    });
    let kind = [(header::CONTENT_TYPE, "application/vnd.tcpdump.pcap")];
    Ok((kind, Body::from_stream(chunks)).into_response())
}
