//! The promise: an uplink's rules send each frame to the port of the first rule that matches it,
//! also right after a change, and what none takes is dropped and counted, or left to the host.

#[path = "guest_uplink_rules/clients.rs"]
mod clients;
#[path = "guest_uplink_rules/steering.rs"]
mod steering;
mod uplink_fixture;

use nfluid_ring::port::Port;
use nfluid_switch::classifier::{Prefix, Rule, VlanMatch};
use nfluid_switch::client::{ClientBy, ClientId, ClientRule};
use nfluid_switch::{Destination, DropReason};
use nfluid_testbed::scratch::ScratchInstance;
use nfluid_tests::harness::command::must;
use nfluid_tests::harness::patience::{PATIENCE, eventually};
use nfluid_uplink::{Uplink, UplinkSpec};
use std::process::Command;
use std::time::Duration;
use uplink_fixture::{Fixture, Raw};

const DST: [u8; 6] = [2, 0xee, 0, 0, 0, 2];
const SRC: [u8; 6] = [2, 0xee, 0, 0, 0, 1];

/// An uplink with rules, the instances that they send to, and the far side of its interface.
struct Sorting {
    fixture: Fixture,
    uplink: Uplink,
    spec: UplinkSpec,
    instances: Vec<ScratchInstance>,
    ports: Vec<Port>,
    outside: Raw,
}

impl Sorting {
    fn new(test: &str, count: usize, pass: bool) -> Option<Self> {
        let fixture = Fixture::new(test, &["up", "out"])?;
        fixture.join(("up", "up0"), ("out", "out0"));
        Some(Self::on(fixture, count, pass))
    }

    /// On an interface with as many queues.
    fn with_queues(test: &str, count: usize, queues: usize) -> Option<Self> {
        let fixture = Fixture::new(test, &["up", "out"])?;
        let (up, out) = (fixture.netns("up"), fixture.netns("out"));
        let queues = format!("numtxqueues {queues} numrxqueues {queues}");
        must(&format!(
            "ip -n {up} link add up0 {queues} type veth peer name out0 netns {out} {queues}"
        ));
        must(&format!("ip -n {up} link set up0 up"));
        must(&format!("ip -n {out} link set out0 up"));
        Some(Self::on(fixture, count, false))
    }

    fn on(mut fixture: Fixture, count: usize, pass: bool) -> Self {
        let mut spec = fixture.spec("up", "up0");
        spec.pass = pass;
        let uplink = fixture.open(&spec).expect("an uplink");
        let mut instances = Vec::new();
        let mut ports = Vec::new();
        for _ in 0..count {
            let instance = fixture.scratch.instance(1, 256, 64).expect("an instance");
            ports.append(&mut instance.attach().expect("attach").ports);
            instances.push(instance);
        }
        let switch = &fixture.scratch.switch;
        switch
            .connect(spec.port, Destination::Classifier)
            .expect("connect");
        let outside = fixture.raw("out", "out0");
        Sorting {
            fixture,
            uplink,
            spec,
            instances,
            ports,
            outside,
        }
    }

    /// Has what is sent in from now on come in on a receive queue: a veth's is that on which the other end sent
    /// (Documentation/networking/scaling.rst, "XPS").
    fn choose_queue(&self, queue: usize, of: usize) {
        let netns = self.fixture.netns("out");
        for other in 0..of {
            let cores = if other == queue { "3" } else { "0" };
            let file = format!("/sys/class/net/out0/queues/tx-{other}/xps_cpus");
            let set = Command::new("ip")
                .args(["netns", "exec", &netns, "sh", "-c"])
                .arg(format!("echo {cores} > {file}"))
                .status();
            assert!(set.is_ok_and(|status| status.success()), "{file}");
        }
    }

    fn to(&self, index: usize) -> Option<u32> {
        Some(self.instances[index].id(0))
    }

    fn set(&self, rules: &[Rule]) {
        let switch = &self.fixture.scratch.switch;
        switch.set_rules(self.spec.port, rules).expect("rules");
    }

    fn remembered_flows(&self, port: u32) -> Option<usize> {
        let switch = &self.fixture.scratch.switch;
        switch.remembered_flows(port).expect("it can be read")
    }

    /// Sends a frame, and waits until it is counted as one that has come in.
    fn comes_in(&self, frame: &[u8]) {
        let switch = &self.fixture.scratch.switch;
        let seen = || {
            let counters = switch.counters(self.spec.port);
            counters.tx_frames + counters.passed
        };
        let before = seen();
        self.outside.send(frame);
        eventually("the frame has come in", || seen() > before);
        assert_eq!(seen(), before + 1, "somebody else sends too");
    }

    /// Sends a frame in; the index of the port in which it arrives, `None` if it is not taken.
    fn goes_to(&mut self, frame: &[u8]) -> Option<usize> {
        self.comes_in(frame);
        self.arrived(frame).or_else(|| {
            // The frame is counted before it is delivered.
            let switch = &self.fixture.scratch.switch;
            switch.await_programs().expect("a grace period");
            self.arrived(frame)
        })
    }

    fn arrived(&mut self, frame: &[u8]) -> Option<usize> {
        let mut found = None;
        for (index, port) in self.ports.iter_mut().enumerate() {
            port.receive(usize::MAX, |bytes| {
                assert_eq!(bytes, frame);
                assert_eq!(found.replace(index), None, "it arrived twice");
            });
        }
        found
    }
}

fn ethernet(tags: &[(u16, u16)], ether: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = [DST, SRC].concat();
    for (tpid, tci) in tags {
        frame.extend(tpid.to_be_bytes());
        frame.extend(tci.to_be_bytes());
    }
    frame.extend(ether.to_be_bytes());
    frame.extend(payload);
    frame
}

struct Ipv4 {
    src: [u8; 4],
    dst: [u8; 4],
    proto: u8,
    options: usize,
    fragment: u16,
    ports: (u16, u16),
}

impl Default for Ipv4 {
    fn default() -> Self {
        Ipv4 {
            src: [10, 1, 2, 3],
            dst: [192, 0, 2, 1],
            proto: 17,
            options: 0,
            fragment: 0,
            ports: (1000, 53),
        }
    }
}

impl Ipv4 {
    fn packet(&self) -> Vec<u8> {
        let mut ip = vec![0x45 + self.options as u8, 0, 0, 60, 0, 1];
        ip.extend(self.fragment.to_be_bytes());
        ip.extend([64, self.proto, 0, 0]);
        ip.extend(self.src);
        ip.extend(self.dst);
        ip.extend(vec![1u8; self.options * 4]);
        ip.extend(self.ports.0.to_be_bytes());
        ip.extend(self.ports.1.to_be_bytes());
        ip.extend([0xaa; 20]);
        ip
    }

    fn frame(&self) -> Vec<u8> {
        ethernet(&[], 0x0800, &self.packet())
    }
}

/// IPv6 with the extension headers `chain` (type, bytes behind the first two) before `proto`.
fn ipv6(src: &str, dst: &str, chain: &[(u8, [u8; 6])], proto: u8, ports: (u16, u16)) -> Vec<u8> {
    let address = |text: &str| {
        let address: std::net::Ipv6Addr = text.parse().expect("an address");
        address.octets()
    };
    let mut ip = vec![0x60, 0, 0, 0, 0, 40];
    ip.extend([chain.first().map_or(proto, |(kind, _)| *kind), 64]);
    ip.extend(address(src));
    ip.extend(address(dst));
    for (i, (_, rest)) in chain.iter().enumerate() {
        ip.extend([chain.get(i + 1).map_or(proto, |(kind, _)| *kind), 0]);
        ip.extend(rest);
    }
    ip.extend(ports.0.to_be_bytes());
    ip.extend(ports.1.to_be_bytes());
    ip.extend([0xbb; 20]);
    ethernet(&[], 0x86dd, &ip)
}

fn prefix(text: &str) -> Option<Prefix> {
    let (address, len) = text.split_once('/').expect("a slash");
    Some(Prefix {
        address: address.parse().expect("an address"),
        len: len.parse().expect("a length"),
    })
}

// promise: 2.7
#[test]
fn the_first_rule_that_matches_decides() {
    let Some(mut sorting) = Sorting::new("first", 6, false) else {
        return;
    };
    let to = |i| sorting.to(i);
    let rules = [
        Rule {
            vlan: VlanMatch::Id(100),
            src: prefix("10.0.0.0/8"),
            to: to(0),
            ..Rule::default()
        },
        Rule {
            vlan: VlanMatch::Id(100),
            to: to(1),
            ..Rule::default()
        },
        Rule {
            proto: Some(17),
            dport: Some(53..=53),
            to: to(2),
            ..Rule::default()
        },
        Rule {
            src: prefix("2001:db8:1::/48"),
            to: to(3),
            ..Rule::default()
        },
        Rule {
            dst: prefix("192.0.2.0/25"),
            vlan: VlanMatch::Untagged,
            to: to(4),
            ..Rule::default()
        },
        Rule {
            ether: Some(0x0806),
            to: to(5),
            ..Rule::default()
        },
        Rule {
            proto: Some(6),
            sport: Some(0..=1023),
            to: to(5),
            ..Rule::default()
        },
    ];
    sorting.set(&rules);
    let udp = Ipv4::default();
    let other = |proto, dst, ports| Ipv4 {
        proto,
        dst,
        ports,
        ..Ipv4::default()
    };
    let hop = (0, [1, 4, 0, 0, 0, 0]);
    let options = (60, [1, 4, 0, 0, 0, 0]);
    let first_fragment = (44, [0, 1, 0, 0, 0, 9]);
    let later_fragment = (44, [0, 8, 0, 0, 0, 9]);
    let v6 = |src, chain: &[_], proto| ipv6(src, "2001:db8:9::1", chain, proto, (9, 53));
    let cases: Vec<(&str, Vec<u8>, Option<usize>)> = vec![
        ("DNS", udp.frame(), Some(2)),
        (
            "DNS behind IP options",
            Ipv4 {
                options: 3,
                ..Ipv4::default()
            }
            .frame(),
            Some(2),
        ),
        (
            "first fragment",
            Ipv4 {
                fragment: 0x2000,
                ..Ipv4::default()
            }
            .frame(),
            Some(2),
        ),
        (
            "later fragment has no ports",
            Ipv4 {
                fragment: 0x00b9,
                ..Ipv4::default()
            }
            .frame(),
            Some(4),
        ),
        (
            "other protocol has no ports",
            other(47, [192, 0, 2, 1], (0, 53)).frame(),
            Some(4),
        ),
        (
            "outside the prefix",
            other(47, [192, 0, 2, 128], (0, 53)).frame(),
            None,
        ),
        (
            "low source port",
            other(6, [192, 0, 3, 1], (1023, 9)).frame(),
            Some(5),
        ),
        (
            "high source port",
            other(6, [192, 0, 3, 1], (1024, 9)).frame(),
            None,
        ),
        (
            "VLAN and prefix",
            ethernet(&[(0x8100, 0xe064)], 0x0800, &udp.packet()),
            Some(0),
        ),
        (
            "outer tag counts",
            ethernet(&[(0x88a8, 100), (0x8100, 7)], 0x0800, &udp.packet()),
            Some(0),
        ),
        (
            "VLAN, not IP",
            ethernet(&[(0x8100, 100)], 0x9000, &[0; 46]),
            Some(1),
        ),
        (
            "other VLAN",
            ethernet(&[(0x8100, 101)], 0x0800, &udp.packet()),
            Some(2),
        ),
        (
            "tag that carries only a priority",
            ethernet(
                &[(0x8100, 0xe000)],
                0x0800,
                &other(47, [192, 0, 2, 1], (0, 0)).packet(),
            ),
            Some(4),
        ),
        ("ARP", ethernet(&[], 0x0806, &[0; 46]), Some(5)),
        ("unknown type", ethernet(&[], 0x9000, &[0; 46]), None),
        ("IPv6 by prefix", v6("2001:db8:1:2::3", &[], 6), Some(3)),
        ("IPv6 DNS", v6("2001:db8:2::3", &[], 17), Some(2)),
        ("IPv6 neighbour", v6("2001:db8:2::3", &[], 58), None),
        (
            "IPv6 behind extensions",
            v6("2001:db8:2::3", &[hop, options, first_fragment], 17),
            Some(2),
        ),
        (
            "IPv6 later fragment",
            v6("2001:db8:2::3", &[later_fragment], 17),
            None,
        ),
        (
            "too many extensions",
            v6(
                "2001:db8:2::3",
                &[hop, options, options, options, options],
                17,
            ),
            None,
        ),
        (
            "cut within the IP header",
            ethernet(&[], 0x0800, &udp.packet()[..19]),
            None,
        ),
        (
            "wrong version",
            ethernet(
                &[],
                0x0800,
                &[[0x65].as_slice(), &udp.packet()[1..]].concat(),
            ),
            None,
        ),
        (
            "header length of nonsense",
            ethernet(
                &[],
                0x0800,
                &[[0x44].as_slice(), &udp.packet()[1..]].concat(),
            ),
            None,
        ),
        (
            "cut within the ports",
            ethernet(&[], 0x0800, &udp.packet()[..23]),
            Some(4),
        ),
        ("a bare header", ethernet(&[], 0x0800, &[]), None),
    ];
    let untaken = cases.iter().filter(|case| case.2.is_none()).count() as u64;
    for (name, frame, want) in &cases {
        assert_eq!(sorting.goes_to(frame), *want, "{name}");
    }
    let counters = sorting.fixture.scratch.switch.counters(sorting.spec.port);
    assert_eq!(counters.dropped(DropReason::NoRoute), untaken);
    assert_eq!(counters.tx_frames, cases.len() as u64);
}

// promise: 2.7
#[test]
fn a_hundred_tenants_are_distinguished_and_a_change_is_seen_at_once() {
    const TENANTS: usize = 100;
    let Some(mut sorting) = Sorting::new("tenants", 4, false) else {
        return;
    };
    let tenant = |i: usize, to| Rule {
        src: prefix(&format!("10.{i}.0.0/16")),
        to,
        ..Rule::default()
    };
    let from = |i: usize| {
        let src = [10, i as u8, 7, 7];
        Ipv4 {
            src,
            ..Ipv4::default()
        }
        .frame()
    };
    for shift in 0..3 {
        let rules: Vec<Rule> = (0..TENANTS)
            .map(|i| tenant(i, sorting.to((i + shift) % 4)))
            .collect();
        sorting.set(&rules);
        // Twice: the second time out of the cache.
        for i in (0..TENANTS).chain(0..TENANTS) {
            assert_eq!(
                sorting.goes_to(&from(i)),
                Some((i + shift) % 4),
                "tenant {i}"
            );
        }
        assert_eq!(sorting.goes_to(&from(TENANTS)), None);
        assert_eq!(sorting.goes_to(&from(TENANTS)), None);
        // The uplink has a cache of its own: no flood of another uplink takes the flows' place. Beside them, at most
        // a frame of the kernel's.
        let flows = sorting.remembered_flows(sorting.spec.port);
        assert!(flows.is_some_and(|flows| flows > TENANTS), "{flows:?}");
        assert_eq!(sorting.remembered_flows(sorting.spec.port + 1), None);
    }
    let few: Vec<Rule> = (0..8).map(|i| tenant(i, sorting.to(0))).collect();
    sorting.set(&few);
    assert_eq!(sorting.goes_to(&from(7)), Some(0));
    assert_eq!(sorting.remembered_flows(sorting.spec.port), None);
    sorting.set(&[]);
    assert_eq!(sorting.goes_to(&from(0)), None, "no rules, no route");
}

// promise: 2.8
#[test]
fn what_no_rule_takes_is_left_to_the_host_if_asked() {
    let Some(mut sorting) = Sorting::new("pass", 1, true) else {
        return;
    };
    let dns = Rule {
        proto: Some(17),
        to: sorting.to(0),
        ..Rule::default()
    };
    sorting.set(&[dns]);
    let arp = ethernet(&[], 0x0806, &[0; 46]);
    assert_eq!(sorting.goes_to(&Ipv4::default().frame()), Some(0));
    assert_eq!(sorting.goes_to(&arp), None);
    let counters = sorting.fixture.scratch.switch.counters(sorting.spec.port);
    assert_eq!((counters.passed, counters.tx_frames), (1, 1));
    assert_eq!(counters.dropped_total(), 0);
}

// promise: 2.8
#[test]
fn frames_that_do_not_fit_or_have_no_port_are_dropped_and_counted() {
    let Some(mut sorting) = Sorting::new("drops", 1, false) else {
        return;
    };
    let switch = &sorting.fixture.scratch.switch;
    let id = sorting.instances[0].id(0);
    switch.set_up(id, false);
    sorting.set(&[Rule {
        to: Some(id),
        ..Rule::default()
    }]);
    assert_eq!(sorting.goes_to(&Ipv4::default().frame()), None);
    let switch = &sorting.fixture.scratch.switch;
    let counters = switch.counters(sorting.spec.port);
    assert_eq!(counters.dropped(DropReason::PortDown), 1);
    switch.set_up(id, true);
    // The frames are sent one by one: the veth has room for fewer at once.
    for _ in 0..300 {
        sorting.comes_in(&Ipv4::default().frame());
    }
    switch.await_programs().expect("a grace period");
    let (sent, got) = (switch.counters(sorting.spec.port), switch.counters(id));
    assert_eq!(sent.tx_frames, 301);
    assert_eq!(got.rx_frames, 256, "as many as the ring has slots");
    assert_eq!(got.dropped(DropReason::RingFull), 44);
    assert_eq!(
        sent.tx_frames,
        sent.dropped_total() + got.rx_frames + got.dropped_total()
    );
    assert!(sorting.uplink.status().path.is_some());
}

// promise: 2.9
#[test]
fn rules_that_cannot_be_are_refused() {
    let Some(sorting) = Sorting::new("refused", 1, false) else {
        return;
    };
    let switch = &sorting.fixture.scratch.switch;
    let bad = Rule {
        to: Some(1 << 20),
        ..Rule::default()
    };
    let error = switch
        .set_rules(sorting.spec.port, &[bad])
        .expect_err("no such port");
    assert!(error.to_string().contains("1048576"), "{error}");
    let many = vec![Rule::default(); 16385];
    let error = switch
        .set_rules(sorting.spec.port, &many)
        .expect_err("too many");
    assert!(error.to_string().contains("16384"), "{error}");
    switch
        .set_rules(sorting.spec.port, &many[..16384])
        .expect("as many as can be");
}
