//! The promise: at tc a packet's tag, which is beside it there, is seen; others may be there too; and who is sent a packet gets it, be
//! it handed to the other end of a veth or not.

use crate::ground::{Ground, HOSTS, OWN, SERVICE, datagram, firewall, left, move_to};
use nfluid_evnf::chain::Chain;
use nfluid_evnf::firewall::Exit;
use nfluid_evnf::hook::Hook;
use nfluid_gen::interface::{InterfaceReceiver, InterfaceSender};
use nfluid_gen::io::{Receiver, Sender};
use nfluid_tests::harness::skip::is_root;
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

#[test]
fn a_tag_beside_a_packet_is_seen_and_others_may_be_at_tc_too() {
    if !is_root("a_tag_beside_a_packet_is_seen_and_others_may_be_at_tc_too") {
        return;
    }
    let ground = Ground::new("tag");
    let firewalls = [(); 2].map(|()| firewall(&[], &["10.0.0.4"]));
    let chains = firewalls.each_ref().map(|firewall| {
        let mut chain = Chain::new(vec![firewall.member_at(Hook::Tc).unwrap()]).unwrap();
        chain.attach("n0").expect("there is room for all");
        chain
    });
    let mut at_xdp = ground.chain(&firewalls[0]);
    at_xdp.attach("n0").expect("another hook");
    at_xdp.detach();
    move_to(&ground.namespaces.hosts);
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

#[test]
fn who_is_sent_a_packet_at_tc_gets_it_directly_or_not() {
    if !is_root("who_is_sent_a_packet_at_tc_gets_it_directly_or_not") {
        return;
    }
    let ground = Ground::new("peer");
    let mut chain = Chain::new(vec![ground.member_at(Hook::Tc)]).unwrap();
    chain.attach("n0").expect("a veth takes it");
    let peers = [ground.number("n0"), ground.number("n1")];
    move_to(&ground.namespaces.hosts);
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
    assert_eq!(ground.sent_to(crate::ground::SERVER), 3);
}
