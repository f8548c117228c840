//! Random connections, and their packets.

use super::groups::{LINK_LOCAL, OTHERS, OWN};
use nfluid_testbed::random::Random;
use nfluid_wire::build::Frame;
use nfluid_wire::{IpProtocol, MacAddr, TcpFlags};
use std::net::{IpAddr, SocketAddr};

const PORTS: [u16; 11] = [1, 2, 67, 68, 80, 81, 82, 443, 546, 547, 65535];
/// Hardware addresses of the guarded port, and of the rest of its network.
pub const MACS: (MacAddr, MacAddr) = (
    MacAddr([2, 0, 0, 0, 0, 0x0a]),
    MacAddr([2, 0, 0, 0, 0, 0x0b]),
);

/// A connection: who opens it, and how.
#[derive(Debug)]
pub struct Connection {
    /// From the instance.
    is_out: bool,
    pub from: SocketAddr,
    pub to: SocketAddr,
    pub kind: Kind,
}

#[derive(Clone, Copy, Debug)]
pub enum Kind {
    Tcp,
    Udp,
    Icmp { kind: u8, code: u8 },
    Other(u8),
}

impl Connection {
    /// Its source port, or its ICMP identifier, tells it from others. `codes`: how many codes queries of ICMP have.
    pub fn random(random: &mut Random, number: u32, codes: u32) -> Connection {
        let family = random.below(2) as usize;
        let is_out = random.one_in(2);
        let mine = match random.below(8) {
            // The kernel takes the way back of what came from outside for a reply from anywhere.
            0 if is_out => random.pick(&OTHERS)[family],
            1 if family == 1 => LINK_LOCAL,
            _ => OWN[family],
        };
        let others = random.pick(&OTHERS)[family];
        let kind = match random.below(6) {
            0 | 1 => Kind::Tcp,
            2 | 3 => Kind::Udp,
            4 => Kind::Icmp {
                kind: [random.pick(&[8, 13]), 128][family],
                code: random.below(codes) as u8,
            },
            _ => Kind::Other(random.pick(&[50, 200])),
        };
        // To the kernel, queries of one identifier and two codes are two flows.
        let source = match random.one_in(4) && !matches!(kind, Kind::Icmp { .. }) {
            true => random.pick(&PORTS),
            false => 1024 + (number % 60_000) as u16,
        };
        let (from, to) = if is_out {
            (mine, others)
        } else {
            (others, mine)
        };
        let ip = |text: &str| text.parse::<IpAddr>().expect("an address");
        Connection {
            is_out,
            from: SocketAddr::new(ip(from), source),
            to: SocketAddr::new(ip(to), random.pick(&PORTS)),
            kind,
        }
    }

    pub fn opening(&self) -> (u8, Vec<u8>) {
        let Connection { from, to, .. } = *self;
        let frame = match self.kind {
            Kind::Tcp => Frame::tcp(from, to, TcpFlags::SYN).sequence(100, 0),
            Kind::Udp => Frame::udp(from, to),
            Kind::Icmp { kind, code } => Frame::icmp(from.ip(), to.ip(), kind, code, self.ident()),
            Kind::Other(number) => Frame::ip(from.ip(), to.ip(), IpProtocol(number)),
        };
        self.written(frame, self.is_out)
    }

    pub fn reply(&self) -> (u8, Vec<u8>) {
        let Connection { from, to, .. } = *self;
        let frame = match self.kind {
            Kind::Tcp => Frame::tcp(to, from, TcpFlags(0x12)).sequence(900, 101),
            Kind::Udp => Frame::udp(to, from),
            Kind::Icmp { kind, code } => {
                let kind = match kind {
                    8 => 0,
                    other => other + 1,
                };
                Frame::icmp(to.ip(), from.ip(), kind, code, self.ident())
            }
            Kind::Other(number) => Frame::ip(to.ip(), from.ip(), IpProtocol(number)),
        };
        self.written(frame, !self.is_out)
    }

    fn ident(&self) -> [u8; 4] {
        let [a, b] = self.from.port().to_be_bytes();
        [a, b, 0, 1]
    }

    fn written(&self, frame: Frame<'_>, is_out: bool) -> (u8, Vec<u8>) {
        let (mac, other) = MACS;
        let (macs, port) = match is_out {
            true => ((mac, other), 0),
            false => ((other, mac), 1),
        };
        let mut buffer = [0; 128];
        let len = frame.macs(macs.0, macs.1).write(&mut buffer, b"nfluid!!");
        (port, buffer[..len.expect("it fits")].to_vec())
    }
}
