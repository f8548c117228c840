//! Instances of tier `xdp`: fast paths on interfaces, in front of the kernel's stack, which sees all that they do not decide.
//!
//! What they are made of is pinned, so that packets need no daemon (docs/adr/0019-xdp-tier.md):
//!
//! | below `fast/NAME` of the BPF file system | |
//! |---|---|
//! | `link0`, `link1`, ... | the holds on the interfaces, in the order in which they are named |
//! | `exits` | a firewall's counter of how packets left: another rule set is another program, which counts on |
//! | `lb_...` | a balancer's tables, connections among them |
//! | `dpi_...` | an inspector's tables: flows, and what was counted of them |

mod adopt;
mod balancing;
mod checks;
mod config;
mod inspecting;
mod life;
mod pins;
mod record;
mod splitting;
mod status;
mod watch;

pub use config::NAMES;
pub use watch::run as watch;

use super::uplinks::namespace_path;
use balancing::Balancing;
use config::{Function, parse};
use inspecting::Inspecting;
use nfluid_control::apply::{PlatformError, PlatformErrorKind};
use nfluid_control::host::NfConfigError;
use nfluid_control::model::XdpMode;
use nfluid_control::spec::InstanceSpec;
use nfluid_switch::uplink::{Mode, PinnedProgram, Place, ReceivePath};
use pins::{exits, link_pin};
use record::Record;
use serde_json::Value;
use splitting::{HostRules, Splitting, failed};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// A fast path of the platform.
pub struct FastPath {
    spec: InstanceSpec,
    record: Record,
    work: Work,
    holds: Vec<Hold>,
    /// Where its pins are.
    pins: PathBuf,
    /// Why it is not as it should be.
    problem: Option<String>,
    since: Instant,
    restarts: u64,
}

/// A program's hold on one interface.
struct Hold {
    place: Place,
    /// Absent: the interface is not there.
    program: Option<PinnedProgram>,
    /// `native` or `generic`, and why not natively.
    mode: (String, String),
}

/// What a fast path does.
enum Work {
    /// The host's rules, for each interface. Absent: they could not be read, what an earlier daemon has loaded is in force.
    Firewall(Vec<Option<Splitting>>),
    Balancer(Box<Balancing>),
    Inspector(Box<Inspecting>),
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
        }
    }

    /// Whether it changes packets.
    fn rewrites(&self) -> bool {
        matches!(self, Work::Balancer(_) | Work::Inspector(_))
    }

    /// The program for an interface. `None`: an earlier daemon's goes on.
    fn program(&self, number: usize) -> Result<Option<OwnedFd>, PlatformError> {
        let program = match self {
            Work::Firewall(loaded) => match loaded.get(number).and_then(Option::as_ref) {
                Some(splitting) => splitting.firewall.descriptor(),
                None => return Ok(None),
            },
            Work::Balancer(balancing) => balancing.balancer().descriptor(),
            Work::Inspector(inspecting) => {
                return inspecting.descriptor().map(Some).map_err(broken);
            }
        };
        program.map(Some).map_err(broken)
    }
}

/// The host's rules as programs for these interfaces, all of one namespace. `before`: what is loaded; where that is the same,
/// nothing is.
fn splittings(
    places: &[Place],
    pins: &Path,
    before: &[Option<u64>],
) -> Result<Vec<Option<Splitting>>, PlatformError> {
    let Some(first) = places.first() else {
        return Ok(Vec::new());
    };
    let rules = HostRules::read(first)?;
    let exits = exits(pins);
    let loaded = places.iter().enumerate().map(|(number, place)| {
        let before = before.get(number).copied().flatten();
        rules.load(&place.interface, &exits, before)
    });
    loaded.collect()
}

impl Hold {
    /// Puts the program on the interface.
    fn take(
        place: &Place,
        program: &OwnedFd,
        mode: Mode,
        pin: &Path,
    ) -> Result<Self, PlatformError> {
        let attached = PinnedProgram::attach(place, program.as_fd(), mode, pin);
        let (program, attached) = attached.map_err(|error| failed(&error))?;
        let path = match attached.path {
            ReceivePath::Native => "native",
            _ => "generic",
        };
        Ok(Hold {
            place: place.clone(),
            program: Some(program),
            mode: (path.to_owned(), attached.why),
        })
    }

    /// Whether the program is on its interface.
    fn holds(&self) -> bool {
        let program = self.program.as_ref();
        program.is_some_and(PinnedProgram::is_attached)
    }

    /// Puts another program in the place of the one that is there.
    fn replace(&self, program: &OwnedFd) -> Result<(), PlatformError> {
        match &self.program {
            Some(there) if there.is_attached() => there
                .replace(program.as_fd())
                .map_err(|error| failed(&error)),
            _ => Ok(()),
        }
    }
}

impl FastPath {
    fn pin(&self, number: usize) -> PathBuf {
        link_pin(&self.pins, number)
    }

    fn modes(&self) -> Vec<(String, String)> {
        self.holds.iter().map(|hold| hold.mode.clone()).collect()
    }
}
