//! Starting the program of an instance in its sandbox.

use crate::descriptors;
use crate::doorbell;
use crate::limits::give_slice;
use crate::making::shell::{Hosting, Numbers};
use crate::making::{self, Maker};
use crate::terminator::{self, Connecting};
use anyhow::Context;
use nfluid_control::model::Program as ProgramModel;
use nfluid_control::spec::InstanceSpec;
use nfluid_lifecycle::cores::pinned_to;
use nfluid_lifecycle::record::Record;
use nfluid_protocol::daemon::memory_file;
use nfluid_protocol::environment;
use nfluid_ring::assignment::ASSIGNMENT_ENV;
use nfluid_ring::attach::ATTACH_ENV;
use nfluid_ring::layout::SOL_NFLUID;
use nfluid_sandbox::cgroup::Cgroup;
use nfluid_sandbox::seccomp::{Filter, Policy};
use nfluid_sandbox::{
    FileVersion, InheritedFd, Instance, Launch, Limits, NetNs, Program, Root, Shell, ShellSpec,
    Zygote, file_version, spawn,
};
use nfluid_switch::instance::Doorbells;
use nfluid_switch::{Handover, InstanceMemory};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use serde_json::Value;
use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// First descriptor number that an instance inherits, after the standard streams.
const FIRST_FD: RawFd = 3;
/// The level of TCP's socket options, which the filter of connectors allows for one option.
const TCP_OPTIONS: u32 = 6;

/// A program that is open, and its system call filter.
pub type OpenProgram = Arc<(Program, Filter)>;

/// The host of built-in NFs, opened once for each installed version.
pub struct Programs {
    path: PathBuf,
    built_in: Mutex<Arc<(Program, Filter)>>,
    /// The version of the file that was opened.
    copied: Mutex<Option<FileVersion>>,
    terminator: Mutex<Option<(FileVersion, Arc<TerminatorProgram>)>>,
}

/// The program of terminators, which is also the program of their connectors.
pub struct TerminatorProgram {
    program: Arc<(Program, Filter)>,
    /// The filter of connectors, which may open TCP connections.
    connecting: Filter,
}

impl Programs {
    /// Opens the program that hosts built-in NFs.
    ///
    /// # Errors
    /// The program is missing, or cannot be run in an instance.
    pub fn new(nf_program: &Path) -> anyhow::Result<Self> {
        Ok(Programs {
            path: nf_program.to_owned(),
            copied: Mutex::new(file_version(nf_program)),
            built_in: Mutex::new(Arc::new(built_in(nf_program)?)),
            terminator: Mutex::new(None),
        })
    }

    /// Opens a user's program.
    ///
    /// # Errors
    /// The program is missing, or cannot be run in an instance.
    pub fn open(&self, path: &str) -> anyhow::Result<OpenProgram> {
        let program = Program::open(Path::new(path))?.unchangeable()?;
        Ok(Arc::new(with_filter(program)?))
    }

    /// Returns the installed version of the terminators' program, beside the program of built-in NFs.
    ///
    /// # Errors
    /// The program is missing, or cannot be run in an instance.
    fn terminator(&self) -> anyhow::Result<Arc<TerminatorProgram>> {
        let path = self
            .path
            .with_file_name(format!("nfluid-{}", terminator::NAME));
        let found = file_version(&path)
            .with_context(|| format!("{} is not there: install it", path.display()))?;
        let kept = self.terminator.lock();
        let mut kept = kept.unwrap_or_else(PoisonError::into_inner);
        if let Some((copied, program)) = &*kept
            && *copied == found
        {
            return Ok(Arc::clone(program));
        }
        let program = Program::open(&path)?.sealed_copy()?;
        let policy = Policy::new(program.linkage(), TCP_OPTIONS).with_connections();
        let made = Arc::new(TerminatorProgram {
            connecting: policy.compile()?,
            program: Arc::new(with_filter(program)?),
        });
        *kept = Some((found, Arc::clone(&made)));
        Ok(made)
    }

    fn built_in(&self) -> Arc<(Program, Filter)> {
        let program = self.built_in.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&program)
    }

    /// Opens the installed version if it has changed. All later instances run that version.
    ///
    /// # Errors
    /// As for [`Programs::new`]; the former version stays.
    pub fn renew(&self) -> anyhow::Result<()> {
        let found = file_version(&self.path);
        let mut copied = self.copied.lock().unwrap_or_else(PoisonError::into_inner);
        if found.is_some() && *copied == found {
            return Ok(());
        }
        let new = Arc::new(built_in(&self.path)?);
        *self.built_in.lock().unwrap_or_else(PoisonError::into_inner) = new;
        *copied = found;
        Ok(())
    }
}

fn built_in(path: &Path) -> anyhow::Result<(Program, Filter)> {
    let program = Program::open(path)
        .and_then(|program| program.sealed_copy())
        .context("the program that hosts built-in NFs (--nf-program)")?;
    with_filter(program)
}

fn with_filter(program: Program) -> anyhow::Result<(Program, Filter)> {
    let filter = filter(&program)?;
    Ok((program, filter))
}

fn filter(program: &Program) -> anyhow::Result<Filter> {
    Ok(Policy::new(program.linkage(), SOL_NFLUID as u32).compile()?)
}

/// A started program.
pub struct Launched {
    /// Its process.
    pub instance: Instance,
    /// Descriptor number of the I/O thread's doorbell in the instance.
    pub io_doorbell: RawFd,
}

/// The instance whose program is started.
pub struct Target<'a> {
    /// The name of the instance.
    pub name: &'a str,
    /// The specification of the instance.
    pub spec: &'a InstanceSpec,
    /// Its cgroup.
    pub cgroup: &'a Cgroup,
    /// The instance's record.
    pub record: &'a Record,
    /// Its program, if already open.
    pub program: Option<OpenProgram>,
}

/// The doorbells that a program is given beside its own.
pub struct GivenDoorbells<'a> {
    /// The instances at the other ends of its ports' links.
    pub peers: &'a [Option<String>],
    /// The doorbell by which it wakes its I/O thread.
    pub io: &'a OwnedFd,
    /// The instance whose ports it is to take over, if any.
    pub succession: Option<Predecessor<'a>>,
}

/// The predecessor of a successor, and the successor's place until it has the ports.
pub struct Predecessor<'a> {
    /// The socket to the predecessor.
    pub way: &'a OwnedFd,
    /// Path of the successor's control socket until then.
    pub control: &'a Path,
    /// CPUs on which the successor starts; empty: the instance's CPUs.
    pub cpus: &'a [u32],
}

impl GivenDoorbells<'_> {
    /// Returns the CPUs on which the process starts.
    fn cpus(&self, spec: &InstanceSpec, record: &Record) -> Vec<u32> {
        match &self.succession {
            Some(succession) if !succession.cpus.is_empty() => succession.cpus.to_vec(),
            _ => pinned_to(spec, record.core),
        }
    }
}

/// Returns, for every queue of every port, the instance whose doorbell it rings.
fn peers_by_queue<'a>(spec: &InstanceSpec, peers: &'a [Option<String>]) -> Vec<Option<&'a str>> {
    let ports = spec.ports.iter().zip(peers);
    ports
        .flat_map(|(port, peer)| (0..port.queues).map(|_queue| peer.as_deref()))
        .collect()
}

/// Returns the descriptor number of the I/O thread's doorbell in an instance with these ports: behind its maps, its
/// sockets and its own doorbell.
pub fn io_doorbell_number(handover: &Handover) -> RawFd {
    FIRST_FD + handover.fds().len() as RawFd + 1
}

/// The descriptors that an instance inherits besides its maps and sockets.
struct Inheritance {
    /// The number of the first of them.
    first: RawFd,
    fds: Vec<OwnedFd>,
    io_doorbell: RawFd,
    env: Vec<CString>,
}

impl Inheritance {
    /// Adds a descriptor, and returns the number that it gets.
    fn give(&mut self, fd: OwnedFd) -> RawFd {
        self.fds.push(fd);
        self.first + self.fds.len() as RawFd - 1
    }
}

impl Maker {
    /// Starts the instance's program on its ports, which exist. Uses the shell, with its control socket, if one is
    /// given, and otherwise a new sandbox.
    ///
    /// # Errors
    /// No process runs.
    pub fn launch(
        &self,
        target: Target<'_>,
        ports: (&InstanceMemory, &Handover),
        bells: &GivenDoorbells<'_>,
        shell: Option<(Shell, OwnedFd)>,
    ) -> anyhow::Result<Launched> {
        let Target {
            name,
            spec,
            cgroup,
            record,
            program,
        } = target;
        let equipment = spec.stack.as_ref();
        let equipment = equipment.map(|stack| terminator::equip(spec, stack));
        let mut equipment = equipment.transpose()?;
        let program = match (program, &spec.program) {
            (Some(open), _) => open,
            _ if equipment.is_some() => Arc::clone(&self.programs.terminator()?.program),
            (None, ProgramModel::BuiltIn { .. }) => self.programs.built_in(),
            (None, ProgramModel::Path { program, .. }) => self.programs.open(program)?,
        };
        let (program, filter) = &*program;
        let (shell, control) = shell.unzip();
        let mut inheritance = self.inheritance(name, spec, ports, record.seed, bells, control)?;
        if let Some(equipment) = &mut equipment {
            let memory = spec.resources.memory.0;
            let env = equipment.hand_over(memory, |fd| inheritance.give(fd))?;
            inheritance.env.extend(environment(env)?);
        }
        let start = Start {
            name,
            user: record.user,
            cgroup,
            cpus: bells.cpus(spec, record),
            zygote: self.uses_zygote.then_some(&self.zygote),
            program: (program, filter),
            arguments: arguments(&spec.program)?,
            limits: equipment.as_ref().map(|it| it.limits).unwrap_or_default(),
        };
        // The connector ends by itself if no terminator is started.
        if let Some(equipment) = &mut equipment
            && let Some(connecting) = equipment.connecting.take()
        {
            self.start_connector(&start, &equipment.namespace, connecting)?;
        }
        let Inheritance { env, fds, .. } = &mut inheritance;
        let instance = self.start(&start, shell, ports.1, std::mem::take(env), fds)?;
        if let Err(why) = give_slice(&instance, spec.resources.slice) {
            making::end(&instance)?;
            return Err(why.into());
        }
        Ok(Launched {
            instance,
            io_doorbell: inheritance.io_doorbell,
        })
    }

    /// Starts the program that hosts built-in NFs on ports that exist, without an NF.
    ///
    /// # Errors
    /// No process runs.
    pub fn launch_waiting(
        &self,
        name: &str,
        (memory, handover): (&InstanceMemory, &Handover),
        cgroup: &Cgroup,
        record: &Record,
        io_doorbell: OwnedFd,
    ) -> anyhow::Result<(Instance, Hosting)> {
        let program = self.programs.built_in();
        let flags = SocketFlags::CLOEXEC;
        let (socket, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
            .context("making the socket of a shell")?;
        let bell =
            doorbell::open_both(&self.paths.doorbell(name)).context("opening the doorbell")?;
        let control = control_socket(&self.paths.control(name))?;
        let bell_number = FIRST_FD + handover.fds().len() as RawFd;
        let numbers = Numbers {
            maps: (FIRST_FD..bell_number).collect(),
            bell: bell_number,
            io_doorbell: bell_number + 1,
        };
        let table = memory_file("ports", &numbers.table(memory).to_bytes())?;
        let env = [
            (environment::CONTROL, bell_number + 2),
            (ASSIGNMENT_ENV, bell_number + 3),
            (ATTACH_ENV, bell_number + 4),
        ];
        let start = Start {
            name,
            user: record.user,
            cgroup,
            cpus: Vec::new(),
            zygote: self.uses_zygote.then_some(&self.shell_zygote),
            program: (&program.0, &program.1),
            arguments: Vec::new(),
            limits: Limits::default(),
        };
        let instance = self.start(
            &start,
            None,
            handover,
            environment(env.map(|(key, number)| (key, number.to_string())))?,
            &[bell, io_doorbell, control, theirs, table],
        )?;
        Ok((instance, Hosting { socket, numbers }))
    }

    /// Starts a program in a sandbox. Its output goes into the instance's log. The program has the descriptors of
    /// `handover` and `fds` from [`FIRST_FD`] on.
    fn start(
        &self,
        start: &Start<'_>,
        shell: Option<Shell>,
        handover: &Handover,
        env: Vec<CString>,
        fds: &[OwnedFd],
    ) -> anyhow::Result<Instance> {
        let (program, filter) = start.program;
        let log = doorbell::open_both(&self.paths.log_pipe(start.name));
        let log = log.context("opening the log pipe")?;
        descriptors::check_room(&log)?;
        let mut launch = Launch::new(program, filter);
        launch.argv.extend_from_slice(&start.arguments);
        launch.env = env;
        launch.limits = start.limits;
        launch.fds = vec![
            InheritedFd {
                fd: log.as_fd(),
                number: 1,
            },
            InheritedFd {
                fd: log.as_fd(),
                number: 2,
            },
        ];
        let all = handover
            .fds()
            .into_iter()
            .chain(fds.iter().map(AsFd::as_fd));
        launch.fds.extend(
            (FIRST_FD..)
                .zip(all)
                .map(|(number, fd): (RawFd, BorrowedFd<'_>)| InheritedFd { fd, number }),
        );
        let shell = match shell {
            Some(shell) => shell,
            None => {
                let root = Root::for_linkage(program.linkage());
                let name = start.name.to_owned();
                Shell::prepare(&ShellSpec {
                    cpus: start.cpus(),
                    zygote: start.zygote,
                    ..self.sandbox(name, start.user, start.cgroup, root)?
                })?
            }
        };
        let spawned = shell.launch(&launch)?;
        tracing::debug!(instance = start.name, barriers = %spawned.barriers, "started");
        // Until the log is read, no other process holds the pipe. If the program ends at once, its last output is
        // still in the pipe.
        if let Err(why) = self.logs.await_reading(start.name) {
            making::end(&spawned.instance)?;
            return Err(why);
        }
        Ok(spawned.instance)
    }

    /// Returns the sandbox that all processes of the platform have, with a kernel user of its own. By default the
    /// process runs on all CPUs, and the calling thread forks it.
    ///
    /// # Errors
    /// There is no such user.
    pub fn sandbox<'a>(
        &'a self,
        name: String,
        user: u32,
        cgroup: &'a Cgroup,
        root: Root,
    ) -> anyhow::Result<ShellSpec<'a>> {
        Ok(ShellSpec {
            name,
            id: self
                .kernel_ids
                .get(user)
                .context("no kernel user is left")?,
            cgroup,
            root,
            net: NetNs::Shared(self.empty_net.as_fd()),
            sealed: Some(&self.sealed),
            cpus: None,
            zygote: None,
        })
    }

    /// Starts the connector of a terminator, with the same restrictions in the same cgroup, but in the network
    /// namespace of its backend, and without the terminator's other descriptors.
    fn start_connector(
        &self,
        terminator: &Start<'_>,
        namespace: &OwnedFd,
        connecting: Connecting,
    ) -> anyhow::Result<()> {
        let found = self.programs.terminator()?;
        let program = &found.program.0;
        let root = Root::for_linkage(program.linkage());
        let name = format!("{}-connector", terminator.name);
        let shell = ShellSpec {
            net: NetNs::Shared(namespace.as_fd()),
            cpus: terminator.cpus(),
            zygote: terminator.zygote,
            ..self.sandbox(name, terminator.user, terminator.cgroup, root)?
        };
        let log = doorbell::open_both(&self.paths.log_pipe(terminator.name));
        let log = log.context("opening the log pipe")?;
        let mut launch = Launch::new(program, &found.connecting);
        let server = connecting.server;
        let arguments = [
            "connector".to_owned(),
            server.to_string(),
            connecting.connections.to_string(),
        ];
        for argument in arguments {
            launch.argv.push(CString::new(argument)?);
        }
        launch.limits = connecting.limits();
        launch.connect_port = Some(server.port());
        let inherited = [
            (log.as_fd(), 1),
            (log.as_fd(), 2),
            (connecting.way.as_fd(), environment::CONNECTOR_END),
        ];
        launch.fds = inherited
            .map(|(fd, number)| InheritedFd { fd, number })
            .to_vec();
        let spawned = spawn(&shell, &launch).context("starting its connector")?;
        self.connectors.keep(spawned.instance);
        Ok(())
    }

    /// Collects the instance's doorbell, its peers' doorbells, port table, configuration and control socket, with
    /// their numbers. Creates the control socket unless there is one.
    fn inheritance(
        &self,
        name: &str,
        spec: &InstanceSpec,
        (memory, handover): (&InstanceMemory, &Handover),
        seed: u64,
        given: &GivenDoorbells<'_>,
        control: Option<OwnedFd>,
    ) -> anyhow::Result<Inheritance> {
        let paths = &self.paths;
        let map_fds = handover.fds().len() as RawFd;
        let mut inheritance = Inheritance {
            first: FIRST_FD + map_fds,
            fds: Vec::new(),
            io_doorbell: -1,
            env: Vec::new(),
        };
        let mut give = |fd: OwnedFd| inheritance.give(fd);
        let bell =
            give(doorbell::open_both(&paths.doorbell(name)).context("opening the doorbell")?);
        let io_doorbell = give(given.io.try_clone().context("duplicating an I/O bell")?);
        let mut peers = Vec::new();
        for peer in peers_by_queue(spec, given.peers) {
            peers.push(match peer {
                Some(peer) => give(
                    doorbell::open_ringing(&paths.doorbell(peer))
                        .context("opening a peer's doorbell")?,
                ),
                None => -1,
            });
        }
        let numbers: Vec<RawFd> = (FIRST_FD..FIRST_FD + map_fds).collect();
        let bells = Doorbells {
            own: bell,
            io: io_doorbell,
            peers: &peers,
        };
        let table = memory.table(&numbers, &bells).to_bytes();
        let mut env = vec![(ATTACH_ENV, give(memory_file("ports", &table)?).to_string())];
        if let ProgramModel::BuiltIn { nf } = &spec.program {
            env.push((environment::NF, nf.clone()));
        }
        let config = serde_json::to_vec(&seeded(&spec.program, &spec.config, seed))?;
        env.push((
            environment::CONFIG,
            give(memory_file("config", &config)?).to_string(),
        ));
        let listens_at = match &given.succession {
            Some(succession) => {
                let predecessor = succession
                    .way
                    .try_clone()
                    .context("duplicating the way to its predecessor")?;
                env.push((environment::PREDECESSOR, give(predecessor).to_string()));
                succession.control.to_owned()
            }
            None => paths.control(name),
        };
        let control = control.map_or_else(|| control_socket(&listens_at), Ok)?;
        env.push((environment::CONTROL, give(control).to_string()));
        inheritance.env = environment(env)?;
        inheritance.io_doorbell = io_doorbell;
        Ok(inheritance)
    }
}

fn environment(
    entries: impl IntoIterator<Item = (&'static str, String)>,
) -> anyhow::Result<Vec<CString>> {
    let entry =
        |(key, value)| CString::new(format!("{key}={value}")).context("a NUL in the environment");
    entries.into_iter().map(entry).collect()
}

/// The place in which a process is started, and the process that forks it.
struct Start<'a> {
    name: &'a str,
    user: u32,
    cgroup: &'a Cgroup,
    /// Empty: all.
    cpus: Vec<u32>,
    /// None: the calling thread forks.
    zygote: Option<&'a Zygote>,
    program: (&'a Program, &'a Filter),
    arguments: Vec<CString>,
    limits: Limits,
}

impl Start<'_> {
    /// Returns the CPUs in the sandbox's format.
    fn cpus(&self) -> Option<Vec<usize>> {
        let cpus = self.cpus.iter().map(|cpu| *cpu as usize);
        (!self.cpus.is_empty()).then(|| cpus.collect())
    }
}

/// The NFs with a seed for their hash tables.
const SEEDED: [&str; 3] = ["firewall", "limiter", "nat"];

/// Returns the configuration with a seed, for an NF that takes a seed and was given none.
pub fn seeded(program: &ProgramModel, config: &Value, seed: u64) -> Value {
    let mut config = config.clone();
    if matches!(program, ProgramModel::BuiltIn { nf } if SEEDED.contains(&nf.as_str())) {
        if config.is_null() {
            config = Value::Object(serde_json::Map::new());
        }
        if let Value::Object(keys) = &mut config {
            keys.entry("seed").or_insert_with(|| seed.into());
        }
    }
    config
}

fn arguments(program: &ProgramModel) -> anyhow::Result<Vec<CString>> {
    let args = match program {
        ProgramModel::BuiltIn { .. } => [].as_slice(),
        ProgramModel::Path { args, .. } => args,
    };
    args.iter()
        .map(|arg| CString::new(arg.as_str()).context("a NUL in an argument"))
        .collect()
}

/// Creates the control socket of an instance at this path.
///
/// # Errors
/// The socket cannot be created.
pub fn control_socket(path: &Path) -> anyhow::Result<OwnedFd> {
    // A previous instance may have left the file.
    let _ = std::fs::remove_file(path);
    let listener =
        UnixListener::bind(path).with_context(|| format!("binding {}", path.display()))?;
    Ok(listener.into())
}
