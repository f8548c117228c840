//! Random packets, each with a number at its end by which it is known again.

use nfluid_testbed::random::Random;
use nfluid_wire::build::Frame;
use nfluid_wire::ipv6::FragmentInfo;
use nfluid_wire::{IpProtocol, TcpFlags, VlanTag};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

const MARK: &[u8; 8] = b"nfl-orcl";

/// A frame and where it arrives.
#[derive(Debug)]
pub struct Packet {
    /// Port of the firewall.
    pub in_port: u8,
    /// From the Ethernet destination on.
    pub frame: Vec<u8>,
}

/// The number at the end of a frame.
pub fn identifier(frame: &[u8]) -> Option<u32> {
    let (rest, number) = frame.split_last_chunk::<4>()?;
    rest.ends_with(MARK).then(|| u32::from_be_bytes(*number))
}

impl Packet {
    /// A random packet of the world that [`crate::rules`] speaks about.
    pub fn random(random: &mut Random, identifier: u32) -> Packet {
        let v6 = random.one_in(3);
        let (src, dst) = (address(random, v6), address(random, v6));
        let ports = (port(random), port(random));
        let tag = [VlanTag::new((random.below(5) + 1) as u16)];
        let mut tail = MARK.to_vec();
        tail.extend(identifier.to_be_bytes());
        let frame = random_frame(random, src, dst, ports);
        let mut frame = if random.one_in(4) {
            frame.vlans(&tag)
        } else {
            frame
        };
        if random.one_in(6) {
            frame = fragment(random, frame, ports, &mut tail);
        }
        let mut buffer = [0; 256];
        let len = frame
            .write(&mut buffer, &tail)
            .expect("the buffer is large enough");
        Packet {
            in_port: random.below(2) as u8,
            frame: buffer[..len].to_vec(),
        }
    }
}

fn random_frame(
    random: &mut Random,
    src: IpAddr,
    dst: IpAddr,
    (src_port, dst_port): (u16, u16),
) -> Frame<'static> {
    let (from, to) = (
        SocketAddr::new(src, src_port),
        SocketAddr::new(dst, dst_port),
    );
    match random.below(8) {
        0..=2 => Frame::tcp(from, to, TcpFlags(random.below(256) as u8)),
        3..=5 => Frame::udp(from, to),
        6 => {
            let kind = random.pick(&[0, 3, 8, 128, 129]);
            Frame::icmp(src, dst, kind, random.below(2) as u8, [0, 1, 0, 1])
        }
        _ => Frame::ip(src, dst, IpProtocol(random.pick(&[47, 50, 200]))),
    }
}

/// A fragment of it; the first one begins with a UDP header.
fn fragment<'a>(
    random: &mut Random,
    frame: Frame<'a>,
    (src_port, dst_port): (u16, u16),
    payload: &mut Vec<u8>,
) -> Frame<'a> {
    let offset = random.pick(&[0, 0, 8, 1480]);
    let more = offset == 0 || random.one_in(2);
    let mut header = Vec::new();
    for word in [src_port, dst_port, 2000, 0] {
        header.extend(u16::to_be_bytes(word));
    }
    payload.splice(0..0, header);
    let ident = random.below(1 << 16);
    Frame::ip(frame.src, frame.dst, IpProtocol::UDP)
        .vlans(frame.vlans)
        .fragment(FragmentInfo {
            offset,
            more,
            ident,
        })
}

fn address(random: &mut Random, v6: bool) -> IpAddr {
    let (area, net, host) = (random.below(5), random.below(4), random.below(4));
    if v6 {
        let segments = [0x2001, 0xdb8, area as u16, net as u16, 0, 0, 0, host as u16];
        Ipv6Addr::from(segments).into()
    } else {
        Ipv4Addr::new(10, area as u8, net as u8, host as u8).into()
    }
}

fn port(random: &mut Random) -> u16 {
    random.pick(&[
        0, 1, 2, 3, 4, 79, 80, 81, 443, 444, 1023, 1024, 65534, 65535,
    ])
}
