//! The promise: an uplink's rules send each frame to the port of the first rule that matches it,
//! also right after a change, and what none takes is dropped and counted, or left to the host.

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
fn a_hundred_tenants_are_told_apart_and_a_change_is_seen_at_once() {
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

/// Rules behind which each client has a port of its own, among so many others that the flow cache is used or is not.
fn client_rules(by: ClientBy, others: u8) -> Vec<Rule> {
    let other = |i: u8| Rule {
        dst: prefix(&format!("203.0.113.{i}/32")),
        ..Rule::default()
    };
    let clients = |back| Rule {
        vlan: if back {
            VlanMatch::Any
        } else {
            VlanMatch::Id(7)
        },
        clients: Some(ClientRule {
            template: 5,
            by,
            back,
        }),
        ..Rule::default()
    };
    let others = (0..others).map(other);
    others.chain([clients(false), clients(true)]).collect()
}

// promise: 5.30
#[test]
fn a_frame_of_an_unknown_client_waits_and_that_of_a_known_one_goes_to_its_port() {
    let Some(mut sorting) = Sorting::new("clients", 2, false) else {
        return;
    };
    let arrivals = sorting.fixture.scratch.switch.arrivals().expect("a reader");
    let from = Ipv4::default();
    let own = |tag: bool| {
        let tags: &[(u16, u16)] = if tag { &[(0x8100, 7)] } else { &[] };
        ethernet(tags, 0x0800, &from.packet())
    };
    let cases = [
        (ClientBy::Address, ClientId::Address(from.src.into())),
        (ClientBy::Mac, ClientId::Mac(SRC)),
        (ClientBy::Vlan, ClientId::Vlan(7)),
    ];
    for ((by, id), others) in cases.into_iter().flat_map(|case| [(case, 0), (case, 9)]) {
        sorting.set(&client_rules(by, others));
        assert_eq!(sorting.goes_to(&own(true)), None, "{id}: it waits");
        let waiting = arrivals.take(PATIENCE, 8).expect("frames");
        assert_eq!(waiting.len(), 1, "{id}");
        let client = waiting[0].client(by).expect("a client");
        assert_eq!((client.id, client.template), (id, 5));
        assert_eq!(waiting[0].frame, own(true));
        assert_eq!(waiting[0].uplink, sorting.spec.port);
        assert_eq!(sorting.goes_to(&own(false)), None, "{id}: no way back");
        let (entry, back) = (sorting.to(0).expect("a port"), sorting.to(1).expect("one"));
        let switch = &sorting.fixture.scratch.switch;
        switch.set_client(&client, entry, back).expect("entered");
        let answered = match id {
            ClientId::Address(_) => Ipv4 {
                src: from.dst,
                dst: from.src,
                ..Ipv4::default()
            }
            .frame(),
            ClientId::Mac(mac) => [&mac[..], &DST[..], &own(false)[12..]].concat(),
            ClientId::Vlan(_) => own(true),
        };
        assert_eq!(sorting.goes_to(&own(true)), Some(0), "{id}");
        if by != ClientBy::Vlan {
            assert_eq!(sorting.goes_to(&answered), Some(1), "{id}: the way back");
        }
        let switch = &sorting.fixture.scratch.switch;
        switch.suspend_client(&client, back).expect("suspended");
        switch.await_programs().expect("a grace period");
        assert_eq!(sorting.goes_to(&own(true)), None, "{id}: it waits");
        assert_eq!(arrivals.take(PATIENCE, 8).expect("frames").len(), 1);
        if by != ClientBy::Vlan {
            assert_eq!(
                sorting.goes_to(&answered),
                Some(1),
                "{id}: still a way back"
            );
        }
        let switch = &sorting.fixture.scratch.switch;
        switch.remove_client(&client).expect("removed");
        switch.await_programs().expect("a grace period");
        assert_eq!(sorting.goes_to(&own(true)), None, "{id}: it waits again");
        assert_eq!(arrivals.take(PATIENCE, 8).expect("frames").len(), 1);
    }
}

// promise: 5.32
#[test]
fn what_finds_no_room_to_wait_is_dropped_and_counted() {
    let Some(mut sorting) = Sorting::new("waiting", 1, false) else {
        return;
    };
    sorting.set(&client_rules(ClientBy::Address, 0));
    let frame = ethernet(&[(0x8100, 7)], 0x0800, &Ipv4::default().packet());
    let mut sent = 0;
    let dropped = |sorting: &Sorting| {
        let counters = sorting.fixture.scratch.switch.counters(sorting.spec.port);
        counters.dropped(DropReason::Client)
    };
    while dropped(&sorting) < 10 {
        sorting.comes_in(&frame);
        sent += 1;
        assert!(sent < 2000, "the room has no end");
    }
    assert_eq!(sorting.arrived(&frame), None);
    let arrivals = sorting.fixture.scratch.switch.arrivals().expect("a reader");
    let mut waited = 0;
    loop {
        let some = arrivals.take(Duration::ZERO, 100).expect("frames").len() as u64;
        if some == 0 {
            break;
        }
        waited += some;
    }
    assert_eq!(
        waited + dropped(&sorting),
        sent,
        "each waited or was dropped"
    );
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

/// The veth's other end does a NIC's work here, by the queue on which it sends.
// promise: 2.15
#[test]
fn what_comes_in_on_a_ports_own_queue_is_not_classified_and_the_rest_is() {
    const QUEUES: usize = 4;
    let Some(mut sorting) = Sorting::with_queues("queues", 2, QUEUES) else {
        return;
    };
    let rule = |i: usize, to| Rule {
        src: prefix(&format!("10.{i}.0.0/16")),
        to,
        ..Rule::default()
    };
    sorting.set(&[rule(0, sorting.to(0)), rule(1, sorting.to(1))]);
    let from = |i: u8| {
        let src = [10, i, 7, 7];
        Ipv4 {
            src,
            ..Ipv4::default()
        }
        .frame()
    };
    let uplink = sorting.spec.port;
    let second = sorting.to(1).expect("it is there");
    for queue in 0..QUEUES {
        sorting.choose_queue(queue, QUEUES);
        assert_eq!(sorting.goes_to(&from(0)), Some(0), "queue {queue}");
    }
    let switch = |sorting: &Sorting, owners: &[(u32, u32)]| {
        let switch = &sorting.fixture.scratch.switch;
        switch.set_queues(uplink, owners).expect("queues");
    };
    let steered = |sorting: &Sorting| sorting.fixture.scratch.switch.steered_frames(uplink);
    assert_eq!(steered(&sorting), 0);

    // The last queue is the second port's: whatever comes there is.
    switch(&sorting, &[(3, second)]);
    assert_eq!(sorting.goes_to(&from(0)), Some(1));
    assert_eq!(sorting.goes_to(&from(9)), Some(1));
    assert_eq!(steered(&sorting), 2);
    // The others are classified.
    sorting.choose_queue(2, QUEUES);
    assert_eq!(sorting.goes_to(&from(0)), Some(0));
    assert_eq!(sorting.goes_to(&from(1)), Some(1));
    assert_eq!(sorting.goes_to(&from(9)), None);
    assert_eq!(steered(&sorting), 2);

    // Another port's queue, and a queue of no port.
    sorting.choose_queue(3, QUEUES);
    let first = sorting.to(0).expect("it is there");
    switch(&sorting, &[(3, first)]);
    assert_eq!(sorting.goes_to(&from(1)), Some(0));
    switch(&sorting, &[]);
    switch(&sorting, &[]);
    assert_eq!(sorting.goes_to(&from(1)), Some(1));

    // A queue counts for what is classified only: a link leads where it leads.
    switch(&sorting, &[(3, first)]);
    let link = Destination::Link(second);
    let connected = sorting.fixture.scratch.switch.connect(uplink, link);
    connected.expect("connect");
    assert_eq!(sorting.goes_to(&from(0)), Some(1));
}

// promise: 2.15
#[test]
fn an_interface_that_steers_nothing_is_refused_and_its_frames_are_classified() {
    let Some(mut sorting) = Sorting::with_queues("steer", 1, 2) else {
        return;
    };
    let rule = Rule {
        src: prefix("10.0.0.0/8"),
        to: sorting.to(0),
        ..Rule::default()
    };
    sorting.set(std::slice::from_ref(&rule));
    let refused = sorting.uplink.steer(vec![rule]).expect_err("it is a veth");
    assert!(
        refused.to_string().contains("steering: xdp"),
        "the alternative is named: {refused}"
    );
    assert_eq!(sorting.goes_to(&Ipv4::default().frame()), Some(0));
    let left = sorting.uplink.status().steering.expect("it was asked to");
    assert_eq!((left.rules, left.left), (0, 1));
    sorting.uplink.steer(Vec::new()).expect("nothing to steer");
    assert_eq!(sorting.uplink.status().steering, None);
    let switch = &sorting.fixture.scratch.switch;
    let error = switch.set_queues(sorting.spec.port, &[(256, 1)]);
    assert!(error.is_err_and(|error| error.to_string().contains("queue 256")));
}
