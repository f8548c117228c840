//! A private platform for tests and benchmarks: its own cgroup, its own switch, instances without a
//! sandbox. Everything ends with the process that made it.

use crate::instance::{InstanceMemory, PortSpec};
use crate::program::{Form, Options, Switch};
use crate::{Destination, SwitchError};
use nfluid_ring::attach::{ATTACH_ENV, Attached, Table};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::pipe::{PipeFlags, pipe_with};
use std::fs;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

/// A private platform.
#[derive(Debug)]
pub struct Scratch {
    /// Its switch.
    pub switch: Switch,
    _home: CgroupHome,
    next_port: u32,
    next_pool: u32,
}

/// An instance of it.
#[derive(Debug)]
pub struct ScratchInstance {
    /// Maps and sockets.
    pub memory: InstanceMemory,
    bell_read: OwnedFd,
    bell_write: OwnedFd,
    /// Per port: the bell of the link's peer.
    peer_bells: Vec<Option<OwnedFd>>,
}

/// The cgroup in which the process makes its port sockets; left and removed on drop.
#[derive(Debug)]
struct CgroupHome {
    own: PathBuf,
    before: PathBuf,
}

/// Where cgroup v2 is mounted: alone, or beside v1 on a hybrid host.
pub fn cgroup2_root() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let line = mounts
        .lines()
        .find(|line| line.split(' ').nth(2) == Some("cgroup2"))?;
    line.split(' ').nth(1).map(PathBuf::from)
}

impl CgroupHome {
    fn enter(label: &str) -> Result<Self, SwitchError> {
        let root = cgroup2_root().ok_or_else(|| {
            SwitchError::Limit("no cgroup v2 is mounted; mount one at /sys/fs/cgroup".to_owned())
        })?;
        let listing = fs::read_to_string("/proc/self/cgroup")
            .map_err(SwitchError::system("reading own cgroup"))?;
        let before = listing
            .lines()
            .find_map(|line| line.strip_prefix("0::"))
            .unwrap_or("/");
        let before = root.join(before.trim_start_matches('/'));
        let own = root.join(format!("nfluid-test-{label}-{}", std::process::id()));
        fs::create_dir_all(&own)
            .map_err(SwitchError::system(format!("creating {}", own.display())))?;
        let home = CgroupHome { own, before };
        move_self(&home.own)?;
        Ok(home)
    }
}

fn move_self(cgroup: &Path) -> Result<(), SwitchError> {
    fs::write(cgroup.join("cgroup.procs"), std::process::id().to_string()).map_err(
        SwitchError::system(format!("entering cgroup {}", cgroup.display())),
    )
}

impl Drop for CgroupHome {
    fn drop(&mut self) {
        let _ = move_self(&self.before);
        let _ = fs::remove_dir(&self.own);
    }
}

impl Scratch {
    /// Makes a platform. Needs root.
    ///
    /// # Errors
    /// When the cgroup cannot be made or the switch not be loaded.
    pub fn new(label: &str) -> Result<Self, SwitchError> {
        Self::with_form(label, None)
    }

    /// The same with a given loop form of the switch.
    ///
    /// # Errors
    /// As for [`Scratch::new`].
    pub fn with_form(label: &str, form: Option<Form>) -> Result<Self, SwitchError> {
        let home = CgroupHome::enter(label)?;
        let switch = Switch::load(&Options {
            cgroup: home.own.clone(),
            pin: None,
            form,
        })?;
        Ok(Scratch {
            switch,
            _home: home,
            next_port: 1,
            next_pool: 1,
        })
    }

    /// Fresh ids for `count` ports, one after the other.
    pub fn port_ids(&mut self, count: u32) -> u32 {
        let first = self.next_port;
        self.next_port += count;
        first
    }

    /// Makes an instance with ports `p0`, `p1`, ... of `ring` slots, each with `tx_slots` TX slots.
    /// Port MAC addresses are 02:00:00:00:HH:LL from the port's id.
    ///
    /// # Errors
    /// As for [`InstanceMemory::create`].
    pub fn instance(
        &mut self,
        ports: u32,
        ring: u32,
        tx_slots: u32,
    ) -> Result<ScratchInstance, SwitchError> {
        let first = self.port_ids(ports);
        let specs: Vec<PortSpec> = (0..ports)
            .map(|i| {
                let id = first + i;
                let [high, low] = (id as u16).to_be_bytes();
                let mut spec = PortSpec::new(id, &format!("p{i}"), [2, 0, 0, 0, high, low], ring);
                spec.tx_slots = tx_slots;
                spec
            })
            .collect();
        self.instance_with(&specs)
    }

    /// Makes an instance with the given ports.
    ///
    /// # Errors
    /// As for [`InstanceMemory::create`].
    pub fn instance_with(&mut self, specs: &[PortSpec]) -> Result<ScratchInstance, SwitchError> {
        let pool = self.next_pool;
        self.next_pool += 1;
        let memory = InstanceMemory::create(&self.switch, pool, specs)?;
        let (bell_read, bell_write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)
            .map_err(SwitchError::system("making a doorbell"))?;
        let peer_bells = specs.iter().map(|_| None).collect();
        Ok(ScratchInstance {
            memory,
            bell_read,
            bell_write,
            peer_bells,
        })
    }

    /// Links two ports, both ways, doorbells included.
    ///
    /// # Errors
    /// When a doorbell cannot be duplicated.
    pub fn link(
        &self,
        a: (&mut ScratchInstance, usize),
        b: (&mut ScratchInstance, usize),
    ) -> Result<(), SwitchError> {
        let (id_a, id_b) = (a.0.id(a.1), b.0.id(b.1));
        a.0.peer_bells[a.1] = Some(b.0.bell()?);
        b.0.peer_bells[b.1] = Some(a.0.bell()?);
        self.switch.connect(id_a, Destination::Link(id_b))?;
        self.switch.connect(id_b, Destination::Link(id_a))
    }
}

impl ScratchInstance {
    /// Platform-wide number of port `index`.
    pub fn id(&self, index: usize) -> u32 {
        self.memory.ports[index].spec.id
    }

    /// MAC address of port `index`.
    pub fn mac(&self, index: usize) -> [u8; 6] {
        self.memory.ports[index].spec.mac
    }

    fn bell(&self) -> Result<OwnedFd, SwitchError> {
        self.bell_write
            .try_clone()
            .map_err(SwitchError::system("duplicating a doorbell"))
    }

    fn inherited(&self) -> Vec<BorrowedFd<'_>> {
        let mut fds = self.memory.fds();
        fds.push(self.bell_read.as_fd());
        fds.extend(self.peer_bells.iter().flatten().map(AsFd::as_fd));
        fds
    }

    fn table(&self) -> Table {
        let numbers: Vec<RawFd> = self.memory.fds().iter().map(AsRawFd::as_raw_fd).collect();
        let peers: Vec<RawFd> = self
            .peer_bells
            .iter()
            .map(|bell| bell.as_ref().map_or(-1, AsRawFd::as_raw_fd))
            .collect();
        self.memory
            .table(&numbers, self.bell_read.as_raw_fd(), &peers)
    }

    /// Attaches to the instance's ports within this process.
    ///
    /// # Errors
    /// When a descriptor cannot be duplicated or a mapping fails.
    pub fn attach(&self) -> Result<Attached, SwitchError> {
        let duplicate = |fd: BorrowedFd<'_>| {
            fd.try_clone_to_owned()
                .map_err(SwitchError::system("duplicating a descriptor"))
        };
        // The table takes ownership of what it names: it gets its own descriptors.
        let keep: Vec<OwnedFd> = self
            .memory
            .fds()
            .into_iter()
            .map(duplicate)
            .collect::<Result<_, _>>()?;
        let numbers: Vec<RawFd> = keep
            .into_iter()
            .map(std::os::fd::IntoRawFd::into_raw_fd)
            .collect();
        let into_raw = |fd: BorrowedFd<'_>| duplicate(fd).map(std::os::fd::IntoRawFd::into_raw_fd);
        let bell = into_raw(self.bell_read.as_fd())?;
        let mut peers = Vec::new();
        for peer in &self.peer_bells {
            peers.push(peer.as_ref().map_or(Ok(-1), |fd| into_raw(fd.as_fd()))?);
        }
        Attached::from_table(&self.memory.table(&numbers, bell, &peers))
            .map_err(|error| SwitchError::Limit(error.to_string()))
    }

    /// Starts `command` as the program of this instance: it inherits the descriptors and finds its
    /// ports by `Attached::from_env`. No sandbox.
    ///
    /// # Errors
    /// When the program cannot be started.
    pub fn spawn(&self, command: &mut Command) -> Result<Child, SwitchError> {
        let system = SwitchError::system::<std::io::Error>;
        let table = memfd_create("nfluid-ports", MemfdFlags::CLOEXEC)
            .map_err(SwitchError::system("making the port table"))?;
        let mut file = fs::File::from(table);
        file.write_all(&self.table().to_bytes())
            .map_err(system("writing the port table"))?;
        let mut fds = self.inherited();
        fds.push(file.as_fd());
        let set = |flags: FdFlags| -> Result<(), SwitchError> {
            fds.iter()
                .try_for_each(|fd| fcntl_setfd(fd, flags))
                .map_err(SwitchError::system("passing descriptors on"))
        };
        set(FdFlags::empty())?;
        let child = command
            .env(ATTACH_ENV, file.as_raw_fd().to_string())
            .spawn();
        set(FdFlags::CLOEXEC)?;
        child.map_err(system(&format!(
            "starting {}",
            command.get_program().to_string_lossy()
        )))
    }
}
