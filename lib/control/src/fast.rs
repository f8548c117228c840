//! Instances of tier `xdp`: fast paths on interfaces, with the kernel's stack behind them.

use crate::model::XdpMode;
use serde::Serialize;

/// Where a fast path is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Attach {
    /// Names of interfaces, at least one.
    #[serde(rename = "interface")]
    pub interfaces: Vec<String>,
    /// Their network namespace: a name in `/run/netns` or an absolute path; absent: the daemon's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub netns: Option<String>,
    /// Which XDP mode.
    #[serde(skip_serializing_if = "is_auto")]
    pub mode: XdpMode,
}

fn is_auto(mode: &XdpMode) -> bool {
    *mode == XdpMode::Auto
}
