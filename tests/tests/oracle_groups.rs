//! The promise: what passes a port with security groups is what passes with the same groups in nftables. The kernel bridges in a namespace
//! of its own, with connection tracking for bridged packets, as Neutron's hybrid driver has it; the guard has the configuration that the
//! platform gives it. The same random connections go through both, packet by packet.

use nfluid_control::document::read_unchecked;
use nfluid_control::guards::{guard_of, with_guards};
use nfluid_nf::testing::{ports, run_one};
use nfluid_nf::{Nanos, NetworkFunction, firewall};
use nfluid_testbed::random::Random;
use nfluid_tests::harness::oracle::{Namespaces, Oracle, marker};
use nfluid_tests::harness::skip::{is_root, skip};
use nfluid_tests::harness::soak::choose;
use nfluid_wire::build::Frame;
use nfluid_wire::{IpProtocol, MacAddr, TcpFlags};
use std::collections::HashSet;
use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::process::Command;

/// Rounds of this many connections: a million verdicts in a soak.
const ROUNDS: [u64; 2] = [40, 600];
const CONNECTIONS: u32 = 1500;
/// The groups; the guarded port is in the first two.
const GROUPS: [&str; 3] = ["web", "base", "store"];
/// The guarded port's addresses.
const OWN: [&str; 2] = ["10.0.0.5", "2001:db8::5"];
/// The link-local address of the guarded port's hardware address, 02:00:00:00:00:0a.
const LINK_LOCAL: &str = "fe80::ff:fe00:a";
/// Addresses of other ports: each group has two of them, some are in none.
const OTHERS: [[&str; 2]; 4] = [
    ["10.0.0.6", "2001:db8::6"],
    ["10.0.1.7", "2001:db8:1::7"],
    ["10.0.1.8", "2001:db8:1::8"],
    ["192.0.2.9", "2001:db8:2::9"],
];
const PREFIXES: [[&str; 2]; 3] = [
    ["10.0.0.0/24", "2001:db8::/64"],
    ["10.0.1.0/24", "2001:db8:1::/48"],
    ["10.0.0.0/8", "2001:db8::/32"],
];
const PORTS: [u16; 11] = [1, 2, 67, 68, 80, 81, 82, 443, 546, 547, 65535];
const MACS: (MacAddr, MacAddr) = (
    MacAddr([2, 0, 0, 0, 0, 0x0a]),
    MacAddr([2, 0, 0, 0, 0, 0x0b]),
);

/// A rule in both languages.
struct Rule {
    yaml: String,
    nft: String,
}

impl Rule {
    fn random(random: &mut Random) -> Rule {
        let is_in = random.one_in(2);
        let family = random.below(3) as usize;
        let mut yaml = format!("direction: {}", if is_in { "in" } else { "out" });
        let mut nft = format!("meta mark {} ct state new", if is_in { 2 } else { 1 });
        let word = |family: usize| ["ip", "ip6"][family];
        if family < 2 {
            let _ = write!(yaml, ", family: {}", ["ipv4", "ipv6"][family]);
            let _ = write!(nft, " meta nfproto {}", ["ipv4", "ipv6"][family]);
        }
        let side = if is_in { "saddr" } else { "daddr" };
        // A set of addresses is of one family.
        match random.below(3) {
            1 if family < 2 => {
                let prefix = random.pick(&PREFIXES)[family];
                let _ = write!(yaml, ", remote: '{prefix}'");
                let _ = write!(nft, " {} {side} {prefix}", word(family));
            }
            2 if family < 2 => {
                let group = random.pick(&GROUPS);
                let _ = write!(yaml, ", remote_group: {group}");
                let _ = write!(nft, " {} {side} @{group}{family}", word(family));
            }
            _ => {}
        }
        match random.below(6) {
            0 => {}
            1 | 2 => with_ports(random, "tcp", &mut yaml, &mut nft),
            3 => with_ports(random, "udp", &mut yaml, &mut nft),
            4 => icmp(random, family, &mut yaml, &mut nft),
            _ => {
                let number = random.pick(&[50, 200]);
                let _ = write!(yaml, ", protocol: {number}");
                let _ = write!(nft, " meta l4proto {number}");
            }
        }
        Rule {
            yaml: format!("{{ {yaml} }}"),
            nft: format!("{nft} accept"),
        }
    }
}

fn with_ports(random: &mut Random, protocol: &str, yaml: &mut String, nft: &mut String) {
    let _ = write!(yaml, ", protocol: {protocol}");
    let _ = write!(nft, " meta l4proto {protocol}");
    for (key, field) in [("ports", "dport"), ("source_ports", "sport")] {
        if random.one_in(if key == "ports" { 2 } else { 6 }) {
            let range = random.pick(&["80", "80-81", "1-67", "82-65535", "443"]);
            let _ = write!(yaml, ", {key}: {range}");
            let _ = write!(nft, " {protocol} {field} {range}");
        }
    }
}

fn icmp(random: &mut Random, family: usize, yaml: &mut String, nft: &mut String) {
    let is_v6 = family == 1 || family == 2 && random.one_in(2);
    let (protocol, word, kinds) = match is_v6 {
        true => ("icmpv6", "icmpv6", [128, 128]),
        false => ("icmp", "icmp", [8, 13]),
    };
    let number = if is_v6 { 58 } else { 1 };
    let _ = write!(yaml, ", protocol: {protocol}");
    let _ = write!(nft, " meta l4proto {number}");
    let kind = random.pick(&kinds);
    match random.below(3) {
        0 => {}
        1 => {
            let _ = write!(yaml, ", icmp: {kind}");
            let _ = write!(nft, " {word} type {kind}");
        }
        _ => {
            let code = random.below(2);
            let _ = write!(yaml, ", icmp: {kind}/{code}");
            let _ = write!(nft, " {word} type {kind} {word} code {code}");
        }
    }
}

/// The rules of each group.
fn random_groups(random: &mut Random) -> Vec<Vec<Rule>> {
    let mut rules = || {
        let count = random.below(6);
        (0..count).map(|_| Rule::random(random)).collect()
    };
    GROUPS.map(|_| rules()).into()
}

/// The groups that each port is in: the guarded one first.
fn memberships() -> [&'static [&'static str]; 5] {
    [
        &["web", "base"],
        &["store"],
        &["store", "web"],
        &["base"],
        &[],
    ]
}

fn addresses(port: usize) -> [&'static str; 2] {
    match port {
        0 => OWN,
        other => OTHERS[other - 1],
    }
}

fn document(groups: &[Vec<Rule>]) -> String {
    let mut text = "version: 1\nswitches: { lan: {} }\nsecurity_groups:\n".to_owned();
    for (name, rules) in GROUPS.iter().zip(groups) {
        let rules: Vec<&str> = rules.iter().map(|rule| rule.yaml.as_str()).collect();
        let _ = writeln!(text, "  {name}: {{ rules: [{}] }}", rules.join(", "));
    }
    text += "instances:\n";
    for (at, groups) in memberships().iter().enumerate() {
        let [v4, v6] = addresses(at);
        let _ = writeln!(
            text,
            "  i{at}: {{ nf: bridge, ports: {{ p: {{ switch: lan, mac: '02:00:00:00:00:{:02x}', security_groups: [{}], \
             allowed_addresses: ['{v4}', '{v6}'] }}, q: {{}} }} }}",
            0x0a + at,
            groups.join(", ")
        );
    }
    text
}

fn guard(groups: &[Vec<Rule>]) -> Box<dyn NetworkFunction> {
    let text = document(groups);
    let deployment =
        read_unchecked(&text, None).unwrap_or_else(|faults| panic!("{faults:?}\n{text}"));
    let whole = with_guards(&deployment);
    let guard = whole.instances.get(&guard_of("i0", "p")).expect("a guard");
    firewall::build(&guard.config, &ports(2)).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// The same groups in the kernel. `ct state new` is what the guard's `keep-state` is.
fn ruleset(groups: &[Vec<Rule>]) -> String {
    let mut text = "flush ruleset\n\
         table bridge side { chain pre { type filter hook prerouting priority -300;\n\
         iifname n0 meta mark set 1\niifname n1 meta mark set 2\n}\n}\ntable inet groups {\n"
        .to_owned();
    for (family, kind) in ["ipv4_addr", "ipv6_addr"].into_iter().enumerate() {
        for group in GROUPS {
            let of_group = (0..)
                .zip(memberships())
                .filter(|(_, it)| it.contains(&group));
            let members: Vec<&str> = of_group.map(|(port, _)| addresses(port)[family]).collect();
            let _ = writeln!(
                text,
                "set {group}{family} {{ type {kind}; elements = {{ {} }} }}",
                members.join(", ")
            );
        }
    }
    let [v4, v6] = OWN;
    let dhcp = [
        format!("meta mark 1 ip saddr {{ 0.0.0.0, {v4} }} udp sport 68 udp dport 67"),
        format!("meta mark 1 ip6 saddr {{ {LINK_LOCAL}, {v6} }} udp sport 546 udp dport 547"),
        "meta mark 2 udp sport 67 udp dport 68".to_owned(),
        "meta mark 2 udp sport 547 udp dport 546".to_owned(),
    ];
    text += "chain raw { type filter hook prerouting priority raw;\n";
    for packets in &dhcp {
        let _ = writeln!(text, "{packets} notrack");
    }
    let _ = writeln!(
        text,
        "}}\nchain forward {{ type filter hook forward priority 0; policy drop;
         ip saddr 10.0.0.250 udp dport 9 accept
         meta mark 1 udp sport 67 udp dport 68 drop
         meta mark 1 udp sport 547 udp dport 546 drop
         meta mark 1 icmpv6 type {{ 134, 137 }} drop"
    );
    for packets in &dhcp {
        let _ = writeln!(text, "{packets} accept");
    }
    let _ = writeln!(
        text,
        "meta mark 1 ip saddr != {v4} drop
         meta mark 1 ip6 saddr != {{ {v6}, {LINK_LOCAL} }} drop
         ct state established,related accept"
    );
    for (name, rules) in GROUPS.iter().zip(groups) {
        for rule in rules.iter().filter(|_| memberships()[0].contains(name)) {
            let _ = writeln!(text, "{}", rule.nft);
        }
    }
    text + "}\n}\n"
}

/// A connection: who opens it, and how.
#[derive(Debug)]
struct Connection {
    /// From the instance.
    is_out: bool,
    from: SocketAddr,
    to: SocketAddr,
    kind: Kind,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Tcp,
    Udp,
    Icmp { kind: u8, code: u8 },
    Other(u8),
}

impl Connection {
    /// Its source port, or its ICMP identifier, tells it from others.
    fn random(random: &mut Random, number: u32) -> Connection {
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
                code: random.below(2) as u8,
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

    fn opening(&self) -> (u8, Vec<u8>) {
        let Connection { from, to, .. } = *self;
        let frame = match self.kind {
            Kind::Tcp => Frame::tcp(from, to, TcpFlags::SYN).sequence(100, 0),
            Kind::Udp => Frame::udp(from, to),
            Kind::Icmp { kind, code } => Frame::icmp(from.ip(), to.ip(), kind, code, self.ident()),
            Kind::Other(number) => Frame::ip(from.ip(), to.ip(), IpProtocol(number)),
        };
        self.written(frame, self.is_out)
    }

    fn reply(&self) -> (u8, Vec<u8>) {
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

fn kernel(name: &str) -> Oracle {
    let namespaces = Namespaces::new(name);
    let kernel = &namespaces.kernel;
    for (port, mac) in [(0, "02:00:00:00:01:00"), (1, "02:00:00:00:01:01")] {
        namespaces.join(port, mac);
    }
    kernel.disable_ipv6();
    let bridge = "link add br0 type bridge mcast_snooping 0\nlink set n0 master br0\nlink set n1 master br0\nlink set br0 up\n";
    kernel.ip_batch(bridge).expect("a bridge");
    namespaces.set("net.bridge.bridge-nf-call-iptables=1 net.bridge.bridge-nf-call-ip6tables=1");
    kernel
        .run_with_input("nft -f -", &ruleset(&[]))
        .expect("rules");
    Oracle::new(namespaces, 2, marker(MACS.1, MACS.0), |_| false)
}

// promise: 33.2
#[test]
fn verdicts_are_those_of_nftables_with_the_same_groups() {
    let test = "verdicts_are_those_of_nftables_with_the_same_groups";
    if !is_root(test) {
        return;
    }
    if Command::new("nft").arg("--version").output().is_err() {
        return skip(test, "no program 'nft': install nftables");
    }
    let mut kernel = kernel("groups");
    let (mut packets, mut passed) = (0_u32, 0_u32);
    for seed in 0..choose(ROUNDS[0], ROUNDS[1]) {
        let mut random = Random(seed);
        let groups = random_groups(&mut random);
        kernel.set_rules(&ruleset(&groups));
        let mut guard = guard(&groups);
        let mut known = HashSet::new();
        for number in 0..CONNECTIONS {
            let connection = Connection::random(&mut random, number);
            // Of segments of known connections, other oracles tell.
            let ends = [connection.from, connection.to];
            let is_new = known.insert(ends) && !known.contains(&[ends[1], ends[0]]);
            if matches!(connection.kind, Kind::Tcp) && !is_new {
                continue;
            }
            let mut both = |what: &str, packet: (u8, Vec<u8>)| {
                let theirs = kernel.pass(&packet);
                let ours = run_one(&mut *guard, Nanos::from_secs(1), packet.0, &packet.1);
                packets += 1;
                passed += u32::from(!ours.is_empty());
                assert_eq!(
                    ours,
                    theirs,
                    "seed {seed}, {what} of {connection:?}; the kernel's packets are on the right\n{}\n{}",
                    document(&groups),
                    ruleset(&groups)
                );
                !ours.is_empty()
            };
            let passes = both("the opening", connection.opening());
            if passes && random.one_in(2) {
                both("the reply", connection.reply());
            }
        }
    }
    println!("{packets} verdicts compared, {passed} passed");
    let share = passed * 100 / packets;
    assert!(
        (10..=90).contains(&share),
        "a one-sided comparison: {share} % passed"
    );
}
