//! A private platform for tests and benchmarks: its own cgroup, its own switch, instances without a sandbox. Everything
//! ends with the process that made the platform.

use nfluid_ring::attach::Attached;
use nfluid_ring::table::{ATTACH_ENV, Table};
use nfluid_switch::handover::Handover;
use nfluid_switch::instance::{Doorbells, InstanceMemory, PortSpec, Wake};
use nfluid_switch::program::{Form, Options, Switch};
use nfluid_switch::{Destination, Group, SwitchError};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::pipe::{PipeFlags, pipe_with};
use std::fs;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;

/// A private platform.
#[derive(Debug)]
pub struct Scratch {
    /// The platform's switch.
    pub switch: Switch,
    _home: CgroupHome,
    next_port: u32,
    next_pool: u32,
    next_group: u32,
}

/// An instance of a [`Scratch`] platform.
#[derive(Debug)]
pub struct ScratchInstance {
    /// The instance's port memory.
    pub memory: InstanceMemory,
    /// The maps and sockets that the program inherits.
    pub handover: Handover,
    doorbell_read: OwnedFd,
    doorbell_write: OwnedFd,
    io_doorbell: OwnedFd,
    /// Only the switch rings the instance, by the kernel's doorbell: its program gets no pipe.
    rung_by_switch: bool,
    /// An I/O thread may serve the program.
    may_be_served: bool,
    /// Per port: the doorbell of the link's peer.
    peer_doorbells: Vec<Option<OwnedFd>>,
}

/// Parameters of an instance of [`Scratch::forwarders`].
#[derive(Clone, Copy, Debug)]
pub struct Forwarder<'a> {
    /// Slots of the port.
    pub ring: u32,
    /// The condition for waking the sleeping program.
    pub wake: Wake,
    /// True if an I/O thread may serve the program.
    pub may_be_served: bool,
    /// The trust group of the program.
    pub group: Option<&'a Arc<Group>>,
}

/// Result of [`ScratchInstance::io_parts`].
#[derive(Debug)]
pub struct IoParts<'a> {
    /// The doorbell of the I/O thread.
    pub io_doorbell: BorrowedFd<'a>,
    /// The doorbell that the I/O thread rings when the instance waits for free slots.
    pub own_doorbell: BorrowedFd<'a>,
    /// Per port: number, rings, doorbell of the link's peer.
    pub ports: Vec<(u32, BorrowedFd<'a>, Option<BorrowedFd<'a>>)>,
}

/// The cgroup in which the process creates its port sockets; dropping it moves the process out and removes the cgroup.
#[derive(Debug)]
struct CgroupHome {
    own: PathBuf,
    before: PathBuf,
}

/// Returns the mount point of cgroup v2, which a hybrid host has beside v1.
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
        let listing =
            fs::read_to_string("/proc/self/cgroup").map_err(system("reading own cgroup"))?;
        let before = listing
            .lines()
            .find_map(|line| line.strip_prefix("0::"))
            .unwrap_or("/");
        let before = root.join(before.trim_start_matches('/'));
        let own = root.join(format!("nfluid-test-{label}-{}", std::process::id()));
        fs::create_dir_all(&own).map_err(system(format!("creating {}", own.display())))?;
        let home = CgroupHome { own, before };
        move_self(&home.own)?;
        Ok(home)
    }
}

fn move_self(cgroup: &Path) -> Result<(), SwitchError> {
    fs::write(cgroup.join("cgroup.procs"), std::process::id().to_string())
        .map_err(system(format!("entering cgroup {}", cgroup.display())))
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
    /// When the cgroup cannot be made or the switch cannot be loaded.
    pub fn new(label: &str) -> Result<Self, SwitchError> {
        Self::with_form(label, None)
    }

    /// As [`Scratch::new`], with a given loop form of the switch.
    ///
    /// # Errors
    /// As for [`Scratch::new`].
    pub fn with_form(label: &str, form: Option<Form>) -> Result<Self, SwitchError> {
        let home = CgroupHome::enter(label)?;
        let switch = Switch::load(&Options {
            cgroup: home.own.clone(),
            pin: None,
            form,
            one_by_one: false,
        })?;
        Ok(Scratch {
            switch,
            _home: home,
            next_port: 1,
            next_pool: 1,
            next_group: 1,
        })
    }

    /// Returns the first of `count` new consecutive port ids.
    pub fn port_ids(&mut self, count: u32) -> u32 {
        let first = self.next_port;
        self.next_port += count;
        first
    }

    /// Returns a new pool id.
    pub fn pool_id(&mut self) -> u32 {
        let pool = self.next_pool;
        self.next_pool += 1;
        pool
    }

    /// Makes an instance with ports `p0`, `p1`, ... of `ring` slots, each with `tx_slots` TX slots.
    /// Port MAC addresses are those of [`mac_of`].
    ///
    /// # Errors
    /// As for [`InstanceMemory::create`].
    pub fn instance(
        &mut self,
        ports: u32,
        ring: u32,
        tx_slots: u32,
    ) -> Result<ScratchInstance, SwitchError> {
        let specs = self.specs(ports, ring, tx_slots);
        self.instance_with(&specs)
    }

    /// Makes an instance with the given ports.
    ///
    /// # Errors
    /// As for [`InstanceMemory::create`].
    pub fn instance_with(&mut self, specs: &[PortSpec]) -> Result<ScratchInstance, SwitchError> {
        let pool = self.pool_id();
        ScratchInstance::of(InstanceMemory::create(&self.switch, pool, specs)?)
    }

    /// Makes a trust group of `slots` slots.
    ///
    /// # Errors
    /// As for [`Group::create`].
    pub fn group(&mut self, slots: u32) -> Result<Arc<Group>, SwitchError> {
        let id = self.next_group;
        self.next_group += 1;
        Group::create(&self.switch, id, slots).map(Arc::new)
    }

    /// As [`Scratch::instance`], a member of `group`.
    ///
    /// # Errors
    /// As for [`InstanceMemory::allocate_in`].
    pub fn member(
        &mut self,
        group: &Arc<Group>,
        ports: u32,
        ring: u32,
        tx_slots: u32,
    ) -> Result<ScratchInstance, SwitchError> {
        let specs = self.specs(ports, ring, tx_slots);
        let (memory, handover) = InstanceMemory::allocate_in(group, self.pool_id(), &specs)?;
        self.switch.enter(&[(&memory, &handover)])?;
        ScratchInstance::of((memory, handover))
    }

    /// Makes `count` instances with ports as those of [`Scratch::instance`], all at once.
    ///
    /// # Errors
    /// As for [`InstanceMemory::create`].
    pub fn instances(
        &mut self,
        count: usize,
        ports: u32,
        ring: u32,
        tx_slots: u32,
    ) -> Result<Vec<ScratchInstance>, SwitchError> {
        let mut made = Vec::with_capacity(count);
        for _ in 0..count {
            let specs = self.specs(ports, ring, tx_slots);
            let allocated = InstanceMemory::allocate(self.pool_id(), &specs)?;
            made.push(ScratchInstance::of(allocated)?);
        }
        self.enter(made)
    }

    /// Enters instances into the switch one by one; the kernel makes each wait for a grace period.
    fn enter(&self, made: Vec<ScratchInstance>) -> Result<Vec<ScratchInstance>, SwitchError> {
        let all: Vec<_> = made
            .iter()
            .map(|one| (&one.memory, &one.handover))
            .collect();
        self.switch.enter(&all)?;
        Ok(made)
    }

    /// Makes many instances at once. Each has one port, sends only what it receives, and is rung by the switch alone:
    /// entering instances one by one would wait for one grace period of the kernel each.
    ///
    /// # Errors
    /// As for [`InstanceMemory::create`], and for [`InstanceMemory::allocate_in`] of members of a group.
    pub fn forwarders(
        &mut self,
        count: u32,
        kind: Forwarder<'_>,
    ) -> Result<Vec<ScratchInstance>, SwitchError> {
        let first = self.port_ids(count);
        let mut made = Vec::with_capacity(count as usize);
        for id in first..first + count {
            let mut spec = PortSpec::new(id, "p0", mac_of(id), kind.ring);
            spec.tx_slots = 0;
            spec.wake = kind.wake;
            let pool = self.pool_id();
            let allocated = match kind.group {
                Some(group) => InstanceMemory::allocate_in(group, pool, &[spec])?,
                None => InstanceMemory::allocate(pool, &[spec])?,
            };
            made.push(ScratchInstance {
                rung_by_switch: true,
                may_be_served: kind.may_be_served,
                ..ScratchInstance::of(allocated)?
            });
        }
        self.enter(made)
    }

    fn specs(&mut self, ports: u32, ring: u32, tx_slots: u32) -> Vec<PortSpec> {
        let first = self.port_ids(ports);
        let spec = |i| {
            let id = first + i;
            let mut spec = PortSpec::new(id, &format!("p{i}"), mac_of(id), ring);
            spec.tx_slots = tx_slots;
            spec
        };
        (0..ports).map(spec).collect()
    }

    /// Sends the packets of `from` to `to`, and rings `to`; not the other way.
    ///
    /// # Errors
    /// When a doorbell cannot be duplicated.
    pub fn lead(
        &self,
        from: (&mut ScratchInstance, usize),
        to: (&ScratchInstance, usize),
    ) -> Result<(), SwitchError> {
        from.0.peer_doorbells[from.1] = Some(to.0.doorbell()?);
        let to = Destination::Link(to.0.id(to.1));
        self.switch.connect(from.0.id(from.1), to)
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
        self.lead((&mut *a.0, a.1), (&*b.0, b.1))?;
        self.lead(b, (a.0, a.1))
    }
}

/// The default MAC address of a port: 02:00:00:00:HH:LL, from the port id.
pub fn mac_of(port: u32) -> [u8; 6] {
    let [high, low] = (port as u16).to_be_bytes();
    [2, 0, 0, 0, high, low]
}

impl ScratchInstance {
    fn of((memory, handover): (InstanceMemory, Handover)) -> Result<Self, SwitchError> {
        let (doorbell_read, doorbell_write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)
            .map_err(system("making a doorbell"))?;
        let peer_doorbells = memory.ports.iter().map(|_| None).collect();
        Ok(ScratchInstance {
            memory,
            handover,
            doorbell_read,
            doorbell_write,
            io_doorbell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
                .map_err(system("making an I/O thread's doorbell"))?,
            rung_by_switch: false,
            may_be_served: true,
            peer_doorbells,
        })
    }

    /// Platform-wide number of port `index`.
    pub fn id(&self, index: usize) -> u32 {
        self.memory.ports[index].spec.id
    }

    /// MAC address of port `index`.
    pub fn mac(&self, index: usize) -> [u8; 6] {
        self.memory.ports[index].spec.mac
    }

    /// Returns what an I/O thread needs to serve the instance's ports: its own doorbell, the doorbell of the instance,
    /// and per port the number, the rings and the doorbell of the link's peer. Borrowed: the other process inherits
    /// them.
    pub fn io_parts(&self) -> IoParts<'_> {
        let ports = self.memory.ports.iter().zip(&self.handover.maps.rings);
        let ports = ports.zip(&self.peer_doorbells);
        IoParts {
            io_doorbell: self.io_doorbell.as_fd(),
            own_doorbell: self.doorbell_write.as_fd(),
            ports: ports
                .map(|((part, ring), peer)| {
                    (part.spec.id, ring.as_fd(), peer.as_ref().map(AsFd::as_fd))
                })
                .collect(),
        }
    }

    fn doorbell(&self) -> Result<OwnedFd, SwitchError> {
        self.doorbell_write
            .try_clone()
            .map_err(system("duplicating a doorbell"))
    }

    fn inherited(&self) -> Vec<BorrowedFd<'_>> {
        let mut fds = self.handover.fds();
        if !self.rung_by_switch {
            fds.push(self.doorbell_read.as_fd());
        }
        if self.may_be_served {
            fds.push(self.io_doorbell.as_fd());
        }
        fds.extend(self.peer_doorbells.iter().flatten().map(AsFd::as_fd));
        fds
    }

    fn table(&self) -> Table {
        let numbers: Vec<RawFd> = self.handover.fds().iter().map(AsRawFd::as_raw_fd).collect();
        let peers: Vec<RawFd> = self
            .peer_doorbells
            .iter()
            .map(|doorbell| doorbell.as_ref().map_or(-1, AsRawFd::as_raw_fd))
            .collect();
        let given = |fd: &OwnedFd, is_given: bool| if is_given { fd.as_raw_fd() } else { -1 };
        let doorbells = Doorbells {
            own: given(&self.doorbell_read, !self.rung_by_switch),
            io: given(&self.io_doorbell, self.may_be_served),
            peers: &peers,
        };
        self.memory.table(&numbers, &doorbells)
    }

    /// Attaches to the instance's ports within this process.
    ///
    /// # Errors
    /// When a descriptor cannot be duplicated or a mapping fails.
    pub fn attach(&self) -> Result<Attached, SwitchError> {
        let duplicate = |fd: BorrowedFd<'_>| {
            fd.try_clone_to_owned()
                .map_err(system("duplicating a descriptor"))
        };
        // The table takes ownership of the descriptors in it: it gets duplicates.
        let keep: Vec<OwnedFd> = self
            .handover
            .fds()
            .into_iter()
            .map(duplicate)
            .collect::<Result<_, _>>()?;
        let numbers: Vec<RawFd> = keep
            .into_iter()
            .map(std::os::fd::IntoRawFd::into_raw_fd)
            .collect();
        let into_raw = |fd: BorrowedFd<'_>| duplicate(fd).map(std::os::fd::IntoRawFd::into_raw_fd);
        let own = into_raw(self.doorbell_read.as_fd())?;
        let io = into_raw(self.io_doorbell.as_fd())?;
        let mut peers = Vec::new();
        for peer in &self.peer_doorbells {
            peers.push(peer.as_ref().map_or(Ok(-1), |fd| into_raw(fd.as_fd()))?);
        }
        let peers = &peers;
        Attached::from_table(&self.memory.table(&numbers, &Doorbells { own, io, peers }))
            .map_err(|error| SwitchError::Limit(error.to_string()))
    }

    /// Starts `command` as the program of this instance, without a sandbox. The program inherits the descriptors and
    /// finds its ports by `Attached::from_env`.
    ///
    /// # Errors
    /// When the program cannot be started.
    pub fn spawn(&self, command: &mut Command) -> Result<Child, SwitchError> {
        let table = memfd_create("nfluid-ports", MemfdFlags::CLOEXEC)
            .map_err(system("making the port table"))?;
        let mut file = fs::File::from(table);
        file.write_all(&self.table().to_bytes())
            .map_err(system("writing the port table"))?;
        let mut fds = self.inherited();
        fds.push(file.as_fd());
        command.env(ATTACH_ENV, file.as_raw_fd().to_string());
        spawn_with(command, &fds)
    }
}

/// Starts `command`, which inherits `fds` under their present numbers.
///
/// # Errors
/// When the program cannot be started.
pub fn spawn_with(command: &mut Command, fds: &[BorrowedFd<'_>]) -> Result<Child, SwitchError> {
    let set = |flags: FdFlags| -> Result<(), SwitchError> {
        fds.iter()
            .try_for_each(|fd| fcntl_setfd(fd, flags))
            .map_err(system("passing descriptors on"))
    };
    set(FdFlags::empty())?;
    let child = command.spawn();
    set(FdFlags::CLOEXEC)?;
    let program = command.get_program().to_string_lossy();
    child.map_err(system(format!("starting {program}")))
}

fn system<E: Into<io::Error>>(what: impl Into<String>) -> impl FnOnce(E) -> SwitchError {
    let what = what.into();
    move |source| SwitchError::System {
        what,
        source: source.into(),
    }
}
