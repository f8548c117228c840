//! Servers on a network stack of their own (tier `stack`): programs of the host or of a container image, unchanged, whose ports
//! are interfaces in a network namespace that nobody else is in: ends of veths, whose outer ends are behind the ports. The monitor
//! sends what comes into a port's ring to the interface.

mod etc;
mod host;
mod image;
pub(crate) mod outer;
pub(crate) mod stopping;

use crate::companion::{self, Owner, Variables};
use crate::maker::Maker;
use crate::programs::OpenProgram;
use anyhow::{Context, bail, ensure};
use nfluid_control::access::{Access, Volume};
use nfluid_control::interface::Interface;
use nfluid_control::model::Program;
use nfluid_control::spec::{InstanceSpec, PortSpec};
use nfluid_netdev::offload::{Undone, has_uso};
use nfluid_netdev::own_stack::{self, Settings};
use nfluid_netdev::{NetNs, Prefix};
use nfluid_protocol::environment;
use nfluid_ring::Level;
use nfluid_sandbox::{
    Capabilities, Instance, Launch, Limits, NetNs as SandboxNet, Root, Shell, ShellSpec, Shown,
    View,
};
use rustix::process::{PidfdGetfdFlags, pidfd_getfd};
use std::ffi::CString;
use std::os::fd::{OwnedFd, RawFd};
use std::path::{Path, PathBuf};

/// Devices that programs of Linux expect.
const DEVICES: &[&str] = &["full", "null", "random", "urandom", "zero"];
/// Most descriptors of a server: a connection takes one or two.
const DESCRIPTORS: u64 = 65_536;
/// Directories of an image's program in which it writes, beside its image.
const IMAGE_SCRATCH: &[&str] = &["/dev/shm"];

/// A program, and what it is run with.
struct Prepared {
    root: Root,
    program: OpenProgram,
    /// The arguments, beginning with the program's name.
    arguments: Vec<CString>,
    environment: Vec<CString>,
    directory: String,
    /// The signal that asks it to end, as an image names it; empty: it names none.
    stop_signal: String,
}

/// A server that is about to be started.
pub(crate) struct Server {
    program: OpenProgram,
    arguments: Vec<CString>,
    environment: Vec<CString>,
    directory: CString,
    /// Its sandbox, with the interfaces in it.
    shell: Shell,
}

/// Makes the sandbox of a server, and its interfaces, behind the ports from number `first_port` on. Returns the environment
/// variables of the monitor. `give` hands a descriptor over and returns its number.
///
/// # Errors
/// A value that cannot be used, or no sandbox.
pub(crate) fn equip(
    maker: &Maker,
    spec: &InstanceSpec,
    owner: Owner<'_>,
    first_port: u32,
    mut give: impl FnMut(OwnedFd) -> RawFd,
) -> anyhow::Result<(Variables, Server)> {
    let access = spec.access.clone().unwrap_or_default();
    let prepared = prepare(maker, spec, owner, &access, &mut give)?;
    let shell = Shell::prepare(&ShellSpec {
        cpus: owner.cpus(),
        zygote: maker.uses_zygote.then_some(&maker.zygote),
        net: SandboxNet::Own,
        capabilities: capabilities(&access)?,
        // The sealed namespaces have other directories.
        sealed: None,
        ..maker.sandbox(
            owner.name.to_owned(),
            owner.user,
            owner.cgroup,
            prepared.root,
        )?
    })?;
    let namespace = PathBuf::from(format!("/proc/{}/ns/net", shell.pid()));
    let namespace = NetNs::open(Some(&namespace)).context("its network namespace")?;
    let settings: Vec<Settings> = spec.ports.iter().map(settings).collect::<Result<_, _>>()?;
    let ends =
        own_stack::make(&namespace, &settings, access.forwarding).context("its interfaces")?;
    let sockets = maker.outer_ends.put(&maker.switch, &ends, first_port);
    let sockets = sockets.context("its interfaces")?;
    let numbers: Vec<String> = sockets.into_iter().map(|it| give(it).to_string()).collect();
    let variables = vec![
        (environment::STACKS, numbers.join(",")),
        (
            environment::NAMESPACE,
            give(namespace.into_fd()).to_string(),
        ),
        (
            environment::STOP,
            stopping::order(&access, &prepared.stop_signal),
        ),
    ];
    let server = Server {
        program: prepared.program,
        arguments: prepared.arguments,
        environment: prepared.environment,
        directory: CString::new(prepared.directory).context("a NUL in the working directory")?,
        shell,
    };
    Ok((variables, server))
}

fn prepare(
    maker: &Maker,
    spec: &InstanceSpec,
    owner: Owner<'_>,
    access: &Access,
    give: impl FnMut(OwnedFd) -> RawFd,
) -> anyhow::Result<Prepared> {
    let shown = Shown {
        extra: access.volumes.iter().map(view).collect::<Result<_, _>>()?,
        devices: DEVICES,
        processes: true,
        ..Shown::default()
    };
    match &spec.program {
        Program::BuiltIn { .. } => bail!("a built-in NF has no interfaces"),
        Program::Path { program, args, .. } => {
            let said = (program.as_str(), &args[..]);
            host::open(maker, owner.name, &spec.ports, said, access, shown)
        }
        Program::Image {
            image,
            entrypoint,
            args,
        } => {
            let shown = Shown {
                scratch: IMAGE_SCRATCH,
                etc: etc::network(owner.name, &spec.ports),
                ..shown
            };
            let said = (image.as_str(), &entrypoint[..], &args[..]);
            image::open(maker, owner, said, access, shown, give)
                .with_context(|| format!("the image {image}"))
        }
    }
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

fn strings(all: impl IntoIterator<Item = String>, what: &str) -> anyhow::Result<Vec<CString>> {
    let strings = all.into_iter().map(CString::new).collect::<Result<_, _>>();
    strings.with_context(|| format!("a NUL in {what}"))
}

/// Returns a directory of the host that it sees.
fn view(volume: &Volume) -> anyhow::Result<View> {
    let from = &volume.from;
    let path = Path::new(from);
    let found = path
        .canonicalize()
        .with_context(|| format!("the volume {from}"))?;
    ensure!(found.is_dir(), "the volume {from} is no directory");
    // The check of the document was about the path as it is written.
    ensure!(
        found == path,
        "the volume {from} is at {}: name that one",
        found.display()
    );
    Ok(View {
        of: found,
        at: PathBuf::from(volume.place()),
        is_writable: volume.is_writable,
    })
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
    /// Starts the program in its sandbox.
    ///
    /// # Errors
    /// No process runs.
    pub(crate) fn start(
        self,
        maker: &Maker,
        owner: Owner<'_>,
        life: &OwnedFd,
    ) -> anyhow::Result<()> {
        // With a /proc, it opens its standard streams again by name.
        let id = maker
            .kernel_ids
            .get(owner.user)
            .context("no kernel user is left")?
            .raw();
        let log = maker.paths.log_pipe(owner.name);
        std::os::unix::fs::chown(&log, Some(id), Some(id)).context("giving it the log pipe")?;
        let (program, filter) = &*self.program;
        let mut launch = Launch::new(program, filter);
        launch.argv = self.arguments;
        launch.env = self.environment;
        launch.directory = self.directory;
        launch.network = nfluid_sandbox::Network::Own;
        launch.limits = Limits {
            descriptors: DESCRIPTORS,
            ..Limits::default()
        };
        companion::run(maker, owner, self.shell, launch, life).context("starting the program")
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

    // promise: 19.3
    #[test]
    fn a_volume_is_a_directory_and_no_link_to_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let real = folder.path().canonicalize().expect("there");
        let (file, link) = (real.join("file"), real.join("link"));
        std::fs::write(&file, "").expect("written");
        std::os::unix::fs::symlink(&real, &link).expect("a link");
        let volume = |path: &Path| {
            view(&Volume {
                from: path.display().to_string(),
                at: None,
                is_writable: false,
            })
        };
        assert_eq!(
            volume(&real).expect("a directory"),
            View::from(real.clone())
        );
        for bad in [file, link, real.join("none")] {
            volume(&bad).expect_err("no directory of this name");
        }
    }
}
