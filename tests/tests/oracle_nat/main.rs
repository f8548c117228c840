//! The promise: the NAT translates as the Linux kernel does. The same conversations - UDP, TCP, ICMP queries, ICMP errors
//! both ways, a forwarded port, hairpins - through both give the same frames.
//!
//! Equal means equal bytes from the IP header on, but for what the two may choose or do differently: the external port
//! (each side is answered at its own, and the kernel's is replaced before the comparison), the TTL (the kernel routes,
//! the NAT is a bump in the wire) and the identification of what may be fragmented and leaves from the external address (the
//! kernel keeps it, the NAT gives it another). Fragments are left out: the kernel puts them together first.

mod conversation;
mod kernel;

use conversation::{Conversation, Kind, Random, Step};
use nfluid_nf::testing::run;
use nfluid_nf::{Nanos, NetworkFunction, PortInfo, catalogue};
use nfluid_tests::harness::oracle::{OnPort, Oracle};
use nfluid_tests::harness::skip::is_root;
use nfluid_wire::ChecksumState::Complete;
use nfluid_wire::checksum::{Delta, TransportDelta};
use nfluid_wire::icmpv4::Icmpv4Packet;
use nfluid_wire::ipv4::Ipv4Packet;
use nfluid_wire::tcp::{self, TcpPacket};
use nfluid_wire::udp::UdpPacket;
use nfluid_wire::{IpProtocol, MacAddr, PacketMeta};
use serde_json::json;
use std::net::Ipv4Addr;

/// The external address, which is also the kernel's own outside.
pub const EXTERNAL: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);
/// The router behind the NAT's outside port.
pub const UPSTREAM: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 254);
/// Where port 80 of the external address leads, at port 8080.
pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
/// The hosts inside.
pub const HOSTS: [Ipv4Addr; 4] = [
    SERVER,
    Ipv4Addr::new(10, 0, 0, 3),
    Ipv4Addr::new(10, 0, 0, 4),
    Ipv4Addr::new(10, 0, 0, 5),
];
/// MAC addresses of the NAT's inside port and of everybody beyond it.
pub const INSIDE_MACS: (MacAddr, MacAddr) =
    (MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 1, 1]));
/// The same of the outside port.
pub const OUTSIDE_MACS: (MacAddr, MacAddr) =
    (MacAddr([2, 0, 0, 0, 0, 2]), MacAddr([2, 0, 0, 0, 1, 2]));

/// Conversations under way at once, and steps of a run.
const CONVERSATIONS: usize = 24;
const STEPS: usize = 4000;
const SEED: u64 = 0x6e66_6c75_6964;

/// The NAT under test.
struct Ours {
    nf: Box<dyn NetworkFunction>,
    now: Nanos,
}

impl Ours {
    fn new() -> Ours {
        let config = json!({
            "pool": [EXTERNAL.to_string()],
            "inside": ["10.0.0.0/24"],
            "forward": [format!("tcp {EXTERNAL}:80 -> {SERVER}:8080")],
            "filtering": "address-and-port",
            "seed": SEED,
        });
        let port = |name: &str, mac| PortInfo {
            name: name.into(),
            mac,
            mtu: 1500,
        };
        let ports = [
            port("inside", INSIDE_MACS.0),
            port("outside", OUTSIDE_MACS.0),
        ];
        let nf = catalogue::build("nat", &config, &ports).expect("a valid configuration");
        let now = Nanos::from_secs(1);
        Ours { nf, now }
    }

    fn translate(&mut self, frame: &OnPort) -> Vec<OnPort> {
        self.now = Nanos(self.now.0 + 1_000_000);
        run(&mut *self.nf, self.now, std::slice::from_ref(frame))
    }
}

// promise: 10.8
#[test]
fn the_nat_translates_as_the_kernel_does() {
    if !is_root("the_nat_translates_as_the_kernel_does") {
        return;
    }
    let mut kernel = kernel::kernel();
    let mut ours = Ours::new();
    let mut random = Random::new(SEED);
    // The server speaks first, so that the NAT knows its hardware address, as the kernel does.
    ours.translate(&(0, conversation::greeting()));
    let mut conversations: Vec<Conversation> = Vec::new();
    let mut compared = [0; Kind::COUNT];
    let mut digressions = [0; 3];
    for number in 0..STEPS {
        while conversations.len() < CONVERSATIONS {
            let next = Conversation::random(&mut random);
            if !conversations.iter().any(|other| other.collides_with(&next)) {
                conversations.push(next);
            }
        }
        let chosen = random.below(conversations.len() as u64) as usize;
        let conversation = &mut conversations[chosen];
        let Some(step) = conversation.next_step(&mut random) else {
            conversations.swap_remove(chosen);
            continue;
        };
        match step {
            Step::Message { .. } => {}
            Step::ErrorFromOutside { .. } => digressions[0] += 1,
            Step::ErrorFromInside { .. } => digressions[1] += 1,
            Step::Stranger => digressions[2] += 1,
        }
        let place = format!("step {number}: {step:?} of {conversation}");
        play(conversation, &step, &mut kernel, &mut ours, &place);
        compared[conversation.kind as usize] += 1;
    }
    for kind in Kind::ALL {
        assert!(
            compared[kind as usize] > 50,
            "{kind:?}: {} compared",
            compared[kind as usize]
        );
    }
    assert!(
        digressions.iter().all(|&count| count > 50),
        "errors from outside, from inside, strangers: {digressions:?}"
    );
}

/// Plays one step on both sides and compares.
fn play(
    conversation: &mut Conversation,
    step: &Step,
    kernel: &mut Oracle,
    ours: &mut Ours,
    place: &str,
) {
    let theirs = kernel.pass(&conversation.frame(step, 0));
    let own = ours.translate(&conversation.frame(step, 1));
    if *step == Step::Stranger {
        assert!(
            theirs.is_empty() && own.is_empty(),
            "{place}: a stranger came through"
        );
        return;
    }
    let ([(their_port, theirs)], [(own_port, own)]) = (&theirs[..], &own[..]) else {
        panic!(
            "{place}: the kernel sends {}, the NAT {}",
            theirs.len(),
            own.len()
        );
    };
    assert_eq!(their_port, own_port, "{place}: another port");
    assert_sums(theirs, place);
    assert_sums(own, place);
    let mut theirs = theirs.clone();
    let mut ip = Ipv4Packet::new_unchecked(&mut theirs[14..]);
    ip.set_ttl(ip.ttl() + 1);
    ip.fill_checksum();
    conversation.note_output(step, [&theirs, own]);
    replace_external_port(&mut theirs[14..], conversation.external);
    replace_identification(&mut theirs[14..], &own[14..]);
    assert_eq!(theirs[14..], own[14..], "{place}");
}

/// Panics unless the IPv4 and transport checksums of a frame are right.
fn assert_sums(frame: &[u8], place: &str) {
    let ip = Ipv4Packet::new_checked(&frame[14..]).expect("IPv4");
    assert!(ip.verify_checksum(), "{place}: IPv4 checksum");
    let (payload, pseudo) = (ip.payload(), ip.pseudo_header());
    let right = match ip.protocol() {
        IpProtocol::UDP => {
            UdpPacket::new_checked(payload).is_ok_and(|p| p.verify_checksum(pseudo, Complete))
        }
        IpProtocol::TCP => {
            TcpPacket::new_checked(payload).is_ok_and(|p| p.verify_checksum(pseudo, Complete))
        }
        _ => Icmpv4Packet::new_checked(payload).is_ok_and(|p| p.verify_checksum()),
    };
    assert!(right, "{place}: transport checksum");
}

/// Where a packet carries the kernel's external port, puts the NAT's instead, with all checksums.
fn replace_external_port(packet: &mut [u8], [theirs, own]: [u16; 2]) {
    if theirs == own {
        return;
    }
    let mut ip = Ipv4Packet::new_unchecked(packet);
    let from_external = ip.src() == EXTERNAL;
    let (protocol, pseudo) = (ip.protocol(), ip.pseudo_header());
    let message = ip.payload_mut();
    let is_error = protocol == IpProtocol::ICMPV4 && matches!(message[0], 3 | 11 | 12);
    if !from_external {
        return;
    }
    if is_error {
        replace_in_quotation(&mut message[8..], [theirs, own]);
        Icmpv4Packet::new_unchecked(message).fill_checksum();
    } else if source_port(message, protocol) == theirs {
        set_source_port(message, protocol, own, pseudo);
    }
}

/// Where a packet left the external address and may be fragmented, puts the NAT's identification; also where an error quotes it.
fn replace_identification(theirs: &mut [u8], own: &[u8]) {
    let replace = |theirs: &mut [u8], own: &[u8]| {
        let mut ip = Ipv4Packet::new_unchecked(theirs);
        if !ip.dont_fragment() {
            ip.set_ident(Ipv4Packet::new_unchecked(own).ident());
            ip.fill_checksum();
        }
    };
    let ip = Ipv4Packet::new_unchecked(&*theirs);
    let message = ip.header_len();
    let is_error = ip.protocol() == IpProtocol::ICMPV4 && matches!(theirs[message], 3 | 11 | 12);
    if ip.src() == EXTERNAL {
        replace(theirs, own);
    } else if is_error {
        let quoted = message + 8;
        replace(&mut theirs[quoted..], &own[quoted..]);
        Icmpv4Packet::new_unchecked(&mut theirs[message..]).fill_checksum();
    }
}

/// The source port, or the identifier of a query.
fn source_port(message: &[u8], protocol: IpProtocol) -> u16 {
    match protocol {
        IpProtocol::UDP | IpProtocol::TCP => u16::from_be_bytes([message[0], message[1]]),
        _ => Icmpv4Packet::new_unchecked(message).echo_ident(),
    }
}

fn set_source_port(message: &mut [u8], protocol: IpProtocol, port: u16, pseudo: u16) {
    match protocol {
        IpProtocol::UDP => {
            let mut udp = UdpPacket::new_unchecked(message);
            udp.set_src_port(port);
            if udp.checksum() != 0 {
                udp.fill_checksum(pseudo, Complete);
            }
        }
        IpProtocol::TCP => {
            let mut tcp = TcpPacket::new_unchecked(message);
            tcp.set_src_port(port);
            tcp.fill_checksum(pseudo, Complete);
        }
        _ => {
            let mut icmp = Icmpv4Packet::new_unchecked(message);
            icmp.set_echo_ident(port);
            icmp.fill_checksum();
        }
    }
}

/// An error from inside quotes what the external port received.
fn replace_in_quotation(quoted: &mut [u8], [theirs, own]: [u16; 2]) {
    let meta = PacketMeta::parse_quoted(quoted).expect("a quoted packet");
    let delta = Delta::new().replace_u16(theirs, own);
    let change = TransportDelta::new(Delta::new(), delta);
    let message = &mut quoted[usize::from(meta.l4_offset)..];
    if meta.protocol == IpProtocol::UDP && meta.dst_port == theirs {
        let mut udp = UdpPacket::new_unchecked(message);
        udp.set_dst_port(own);
        udp.update_checksum(change, Complete);
    } else if meta.protocol == IpProtocol::TCP && meta.dst_port == theirs {
        let has_checksum = message.len() >= tcp::HEADER_LEN;
        let mut segment = TcpPacket::new_unchecked(message);
        segment.set_dst_port(own);
        if has_checksum {
            segment.update_checksum(change, Complete);
        }
    } else if meta.protocol == IpProtocol::ICMPV4 && meta.icmp_ident == theirs {
        let mut query = Icmpv4Packet::new_unchecked(message);
        query.set_echo_ident(own);
        query.update_checksum(delta);
    }
}
