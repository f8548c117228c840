//! The parent's side of giving a shell its program.

use super::message::{Counts, LAUNCH_BYTES_MAX, Report, push_instruction};
use super::preparing::{Held, Shell};
use super::{Heard, SpawnError};
use crate::capability::Capabilities;
use crate::elf::Linkage;
use crate::error::{Errno, OsError};
use crate::instance::Instance;
use crate::landlock_rules::{self, LandlockSupport, landlock_support};
use crate::launch::Launch;
use crate::root::Root;
use rustix::fs::{Mode, OFlags};
use rustix::io::IoSlice;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use rustix::process::{Resource, Rlimit, prlimit};
use std::collections::BTreeSet;
use std::fmt;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A started instance, and what holds it.
#[derive(Debug)]
pub struct Spawned {
    /// The instance.
    pub instance: Instance,
    /// The barriers around it.
    pub barriers: Barriers,
}

/// Which barriers are in force around an instance. Namespaces and no_new_privs always are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Barriers {
    /// A network namespace of its own, or one shared with other instances.
    pub own_network: bool,
    /// An IPC namespace of its own, or a sealed one.
    pub own_ipc: bool,
    /// A mount namespace of its own, or a sealed one.
    pub own_mounts: bool,
    /// The instructions of its system call filter.
    pub filter_instructions: Option<usize>,
    /// The Landlock ABI; nothing where the kernel has none.
    pub landlock_abi: Option<u32>,
    /// The capabilities that it has in its own namespaces.
    pub capabilities: Capabilities,
    /// True if the host's file system tree is gone from the instance's mount namespace; else the tree is covered
    /// (initramfs hosts).
    pub pivoted_root: bool,
}

impl fmt::Display for Barriers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = |own, shared| if own { "own" } else { shared };
        let net = kind(self.own_network, "shared");
        let mounts = kind(self.own_mounts, "sealed");
        let ipc = kind(self.own_ipc, "sealed");
        let root = if self.pivoted_root {
            "pivoted"
        } else {
            "covered"
        };
        let capabilities = self.capabilities;
        write!(
            f,
            "user, pid, uts and cgroup namespace; {net} network namespace; {mounts} mount namespace; {ipc} ipc namespace; \
             {root} root; {capabilities}"
        )?;
        match self.filter_instructions {
            Some(count) => write!(f, "; seccomp ({count} instructions)")?,
            None => f.write_str("; NO seccomp")?,
        }
        match self.landlock_abi {
            Some(abi) => write!(f, "; Landlock ABI {abi}"),
            None => f.write_str("; no Landlock"),
        }
    }
}

impl Shell {
    /// Gives the shell its program. On success, the program runs.
    ///
    /// # Errors
    /// [`SpawnError`]; the shell is gone then.
    pub fn launch(mut self, launch: &Launch<'_>) -> Result<Spawned, SpawnError> {
        self.check(launch)?;
        self.apply_from_outside(launch)?;
        let ruleset = self.ruleset(launch)?;
        let barriers = Barriers {
            own_network: self.own.net,
            own_ipc: self.own.ipc,
            own_mounts: self.own.mounts,
            filter_instructions: launch.filter.map(|filter| filter.instruction_count()),
            landlock_abi: match (&ruleset, landlock_support()) {
                (Some(_), LandlockSupport::Abi(abi)) => Some(abi),
                _ => None,
            },
            capabilities: self.capabilities,
            pivoted_root: !self.moved_root,
        };
        self.send(launch, ruleset.as_ref())?;
        self.await_execution()?;
        let name = self.name.clone();
        let Some(Held { pidfd, .. }) = self.held.take() else {
            return Err(self.unexpected(Report::Executing));
        };
        let instance = Instance::of_child(self.pid, pidfd)
            .map_err(|source| SpawnError::Instance { name, source })?;
        Ok(Spawned { instance, barriers })
    }

    fn bad(&self, what: impl Into<String>) -> SpawnError {
        SpawnError::BadLaunch {
            name: self.name.clone(),
            what: what.into(),
        }
    }

    fn check(&self, launch: &Launch<'_>) -> Result<(), SpawnError> {
        if let (Root::Empty, Linkage::Dynamic { interpreter }) =
            (&self.root, launch.program.linkage())
        {
            return Err(SpawnError::NoLoader {
                name: self.name.clone(),
                program: launch.program.origin().to_owned(),
                interpreter: interpreter.clone(),
            });
        }
        if launch.argv.is_empty() {
            return Err(self.bad("argv is empty; its first entry is the program's own name"));
        }
        let strings = launch
            .argv
            .iter()
            .chain(&launch.env)
            .chain([&launch.directory]);
        let bytes: usize = strings.map(|string| string.count_bytes() + 1).sum();
        if launch.argv.len() + launch.env.len() > Launch::STRINGS_MAX
            || bytes > Launch::STRING_BYTES_MAX
        {
            return Err(self.bad(format!(
                "{} arguments and environment entries of {bytes} bytes are more than {} of {}",
                launch.argv.len() + launch.env.len(),
                Launch::STRINGS_MAX,
                Launch::STRING_BYTES_MAX
            )));
        }
        // Standard streams that are not given are added, which takes up to three more.
        if launch.fds.len() > Launch::FDS_MAX - 3 {
            let max = Launch::FDS_MAX - 3;
            return Err(self.bad(format!(
                "{} descriptors are more than {max}",
                launch.fds.len()
            )));
        }
        let mut seen = BTreeSet::new();
        for inherited in &launch.fds {
            if !(0..=Launch::FD_NUMBER_MAX).contains(&inherited.number) {
                return Err(self.bad(format!(
                    "descriptor number {} is outside 0..={}",
                    inherited.number,
                    Launch::FD_NUMBER_MAX
                )));
            }
            if !seen.insert(inherited.number) {
                return Err(self.bad(format!("descriptor number {} twice", inherited.number)));
            }
        }
        let highest = seen.last().copied().unwrap_or(2).max(2).unsigned_abs();
        if launch.limits.descriptors <= u64::from(highest) {
            return Err(self.bad(format!(
                "a limit of {} descriptors is below the inherited number {highest}",
                launch.limits.descriptors
            )));
        }
        Ok(())
    }

    /// Applies the settings that the privileged parent can apply better: it can raise limits above its own.
    fn apply_from_outside(&self, launch: &Launch<'_>) -> Result<(), SpawnError> {
        // The set-up needs some room above the highest number, and lowers this limit itself at the end.
        let roomy = (Launch::FD_NUMBER_MAX.unsigned_abs() as u64) + 2 * Launch::FDS_MAX as u64;
        let limits = [
            (Resource::Nofile, launch.limits.descriptors.max(roomy)),
            (Resource::Nproc, launch.limits.tasks),
            (Resource::Memlock, launch.limits.locked_bytes),
            (Resource::Stack, launch.limits.stack_bytes),
        ];
        for (resource, value) in limits {
            self.limit(resource, value)?;
        }
        Ok(())
    }

    /// Without CAP_SYS_RESOURCE no process can raise a limit: the instance then has the daemon's own limit.
    fn limit(&self, resource: Resource, value: u64) -> Result<(), SpawnError> {
        let set = |value| {
            let limit = Rlimit {
                current: Some(value),
                maximum: Some(value),
            };
            prlimit(Some(self.pid), resource, limit)
        };
        let own = || rustix::process::getrlimit(resource).maximum;
        let result = match set(value) {
            Err(Errno::PERM) => match own() {
                Some(own) if own < value => set(own),
                _ => Err(Errno::PERM),
            },
            result => result,
        };
        result.map(|_| ()).map_err(|errno| {
            self.os(OsError::new(
                "set limit",
                format!("{resource:?} to {value}"),
                errno,
            ))
        })
    }

    fn ruleset(&self, launch: &Launch<'_>) -> Result<Option<OwnedFd>, SpawnError> {
        if !launch.landlock {
            return Ok(None);
        }
        let processes = match self.root.shown() {
            Some(shown) if shown.processes => Some(self.open_processes()?),
            _ => None,
        };
        let places = landlock_rules::Places {
            shown: &self.libraries,
            processes,
            streams: launch
                .fds
                .iter()
                .filter(|inherited| inherited.number < 3)
                .map(|one| one.fd)
                .collect(),
        };
        let rules = landlock_rules::ruleset(launch.program, &places, launch.network);
        rules.map_err(|source| SpawnError::Landlock {
            name: self.name.clone(),
            source,
        })
    }

    /// Opens the `/proc` that the set-up has mounted.
    fn open_processes(&self) -> Result<OwnedFd, SpawnError> {
        let path = format!("/proc/{}/root/proc", self.pid());
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::open(&path, flags, Mode::empty())
            .map_err(|errno| self.os(OsError::new("open", path, errno)))
    }

    fn send(&self, launch: &Launch<'_>, ruleset: Option<&OwnedFd>) -> Result<(), SpawnError> {
        let null = open_null().map_err(|source| self.os(source))?;
        let mut numbers: Vec<u32> = Vec::with_capacity(launch.fds.len() + 3);
        let mut descriptors: Vec<BorrowedFd<'_>> = vec![launch.program.as_fd()];
        descriptors.extend(ruleset.map(AsFd::as_fd));
        for stream in 0..3 {
            if launch
                .fds
                .iter()
                .all(|inherited| inherited.number != stream)
            {
                numbers.push(stream.unsigned_abs());
                descriptors.push(null.as_fd());
            }
        }
        for inherited in &launch.fds {
            numbers.push(inherited.number.unsigned_abs());
            descriptors.push(inherited.fd);
        }
        let message = encode(launch, &numbers, ruleset.is_some());
        if message.len() > LAUNCH_BYTES_MAX {
            return Err(self.bad("the launch message is too long"));
        }
        let mut space =
            [MaybeUninit::<u8>::uninit(); rustix::cmsg_space!(ScmRights(Launch::FDS_MAX + 2))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)) {
            return Err(self.bad("too many descriptors"));
        }
        let parts = [IoSlice::new(&message)];
        let control = &self.held()?.control;
        match rustix::net::sendmsg(control, &parts, &mut ancillary, SendFlags::NOSIGNAL) {
            Ok(_) => Ok(()),
            // The process is dead already; listening to it reports the cause.
            Err(Errno::PIPE | Errno::CONNRESET) => Ok(()),
            Err(errno) => {
                let error = OsError::new("hand the program to", &self.name, errno);
                Err(self.os(error
                    .remedy("see sysctl net.core.wmem_max and the limit of descriptors in flight")))
            }
        }
    }

    /// The socket closes at the exec. A set-up that dies before the exec has not announced the exec, which
    /// distinguishes the two.
    fn await_execution(&mut self) -> Result<(), SpawnError> {
        let mut announced = false;
        loop {
            match self.listen()? {
                Heard::Report(Report::Executing) if !announced => announced = true,
                Heard::Report(other) => return Err(self.unexpected(other)),
                Heard::Closed if announced => return Ok(()),
                Heard::Closed => return Err(self.died()),
                Heard::Nothing => return Err(self.stuck()),
            }
        }
    }
}

fn open_null() -> Result<OwnedFd, OsError> {
    let path = "/dev/null";
    rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .map_err(|errno| OsError::new("open", path, errno).remedy("mount /dev"))
}

fn encode(launch: &Launch<'_>, numbers: &[u32], has_ruleset: bool) -> Vec<u8> {
    let count = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
    let filter = launch.filter.map(|filter| filter.instructions());
    let counts = Counts {
        descriptors: count(numbers.len()),
        instructions: count(filter.as_ref().map_or(0, ExactSizeIterator::len)),
        argv: count(launch.argv.len()),
        env: count(launch.env.len()),
        has_ruleset: has_ruleset.into(),
        has_filter: filter.is_some().into(),
        ends_with_parent: launch.ends_with_parent.into(),
    };
    let mut message = Vec::with_capacity(4096);
    message.extend_from_slice(&launch.limits.descriptors.to_ne_bytes());
    for value in counts.encode().iter().chain(numbers) {
        message.extend_from_slice(&value.to_ne_bytes());
    }
    for instruction in filter.into_iter().flatten() {
        push_instruction(&mut message, instruction);
    }
    let strings = launch.argv.iter().chain(&launch.env);
    for string in strings.chain([&launch.directory]) {
        message.extend_from_slice(string.as_bytes_with_nul());
    }
    message
}
