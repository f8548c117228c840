//! Requests to servers on this host, over HTTP/1.0: the answer is all that comes.

use anyhow::Context;
use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Time after which a request will not be answered.
const ANSWER: Duration = Duration::from_secs(30);

/// Sends a request, and returns status and text of the answer. `Null` is no body.
///
/// # Errors
/// Nothing listens, or the answer does not come or is none.
pub fn request(
    server: SocketAddr,
    method: &str,
    path: &str,
    body: &Value,
) -> anyhow::Result<(u16, String)> {
    let what = || format!("{method} http://{server}{path}");
    let mut stream = TcpStream::connect(server).with_context(what)?;
    stream.set_read_timeout(Some(ANSWER))?;
    stream.set_nodelay(true)?;
    let body = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).with_context(what)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).with_context(what)?;
    let (head, text) = answer.split_once("\r\n\r\n").with_context(what)?;
    let status = head.split(' ').nth(1).and_then(|it| it.parse().ok());
    Ok((status.with_context(what)?, text.to_owned()))
}
