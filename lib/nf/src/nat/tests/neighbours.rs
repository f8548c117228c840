use super::{Bench, frame};
use nfluid_wire::arp::{ArpRepr, Operation};
use nfluid_wire::ether::{EthernetFrame, VlanStack};
use nfluid_wire::{MacAddr, VlanTag, build};
use serde_json::json;
use std::net::Ipv4Addr;
use std::vec::Vec;

const ROUTER: MacAddr = MacAddr([2, 0xaa, 0, 0, 0, 1]);
const HOST: MacAddr = MacAddr([2, 0xbb, 0, 0, 0, 2]);
/// The NAT's own ports, as the bench makes them.
const PORT_0: MacAddr = MacAddr([2, 0, 0, 0, 0, 0]);
const PORT_1: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const ROUTER_IP: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 254);
const POOL_IP: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);

fn arp_frame(tags: &[VlanTag], packet: &ArpRepr) -> Vec<u8> {
    let mut buffer = [0; 64];
    let len = build::arp(&mut buffer, tags, packet).unwrap();
    buffer[..len].to_vec()
}

fn macs(frame: &[u8]) -> (MacAddr, MacAddr) {
    let ethernet = EthernetFrame::new_unchecked(frame);
    (ethernet.src(), ethernet.dst())
}

fn with_macs(line: &str, src: MacAddr, dst: MacAddr) -> Vec<u8> {
    let (_, mut bytes) = frame(line);
    let mut ethernet = EthernetFrame::new_unchecked(&mut bytes);
    ethernet.set_src(src);
    ethernet.set_dst(dst);
    bytes
}

#[test]
fn questions_for_the_pool_are_answered_with_the_ports_own_address() {
    let mut nat = Bench::new(json!({}));
    let question = ArpRepr::request(ROUTER, ROUTER_IP, POOL_IP);
    for tags in [&[][..], &[VlanTag::new(7)]] {
        let sent = nat.send(1, &arp_frame(tags, &question));
        let (port, answer) = &sent[0];
        assert_eq!((*port, macs(answer)), (1, (PORT_1, ROUTER)));
        let stack = VlanStack::peek(answer).unwrap();
        assert_eq!(stack.tags(), tags);
        let packet = ArpRepr::parse(&answer[stack.l3_offset..]).unwrap();
        assert_eq!(packet.operation, Operation::REPLY);
        assert_eq!((packet.sender_mac, packet.sender_ip), (PORT_1, POOL_IP));
        assert_eq!((packet.target_mac, packet.target_ip), (ROUTER, ROUTER_IP));
    }
    let from_inside = nat.send(0, &arp_frame(&[], &question));
    assert_eq!((from_inside[0].0, macs(&from_inside[0].1).0), (0, PORT_0));
    assert_eq!(nat.metric("arp_total", Some("answered")), 3.0);
}

#[test]
fn other_arp_passes_untouched() {
    let mut nat = Bench::new(json!({}));
    let announcement = ArpRepr::request(ROUTER, POOL_IP, POOL_IP);
    let probe = ArpRepr::request(ROUTER, Ipv4Addr::UNSPECIFIED, POOL_IP);
    let elsewhere = ArpRepr::request(ROUTER, ROUTER_IP, Ipv4Addr::new(10, 0, 0, 2));
    let reply = elsewhere.reply_from(HOST);
    for packet in [announcement, probe, elsewhere, reply] {
        let bytes = arp_frame(&[], &packet);
        assert_eq!(nat.send(1, &bytes), [(0, bytes.clone())]);
    }
    let mut silent = Bench::new(json!({"proxy_arp": false}));
    let bytes = arp_frame(&[], &ArpRepr::request(ROUTER, ROUTER_IP, POOL_IP));
    assert_eq!(silent.send(1, &bytes), [(0, bytes.clone())]);
}

#[test]
fn what_is_not_ipv4_passes_as_far_as_configured() {
    let mut ipv6 = [0u8; 60];
    ipv6[12..15].copy_from_slice(&[0x86, 0xdd, 0x60]);
    let arp = arp_frame(&[], &ArpRepr::request(ROUTER, ROUTER_IP, ROUTER_IP));
    for (policy, ipv6_passes, arp_passes) in [
        ("pass", true, true),
        ("arp-only", false, true),
        ("drop", false, false),
    ] {
        let mut nat = Bench::new(json!({ "non_ipv4": policy }));
        assert_eq!(!nat.send(0, &ipv6).is_empty(), ipv6_passes, "{policy}");
        assert_eq!(!nat.send(0, &arp).is_empty(), arp_passes, "{policy}");
    }
}

#[test]
fn hardware_addresses_of_others_are_left_alone() {
    let mut nat = Bench::new(json!({}));
    let out = with_macs("inside udp 10.0.0.2:5000 > 192.0.2.9:53", HOST, ROUTER);
    assert_eq!(macs(&nat.send(0, &out)[0].1), (HOST, ROUTER));
    let inside_router = MacAddr([2, 0xcc, 0, 0, 0, 3]);
    let back = with_macs(
        "outside udp 192.0.2.9:53 > 203.0.113.1:5000",
        ROUTER,
        inside_router,
    );
    assert_eq!(macs(&nat.send(1, &back)[0].1), (ROUTER, inside_router));
}

#[test]
fn frames_to_the_answered_address_reach_the_host() {
    let mut nat = Bench::new(json!({}));
    let out = with_macs("inside udp 10.0.0.2:5000 > 192.0.2.9:53", HOST, ROUTER);
    nat.send(0, &out);
    let back = with_macs(
        "outside udp 192.0.2.9:53 > 203.0.113.1:5000",
        ROUTER,
        PORT_1,
    );
    assert_eq!(macs(&nat.send(1, &back)[0].1), (ROUTER, HOST));
}

#[test]
fn a_forwards_silent_host_is_asked_for_once_a_second() {
    let mut nat = Bench::new(json!({"forward": ["tcp 203.0.113.1:80 -> 10.0.0.2:80 vlan 7"]}));
    let line = "outside vlan 7 tcp 192.0.2.9:4000 > 203.0.113.1:80 syn";
    let syn = with_macs(line, ROUTER, PORT_1);
    let sent = nat.send(1, &syn);
    let [(0, question)] = &sent[..] else {
        panic!("the frame is dropped, a question goes inside: {sent:?}");
    };
    assert_eq!(macs(question), (PORT_0, MacAddr::BROADCAST));
    let stack = VlanStack::peek(question).unwrap();
    assert_eq!(stack.tags(), [VlanTag::new(7)]);
    let packet = ArpRepr::parse(&question[stack.l3_offset..]).unwrap();
    assert_eq!(packet.sender_ip, Ipv4Addr::UNSPECIFIED);
    assert_eq!(packet.target_ip, Ipv4Addr::new(10, 0, 0, 2));
    assert!(nat.send(1, &syn).is_empty(), "asked within the second");
    nat.wait(1);
    assert_eq!(nat.send(1, &syn).len(), 1, "asked again");
    assert_eq!(
        nat.metric("packets_dropped_total", Some("inside_unresolved")),
        3.0
    );

    let answer = arp_frame(&[VlanTag::new(7)], &packet.reply_from(HOST));
    nat.send(0, &answer);
    assert_eq!(macs(&nat.send(1, &syn)[0].1), (ROUTER, HOST));
}

#[test]
fn a_host_that_moves_is_found_again() {
    let mut nat = Bench::new(json!({}));
    let line = "inside udp 10.0.0.2:5000 > 192.0.2.9:53";
    let moved = MacAddr([2, 0xdd, 0, 0, 0, 4]);
    nat.send(0, &with_macs(line, HOST, ROUTER));
    nat.send(0, &with_macs(line, moved, ROUTER));
    let back = with_macs(
        "outside udp 192.0.2.9:53 > 203.0.113.1:5000",
        ROUTER,
        PORT_1,
    );
    assert_eq!(macs(&nat.send(1, &back)[0].1), (ROUTER, moved));
}

// Catches: a question that leaves before or behind the batch.
// promise: 10.25
#[test]
fn a_question_leaves_where_its_packet_was() {
    let mut nat = Bench::new(json!({"forward": ["tcp 203.0.113.1:80 -> 10.0.0.2:80"]}));
    let out = with_macs("inside udp 10.0.0.3:5000 > 192.0.2.9:53", HOST, ROUTER);
    nat.send(0, &out);
    let answer = "outside udp 192.0.2.9:53 > 203.0.113.1:5000";
    let answer = with_macs(answer, ROUTER, PORT_1);
    let syn = "outside tcp 192.0.2.9:4000 > 203.0.113.1:80 syn";
    let syn = with_macs(syn, ROUTER, PORT_1);
    let sent = nat.send_all(&[(1, answer.clone()), (1, syn), (1, answer)]);
    let receivers: Vec<MacAddr> = sent.iter().map(|(_, frame)| macs(frame).1).collect();
    assert_eq!(receivers, [HOST, MacAddr::BROADCAST, HOST]);
}
