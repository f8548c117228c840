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
use kube::runtime::reflector::ObjectRef;
use nfluid_engine::serve::{PATIENCE, serve, speak};
use std::io;
use std::sync::Arc;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

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
        let Service {
            listener,
            tls,
            router,
            ..
        } = self;
        serve(listener, |stream| {
            answer(stream, tls.clone(), router.clone())
        })
        .await
    }
}

async fn answer(stream: TcpStream, tls: TlsAcceptor, router: Router) {
    let Ok(Ok(stream)) = tokio::time::timeout(PATIENCE, tls.accept(stream)).await else {
        return;
    };
    let shown = stream.get_ref().1.peer_certificates();
    let caller = shown
        .and_then(|chain| chain.first())
        .and_then(Caller::of_certificate);
    speak(stream, router.layer(Extension(caller))).await;
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
