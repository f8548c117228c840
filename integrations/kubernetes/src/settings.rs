//! The settings of an agent and of its service.

use std::net::SocketAddr;
use std::path::PathBuf;

/// The settings of an agent.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Name of the node.
    pub node: String,
    /// Address at which Kubernetes reaches the agent.
    pub address: String,
    /// True if pods need no toleration for the node.
    pub is_open: bool,
    /// The daemon's socket.
    pub socket: PathBuf,
    /// Folders of the host below which pods may have volumes.
    pub host_volumes: Vec<PathBuf>,
    /// The agent's own service.
    pub service: ServiceSettings,
}

/// The settings of the service.
#[derive(Clone, Debug)]
pub struct ServiceSettings {
    /// Address and port.
    pub listen: SocketAddr,
    /// Certificate and key, PEM; absent: the agent makes a certificate of its own.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// Authorities of the clients' certificates, PEM; absent: callers show tokens.
    pub client_ca: Option<PathBuf>,
}
