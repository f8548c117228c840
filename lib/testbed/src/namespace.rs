//! Network namespaces with unique names. A namespace is removed when dropped, with its interfaces.

use crate::command::{of_line, output, output_of};
use crate::unique_number;
use anyhow::Context;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

/// A network namespace.
#[derive(Debug)]
pub struct Namespace {
    name: String,
}

impl Namespace {
    /// Makes a namespace with a unique name.
    ///
    /// # Errors
    /// When `ip` refuses.
    pub fn new() -> anyhow::Result<Self> {
        Self::named(format!("nfl-{}-{}", std::process::id(), unique_number()))
    }

    /// Makes the namespace `name`, with its loopback interface up. `cargo xtask` removes namespaces whose names begin
    /// with `nfl-` or `nfluid-test-` and the process id after that process was killed.
    ///
    /// # Errors
    /// When `ip` refuses.
    pub fn named(name: String) -> anyhow::Result<Self> {
        output(Command::new("ip").args(["netns", "add", &name]))?;
        let namespace = Namespace { name };
        namespace.ip("link set lo up")?;
        Ok(namespace)
    }

    /// The name in `/run/netns`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The path for entering the namespace.
    pub fn path(&self) -> PathBuf {
        path_of(&self.name)
    }

    /// Turns IPv6 off on all interfaces, so that only frames of a test travel. No effect on a kernel without IPv6.
    pub fn disable_ipv6(&self) {
        let quiet = "net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1";
        let _ = self.run(&format!("sysctl -qw {quiet}"));
    }

    /// Runs `ip` in the namespace; words are separated by spaces.
    ///
    /// # Errors
    /// When `ip` fails.
    pub fn ip(&self, line: &str) -> anyhow::Result<String> {
        let mut command = Command::new("ip");
        output(
            command
                .args(["-n", &self.name])
                .args(line.split_whitespace()),
        )
    }

    /// Returns a command that runs in the namespace; `/sys` is the namespace's.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name]).arg(program);
        command
    }

    /// Runs a line of words in the namespace.
    ///
    /// # Errors
    /// When the program fails.
    pub fn run(&self, line: &str) -> anyhow::Result<String> {
        self.run_with_input(line, "")
    }

    /// Runs a line of words in the namespace, with this standard input.
    ///
    /// # Errors
    /// When the program fails.
    pub fn run_with_input(&self, line: &str, input: &str) -> anyhow::Result<String> {
        let mut words = line.split_whitespace();
        let program = words.next().unwrap_or_default();
        output_of(self.command(program).args(words), input)
    }

    /// Runs `ip` in the namespace for each of these lines.
    ///
    /// # Errors
    /// When `ip` fails.
    pub fn ip_batch(&self, lines: &str) -> anyhow::Result<()> {
        let mut command = of_line(&format!("ip -n {} -batch -", self.name));
        output_of(&mut command, lines).map(drop)
    }

    /// Moves the calling thread into the namespace permanently.
    ///
    /// # Errors
    /// As [`enter`].
    pub fn enter(&self) -> anyhow::Result<()> {
        enter(&self.path())
    }

    /// Joins two namespaces by a veth pair, both ends up.
    ///
    /// # Errors
    /// When `ip` refuses.
    pub fn join(a: (&Namespace, &str), b: (&Namespace, &str)) -> anyhow::Result<()> {
        let (inner, outer) = (a.1, b.1);
        a.0.ip(&format!(
            "link add {inner} type veth peer name {outer} netns {}",
            b.0.name
        ))?;
        for (namespace, interface) in [a, b] {
            // Only the experiment's traffic.
            namespace.run(&format!(
                "sysctl -qw net.ipv6.conf.{interface}.disable_ipv6=1"
            ))?;
            namespace.ip(&format!("link set {interface} up"))?;
        }
        Ok(())
    }

    /// Adds a permanent neighbour entry for `address` at `other`'s `eth0`: ARP is not needed, and may be filtered.
    ///
    /// # Errors
    /// When `ip` refuses, or one of the namespaces has no `eth0`.
    pub fn enter_neighbour(&self, address: &str, other: &Namespace) -> anyhow::Result<()> {
        let mac = other.run("cat /sys/class/net/eth0/address")?;
        let mac = mac.trim();
        self.ip(&format!(
            "neighbour replace {address} lladdr {mac} dev eth0 nud permanent"
        ))?;
        Ok(())
    }

    /// Binds a UDP socket in the namespace.
    ///
    /// # Errors
    /// When the namespace is gone or does not have the address.
    pub fn udp_socket(&self, address: &str) -> anyhow::Result<UdpSocket> {
        let bound = self.within(|| Ok(UdpSocket::bind(address)?));
        bound.with_context(|| format!("a socket at {address} in {}", self.name))
    }

    /// As [`within`].
    ///
    /// # Errors
    /// When the namespace is gone, or when the work returns an error.
    pub fn within<T: Send>(
        &self,
        work: impl FnOnce() -> anyhow::Result<T> + Send,
    ) -> anyhow::Result<T> {
        within(&self.path(), work)?
    }

    /// Returns the number of frames that an interface has received.
    ///
    /// # Errors
    /// When there is no such interface.
    pub fn received(&self, interface: &str) -> anyhow::Result<u64> {
        let path = format!("/sys/class/net/{interface}/statistics/rx_packets");
        Ok(self.run(&format!("cat {path}"))?.trim().parse()?)
    }
}

impl std::fmt::Display for Namespace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // If the removal fails, the namespace is already gone: nothing else could be done.
        let _ = output(Command::new("ip").args(["netns", "delete", &self.name]));
    }
}

/// The path for entering the namespace `name`.
pub fn path_of(name: &str) -> PathBuf {
    Path::new("/run/netns").join(name)
}

/// Checks in the namespace `name` that the kernel has veth pairs.
///
/// # Errors
/// The error text of `ip`.
pub fn probe_veth(name: &str) -> anyhow::Result<()> {
    output(&mut of_line(&format!(
        "ip -n {name} link add probe type veth"
    )))?;
    output(&mut of_line(&format!("ip -n {name} link del probe"))).map(drop)
}

/// Moves the calling thread into the namespace at `path` permanently.
///
/// # Errors
/// When there is no such namespace, or this process may not enter it.
pub fn enter(path: &Path) -> anyhow::Result<()> {
    let file = File::open(path).with_context(|| format!("opening {}", path.display()))?;
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
        .with_context(|| format!("entering {}", path.display()))
}

/// Does `work` in a thread in the namespace at `path`. A panic of the work continues in the caller.
///
/// # Errors
/// As [`enter`].
pub fn within<T: Send>(path: &Path, work: impl FnOnce() -> T + Send) -> anyhow::Result<T> {
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            enter(path)?;
            Ok(work())
        });
        thread.join().unwrap_or_else(|panic| resume_unwind(panic))
    })
}
