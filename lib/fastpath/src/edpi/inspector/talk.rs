//! The protocol between the daemon and the process of a slow path: requests and answers are lines of JSON on the socket
//! that the process inherits. A connection has one request.

use nfluid_sandbox::fds::receive_line;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

/// Version of this protocol and of the tables' content. A process of another version is replaced.
pub const PROTOCOL: u32 = 1;
/// Longest line; longer than any request and any answer: nDPI has a few hundred names.
const LINE_MAX: usize = 512 * 1024;

/// A request of the daemon.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Begin, with the tables whose descriptors are attached.
    Work {
        /// The configuration as the user has written it.
        config: Value,
        /// Number of possible CPUs: the length of values of per-CPU tables.
        cpus: usize,
    },
    /// Continue with another configuration.
    Change(Value),
    /// Report version and state.
    Hello,
}

/// Version and state of the process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`PROTOCOL`].
    pub protocol: u32,
    /// True if the process has begun.
    pub works: bool,
    /// nDPI's version, as nDPI reports it.
    pub library: String,
    /// The names of applications, by nDPI's numbers.
    pub applications: Vec<String>,
}

/// Returns the line of a request. The answer is a line: a `Result` of [`Hello`] or the reason why the process cannot
/// serve the request.
///
/// # Errors
/// When the request cannot be written as JSON.
pub fn line_of(request: &Request) -> serde_json::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    Ok(line)
}

/// Reads a request, in the process.
///
/// # Errors
/// When the request cannot be parsed.
pub fn listen(stream: &UnixStream) -> anyhow::Result<(Request, Vec<OwnedFd>)> {
    let (line, fds) = receive_line(stream, LINE_MAX)?;
    Ok((serde_json::from_slice(&line)?, fds))
}

/// Sends an answer, in the process. A closed connection is no error.
pub fn answer(mut stream: &UnixStream, answer: &Result<Hello, String>) {
    if let Ok(mut line) = serde_json::to_vec(answer) {
        line.push(b'\n');
        let _nobody_waits = stream.write_all(&line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nfluid_sandbox::fds::send_line;
    use serde_json::json;

    #[test]
    fn what_is_asked_and_answered_arrives() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let request = Request::Work {
            config: json!({ "fast": "known" }),
            cpus: 2,
        };
        let line = line_of(&request).expect("it is JSON");
        send_line(&ours, &line, &[]).expect("it is taken");
        assert_eq!(listen(&theirs).expect("it arrives").0, request);
        let hello = Hello {
            protocol: PROTOCOL,
            applications: vec!["Unknown".to_owned(); 300],
            ..Hello::default()
        };
        for sent in [Ok(hello), Err("no".to_owned())] {
            answer(&theirs, &sent);
            let (line, _none) = receive_line(&ours, LINE_MAX).expect("it arrives");
            let received: Result<Hello, String> = serde_json::from_slice(&line).expect("it is one");
            assert_eq!(received, sent);
        }
    }
}
