//! Random routes, and random packets that are likely to meet them.

use super::{HOSTS, MTUS, PORTS, host_addresses, host_mac, port_mac};
use nfluid_wire::arp::ArpRepr;
use nfluid_wire::build::{self, Frame};
use nfluid_wire::ipv4::Ipv4Packet;
use nfluid_wire::ipv6::FragmentInfo;
use nfluid_wire::ndp::{self, AdvertFlags, NdpRepr};
use nfluid_wire::{IpProtocol, MacAddr, TcpFlags};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A small generator of random numbers (xorshift64), so that a seed gives the same test for ever.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Random(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

/// The same routes for both sides.
pub struct Routes {
    /// As `ip route` and the router under test read them.
    pub v4: Vec<String>,
    pub v6: Vec<String>,
    pub text: String,
    prefixes_v4: Vec<(u32, u32)>,
    prefixes_v6: Vec<(u128, u32)>,
}

impl Routes {
    pub fn random(random: &mut Random) -> Routes {
        let mut routes = Routes {
            v4: Vec::new(),
            v6: Vec::new(),
            text: String::new(),
            prefixes_v4: Vec::new(),
            prefixes_v6: Vec::new(),
        };
        let mut seen = BTreeSet::new();
        while routes.v4.len() < 300 {
            let length = random.pick(&[8, 12, 15, 16, 17, 20, 23, 24, 24, 25, 28, 31, 32]);
            // Few distinct bytes, so that prefixes nest.
            let octets = [
                20 + random.below(4),
                random.below(3),
                random.pick(&[0, 1, 128, 255]),
                random.below(256),
            ];
            let bits = octets
                .iter()
                .fold(0, |bits, octet| bits << 8 | *octet as u32);
            let prefix = bits & u32::MAX << (32 - length);
            if seen.insert((prefix, length)) {
                routes.prefixes_v4.push((prefix, length));
                let to = format!("{}/{length}", Ipv4Addr::from_bits(prefix));
                routes.v4.push(line(random, &to, 0));
            }
        }
        let mut seen = BTreeSet::new();
        while routes.v6.len() < 100 {
            let length = random.pick(&[16, 29, 32, 40, 47, 48, 56, 63, 64, 65, 96, 127, 128]);
            let mut bits = 0x2a00u128 + u128::from(random.below(3));
            for _ in 0..7 {
                bits = bits << 16 | random.pick(&[0u128, 1, 0x8000, 0xffff]);
            }
            let prefix = bits & u128::MAX << (128 - length);
            if seen.insert((prefix, length)) {
                routes.prefixes_v6.push((prefix, length));
                let to = format!("{}/{length}", Ipv6Addr::from_bits(prefix));
                routes.v6.push(line(random, &to, 1));
            }
        }
        routes.text = routes
            .v4
            .iter()
            .chain(&routes.v6)
            .map(|line| format!("{line}\n"))
            .collect();
        routes
    }

    fn destination_v4(&self, random: &mut Random) -> Ipv4Addr {
        let (prefix, length) = random.pick(&self.prefixes_v4);
        let host = u32::MAX.checked_shr(length).unwrap_or(0);
        let bits = match random.below(8) {
            0 => prefix.wrapping_sub(1),
            1 => prefix | host,
            2 => (prefix | host).wrapping_add(1),
            3 => prefix,
            _ => prefix | random.next() as u32 & host,
        };
        Ipv4Addr::from_bits(bits)
    }

    fn destination_v6(&self, random: &mut Random) -> Ipv6Addr {
        let (prefix, length) = random.pick(&self.prefixes_v6);
        let host = u128::MAX.checked_shr(length).unwrap_or(0);
        let noise = u128::from(random.next()) << 64 | u128::from(random.next());
        Ipv6Addr::from_bits(match random.below(8) {
            0 => prefix | host,
            1 => prefix,
            _ => prefix | noise & host,
        })
    }
}

/// A route to `to` through a gateway, or a blackhole, or (IPv4) unreachable.
fn line(random: &mut Random, to: &str, family: usize) -> String {
    let port = random.below(PORTS.into()) as u8;
    let via = host_addresses(port, random.below(2) as u8)[family];
    match random.below(12) {
        0 => format!("blackhole {to}"),
        1 if family == 0 => format!("unreachable {to}"),
        _ => format!("{to} via {via} dev r{port}"),
    }
}

fn written(frame: &Frame<'_>, payload: &[u8]) -> Vec<u8> {
    let mut buffer = vec![0; 4096];
    let length = frame.write(&mut buffer, payload).expect("it fits");
    buffer.truncate(length);
    buffer
}

/// Data for a packet that arrives on the port: with all headers no longer than its link carries.
fn payload(random: &mut Random, port: u8) -> Vec<u8> {
    let length = match random.below(6) {
        0 => random.below(8),
        1 | 3 => u64::from(MTUS[usize::from(port)]) - 300 + random.below(220),
        2 => 500 + random.below(200),
        _ => random.below(200),
    };
    (0..length).map(|_| random.next() as u8).collect()
}

/// A random frame for the router, and the port on which it arrives.
pub fn packet(random: &mut Random, routes: &Routes) -> (u8, Vec<u8>) {
    let port = random.below(PORTS.into()) as u8;
    let frame = match random.below(3) {
        0 => packet_v6(random, routes, port),
        _ => packet_v4(random, routes, port),
    };
    (port, frame)
}

fn packet_v4(random: &mut Random, routes: &Routes, port: u8) -> Vec<u8> {
    let host = random.below(HOSTS.into()) as u8;
    let source = match random.below(12) {
        0 => IpAddr::V4(routes.destination_v4(random)),
        1 => random
            .pick(&[
                "127.0.0.1",
                "224.0.0.5",
                "255.255.255.255",
                "10.0.1.1",
                "0.0.0.0",
            ])
            .parse()
            .expect("an address"),
        2..5 => host_addresses(port, host)[0],
        // The kernel limits the rate of errors per receiver, so there are many.
        _ => {
            let [a, b, ..] = random.next().to_be_bytes();
            IpAddr::from([10, 100 + port, a, b])
        }
    };
    let mut local = false;
    let destination = match random.below(16) {
        0 => {
            local = true;
            IpAddr::from([10, 0, random.below(PORTS.into()) as u8, 1])
        }
        1 => random
            .pick(&[
                "127.0.0.1",
                "224.0.0.9",
                "239.9.9.9",
                "255.255.255.255",
                "10.0.1.255",
                "0.0.0.0",
                "99.9.9.9",
            ])
            .parse()
            .expect("an address"),
        2..5 => host_addresses(
            random.below(PORTS.into()) as u8,
            random.below(HOSTS.into()) as u8,
        )[0],
        _ => routes.destination_v4(random).into(),
    };
    let ttl = random.pick(&[0, 1, 2, 2, 3, 64, 64, 64, 128, 255, 255, 255]);
    let frame = transport(random, source, destination)
        .macs(host_mac(port, host), port_mac(port))
        .ttl(ttl)
        .traffic_class(random.next() as u8)
        .ident(random.next() as u16);
    let mut bytes = written(&frame, &payload(random, port));
    let is_icmp_error = bytes[23] == 1 && matches!(bytes[34], 3..=5 | 11 | 12);
    let fragment = random.one_in(6) && !local;
    let dont_fragment = random.one_in(3);
    let offset = random.pick(&[0, 0, 8, 1480, 8000]);
    // Errors would repeat the options of the offending packet.
    if !local && !is_icmp_error && ttl > 2 && !dont_fragment && random.one_in(8) {
        let options: &[u8] = random.pick(&[
            &[1, 1, 1, 0][..],
            &[148, 4, 0, 0],
            &[7, 11, 4, 0, 0, 0, 0, 0, 0, 0, 0, 1],
            &[7, 7, 8, 9, 9, 9, 9, 0],
            &[1, 7, 7, 4, 0, 0, 0, 0, 148, 4, 0, 0],
            &[131, 7, 4, 10, 0, 1, 3, 0],
            &[137, 7, 4, 10, 0, 1, 3, 0],
        ]);
        if has_way(routes, destination) {
            insert_options(&mut bytes, options);
        }
    }
    let mut packet = Ipv4Packet::new_unchecked(&mut bytes[14..]);
    if fragment || dont_fragment {
        packet.set_fragmentation(
            dont_fragment,
            fragment && random.one_in(2),
            if fragment { offset } else { 0 },
        );
    }
    packet.fill_checksum();
    corrupt_v4(random, &mut bytes);
    if random.one_in(10) && bytes.len() < 1400 {
        // Padding of the link layer.
        bytes.resize(bytes.len().max(60) + random.below(4) as usize, 0);
    }
    bytes
}

/// Returns true if packets with options to this address are forwarded, according to the routes: no errors that would
/// have to repeat the options.
fn has_way(routes: &Routes, destination: IpAddr) -> bool {
    let IpAddr::V4(destination) = destination else {
        return false;
    };
    if destination.octets()[0] == 10 {
        return destination.octets()[3] != 255;
    }
    let holds = |(prefix, length): &(u32, u32)| {
        destination.to_bits() & u32::MAX << (32 - length) == *prefix
    };
    let all = routes.prefixes_v4.iter().zip(&routes.v4);
    let best = all
        .filter(|(prefix, _)| holds(prefix))
        .max_by_key(|(prefix, _)| prefix.1);
    best.is_some_and(|(_, line)| line.contains("via"))
}

fn insert_options(bytes: &mut Vec<u8>, options: &[u8]) {
    let rest = bytes.split_off(34);
    bytes.extend(options);
    bytes.extend(rest);
    let total = (bytes.len() - 14) as u16;
    let mut packet = Ipv4Packet::new_unchecked(&mut bytes[14..]);
    packet.set_version_and_header_len(20 + options.len());
    packet.set_total_len(total);
}

/// Breaks one header in twenty.
fn corrupt_v4(random: &mut Random, bytes: &mut [u8]) {
    match random.below(100) {
        0 => bytes[24] ^= 1 << random.below(8),
        1 => bytes[14] = 0x44,
        2 => bytes[14] = 0x65,
        3 => {
            let total = (bytes.len() - 14 + 1 + random.below(50) as usize) as u16;
            let mut packet = Ipv4Packet::new_unchecked(&mut bytes[14..]);
            packet.set_total_len(total);
            packet.fill_checksum();
        }
        4 => {
            let mut packet = Ipv4Packet::new_unchecked(&mut bytes[14..]);
            packet.set_total_len(19);
            packet.fill_checksum();
        }
        _ => {}
    }
}

fn transport(random: &mut Random, source: IpAddr, destination: IpAddr) -> Frame<'static> {
    let ports = (
        1 + random.next() as u16 / 2,
        20_000 + random.below(9) as u16,
    );
    let v4 = source.is_ipv4();
    match random.below(8) {
        0 => Frame::tcp(
            (source, ports.0).into(),
            (destination, ports.1).into(),
            TcpFlags::NONE,
        ),
        1 => Frame::echo_request(
            source,
            destination,
            random.next() as u16,
            random.next() as u16,
        ),
        2 if v4 => Frame::icmp(source, destination, random.pick(&[3, 11, 12, 5]), 0, [0; 4]),
        2 => Frame::icmp(source, destination, random.pick(&[1, 2, 3, 4]), 0, [0; 4]),
        3 => Frame::ip(
            source,
            destination,
            IpProtocol(random.pick(&[47, 132, 253])),
        ),
        _ => Frame::udp((source, ports.0).into(), (destination, ports.1).into()),
    }
}

fn packet_v6(random: &mut Random, routes: &Routes, port: u8) -> Vec<u8> {
    let host = random.below(HOSTS.into()) as u8;
    let source = match random.below(12) {
        0 => random
            .pick(&["::1", "ff02::5"])
            .parse()
            .expect("an address"),
        2..5 => host_addresses(port, host)[1],
        _ => {
            let network = 0x2001_0db8u128 << 16 | (0x100 + u128::from(port));
            Ipv6Addr::from_bits(network << 80 | u128::from(random.next())).into()
        }
    };
    let mut local = false;
    let destination = match random.below(16) {
        0 => {
            local = true;
            format!("2001:db8:{}::1", random.below(PORTS.into()))
                .parse()
                .expect("an address")
        }
        1 => random
            .pick(&["::1", "ff0e::9", "2c00::1"])
            .parse()
            .expect("an address"),
        2..5 => host_addresses(
            random.below(PORTS.into()) as u8,
            random.below(HOSTS.into()) as u8,
        )[1],
        _ => routes.destination_v6(random).into(),
    };
    let mut frame = transport(random, source, destination)
        .macs(host_mac(port, host), port_mac(port))
        .ttl(random.pick(&[0, 1, 2, 2, 64, 64, 255]))
        .traffic_class(random.next() as u8);
    if !local && random.one_in(8) {
        let fragment = FragmentInfo {
            offset: 0,
            more: true,
            ident: random.next() as u32,
        };
        frame = Frame::ip(source, destination, IpProtocol::UDP)
            .macs(frame.src_mac, frame.dst_mac)
            .ttl(frame.ttl)
            .fragment(fragment);
    }
    let mut bytes = written(&frame, &payload(random, port));
    match random.below(60) {
        0 => bytes[14] = 0x40,
        1 => bytes[19] = bytes[19].wrapping_add(7),
        _ => {}
    }
    bytes
}

/// A datagram from a host on the port's link.
pub fn datagram(port: u8, source: &str, destination: &str) -> Vec<u8> {
    let address = |text: &str| text.parse::<IpAddr>().expect("an address");
    let frame = Frame::udp(
        (address(source), 1000).into(),
        (address(destination), 2000).into(),
    );
    written(
        &frame.macs(host_mac(port, 0), port_mac(port)),
        b"a datagram",
    )
}

/// A datagram from port 0 to port 1 that ends in these bytes.
pub fn marker(ending: &[u8]) -> Vec<u8> {
    let [source, _] = host_addresses(0, 0);
    let [destination, _] = host_addresses(1, 0);
    let frame = Frame::udp((source, 7).into(), (destination, 7).into());
    written(&frame.macs(host_mac(0, 0), port_mac(0)), ending)
}

pub fn arp(packet: &ArpRepr) -> Vec<u8> {
    let mut buffer = vec![0; 64];
    let length = build::arp(&mut buffer, &[], packet).expect("it fits");
    buffer.truncate(length);
    buffer
}

const STRANGER: MacAddr = MacAddr([2, 0, 0, 0, 0x99, 77]);

fn nd(source: &str, destination: (MacAddr, Ipv6Addr), message: &NdpRepr) -> Vec<u8> {
    let source = source.parse().expect("an address");
    let mut buffer = vec![0; 128];
    let macs = (STRANGER, destination.0);
    let length = build::ndp(&mut buffer, macs, (source, destination.1), &[], message);
    buffer.truncate(length.expect("it fits"));
    buffer
}

/// The stranger's answer to the router's solicitation on port 1.
pub fn advertisement(own: &str) -> Vec<u8> {
    let message = NdpRepr::Advert {
        target: own.parse().expect("an address"),
        flags: AdvertFlags {
            router: false,
            solicited: true,
            override_entry: true,
        },
        target_link_layer: Some(STRANGER),
    };
    let router = "fe80::ff:fe00:101".parse().expect("an address");
    nd(own, (port_mac(1), router), &message)
}

/// The stranger's question for an address of the router on port 1.
pub fn solicitation(own: &str, target: &str) -> Vec<u8> {
    let target = target.parse().expect("an address");
    let group = ndp::solicited_node(target);
    let message = NdpRepr::Solicit {
        target,
        source_link_layer: Some(STRANGER),
    };
    nd(own, (ndp::multicast_mac(group), group), &message)
}
