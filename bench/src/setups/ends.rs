//! Two hosts at the uplinks `lan` and `wan` of one platform, or of two.

use super::stream::Stream;
use nfluid_testbed::namespace::Namespace;
use std::net::{Ipv4Addr, SocketAddrV4};

const CLIENT: &str = "10.0.0.1/16";
const SERVER: &str = "10.1.0.1/16";
const TO: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 1, 0, 1), 53);

/// The hosts.
pub struct Ends {
    client: Namespace,
    server: Namespace,
}

impl Ends {
    /// Joins a client to the interface `lan` of the first namespace, and a server to `wan` of the second one.
    ///
    /// # Errors
    /// The kernel refuses an interface.
    pub fn at([near, far]: [&Namespace; 2]) -> anyhow::Result<Self> {
        let [client, server] = [Namespace::new()?, Namespace::new()?];
        for (end, edge, inner, address) in [
            (&client, near, "lan", CLIENT),
            (&server, far, "wan", SERVER),
        ] {
            Namespace::join((end, "eth0"), (edge, inner))?;
            end.ip(&format!("address add {address} dev eth0"))?;
            end.ip("route add default dev eth0")?;
        }
        // ARP would have to cross firewalls.
        for (end, other, address) in [(&client, &server, SERVER), (&server, &client, CLIENT)] {
            end.enter_neighbour(address.trim_end_matches("/16"), other)?;
        }
        Ok(Ends { client, server })
    }

    /// Returns datagrams from the client to the server.
    ///
    /// # Errors
    /// A socket cannot be made.
    pub fn stream(&self) -> anyhow::Result<Stream> {
        Stream::new(&self.client, &self.server, TO)
    }
}
