//! The actuator: carries out the actions of a plan on the real host.

mod adopt;
mod bells;
mod capture;
mod ids;
mod instance;
mod launch;
mod logs;
mod making;
mod nf_socket;
mod paths;
mod platform;
mod record;
mod statistics;
mod supervise;
mod switch_numbers;
mod uplink_life;
mod uplink_record;
mod uplinks;
mod wires;

pub use capture::capture;
pub use paths::Paths;
pub use platform::HostPlatform;
pub use statistics::{nf_command, nf_metrics};
pub use supervise::run as supervise;
pub use uplinks::interface_fact;

use anyhow::Context;
use ids::{Ids, Numbers};
use instance::Running;
use making::{Maker, Making};
use nfluid_api::types::{EventKind, Kind};
use nfluid_control::events::EventLog;
use nfluid_control::model::{PortRef, Switch as SwitchModel};
use nfluid_control::wiring::Destination;
use nfluid_sandbox::cgroup::CgroupRoot;
use nfluid_sandbox::{EmptyNetNs, KernelIdRange, Zygote};
use nfluid_switch::Switch;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::watch;
use uplinks::RunningUplink;

/// Events that are kept.
const EVENTS: usize = 4096;

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
}

/// The platform on this host.
pub struct Host {
    settings: Settings,
    switch: Arc<Switch>,
    maker: Arc<Maker>,
    /// Instances of the plan in progress that are made already, or could not be.
    prepared: BTreeMap<String, anyhow::Result<Making>>,
    /// Instances that the plan in progress has ended, and what is left of them.
    ended: Vec<Making>,
    /// Of the maker, as uplinks have ports as well.
    port_ids: Ids,
    pool_ids: Ids,
    switch_ids: Ids,
    /// The cgroup in which the daemon was started.
    origin: Option<PathBuf>,
    switches: BTreeMap<String, (u32, SwitchModel)>,
    instances: BTreeMap<String, Running>,
    uplinks: BTreeMap<String, RunningUplink>,
    /// Port and pool of uplinks that an earlier daemon has left and that are to be made again.
    left_uplinks: BTreeMap<String, (u32, u32)>,
    /// Numbers of switches of an earlier daemon that are to be made again.
    left_switches: BTreeMap<String, u32>,
    wires: BTreeMap<PortRef, Destination>,
    /// The ports whose wires lead to a port, and to no other.
    senders: BTreeMap<PortRef, BTreeSet<PortRef>>,
    /// Where the wires of the plan in progress will lead: an instance is given the bells of its
    /// future peers when it starts.
    planned: BTreeMap<PortRef, Destination>,
    listeners: capture::Listeners,
    events: EventLog,
    newest_event: watch::Sender<u64>,
    started: Instant,
}

/// The host, shared by the parts of the daemon.
pub type Shared = Arc<Mutex<Host>>;

/// Locks the host. A thread that panicked while it held the lock has left tables that are whole:
/// they change in single steps.
pub fn lock(host: &Shared) -> MutexGuard<'_, Host> {
    host.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Milliseconds since 1970.
fn now_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.as_millis() as u64)
}

impl Host {
    /// Loads the switch and takes the platform's place on the host.
    ///
    /// # Errors
    /// Says what is missing on the host.
    pub fn new(settings: Settings) -> anyhow::Result<Self> {
        settings.paths.create()?;
        let cgroups = CgroupRoot::new(&settings.name).context("making the platform's cgroup")?;
        let (home, origin) = enter_cgroup(&cgroups)?;
        let switch = Arc::new(Switch::load(&nfluid_switch::Options {
            cgroup: home,
            pin: Some(settings.paths.pin().to_owned()),
            form: None,
        })?);
        let events = EventLog::new(EVENTS, now_ms());
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
            zygote: Zygote::start().context("starting the zygote")?,
            programs: launch::Programs::new(&settings.nf_program)?,
            logs: logs::LogCollector::start()?,
            numbers: numbers.clone(),
            kernel_ids,
        };
        Ok(Host {
            listeners: capture::Listeners::default(),
            switch,
            maker: Arc::new(maker),
            prepared: BTreeMap::new(),
            ended: Vec::new(),
            port_ids: numbers.ports,
            pool_ids: numbers.pools,
            switch_ids: Ids::new(1, nfluid_switch::abi::SWITCHES_MAX),
            origin,
            switches: BTreeMap::new(),
            instances: BTreeMap::new(),
            uplinks: BTreeMap::new(),
            left_uplinks: BTreeMap::new(),
            left_switches: BTreeMap::new(),
            wires: BTreeMap::new(),
            senders: BTreeMap::new(),
            planned: BTreeMap::new(),
            newest_event: watch::channel(events.newest()).0,
            events,
            started: Instant::now(),
            settings,
        })
    }

    /// The data plane's forms, in words.
    pub fn data_plane(&self) -> Vec<String> {
        vec![format!("switch loops by {}", self.switch.form())]
    }

    /// Records an event and tells those who wait for one.
    pub fn event(
        &mut self,
        kind: EventKind,
        subject: Option<(Kind, &str)>,
        message: impl Into<String>,
    ) {
        let message = message.into();
        tracing::info!(event = %kind, subject = ?subject.map(|(_, name)| name), "{message}");
        let newest = self.events.record(now_ms(), kind, subject, message);
        self.newest_event.send_replace(newest);
    }

    /// The events.
    pub fn events(&self) -> &EventLog {
        &self.events
    }

    /// Changes when an event happens.
    pub fn newest_event(&self) -> watch::Receiver<u64> {
        self.newest_event.subscribe()
    }

    /// The platform-wide number of a port: of its first queue, to which frames for it are sent.
    fn port_id(&self, port: &PortRef) -> Option<u32> {
        self.queue_ids(port).map(|ids| ids.start)
    }

    /// The platform-wide numbers of a port's queues.
    fn queue_ids(&self, port: &PortRef) -> Option<Range<u32>> {
        match port {
            PortRef::Uplink(name) => {
                let id = self.uplinks.get(name)?.port_id();
                Some(id..id + 1)
            }
            PortRef::Instance { instance, port } => {
                let running = self.instances.get(instance)?;
                let parts = running.memory.ports.iter();
                parts
                    .map(|part| &part.spec)
                    .find(|spec| spec.name == *port)
                    .map(|spec| spec.id..spec.id + u32::from(spec.queue.1))
            }
        }
    }

    /// Removes what an orderly end of the daemon removes: programs and settings on interfaces.
    /// Instances go on.
    pub fn close(&mut self) {
        for (name, uplink) in std::mem::take(&mut self.uplinks) {
            if let Err(error) = self.close_uplink(&name, uplink) {
                tracing::warn!(uplink = name, %error, "closing the uplink");
            }
        }
        self.leave_cgroup();
    }

    /// Goes back to where the daemon came from and removes its own cgroup, which another process may
    /// be in.
    fn leave_cgroup(&self) {
        self.maker.zygote.end();
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
