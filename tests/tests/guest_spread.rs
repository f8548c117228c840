//! Ports behind which are several instances: each flow has one of them, the same both ways; given to another, none of its
//! frames is lost or overtakes another.

mod switch_fixture;
mod uplink_fixture;

use nfluid_ring::flow::{BUCKETS, Shares, bucket_of};
use nfluid_ring::port::{Port, WhenFull};
use nfluid_switch::Destination;
use nfluid_testbed::scratch::{Scratch, ScratchInstance};
use nfluid_tests::harness::patience::eventually;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use switch_fixture::{for_each_form, received, send, tagged};
use uplink_fixture::Fixture;

const MEMBERS: u8 = 3;
const SERVICE: u16 = 0x88a8;
const CUSTOMER: u16 = 0x8100;
const PATIENCE: Duration = Duration::from_secs(60);

fn ethernet(ether: u16, packet: &[u8]) -> Vec<u8> {
    let head = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]].concat();
    [&head, &ether.to_be_bytes()[..], packet].concat()
}

fn packet(from: IpAddr, to: IpAddr, protocol: u8, payload: &[u8]) -> Vec<u8> {
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let mut head = vec![0x45, 0, 0, 20 + payload.len() as u8];
            head.extend([0, 0, 0, 0, 64, protocol, 0, 0]);
            [&head, &from.octets()[..], &to.octets(), payload].concat()
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let head = [0x60, 0, 0, 0, 0, payload.len() as u8, protocol, 64];
            [&head, &from.octets()[..], &to.octets(), payload].concat()
        }
        _ => panic!("{from} and {to} do not talk"),
    }
}

/// A UDP packet of a flow in a frame, with a number behind its ports.
fn frame(from: IpAddr, to: IpAddr, number: u32) -> Vec<u8> {
    let ports = [0x12, 0x34, 0, 53, 0, 12, 0, 0];
    let payload = [&ports, &number.to_be_bytes()[..]].concat();
    let ether = if from.is_ipv4() { 0x0800 } else { 0x86dd };
    ethernet(ether, &packet(from, to, 17, &payload))
}

/// Returns a router's error about a packet of a flow, to the sender of the packet.
fn error_about(router: IpAddr, from: IpAddr, to: IpAddr) -> Vec<u8> {
    let quoted = packet(from, to, 17, &[0; 8]);
    let (ether, protocol, kind) = if from.is_ipv4() {
        (0x0800, 1, 11)
    } else {
        (0x86dd, 58, 3)
    };
    let payload = [&[kind, 0, 0, 0, 0, 0, 0, 0], &quoted[..]].concat();
    ethernet(ether, &packet(router, from, protocol, &payload))
}

fn ends(host: u8) -> [(IpAddr, IpAddr); 2] {
    let v4 = |net, host| IpAddr::from(Ipv4Addr::new(10, net, 7, host));
    let v6 = |net, host: u8| IpAddr::from(Ipv6Addr::new(0xfd00, net, 0, 9, 1, 0, 3, host.into()));
    [(v4(1, host), v4(2, 9)), (v6(1, host), v6(2, 9))]
}

/// Every way in which a frame can be of a flow.
fn frames_of(from: IpAddr, to: IpAddr, router: IpAddr) -> Vec<Vec<u8>> {
    let plain = [
        frame(from, to, 0),
        frame(to, from, 1),
        error_about(router, from, to),
        error_about(router, to, from),
    ];
    let one = plain.iter().map(|frame| tagged(frame, CUSTOMER, 5));
    let two = plain
        .iter()
        .map(|frame| tagged(&tagged(frame, CUSTOMER, 5), SERVICE, 7));
    let all: Vec<Vec<u8>> = one.chain(two).collect();
    plain.into_iter().chain(all).collect()
}

/// Members behind the first one's port.
struct Spread {
    instances: Vec<ScratchInstance>,
    ports: Vec<Port>,
    shares: Shares,
}

impl Spread {
    fn new(scratch: &mut Scratch, ring: u32) -> Self {
        let instances: Vec<ScratchInstance> = (0..MEMBERS)
            .map(|_| scratch.instance(1, ring, 64).expect("an instance"))
            .collect();
        let port = |it: &ScratchInstance| it.attach().expect("attach").ports.remove(0);
        let spread = Spread {
            ports: instances.iter().map(port).collect(),
            instances,
            shares: Shares::ONE,
        };
        scratch
            .switch
            .begin_spread(spread.front())
            .expect("a table");
        spread
    }

    fn front(&self) -> u32 {
        self.instances[0].id(0)
    }

    fn id(&self, member: u8) -> u32 {
        self.instances[usize::from(member)].id(0)
    }

    /// Divides the flows anew. Returns the members that have lost some, and how far their rings are to be read before those
    /// of the others are.
    fn divide(&mut self, scratch: &Scratch, members: u8, senders: &[u32]) -> Vec<(u8, u32)> {
        let before = self.shares;
        self.shares = before.among(members);
        let table = self.shares.members().map(|member| self.id(member));
        let (switch, front) = (&scratch.switch, self.front());
        switch.set_spread(front, &table).expect("set");
        let is_over = switch.await_spread(front, senders, PATIENCE);
        assert!(is_over.expect("a table"));
        assert_eq!(switch.spread(front).expect("a table"), Some(table));
        let has_lost = |member: &u8| {
            let had = before.buckets_of(*member);
            !had.without(&self.shares.buckets_of(*member)).is_empty()
        };
        let losers = (0..MEMBERS).filter(has_lost);
        losers
            .map(|it| (it, switch.reserved_to(self.id(it))))
            .collect()
    }

    /// The member that has a flow.
    fn member_of(&self, from: IpAddr, to: IpAddr) -> usize {
        self.shares.members()[usize::from(bucket_of(from, to))].into()
    }
}

// promise: 7.39
#[test]
fn each_flow_has_one_member_both_ways_also_its_errors_and_behind_tags() {
    for_each_form("spread", |scratch| {
        let mut spread = Spread::new(scratch, 64);
        let sender = scratch.instance(1, 64, 64).expect("an instance");
        let link = Destination::Link(spread.front());
        scratch.switch.connect(sender.id(0), link).expect("a link");
        let mut from = sender.attach().expect("attach").ports.remove(0);
        let mut used = [0; MEMBERS as usize];
        for members in [1, 3, 2] {
            spread.divide(scratch, members, &[sender.id(0)]);
            for host in 0..60 {
                for (client, server) in ends(host) {
                    let router = ends(200)[usize::from(client.is_ipv6())].0;
                    let member = spread.member_of(client, server);
                    for sent in frames_of(client, server, router) {
                        send(&mut from, &sent);
                        assert_eq!(from.flush(WhenFull::Drop).expect("up"), 1);
                        for (number, port) in spread.ports.iter_mut().enumerate() {
                            let wanted = if number == member {
                                vec![sent.clone()]
                            } else {
                                vec![]
                            };
                            assert_eq!(received(port), wanted, "{members} {client} {server}");
                        }
                    }
                    used[member] += 1;
                }
            }
        }
        assert!(used.iter().all(|flows| *flows > 0), "{used:?}");
        scratch.switch.end_spread(spread.front()).expect("ended");
        assert_eq!(scratch.switch.spread(spread.front()).expect("told"), None);
    });
}

/// Sends numbered frames of many flows until `stop` is set; returns the number of frames of each.
fn send_on(mut port: Port, stop: &AtomicBool) -> Vec<u32> {
    let mut sent = vec![0; BUCKETS];
    let mut flow = 0;
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..16 {
            flow = (flow + 1) % sent.len();
            let (from, to) = ends(flow as u8)[0];
            send(&mut port, &frame(from, to, sent[flow]));
            sent[flow] += 1;
        }
        while port.queued() > 0 && !stop.load(Ordering::Relaxed) {
            port.flush(WhenFull::Keep).expect("up");
            port.collect();
        }
    }
    // Kept frames were not sent.
    while port.queued() > 0 {
        port.flush(WhenFull::Keep).expect("up");
        port.collect();
        thread::yield_now();
    }
    sent
}

/// Takes frames from one ring, each of which has to be the next of its flow.
fn take(port: &mut Port, most: usize, next: &mut [u32]) -> usize {
    port.receive(most, |bytes| {
        let flow = usize::from(bytes[29]);
        let number = u32::from_be_bytes(bytes[42..46].try_into().expect("four bytes"));
        assert_eq!(number, next[flow], "flow {flow}");
        next[flow] += 1;
    })
}

// promise: 7.39
#[test]
fn a_flow_that_is_given_to_another_member_is_neither_lost_nor_overtaken() {
    for_each_form("spread-move", |scratch| {
        let mut spread = Spread::new(scratch, 256);
        let sender = scratch.instance(1, 64, 64).expect("an instance");
        let link = Destination::Link(spread.front());
        scratch.switch.connect(sender.id(0), link).expect("a link");
        let from = sender.attach().expect("attach").ports.remove(0);
        let stop = AtomicBool::new(false);
        let mut next = vec![0; BUCKETS];
        let sent = thread::scope(|scope| {
            let sending = scope.spawn(|| send_on(from, &stop));
            for members in [3, 1, 2, 3, 2, 1].repeat(20) {
                let until = spread.divide(scratch, members, &[sender.id(0)]);
                for (member, until) in until {
                    let port = &mut spread.ports[usize::from(member)];
                    let begun = Instant::now();
                    while port.taken() != until {
                        take(port, 1, &mut next);
                        assert!(begun.elapsed() < PATIENCE, "a frame that is coming comes");
                    }
                }
                for port in &mut spread.ports {
                    take(port, usize::MAX, &mut next);
                }
            }
            stop.store(true, Ordering::Relaxed);
            while !sending.is_finished() {
                for port in &mut spread.ports {
                    take(port, usize::MAX, &mut next);
                }
            }
            sending.join().expect("sent")
        });
        for port in &mut spread.ports {
            take(port, usize::MAX, &mut next);
        }
        assert_eq!(next, sent, "all that was sent has arrived");
        assert_eq!(scratch.switch.counters(sender.id(0)).dropped_total(), 0);
    });
}

// promise: 7.39
#[test]
fn what_comes_in_on_an_uplink_goes_where_what_an_instance_sends_goes() {
    let Some(mut fixture) = Fixture::new("spread", &["up", "out"]) else {
        return;
    };
    fixture.join(("up", "up0"), ("out", "out0"));
    let spec = fixture.spec("up", "up0");
    let _uplink = fixture.open(&spec).expect("an uplink");
    let mut spread = Spread::new(&mut fixture.scratch, 64);
    let link = Destination::Link(spread.front());
    fixture
        .scratch
        .switch
        .connect(spec.port, link)
        .expect("a link");
    let outside = fixture.raw("out", "out0");
    for members in [1, 3] {
        spread.divide(&fixture.scratch, members, &[]);
        for host in 0..20 {
            for (client, server) in ends(host) {
                let router = ends(200)[usize::from(client.is_ipv6())].0;
                let member = spread.member_of(client, server);
                for sent in frames_of(client, server, router) {
                    let id = spread.id(member as u8);
                    let before = fixture.scratch.switch.counters(id).rx_frames;
                    outside.send(&sent);
                    eventually("the frame is where its flow is", || {
                        fixture.scratch.switch.counters(id).rx_frames > before
                    });
                    let arrived = received(&mut spread.ports[member]);
                    assert_eq!(arrived.len(), 1, "{members} {client} {server}");
                    assert!(arrived[0].starts_with(&sent), "short ones are padded");
                }
            }
        }
    }
}
