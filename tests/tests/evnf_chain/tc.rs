//! The promise: at tc a packet's tag, which is beside it there, is seen; others may be there too; who is sent a packet
//! gets it, be it handed to the other end of a veth or not; and what goes out meets a firewall there, whoever has made
//! or redirected it.

use crate::fixture::{Fixture, HOSTS, OWN, SERVICE, datagram, firewall, left};
use nfluid_evnf::chain::Chain;
use nfluid_evnf::firewall::{Exit, Family, Firewall, Pattern, Rule, Stage, Traffic, Verdict};
use nfluid_evnf::hook::Hook;
use nfluid_gen::interface::{InterfaceReceiver, InterfaceSender};
use nfluid_gen::io::{Receiver, Sender};
use nfluid_tests::harness::skip::is_root;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

/// Longest wait for a packet that is on its way.
const PATIENCE: Duration = Duration::from_secs(120);

/// A datagram of VLAN 5.
fn tagged(from: &str) -> Vec<u8> {
    let plain = datagram(from, SERVICE, 0);
    [&plain[..12], &[0x81, 0, 0, 5], &plain[12..]].concat()
}

fn send(sender: &mut InterfaceSender, packet: &[u8]) {
    let sent = sender.send(1, |_, slot| {
        slot[..packet.len()].copy_from_slice(packet);
        packet.len()
    });
    assert_eq!(sent.unwrap(), 1);
    sender.flush().unwrap();
}

fn await_that(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

// promise: 15.61
#[test]
fn a_tag_beside_a_packet_is_seen_and_others_may_be_at_tc_too() {
    if !is_root("a_tag_beside_a_packet_is_seen_and_others_may_be_at_tc_too") {
        return;
    }
    let fixture = Fixture::new("tag");
    let firewalls = [(); 2].map(|()| firewall(&[], &["10.0.0.4"]));
    let chains = firewalls.each_ref().map(|firewall| {
        let mut chain = Chain::new(vec![firewall.member_at(Hook::Tc).unwrap()]).unwrap();
        chain.attach("n0").expect("there is room for all");
        chain
    });
    let mut at_xdp = fixture.chain(&firewalls[0]);
    at_xdp.attach("n0").expect("another hook");
    at_xdp.detach();
    fixture.namespaces.hosts.enter().expect("root may");
    let mut sender = InterfaceSender::open("h0").unwrap();
    send(&mut sender, &tagged("10.0.0.4:1000"));
    send(&mut sender, &datagram("10.0.0.3:1000", SERVICE, 0));
    send(&mut sender, &datagram("10.0.0.4:1000", SERVICE, 0));
    await_that("the last one is dropped", || {
        left(&firewalls[0], Exit::Drop) == 1
    });
    for firewall in &firewalls {
        assert_eq!(left(firewall, Exit::Tagged), 1, "passed by both");
        assert_eq!(left(firewall, Exit::Accept), 1, "passed by both");
    }
    assert_eq!(left(&firewalls[1], Exit::Drop), 0, "never came");
    drop(chains);
    send(&mut sender, &datagram("10.0.0.4:1000", SERVICE, 0));
    assert_eq!(left(&firewalls[0], Exit::Drop), 1, "nobody is there");
}

// promise: 15.61
#[test]
fn who_is_sent_a_packet_at_tc_gets_it_directly_or_not() {
    if !is_root("who_is_sent_a_packet_at_tc_gets_it_directly_or_not") {
        return;
    }
    let fixture = Fixture::new("peer");
    let mut chain = Chain::new(vec![fixture.member_at(Hook::Tc)]).unwrap();
    chain.attach("n0").expect("a veth takes it");
    let peers = [fixture.number("n0"), fixture.number("n1")];
    fixture.namespaces.hosts.enter().expect("root may");
    let mut sender = InterfaceSender::open("h0").unwrap();
    let mut receiver = InterfaceReceiver::open("h1").unwrap();
    for (number, known) in [&[][..], &peers, &[]].into_iter().enumerate() {
        chain.set_peers(known).unwrap();
        let from = format!("10.0.0.2:{}", 2000 + number);
        let packet = datagram(&from, SERVICE, number as u32);
        let expected = [&HOSTS[1].0[..], &OWN[1].0, &packet[12..]].concat();
        send(&mut sender, &packet);
        let mut came = false;
        await_that("it comes as the kernel would send it", || {
            let take = |frame: &[u8]| came |= frame == expected;
            receiver.receive(256, take).unwrap();
            came
        });
    }
    assert_eq!(fixture.sent_to(crate::fixture::SERVER), 3);
}

/// Drops all of IPv4 that the host forwards, or all that it has made.
fn drops(traffic: Traffic) -> Firewall {
    let rules = vec![Rule {
        patterns: vec![Pattern::any(Family::V4)],
        verdict: Verdict::Drop,
    }];
    Firewall::load(&[Stage { traffic, rules }], &[]).unwrap()
}

// promise: 15.63
#[test]
fn what_goes_out_is_decided_by_who_has_made_it() {
    if !is_root("what_goes_out_is_decided_by_who_has_made_it") {
        return;
    }
    let fixture = Fixture::new("egress");
    fixture.namespaces.hosts.enter().expect("root may");
    let mut sender = InterfaceSender::open("h0").unwrap();
    let mut receiver = InterfaceReceiver::open("h1").unwrap();
    fixture.namespaces.kernel.enter().expect("root may");
    let own = UdpSocket::bind("192.0.2.1:7").unwrap();
    let packet = datagram("10.0.0.2:2000", SERVICE, 0);
    let mut comes = |from: u16, what: &str| {
        await_that(what, || {
            let mut came = false;
            let take = |frame: &[u8]| came |= frame.get(34..36) == Some(&from.to_be_bytes()[..]);
            receiver.receive(256, take).unwrap();
            came
        });
    };
    for traffic in [Traffic::Forwarded, Traffic::Local] {
        let firewall = drops(traffic);
        let member = firewall.member_at(Hook::Egress).unwrap();
        let mut chain = Chain::new(vec![member]).unwrap();
        chain.attach("n1").expect("there is room for it");
        let dropped = |count| await_that("it is dropped", || left(&firewall, Exit::Drop) == count);
        if traffic == Traffic::Forwarded {
            send(&mut sender, &packet);
            dropped(1);
            own.send_to(b"x", SERVICE).unwrap();
            comes(7, "what the host makes is not what it forwards");
            // Past the kernel's stack, which would have been asked.
            let mut sends = Chain::new(vec![fixture.member_at(Hook::Tc)]).unwrap();
            sends.attach("n0").expect("a veth takes it");
            send(&mut sender, &packet);
            dropped(2);
            assert_eq!(fixture.sent_to(crate::fixture::SERVER), 1);
        } else {
            // The sender may get an error.
            let _told = own.send_to(b"x", SERVICE);
            dropped(1);
            send(&mut sender, &packet);
            comes(2000, "what the host forwards is not what it makes");
        }
    }
}
