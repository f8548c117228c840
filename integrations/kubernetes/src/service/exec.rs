//! `kubectl exec`: a command of the network function. There is no shell.
//!
//! The API server passes the caller's WebSocket on (KEP 4006, from Kubernetes 1.36 on). Each message begins with a byte that names its stream.

use super::find;
use crate::pods::Pods;
use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket, WebSocketUpgrade, close_code};
use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use nfluid_api::client::{Client, ClientError};
use nfluid_api::types::CommandRequest;
use nfluid_engine::requests::words;
use serde_json::{Value, json};
use std::sync::Arc;

/// The protocols of the streams. In the fifth a stream can be closed, which nothing here needs.
const PROTOCOLS: [&str; 2] = ["v5.channel.k8s.io", "v4.channel.k8s.io"];
/// The streams.
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const OUTCOME: u8 = 3;
/// Maximum length of a part of the output.
const PART_BYTES_MAX: usize = 32 << 10;
/// Maximum number of words of a command, and their length together.
const WORDS_MAX: usize = 256;
const COMMAND_BYTES_MAX: usize = 64 << 10;

/// Refuses a caller that does not speak WebSocket.
pub async fn refuse() -> Response {
    let why = "commands need WebSockets: Kubernetes 1.36 or later, and a kubectl of 1.31 or later";
    (StatusCode::BAD_REQUEST, why).into_response()
}

/// Answers a request to run a command.
pub async fn run(
    State(pods): State<Arc<Pods>>,
    Path(of): Path<(String, String, String)>,
    RawQuery(query): RawQuery,
    upgrade: Result<WebSocketUpgrade, axum::extract::ws::rejection::WebSocketUpgradeRejection>,
) -> Response {
    let Ok(upgrade) = upgrade else {
        return refuse().await;
    };
    let instance = match find(&pods, &of) {
        Ok(instance) => instance,
        Err(why) => return (StatusCode::NOT_FOUND, why).into_response(),
    };
    let command = command(query.as_deref().unwrap_or_default());
    let daemon = pods.daemon.clone();
    let upgrade = upgrade
        .protocols(PROTOCOLS)
        .max_message_size(COMMAND_BYTES_MAX);
    upgrade.on_upgrade(async move |mut socket| {
        let done = perform(&daemon, &instance, command).await;
        // The caller has gone.
        let _gone = answer(&mut socket, done).await;
    })
}

/// Returns the words of a command in a query.
fn command(query: &str) -> Result<Vec<String>, String> {
    let words: Vec<String> = form_urlencoded::parse(query.as_bytes())
        .filter(|(key, _)| key == "command")
        .map(|(_, word)| word.into_owned())
        .collect();
    let length: usize = words.iter().map(String::len).sum();
    if words.is_empty() {
        return Err("no command".to_owned());
    }
    if words.len() > WORDS_MAX || length > COMMAND_BYTES_MAX {
        return Err("the command is too long".to_owned());
    }
    Ok(words)
}

/// Runs a command; returns its output, or what is wrong with it.
async fn perform(
    daemon: &Client,
    instance: &str,
    command: Result<Vec<String>, String>,
) -> Result<String, String> {
    let mut command = command?.into_iter();
    let request = CommandRequest {
        name: command.next().unwrap_or_default(),
        args: command.collect(),
    };
    match daemon.command(instance, &request).await {
        Ok(answer) => Ok(format!("{:#}\n", answer.output)),
        Err(error @ ClientError::Problem(_)) => Err(words(&error, str::to_owned)),
        Err(error) => Err(error.to_string()),
    }
}

async fn answer(socket: &mut WebSocket, done: Result<String, String>) -> Result<(), axum::Error> {
    let (stream, text, outcome) = match done {
        Ok(output) => (
            STDOUT,
            output,
            json!({ "metadata": {}, "status": "Success" }),
        ),
        Err(why) => (STDERR, format!("{why}\n"), failure()),
    };
    for part in text.as_bytes().chunks(PART_BYTES_MAX) {
        socket.send(message(stream, part)).await?;
    }
    socket
        .send(message(OUTCOME, outcome.to_string().as_bytes()))
        .await?;
    let frame = CloseFrame {
        code: close_code::NORMAL,
        reason: Utf8Bytes::default(),
    };
    socket.send(Message::Close(Some(frame))).await
}

/// The outcome of a command that has failed, as of a program that ends with 1.
fn failure() -> Value {
    json!({
        "metadata": {},
        "status": "Failure",
        "message": "command terminated with exit code 1",
        "reason": "NonZeroExitCode",
        "details": { "causes": [{ "reason": "ExitCode", "message": "1" }] }
    })
}

fn message(stream: u8, part: &[u8]) -> Message {
    let bytes: Vec<u8> = [&[stream], part].concat();
    Message::Binary(bytes.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_has_its_words_in_order_and_a_bound() {
        let query = "command=top-talkers&stdout=true&command=5&command=a%20b%26c&stderr=true";
        assert_eq!(
            command(query),
            Ok(vec![
                "top-talkers".to_owned(),
                "5".to_owned(),
                "a b&c".to_owned()
            ])
        );
        assert!(command("stdout=true").is_err());
        assert!(command(&"command=x&".repeat(WORDS_MAX + 1)).is_err());
        assert!(command(&format!("command={}", "x".repeat(COMMAND_BYTES_MAX + 1))).is_err());
    }
}
