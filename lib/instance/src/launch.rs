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
use nfluid_ring::layout::SOL_NFLUID;
use nfluid_ring::table::ATTACH_ENV;
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

/// First number under which an instance finds what it inherits; below are the standard streams.
const FIRST_FD: RawFd = 3;
/// The level of TCP's socket options, of which a connector sets one.
const TCP_OPTIONS: u32 = 6;

/// A program that is open, and its system call filter.
pub type OpenProgram = Arc<(Program, Filter)>;

/// The host of built-in NFs, opened once for each version of it.
pub struct Programs {
    path: PathBuf,
    built_in: Mutex<Arc<(Program, Filter)>>,
    /// Of which file that is a copy.
    copied: Mutex<Option<FileVersion>>,
    terminator: Mutex<Option<(FileVersion, Arc<TerminatorProgram>)>>,
}

/// The program of terminators, which is their connectors' too.
pub struct TerminatorProgram {
    program: Arc<(Program, Filter)>,
    /// Connectors may make TCP connections.
    connecting: Filter,
}

impl Programs {
    /// Opens the program that hosts built-in NFs.
    ///
    /// # Errors
    /// When it is missing or cannot be run in an instance.
    pub fn new(nf_program: &Path) -> anyhow::Result<Self> {
        Ok(Programs {
            path: nf_program.to_owned(),
            copied: Mutex::new(file_version(nf_program)),
            built_in: Mutex::new(Arc::new(built_in(nf_program)?)),
            terminator: Mutex::new(None),
        })
    }

    /// Opens a program of the user's.
    ///
    /// # Errors
    /// When it is missing or cannot be run in an instance.
    pub fn open(&self, path: &str) -> anyhow::Result<OpenProgram> {
        let program = Program::open(Path::new(path))?.unchangeable()?;
        Ok(Arc::new(with_filter(program)?))
    }

    /// The program of terminators, beside that of built-in NFs, in the version that is installed now.
    ///
    /// # Errors
    /// When it is missing or cannot be run in an instance.
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

    /// Opens the version that is installed now, if it is another; all that start later run it.
    ///
    /// # Errors
    /// As for [`Programs::new`]; the version so far stays.
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

/// A program that was started.
pub struct Launched {
    /// Its process.
    pub instance: Instance,
    /// Descriptor under which it has the doorbell of its I/O thread.
    pub io_doorbell: RawFd,
}

/// The instance whose program is started.
pub struct Target<'a> {
    /// The name of the instance.
    pub name: &'a str,
    /// What it is made from.
    pub spec: &'a InstanceSpec,
    /// Its cgroup.
    pub cgroup: &'a Cgroup,
    /// What is written down of it.
    pub record: &'a Record,
    /// Its program, if that is open already.
    pub program: Option<OpenProgram>,
}

/// The bells that a program is given beside its own.
pub struct GivenDoorbells<'a> {
    /// The instances at the other ends of its ports' links.
    pub peers: &'a [Option<String>],
    /// What it wakes its I/O thread with.
    pub io: &'a OwnedFd,
    /// The instance whose ports it is to take over.
    pub succession: Option<Predecessor<'a>>,
}

/// What a successor is told about its predecessor, and where it is until it has the ports.
pub struct Predecessor<'a> {
    /// The way to the predecessor.
    pub way: &'a OwnedFd,
    /// Where it listens.
    pub control: &'a Path,
    /// On which CPUs it starts; empty: on its own.
    pub cpus: &'a [u32],
}

impl GivenDoorbells<'_> {
    /// The CPUs on which it starts.
    fn cpus(&self, spec: &InstanceSpec, record: &Record) -> Vec<u32> {
        match &self.succession {
            Some(succession) if !succession.cpus.is_empty() => succession.cpus.to_vec(),
            _ => pinned_to(spec, record.core),
        }
    }
}

/// For every queue of every port, the instance whose doorbell it rings.
fn peers_by_queue<'a>(spec: &InstanceSpec, peers: &'a [Option<String>]) -> Vec<Option<&'a str>> {
    let ports = spec.ports.iter().zip(peers);
    ports
        .flat_map(|(port, peer)| (0..port.queues).map(|_queue| peer.as_deref()))
        .collect()
}

/// The number under which an instance with these ports finds the bell of its I/O thread: after its maps and sockets, and its
/// own bell.
pub fn io_doorbell_number(handover: &Handover) -> RawFd {
    FIRST_FD + handover.fds().len() as RawFd + 1
}

/// What an instance inherits, besides its maps and sockets.
struct Inheritance {
    /// The number of the first of them.
    first: RawFd,
    fds: Vec<OwnedFd>,
    io_doorbell: RawFd,
    env: Vec<CString>,
}

impl Inheritance {
    /// Adds a descriptor; the number under which it is found.
    fn give(&mut self, fd: OwnedFd) -> RawFd {
        self.fds.push(fd);
        self.first + self.fds.len() as RawFd - 1
    }
}

impl Maker {
    /// Starts the instance's program on its ports, which exist: in a shell, which listens on the socket with it, if one is
    /// given, or in a sandbox that is made now.
    ///
    /// # Errors
    /// Nothing runs.
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
        // It ends by itself if there is no terminator in the end.
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

    /// Starts the program that hosts built-in NFs on ports that exist, without saying which NF it is.
    ///
    /// # Errors
    /// Nothing runs.
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
        let bell = doorbell::open_both(&self.paths.bell(name)).context("opening the doorbell")?;
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

    /// Starts a program in a sandbox: its output goes into the instance's log, and it has the descriptors of `handover` and
    /// `fds` from [`FIRST_FD`] on.
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
        // Until then nobody else has the pipe should it end at once, and its last words are in there.
        if let Err(why) = self.logs.await_reading(start.name) {
            making::end(&spawned.instance)?;
            return Err(why);
        }
        Ok(spawned.instance)
    }

    /// The sandbox that all processes of the platform have, of a user of its own. On all CPUs, and forked by the calling thread,
    /// unless its maker says otherwise.
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

    /// Starts the connector of a terminator: with the same barriers in its cgroup, but in the network namespace of its
    /// backend, and without anything else that the terminator has.
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

    /// Own bell, peers' bells, port table, configuration, control socket, which is made unless there is one - and their
    /// numbers.
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
        let bell = give(doorbell::open_both(&paths.bell(name)).context("opening the doorbell")?);
        let io_doorbell = give(given.io.try_clone().context("duplicating an I/O bell")?);
        let mut peers = Vec::new();
        for peer in peers_by_queue(spec, given.peers) {
            peers.push(match peer {
                Some(peer) => give(
                    doorbell::open_ringing(&paths.bell(peer))
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

/// Who is started where, and by whom.
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
    /// As a sandbox is told.
    fn cpus(&self) -> Option<Vec<usize>> {
        let cpus = self.cpus.iter().map(|cpu| *cpu as usize);
        (!self.cpus.is_empty()).then(|| cpus.collect())
    }
}

/// The NFs that take a seed for their hash tables.
const SEEDED: [&str; 3] = ["firewall", "limiter", "nat"];

/// The configuration with a seed, for an NF that takes one and was given none.
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

/// A socket on which an instance listens for the daemon, at this path.
///
/// # Errors
/// When it cannot be made.
pub fn control_socket(path: &Path) -> anyhow::Result<OwnedFd> {
    // Left by a predecessor of the instance.
    let _ = std::fs::remove_file(path);
    let listener =
        UnixListener::bind(path).with_context(|| format!("binding {}", path.display()))?;
    Ok(listener.into())
}
