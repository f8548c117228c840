//! Starting the program of an instance in its sandbox.

use super::making::Maker;
use super::record::Record;
use super::{Host, bells};
use anyhow::Context;
use nfluid_control::model::{PortRef, Program as ProgramModel};
use nfluid_control::spec::InstanceSpec;
use nfluid_control::wiring::Destination;
use nfluid_ring::attach::ATTACH_ENV;
use nfluid_ring::layout::SOL_NFLUID;
use nfluid_sandbox::cgroup::Cgroup;
use nfluid_sandbox::seccomp::{Filter, Policy};
use nfluid_sandbox::{InheritedFd, Instance, Launch, NetNs, Program, Root, ShellSpec, spawn};
use nfluid_switch::InstanceMemory;
use rustix::fs::{MemfdFlags, memfd_create};
use serde_json::Value;
use std::ffi::CString;
use std::fs::File;
use std::io::{Seek, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::UnixListener;
use std::path::Path;

/// First number under which an instance finds what it inherits; below are the standard streams.
const FIRST_FD: RawFd = 3;

/// The host of built-in NFs, opened once.
pub struct Programs {
    built_in: (Program, Filter),
}

impl Programs {
    /// Opens the program that hosts built-in NFs.
    ///
    /// # Errors
    /// When it is missing or cannot be run in an instance.
    pub fn new(nf_program: &Path) -> anyhow::Result<Self> {
        let program = Program::open(nf_program)
            .and_then(|program| program.sealed_copy())
            .context("the program that hosts built-in NFs (--nf-program)")?;
        let filter = filter(&program)?;
        Ok(Programs {
            built_in: (program, filter),
        })
    }
}

fn filter(program: &Program) -> anyhow::Result<Filter> {
    Ok(Policy::new(program.linkage(), SOL_NFLUID as u32).compile()?)
}

/// What an instance inherits, besides its maps and sockets.
struct Inheritance {
    /// Number and descriptor, from [`FIRST_FD`] on.
    fds: Vec<OwnedFd>,
    env: Vec<CString>,
}

impl Maker {
    /// Starts the instance's program on its ports, which exist. `peers`: the instances at the other
    /// ends of its ports' links, whose bells it is given.
    ///
    /// # Errors
    /// Nothing runs.
    pub fn launch(
        &self,
        name: &str,
        spec: &InstanceSpec,
        memory: &InstanceMemory,
        cgroup: &Cgroup,
        record: &Record,
        peers: &[Option<String>],
    ) -> anyhow::Result<Instance> {
        let own;
        let (program, filter) = match &spec.program {
            ProgramModel::BuiltIn { .. } => (&self.programs.built_in.0, &self.programs.built_in.1),
            ProgramModel::Path { program, .. } => {
                let program = Program::open(Path::new(program))?;
                let filter = filter(&program)?;
                own = (program, filter);
                (&own.0, &own.1)
            }
        };
        let inheritance = self.inheritance(name, spec, memory, record.seed, peers)?;
        let shell = ShellSpec {
            name: name.to_owned(),
            id: self
                .kernel_ids
                .get(record.user)
                .context("no kernel user is left")?,
            cgroup,
            root: Root::for_linkage(program.linkage()),
            net: NetNs::Shared(self.empty_net.as_fd()),
            zygote: Some(&self.zygote),
        };
        let mut launch = Launch::new(program, filter);
        launch.argv.extend(arguments(&spec.program)?);
        launch.env = inheritance.env;
        launch.cpus = (!spec.resources.cpus.is_empty()).then(|| {
            spec.resources
                .cpus
                .iter()
                .map(|cpu| *cpu as usize)
                .collect()
        });
        let log = bells::open_both(&self.paths.log_pipe(name)).context("opening the log pipe")?;
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
        let all = memory
            .fds()
            .into_iter()
            .chain(inheritance.fds.iter().map(AsFd::as_fd));
        launch.fds.extend(
            (FIRST_FD..)
                .zip(all)
                .map(|(number, fd): (RawFd, BorrowedFd<'_>)| InheritedFd { fd, number }),
        );
        let spawned = spawn(&shell, &launch)?;
        tracing::debug!(instance = name, barriers = %spawned.barriers, "started");
        Ok(spawned.instance)
    }

    /// Own bell, peers' bells, port table, configuration, control socket - and their numbers.
    fn inheritance(
        &self,
        name: &str,
        spec: &InstanceSpec,
        memory: &InstanceMemory,
        seed: u64,
        links: &[Option<String>],
    ) -> anyhow::Result<Inheritance> {
        let paths = &self.paths;
        let map_fds = memory.fds().len() as RawFd;
        let mut fds = Vec::new();
        let mut give = |fd: OwnedFd| {
            fds.push(fd);
            FIRST_FD + map_fds + fds.len() as RawFd - 1
        };
        let bell = give(bells::open_woken(&paths.bell(name)).context("opening the doorbell")?);
        let mut peers = Vec::new();
        for (port, peer) in spec.ports.iter().zip(links) {
            for _queue in 0..port.queues {
                peers.push(match peer {
                    Some(peer) => give(
                        bells::open_ringing(&paths.bell(peer))
                            .context("opening a peer's doorbell")?,
                    ),
                    None => -1,
                });
            }
        }
        let numbers: Vec<RawFd> = (FIRST_FD..FIRST_FD + map_fds).collect();
        let table = memory.table(&numbers, bell, &peers).to_bytes();
        let mut env = vec![(ATTACH_ENV, give(memory_file("ports", &table)?).to_string())];
        if let ProgramModel::BuiltIn { nf } = &spec.program {
            env.push(("NFLUID_NF", nf.clone()));
        }
        let config = serde_json::to_vec(&seeded(&spec.program, &spec.config, seed))?;
        env.push((
            "NFLUID_CONFIG_FD",
            give(memory_file("config", &config)?).to_string(),
        ));
        env.push((
            "NFLUID_CONTROL_FD",
            give(control_socket(&paths.control(name))?).to_string(),
        ));
        let env = env
            .into_iter()
            .map(|(key, value)| {
                CString::new(format!("{key}={value}")).context("a NUL in the environment")
            })
            .collect::<anyhow::Result<_>>()?;
        Ok(Inheritance { fds, env })
    }
}

impl Host {
    /// The instances at the other ends of the links of an instance's ports.
    pub(super) fn link_peers(&self, name: &str, spec: &InstanceSpec) -> Vec<Option<String>> {
        let ports = spec.ports.iter();
        ports
            .map(|port| self.link_peer(&PortRef::instance(name, &port.name)))
            .collect()
    }

    /// The instance at the other end of a link, if the port is or will be linked to one.
    fn link_peer(&self, port: &PortRef) -> Option<String> {
        match self.planned.get(port).or_else(|| self.wires.get(port))? {
            Destination::Port(peer) => peer.owner().map(str::to_owned),
            _ => None,
        }
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

fn memory_file(name: &str, content: &[u8]) -> anyhow::Result<OwnedFd> {
    let mut file =
        File::from(memfd_create(name, MemfdFlags::CLOEXEC).context("making a memory file")?);
    file.write_all(content)
        .and_then(|()| file.rewind())
        .context("writing a memory file")?;
    Ok(file.into())
}

fn control_socket(path: &Path) -> anyhow::Result<OwnedFd> {
    // Left by a predecessor of the instance.
    let _ = std::fs::remove_file(path);
    let listener =
        UnixListener::bind(path).with_context(|| format!("binding {}", path.display()))?;
    Ok(listener.into())
}
