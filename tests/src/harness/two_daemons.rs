//! Two hosts with a daemon each, in network namespaces of their own, joined by a wire on which tunnels can lead.

use super::command::{must, run};
use super::platform::Platform;
use super::skip::skip;
use super::two_hosts::{CLIENT, SERVER};
use super::within;
use nfluid_testbed::namespace::path_of;

/// Addresses of the hosts on the wire, of one kind and of the other.
pub const WIRE: [[&str; 2]; 2] = [["192.0.2.1", "192.0.2.2"], ["fd00:2::1", "fd00:2::2"]];

/// Two platforms.
pub struct TwoDaemons {
    /// That of the host `client`.
    pub a: Platform,
    /// That of the host `server`.
    pub b: Platform,
}

impl TwoDaemons {
    /// Makes the hosts, `client` at one daemon and `server` at the other, and starts the daemons; `None`: this kernel has no tunnels.
    ///
    /// # Panics
    /// If they cannot be made.
    pub fn wired(test: &str) -> Option<Self> {
        let mut a = Platform::at_rest(test)?;
        let mut b = a.beside(test)?;
        for (platform, host, address) in [(&mut a, "client", CLIENT), (&mut b, "server", SERVER)] {
            platform.run_at_edge();
            platform.host(host, &format!("{address}/24"));
        }
        let (at_a, at_b) = (a.edge(), b.edge());
        let probe = "probe type vxlan id 1 remote 192.0.2.9 dstport 1";
        if !run(&format!("ip -n {at_a} link add {probe}")).succeeded() {
            skip(test, "this kernel has no VXLAN");
            return None;
        }
        must(&format!("ip -n {at_a} link delete probe"));
        must(&format!(
            "ip -n {at_a} link add wire mtu 1600 type veth peer name wire mtu 1600 netns {at_b}"
        ));
        for (index, edge) in [&at_a, &at_b].into_iter().enumerate() {
            // New interfaces would speak IPv6 by themselves.
            within(&path_of(edge), || {
                for which in ["all", "default", "wire"] {
                    let path = format!("/proc/sys/net/ipv6/conf/{which}/disable_ipv6");
                    std::fs::write(path, "0").expect("IPv6");
                }
            });
            must(&format!("ip -n {edge} link set wire up"));
            must(&format!(
                "ip -n {edge} address add {}/24 dev wire",
                WIRE[0][index]
            ));
            must(&format!(
                "ip -n {edge} address add {}/64 dev wire nodad",
                WIRE[1][index]
            ));
        }
        a.start();
        b.start();
        Some(TwoDaemons { a, b })
    }
}
