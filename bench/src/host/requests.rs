//! Requests to the daemon's API over one connection that stays open, as a program that makes many would send them.

use super::interrupt;
use anyhow::{Context, bail};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// Longest answer in bytes.
const ANSWER_MAX: usize = 64 << 20;

/// How long shells may take to be ready.
const SHELLS_PATIENCE: Duration = Duration::from_secs(120);

/// The connection.
#[derive(Debug)]
pub struct Requests {
    stream: BufReader<UnixStream>,
}

impl Requests {
    /// Connects.
    ///
    /// # Errors
    /// When nobody listens.
    pub fn connect(socket: &Path) -> anyhow::Result<Self> {
        let stream = UnixStream::connect(socket);
        let stream = stream.with_context(|| format!("connecting to {}", socket.display()))?;
        Ok(Requests {
            stream: BufReader::new(stream),
        })
    }

    /// Sends a request and waits for its answer.
    ///
    /// # Errors
    /// When it is refused, with what the daemon says.
    pub fn ask(&mut self, method: &str, path: &str, body: &Value) -> anyhow::Result<Value> {
        let body = match body {
            Value::Null => String::new(),
            body => body.to_string(),
        };
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        self.stream.get_mut().write_all(request.as_bytes())?;
        let (status, length) = self.head()?;
        let mut answer = vec![0; length];
        self.stream.read_exact(&mut answer)?;
        if !(200..300).contains(&status) {
            let said = String::from_utf8_lossy(&answer);
            bail!("{method} {path}: {status}: {}", said.trim());
        }
        if answer.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&answer).context("what the daemon answers")
    }

    /// Waits until the first pool has so many shells ready.
    ///
    /// # Errors
    /// They do not become ready; what the daemon says.
    pub fn await_shells(&mut self, count: u64) -> anyhow::Result<()> {
        let start = Instant::now();
        loop {
            let pools = self.ask("GET", "/v1/pools", &Value::Null)?;
            if pools[0]["ready"].as_u64() >= Some(count) {
                return Ok(());
            }
            interrupt::check()?;
            let problem = &pools[0]["problem"];
            anyhow::ensure!(start.elapsed() < SHELLS_PATIENCE, "no shells: {problem}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Status and length of the body.
    fn head(&mut self) -> anyhow::Result<(u16, usize)> {
        let first = self.line()?;
        let status = first.split(' ').nth(1).and_then(|word| word.parse().ok());
        let mut length = 0;
        loop {
            let line = self.line()?;
            if line.is_empty() {
                return Ok((status.context("no status in the answer")?, length));
            }
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().context("the length of the answer")?;
                anyhow::ensure!(length <= ANSWER_MAX, "an answer of {length} bytes");
            }
        }
    }

    fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        let read = self.stream.read_line(&mut line)?;
        anyhow::ensure!(read > 0, "the daemon has closed the connection");
        Ok(line.trim_end().to_owned())
    }
}
