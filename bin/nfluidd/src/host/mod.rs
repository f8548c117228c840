//! The actuator: carries out the actions of a plan on the real host.

mod adopt;
mod capture;
mod chains;
mod clients;
mod errors;
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
mod terminator;
mod uplinks;
mod wires;

pub use capture::capture;
pub use clients::ClientPorts;
pub use errors::one_of_several;
pub use fast::follow as follow_fast;
pub use health::run as look_after;
pub use instances::upgrade;
pub use nfluid_instance::functions::Functions;
pub use nfluid_instance::paths::Paths;
pub use nfluid_lifecycle::state::{Moved, export, give, rehearse, state_now};
pub use nfluid_lifecycle::{arrival as landing, departure as moving};
pub use platform::HostPlatform;
pub use statistics::{nf_command, nf_metrics};
pub use subjects::follow_congestion;
pub use supervise::run as supervise;
pub use terminator::drain as drain_terminator;

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
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// What a platform is made from.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Its name: of its cgroup, and of its directory on the BPF file system.
    pub name: String,
    /// Where its state lies.
    pub paths: Paths,
    /// The program that hosts built-in NFs.
    pub nf_program: PathBuf,
    /// What uplinks' processes log.
    pub log: String,
    /// What to do without.
    pub without: Vec<Mechanism>,
}

/// What makes the making of an instance quick, and can be left out to see how much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Mechanism {
    /// Maps of ports are entered into the switch in batches, and nobody waits for the kernel's grace periods.
    Batches,
    /// Processes are forked from a small one that has nothing of the daemon's.
    Zygote,
}

/// The platform on this host.
pub struct Host {
    settings: Settings,
    switch: Arc<Switch>,
    maker: Arc<Maker>,
    pool: Arc<Pool>,
    /// Instances of the plan in progress that are made already, or could not be.
    prepared: BTreeMap<String, anyhow::Result<Box<dyn Prepared>>>,
    /// Instances that the plan in progress has ended, and what is left of them.
    ended: Vec<Box<dyn Remains>>,
    /// The plan in progress makes, moves or removes groups.
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
    /// Numbers of switches of an earlier daemon that are to be made again.
    left_switches: BTreeMap<String, u32>,
    /// Where each port's frames go.
    wires: Wires,
    /// The clients that have an instance of their own, by its name.
    clients: BTreeMap<String, Client>,
    listeners: capture::Listeners,
    /// What the plan in progress has done, and when.
    laps: Vec<Lap>,
    /// The instances that the plan in progress makes and ends, if it does nothing else.
    plan_is_about: Option<BTreeSet<String>>,
    congestion: Arc<SharedState>,
    events: Arc<HostEvents>,
    started: Instant,
}

/// The host, shared by the parts of the daemon.
pub type Shared = Arc<Mutex<Host>>;

/// Locks the host. A thread that panicked while it held the lock has left tables that are whole:
/// they change in single steps.
pub fn lock(host: &Shared) -> MutexGuard<'_, Host> {
    host.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The platform's cgroup, where instances can be limited. What runs of an earlier daemon is not touched before that is
/// sure: it could not be taken over, and would be ended.
fn platform_cgroup(name: &str) -> anyhow::Result<CgroupRoot> {
    let cgroups = CgroupRoot::new(name).context("making the platform's cgroup")?;
    if let Err(why) = cgroups.check_limits() {
        // Something in it runs, and runs on.
        let _in_use = cgroups.remove_empty();
        return Err(why)
            .context("instances could not be limited; nothing was started, nothing ended");
    }
    Ok(cgroups)
}

impl Host {
    /// Makes and ends instances.
    pub fn maker(&self) -> Arc<Maker> {
        Arc::clone(&self.maker)
    }

    /// Loads the switch and takes the platform's place on the host.
    ///
    /// # Errors
    /// Says what is missing on the host.
    pub fn new(settings: Settings) -> anyhow::Result<Self> {
        let fast_paths = nfluid_fastpath::Paths::new(
            settings.paths.run().to_owned(),
            settings.paths.pin().to_owned(),
        );
        settings.paths.create(&fast_paths.directories())?;
        let uplink_paths = nfluid_uplinks::Paths::new(
            settings.paths.run().to_owned(),
            settings.paths.pin().to_owned(),
        );
        uplink_paths.create()?;
        let cgroups = platform_cgroup(&settings.name)?;
        let (home, origin) = enter_cgroup(&cgroups)?;
        // Before the switch is loaded: each shell's process begins as a copy of theirs, the tables of the pages included by which
        // this process has the switch's state, and of what the load has left.
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
            programs: nfluid_instance::programs::Programs::new(&settings.nf_program)?,
            logs: nfluid_instance::logs::LogCollector::start()?,
            numbers: numbers.clone(),
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
            runtimes: BTreeMap::from([(Isolation::PROCESS, processes.clone() as Arc<dyn Runtime>)]),
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

    /// The data plane's forms, in words.
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
    /// When the kernel has none.
    pub fn fill_pools(&self) -> anyhow::Result<()> {
        let (pool, maker) = (Arc::clone(&self.pool), Arc::clone(&self.maker));
        // Instances that an earlier daemon has made from shells have their cgroups still.
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

    /// Takes all shells down, and waits until nothing is left of ended instances.
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

    /// The switch, which the congestion thread reads without this lock.
    pub fn switch(&self) -> Arc<Switch> {
        Arc::clone(&self.switch)
    }

    /// The orders and findings of the congestion thread.
    pub fn congestion(&self) -> Arc<SharedState> {
        Arc::clone(&self.congestion)
    }

    /// The events.
    pub fn events(&self) -> Arc<HostEvents> {
        Arc::clone(&self.events)
    }

    /// Removes what an orderly end of the daemon removes: programs and settings on interfaces.
    /// Instances go on.
    pub fn close(&mut self) {
        self.with_fast(FastPaths::close);
        self.uplinks.close();
        self.leave_cgroup();
    }

    /// Goes back to where the daemon came from and removes its own cgroup, which another process may
    /// be in.
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

/// Where the process of the I/O threads has its files.
fn io_paths(paths: &Paths) -> IoPaths {
    IoPaths {
        pin: paths.pin().to_owned(),
        record: paths.io_record(),
        socket: paths.io_socket(),
        errors: paths.io_errors(),
    }
}

/// The daemon's cgroup in the platform's: a directory that hands controllers down may hold no process
/// itself.
const DAEMON_CGROUP: &str = "daemon";

/// Puts this process into the platform's cgroup: port sockets belong to the cgroup of their maker,
/// and the switch hangs on it. Returns the directory that the switch attaches to, and the one that
/// the process was in before, if that was none of the platform's own.
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

/// The directory of this process in the unified hierarchy, which is mounted at `mount`.
fn own_cgroup(mount: &Path) -> Option<PathBuf> {
    let text = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let directory = mount.join(path);
    directory.is_dir().then_some(directory)
}
