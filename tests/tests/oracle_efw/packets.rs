//! Random packets of the world that the rules speak about.

use crate::kernel::MACS;
use nfluid_testbed::random::Random;
use nfluid_tests::harness::oracle::OnPort;
use nfluid_wire::build::Frame;
use nfluid_wire::{IpProtocol, TcpFlags};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

const NOWHERE: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 7));

/// A packet, and on which side it arrives: mostly on that of the fast path. `number` tells it from all others.
pub fn random(random: &mut Random, number: u32) -> OnPort {
    let port = u8::from(random.one_in(5));
    let v6 = random.one_in(3);
    let (mut src, dst) = (host(random, port, v6), destination(random, port, v6));
    if dst == NOWHERE {
        // The kernel tells each source at most once a second that there is no way.
        src = Ipv4Addr::from_bits(0x0a09_0000 + (number & 0xffff)).into();
    }
    let ports = (service(random), service(random));
    let (own, hosts) = MACS[usize::from(port)];
    let to = if random.one_in(40) { hosts } else { own };
    let mut frame = of_kind(random, src, dst, ports).macs(hosts, to);
    if random.one_in(20) {
        frame = frame.ttl(1);
    }
    let mut buffer = [0; 256];
    let tail = number.to_be_bytes();
    let len = frame.write(&mut buffer, &tail).expect("it fits");
    (port, buffer[..len].to_vec())
}

fn of_kind(
    random: &mut Random,
    src: IpAddr,
    dst: IpAddr,
    (sport, dport): (u16, u16),
) -> Frame<'static> {
    let (from, to) = (SocketAddr::new(src, sport), SocketAddr::new(dst, dport));
    match random.below(8) {
        0..=2 => Frame::tcp(from, to, TcpFlags(random.pick(&[2, 16, 18, 4]))),
        3..=5 => Frame::udp(from, to),
        6 => {
            let kind = if src.is_ipv4() { 8 } else { 128 };
            Frame::icmp(src, dst, kind, 0, [0, 1, 0, 1])
        }
        _ => Frame::ip(src, dst, IpProtocol(random.pick(&[47, 132, 200]))),
    }
}

/// A host on a side.
fn host(random: &mut Random, port: u8, v6: bool) -> IpAddr {
    let host = random.below(4) as u8 + 2;
    address(port, host, v6)
}

/// Behind the other side, the router itself, on the same side, or nowhere.
fn destination(random: &mut Random, port: u8, v6: bool) -> IpAddr {
    match random.below(10) {
        0 => address(port, 1, v6),
        1 => address(port ^ 1, 1, v6),
        2 => host(random, port, v6),
        3 if v6 => Ipv6Addr::new(0x2001, 0xdb8, 0xdead, 0, 0, 0, 0, 1).into(),
        3 => NOWHERE,
        _ => host(random, port ^ 1, v6),
    }
}

fn address(port: u8, host: u8, v6: bool) -> IpAddr {
    match (port, v6) {
        (0, false) => Ipv4Addr::new(10, 0, 0, host).into(),
        (_, false) => Ipv4Addr::new(192, 0, 2, host).into(),
        (port, true) => {
            let net = u16::from(port);
            Ipv6Addr::new(0x2001, 0xdb8, net, 0, 0, 0, 0, u16::from(host)).into()
        }
    }
}

fn service(random: &mut Random) -> u16 {
    random.pick(&[1, 22, 53, 79, 80, 81, 443, 1023, 1024, 1025, 65535])
}
