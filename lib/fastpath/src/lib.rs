//! Instances of tier `xdp`: fast paths on interfaces, in front of the kernel's stack, which sees all that they do not decide.
//!
//! What they are made of is pinned, so that packets need no daemon (docs/adr/0019-xdp-tier.md):
//!
//! | below `fast/NAME` of the BPF file system | |
//! |---|---|
//! | `exits` | a firewall's counter of how packets left: another rule set is another program, which counts on |
//! | `lb_...` | a balancer's tables, connections among them |
//! | `dpi_...` | an inspector's tables: flows, and what was counted of them |
//! | `guard_...` | a guard's tables: other limits are another program on them |
//!
//! What is of an interface, where several may be one behind the other, is in `row`.

#![forbid(unsafe_code)]

mod adopt;
mod balancing;
mod checks;
mod config;
mod error;
mod guarding;
mod hold;
mod inspecting;
pub mod inspector_process;
mod life;
mod load;
mod paths;
mod pins;
pub mod processes;
mod record;
mod row;
mod rows;
mod shared;
mod slow;
mod splitting;
mod status;
mod watch;

pub use config::NAMES;
pub use error::interface_error;
pub use paths::Paths;
pub use shared::Shared;
pub use watch::run as watch;

use balancing::Balancing;
use config::{Function, parse};
use error::broken;
use guarding::Guarding;
use inspecting::Inspecting;
use nfluid_api::types::EventKind;
use nfluid_control::apply::{PlatformError, PlatformErrorKind};
use nfluid_control::fast::{Attach, Direction};
use nfluid_control::host::{NfAttachError, NfConfigError};
use nfluid_control::model::XdpMode;
use nfluid_control::netns;
use nfluid_control::spec::InstanceSpec;
use nfluid_evnf::chain::Member;
use nfluid_evnf::hook::Hook;
use nfluid_switch::uplink::{Mode, Place};
use processes::Processes;
use record::Record;
use row::Rows;
use serde_json::Value;
use slow::{Common, Slow};
use splitting::{HostRules, Splitting};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// The fast paths of a platform, and the interfaces that they are on.
pub struct FastPaths {
    paths: Paths,
    processes: Arc<dyn Processes>,
    /// By name of the instance.
    instances: BTreeMap<String, FastPath>,
    rows: Rows,
    /// What has happened and was not reported yet.
    events: Vec<Event>,
}

/// What has happened to a fast path, for the daemon's log of events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// What sort of event.
    pub kind: EventKind,
    /// The instance.
    pub instance: String,
    /// What has happened, for the operator.
    pub message: String,
}

impl FastPaths {
    /// No fast paths yet. The directories of `paths` exist.
    pub fn new(paths: Paths, processes: Arc<dyn Processes>) -> Self {
        FastPaths {
            paths,
            processes,
            instances: BTreeMap::new(),
            rows: Rows::new(),
            events: Vec::new(),
        }
    }

    /// Takes the events that have not been reported yet, the oldest first.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    fn event(&mut self, kind: EventKind, instance: &str, message: impl Into<String>) {
        self.events.push(Event {
            kind,
            instance: instance.to_owned(),
            message: message.into(),
        });
    }
}

/// A fast path of the platform.
pub struct FastPath {
    spec: InstanceSpec,
    record: Record,
    work: Work,
    /// Its slow path, if that is one of its own.
    slow: Option<Slow>,
    /// Where its pins are.
    pins: PathBuf,
    /// Why it is not as it should be.
    problem: Option<String>,
    since: Instant,
    restarts: u64,
    /// An interface has come back since somebody asked.
    regained: bool,
}

/// What a fast path does.
enum Work {
    /// The host's rules, for each interface. Absent: they could not be read, what an earlier daemon has loaded is in force.
    Firewall(Vec<Option<Splitting>>),
    Balancer(Box<Balancing>),
    Inspector(Box<Inspecting>),
    Guard(Box<Guarding>),
}

/// Checks a configuration.
///
/// # Errors
/// The first thing that is wrong with it.
pub fn check_config(nf: &str, config: &Value) -> Result<(), NfConfigError> {
    parse(nf, config).map(drop)
}

/// Checks whether a network function has a form for where it is asked for.
///
/// # Errors
/// It has none.
pub fn check_attach(nf: &str, attach: &Attach) -> Result<(), NfAttachError> {
    let leaves = attach.direction == Direction::Egress;
    let (key, message, remedy) = match nf {
        "efw" => return Ok(()),
        "elb" | "edpi" if !leaves => return Ok(()),
        "elb" | "edpi" => (
            "direction",
            format!("'{nf}' is for what comes in: it has no form for what goes out"),
            "remove 'direction: egress', and name the interfaces by which its packets come in",
        ),
        "guard" if leaves || attach.mode == XdpMode::Tc => (
            if leaves { "direction" } else { "mode" },
            format!("'{nf}' is for XDP: it has no form for tc"),
            "remove 'mode: tc' and 'direction': it is at XDP then, natively where the driver can",
        ),
        _ => return Ok(()),
    };
    Err(NfAttachError {
        key,
        message,
        remedy: remedy.to_owned(),
    })
}

/// What a specification asks for. It has been checked, but by whoever has written the state.
fn function_of(spec: &InstanceSpec) -> Result<Function, PlatformError> {
    parse(spec.program.name(), &spec.config).map_err(|error| {
        let message = format!("{} ({})", error.message, error.path);
        PlatformError::new(PlatformErrorKind::Refused, message)
    })
}

/// Where a specification wants its fast path.
fn places(spec: &InstanceSpec) -> Vec<Place> {
    let attach = spec.attach.iter();
    let places = attach.flat_map(|attach| {
        let netns = attach.netns.as_deref().map(netns::path);
        let interfaces = attach.interfaces.iter();
        interfaces.map(move |interface| Place {
            interface: interface.clone(),
            netns: netns.clone(),
        })
    });
    places.collect()
}

/// Where a specification wants it.
fn hook(spec: &InstanceSpec) -> Hook {
    match spec.attach.as_ref().map(|attach| attach.mode) {
        _ if direction(spec) == Direction::Egress => Hook::Egress,
        Some(XdpMode::Tc) => Hook::Tc,
        _ if priority(spec).is_some() => Hook::Component,
        _ => Hook::Xdp,
    }
}

/// Its place in libxdp's dispatcher; `None`: it is to be on its interfaces itself.
fn priority(spec: &InstanceSpec) -> Option<u32> {
    let attach = spec.attach.as_ref()?;
    attach.run_priority()
}

fn direction(spec: &InstanceSpec) -> Direction {
    let attach = spec.attach.as_ref();
    attach.map_or_else(Direction::default, |attach| attach.direction)
}

fn mode(spec: &InstanceSpec) -> Mode {
    match spec.attach.as_ref().map(|attach| attach.mode) {
        Some(XdpMode::Native) => Mode::Native,
        Some(XdpMode::Generic) => Mode::Generic,
        _ => Mode::Auto,
    }
}

/// The slow path that a specification asks for, its tables made or taken over; nothing: it is the kernel's stack.
fn slow_path(spec: &InstanceSpec, pins: &Path) -> Result<Option<Slow>, PlatformError> {
    let taps = spec.attach.as_ref().and_then(|attach| attach.slow.as_ref());
    let place = places(spec).into_iter().next();
    let made = taps
        .zip(place)
        .map(|(taps, place)| Slow::load(taps, &place, pins));
    made.transpose()
}

impl FastPath {
    /// Whether nobody has said how it is to be on its interfaces, and it has a form for tc.
    fn may_be_at_tc(&self) -> bool {
        let mode = self.spec.attach.as_ref().map(|attach| attach.mode);
        let is_said = mode != Some(XdpMode::Auto) || priority(&self.spec).is_some();
        !is_said && !matches!(self.work, Work::Guard(_))
    }
}

impl Work {
    /// Loads what `function` needs, on the tables that are pinned, if they are.
    fn load(
        function: &Function,
        spec: &InstanceSpec,
        (pins, slow): (&Path, Option<&Slow>),
        record: &mut Record,
    ) -> Result<Self, PlatformError> {
        match function {
            Function::Firewall => {
                let common = Common::of(pins, slow);
                let loaded = splittings(&places(spec), hook(spec), &common, &[])?;
                Ok(Work::Firewall(loaded))
            }
            Function::Balancer(config) => {
                let balancing = Balancing::load(config, pins, &mut record.numbers);
                Ok(Work::Balancer(Box::new(balancing.map_err(broken)?)))
            }
            Function::Inspector(config) => {
                let inspecting = Inspecting::load(config, pins).map_err(broken)?;
                Ok(Work::Inspector(Box::new(inspecting)))
            }
            Function::Guard(settings) => {
                let guarding = Guarding::load(settings, pins).map_err(broken)?;
                Ok(Work::Guard(Box::new(guarding)))
            }
        }
    }

    /// Whether it changes packets, or sends some.
    fn rewrites(&self) -> bool {
        !matches!(self, Work::Firewall(_))
    }

    /// The program for an interface. `before_senders`: somebody behind it sends on what it lets pass.
    fn member(
        &mut self,
        hook: Hook,
        number: usize,
        before_senders: bool,
    ) -> Result<Member, PlatformError> {
        match self {
            Work::Firewall(loaded) => {
                let unread = || {
                    let message = "the host's rules could not be read";
                    PlatformError::new(PlatformErrorKind::Failed, message)
                };
                let splitting = loaded.get_mut(number).and_then(Option::as_mut);
                splitting.ok_or_else(unread)?.member(hook, before_senders)
            }
            Work::Balancer(balancing) => balancing.balancer().member_at(hook).map_err(broken),
            // One that an older daemon has recorded: it is refused by now before it gets here.
            Work::Guard(_) if !hook.is_xdp() => {
                let message = "it has no form for tc";
                Err(PlatformError::new(PlatformErrorKind::Unsupported, message)
                    .with_remedy("leave 'mode: tc' out"))
            }
            Work::Guard(guarding) => guarding.guard().member_at(hook).map_err(broken),
            Work::Inspector(inspecting) => inspecting.member(hook).map_err(broken),
        }
    }
}

/// What is known of a firewall at one of its interfaces.
#[derive(Clone, Copy, Default)]
struct Before {
    /// What is loaded; where that is the same, nothing is.
    print: Option<u64>,
    /// Somebody behind it sends on what it lets pass.
    senders: bool,
}

/// The host's rules as programs for these interfaces, all of one namespace, at a hook.
fn splittings(
    places: &[Place],
    hook: Hook,
    common: &Common,
    before: &[Before],
) -> Result<Vec<Option<Splitting>>, PlatformError> {
    let Some(first) = places.first() else {
        return Ok(Vec::new());
    };
    let rules = HostRules::read(first)?;
    let loaded = places.iter().enumerate().map(|(number, place)| {
        let before = before.get(number).copied().unwrap_or_default();
        rules.load(place, hook, common, before)
    });
    loaded.collect()
}
