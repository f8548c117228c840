//! Starting the program of an instance in its sandbox.

pub mod hosting;
mod inheritance;

pub use inheritance::io_doorbell_number;

use crate::access::{self, Seen, strings};
use crate::companion::{self, Owner};
use crate::descriptors;
use crate::doorbell;
use crate::exits::end;
use crate::limits::give_slice;
use crate::machine;
use crate::maker::Maker;
use crate::programs::OpenProgram;
use crate::terminator::{self, Connecting};
use anyhow::Context;
use inheritance::{FIRST_FD, Inheritance, environment};
use nfluid_control::model::{PortApi, Program as ProgramModel};
use nfluid_control::spec::InstanceSpec;
use nfluid_lifecycle::cores::pinned_to;
use nfluid_lifecycle::record::Record;
use nfluid_protocol::environment;
use nfluid_sandbox::cgroup::Cgroup;
use nfluid_sandbox::seccomp::Filter;
use nfluid_sandbox::{
    InheritedFd, Instance, Launch, Limits, NetNs, Network, Program, Root, Shell, ShellSpec, Zygote,
    spawn,
};
use nfluid_switch::{Handover, InstanceMemory};
use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;

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
    /// The specification of the instance.
    pub spec: &'a InstanceSpec,
    /// Its cgroup.
    pub cgroup: &'a Cgroup,
    /// The instance's record on the disk.
    pub record: &'a Record,
    /// Its program, if that is open already.
    pub program: Option<OpenProgram>,
}

/// The bells that a program is given beside its own.
pub struct GivenDoorbells<'a> {
    /// The instances at the other ends of its ports' links.
    pub peers: &'a [Option<String>],
    /// The doorbell of the instance's I/O thread.
    pub io: &'a OwnedFd,
    /// The instance whose ports it is to take over.
    pub succession: Option<Predecessor<'a>>,
}

/// The predecessor as its successor sees it, and the CPUs of the successor until it has the ports.
pub struct Predecessor<'a> {
    /// The connection to the predecessor.
    pub way: &'a OwnedFd,
    /// The predecessor's control socket.
    pub control: &'a Path,
    /// The CPUs on which the successor starts; empty: its own.
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

impl Maker {
    /// Starts the instance's program on its ports, which exist: in a shell, which listens on the socket with it, if one is
    /// given, or in a sandbox that is made now.
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
            (None, ProgramModel::Path { program, api, .. }) if !spec.is_hosted() => match api {
                PortApi::Library => self.programs.open(program)?,
                PortApi::Dpdk => self.programs.on_dpdk(program, spec.access.is_some())?,
                PortApi::Netmap => self.programs.on_netmap(program)?,
            },
            _ => self.programs.host_of(spec)?,
        };
        let (program, filter) = &*program;
        let (shell, control) = shell.unzip();
        let mut inheritance = self.inheritance(name, spec, ports, record.seed, bells, control)?;
        if let Some(equipment) = &mut equipment {
            let memory = spec.resources.memory.0;
            let env = equipment.hand_over(memory, |fd| inheritance.give(fd))?;
            inheritance.env.extend(environment(env)?);
        }
        // Programs on a stack have a root of their own, beside that of their monitor.
        let access = spec.access.as_ref();
        let access = access.filter(|_| spec.program.api() == PortApi::Dpdk);
        let root = match spec.program.api() {
            PortApi::Library => Root::for_linkage(program.linkage()),
            PortApi::Dpdk => {
                let volumes = access.map(access::volumes).transpose()?;
                Root::for_dpdk(volumes.map(|all| all.iter().map(Seen::view).collect()))
            }
            PortApi::Netmap => {
                let netmap = self.programs.netmap()?;
                inheritance.env.extend(environment([netmap.preload()])?);
                netmap.root()
            }
        };
        if machine::is_one(spec) {
            let env = machine::equip(&self.programs, spec, |fd| inheritance.give(fd))?;
            inheritance.env.extend(environment(env)?);
        }
        let cpus = bells.cpus(spec, record);
        let owner = Owner {
            name,
            user: record.user,
            cgroup,
            cpus: &cpus,
        };
        let first_port = record.first_port;
        let beside = companion::equip(self, spec, owner, first_port, &self.zygote, |fd| {
            inheritance.give(fd)
        })?;
        let (env, beside) = beside.unzip();
        inheritance
            .env
            .extend(environment(env.unwrap_or_default())?);
        if let Some(access) = access {
            inheritance
                .env
                .extend(strings(access.environment.iter().cloned(), "a variable")?);
        }
        let start = Start {
            owner,
            zygote: self.uses_zygote.then_some(&self.zygote),
            program: (program, filter),
            arguments: arguments(&spec.program)?,
            root,
            directory: access
                .map(|access| access::directory(access.directory.as_deref().unwrap_or("/")))
                .transpose()?,
            limits: equipment.as_ref().map(|it| it.limits).unwrap_or_default(),
        };
        // The connector ends by itself if the terminator does not start.
        if let Some(equipment) = &mut equipment
            && let Some(connecting) = equipment.connecting.take()
        {
            self.start_connector(&start, &equipment.namespace, connecting)?;
        }
        let Inheritance { env, fds, .. } = &mut inheritance;
        let instance = self.start(start, shell, ports.1, std::mem::take(env), fds)?;
        let sliced = give_slice(&instance, spec.resources.slice).map_err(Into::into);
        let accompanied = beside.map(|it| it.start(self, owner, spec));
        if let Err(why) = sliced.and(accompanied.unwrap_or(Ok(()))) {
            end(&instance)?;
            return Err(why);
        }
        Ok(Launched {
            instance,
            io_doorbell: inheritance.io_doorbell,
        })
    }

    /// Starts a program in a sandbox: its output goes into the instance's log, and it has the descriptors of `handover` and
    /// `fds` from [`FIRST_FD`] on.
    fn start(
        &self,
        start: Start<'_>,
        shell: Option<Shell>,
        handover: &Handover,
        env: Vec<CString>,
        fds: &[OwnedFd],
    ) -> anyhow::Result<Instance> {
        let (program, filter) = start.program;
        let log = doorbell::open_both(&self.paths.log_pipe(start.owner.name));
        let log = log.context("opening the log pipe")?;
        descriptors::check_room(&log)?;
        let mut launch = Launch::new(program, filter);
        launch.argv.extend_from_slice(&start.arguments);
        launch.env = env;
        launch.limits = start.limits;
        if let Some(directory) = &start.directory {
            launch.directory.clone_from(directory);
            launch.network = Network::Own;
        }
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
                let name = start.owner.name.to_owned();
                let (user, cgroup) = (start.owner.user, start.owner.cgroup);
                let is_common = start.root.is_common();
                let sandbox = self.sandbox(name, user, cgroup, start.root)?;
                Shell::prepare(&ShellSpec {
                    cpus: start.owner.cpus(),
                    zygote: start.zygote,
                    sealed: sandbox.sealed.filter(|_| is_common),
                    net: match start.directory {
                        Some(_) => NetNs::Own,
                        None => sandbox.net,
                    },
                    ..sandbox
                })?
            }
        };
        let spawned = shell.launch(&launch)?;
        tracing::debug!(instance = start.owner.name, barriers = %spawned.barriers, "started");
        // The reader must have the pipe first: if the instance ends at once, its last messages are in the pipe.
        if let Err(why) = self.logs.await_reading(start.owner.name) {
            end(&spawned.instance)?;
            return Err(why);
        }
        Ok(spawned.instance)
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
        let name = format!("{}-connector", terminator.owner.name);
        let shell = ShellSpec {
            net: NetNs::Shared(namespace.as_fd()),
            cpus: terminator.owner.cpus(),
            zygote: terminator.zygote,
            ..self.sandbox(name, terminator.owner.user, terminator.owner.cgroup, root)?
        };
        let log = doorbell::open_both(&self.paths.log_pipe(terminator.owner.name));
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
        launch.network = Network::Port(server.port());
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
}

/// The start of a program: instance, user, cgroup.
struct Start<'a> {
    owner: Owner<'a>,
    /// None: the calling thread forks.
    zygote: Option<&'a Zygote>,
    program: (&'a Program, &'a Filter),
    arguments: Vec<CString>,
    /// The files that the program sees.
    root: Root,
    /// The directory in which a program starts that has files of its own, and sockets in a network namespace with nothing else
    /// in it; absent: the program has neither.
    directory: Option<CString>,
    limits: Limits,
}

/// Returns the arguments of a program, as an instance gets them.
///
/// # Errors
/// One of them has a NUL.
pub(crate) fn arguments(program: &ProgramModel) -> anyhow::Result<Vec<CString>> {
    let args = match program {
        ProgramModel::BuiltIn { .. } | ProgramModel::Image { .. } => [].as_slice(),
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
