//! Ports on the host's own network stack: the instance listens on addresses and has no rings.

use serde::Serialize;
use std::net::SocketAddr;

/// Maximum number of addresses of one instance.
pub const LISTEN_MAX: usize = 64;

/// The listening addresses of an instance. The daemon opens the sockets and hands them over, since the instance cannot
/// create sockets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Stack {
    /// TCP end points, 1 to [`LISTEN_MAX`].
    pub listen: Vec<SocketAddr>,
    /// Network namespace of the sockets: a name in `/run/netns` or an absolute path; absent: the daemon's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub netns: Option<String>,
}
