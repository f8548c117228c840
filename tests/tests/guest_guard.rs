//! The guard's fast path on each kernel, packet in, packet out: it answers SYNs by cookies, and keeps to its limits.

use nfluid_evnf::balancer::{self, Balancer};
use nfluid_evnf::chain::Chain;
use nfluid_evnf::firewall::{self, Firewall};
use nfluid_evnf::guard::{Exit, Guard, Limit, Settings, Sizes};
use nfluid_evnf::load::Action;
use nfluid_tests::harness::oracle::Namespaces;
use nfluid_tests::harness::skip::is_root;
use nfluid_wire::build::Frame;
use nfluid_wire::ether::EthernetFrame;
use nfluid_wire::ipv4::Ipv4Packet;
use nfluid_wire::ipv6::{FragmentInfo, Ipv6Packet, pseudo_header};
use nfluid_wire::tcp::TcpPacket;
use nfluid_wire::{ChecksumState, IpProtocol, MacAddr, TcpFlags, VlanTag};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Instant;

const CLIENTS: [&str; 2] = ["198.51.100.7:4000", "[2001:db8:7::7]:4000"];
const ENDS: [&str; 2] = ["203.0.113.1:80", "[2001:db8::1]:80"];
const CLIENT_MAC: MacAddr = MacAddr([2, 0, 0, 0, 1, 1]);
const OWN_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const SEQUENCE: u32 = 0xffff_fff0;
/// The options of a client: segments of 1400 bytes, selective acknowledgements, window scaling.
const OPTIONS: [u8; 12] = [2, 4, 5, 120, 4, 2, 3, 3, 7, 1, 1, 0];

fn at(text: &str) -> SocketAddr {
    text.parse().expect("an address and a port")
}

fn bytes(frame: Frame<'_>) -> Vec<u8> {
    let mut buffer = [0; 256];
    let len = frame
        .macs(CLIENT_MAC, OWN_MAC)
        .write(&mut buffer, &[0; 20])
        .expect("it fits");
    buffer[..len].to_vec()
}

fn udp(from: &str, to: &str) -> Vec<u8> {
    bytes(Frame::udp(at(from), at(to)))
}

/// Returns the packet in a frame for several hosts.
fn to_group(mut packet: Vec<u8>) -> Vec<u8> {
    packet[0] |= 1;
    packet
}

/// A segment without data.
fn tcp(from: &str, to: &str, flags: TcpFlags, numbers: (u32, u32), options: &[u8]) -> Vec<u8> {
    let frame = Frame::tcp(at(from), at(to), flags)
        .sequence(numbers.0, numbers.1)
        .tcp_options(options)
        .macs(CLIENT_MAC, OWN_MAC);
    let mut buffer = [0; 256];
    let len = frame.write(&mut buffer, &[]).expect("it fits");
    buffer[..len].to_vec()
}

fn syn(from: &str, to: &str) -> Vec<u8> {
    tcp(from, to, TcpFlags::SYN, (SEQUENCE, 0), &OPTIONS)
}

/// A packet in a second.
const RARE: Limit = Limit {
    packets: 1,
    burst: 1,
};

/// Protects [`ENDS`], and leaves the kernel one SYN in a second.
fn protecting() -> Settings {
    Settings {
        ends: ENDS.map(at).to_vec(),
        syns: RARE,
        ..Settings::default()
    }
}

fn load(settings: &Settings) -> Guard {
    Guard::load(settings).expect("the kernel takes it")
}

fn pass(guard: &mut Guard, packet: &[u8]) -> (Action, Vec<u8>) {
    let run = guard.fast().test_run(packet, 1).expect("it runs");
    (run.action, run.packet)
}

fn count(guard: &Guard, exit: Exit) -> u64 {
    let exits = guard.exits().expect("it counts");
    let found = exits.iter().find(|(own, _)| *own == exit);
    found.expect("it is one").1.packets
}

/// By which exit a packet leaves, and that it is counted there alone.
fn exit_of(guard: &mut Guard, packet: &[u8]) -> Exit {
    let before = guard.exits().expect("it counts");
    let (action, _) = pass(guard, packet);
    let after = guard.exits().expect("it counts");
    let counted = before.iter().zip(&after);
    let counted: Vec<Exit> = counted
        .filter(|((_, before), (_, after))| before != after)
        .map(|((exit, before), (_, after))| {
            assert_eq!(after.packets, before.packets + 1, "{exit:?}");
            assert_eq!(after.bytes, before.bytes + packet.len() as u64, "{exit:?}");
            *exit
        })
        .collect();
    assert_eq!(counted.len(), 1, "{counted:?}");
    let expected = match counted[0] {
        Exit::Answered => Action::Send,
        exit if exit.is_drop() => Action::Drop,
        _ => Action::Pass,
    };
    assert_eq!(action, expected, "{counted:?}");
    counted[0]
}

/// Sends SYNs until the kernel has had its share, and returns the answer to one.
fn answer_to(guard: &mut Guard, packet: &[u8]) -> Vec<u8> {
    loop {
        let (action, answer) = pass(guard, packet);
        match action {
            Action::Send => return answer,
            Action::Pass => assert_eq!(answer, packet, "the kernel gets it as it came"),
            Action::Drop => panic!("a SYN was dropped: {:?}", guard.exits()),
        }
    }
}

/// By which exit a SYN leaves when the kernel has had its share.
fn exit_beyond_share(guard: &mut Guard, packet: &[u8]) -> Exit {
    loop {
        match exit_of(guard, packet) {
            Exit::Syn => {}
            exit => return exit,
        }
    }
}

/// Checks a SYN-ACK from `end` to `client` byte by byte, and returns its sequence number: the cookie.
fn cookie_of(answer: &[u8], end: &str, client: &str) -> u32 {
    let frame = EthernetFrame::new_checked(answer).expect("a frame");
    assert_eq!((frame.src(), frame.dst()), (OWN_MAC, CLIENT_MAC));
    let (src, dst, sum, segment, mss) = if at(end).is_ipv4() {
        let packet = Ipv4Packet::new_checked(frame.payload()).expect("a packet");
        assert!(packet.verify_checksum());
        assert!(!packet.is_fragment());
        assert_eq!(usize::from(packet.total_len()), frame.payload().len());
        let ends = (packet.src().into(), packet.dst().into());
        let sum = packet.pseudo_header();
        (ends.0, ends.1, sum, packet.payload().to_vec(), 1460)
    } else {
        let packet = Ipv6Packet::new_checked(frame.payload()).expect("a packet");
        let layer = packet.upper_layer().expect("TCP");
        let sum = pseudo_header(&packet, &layer);
        let ends = (packet.src().into(), packet.dst().into());
        (ends.0, ends.1, sum, packet.payload().to_vec(), 1440)
    };
    let tcp = TcpPacket::new_checked(&segment[..]).expect("a segment");
    assert!(
        tcp.verify_checksum(sum, ChecksumState::Complete),
        "{answer:02x?}"
    );
    assert_eq!(SocketAddr::new(src, tcp.src_port()), at(end));
    assert_eq!(SocketAddr::new(dst, tcp.dst_port()), at(client));
    assert_eq!(tcp.flags(), TcpFlags::SYN | TcpFlags::ACK);
    assert_eq!(tcp.ack(), SEQUENCE.wrapping_add(1));
    assert_eq!(tcp.mss(), Some(mss));
    assert_eq!(tcp.header_len(), 24, "nothing that it could not keep");
    assert!(tcp.payload().is_empty());
    tcp.seq()
}

// promise: 15.30
#[test]
fn a_syn_is_answered_by_a_cookie_and_only_who_acknowledges_it_passes() {
    if !is_root("a_syn_is_answered_by_a_cookie_and_only_who_acknowledges_it_passes") {
        return;
    }
    for (client, end) in CLIENTS.into_iter().zip(ENDS) {
        let mut guard = load(&protecting());
        // With all options, with none, with data and padding: the answer is the same length.
        let bare = tcp(client, end, TcpFlags::SYN, (SEQUENCE, 0), &[]);
        let long = [syn(client, end), vec![0; 60]].concat();
        for packet in [syn(client, end), bare, long] {
            cookie_of(&answer_to(&mut guard, &packet), end, client);
        }
        let cookie = cookie_of(&answer_to(&mut guard, &syn(client, end)), end, client);
        assert!(count(&guard, Exit::Syn) >= 1, "the kernel has its share");

        let next = SEQUENCE.wrapping_add(1);
        let numbers = (next, cookie.wrapping_add(1));
        let segment = |flags, numbers| tcp(client, end, flags, numbers, &[]);
        for (flags, numbers) in [
            // Numbers next to it are cookies for other segment sizes.
            (TcpFlags::ACK, (next, cookie.wrapping_add(1000))),
            (TcpFlags::ACK, (next.wrapping_add(1000), numbers.1)),
            (
                TcpFlags::ACK | TcpFlags::SYN,
                (next, cookie.wrapping_add(1000)),
            ),
            (TcpFlags::RST, (next, 0)),
            (TcpFlags::FIN, (next, 0)),
        ] {
            let exit = exit_of(&mut guard, &segment(flags, numbers));
            assert_eq!(exit, Exit::NoConnection, "{flags:?}");
        }
        let elsewhere = "198.51.100.8:4000";
        if at(end).is_ipv4() {
            let stolen = tcp(elsewhere, end, TcpFlags::ACK, numbers, &[]);
            assert_eq!(exit_of(&mut guard, &stolen), Exit::NoConnection);
        }
        let acknowledged = segment(TcpFlags::ACK, numbers);
        assert_eq!(exit_of(&mut guard, &acknowledged), Exit::Acknowledged);
        // From here on it is a connection, whatever its numbers are.
        for flags in [TcpFlags::ACK, TcpFlags::ACK | TcpFlags::FIN, TcpFlags::RST] {
            let later = segment(flags, (next.wrapping_add(5000), 1));
            assert_eq!(exit_of(&mut guard, &later), Exit::Connection);
        }
    }
}

// promise: 15.31
#[test]
fn what_is_malformed_or_cannot_be_read_leaves_by_its_name() {
    if !is_root("what_is_malformed_or_cannot_be_read_leaves_by_its_name") {
        return;
    }
    let mut guard = load(&protecting());
    let [client, _] = CLIENTS;
    let [end, end6] = ENDS;
    let plain = syn(client, end);
    let changed = |at: usize, to: u8| {
        let mut packet = plain.clone();
        packet[at] = to;
        packet
    };
    let mut extension = syn(CLIENTS[1], end6);
    extension[20] = 0;
    let tags = [VlanTag::new(5)];
    let fragment = FragmentInfo {
        offset: 0,
        more: true,
        ident: 7,
    };
    let (from, to) = (at(client).ip(), at(end).ip());
    let discovery = |hops| {
        let (from, to) = (at(CLIENTS[1]).ip(), at(end6).ip());
        bytes(Frame::icmp(from, to, 135, 0, [0; 4]).ttl(hops))
    };
    let flags = |flags| tcp(client, end, flags, (1, 0), &[]);
    let table = [
        (udp(client, end), Exit::Passed),
        (syn(client, "203.0.113.1:81"), Exit::Passed),
        (flags(TcpFlags::SYN | TcpFlags::FIN), Exit::Flags),
        (flags(TcpFlags::SYN | TcpFlags::RST), Exit::Flags),
        // Ends after the ports, after the first 20 bytes, says that it has fewer or more than it has.
        (plain[..34 + 6].to_vec(), Exit::Malformed),
        (plain[..34 + 2].to_vec(), Exit::Malformed),
        (plain[..20].to_vec(), Exit::Malformed),
        (changed(34 + 12, 0x40), Exit::Malformed),
        (changed(14, 0x46), Exit::Unreadable),
        (
            bytes(Frame::ip(from, to, IpProtocol::TCP).fragment(fragment)),
            Exit::Unreadable,
        ),
        (
            bytes(Frame::tcp(at(client), at(end), TcpFlags::SYN).vlans(&tags)),
            Exit::Unreadable,
        ),
        (extension, Exit::Unreadable),
        // A frame for several hosts, with a packet for one, for a group, for all, and with none of IP.
        (changed(0, 1), Exit::Unreadable),
        (to_group(udp(client, "224.0.0.251:5353")), Exit::Group),
        (to_group(udp(client, "255.255.255.255:67")), Exit::Group),
        (to_group(udp(CLIENTS[1], "[ff02::fb]:5353")), Exit::Group),
        (to_group(udp(CLIENTS[1], end6)), Exit::Unreadable),
        (
            to_group([&[2; 12][..], &[8, 6], &[0; 28]].concat()),
            Exit::Group,
        ),
        ([&[2; 12][..], &[8, 6], &[0; 28]].concat(), Exit::NotIp),
        (discovery(255), Exit::Neighbour),
        (discovery(254), Exit::Passed),
    ];
    for (packet, exit) in table {
        assert_eq!(exit_of(&mut guard, &packet), exit, "{packet:02x?}");
    }
    // The header claims more options than it has.
    let too_long = changed(34 + 12, 0xf0);
    assert_eq!(exit_beyond_share(&mut guard, &too_long), Exit::NoCookie);
    // A last hop is one as well: cookies cannot be gone round.
    let last_hop = changed(22, 1);
    assert_eq!(exit_beyond_share(&mut guard, &last_hop), Exit::Answered);
}

// promise: 15.31
#[test]
fn no_source_destination_or_crowd_gets_more_than_its_limit() {
    if !is_root("no_source_destination_or_crowd_gets_more_than_its_limit") {
        return;
    }
    let limit = Limit {
        packets: 1,
        burst: 10,
    };
    let fragment = FragmentInfo {
        offset: 0,
        more: true,
        ident: 7,
    };
    let [client, _] = CLIENTS;
    let to = "203.0.113.9:53";
    let (from, there) = (at(client).ip(), at(to).ip());
    let fragmented = bytes(Frame::ip(from, there, IpProtocol::UDP).fragment(fragment));
    let of = |change: fn(&mut Settings, Limit)| {
        let mut settings = Settings::default();
        change(&mut settings, limit);
        settings
    };
    let source = of(|settings, limit| settings.source = Some(limit));
    let destination = of(|settings, limit| settings.destination = Some(limit));
    let unknown = of(|settings, limit| settings.unknown = Some(limit));
    let unreadable = of(|settings, limit| settings.unreadable = Some(limit));
    let plain = udp(client, to);
    // Catches: whatever is in a frame for several hosts passes without a limit.
    let grouped = to_group(plain.clone());
    // Catches: the same behind a tag of VLAN 0, which the kernel takes off.
    let tag = [0x81, 0, 0, 0];
    let tagged = [&grouped[..12], &tag, &grouped[12..]].concat();
    let cases = [
        (source.clone(), &grouped, Exit::Unreadable, Exit::Source),
        (unknown.clone(), &grouped, Exit::Unreadable, Exit::Unknown),
        (
            unreadable.clone(),
            &grouped,
            Exit::Unreadable,
            Exit::TooUnreadable,
        ),
        (
            destination.clone(),
            &grouped,
            Exit::Unreadable,
            Exit::Destination,
        ),
        (
            unreadable.clone(),
            &tagged,
            Exit::Unreadable,
            Exit::TooUnreadable,
        ),
        (source.clone(), &plain, Exit::Passed, Exit::Source),
        (destination.clone(), &plain, Exit::Passed, Exit::Destination),
        (unknown, &plain, Exit::Passed, Exit::Unknown),
        (
            unreadable,
            &fragmented,
            Exit::Unreadable,
            Exit::TooUnreadable,
        ),
        (source.clone(), &fragmented, Exit::Unreadable, Exit::Source),
    ];
    for (settings, packet, passes, dropped) in cases {
        let mut guard = load(&settings);
        let begun = Instant::now();
        guard.fast().test_run(packet, 1000).expect("it runs");
        let most = 10 + begun.elapsed().as_secs() + 1;
        let passed = count(&guard, passes);
        assert!((10..=most).contains(&passed), "{passed} {passes:?}");
        assert_eq!(count(&guard, dropped), 1000 - passed);
    }

    // Other sources are not held to the limit; sources with the same prefix are.
    let settings = Settings {
        prefixes: (24, 64),
        ..source
    };
    let mut guard = load(&settings);
    for (first, same, other) in [
        ("10.0.0.1:1", "10.0.0.200:7", "10.0.1.1:1"),
        (
            "[2001:db8::1]:1",
            "[2001:db8::ffff:1]:1",
            "[2001:db8:0:1::1]:1",
        ),
    ] {
        let to = if at(first).is_ipv4() {
            ENDS[0]
        } else {
            ENDS[1]
        };
        let packets = [first, same, other].map(|from| udp(from, to));
        guard.fast().test_run(&packets[0], 5000).expect("it runs");
        assert_eq!(exit_of(&mut guard, &packets[1]), Exit::Source, "{same}");
        assert_eq!(exit_of(&mut guard, &packets[2]), Exit::Passed, "{other}");
    }
    let mut guard = load(&destination);
    guard.fast().test_run(&plain, 5000).expect("it runs");
    let elsewhere = udp(client, "203.0.113.10:53");
    assert_eq!(exit_of(&mut guard, &elsewhere), Exit::Passed);
}

// promise: 15.31
#[test]
fn who_has_acknowledged_a_cookie_is_no_stranger() {
    if !is_root("who_has_acknowledged_a_cookie_is_no_stranger") {
        return;
    }
    let settings = Settings {
        unknown: Some(RARE),
        ..protecting()
    };
    let mut guard = load(&settings);
    let ([client, _], [end, _]) = (CLIENTS, ENDS);
    let other = udp("198.51.100.9:1", "203.0.113.1:53");
    let known = udp("198.51.100.7:1", "203.0.113.1:53");
    let crowd = |guard: &mut Guard| guard.fast().test_run(&other, 1000).expect("it runs");
    crowd(&mut guard);
    let cookie = cookie_of(&answer_to(&mut guard, &syn(client, end)), end, client);
    let numbers = (SEQUENCE.wrapping_add(1), cookie.wrapping_add(1));
    let acknowledged = tcp(client, end, TcpFlags::ACK, numbers, &[]);
    assert_eq!(exit_of(&mut guard, &acknowledged), Exit::Acknowledged);
    crowd(&mut guard);
    guard.fast().test_run(&known, 100).expect("it runs");
    assert!(count(&guard, Exit::Passed) >= 100, "it is known");
    assert!(count(&guard, Exit::Unknown) > 1000);
}

// promise: 15.31
#[test]
fn a_table_without_a_place_drops_by_a_counted_name_and_places_become_free() {
    if !is_root("a_table_without_a_place_drops_by_a_counted_name_and_places_become_free") {
        return;
    }
    let settings = |packets| Settings {
        source: Some(Limit {
            packets,
            burst: 1000,
        }),
        sizes: Sizes {
            sources: 4,
            connections: 1,
        },
        ..Settings::default()
    };
    let from = |host: u8| udp(&format!("10.0.0.{host}:1"), ENDS[0]);
    // Four sources whose buckets are full again after some minutes.
    let mut guard = load(&settings(1));
    for host in 1..5 {
        guard.fast().test_run(&from(host), 1000).expect("it runs");
    }
    assert_eq!(exit_of(&mut guard, &from(5)), Exit::Crowded);
    // A packet of each of many, whose buckets are full again at once.
    let mut guard = load(&settings(10_000_000));
    for host in 1..100 {
        assert_eq!(exit_of(&mut guard, &from(host)), Exit::Passed);
    }
}

// promise: 15.30
#[test]
fn connections_that_were_there_before_go_on() {
    if !is_root("connections_that_were_there_before_go_on") {
        return;
    }
    std::thread::spawn(|| {
        let namespaces = Namespaces::new("guard");
        namespaces.kernel.enter().expect("root may");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let end = listener.local_addr().expect("it has one");
        let stream = TcpStream::connect(end).expect("it listens");
        let client = stream.local_addr().expect("it has one").to_string();
        let settings = Settings {
            ends: vec![end],
            syns: RARE,
            ..Settings::default()
        };
        let mut guard = load(&settings);
        let end = end.to_string();
        let of = |client: &str| tcp(client, &end, TcpFlags::ACK, (5, 5), &[]);
        assert_eq!(exit_of(&mut guard, &of(&client)), Exit::Connection);
        let stranger = of("127.0.0.1:1");
        assert_eq!(exit_of(&mut guard, &stranger), Exit::NoConnection);
        // Known from now on, also when its socket is gone.
        drop((stream, listener));
        assert_eq!(exit_of(&mut guard, &of(&client)), Exit::Connection);
    })
    .join()
    .expect("what it has found");
}

// promise: 15.32
#[test]
fn in_a_chain_floods_end_at_the_guard() {
    if !is_root("in_a_chain_floods_end_at_the_guard") {
        return;
    }
    let guard = load(&Settings {
        source: Some(Limit {
            packets: 1,
            burst: 20,
        }),
        ..protecting()
    });
    let firewall = Firewall::load(&[], &[]).expect("the kernel takes it");
    let balancer = Balancer::load(10).expect("the kernel takes it");
    let members = vec![
        guard.member().expect("a member"),
        firewall.member().expect("a member"),
        balancer.member().expect("a member"),
    ];
    let mut chain = Chain::new(members).expect("the kernel takes it");
    let flood = syn(CLIENTS[0], ENDS[0]);
    for _ in 0..10 {
        chain.test_run(&flood, 1).expect("it runs");
    }
    let other = udp("198.51.100.9:1", ENDS[0]);
    for _ in 0..5 {
        let run = chain.test_run(&other, 1).expect("it runs");
        assert_eq!((run.action, run.packet), (Action::Pass, other.clone()));
    }
    let answered = count(&guard, Exit::Answered);
    assert!(answered > 0);
    let went_on = count(&guard, Exit::Syn) + count(&guard, Exit::Passed);
    assert_eq!(went_on, 15 - answered);
    let exits = firewall.exits().expect("it counts");
    let accepted = exits
        .iter()
        .find(|(exit, _)| *exit == firewall::Exit::Accept);
    assert_eq!(accepted.expect("it is one").1.packets, went_on);
    let exits = balancer.exits().expect("it counts");
    let met = exits
        .iter()
        .find(|(exit, _)| *exit == balancer::Exit::Other);
    assert_eq!(met.expect("it is one").1.packets, went_on);
}

// promise: 15.33
#[test]
fn other_limits_are_another_program_on_the_same_tables() {
    if !is_root("other_limits_are_another_program_on_the_same_tables") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let flags = rustix::mount::MountFlags::empty();
    rustix::mount::mount("bpf", folder.path(), "bpf", flags, None).expect("root may");
    let _mounted = Mounted(folder.path());
    let ([client, _], [end, _]) = (CLIENTS, ENDS);
    let mut guard = Guard::load_kept(&protecting(), folder.path()).expect("made");
    let cookie = cookie_of(&answer_to(&mut guard, &syn(client, end)), end, client);
    let numbers = (SEQUENCE.wrapping_add(1), cookie.wrapping_add(1));
    let acknowledged = tcp(client, end, TcpFlags::ACK, numbers, &[]);
    assert_eq!(exit_of(&mut guard, &acknowledged), Exit::Acknowledged);
    let limited = Settings {
        source: Some(RARE),
        ..protecting()
    };
    let mut other = Guard::load_kept(&limited, folder.path()).expect("on the same tables");
    drop(guard);
    assert_eq!(count(&other, Exit::Acknowledged), 1, "it counts on");
    let later = tcp(client, end, TcpFlags::ACK, (1, 1), &[]);
    assert_eq!(exit_of(&mut other, &later), Exit::Connection);
    other.fast().test_run(&later, 1000).expect("it runs");
    assert!(count(&other, Exit::Source) > 0, "the new limit");
    let mut sized = limited;
    sized.sizes.connections *= 2;
    let why = Guard::load_kept(&sized, folder.path()).expect_err("another size");
    assert!(why.to_string().contains("loading"), "{why}");
}

struct Mounted<'a>(&'a std::path::Path);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _gone = rustix::mount::unmount(self.0, rustix::mount::UnmountFlags::DETACH);
    }
}
