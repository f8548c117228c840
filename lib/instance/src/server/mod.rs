//! Servers on a network stack of their own (tier `stack`): programs of the host or of a container image, unchanged, whose ports
//! are interfaces in a network namespace that nobody else is in: ends of veths, whose outer ends are behind the ports. The monitor
//! sends what comes into a port's ring to the interface.

mod etc;
mod host;
mod image;
pub(crate) mod outer;
pub(crate) mod stopping;

use crate::access::{self, Seen};
use crate::companion::{self, Owner, Variables};
use crate::maker::Maker;
use crate::programs::OpenProgram;
use anyhow::{Context, bail, ensure};
use nfluid_control::access::Access;
use nfluid_control::interface::Interface;
use nfluid_control::model::Program;
use nfluid_control::spec::{InstanceSpec, PortSpec};
use nfluid_netdev::offload::{Undone, has_uso};
use nfluid_netdev::own_stack::{self, Made, Settings};
use nfluid_netdev::{NetNs, Prefix};
use nfluid_protocol::environment;
use nfluid_ring::Level;
use nfluid_sandbox::{
    Capabilities, Instance, Launch, Limits, NetNs as SandboxNet, Shell, ShellSpec, Shown, Zygote,
};
use rustix::process::{PidfdGetfdFlags, pidfd_getfd};
use std::ffi::CString;
use std::os::fd::{OwnedFd, RawFd};
use std::path::PathBuf;

/// Most descriptors of a server: a connection takes one or two.
const DESCRIPTORS: u64 = 65_536;

/// A program, and what it is run with.
struct Command {
    program: OpenProgram,
    /// The arguments, beginning with the program's name.
    arguments: Vec<CString>,
    environment: Vec<CString>,
    directory: CString,
}

/// A server that is about to be started: its files, its sandbox, and its interfaces, which are behind their ports. Its name,
/// its program and the settings of the interfaces may be known only when it starts.
pub(crate) struct Server {
    /// Absent: those of the host.
    files: Option<image::Files>,
    volumes: Vec<Seen>,
    shell: Shell,
    namespace: NetNs,
    interfaces: Vec<Made>,
}

/// Makes the sandbox of a server, and its interfaces, behind the ports from number `first_port` on. Returns the environment
/// variables of the monitor. `zygote` forks the sandbox; `give` hands a descriptor over and returns its number.
///
/// # Errors
/// A value that cannot be used, or no sandbox.
pub(crate) fn equip(
    maker: &Maker,
    spec: &InstanceSpec,
    owner: Owner<'_>,
    first_port: u32,
    zygote: &Zygote,
    mut give: impl FnMut(OwnedFd) -> RawFd,
) -> anyhow::Result<(Variables, Server)> {
    let access = spec.access.clone().unwrap_or_default();
    let volumes = access::volumes(&access)?;
    let shown = Shown {
        extra: volumes.iter().map(Seen::view).collect(),
        devices: &Shown::DEVICES,
        processes: true,
        ..Shown::default()
    };
    let (files, root) = match &spec.program {
        Program::BuiltIn { .. } => bail!("a built-in NF has no interfaces"),
        Program::Path { .. } => {
            let root = host::root(owner.name, &spec.ports, &access, shown);
            (None, root)
        }
        Program::Image { image, .. } => {
            let files = image::Files::new(maker, owner.user, image, &access, &mut give);
            let files = files.with_context(|| format!("the image {image}"))?;
            let root = files.root(shown);
            (Some(files), root)
        }
    };
    let shell = Shell::prepare(&ShellSpec {
        cpus: owner.cpus(),
        zygote: maker.uses_zygote.then_some(zygote),
        net: SandboxNet::Own,
        capabilities: capabilities(&access)?,
        // The sealed namespaces have other directories.
        sealed: None,
        ..maker.sandbox(owner.name.to_owned(), owner.user, owner.cgroup, root)?
    })?;
    let namespace = PathBuf::from(format!("/proc/{}/ns/net", shell.pid()));
    let namespace = NetNs::open(Some(&namespace)).context("its network namespace")?;
    let names: Vec<&str> = spec.ports.iter().map(|port| port.name.as_str()).collect();
    let interfaces = own_stack::make(&namespace, &names).context("its interfaces")?;
    let sockets = maker.outer_ends.put(&maker.switch, &interfaces, first_port);
    let sockets = sockets.context("its interfaces")?;
    let numbers: Vec<String> = sockets.into_iter().map(|it| give(it).to_string()).collect();
    let stop_signal = files
        .as_ref()
        .map(|files| files.settings.stop_signal.as_str());
    let inherited = namespace.fd().try_clone();
    let inherited = inherited.context("duplicating its network namespace")?;
    let variables = vec![
        (environment::STACKS, numbers.join(",")),
        (environment::NAMESPACE, give(inherited).to_string()),
        (
            environment::STOP,
            stopping::order(&access, stop_signal.unwrap_or_default()),
        ),
    ];
    let server = Server {
        files,
        volumes,
        shell,
        namespace,
        interfaces,
    };
    Ok((variables, server))
}

/// Variables, and those that replace them.
fn variables(mut all: Vec<String>, others: &[String]) -> Vec<String> {
    for variable in others {
        let name = variable.split_once('=').map_or("", |(name, _)| name);
        if !name.is_empty() {
            all.retain(|one| one.split_once('=').is_none_or(|(one, _)| one != name));
            all.push(variable.clone());
        }
    }
    all
}

fn capabilities(access: &Access) -> anyhow::Result<Capabilities> {
    let mut had = Capabilities::default();
    for name in &access.capabilities {
        ensure!(had.add(name), "the capability {name} cannot be had");
    }
    Ok(had)
}

fn settings(port: &PortSpec) -> anyhow::Result<Settings> {
    let Some(Interface {
        addresses, routes, ..
    }) = &port.interface
    else {
        bail!("port {} is no interface", port.name);
    };
    let prefix = |net: &ipnet::IpNet| -> Prefix { (net.addr(), net.prefix_len()) };
    Ok(Settings {
        name: port.name.clone(),
        mac: port.mac.0,
        mtu: port.mtu.into(),
        addresses: addresses.iter().map(prefix).collect(),
        routes: routes
            .iter()
            .map(|route| (prefix(&route.to), route.via))
            .collect(),
    })
}

impl Server {
    /// Returns true if its sandbox still waits for the program.
    pub(crate) fn waits(&self) -> bool {
        self.shell.waits()
    }

    /// Returns true if an instance that is made now would see other files: the image or a volume was replaced.
    pub(crate) fn is_outdated(&self, maker: &Maker) -> bool {
        let files = self.files.as_ref();
        files.is_some_and(|files| files.is_outdated(maker))
            || self.volumes.iter().any(Seen::is_outdated)
    }

    /// Starts the program of instance `owner` in its sandbox.
    ///
    /// # Errors
    /// No process runs.
    pub(crate) fn start(
        mut self,
        maker: &Maker,
        owner: Owner<'_>,
        spec: &InstanceSpec,
        life: &OwnedFd,
    ) -> anyhow::Result<()> {
        let access = spec.access.clone().unwrap_or_default();
        let command = self.command(maker, owner, spec, &access)?;
        let settings: Vec<Settings> = spec.ports.iter().map(settings).collect::<Result<_, _>>()?;
        let (namespace, made) = (&self.namespace, &self.interfaces);
        own_stack::configure(namespace, made, &settings, access.forwarding)
            .context("its interfaces")?;
        if self.shell.name() != owner.name {
            self.shell.set_name(owner.name);
            self.shell.set_host_name(owner.name)?;
            if let Some(cpus) = owner.cpus() {
                self.shell.pin(&cpus)?;
            }
        }
        // With a /proc, it opens its standard streams again by name.
        let id = maker
            .kernel_ids
            .get(owner.user)
            .context("no kernel user is left")?
            .raw();
        let log = maker.paths.log_pipe(owner.name);
        std::os::unix::fs::chown(&log, Some(id), Some(id)).context("giving it the log pipe")?;
        let (program, filter) = &*command.program;
        let mut launch = Launch::new(program, filter);
        launch.argv = command.arguments;
        launch.env = command.environment;
        launch.directory = command.directory;
        launch.network = nfluid_sandbox::Network::Own;
        launch.limits = Limits {
            descriptors: DESCRIPTORS,
            ..Limits::default()
        };
        companion::run(maker, owner, self.shell, launch, life).context("starting the program")
    }

    fn command(
        &self,
        maker: &Maker,
        owner: Owner<'_>,
        spec: &InstanceSpec,
        access: &Access,
    ) -> anyhow::Result<Command> {
        match (&spec.program, &self.files) {
            (Program::Path { program, args, .. }, None) => {
                host::command(maker, (program, args), access)
            }
            (
                Program::Image {
                    image,
                    entrypoint,
                    args,
                },
                Some(files),
            ) => {
                let instance = (owner.name, &spec.ports[..]);
                let command = files.command(maker, instance, (entrypoint, args), access);
                command.with_context(|| format!("the image {image}"))
            }
            _ => bail!("it has the files of another kind of program"),
        }
    }
}

/// Sets what a server's stack leaves undone on the frames that it sends from the interfaces `names`. Its monitor has the
/// namespace; neither need run meanwhile.
///
/// # Errors
/// The kernel refuses, or the monitor has ended.
pub(crate) fn let_in(monitor: &Instance, names: &[&str], level: Level) -> anyhow::Result<()> {
    let undone = match level {
        Level::Plain => Undone::Nothing,
        Level::Checksums => Undone::Checksums,
        Level::Super => Undone::Segments { udp: has_uso() },
    };
    let number = variable_of(monitor, environment::NAMESPACE);
    let number = number.context("its monitor has no namespace")?;
    let namespace = pidfd_getfd(monitor, number.parse()?, PidfdGetfdFlags::empty());
    let namespace = namespace.context("borrowing the namespace of its monitor")?;
    let namespace = NetNs::from_fd(namespace).context("its namespace")?;
    Ok(own_stack::leave_undone(&namespace, names, undone)?)
}

/// Returns a variable of a monitor's environment.
fn variable_of(monitor: &Instance, name: &str) -> Option<String> {
    let all = std::fs::read(format!("/proc/{}/environ", monitor.pid())).ok()?;
    let mut all = all.split(|byte| *byte == 0);
    let value = all.find_map(|one| one.strip_prefix(name.as_bytes())?.strip_prefix(b"="))?;
    String::from_utf8(value.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nfluid_control::access::CAPABILITIES;

    // promise: 19.3
    #[test]
    fn the_capabilities_of_documents_are_those_of_sandboxes() {
        assert!(Capabilities::names().eq(CAPABILITIES));
        let access = |name: &str| Access {
            capabilities: vec![name.to_owned()],
            ..Access::default()
        };
        assert!(capabilities(&access("NET_ADMIN")).is_ok());
        assert!(capabilities(&access("SYS_ADMIN")).is_err());
    }
}
