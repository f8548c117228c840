//! One body, several engines: each fast engine equals the plain reference.

use super::super::packet::{Packet, Transport};
use super::super::rule::{Rule, RuleAction};
use super::super::ruleset::{Engine, Ruleset};
use super::*;
use nfluid_wire::flow::Fragment;
use nfluid_wire::ipv6::FragmentInfo;
use nfluid_wire::{IpProtocol, PacketMeta};
use proptest::collection::vec;
use proptest::prelude::*;
use std::string::ToString;

/// All matches of a packet, in order, by each engine.
fn engines_agree(rules: Vec<Rule>, packets: &[Packet]) -> Result<(), TestCaseError> {
    let reference = Ruleset::with_engine(rules.clone(), Engine::Reference);
    for engine in [Engine::Linear, Engine::Classifier] {
        let fast = Ruleset::with_engine(rules.clone(), engine);
        for packet in packets {
            let mut start = 0;
            loop {
                let expected = reference.first_match(packet, start);
                let found = fast.first_match(packet, start);
                let rule = |index: Option<usize>| index.map(|index| rules[index].to_string());
                prop_assert_eq!(
                    found,
                    expected,
                    "{:?} from {} on {:?}: found {:?}, expected {:?}",
                    engine,
                    start,
                    packet,
                    rule(found),
                    rule(expected)
                );
                match expected {
                    Some(index) => start = index + 1,
                    None => break,
                }
            }
        }
    }
    Ok(())
}

proptest! {
    // promise: 10.4
    #[test]
    fn engines_agree_on_few_rules(
        rules in vec(arbitrary::rule(), 0..40),
        packets in vec(arbitrary::packet(), 60),
    ) {
        engines_agree(rules, &packets)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, max_shrink_iters: 64, ..Default::default() })]

    // promise: 10.4
    #[test]
    fn engines_agree_on_many_rules(
        rules in vec(arbitrary::rule(), 500..1500),
        packets in vec(arbitrary::packet(), 60),
    ) {
        engines_agree(rules, &packets)?;
    }
}

/// A frame that holds the packet, or one like it where there is none.
fn frame_of(packet: &Packet) -> Vec<u8> {
    let (src, dst) = (packet.addresses.src(), packet.addresses.dst());
    let frame = match packet.transport {
        Transport::Tcp {
            src: from,
            dst: to,
            flags,
        } => {
            let (from, to) = (SocketAddr::new(src, from), SocketAddr::new(dst, to));
            Frame::tcp(from, to, TcpFlags(flags))
        }
        Transport::Udp { src: from, dst: to } => {
            Frame::udp(SocketAddr::new(src, from), SocketAddr::new(dst, to))
        }
        Transport::Icmp { kind, code, id } => {
            let [high, low] = id.to_be_bytes();
            Frame::icmp(src, dst, kind, code, [high, low, 0, 0])
        }
        Transport::Opaque => Frame::ip(src, dst, IpProtocol(packet.protocol)),
    };
    let tag = packet.vlan.map(VlanTag::new);
    let frame = frame.vlans(tag.as_slice());
    match packet.fragment {
        Fragment::Later => {
            let ident = 1;
            let (offset, more) = (800, false);
            bytes(
                frame.fragment(FragmentInfo {
                    offset,
                    more,
                    ident,
                }),
                &[0; 24],
            )
        }
        Fragment::First | Fragment::None => bytes(frame, &[0; 24]),
    }
}

/// Returns the right counters of the rules, by the plain reference.
fn expected_hits(rules: &[Rule], frames: &[Sent]) -> Vec<u64> {
    let reference = Ruleset::with_engine(rules.to_vec(), Engine::Reference);
    let mut hits = vec![0; rules.len()];
    for (port, frame) in frames {
        let meta = PacketMeta::parse(frame).expect("whole");
        let packet = Packet::new(&meta, *port).expect("IP");
        let mut start = 0;
        while let Some(index) = reference.first_match(&packet, start) {
            hits[index] += 1;
            if rules[index].action != RuleAction::Count {
                break;
            }
            start = index + 1;
        }
    }
    hits
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..Default::default() })]

    // promise: 10.4
    #[test]
    fn counters_of_long_lists_are_right_also_when_flows_come_again(
        rules in vec(arbitrary::rule(), 65..200),
        packets in vec(arbitrary::packet(), 90),
        order in vec(0..90_usize, 400),
    ) {
        let rules: Vec<Rule> = rules
            .into_iter()
            .filter(|rule| !rule.checks_states())
            .zip(1..)
            .map(|(rule, number)| Rule { number, ..rule })
            .collect();
        let frames: Vec<Sent> = order
            .into_iter()
            .map(|index| (packets[index].in_port, frame_of(&packets[index])))
            .filter(|(_, frame)| PacketMeta::parse(frame).is_ok())
            .collect();
        let text: Vec<String> = rules.iter().map(ToString::to_string).collect();
        let mut fw = Bench::with_rules(&text.join("\n"));
        run(&mut *fw.nf, fw.now, &frames);
        let answer = fw.command("rules", &[]);
        let rows = answer["rules"].as_array().expect("a list");
        let hits: Vec<u64> = rows.iter().filter_map(|row| row["packets"].as_u64()).collect();
        prop_assert_eq!(hits, expected_hits(&rules, &frames));
    }
}
