//! The daemon's side of an instance's control socket.

use anyhow::{Context, bail};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// How long an NF may take to answer: it answers between two batches.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest answer in bytes; the instance is hostile.
const ANSWER_MAX: u64 = 16 << 20;

/// Sends one request and returns what the NF answers.
///
/// # Errors
/// When the instance does not listen or answer, or the NF refuses.
pub fn ask(path: &Path, request: &Value) -> anyhow::Result<Value> {
    let mut stream =
        UnixStream::connect(path).context("the instance does not listen for commands")?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut text = serde_json::to_string(request)?;
    text.push('\n');
    stream
        .write_all(text.as_bytes())
        .context("the instance does not take the request")?;
    let mut line = String::new();
    BufReader::new(stream)
        .take(ANSWER_MAX)
        .read_line(&mut line)
        .with_context(|| format!("no answer within {} s", PATIENCE.as_secs()))?;
    let answer: Value = serde_json::from_str(&line).context("the answer is not JSON")?;
    match (
        answer.get("ok"),
        answer.get("error").and_then(Value::as_str),
    ) {
        (Some(value), _) => Ok(value.clone()),
        (None, Some(why)) => bail!("{why}"),
        (None, None) => bail!("the answer is neither success nor error"),
    }
}
