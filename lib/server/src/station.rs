//! The network stack of a server: its addresses, its neighbours, and one socket for each connection that it can have.

use crate::config::Endpoint;
use crate::exchange::Exchange;
use alloc::vec;
use alloc::vec::Vec;
use core::net::IpAddr;
use nfluid_nf::{Nanos, PortInfo};
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::socket::tcp::{Socket, SocketBuffer, State};
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, HardwareAddress, IpCidr};

/// Bytes that wait in a socket, each way.
const BUFFER: usize = 4096;

/// The network stack.
pub struct Station {
    interface: Interface,
    sockets: SocketSet<'static>,
    handles: Vec<SocketHandle>,
    port: u16,
}

impl Station {
    /// Makes a stack with these addresses whose sockets all listen on `port`. `device` says what frames it can have.
    pub fn new(
        endpoint: &Endpoint,
        port: u16,
        link: &PortInfo,
        seed: u64,
        device: &mut Exchange<'_, '_>,
    ) -> Self {
        let address = HardwareAddress::Ethernet(EthernetAddress(link.mac.0));
        let mut config = Config::new(address);
        config.random_seed = seed;
        let mut interface = Interface::new(config, device, Instant::ZERO);
        interface.update_ip_addrs(|addresses| {
            for net in &endpoint.addresses {
                // There is room for as many as a configuration can have.
                let _ = addresses.push(IpCidr::new(net.addr().into(), net.prefix_len()));
            }
        });
        let routes = interface.routes_mut();
        for gateway in &endpoint.gateways {
            // As above, for one of each version.
            let _ = match gateway {
                IpAddr::V4(it) => routes.add_default_ipv4_route(*it),
                IpAddr::V6(it) => routes.add_default_ipv6_route(*it),
            };
        }
        let mut sockets = SocketSet::new(Vec::with_capacity(endpoint.connections));
        let handles = (0..endpoint.connections).map(|_| sockets.add(listening(port)));
        let handles = handles.collect();
        Station {
            interface,
            sockets,
            handles,
            port,
        }
    }

    /// Takes in what has arrived and sends what can be sent.
    pub fn poll(&mut self, now: Nanos, exchange: &mut Exchange<'_, '_>) {
        self.interface
            .poll(instant(now), exchange, &mut self.sockets);
    }

    /// Returns the time at which there is something to do if nothing arrives.
    pub fn next(&mut self, now: Nanos) -> Option<Nanos> {
        let at = self.interface.poll_at(instant(now), &self.sockets)?;
        let micros = u64::try_from(at.total_micros()).unwrap_or(0);
        Some(Nanos(micros.saturating_mul(1000)))
    }

    /// Number of sockets.
    pub fn sockets(&self) -> usize {
        self.handles.len()
    }

    /// A socket.
    pub fn socket(&mut self, index: usize) -> &mut Socket<'static> {
        self.sockets.get_mut(self.handles[index])
    }

    /// Has a socket wait for the next client. It is another one: a socket that is used again would first wait for the MAC
    /// address of its former client.
    pub fn listen(&mut self, index: usize) {
        self.sockets.remove(self.handles[index]);
        self.handles[index] = self.sockets.add(listening(self.port));
    }

    /// Returns true if the socket is for the next client.
    pub fn is_listening(&mut self, index: usize) -> bool {
        self.socket(index).state() == State::Listen
    }
}

fn listening(port: u16) -> Socket<'static> {
    let buffer = || SocketBuffer::new(vec![0; BUFFER]);
    let mut socket = Socket::new(buffer(), buffer());
    socket.set_ack_delay(None);
    socket.set_nagle_enabled(false);
    // Refused for port 0 and for an open socket, which this is not.
    let _ = socket.listen(port);
    socket
}

fn instant(now: Nanos) -> Instant {
    Instant::from_micros(i64::try_from(now.0 / 1000).unwrap_or(i64::MAX))
}
