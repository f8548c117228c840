//! The paths of TCP that `iperf3` and `super` compare: through the chain of `make demo` with the daemon that users run, and
//! through the kernel's routing, nftables with the same rules and masquerading. All paths have the same two ends.

pub mod iperf;
mod kernel;
mod nfluid;

pub use kernel::{KernelPath, Queues};
pub use nfluid::{NfluidPath, Uplinks};

use anyhow::Context;
use nfluid_testbed::interrupt;
use nfluid_testbed::namespace::Namespace;

/// Number of pings between the ends before giving up, one second each.
const TRIES: u32 = 10;

/// Segmentation and aggregation by the kernel's stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offloads {
    /// The path's default settings.
    AsTheyCome,
    /// `tso off gso off gro off` on every veth of the path, and `super: off` at the uplinks: no aggregated packets.
    Off,
}

/// The namespaces of client and server.
pub struct Ends {
    pub client: Namespace,
    pub server: Namespace,
}

impl Ends {
    pub fn new() -> anyhow::Result<Self> {
        let ends = Ends {
            client: Namespace::new()?,
            server: Namespace::new()?,
        };
        ends.both().into_iter().for_each(Namespace::disable_ipv6);
        Ok(ends)
    }

    fn both(&self) -> [&Namespace; 2] {
        [&self.client, &self.server]
    }

    /// Gives the ends their addresses and routes of a path; `interface` is the name of its interface at both ends.
    fn enter(&self, network: Network, interface: &str) -> anyhow::Result<()> {
        let (client, server) = (&self.client, &self.server);
        client.ip(&format!(
            "address add {}/24 dev {interface}",
            network.client()
        ))?;
        client.ip(&format!(
            "route add {}/32 via {}",
            network.server(),
            network.inner_gateway()
        ))?;
        server.ip(&format!(
            "address add {}/24 dev {interface}",
            network.server()
        ))?;
        server.ip(&format!(
            "route add {}/32 via {}",
            network.public(),
            network.outer_gateway()
        ))?;
        Ok(())
    }

    /// Waits until a path forwards.
    ///
    /// # Errors
    /// When no ping is answered.
    pub fn reach(&self, server: &str) -> anyhow::Result<()> {
        let mut answer = Ok(String::new());
        for _ in 0..TRIES {
            interrupt::check()?;
            answer = self.client.run(&format!("ping -c 1 -W 1 {server}"));
            if answer.is_ok() {
                return Ok(());
            }
        }
        answer
            .map(drop)
            .with_context(|| format!("no way to {server}"))
    }
}

/// The addresses of a path: the demo's addresses, with another number in each.
#[derive(Clone, Copy, Debug)]
pub struct Network(u8);

impl Network {
    const VETH: Network = Network(0);
    const KERNEL: Network = Network(1);
    const TAP: Network = Network(2);

    /// The first bytes of the client's network.
    fn inner(self) -> String {
        format!("10.0.{}.", self.0)
    }

    /// The first bytes of the server's network.
    fn outer(self) -> String {
        format!("198.51.{}.", 100 + self.0)
    }

    fn client(self) -> String {
        self.inner() + "2"
    }

    fn inner_gateway(self) -> String {
        self.inner() + "1"
    }

    fn server(self) -> String {
        self.outer() + "2"
    }

    fn outer_gateway(self) -> String {
        self.outer() + "1"
    }

    /// The address that the server sees in place of the client's.
    fn public(self) -> String {
        format!("203.0.113.{}", 1 + self.0)
    }
}
