//! The handshake with the agent (go-plugin's) and the services.

use crate::driver::NfluidDriver;
use crate::plugin::{Base, Broker, Controller, Health, Stdio};
use crate::protocol::base::base_plugin_server::BasePluginServer;
use crate::protocol::drivers::driver_server::DriverServer;
use crate::protocol::go_plugin::grpc_broker_server::GrpcBrokerServer;
use crate::protocol::go_plugin::grpc_controller_server::GrpcControllerServer;
use crate::protocol::go_plugin::grpc_stdio_server::GrpcStdioServer;
use crate::protocol::health::health_server::HealthServer;
use anyhow::Context;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::net::UnixListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;

/// The variable by which a plugin knows that an agent has started it, and its value (Nomad's plugins/base).
pub const COOKIE: (&str, &str) = (
    "NOMAD_PLUGIN_MAGIC_COOKIE",
    "e4327c2e01eabfd75a8a67adb114fb34a757d57eee7728d857a8cec6e91a7255",
);

/// Version of go-plugin's own protocol, and of Nomad's plugins.
const VERSIONS: (u32, u32) = (1, 2);

/// Maximum length of a request in bytes.
const REQUEST_BYTES_MAX: usize = 16 << 20;

/// Serves until the agent ends the plugin. The first line of the output tells the agent the socket.
///
/// # Errors
/// The socket cannot be made.
pub async fn serve() -> anyhow::Result<()> {
    let folder =
        std::env::var_os("PLUGIN_UNIX_SOCKET_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    let own = tempfile::Builder::new()
        .prefix("nfluid-nomad-")
        .tempdir_in(&folder);
    let own =
        own.with_context(|| format!("making a folder for the socket in {}", folder.display()))?;
    let socket = own.path().join("plugin.sock");
    let listener = UnixListener::bind(&socket)
        .with_context(|| format!("listening on {}", socket.display()))?;
    // Ctrl-C in the agent's terminal is for the agent, which ends the plugin afterwards.
    let _interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let ended = Arc::new(Notify::new());
    let driver = Arc::new(NfluidDriver::new());
    let served = Server::builder()
        .add_service(BasePluginServer::new(Base::new(Arc::clone(&driver))))
        .add_service(
            DriverServer::from_arc(Arc::clone(&driver))
                .max_decoding_message_size(REQUEST_BYTES_MAX),
        )
        .add_service(GrpcControllerServer::new(Controller::new(Arc::clone(
            &ended,
        ))))
        .add_service(GrpcStdioServer::new(Stdio))
        .add_service(GrpcBrokerServer::new(Broker))
        .add_service(HealthServer::new(Health))
        .serve_with_incoming(UnixListenerStream::new(listener));
    let (core, app) = VERSIONS;
    let mut stdout = std::io::stdout();
    writeln!(stdout, "{core}|{app}|unix|{}|grpc", socket.display())?;
    stdout.flush()?;
    let served = tokio::select! {
        served = served => served.context("serving"),
        () = ended.notified() => Ok(()),
        _ = terminate.recv() => Ok(()),
    };
    driver.close().await;
    served
}
