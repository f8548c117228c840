//! The contract between a network function and its host.

use crate::stateful::Stateful;
use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use nfluid_ring::{Batch, Outbox};
use nfluid_wire::ether::MacAddr;
use serde_json::Value;

/// Monotonic time in nanoseconds since an arbitrary start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Nanos(pub u64);

impl Nanos {
    /// `s` seconds.
    pub const fn from_secs(s: u64) -> Self {
        Nanos(s.saturating_mul(1_000_000_000))
    }

    /// Time since `earlier`; zero if `earlier` is later.
    pub const fn since(self, earlier: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }
}

/// The host's description of a port for an NF; the index in the list is the port number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortInfo {
    /// Name in the deployment, unique within the instance.
    pub name: String,
    /// The port's own MAC address.
    pub mac: MacAddr,
    /// Largest IP packet that the port carries, in bytes (frame without Ethernet header).
    pub mtu: u16,
}

/// A counter or gauge. Names follow Prometheus: `snake_case`, counters end in `_total`.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// Name without the platform's prefix, for example `packets_matched_total`.
    pub name: Cow<'static, str>,
    /// Label pairs, for example `("reason", "no_route")`.
    pub labels: Vec<(Cow<'static, str>, String)>,
    /// The value.
    pub value: f64,
}

impl Metric {
    /// A metric without labels.
    pub fn new(name: impl Into<Cow<'static, str>>, value: u64) -> Self {
        Metric {
            name: name.into(),
            labels: Vec::new(),
            value: value as f64,
        }
    }

    /// Returns the metric with one more label.
    #[must_use]
    pub fn with(mut self, label: &'static str, value: impl Into<String>) -> Self {
        self.labels.push((Cow::Borrowed(label), value.into()));
        self
    }
}

/// A configuration that cannot be used: where it is wrong, why, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// Path of the key within the NF's configuration, for example `rules[3].from`.
    pub path: String,
    /// Line within a text value (a rule list), 1-based.
    pub line: Option<u32>,
    /// The message: the error, and the remedy.
    pub message: String,
}

impl ConfigError {
    /// An error at `path`.
    pub fn at(path: impl Into<String>, message: impl Into<String>) -> Self {
        ConfigError {
            path: path.into(),
            line: None,
            message: message.into(),
        }
    }

    /// Returns the error at `line` (1-based) of the text value at the path.
    #[must_use]
    pub fn on_line(mut self, line: u32) -> Self {
        self.line = Some(line);
        self
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(f, "{}", self.path)?;
            if let Some(line) = self.line {
                write!(f, " line {line}")?;
            }
            f.write_str(": ")?;
        }
        f.write_str(&self.message)
    }
}

impl core::error::Error for ConfigError {}

/// The reason why a command to an NF failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandError {
    /// The NF has no such command; the names that it has.
    Unknown(&'static [&'static str]),
    /// An argument is wrong.
    BadArgument(String),
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CommandError::Unknown([]) => f.write_str("this NF has no commands"),
            CommandError::Unknown(known) => {
                write!(f, "unknown command; there are: {}", known.join(", "))
            }
            CommandError::BadArgument(why) => f.write_str(why),
        }
    }
}

impl core::error::Error for CommandError {}

/// A network function.
pub trait NetworkFunction: Send {
    /// Handles one batch: decides for every frame whether and where it goes on. An undecided frame
    /// is dropped. Bounded work per frame; no allocation without a bound.
    ///
    /// Order: frames that go on leave in the order in which they arrived. Frames that the NF makes while it handles a
    /// frame leave behind the frames before the handled frame, and before the handled frame itself and all behind it,
    /// if the NF takes its frames by [`nfluid_ring::frame_at`]. Made frames leave in the order in which the NF makes
    /// them. An NF that makes several packets of one (fragments) makes them all and drops the frame.
    fn process(&mut self, now: Nanos, batch: &mut Batch<'_, '_>);

    /// Work that time drives (expiry, retransmission), bounded per call. The host calls it every
    /// 50 ms while frames arrive, and before it asks for anything of an NF that has slept. While
    /// [`NetworkFunction::has_timers`] says so it also calls it within 500 ms after the last frame,
    /// and then when [`NetworkFunction::next_tick`] says; else now and then, after a minute at most.
    fn tick(&mut self, _now: Nanos, _outbox: &mut dyn Outbox) {}

    /// Does anything wait for time to pass? Asked before each sleep, so it looks at no list.
    fn has_timers(&self) -> bool {
        false
    }

    /// Returns the next time at which a tick has work, if nothing else happens before. Only called after a tick that
    /// followed the last frame, for an NF that has timers. A time in the past means as soon as possible. An idle NF
    /// sleeps until then.
    fn next_tick(&self) -> Nanos {
        Nanos(0)
    }

    /// Reports all counters and gauges.
    fn metrics(&self, sink: &mut dyn FnMut(Metric));

    /// Returns true if work has missed its deadline, or was given up, since this was asked last. Health checks ask; an NF whose work has no
    /// deadlines is never late.
    fn was_late(&mut self) -> bool {
        false
    }

    /// Runs an operator's command, for example `top-talkers`; the answer is JSON.
    ///
    /// # Errors
    /// [`CommandError::Unknown`] names the commands that exist.
    fn command(
        &mut self,
        _now: Nanos,
        _name: &str,
        _args: &[String],
    ) -> Result<Value, CommandError> {
        Err(CommandError::Unknown(&[]))
    }

    /// Returns true if several NFs of this configuration, each with a part of the flows of the same ports, together
    /// do the work of one NF with all flows.
    ///
    /// # Errors
    /// The reason for the operator: by default, an NF may have state that frames of different flows share.
    fn divides_by_flow(&self) -> Result<(), &'static str> {
        Err("it has state that flows share")
    }

    /// Returns the state with which another instance of this NF could continue; `None` if no state is worth moving.
    fn stateful(&mut self) -> Option<&mut dyn Stateful> {
        None
    }

    /// Takes a new configuration while traffic flows, keeping state where that makes sense. On an
    /// error the old configuration stays in force.
    ///
    /// # Errors
    /// As for building the NF with this configuration.
    fn reconfigure(&mut self, config: &Value, ports: &[PortInfo]) -> Result<(), ConfigError>;
}

/// Builds an NF from its configuration and ports.
pub type Builder = fn(&Value, &[PortInfo]) -> Result<Box<dyn NetworkFunction>, ConfigError>;
