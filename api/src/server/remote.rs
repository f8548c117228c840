//! The API over TCP, with mutual TLS: clients show certificates, and do what their roles allow.

use super::access::{self, Caller, Clients};
use super::limits::{CALLS_MAX, CONNECTIONS_MAX, HANDSHAKE_MAX, IDLE_MAX};
use super::respond::Calls;
use super::{Server, router};
use axum::{Extension, Router, middleware};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use nfluid_tls::mutual::names_of;
use nfluid_tls::strangers::{Unauthenticated, UnauthenticatedCaller};
use rustls::ServerConfig;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// After a failed call of the kernel the next one may fail as well.
const PAUSE: Duration = Duration::from_millis(100);

/// A TCP port, and what callers are known by.
#[derive(Debug)]
pub struct Listener {
    /// The port.
    pub socket: std::net::TcpListener,
    /// The daemon's certificate, and the authorities of the clients'.
    pub tls: Arc<ServerConfig>,
    /// The clients.
    pub clients: Clients,
}

impl Listener {
    /// Serves the API, until it is dropped.
    ///
    /// # Errors
    /// The socket cannot be used.
    pub async fn serve<S: Server>(self, server: Arc<S>) -> io::Result<()> {
        self.socket.set_nonblocking(true)?;
        let socket = TcpListener::from_std(self.socket)?;
        let door = Arc::new(Door {
            tls: TlsAcceptor::from(self.tls),
            clients: self.clients,
            strangers: Arc::default(),
            connections: Arc::new(Semaphore::new(CONNECTIONS_MAX)),
            router: guarded(server),
        });
        loop {
            let accepted = socket.accept().await;
            // Callers enter in the order in which they come: whoever waits longest may have to go.
            let entered = accepted.and_then(|(stream, from)| {
                let (stream, other) = twice(stream)?;
                let stranger = door.strangers.enter(other, from.ip());
                Ok((stream, from, stranger))
            });
            match entered {
                Ok((stream, from, stranger)) => {
                    let door = Arc::clone(&door);
                    tokio::spawn(door.receive(stream, from, stranger));
                }
                Err(error) => {
                    tracing::warn!(%error, "a client of the API could not be answered");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }
}

/// The API, in which each request needs a caller that may make it.
fn guarded<S: Server>(server: Arc<S>) -> Router {
    let calls = Calls::new(Arc::clone(&server), CALLS_MAX);
    router(server).layer(middleware::from_fn_with_state(calls, access::admit::<S>))
}

/// The state that all connections share.
struct Door {
    tls: TlsAcceptor,
    clients: Clients,
    strangers: Arc<Unauthenticated>,
    connections: Arc<Semaphore>,
    router: Router,
}

impl Door {
    async fn receive(
        self: Arc<Self>,
        stream: TcpStream,
        from: SocketAddr,
        stranger: UnauthenticatedCaller,
    ) {
        let Some(stream) = self.authenticate(stream, from).await else {
            return;
        };
        drop(stranger);
        let shown = stream.get_ref().1.peer_certificates();
        let names = shown.and_then(|chain| chain.first()).map(names_of);
        let caller = self.clients.caller(&names.unwrap_or_default());
        match self.connections.try_acquire() {
            Ok(_place) => self.answer(stream, caller).await,
            Err(_) => {
                tracing::warn!(%from, "the API has {CONNECTIONS_MAX} clients; another one was disconnected")
            }
        }
    }

    /// Authenticates a caller.
    async fn authenticate(
        &self,
        stream: TcpStream,
        from: SocketAddr,
    ) -> Option<TlsStream<TcpStream>> {
        let accepted = tokio::time::timeout(HANDSHAKE_MAX, self.tls.accept(stream)).await;
        match accepted {
            Ok(Ok(stream)) => Some(stream),
            Ok(Err(error)) => {
                tracing::info!(%from, %error, "the API has refused a caller");
                None
            }
            Err(_) => None,
        }
    }

    async fn answer(&self, stream: TlsStream<TcpStream>, caller: Caller) {
        let service = self.router.clone().layer(Extension(caller));
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(IDLE_MAX)
            .serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
        // The client has gone.
        let _gone = connection.await;
    }
}

/// Returns the connection, and another descriptor of it with which it can be closed.
fn twice(stream: TcpStream) -> io::Result<(TcpStream, std::net::TcpStream)> {
    stream.set_nodelay(true)?;
    let stream = stream.into_std()?;
    let other = stream.try_clone()?;
    Ok((TcpStream::from_std(stream)?, other))
}
