//! Instances of tier `xdp`: fast paths on interfaces, in front of the kernel's stack. The stack gets all packets that
//! the fast paths do not decide.
//!
//! Programs and tables are pinned, so that packets need no daemon (docs/adr/0019-xdp-tier.md):
//!
//! | below `fast/NAME` of the BPF file system | |
//! |---|---|
//! | `exits` | a firewall's packet counters per exit: after a change of rules another program uses the same counters |
//! | `lb_...` | a balancer's tables, connections among them |
//! | `dpi_...` | an inspector's tables: flows and their counters |
//! | `guard_...` | a guard's tables: after a change of limits another program uses the same tables |
//!
//! Fast paths on one interface form a chain: `chain` has its pins and its record. [`function`] has the interface to
//! network functions; [`catalogue`] lists them.
//!
//! # Adding a network function
//!
//! A function `x` is a folder `x` with three files, and one entry of [`catalogue::CATALOGUE`]. Its program is in
//! `bpf/evnf`, the user half of that in `lib/evnf`.
//!
//! | file | content |
//! |---|---|
//! | `config.rs` | the configuration, which implements [`function::FunctionConfig`] |
//! | `mod.rs` | the entry of the catalogue, and the running function, which implements [`function::FastFunction`] |
//! | `figures.rs` | status and metrics |
//!
//! `tests/count` is a function that passes and counts all packets. `tests` runs it without a daemon.

#![forbid(unsafe_code)]

mod adopt;
mod attaching;
pub mod catalogue;
mod chain;
mod config;
mod edpi;
mod efw;
mod elb;
mod error;
mod figures;
pub mod function;
mod guard;
mod hold;
mod life;
mod paths;
mod pins;
mod placement;
pub mod processes;
mod record;
mod reread;
mod shared;
mod slow;
mod status;
#[cfg(test)]
mod tests;
mod watch;

pub use edpi::inspector::run as run_inspector;
pub use paths::Paths;
pub use shared::Shared;
pub use watch::run as watch;

use catalogue::Catalogue;
use chain::InterfaceChains;
use function::{Context, FastFunction, Site};
use nfluid_api::types::EventKind;
use nfluid_control::apply::PlatformError;
use nfluid_control::events::Events;
use nfluid_control::spec::InstanceSpec;
use placement::{hook, places};
use processes::Processes;
use record::Record;
use slow::Slow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// The fast paths of a platform, and their interfaces.
pub struct FastPaths {
    paths: Paths,
    processes: Arc<dyn Processes>,
    catalogue: Catalogue,
    /// The fast paths by name of the instance.
    instances: BTreeMap<String, FastPath>,
    chains: InterfaceChains,
    events: Arc<dyn Events>,
    /// Number of fast paths made so far.
    made: u64,
}

/// A fast path of the platform.
struct FastPath {
    spec: InstanceSpec,
    record: Record,
    function: Box<dyn FastFunction>,
    /// The slow path, if it is not the kernel's stack.
    slow: Option<Slow>,
    /// The folder of its pins.
    pins: PathBuf,
    /// The reason why the fast path is impaired.
    problem: Option<String>,
    since: Instant,
    restarts: u64,
    /// True if an interface has returned since the last call of `attach_again`.
    regained: bool,
    /// Distinguishes the fast path from earlier ones of the same name.
    number: u64,
}

impl FastPaths {
    /// Starts without fast paths. The directories of `paths` exist. `events`: sink of events. `catalogue`: the network
    /// functions, usually [`catalogue::CATALOGUE`].
    pub fn new(
        paths: Paths,
        processes: Arc<dyn Processes>,
        events: Arc<dyn Events>,
        catalogue: Catalogue,
    ) -> Self {
        FastPaths {
            paths,
            processes,
            catalogue,
            instances: BTreeMap::new(),
            chains: InterfaceChains::new(),
            events,
            made: 0,
        }
    }

    fn event(&self, kind: EventKind, instance: &str, message: impl Into<String>) {
        self.events.of_instance(kind, instance, message.into());
    }

    /// Calls a method of the function of a fast path. `None`: there is no such fast path.
    fn act<T>(
        &mut self,
        name: &str,
        act: impl FnOnce(&mut dyn FastFunction, &mut Context<'_>) -> T,
    ) -> Option<T> {
        let fast = self.instances.get_mut(name)?;
        let mut context = Context {
            name,
            places: &places(&fast.spec),
            pins: &fast.pins,
            record: &mut fast.record,
            processes: &*self.processes,
            file: &self.paths.record(name),
            problem: &mut fast.problem,
            events: &*self.events,
        };
        Some(act(&mut *fast.function, &mut context))
    }

    /// Adds a fast path that is loaded and not attached yet.
    fn enter(&mut self, name: &str, spec: &InstanceSpec, loaded: Parts) {
        self.made += 1;
        let fast = FastPath {
            spec: spec.clone(),
            record: loaded.record,
            function: loaded.function,
            slow: loaded.slow,
            pins: self.paths.pins(name),
            problem: loaded.problem,
            since: Instant::now(),
            restarts: 0,
            regained: false,
            number: self.made,
        };
        self.instances.insert(name.to_owned(), fast);
    }
}

/// The parts of a loaded fast path.
struct Parts {
    record: Record,
    function: Box<dyn FastFunction>,
    slow: Option<Slow>,
    problem: Option<String>,
}

impl FastPath {
    /// Returns true if the deployment does not specify the hook, and the function has a form for tc.
    fn may_be_at_tc(&self) -> bool {
        !placement::says_how(&self.spec) && self.function.has_tc_form()
    }

    /// Has the programs hand packets up to the tap that exists, or to none.
    fn lead_to_slow_path(&self, name: &str) {
        if let Some(slow) = &self.slow {
            self.function.lead_to(slow.entrance(), name);
        }
    }
}

/// Returns the slow path that a specification asks for, with its tables made or opened. `None`: the slow path is the
/// kernel's stack.
fn slow_path(spec: &InstanceSpec, pins: &Path) -> Result<Option<Slow>, PlatformError> {
    let taps = spec.attach.as_ref().and_then(|attach| attach.slow.as_ref());
    let place = places(spec).into_iter().next();
    let made = taps
        .zip(place)
        .map(|(taps, place)| Slow::load(taps, &place, pins));
    made.transpose()
}

/// Returns the site at which the function of a specification is loaded.
fn site<'a>(
    spec: &InstanceSpec,
    places: &'a [nfluid_netdev::Place],
    pins: &'a Path,
    slow: Option<&'a Slow>,
) -> Site<'a> {
    Site {
        places,
        hook: hook(spec),
        pins,
        slow,
    }
}
