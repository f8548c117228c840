//! Network namespaces with unique names, removed when dropped, and their interfaces with them.

use super::program::output;
use anyhow::{Context, anyhow};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

/// A network namespace.
#[derive(Debug)]
pub struct Namespace {
    name: String,
}

impl Namespace {
    /// Makes one.
    ///
    /// # Errors
    /// When `ip` refuses.
    pub fn new() -> anyhow::Result<Self> {
        let name = format!("nfl-{}-bench-{}", std::process::id(), number());
        output(Command::new("ip").args(["netns", "add", &name]))?;
        let namespace = Namespace { name };
        namespace.ip("link set lo up")?;
        Ok(namespace)
    }

    /// Its name in `/run/netns`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs `ip` within; words are separated by spaces.
    ///
    /// # Errors
    /// When it fails.
    pub fn ip(&self, line: &str) -> anyhow::Result<String> {
        let mut command = Command::new("ip");
        output(command.args(["-n", &self.name]).args(line.split(' ')))
    }

    /// A command that runs within; `/sys` is the namespace's.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name]).arg(program);
        command
    }

    /// Runs a line of words within.
    ///
    /// # Errors
    /// When it fails.
    pub fn run(&self, line: &str) -> anyhow::Result<String> {
        let mut words = line.split(' ');
        let program = words.next().unwrap_or_default();
        output(self.command(program).args(words))
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
            // No traffic but the experiment's.
            namespace.run(&format!(
                "sysctl -qw net.ipv6.conf.{interface}.disable_ipv6=1"
            ))?;
            namespace.ip(&format!("link set {interface} up"))?;
        }
        Ok(())
    }

    /// Enters for good that `address` is at `other`'s `eth0`, behind its own: ARP is not needed, and may not get through.
    ///
    /// # Errors
    /// When `ip` refuses, or one of them has no such interface.
    pub fn enter_neighbour(&self, address: &str, other: &Namespace) -> anyhow::Result<()> {
        let mac = other.run("cat /sys/class/net/eth0/address")?;
        let mac = mac.trim();
        self.ip(&format!(
            "neighbour replace {address} lladdr {mac} dev eth0 nud permanent"
        ))?;
        Ok(())
    }

    /// A socket that belongs to it.
    ///
    /// # Errors
    /// When the namespace is gone or the address is not its own.
    pub fn udp_socket(&self, address: &str) -> anyhow::Result<UdpSocket> {
        let bound = self.within(|| Ok(UdpSocket::bind(address)?));
        bound.with_context(|| format!("a socket at {address} in {}", self.name))
    }

    /// Does something in it, in a thread of its own.
    ///
    /// # Errors
    /// When the namespace is gone, or what the work says.
    pub fn within<T: Send>(
        &self,
        work: impl FnOnce() -> anyhow::Result<T> + Send,
    ) -> anyhow::Result<T> {
        let path = Path::new("/run/netns").join(&self.name);
        let file = File::open(&path).with_context(|| format!("opening {}", path.display()))?;
        thread::scope(|scope| {
            let done = scope.spawn(|| {
                move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?;
                work()
            });
            done.join()
                .map_err(|_| anyhow!("what was done in {} has failed", self.name))?
        })
    }

    /// Frames that an interface has received.
    ///
    /// # Errors
    /// When there is no such interface.
    pub fn received(&self, interface: &str) -> anyhow::Result<u64> {
        let path = format!("/sys/class/net/{interface}/statistics/rx_packets");
        Ok(self.run(&format!("cat {path}"))?.trim().parse()?)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // It is empty or gone: nothing else could be done.
        let _ = output(Command::new("ip").args(["netns", "delete", &self.name]));
    }
}

/// A number that nothing else of this process has.
pub fn number() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
