//! Instances of tier `xdp`: fast paths on interfaces, with the kernel's stack behind them.

use crate::model::XdpMode;
use serde::Serialize;

/// The interfaces that a fast path is attached to, and its place among their programs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Attach {
    /// Names of interfaces, at least one.
    #[serde(rename = "interface")]
    pub interfaces: Vec<String>,
    /// Network namespace of the interfaces: a name in `/run/netns` or an absolute path; absent: the daemon's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub netns: Option<String>,
    /// The XDP mode.
    #[serde(skip_serializing_if = "is_auto")]
    pub mode: XdpMode,
    /// Direction of the packets that the fast path processes.
    #[serde(skip_serializing_if = "is_ingress")]
    pub direction: Direction,
    /// Position among the fast paths of an interface, in ascending order: packets that one fast path passes go on to
    /// the next. Absent: the fast path is the only one on the interface. Serialized only if present, so that instances
    /// that an older daemon has recorded are adopted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<u16>,
    /// Dispatcher of other parties' programs on the interfaces, at XDP; absent: no other programs. Serialized only if
    /// present.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beside: Option<Beside>,
    /// Position among the dispatcher's programs, in ascending order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<u32>,
    /// Receiver of the packets that the fast path leaves undecided; absent: the kernel's stack. Serialized only if
    /// present.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slow: Option<Slow>,
}

/// The slow path of a fast path: taps in the namespace of its interface. A program or an uplink has each tap open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Slow {
    /// The tap that receives packets from the fast path. Packets sent into the tap leave by the interface or, if there
    /// is no `back`, go on into the kernel's stack.
    pub tap: String,
    /// Packets sent into this tap go on into the kernel's stack, as if they had just arrived at the interface.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub back: Option<String>,
}

impl Slow {
    /// Returns the names of the taps.
    pub fn taps(&self) -> impl Iterator<Item = &str> {
        [Some(&self.tap), self.back.as_ref()]
            .into_iter()
            .flatten()
            .map(String::as_str)
    }
}

/// Direction of the packets that a fast path processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Packets that arrive at the interface.
    #[default]
    Ingress,
    /// Packets that leave by the interface; only at tc.
    Egress,
}

/// The dispatcher that a fast path shares an interface with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Beside {
    /// libxdp's dispatcher, with all of its programs.
    Libxdp,
}

/// Priority in libxdp's dispatcher of programs that name none (its `XDP_DEFAULT_RUN_PRIO`).
pub const PRIORITY: u32 = 50;
/// Highest priority that a document can name.
pub const PRIORITY_MAX: u32 = 9999;

/// Maximum number of fast paths on one interface: the kernel follows 33 tail calls.
pub const MEMBERS_MAX: usize = 32;
/// Highest `order` that a document can name.
pub const ORDER_MAX: u16 = 9999;

impl Attach {
    /// Returns the priority in libxdp's dispatcher; `None` if the program is not in the dispatcher.
    pub fn run_priority(&self) -> Option<u32> {
        let Beside::Libxdp = self.beside?;
        Some(self.priority.unwrap_or(PRIORITY))
    }

    /// Returns true if `other` is attached in the same way, at any position among the fast paths of the interfaces.
    pub fn is_at(&self, other: &Attach) -> bool {
        let place = |attach: &Attach| Attach {
            order: None,
            ..attach.clone()
        };
        place(self) == place(other)
    }
}

fn is_ingress(direction: &Direction) -> bool {
    *direction == Direction::Ingress
}

fn is_auto(mode: &XdpMode) -> bool {
    *mode == XdpMode::Auto
}
