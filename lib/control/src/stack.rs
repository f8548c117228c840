//! Ports on the host's own network stack: the addresses at which an instance is called, instead of rings.

use serde::Serialize;
use std::net::SocketAddr;

/// Most addresses of one instance.
pub const LISTEN_MAX: usize = 64;

/// Where an instance listens. The daemon opens the sockets and hands them over: the instance cannot make any.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Stack {
    /// TCP end points, 1 to [`LISTEN_MAX`].
    pub listen: Vec<SocketAddr>,
    /// Their network namespace: a name in `/run/netns` or an absolute path; absent: the daemon's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub netns: Option<String>,
}
