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

mod adopt;
mod balancing;
mod checks;
mod config;
mod guarding;
mod inspecting;
mod life;
mod load;
mod pins;
mod record;
mod row;
mod rows;
mod splitting;
mod status;
mod watch;

pub use config::NAMES;
pub use row::Rows;
pub use watch::run as watch;

use super::uplinks::namespace_path;
use balancing::Balancing;
use config::{Function, parse};
use guarding::Guarding;
use inspecting::Inspecting;
use nfluid_control::apply::{PlatformError, PlatformErrorKind};
use nfluid_control::host::NfConfigError;
use nfluid_control::model::XdpMode;
use nfluid_control::spec::InstanceSpec;
use nfluid_evnf::chain::Member;
use nfluid_evnf::hook::Hook;
use nfluid_switch::uplink::{Mode, Place};
use pins::exits;
use record::Record;
use serde_json::Value;
use splitting::{HostRules, Splitting};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// A fast path of the platform.
pub struct FastPath {
    spec: InstanceSpec,
    record: Record,
    work: Work,
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
        let netns = attach.netns.as_deref().map(namespace_path);
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
        Some(XdpMode::Tc) => Hook::Tc,
        _ => Hook::Xdp,
    }
}

fn mode(spec: &InstanceSpec) -> Mode {
    match spec.attach.as_ref().map(|attach| attach.mode) {
        Some(XdpMode::Native) => Mode::Native,
        Some(XdpMode::Generic) => Mode::Generic,
        _ => Mode::Auto,
    }
}

fn broken(error: impl Into<anyhow::Error>) -> PlatformError {
    super::platform::error(error.into())
}

impl Work {
    /// Loads what `function` needs, on the tables that are pinned, if they are.
    fn load(
        function: &Function,
        places: &[Place],
        pins: &Path,
        record: &mut Record,
    ) -> Result<Self, PlatformError> {
        match function {
            Function::Firewall => {
                let loaded = splittings(places, pins, &[])?;
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
        pins: &Path,
    ) -> Result<Member, PlatformError> {
        match self {
            Work::Firewall(loaded) => {
                let unread = || {
                    let message = "the host's rules could not be read";
                    PlatformError::new(PlatformErrorKind::Failed, message)
                };
                let splitting = loaded.get_mut(number).and_then(Option::as_mut);
                splitting
                    .ok_or_else(unread)?
                    .member(hook, before_senders, &exits(pins))
            }
            Work::Balancer(balancing) => balancing.balancer().member_at(hook).map_err(broken),
            Work::Guard(_) | Work::Inspector(_) if hook == Hook::Tc => {
                let message = "it has no form for tc";
                Err(PlatformError::new(PlatformErrorKind::Unsupported, message)
                    .with_remedy("leave 'mode: tc' out"))
            }
            Work::Guard(guarding) => guarding.guard().member().map_err(broken),
            Work::Inspector(inspecting) => inspecting.member().map_err(broken),
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

/// The host's rules as programs for these interfaces, all of one namespace.
fn splittings(
    places: &[Place],
    pins: &Path,
    before: &[Before],
) -> Result<Vec<Option<Splitting>>, PlatformError> {
    let Some(first) = places.first() else {
        return Ok(Vec::new());
    };
    let rules = HostRules::read(first)?;
    let exits = exits(pins);
    let loaded = places.iter().enumerate().map(|(number, place)| {
        let Before { print, senders } = before.get(number).copied().unwrap_or_default();
        rules.load(&place.interface, &exits, print, senders)
    });
    loaded.collect()
}
