//! Two ends on two segments, each of which is a bridge in a namespace of its own with a leg to each of two hosts: an instance can move from one host to
//! the other.

use nfluid_testbed::namespace::Namespace;
use std::net::{Ipv4Addr, SocketAddrV4};

/// The address of the first end.
pub const CLIENT: &str = "10.0.0.1";
/// The address of the second end.
pub const SERVER: &str = "10.0.0.2";
/// Where datagrams go.
pub const TO: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), 53);

/// The namespaces.
pub struct Segments {
    /// The first end, on `lan`.
    pub client: Namespace,
    /// The second end, on `wan`.
    pub server: Namespace,
    /// The bridges.
    pub bridges: Namespace,
    /// The hosts, each with the interfaces `lan` and `wan`.
    pub hosts: [Namespace; 2],
}

impl Segments {
    /// Makes the segments.
    ///
    /// # Errors
    /// When `ip` refuses.
    pub fn new() -> anyhow::Result<Self> {
        let [client, server] = [Namespace::new()?, Namespace::new()?];
        let [bridges, a, b] = [Namespace::new()?, Namespace::new()?, Namespace::new()?];
        for (end, segment, address) in [(&client, "lan", CLIENT), (&server, "wan", SERVER)] {
            bridges.ip(&format!("link add {segment} type bridge"))?;
            bridges.ip(&format!("link set {segment} up"))?;
            let ports = [("e", end, "eth0"), ("a", &a, segment), ("b", &b, segment)];
            for (name, place, interface) in ports {
                let port = format!("{segment}-{name}");
                Namespace::join((place, interface), (&bridges, &port))?;
                bridges.ip(&format!("link set {port} master {segment}"))?;
            }
            end.ip(&format!("address add {address}/24 dev eth0"))?;
        }
        // ARP would have to cross what is measured.
        for (end, other, address) in [(&client, &server, SERVER), (&server, &client, CLIENT)] {
            end.enter_neighbour(address, other)?;
        }
        Ok(Segments {
            client,
            server,
            bridges,
            hosts: [a, b],
        })
    }
    /// Returns all namespaces with their names in tables.
    pub fn all(&self) -> [(&'static str, &Namespace); 5] {
        let [a, b] = &self.hosts;
        [
            ("client", &self.client),
            ("server", &self.server),
            ("bridges", &self.bridges),
            ("edge-a", a),
            ("edge-b", b),
        ]
    }
}
