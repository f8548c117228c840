//! The agent's own service, at the paths of a kubelet: the API server asks it for logs and commands, readers of metrics for figures.

mod access;
mod exec;
mod identity;
mod logs;
mod metrics;

use crate::cluster::containers;
use crate::pods::Pods;
use crate::settings::Settings;
use crate::wanted::name_of;
use access::{Access, Caller};
use anyhow::Context;
use axum::extract::DefaultBodyLimit;
use axum::routing::get;
use axum::{Extension, Router, middleware};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use kube::runtime::reflector::ObjectRef;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

/// Connections at a time.
const CONNECTIONS_MAX: usize = 256;
/// Maximum time of a TLS handshake, and until a request has come.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time until the next attempt after the kernel refused a connection.
const PAUSE: Duration = Duration::from_millis(100);

/// The service, whose port is open.
pub struct Service {
    listener: TcpListener,
    port: u16,
    tls: TlsAcceptor,
    router: Router,
}

impl Service {
    /// Opens the port.
    ///
    /// # Errors
    /// The port is taken, or a file of the certificates is missing or wrong.
    pub async fn open(settings: &Settings, pods: Arc<Pods>) -> anyhow::Result<Self> {
        let listen = settings.service.listen;
        let tls = identity::load(&settings.service, &settings.node, &settings.address)?;
        let listener = TcpListener::bind(listen)
            .await
            .with_context(|| format!("listening at {listen}; another kubelet has the port?"))?;
        let port = listener.local_addr()?.port();
        tracing::info!(address = %listener.local_addr()?, "logs, commands and metrics are served");
        let access = Access::new(pods.kubernetes.clone(), settings.node.clone());
        Ok(Service {
            listener,
            port,
            tls: TlsAcceptor::from(Arc::new(tls)),
            router: router(pods, access),
        })
    }

    /// Returns the port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Serves until it is dropped.
    ///
    /// # Errors
    /// Never, for as long as the socket can be used.
    pub async fn serve(self) -> io::Result<()> {
        let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        loop {
            // Callers beyond wait in the kernel's queue.
            let place = Arc::clone(&places)
                .acquire_owned()
                .await
                .map_err(io::Error::other)?;
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    let (tls, router) = (self.tls.clone(), self.router.clone());
                    tokio::spawn(async move {
                        answer(stream, tls, router).await;
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
}

async fn answer(stream: TcpStream, tls: TlsAcceptor, router: Router) {
    // Output of a command is many small writes.
    let _slower = stream.set_nodelay(true);
    let Ok(Ok(stream)) = tokio::time::timeout(PATIENCE, tls.accept(stream)).await else {
        return;
    };
    let shown = stream.get_ref().1.peer_certificates();
    let caller = shown
        .and_then(|chain| chain.first())
        .and_then(Caller::of_certificate);
    let service = router.layer(Extension(caller));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(service))
        .with_upgrades();
    let _gone = connection.await;
}

fn router(pods: Arc<Pods>, access: Access) -> Router {
    Router::new()
        .route("/healthz", get(async || "ok"))
        .route(
            "/containerLogs/{namespace}/{pod}/{container}",
            get(logs::read),
        )
        .route(
            "/exec/{namespace}/{pod}/{container}",
            get(exec::run).post(exec::refuse),
        )
        .route("/metrics/resource", get(metrics::resource))
        .with_state(pods)
        .layer(DefaultBodyLimit::max(1 << 16))
        .layer(middleware::from_fn_with_state(
            Arc::new(access),
            access::admit,
        ))
}

/// Returns the instance of a container, given namespace, pod and container.
fn find(
    pods: &Pods,
    (namespace, pod, container): &(String, String, String),
) -> Result<String, String> {
    let found = pods.store.get(&ObjectRef::new(pod).within(namespace));
    let found = found.ok_or_else(|| format!("pod \"{namespace}/{pod}\" is not on this node"))?;
    if !containers(&found).iter().any(|it| it.name == *container) {
        return Err(format!(
            "container \"{container}\" not found in pod \"{namespace}/{pod}\""
        ));
    }
    Ok(name_of(&found, container))
}
