//! Two network namespaces of a test, joined by a veth pair: `n0` in one, `n1` in the other.

use nfluid_netdev::Place;
use std::net::{SocketAddr, UdpSocket};
use std::process::Command;
use std::time::Duration;

const OWN: &str = "192.0.2.1";
const PEER: &str = "192.0.2.2";
/// Longest time for a packet to arrive.
const PATIENCE: Duration = Duration::from_secs(10);

/// The namespaces; removed when dropped.
pub struct Namespaces {
    /// The namespace of `n0`.
    pub own: String,
    peer: String,
}

impl Namespaces {
    pub fn new(name: &str) -> Self {
        let id = std::process::id();
        let namespaces = Namespaces {
            own: format!("{name}-{id}-own"),
            peer: format!("{name}-{id}-peer"),
        };
        let (own, peer) = (&namespaces.own, &namespaces.peer);
        for command in [
            format!("netns add {own}"),
            format!("netns add {peer}"),
            format!("-n {own} link add n0 type veth peer name n1 netns {peer}"),
            format!("-n {own} addr add {OWN}/24 dev n0"),
            format!("-n {peer} addr add {PEER}/24 dev n1"),
            format!("-n {own} link set n0 up"),
            format!("-n {peer} link set n1 up"),
        ] {
            assert!(ip(&command), "ip {command}");
        }
        namespaces
    }

    /// Sends `packets` packets into `n0`, one after the other. Returns how many have arrived.
    pub fn send(&self, packets: usize) -> usize {
        let receiver = within(&self.own, || UdpSocket::bind((OWN, 0)));
        receiver
            .set_read_timeout(Some(PATIENCE))
            .expect("a socket has one");
        let to: SocketAddr = receiver.local_addr().expect("it is bound");
        let sender = within(&self.peer, || UdpSocket::bind((PEER, 0)));
        let passes = |_: &usize| {
            sender.send_to(b"packet", to).expect("it is up");
            receiver.recv(&mut [0; 64]).is_ok()
        };
        (0..packets).filter(passes).count()
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for namespace in [&self.own, &self.peer] {
            ip(&format!("netns del {namespace}"));
        }
    }
}

fn ip(arguments: &str) -> bool {
    let done = Command::new("ip").args(arguments.split(' ')).status();
    done.is_ok_and(|status| status.success())
}

fn within(namespace: &str, make: impl FnOnce() -> std::io::Result<UdpSocket> + Send) -> UdpSocket {
    let place = Place {
        interface: String::new(),
        netns: Some(nfluid_control::netns::path(namespace)),
    };
    let made = place.within(|| Ok(make()));
    made.expect("the namespace is there").expect("a socket")
}
