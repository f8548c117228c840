//! A client over a UNIX socket, or over TCP with mutual TLS. [`Client`] opens a connection per request. A [`Connection`] stays open for many
//! requests. Nothing is retried.

use crate::types::{
    ApplyRequest, ApplyResponse, CommandRequest, CommandResponse, CreateRequest, DeleteRequest,
    EventPage, FunctionReport, FunctionRequest, InstanceSnapshot, InstanceStatus, Logs,
    MigrateReport, MigrateRequest, PauseRequest, Problem, RestoreReport, RestoreRequest,
    SavedInstance, ScaleReport, ScaleRequest, StopRequest, Took, UpgradeReport,
};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use nfluid_tls::mutual::{Mutual, server_name};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Maximum length of a response in bytes; a capture has no limit.
const ANSWER_BYTES_MAX: usize = 256 << 20;
/// Maximum time of a connection over TCP, and of its TLS handshake.
const CONNECT: Duration = Duration::from_secs(10);

/// The reason why a request has no response, or the problem that the daemon reported.
#[derive(Debug, Error)]
pub enum ClientError {
    /// No process listens on the socket.
    #[error("the daemon is not running: nothing listens on {0}")]
    NotRunning(PathBuf),
    /// The caller has no permission to open the socket.
    #[error("not permitted to use the daemon's socket {0}")]
    NotPermitted(PathBuf),
    /// The daemon cannot be reached for another reason.
    #[error("cannot reach the daemon at {0}: {1}")]
    Unreachable(String, io::Error),
    /// Client and daemon at this address do not accept each other's certificates.
    #[error("no TLS connection with the daemon at {0}: {1}")]
    NotTrusted(String, io::Error),
    /// The connection broke, or the answer is not HTTP.
    #[error("the daemon's answer did not arrive: {0}")]
    Broken(String),
    /// The response does not match this version of the API.
    #[error("the daemon's answer cannot be read: {0}; do client and daemon have the same version?")]
    Misunderstood(String),
    /// The daemon refused or failed.
    #[error("{0}")]
    Problem(Box<Problem>),
}

impl ClientError {
    fn broken(error: impl std::fmt::Display) -> Self {
        ClientError::Broken(error.to_string())
    }

    /// The failure of an exchange over HTTP. Over TLS 1.3 a daemon that refuses the certificate of a client says so
    /// when the client reads first.
    fn of_exchange(error: hyper::Error, place: &Place) -> Self {
        let mut source = std::error::Error::source(&error);
        while let Some(cause) = source {
            if let Some(cause) = cause.downcast_ref::<io::Error>()
                && cause
                    .get_ref()
                    .is_some_and(|cause| cause.is::<rustls::Error>())
            {
                let cause = io::Error::new(cause.kind(), cause.to_string());
                return ClientError::NotTrusted(place.to_string(), cause);
            }
            source = cause.source();
        }
        ClientError::broken(error)
    }
}

/// Where a daemon listens.
#[derive(Clone, Debug)]
enum Place {
    Socket(PathBuf),
    Remote(Arc<Remote>),
}

#[derive(Debug)]
struct Remote {
    /// `HOST:PORT`.
    address: String,
    name: ServerName<'static>,
    tls: Arc<ClientConfig>,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::Socket(path) => path.display().fmt(f),
            Place::Remote(remote) => remote.address.fmt(f),
        }
    }
}

/// A client of a daemon.
#[derive(Clone, Debug)]
pub struct Client {
    place: Place,
}

impl Client {
    /// Creates a client of the daemon that listens on `socket`. The client connects at its first request.
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        Client {
            place: Place::Socket(socket.into()),
        }
    }

    /// Creates a client of the daemon at `address`, `HOST:PORT`, whose certificate has to be for HOST. The client shows the
    /// certificate of `mutual`. It connects at its first request.
    ///
    /// # Errors
    /// The address is none.
    pub fn remote(address: &str, mutual: &Mutual) -> Result<Self, ClientError> {
        let wrong = |error| {
            let error = io::Error::new(io::ErrorKind::InvalidInput, format!("{error:#}"));
            ClientError::Unreachable(address.to_owned(), error)
        };
        Ok(Client {
            place: Place::Remote(Arc::new(Remote {
                address: address.to_owned(),
                name: server_name(address).map_err(wrong)?,
                tls: Arc::clone(&mutual.client),
            })),
        })
    }

    /// Returns the path of the socket, or the address.
    pub fn place(&self) -> impl std::fmt::Display {
        &self.place
    }

    /// Applies a deployment.
    ///
    /// # Errors
    /// See [`ClientError`]; [`Problem`] lists every error of the document.
    pub async fn apply(&self, request: &ApplyRequest) -> Result<ApplyResponse, ClientError> {
        self.post("/v1/apply", request).await
    }

    /// Creates an instance, with links of its ports.
    ///
    /// # Errors
    /// As [`Client::apply`].
    pub async fn create(
        &self,
        name: &str,
        request: &CreateRequest,
    ) -> Result<ApplyResponse, ClientError> {
        let body = serde_json::to_vec(request).map_err(ClientError::broken)?;
        let path = format!("/v1/instances/{}", escaped(name));
        let response = self.send(Method::PUT, &path, body).await?;
        decoded(response).await
    }

    /// Removes objects.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn delete(&self, request: &DeleteRequest) -> Result<ApplyResponse, ClientError> {
        self.post("/v1/delete", request).await
    }

    /// Removes an instance with its links. `stop` says how its program is asked to end.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn remove_instance(
        &self,
        name: &str,
        stop: Option<&StopRequest>,
    ) -> Result<ApplyResponse, ClientError> {
        let mut path = format!("/v1/instances/{}?with_links=true", escaped(name));
        let StopRequest { signal, wait_ms } = stop.cloned().unwrap_or_default();
        path.extend(signal.map(|it| format!("&stop_signal={}", escaped(&it))));
        path.extend(wait_ms.map(|it| format!("&stop_wait_ms={it}")));
        let response = self.send(Method::DELETE, &path, Vec::new()).await?;
        decoded(response).await
    }

    /// Returns the events after `since`. Waits for an event for up to `wait`.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn events(&self, since: u64, wait: Duration) -> Result<EventPage, ClientError> {
        let wait_ms = wait.as_millis();
        self.get(&format!("/v1/events?since={since}&wait_ms={wait_ms}"))
            .await
    }

    /// Returns an instance.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn instance(&self, name: &str) -> Result<InstanceStatus, ClientError> {
        self.get(&format!("/v1/instances/{}", escaped(name))).await
    }

    /// Returns a snapshot of an instance's counters and gauges.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn instance_stats(&self, name: &str) -> Result<InstanceSnapshot, ClientError> {
        self.get(&format!("/v1/instances/{}/stats", escaped(name)))
            .await
    }

    /// Returns log lines of an instance after `since`, at most the last `tail` lines.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn logs(
        &self,
        instance: &str,
        since: u64,
        tail: Option<u32>,
    ) -> Result<Logs, ClientError> {
        let tail = tail.map_or(String::new(), |n| format!("&tail={n}"));
        let name = escaped(instance);
        self.get(&format!("/v1/instances/{name}/logs?since={since}{tail}"))
            .await
    }

    /// Runs a command of an instance's NF.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn command(
        &self,
        instance: &str,
        request: &CommandRequest,
    ) -> Result<CommandResponse, ClientError> {
        let path = format!("/v1/instances/{}/command", escaped(instance));
        self.post(&path, request).await
    }

    /// Ends and starts an instance.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn restart(&self, instance: &str) -> Result<(), ClientError> {
        let path = format!("/v1/instances/{}/restart", escaped(instance));
        let response = self.send(Method::POST, &path, Vec::new()).await?;
        accepted(response).await.map(drop)
    }

    /// Pauses an instance.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn pause(&self, instance: &str, how: &PauseRequest) -> Result<Took, ClientError> {
        let path = format!("/v1/instances/{}/pause", escaped(instance));
        self.post(&path, how).await
    }

    /// Resumes a paused instance.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn unpause(&self, instance: &str) -> Result<Took, ClientError> {
        let path = format!("/v1/instances/{}/unpause", escaped(instance));
        self.post(&path, &()).await
    }

    /// Replaces the running version of an instance's NF by the installed one.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn upgrade(&self, instance: &str) -> Result<UpgradeReport, ClientError> {
        let path = format!("/v1/instances/{}/upgrade", escaped(instance));
        self.post(&path, &()).await
    }

    /// Divides the flows of an instance among another number of members.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn scale(
        &self,
        instance: &str,
        how: &ScaleRequest,
    ) -> Result<ScaleReport, ClientError> {
        let path = format!("/v1/instances/{}/scale", escaped(instance));
        self.post(&path, how).await
    }

    /// Moves an instance to another daemon, or keeps an instance after a move with unknown outcome.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn migrate(
        &self,
        instance: &str,
        request: &MigrateRequest,
    ) -> Result<MigrateReport, ClientError> {
        let path = format!("/v1/instances/{}/migrate", escaped(instance));
        self.post(&path, request).await
    }

    /// Saves the present state of an instance.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn save(&self, instance: &str) -> Result<SavedInstance, ClientError> {
        self.get(&format!("/v1/instances/{}/image", escaped(instance)))
            .await
    }

    /// Creates an instance from an image.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn restore(&self, request: &RestoreRequest) -> Result<RestoreReport, ClientError> {
        self.post("/v1/restore", request).await
    }

    /// Runs a program once and waits for its end. The program is ended if the caller does not wait.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn run_function(
        &self,
        request: &FunctionRequest,
    ) -> Result<FunctionReport, ClientError> {
        self.post("/v1/functions", request).await
    }

    /// Starts a capture of a port.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn capture(&self, port: &str) -> Result<Capture, ClientError> {
        let path = format!("/v1/ports/{}/capture", escaped(port));
        let response = self.send(Method::GET, &path, Vec::new()).await?;
        accepted(response).await.map(|body| Capture { body })
    }

    /// Returns the resource at `path`, for example `/v1/instances`.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        let response = self.send(Method::GET, path, Vec::new()).await?;
        decoded(response).await
    }

    async fn post<B: Serialize, T: DeserializeOwned>(
        &self,
        path: &str,
        body: &B,
    ) -> Result<T, ClientError> {
        let body = serde_json::to_vec(body).map_err(ClientError::broken)?;
        let response = self.send(Method::POST, path, body).await?;
        decoded(response).await
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Vec<u8>,
    ) -> Result<Response<Incoming>, ClientError> {
        self.connection().await?.send(method, path, body).await
    }

    /// Opens a connection for many requests.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn connection(&self) -> Result<Connection, ClientError> {
        let sender = match &self.place {
            Place::Socket(path) => self.greet(connect(path).await?).await?,
            Place::Remote(remote) => self.greet(remote.connect().await?).await?,
        };
        Ok(Connection {
            sender,
            place: self.place.clone(),
        })
    }

    /// Begins to speak HTTP.
    async fn greet(
        &self,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    ) -> Result<http1::SendRequest<Full<Bytes>>, ClientError> {
        let (sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| ClientError::of_exchange(error, &self.place))?;
        tokio::spawn(connection);
        Ok(sender)
    }
}

async fn connect(socket: &Path) -> Result<UnixStream, ClientError> {
    UnixStream::connect(socket)
        .await
        .map_err(|error| match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                ClientError::NotRunning(socket.to_owned())
            }
            io::ErrorKind::PermissionDenied => ClientError::NotPermitted(socket.to_owned()),
            _ => ClientError::Unreachable(socket.display().to_string(), error),
        })
}

impl Remote {
    /// Connects, in at most [`CONNECT`].
    async fn connect(&self) -> Result<TlsStream<TcpStream>, ClientError> {
        let unreachable = |error| ClientError::Unreachable(self.address.clone(), error);
        let late = |_| unreachable(io::ErrorKind::TimedOut.into());
        let stream = timeout(CONNECT, TcpStream::connect(&self.address));
        let stream = stream.await.map_err(late)?.map_err(unreachable)?;
        stream.set_nodelay(true).map_err(unreachable)?;
        let tls = TlsConnector::from(Arc::clone(&self.tls));
        let secured = timeout(CONNECT, tls.connect(self.name.clone(), stream));
        let not_trusted = |error| ClientError::NotTrusted(self.address.clone(), error);
        secured.await.map_err(late)?.map_err(not_trusted)
    }
}

/// A connection that stays open for consecutive requests.
#[derive(Debug)]
pub struct Connection {
    sender: http1::SendRequest<Full<Bytes>>,
    place: Place,
}

/// A response as received, including error responses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status code of HTTP.
    pub status: u16,
    /// The body, of any content type.
    pub body: Bytes,
}

impl Connection {
    /// Sends a request with a JSON body, which may be empty, and waits for the response.
    ///
    /// # Errors
    /// The connection broke, `method` or `path` is not HTTP, or the response is too long.
    pub async fn request(
        &mut self,
        method: &str,
        path: &str,
        body: Vec<u8>,
    ) -> Result<Answer, ClientError> {
        let method = Method::from_bytes(method.as_bytes()).map_err(ClientError::broken)?;
        let response = self.send(method, path, body).await?;
        Ok(Answer {
            status: response.status().as_u16(),
            body: read(response.into_body()).await?,
        })
    }

    async fn send(
        &mut self,
        method: Method,
        path: &str,
        body: Vec<u8>,
    ) -> Result<Response<Incoming>, ClientError> {
        let broken = |error| ClientError::of_exchange(error, &self.place);
        self.sender.ready().await.map_err(broken)?;
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "localhost")
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(body)))
            .map_err(ClientError::broken)?;
        self.sender.send_request(request).await.map_err(broken)
    }
}

/// A running capture. Dropping it ends the capture.
#[derive(Debug)]
pub struct Capture {
    body: Incoming,
}

impl Capture {
    /// Returns the next part of the pcap stream, or `None` at its end.
    ///
    /// # Errors
    /// The connection broke.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ClientError> {
        loop {
            match self.body.frame().await {
                None => return Ok(None),
                Some(Err(error)) => return Err(ClientError::broken(error)),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
            }
        }
    }
}

/// Returns the body of a successful response, or the problem that the daemon reports.
async fn accepted(response: Response<Incoming>) -> Result<Incoming, ClientError> {
    let status = response.status();
    if status.is_success() {
        return Ok(response.into_body());
    }
    let body = read(response.into_body()).await?;
    let problem = serde_json::from_slice(&body).unwrap_or_else(|_| plain_problem(status, &body));
    Err(ClientError::Problem(Box::new(problem)))
}

/// Creates a problem from an error response that is not one of the API's.
fn plain_problem(status: StatusCode, body: &[u8]) -> Problem {
    Problem {
        status: status.as_u16(),
        title: status.to_string().into(),
        detail: String::from_utf8_lossy(body).into_owned(),
        ..Problem::default()
    }
}

async fn decoded<T: DeserializeOwned>(response: Response<Incoming>) -> Result<T, ClientError> {
    let body = read(accepted(response).await?).await?;
    serde_json::from_slice(&body).map_err(|error| ClientError::Misunderstood(error.to_string()))
}

async fn read(body: Incoming) -> Result<Bytes, ClientError> {
    let collected = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
    collected
        .map(|collected| collected.to_bytes())
        .map_err(ClientError::broken)
}

/// Percent-encodes a name for use as one segment of a path (RFC 3986 section 2.3).
pub fn escaped(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_one_segment() {
        assert_eq!(escaped("fw1.in--nat_1"), "fw1.in--nat_1");
        assert_eq!(escaped("../x y?ü"), "..%2Fx%20y%3F%C3%BC");
    }
}
