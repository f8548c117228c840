//! The actuator: carries out the actions of a plan on the real host.

mod adopt;
mod capture;
mod chains;
mod clients;
mod drain;
mod errors;
mod farewell;
mod fast;
mod groups;
mod health;
mod instances;
mod platform;
mod services;
mod settings;
mod statistics;
mod subjects;
mod supervise;
mod switches;
mod tables;
mod uplinks;
mod wires;

pub use capture::capture;
pub use clients::ClientPorts;
pub use farewell::{Ending, prepare_end};
pub use fast::follow as follow_fast;
pub use health::run as check_health;
pub use instances::upgrade;
pub use nfluid_instance::functions::Functions;
pub use nfluid_instance::paths::Paths;
pub use nfluid_lifecycle::errors::one_of_several;
pub use nfluid_lifecycle::services::lock;
pub use nfluid_lifecycle::state::{Moved, export, give, rehearse, state_now};
pub use platform::HostPlatform;
pub use statistics::{nf_command, nf_metrics};
pub use subjects::follow_congestion;
pub use supervise::run as supervise;

use crate::events::HostEvents;
use anyhow::Context;
use nfluid_api::types::EventKind;
use nfluid_congestion::thread::SharedState;
use nfluid_control::events::{Events, Subject};
use nfluid_control::model::Switch as SwitchModel;
use nfluid_control::stopwatch::Lap;
use nfluid_control::tier::Isolation;
use nfluid_fastpath::FastPaths;
use nfluid_fastpath::catalogue::CATALOGUE;
use nfluid_fastpath::processes::Processes;
use nfluid_instance::cleaner::Cleaner;
use nfluid_instance::exits::Exits;
use nfluid_instance::maker::Maker;
use nfluid_instance::making::shell::number_of;
use nfluid_instance::numbers::Numbers;
use nfluid_instance::pool::Pool;
use nfluid_instance::runtime::Processes as ProcessRuntime;
use nfluid_instance::tenants::Tenants;
use nfluid_instance::trust::Groups;
use nfluid_lifecycle::runtime::{Prepared, Runtime};
use nfluid_lifecycle::table::Instances;
use nfluid_lifecycle::workload::Remains;
use nfluid_process::io::{IoMeans, IoPaths, IoThreads};
use nfluid_sandbox::cgroup::CgroupRoot;
use nfluid_sandbox::{EmptyNetNs, KernelIdRange, Sealed, Zygote};
use nfluid_switch::Switch;
use nfluid_switch::client::{Client, TEMPLATES_MAX};
use nfluid_switch::numbers::Ids;
use nfluid_uplinks::Uplinks;
use nfluid_wiring::Wires;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// The settings from which a platform is created.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The container images.
    pub images: nfluid_image::Store,
    /// The platform's name, used for its cgroup and for its directory on the BPF file system.
    pub name: String,
    /// The directories of the platform's state.
    pub paths: Paths,
    /// The program that hosts built-in NFs.
    pub nf_program: PathBuf,
    /// The log filter of the uplinks' processes.
    pub log: String,
    /// The mechanisms that are left out.
    pub without: Vec<Mechanism>,
}

/// A mechanism that makes the creation of instances fast. Each can be left out to measure its effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Mechanism {
    /// Maps of ports are entered into the switch in batches, and the creation does not wait for the kernel's grace
    /// periods.
    Batches,
    /// Processes are forked from a small process that holds nothing of the daemon's.
    Zygote,
}

/// The platform on this host.
pub struct Host {
    settings: Settings,
    switch: Arc<Switch>,
    maker: Arc<Maker>,
    pool: Arc<Pool>,
    /// Instances of the plan in progress that have been created already, or whose creation failed.
    prepared: BTreeMap<String, anyhow::Result<Box<dyn Prepared>>>,
    /// Leftovers of instances that the plan in progress has ended.
    ended: Vec<Box<dyn Remains>>,
    /// True if the plan in progress creates, moves or removes groups.
    groups_change: bool,
    switch_ids: Ids,
    /// The cgroup in which the daemon was started.
    origin: Option<PathBuf>,
    switches: BTreeMap<String, (u32, SwitchModel)>,
    instances: Instances,
    /// The runtime of isolation `process`.
    processes: Arc<ProcessRuntime>,
    /// The runtimes of all tiers whose instances have ports.
    runtimes: BTreeMap<Isolation, Arc<dyn Runtime>>,
    uplinks: Uplinks,
    /// Instances of tier `xdp`.
    fast: nfluid_fastpath::Shared,
    io: IoThreads,
    /// Groups of tenants.
    tenants: Tenants,
    /// Numbers of switches of an earlier daemon that are to be created again.
    left_switches: BTreeMap<String, u32>,
    /// Destination of the frames of each port.
    wires: Wires,
    /// The clients that have an instance of their own, by the instance's name.
    clients: BTreeMap<String, Client>,
    listeners: capture::Listeners,
    /// The steps that the plan in progress has done, with their times.
    laps: Vec<Lap>,
    /// The instances that the plan in progress creates and ends, if the plan does nothing else.
    plan_is_about: Option<BTreeSet<String>>,
    congestion: Arc<SharedState>,
    events: Arc<HostEvents>,
    started: Instant,
}

/// The host, shared by the parts of the daemon.
pub type Shared = Arc<Mutex<Host>>;

/// Returns the platform's cgroup, in which instances can be limited. Before that is certain, nothing of an earlier
/// daemon is touched: an instance could not be taken over, and would be ended.
fn platform_cgroup(name: &str) -> anyhow::Result<CgroupRoot> {
    let cgroups = CgroupRoot::new(name).context("making the platform's cgroup")?;
    if let Err(why) = cgroups.check_limits() {
        // A cgroup with running processes stays.
        let _in_use = cgroups.remove_empty();
        return Err(why)
            .context("instances could not be limited; nothing was started, nothing ended");
    }
    Ok(cgroups)
}

impl Host {
    /// Returns the maker of instances.
    pub fn maker(&self) -> Arc<Maker> {
        Arc::clone(&self.maker)
    }

    /// Loads the switch and enters the platform's cgroup.
    ///
    /// # Errors
    /// Names what the host lacks.
    pub fn new(settings: Settings) -> anyhow::Result<Self> {
        let directories = settings.paths.directories();
        let fast_paths = nfluid_fastpath::Paths::new(directories.clone());
        settings.paths.create(&fast_paths.directories())?;
        let uplink_paths = nfluid_uplinks::Paths::new(directories.clone());
        uplink_paths.create()?;
        let cgroups = platform_cgroup(&settings.name)?;
        let (home, origin) = enter_cgroup(&cgroups)?;
        // Before the switch is loaded: each shell's process begins as a copy of the zygote, including the page tables
        // by which this process maps the switch's state, and the memory that the load has left.
        let start_zygote = || Zygote::start().context("starting the zygote");
        let (zygote, shell_zygote) = (start_zygote()?, start_zygote()?);
        let switch = Arc::new(Switch::load(&nfluid_switch::Options {
            cgroup: home,
            pin: Some(settings.paths.pin().to_owned()),
            form: None,
            one_by_one: settings.without.contains(&Mechanism::Batches),
        })?);
        let kernel_ids = KernelIdRange::DEFAULT;
        let numbers = Numbers {
            ports: Ids::new(1, nfluid_switch::abi::PORTS_MAX),
            pools: Ids::new(1, nfluid_switch::abi::PORTS_MAX),
            users: Ids::new(0, kernel_ids.count()),
        };
        let maker = Maker {
            paths: settings.paths.clone(),
            switch: Arc::clone(&switch),
            cgroups,
            empty_net: EmptyNetNs::create().context("making an empty network namespace")?,
            sealed: Sealed::create().context("making a sealed IPC namespace")?,
            zygote,
            shell_zygote,
            uses_zygote: !settings.without.contains(&Mechanism::Zygote),
            images: settings.images.clone(),
            programs: nfluid_instance::programs::Programs::new(&settings.nf_program)?,
            logs: nfluid_instance::logs::LogCollector::start()?,
            numbers: numbers.clone(),
            outer_ends: nfluid_instance::OuterEnds::default(),
            groups: Groups::new(settings.paths.clone()),
            cleaner: Cleaner::start(Arc::clone(&switch), numbers.clone())?,
            connectors: nfluid_instance::terminator::Connectors::default(),
            exits: Exits::new().context("watching processes")?,
            kernel_ids,
        };
        let maker = Arc::new(maker);
        let processes: Arc<dyn Processes> = Arc::new(fast::SlowPathProcesses(Arc::clone(&maker)));
        let events = Arc::new(HostEvents::new());
        let reported = Arc::clone(&events) as Arc<dyn Events>;
        let fast = FastPaths::new(fast_paths, processes, Arc::clone(&reported), CATALOGUE);
        let fast = nfluid_fastpath::Shared::new(fast);
        let instances = Instances::default();
        let started = instances.started();
        let uplinks = Uplinks::new(nfluid_uplinks::Handles {
            switch: Arc::clone(&switch),
            ports: numbers.ports,
            pools: numbers.pools,
            paths: uplink_paths,
            log: settings.log.clone(),
            events: Arc::clone(&reported),
            started,
        });
        let io = IoThreads::new(IoMeans {
            platform: settings.name.clone(),
            log: settings.log.clone(),
            paths: io_paths(&settings.paths),
            cgroups: maker.cgroups.clone(),
            switch: Arc::clone(&switch),
            events: reported,
            started,
        });
        let tenants = Tenants::new(maker.cgroups.clone());
        let pool: Arc<Pool> = Arc::default();
        let processes = ProcessRuntime::new(Arc::clone(&maker), Arc::clone(&pool));
        let processes = Arc::new(processes);
        Ok(Host {
            listeners: capture::Listeners::default(),
            switch,
            maker,
            pool,
            prepared: BTreeMap::new(),
            ended: Vec::new(),
            groups_change: false,
            switch_ids: Ids::new(1, nfluid_switch::abi::SWITCHES_MAX),
            origin,
            switches: BTreeMap::new(),
            instances,
            // The monitor of a virtual machine is a process like others.
            runtimes: [
                Isolation::PROCESS,
                Isolation::MICROVM,
                Isolation::LINUX,
                Isolation::STACK,
            ]
            .map(|isolation| (isolation, processes.clone() as Arc<dyn Runtime>))
            .into(),
            processes,
            uplinks,
            fast,
            io,
            tenants,
            left_switches: BTreeMap::new(),
            wires: Wires::new(TEMPLATES_MAX),
            clients: BTreeMap::new(),
            laps: Vec::new(),
            plan_is_about: None,
            congestion: Arc::default(),
            events,
            started,
            settings,
        })
    }

    /// Describes the data plane's hooks and modes.
    pub fn data_plane(&self) -> Vec<String> {
        vec![format!("switch loops by {}", self.switch.form())]
    }

    /// Records an event.
    pub fn event(&self, kind: EventKind, subject: Subject<'_>, message: impl Into<String>) {
        self.events.record(kind, subject, message.into());
    }

    /// Starts the thread that fills the pools.
    ///
    /// # Errors
    /// The kernel has no thread left.
    pub fn fill_pools(&self) -> anyhow::Result<()> {
        let (pool, maker) = (Arc::clone(&self.pool), Arc::clone(&self.maker));
        // Instances that an earlier daemon has made from shells still have the shells' cgroups.
        let instances = self.instances.values();
        let used = instances.filter_map(|running| number_of(running.record().cgroup.as_deref()?));
        pool.number_from(used.max().map_or(0, |last| last + 1));
        pool.enter_groups(self.tenants.groups().clone());
        std::thread::Builder::new()
            .name("pool".to_owned())
            .spawn(move || pool.refill(&maker))
            .context("starting the thread of the pools")?;
        Ok(())
    }

    /// Takes all shells down, and waits until all leftovers of ended instances are removed.
    pub fn tidy(host: &Shared) {
        let (pool, maker) = {
            let host = lock(host);
            (Arc::clone(&host.pool), Arc::clone(&host.maker))
        };
        pool.end();
        maker.cleaner.finish();
    }

    /// The pools of shells.
    pub fn pool(&self) -> Arc<Pool> {
        Arc::clone(&self.pool)
    }

    /// Returns the switch, which the congestion thread reads without this lock.
    pub fn switch(&self) -> Arc<Switch> {
        Arc::clone(&self.switch)
    }

    /// Returns the orders and findings of the congestion thread.
    pub fn congestion(&self) -> Arc<SharedState> {
        Arc::clone(&self.congestion)
    }

    /// Returns the event log.
    pub fn events(&self) -> Arc<HostEvents> {
        Arc::clone(&self.events)
    }

    /// Removes what an orderly end of the daemon removes: programs and settings on interfaces. Instances go on.
    pub fn close(&mut self) {
        self.with_fast(FastPaths::close);
        self.uplinks.close();
        self.leave_cgroup();
    }

    /// Returns to the cgroup in which the daemon was started, and removes the daemon's own cgroup. Another process
    /// may be in that cgroup.
    fn leave_cgroup(&self) {
        self.maker.zygote.end();
        self.maker.shell_zygote.end();
        let Some(top) = self.maker.cgroups.v2_directory() else {
            return;
        };
        let daemon = top.join(DAEMON_CGROUP);
        let mount = top.parent();
        let origin = self.origin.as_deref().into_iter().chain(mount);
        let left = origin
            .map(|origin| {
                std::fs::write(origin.join("cgroup.procs"), std::process::id().to_string())
            })
            .any(|written| written.is_ok());
        if left && let Err(error) = std::fs::remove_dir(&daemon) {
            tracing::debug!(%error, "{} stays", daemon.display());
        }
    }
}

/// Returns the paths of the files of the I/O threads' process.
fn io_paths(paths: &Paths) -> IoPaths {
    IoPaths {
        pin: paths.pin().to_owned(),
        record: paths.io_record(),
        socket: paths.io_socket(),
        errors: paths.io_errors(),
    }
}

/// The daemon's cgroup inside the platform's: a directory that delegates controllers may hold no process itself.
const DAEMON_CGROUP: &str = "daemon";

/// Puts this process into the platform's cgroup: port sockets belong to the cgroup of the process that created them,
/// and the switch is attached there. Returns the directory that the switch attaches to, and the directory in which
/// the process was before, unless that one belongs to the platform.
fn enter_cgroup(cgroups: &CgroupRoot) -> anyhow::Result<(PathBuf, Option<PathBuf>)> {
    let top = cgroups
        .v2_directory()
        .context("no cgroup v2 is mounted, which the switch attaches to; mount -t cgroup2 none /sys/fs/cgroup/unified")?
        .to_owned();
    let origin = top.parent().and_then(own_cgroup);
    let daemon = top.join(DAEMON_CGROUP);
    std::fs::create_dir_all(&daemon).with_context(|| format!("creating {}", daemon.display()))?;
    std::fs::write(daemon.join("cgroup.procs"), std::process::id().to_string())
        .with_context(|| format!("entering {}", daemon.display()))?;
    let origin = origin.filter(|origin| !origin.starts_with(&top));
    Ok((top, origin))
}

/// Returns the directory of this process in the unified hierarchy, which is mounted at `mount`.
fn own_cgroup(mount: &Path) -> Option<PathBuf> {
    let text = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let directory = mount.join(path);
    directory.is_dir().then_some(directory)
}
