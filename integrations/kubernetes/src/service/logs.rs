//! `kubectl logs`.

use super::find;
use crate::pods::Pods;
use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use futures_util::{StreamExt as _, stream};
use nfluid_api::client::{Client, ClientError};
use serde::Deserialize;
use std::convert::Infallible;
use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

/// Interval of looks at a log that is followed.
const INTERVAL: Duration = Duration::from_millis(250);

/// The options of `kubectl logs`, as the API server passes them on.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Options {
    follow: bool,
    tail_lines: Option<u32>,
    limit_bytes: Option<usize>,
    previous: bool,
    timestamps: bool,
    since_seconds: Option<i64>,
    since_time: Option<String>,
}

impl Options {
    /// Returns the reason why these options cannot be served.
    fn fault(&self) -> Option<&'static str> {
        if self.previous {
            return Some(
                "--previous: one log has all starts of the instance; leave the option out",
            );
        }
        let needs_times =
            self.timestamps || self.since_seconds.is_some() || self.since_time.is_some();
        needs_times.then_some(
            "--timestamps, --since and --since-time: the lines have no times of their own",
        )
    }
}

/// Answers a request for the log of a container.
pub async fn read(
    State(pods): State<Arc<Pods>>,
    Path(of): Path<(String, String, String)>,
    Query(options): Query<Options>,
) -> Response {
    if let Some(fault) = options.fault() {
        return (StatusCode::BAD_REQUEST, fault).into_response();
    }
    let instance = match find(&pods, &of) {
        Ok(instance) => instance,
        Err(why) => return (StatusCode::NOT_FOUND, why).into_response(),
    };
    let first = pods.daemon.logs(&instance, 0, options.tail_lines).await;
    let first = match first {
        Ok(first) => first,
        Err(ClientError::Problem(problem)) if problem.status == 404 => {
            return (
                StatusCode::NOT_FOUND,
                format!("the instance {instance} is not there yet"),
            )
                .into_response();
        }
        Err(error) => return (StatusCode::BAD_GATEWAY, error.to_string()).into_response(),
    };
    let mut left = options.limit_bytes.unwrap_or(usize::MAX);
    let next = first.next;
    let later = options
        .follow
        .then(|| follow(pods.daemon.clone(), instance, next));
    let all = stream::iter([text(&first.lines)]).chain(stream::iter(later).flatten());
    let limited = all.scan((), move |(), mut text| {
        text.truncate(left);
        left -= text.len();
        let is_over = left == 0 && text.is_empty();
        ready((!is_over).then_some(Ok::<_, Infallible>(text)))
    });
    let body = Body::from_stream(limited);
    ([("content-type", "text/plain; charset=utf-8")], body).into_response()
}

fn text(lines: &[String]) -> Vec<u8> {
    lines
        .iter()
        .flat_map(|line| [line.as_bytes(), b"\n"])
        .flatten()
        .copied()
        .collect()
}

/// Returns what is logged after a position, until the instance is gone.
fn follow(
    daemon: Client,
    instance: String,
    since: u64,
) -> impl futures_util::Stream<Item = Vec<u8>> {
    stream::unfold(
        (daemon, instance, since),
        async |(daemon, instance, since)| {
            loop {
                tokio::time::sleep(INTERVAL).await;
                let logs = daemon.logs(&instance, since, None).await.ok()?;
                if !logs.lines.is_empty() {
                    return Some((text(&logs.lines), (daemon, instance, logs.next)));
                }
                // An empty part tells whether the caller is still there, and whether the instance is.
                daemon.instance(&instance).await.ok()?;
            }
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_log_does_not_have_is_refused() {
        let read = |options: &str| {
            let uri = format!("/x?{options}").parse().expect("an address");
            Query::<Options>::try_from_uri(&uri).expect("options").0
        };
        assert_eq!(
            read("follow=true&tailLines=5&limitBytes=10&stream=All").fault(),
            None
        );
        for options in [
            "previous=true",
            "timestamps=true",
            "sinceSeconds=5",
            "sinceTime=x",
        ] {
            assert!(read(options).fault().is_some(), "{options}");
        }
    }
}
