//! The hosts of the TCP flows; each flow passes its own NF.

use super::flow::Client;
use anyhow::Context;
use nfluid_testbed::flood::{Flood, Sending};
use nfluid_testbed::interrupt;
use nfluid_testbed::namespace::Namespace;
use nfluid_testbed::process::Background;
use std::process::Command;
use std::time::Duration;

/// The NFs' core.
pub const OF_NFS: u32 = 0;
pub const OF_ENDS: u32 = 1;
/// Number of pings between the ends before giving up.
const TRIES: u32 = 20;

/// A flow's two hosts.
pub struct Ends {
    flow: u8,
    client: Namespace,
    server: Namespace,
}

impl Ends {
    /// Makes two hosts whose interfaces end in `outside` as `leftN` and `rightN`.
    ///
    /// # Errors
    /// A command that makes the ends fails.
    pub fn new(outside: &Namespace, flow: u8) -> anyhow::Result<Self> {
        let ends = Ends {
            flow,
            client: Namespace::new()?,
            server: Namespace::new()?,
        };
        for (host, side, last) in [(&ends.client, "left", 1), (&ends.server, "right", 2)] {
            let outer = format!("{side}{flow}");
            join(
                (host, "eth0"),
                (outside, &outer),
                &format!("10.0.{flow}.{last}/24"),
            )?;
        }
        Ok(ends)
    }

    /// Starts the server.
    ///
    /// # Errors
    /// When iperf3 cannot be started.
    pub fn serve(&self) -> anyhow::Result<Background> {
        let mut command = pinned(&self.server, "iperf3");
        command.arg("-s");
        Background::start(&mut command)
    }

    /// Starts a flow that ends by itself after `time`.
    ///
    /// # Errors
    /// When iperf3 cannot be started.
    pub fn client(&self, control: &str, time: Duration) -> anyhow::Result<Client> {
        let command = pinned(&self.client, "iperf3");
        Client::start(command, &format!("10.0.{}.2", self.flow), control, time)
    }

    /// Floods the server's host with datagrams.
    ///
    /// # Errors
    /// As for [`Flood::start`].
    pub fn flood(&self) -> anyhow::Result<Flood> {
        let to = format!("10.0.{}.2:9", self.flow);
        let sending = Sending {
            core: Some(OF_ENDS as usize),
            ..Sending::default()
        };
        Flood::start(&self.client.path(), &to, sending)
    }

    /// Waits until the path forwards, and the rings have no frames of an earlier variant.
    ///
    /// # Errors
    /// `ping` fails.
    pub fn reach(&self) -> anyhow::Result<()> {
        reach(&self.client, &format!("10.0.{}.2", self.flow))
    }

    /// Enables or disables ECN negotiation by the ends' TCP.
    ///
    /// # Errors
    /// `sysctl` fails.
    pub fn set_ecn(&self, on: bool) -> anyhow::Result<()> {
        [&self.client, &self.server]
            .into_iter()
            .try_for_each(|end| set_ecn(end, on))
    }
}

/// Joins a host's interface with `address` to the namespace of the platform's interfaces; offloads are off.
///
/// # Errors
/// A command fails.
pub fn join(
    (host, interface): (&Namespace, &str),
    outer: (&Namespace, &str),
    address: &str,
) -> anyhow::Result<()> {
    Namespace::join((host, interface), outer)?;
    host.run(&format!("ethtool -K {interface} tso off gso off gro off"))?;
    host.ip(&format!("address add {address} dev {interface}"))?;
    Ok(())
}

/// Waits until `address` answers `host`.
///
/// # Errors
/// `ping` fails.
pub fn reach(host: &Namespace, address: &str) -> anyhow::Result<()> {
    let mut answer = Ok(String::new());
    for _ in 0..TRIES {
        interrupt::check()?;
        answer = host.run(&format!("ping -q -c 1 -W 2 {address}"));
        if answer.is_ok() {
            return Ok(());
        }
    }
    answer.map(drop).context("no way between the ends")
}

/// Enables or disables ECN negotiation by a host's TCP.
///
/// # Errors
/// `sysctl` fails.
pub fn set_ecn(host: &Namespace, on: bool) -> anyhow::Result<()> {
    let word = u8::from(on);
    host.run(&format!("sysctl -qw net.ipv4.tcp_ecn={word}"))?;
    Ok(())
}

/// Returns the command of a program on a host, on the ends' core.
fn pinned(host: &Namespace, program: &str) -> Command {
    let mut command = host.command("taskset");
    command.args(["-c", &OF_ENDS.to_string(), program]);
    command
}
