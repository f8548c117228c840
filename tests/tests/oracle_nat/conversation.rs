//! Random conversations through a NAT, one step at a time, and the frames of each step.

use super::{EXTERNAL, HOSTS, INSIDE_MACS, OUTSIDE_MACS, SERVER, UPSTREAM};
use nfluid_tests::harness::oracle::OnPort;
use nfluid_wire::build::Frame;
use nfluid_wire::udp::UdpPacket;
use nfluid_wire::{PacketMeta, TcpFlags};
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};

const PEERS: [Ipv4Addr; 3] = [
    Ipv4Addr::new(192, 0, 2, 1),
    Ipv4Addr::new(192, 0, 2, 2),
    Ipv4Addr::new(198, 51, 100, 3),
];
/// An address that is no peer of any host.
const STRANGER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 200);
/// Few, so that hosts want the same.
const INSIDE_PORTS: [u16; 5] = [1024, 1025, 5000, 5001, 40_000];
const PEER_PORTS: [u16; 3] = [53, 443, 8443];
const PORT_UNREACHABLE: (u8, u8) = (3, 3);

/// A small generator of random numbers (xorshift64), so that a seed gives the same test for ever.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Random(seed)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 8) % end
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Udp,
    Tcp,
    Echo,
    /// From a peer to the forwarded port.
    Forwarded,
    /// From a host to the forwarded port.
    Hairpin,
}

impl Kind {
    pub const ALL: [Kind; 5] = [
        Kind::Udp,
        Kind::Tcp,
        Kind::Echo,
        Kind::Forwarded,
        Kind::Hairpin,
    ];
    pub const COUNT: usize = Kind::ALL.len();

    fn is_tcp(self) -> bool {
        matches!(self, Kind::Tcp | Kind::Forwarded | Kind::Hairpin)
    }
}

/// One frame of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// From the side that opened the conversation, or the other one, with these TCP flags and so much payload.
    Message {
        opener: bool,
        flags: TcpFlags,
        payload: usize,
        tos: u8,
        sum: bool,
        dont_fragment: bool,
    },
    /// An ICMP error from a router outside, about the last packet that went there.
    ErrorFromOutside { quoted: usize },
    /// An ICMP error from the inside host, about the last packet that came there.
    ErrorFromInside { quoted: usize },
    /// A packet from an address that has no business here.
    Stranger,
}

/// Two ends, and how far they have come.
#[derive(Clone)]
pub struct Conversation {
    pub kind: Kind,
    opener: SocketAddr,
    other: SocketAddr,
    /// The opener's or, for a forward, the server's external port: the kernel's choice and the NAT's.
    pub external: [u16; 2],
    position: usize,
    sequence: [u32; 2],
    /// The last packets that left the NAT for outside, the kernel's and the NAT's.
    sent: Option<[Vec<u8>; 2]>,
    /// The last packet that was delivered inside.
    delivered: Option<Vec<u8>>,
    length: usize,
}

impl fmt::Display for Conversation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, opener, other) = (self.kind, self.opener, self.other);
        write!(
            f,
            "{kind:?} {opener} > {other}, external ports {:?}",
            self.external
        )
    }
}

/// An opening, an exchange, a closing: who sends (the opener?), and which flags.
const TCP: [(bool, TcpFlags); 9] = [
    (true, TcpFlags::SYN),
    (false, TcpFlags(0x12)),
    (true, TcpFlags::ACK),
    (true, TcpFlags(0x18)),
    (false, TcpFlags(0x18)),
    (true, TcpFlags::ACK),
    (true, TcpFlags(0x11)),
    (false, TcpFlags(0x11)),
    (true, TcpFlags::ACK),
];

impl Conversation {
    pub fn random(random: &mut Random) -> Conversation {
        let kind = random.pick(&Kind::ALL);
        let host = SocketAddr::from((random.pick(&HOSTS), random.pick(&INSIDE_PORTS)));
        let peer = SocketAddr::from((random.pick(&PEERS), random.pick(&PEER_PORTS)));
        let client = SocketAddr::from((random.pick(&HOSTS[1..]), host.port()));
        let (opener, other) = match kind {
            Kind::Udp | Kind::Tcp => (host, peer),
            // One identifier for both ends.
            Kind::Echo => (host, SocketAddr::new(peer.ip(), host.port())),
            Kind::Forwarded => (
                SocketAddr::new(peer.ip(), 2000 + random.below(60_000) as u16),
                (EXTERNAL, 80).into(),
            ),
            Kind::Hairpin => (client, (EXTERNAL, 80).into()),
        };
        Conversation {
            kind,
            opener,
            other,
            external: if kind == Kind::Forwarded {
                [80; 2]
            } else {
                [0; 2]
            },
            position: 0,
            sequence: [1000, 5000],
            sent: None,
            delivered: None,
            length: if kind.is_tcp() {
                TCP.len()
            } else {
                2 + random.below(6) as usize
            },
        }
    }

    /// Two conversations that a NAT could not tell apart, or whose connections the kernel would take for one: the same
    /// inside end point (it is also what makes an external port go with one conversation only).
    pub fn collides_with(&self, other: &Conversation) -> bool {
        self.kind.is_tcp() == other.kind.is_tcp() && self.opener == other.opener
    }

    /// The next step; `None` at the end.
    pub fn next_step(&mut self, random: &mut Random) -> Option<Step> {
        if self.position >= self.length {
            return None;
        }
        let quoted = random.pick(&[28, 36, 600]);
        let digression = match random.below(8) {
            0 if self.kind != Kind::Hairpin && self.external[0] != 0 => Some(Step::Stranger),
            1 if self.sent.is_some() => Some(Step::ErrorFromOutside { quoted }),
            2 if self.delivered.is_some() => Some(Step::ErrorFromInside { quoted }),
            _ => None,
        };
        if digression.is_some() {
            return digression;
        }
        let (opener, flags) = if self.kind.is_tcp() {
            TCP[self.position]
        } else {
            // The opener first; then anybody.
            (self.position == 0 || random.below(2) == 0, TcpFlags::NONE)
        };
        self.position += 1;
        let carries = !self.kind.is_tcp() || flags.contains(TcpFlags::PSH);
        Some(Step::Message {
            opener,
            flags,
            payload: if carries {
                random.below(600) as usize
            } else {
                0
            },
            tos: random.below(256) as u8,
            sum: random.below(4) != 0,
            dont_fragment: random.below(2) == 0,
        })
    }

    /// The frame of a step as it arrives at the kernel (`side` 0) or the NAT (1): they differ in the external port.
    pub fn frame(&self, step: &Step, side: usize) -> OnPort {
        let external = SocketAddr::from((EXTERNAL, self.external[side]));
        match *step {
            Step::Message {
                opener,
                flags,
                payload,
                tos,
                sum,
                dont_fragment,
            } => {
                let (port, src, dst) = self.ends(opener, external);
                let [here, there] = if opener { [0, 1] } else { [1, 0] };
                let frame = self.message(src, dst, opener, flags);
                let mut frame = frame.sequence(self.sequence[here], self.sequence[there]);
                frame.dont_fragment = dont_fragment;
                let mut bytes = write(
                    port,
                    frame.traffic_class(tos).ident(payload as u16),
                    payload,
                );
                if self.kind == Kind::Udp && !sum {
                    UdpPacket::new_unchecked(&mut bytes[34..]).set_checksum(0);
                }
                (port, bytes)
            }
            Step::ErrorFromOutside { quoted } => {
                let about = &self.sent.as_ref().expect("there is one")[side];
                (1, error(1, UPSTREAM, EXTERNAL, about, quoted))
            }
            Step::ErrorFromInside { quoted } => {
                let about = self.delivered.as_ref().expect("there is one");
                let (src, dst) = addresses(about);
                (0, error(0, dst, src, about, quoted))
            }
            Step::Stranger => {
                let stranger = SocketAddr::from((STRANGER, 7777));
                let frame = match self.kind {
                    Kind::Udp => Frame::udp(stranger, external),
                    Kind::Echo => {
                        Frame::echo_reply(stranger.ip(), external.ip(), external.port(), 1)
                    }
                    // Not the opening of a connection: port 80 is open to those.
                    _ => Frame::tcp(stranger, external, TcpFlags::FIN),
                };
                (1, write(1, frame, 10))
            }
        }
    }

    /// The port where a message arrives, its source and its destination.
    fn ends(&self, opener: bool, external: SocketAddr) -> (u8, SocketAddr, SocketAddr) {
        let server = SocketAddr::from((SERVER, 8080));
        match (self.kind, opener) {
            (Kind::Forwarded, true) => (1, self.opener, self.other),
            (Kind::Forwarded, false) => (0, server, self.opener),
            (Kind::Hairpin, false) => (0, server, external),
            (_, true) => (0, self.opener, self.other),
            (_, false) => (1, self.other, external),
        }
    }

    fn message(
        &self,
        src: SocketAddr,
        dst: SocketAddr,
        opener: bool,
        flags: TcpFlags,
    ) -> Frame<'static> {
        match (self.kind, opener) {
            (Kind::Udp, _) => Frame::udp(src, dst),
            (Kind::Echo, true) => Frame::echo_request(src.ip(), dst.ip(), src.port(), 1),
            (Kind::Echo, false) => Frame::echo_reply(src.ip(), dst.ip(), dst.port(), 1),
            _ => Frame::tcp(src, dst, flags),
        }
    }

    /// Learns from what came out: the external ports, and what errors may quote.
    pub fn note_output(&mut self, step: &Step, outputs: [&Vec<u8>; 2]) {
        let Step::Message {
            opener,
            flags,
            payload,
            ..
        } = *step
        else {
            return;
        };
        let side = usize::from(!opener);
        let control = flags.intersects(TcpFlags::SYN | TcpFlags::FIN);
        self.sequence[side] += payload as u32 + u32::from(control);
        let towards_outside = (self.kind == Kind::Forwarded) != opener;
        if opener && self.kind != Kind::Forwarded {
            self.external = outputs.map(|frame| {
                let meta = PacketMeta::parse(frame).expect("well-formed");
                meta.src_port | meta.icmp_ident
            });
        }
        if self.kind == Kind::Hairpin {
            return;
        }
        if towards_outside {
            self.sent = Some(outputs.map(|frame| frame.clone()));
        } else {
            self.delivered = Some(outputs[1].clone());
        }
    }
}

/// A packet of the server, so that everybody knows where it is.
pub fn greeting() -> Vec<u8> {
    let (src, dst) = ((SERVER, 9), (PEERS[0], 9));
    write(0, Frame::udp(src.into(), dst.into()), 0)
}

fn write(port: u8, frame: Frame<'_>, payload: usize) -> Vec<u8> {
    let (own, beyond) = if port == 0 { INSIDE_MACS } else { OUTSIDE_MACS };
    let payload: Vec<u8> = (0..payload).map(|i| i as u8).collect();
    let mut buffer = [0; 1514];
    let len = frame
        .macs(beyond, own)
        .write(&mut buffer, &payload)
        .expect("it fits");
    buffer[..len].to_vec()
}

/// "Port unreachable" from `src` to `dst` that quotes the start of the packet in the frame `about`.
fn error(port: u8, src: Ipv4Addr, dst: Ipv4Addr, about: &[u8], quoted: usize) -> Vec<u8> {
    let (own, beyond) = if port == 0 { INSIDE_MACS } else { OUTSIDE_MACS };
    let (kind, code) = PORT_UNREACHABLE;
    let frame = Frame::icmp(src.into(), dst.into(), kind, code, [0; 4]).macs(beyond, own);
    let quotation = &about[14..about.len().min(14 + quoted)];
    let mut buffer = [0; 1514];
    let len = frame.write(&mut buffer, quotation).expect("it fits");
    buffer[..len].to_vec()
}

fn addresses(frame: &[u8]) -> (Ipv4Addr, Ipv4Addr) {
    let ip = nfluid_wire::ipv4::Ipv4Packet::new_unchecked(&frame[14..]);
    (ip.src(), ip.dst())
}
