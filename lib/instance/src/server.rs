//! Servers on a network stack of their own (tier `stack`): programs of the host, unchanged, whose ports are interfaces in a
//! network namespace that nobody else is in. The monitor has the other side of each interface, a tap.

use crate::companion::{self, Owner, Variables};
use crate::launch::arguments;
use crate::maker::Maker;
use crate::programs::OpenProgram;
use anyhow::{Context, bail, ensure};
use nfluid_control::interface::{Access, Interface, SCRATCH};
use nfluid_control::model::Program;
use nfluid_control::spec::{InstanceSpec, PortSpec};
use nfluid_netdev::offload::Undone;
use nfluid_netdev::own_stack::{self, Settings};
use nfluid_netdev::{NetNs, Prefix, tap};
use nfluid_protocol::environment;
use nfluid_ring::Level;
use nfluid_sandbox::{
    Capabilities, Instance, Launch, Limits, NetNs as SandboxNet, Root, Shell, ShellSpec, Shown,
};
use rustix::process::{PidfdGetfdFlags, pidfd_getfd};
use std::ffi::CString;
use std::os::fd::{OwnedFd, RawFd};
use std::path::{Path, PathBuf};

/// Devices that programs of Linux expect.
const DEVICES: &[&str] = &["full", "null", "random", "urandom", "zero"];
/// Most descriptors of a server: a connection takes one or two.
const DESCRIPTORS: u64 = 65_536;
/// Environment of a server.
const VARIABLES: [&str; 3] = ["PATH=/usr/sbin:/usr/bin", "HOME=/tmp", "LANG=C.UTF-8"];

/// A server that is about to be started.
pub(crate) struct Server {
    program: OpenProgram,
    arguments: Vec<CString>,
    /// Its sandbox, with the interfaces in it.
    shell: Shell,
}

/// Makes the sandbox of a server, and its interfaces. Returns the environment variables of the monitor. `give` hands a
/// descriptor over and returns its number.
///
/// # Errors
/// A value that cannot be used, or no sandbox.
pub(crate) fn equip(
    maker: &Maker,
    spec: &InstanceSpec,
    owner: Owner<'_>,
    mut give: impl FnMut(OwnedFd) -> RawFd,
) -> anyhow::Result<(Variables, Server)> {
    let Program::Path { program, .. } = &spec.program else {
        bail!("a built-in NF has no interfaces");
    };
    let access = spec.access.clone().unwrap_or_default();
    let program = maker.programs.server(program)?;
    let root = Root::Libraries(Shown {
        extra: directories(&access)?,
        devices: DEVICES,
        scratch: &SCRATCH,
    });
    let shell = Shell::prepare(&ShellSpec {
        cpus: owner.cpus(),
        net: SandboxNet::Own,
        capabilities: capabilities(&access)?,
        // The sealed namespaces have other directories.
        sealed: None,
        ..maker.sandbox(owner.name.to_owned(), owner.user, owner.cgroup, root)?
    })?;
    let namespace = PathBuf::from(format!("/proc/{}/ns/net", shell.pid()));
    let namespace = NetNs::open(Some(&namespace)).context("its network namespace")?;
    let settings: Vec<Settings> = spec.ports.iter().map(settings).collect::<Result<_, _>>()?;
    let taps = own_stack::make(&namespace, &settings).context("its interfaces")?;
    let numbers: Vec<String> = taps.into_iter().map(|tap| give(tap).to_string()).collect();
    let server = Server {
        program,
        arguments: arguments(&spec.program)?,
        shell,
    };
    Ok((vec![(environment::TAPS, numbers.join(","))], server))
}

/// Returns the directories of the host that it sees.
fn directories(access: &Access) -> anyhow::Result<Vec<PathBuf>> {
    let volumes = access.volumes.iter();
    volumes
        .map(|volume| {
            let path = Path::new(volume);
            let found = path
                .canonicalize()
                .with_context(|| format!("the volume {volume}"))?;
            ensure!(found.is_dir(), "the volume {volume} is no directory");
            // The check of the document was about the path as it is written.
            ensure!(
                found == path,
                "the volume {volume} is at {}: name that one",
                found.display()
            );
            Ok(found)
        })
        .collect()
}

fn capabilities(access: &Access) -> anyhow::Result<Capabilities> {
    let mut had = Capabilities::default();
    for name in &access.capabilities {
        ensure!(had.add(name), "the capability {name} cannot be had");
    }
    Ok(had)
}

fn settings(port: &PortSpec) -> anyhow::Result<Settings> {
    let Some(Interface { addresses, routes }) = &port.interface else {
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
        let (program, filter) = &*self.program;
        let mut launch = Launch::new(program, filter);
        launch.argv.extend(self.arguments);
        let variables = VARIABLES.map(CString::new);
        launch.env.extend(variables.into_iter().flatten());
        launch.network = nfluid_sandbox::Network::Own;
        launch.limits = Limits {
            descriptors: DESCRIPTORS,
            ..Limits::default()
        };
        companion::run(maker, owner, self.shell, launch, life).context("starting the program")
    }
}

/// Sets what a server's stack leaves undone on the frames that it sends: its monitor's taps say so to the kernel. The server
/// need not run meanwhile, nor the monitor.
///
/// # Errors
/// The kernel refuses, or the monitor has ended.
pub(crate) fn let_in(monitor: &Instance, level: Level) -> anyhow::Result<()> {
    let undone = match level {
        Level::Plain => Undone::Nothing,
        Level::Checksums => Undone::Checksums,
        Level::Super => Undone::Segments { udp: true },
    };
    let file = format!("/proc/{}/environ", monitor.pid());
    let variables = std::fs::read(&file).with_context(|| format!("reading {file}"))?;
    let prefix = format!("{}=", environment::TAPS);
    let mut variables = variables.split(|byte| *byte == 0);
    let numbers = variables.find_map(|variable| variable.strip_prefix(prefix.as_bytes()));
    let numbers = std::str::from_utf8(numbers.unwrap_or_default())?;
    for number in numbers.split(',').filter(|number| !number.is_empty()) {
        let tap = pidfd_getfd(monitor, number.parse()?, PidfdGetfdFlags::empty());
        tap::leave_undone(&tap.context("borrowing a tap of its monitor")?, undone)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use nfluid_control::interface::CAPABILITIES;

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
            directories(&Access {
                volumes: vec![path.display().to_string()],
                ..Access::default()
            })
        };
        assert_eq!(
            volume(&real).expect("a directory"),
            std::slice::from_ref(&real)
        );
        for bad in [file, link, real.join("none")] {
            volume(&bad).expect_err("no directory of this name");
        }
    }
}
