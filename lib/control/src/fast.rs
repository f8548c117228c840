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
    /// Which packets it sees.
    #[serde(skip_serializing_if = "is_ingress")]
    pub direction: Direction,
    /// Its place among the fast paths of an interface, the lowest first: what one lets pass goes on to the next. Absent: it is
    /// alone there. Written only where it says something: an instance that an older daemon has recorded is adopted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<u16>,
    /// Who else has programs on its interfaces, at XDP; absent: nobody. Written only where it says something.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beside: Option<Beside>,
    /// Its place among their programs, the lowest first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<u32>,
    /// Who gets what it does not decide; absent: the kernel's stack. Written only where it says something.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slow: Option<Slow>,
}

/// A slow path of a fast path's own: taps in its interface's namespace, each of which a program or an uplink has open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Slow {
    /// Who gets what is handed up. What is sent into it goes out of the interface; if there is no `back`, on into the kernel's stack.
    pub tap: String,
    /// What is sent into this one goes on into the kernel's stack, as if it had just come in by the interface.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub back: Option<String>,
}

impl Slow {
    /// Its taps.
    pub fn taps(&self) -> impl Iterator<Item = &str> {
        [Some(&self.tap), self.back.as_ref()]
            .into_iter()
            .flatten()
            .map(String::as_str)
    }
}

/// Which packets of an interface a fast path sees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Those that come in by it.
    #[default]
    Ingress,
    /// Those that go out by it; at tc only.
    Egress,
}

/// Whose programs an interface's row of fast paths is among.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Beside {
    /// All that libxdp's dispatcher has.
    Libxdp,
}

/// Where programs are in libxdp's dispatcher that do not say where they are to be (its `XDP_DEFAULT_RUN_PRIO`).
pub const PRIORITY: u32 = 50;
/// Highest place there that can be written.
pub const PRIORITY_MAX: u32 = 9999;

/// Most fast paths on one interface: the kernel follows 33 tail calls.
pub const MEMBERS_MAX: usize = 32;
/// Highest place among them that can be written.
pub const ORDER_MAX: u16 = 9999;

impl Attach {
    /// Its place in libxdp's dispatcher; `None`: it is not to be in there.
    pub fn run_priority(&self) -> Option<u32> {
        let Beside::Libxdp = self.beside?;
        Some(self.priority.unwrap_or(PRIORITY))
    }

    /// Whether another is on the same interfaces in the same way, wherever among others.
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
