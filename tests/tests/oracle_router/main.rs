//! The promise: the router forwards as the Linux kernel does. The same random routes and the same random packets
//! through both give the same frames on the same ports: next hop's MAC address, hop count, checksums, options,
//! fragments, and ICMP errors with type, code, address and quoted data.
//!
//! Where the two differ, the router follows the standard more closely, and the traffic here leaves the case out:
//!
//! | case | Linux | the router |
//! |---|---|---|
//! | source or destination in 0/8, 240/4, 169.254/16 | forwards | drops (RFC 1812 5.3.7, RFC 3927 2.7) |
//! | source or destination `::` | forwards; reports no route | drops (RFC 4291 2.5.2) |
//! | identification, DF of its own IPv4 packets | 0 or per destination, DF | a counter, no DF |
//! | own IPv4 packets in answer to one with options | echoes the options | sends none |
//! | timestamp option | time of the day | time since the start, marked non-standard (RFC 791) |
//! | `unreachable` route, IPv6 | code 0 | code 6, "reject route" (RFC 4443 3.1) |
//! | error about a later IPv6 fragment | sends it | sends none |
//! | ICMP timestamp request to its own addresses | answers | does not (RFC 1812 4.3.3.8: MAY) |
//! | fragments to its own addresses | reassembles | drops them, counted |
//! | ICMPv6 error that leaves by another port | from the arrival port's address | from the leaving port's, as in IPv4 |
//! | IPv6 redirect to a better first hop | sends it | sends none |
//! | hop-by-hop options | looks at them | does not (RFC 8200 4) |

mod kernel;
mod traffic;

use nfluid_nf::testing::{Collected, run};
use nfluid_nf::{Nanos, NetworkFunction, PortInfo, catalogue};
use nfluid_tests::harness::oracle::OnPort;
use nfluid_tests::harness::skip::is_root;
use nfluid_wire::ipv4::Ipv4Packet;
use nfluid_wire::ipv6::Ipv6Packet;
use nfluid_wire::{EtherType, EthernetFrame, IpProtocol, MacAddr, arp::ArpRepr};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::net::IpAddr;
use traffic::{Random, Routes};

/// Ports of the router under test and of the kernel.
pub const PORTS: u8 = 3;
/// The third link is narrow.
pub const MTUS: [u16; PORTS as usize] = [1500, 1500, 1300];
/// Hosts on each link, at .2 and up; the first two are gateways.
pub const HOSTS: u8 = 6;

/// The router's MAC address on a port.
pub fn port_mac(port: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 1, port])
}

/// The MAC address of a host on a port's link.
pub fn host_mac(port: u8, host: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0x80 + port, host])
}

/// The router's addresses on a port.
pub fn own_addresses(port: u8) -> [String; 2] {
    [
        format!("10.0.{port}.1/24"),
        format!("2001:db8:{port}::1/64"),
    ]
}

/// A host's addresses on a port's link.
pub fn host_addresses(port: u8, host: u8) -> [IpAddr; 2] {
    let v4 = format!("10.0.{port}.{}", 2 + host);
    let v6 = format!("2001:db8:{port}::{:x}", 2 + host);
    [v4, v6].map(|text| text.parse().expect("an address"))
}

fn port_infos() -> Vec<PortInfo> {
    (0..PORTS)
        .map(|port| PortInfo {
            name: format!("r{port}"),
            mac: port_mac(port),
            mtu: MTUS[usize::from(port)],
        })
        .collect()
}

fn configuration(routes: &str) -> Value {
    let addresses: serde_json::Map<String, Value> = (0..PORTS)
        .map(|port| (format!("r{port}"), json!(own_addresses(port))))
        .collect();
    let hosts = (0..PORTS).flat_map(|port| (0..HOSTS).map(move |host| (port, host)));
    let neighbours: Vec<Value> = hosts
        .flat_map(|(port, host)| {
            let mac = host_mac(port, host).to_string();
            host_addresses(port, host)
                .map(|address| json!({"port": format!("r{port}"), "address": address, "mac": mac}))
        })
        .collect();
    json!({
        "addresses": addresses,
        "neighbours": neighbours,
        "routes_text": routes,
        "redirects": false,
        "icmp_errors": {"per_second": 1_000_000_000, "burst": 1_000_000},
    })
}

fn router(routes: &str) -> Box<dyn NetworkFunction> {
    let mut nf = catalogue::build("router", &configuration(routes), &port_infos()).expect("valid");
    // The kernel has announced its addresses before the test listens.
    nf.tick(Nanos(0), &mut Collected::default());
    nf
}

/// A frame in the form in which both sides must agree: without what follows the packet, without identification and DF
/// flag in packets that the router itself made.
fn comparable(frame: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    match EthernetFrame::new_unchecked(&frame[..]).ethertype() {
        EtherType::IPV4 => {
            let packet = Ipv4Packet::new_checked(&frame[14..]).expect("a whole packet leaves");
            assert!(packet.verify_checksum(), "header checksum");
            let length = usize::from(packet.total_len());
            let own = packet.src().octets()[..2] == [10, 0] && packet.src().octets()[3] == 1;
            frame.truncate(14 + length);
            if own {
                let mut packet = Ipv4Packet::new_unchecked(&mut frame[14..]);
                packet.set_ident(0);
                packet.set_fragmentation(false, false, 0);
                packet.fill_checksum();
            }
        }
        EtherType::IPV6 => {
            let packet = Ipv6Packet::new_checked(&frame[14..]).expect("a whole packet leaves");
            let length = 40 + usize::from(packet.payload_len());
            frame.truncate(14 + length);
        }
        EtherType::ARP => frame.truncate(14 + 28),
        _ => {}
    }
    frame
}

fn sorted(frames: Vec<OnPort>) -> Vec<OnPort> {
    let mut frames: Vec<OnPort> = frames
        .into_iter()
        .map(|(port, frame)| (port, comparable(&frame)))
        .collect();
    frames.sort();
    frames
}

fn hex(frames: &[OnPort]) -> String {
    let mut text = String::new();
    for (port, frame) in frames {
        let _ = write!(text, "\n  r{port} {} B:", frame.len());
        for (at, byte) in frame.iter().enumerate().take(120) {
            let space = if at % 2 == 0 { " " } else { "" };
            let _ = write!(text, "{space}{byte:02x}");
        }
    }
    text
}

/// Returns true for "net" or "host unreachable" about a host on a link: the kernel sends a receiver a few of them and
/// then one per second, a limit that a namespace cannot change. The many hosts behind the gateways do not reach that
/// limit.
fn is_limited_by_kernel(input: &OnPort, got: &[OnPort]) -> bool {
    let source = input.1.get(26..29) == Some(&[10, 0, input.0]);
    let unreachable = |frame: &OnPort| frame.1[23] == 1 && matches!(frame.1[34..36], [3, 0 | 1]);
    source && got.len() == 1 && unreachable(&got[0])
}

/// Returns true for "source route failed": the kernel drops source routes silently; RFC 1812 section 5.2.7.1 requires
/// an error.
fn is_about_source_route(got: &[OnPort]) -> bool {
    got.len() == 1 && got[0].1[23] == 1 && got[0].1[34..36] == [3, 5]
}

/// Counts that show that the traffic reached all cases.
#[derive(Debug, Default)]
struct Tally {
    forwarded: usize,
    fragmented: usize,
    errors: usize,
    silent: usize,
    limited: usize,
    source_routes: usize,
}

impl Tally {
    fn count(&mut self, input: &OnPort, output: &[OnPort]) {
        let made = |frame: &OnPort| {
            let sent = EthernetFrame::new_unchecked(&frame.1[..]);
            let icmp = match sent.ethertype() {
                EtherType::IPV4 => IpProtocol(frame.1[23]) == IpProtocol::ICMPV4,
                _ => IpProtocol(frame.1[20]) == IpProtocol::ICMPV6,
            };
            icmp && frame.1.len() > input.1.len() - 14
        };
        match output {
            [] => self.silent += 1,
            [one] if made(one) && one.0 == input.0 => self.errors += 1,
            [_] => self.forwarded += 1,
            _ => self.fragmented += 1,
        }
    }
}

// promise: 10.12
#[test]
fn random_packets_leave_as_the_kernel_sends_them() {
    let test = "random_packets_leave_as_the_kernel_sends_them";
    if !is_root(test) {
        return;
    }
    let mut tally = Tally::default();
    for seed in 0x5eed_0001..=0x5eed_0005u64 {
        let mut random = Random::new(seed);
        let routes = Routes::random(&mut random);
        let mut kernel = kernel::kernel(&format!("a{:x}", seed & 0xf), Some(&routes));
        let mut nf = router(&routes.text);
        for number in 0..4000 {
            let input = traffic::packet(&mut random, &routes);
            let expected = sorted(kernel.pass(&input));
            let got = sorted(run(
                &mut *nf,
                Nanos::from_secs(1),
                std::slice::from_ref(&input),
            ));
            if expected.is_empty() && is_about_source_route(&got) {
                tally.source_routes += 1;
                continue;
            }
            if expected.is_empty() && is_limited_by_kernel(&input, &got) {
                tally.limited += 1;
                continue;
            }
            assert!(
                got == expected,
                "seed {seed:#x}, packet {number}\nsent:{}\nthe kernel's:{}\nthe router's:{}",
                hex(&[input]),
                hex(&expected),
                hex(&got),
            );
            tally.count(&input, &got);
        }
    }
    println!("{tally:?}");
    let Tally {
        forwarded,
        fragmented,
        errors,
        silent,
        limited,
        source_routes,
    } = tally;
    assert!(source_routes > 0, "the test says nothing of source routes");
    assert!(
        forwarded > 3000
            && fragmented > 100
            && errors > 300
            && silent > 300
            && limited < errors / 4,
        "{tally:?}"
    );
}

/// Plays the same frames to both, one after the other, and compares what leaves after each.
fn converse(name: &str, frames: &[OnPort]) {
    let mut kernel = kernel::kernel(name, None);
    let mut nf = router("");
    for (number, input) in frames.iter().enumerate() {
        let expected = sorted(kernel.pass(input));
        let got = sorted(run(
            &mut *nf,
            Nanos::from_secs(1),
            std::slice::from_ref(input),
        ));
        assert!(
            got == expected,
            "frame {number}\nthe kernel's:{}\nthe router's:{}",
            hex(&expected),
            hex(&got),
        );
        assert!(!got.is_empty(), "frame {number} leads to something");
    }
}

/// An unknown host on r1: the router asks, the host answers, the packet leaves.
// promise: 10.12
#[test]
fn an_unknown_neighbour_is_asked_for_as_the_kernel_does() {
    if !is_root("an_unknown_neighbour_is_asked_for_as_the_kernel_does") {
        return;
    }
    let host = MacAddr([2, 0, 0, 0, 0x99, 77]);
    let packet = traffic::datagram(0, "10.0.0.2", "10.0.1.77");
    let answer = traffic::arp(&ArpRepr {
        operation: nfluid_wire::arp::Operation::REPLY,
        sender_mac: host,
        sender_ip: [10, 0, 1, 77].into(),
        target_mac: port_mac(1),
        target_ip: [10, 0, 1, 1].into(),
    });
    let question = ArpRepr::request(host, [10, 0, 1, 77].into(), [10, 0, 1, 1].into());
    let question = traffic::arp(&question);
    converse(
        "b",
        &[(0, packet.clone()), (1, answer), (0, packet), (1, question)],
    );
}

// promise: 10.12
#[test]
fn an_unknown_ipv6_neighbour_is_solicited_as_the_kernel_does() {
    if !is_root("an_unknown_ipv6_neighbour_is_solicited_as_the_kernel_does") {
        return;
    }
    let packet = traffic::datagram(0, "2001:db8:0::2", "2001:db8:1::77");
    let answer = traffic::advertisement("2001:db8:1::77");
    let question = traffic::solicitation("2001:db8:1::77", "2001:db8:1::1");
    converse(
        "c",
        &[(0, packet.clone()), (1, answer), (0, packet), (1, question)],
    );
}
