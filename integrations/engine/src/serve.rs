//! A driver's service over TCP: the number of connections is limited, and a silent one is closed.

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// Connections at a time.
const CONNECTIONS_MAX: usize = 256;
/// Maximum time until a request has come.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// Time until the next attempt after the kernel refused a connection.
const PAUSE: Duration = Duration::from_millis(100);

/// Answers callers, each in a task of its own, until it is dropped.
///
/// # Errors
/// Never, for as long as the socket can be used.
pub async fn serve<F>(listener: TcpListener, answer: impl Fn(TcpStream) -> F) -> io::Result<()>
where
    F: Future<Output = ()> + Send + 'static,
{
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        // Callers beyond wait in the kernel's queue.
        let place = Arc::clone(&places)
            .acquire_owned()
            .await
            .map_err(io::Error::other)?;
        match listener.accept().await {
            Ok((stream, _)) => {
                // Answers are many small writes.
                let _slower = stream.set_nodelay(true);
                let answered = answer(stream);
                tokio::spawn(async move {
                    answered.await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a caller could not be answered");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Speaks HTTP with a caller, until he ends that or says nothing.
pub async fn speak(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static, router: Router) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router))
        .with_upgrades();
    let _gone = connection.await;
}
