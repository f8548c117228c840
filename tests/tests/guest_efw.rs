//! eFW's fast path on each kernel: the kernel takes the program, which decides packet by packet as its stages say.
//! `oracle_efw` tests whole rule sets of nftables.

use nfluid_evnf::chain::Chain;
use nfluid_evnf::firewall::{
    Exit, Family, Firewall, Pattern, Prefix, Rule, Stage, Traffic, Verdict,
};
use nfluid_evnf::hook::Hook;
use nfluid_evnf::load::{Action, Counts};
use nfluid_tests::harness::skip::is_root;
use nfluid_wire::build::Frame;
use nfluid_wire::ipv6::FragmentInfo;
use nfluid_wire::{EtherType, IpProtocol, TcpFlags, VlanTag};
use std::net::{IpAddr, SocketAddr};

const UDP: u8 = 17;

fn of_host(address: &str) -> Prefix {
    let address: IpAddr = address.parse().unwrap();
    Prefix::of_address(address, Family::of(address).bits())
}

fn rule(pattern: Pattern, verdict: Verdict) -> Rule {
    Rule {
        patterns: vec![pattern],
        verdict,
    }
}

/// 10.0.0.1 may do anything, 10.0.0.2 may be asked about, 2001:db8::1 nothing; no other host may send UDP to port 53.
fn stage() -> Stage {
    let from = |address| Pattern {
        src: of_host(address),
        ..Pattern::any(Family::V4)
    };
    let domain = Pattern {
        proto: Some(UDP),
        dport: Prefix {
            bits: 53 << 112,
            len: 16,
        },
        ports: true,
        ..Pattern::any(Family::V4)
    };
    let banned = Pattern {
        src: of_host("2001:db8::1"),
        ..Pattern::any(Family::V6)
    };
    Stage {
        traffic: Traffic::All,
        rules: vec![
            rule(from("10.0.0.1"), Verdict::Accept),
            rule(from("10.0.0.2"), Verdict::Ask),
            rule(domain, Verdict::Drop),
            rule(banned, Verdict::Drop),
        ],
    }
}

fn udp(from: &str, to: &str) -> Frame<'static> {
    let address = |text: &str| -> SocketAddr { text.parse().unwrap() };
    Frame::udp(address(from), address(to))
}

fn bytes(frame: Frame<'_>) -> Vec<u8> {
    let mut buffer = [0; 256];
    let len = frame.write(&mut buffer, &[0; 20]).unwrap();
    buffer[..len].to_vec()
}

// promise: 15.61
#[test]
fn what_is_going_to_be_cut_is_decided_and_counted_once() {
    if !is_root("what_is_going_to_be_cut_is_decided_and_counted_once") {
        return;
    }
    let firewall = Firewall::load(&[stage()], &[]).unwrap();
    let mut chain = at_hook(&firewall, Hook::Tc);
    for (port, exit, expected) in [
        (53, Exit::Drop, Action::Drop),
        (54, Exit::Accept, Action::Pass),
    ] {
        let to = format!("10.1.0.1:{port}");
        let mut buffer = [0; 3000];
        let frame = udp("10.0.0.3:1000", &to);
        let len = frame.write(&mut buffer, &[7; 2800]).unwrap();
        let run = chain.test_run_segments(&buffer[..len], 700).unwrap();
        let whole = Counts {
            packets: 1,
            bytes: len as u64,
        };
        assert_eq!(run.action, expected, "{exit:?}");
        assert_eq!(counted(&firewall, exit), whole, "{exit:?}");
    }
}

// promise: 15.2, 15.61
#[test]
fn each_packet_leaves_by_the_exit_that_is_its_own() {
    if !is_root("each_packet_leaves_by_the_exit_that_is_its_own") {
        return;
    }
    let firewall = Firewall::load(&[stage()], &[]).unwrap();
    let plain = || udp("10.0.0.3:1000", "10.1.0.1:53");
    let tags = [VlanTag::new(5)];
    let mut stacked = [VlanTag::new(5), VlanTag::new(6)];
    stacked[0].tpid = EtherType::QINQ;
    let within = |from: &str, to: &str, protocol| {
        let outer = Frame::ip(
            from.parse().unwrap(),
            to.parse().unwrap(),
            IpProtocol(protocol),
        );
        let gre: &[u8] = if protocol == 47 { &[0, 0, 8, 0] } else { &[] };
        let payload = [gre, &bytes(plain())[14..]].concat();
        let mut buffer = [0; 256];
        let len = outer.write(&mut buffer, &payload).unwrap();
        buffer[..len].to_vec()
    };
    let mut options = bytes(plain());
    options[14] = 0x46;
    let mut group = bytes(plain());
    group[0] |= 1;
    let mut extension = bytes(udp("[2001:db8::1]:1", "[2001:db8::2]:2"));
    extension[20] = 0;
    let fragment = FragmentInfo {
        offset: 0,
        more: true,
        ident: 7,
    };
    let (src, dst) = ("10.0.0.3".parse().unwrap(), "10.1.0.1".parse().unwrap());
    let refused = SocketAddr::from((src, 1000));
    let table = [
        (bytes(plain()), Exit::Drop),
        (bytes(udp("10.0.0.1:1000", "10.1.0.1:53")), Exit::Accept),
        (bytes(udp("10.0.0.2:1000", "10.1.0.1:53")), Exit::Ask),
        (bytes(udp("10.0.0.3:1000", "10.1.0.1:54")), Exit::Accept),
        (
            bytes(Frame::tcp(
                refused,
                "10.1.0.1:53".parse().unwrap(),
                TcpFlags::SYN,
            )),
            Exit::Accept,
        ),
        (bytes(udp("[2001:db8::1]:1", "[2001:db8::2]:2")), Exit::Drop),
        (
            bytes(udp("[2001:db8::3]:1", "[2001:db8::2]:53")),
            Exit::Accept,
        ),
        (bytes(plain().vlans(&tags)), Exit::Tagged),
        (bytes(plain().vlans(&stacked)), Exit::Tagged),
        // Tunnels are decided by their outer headers, as in the kernel: the inner packet would be denied.
        (within("10.0.0.3", "10.1.0.1", 47), Exit::Accept),
        (within("10.0.0.3", "10.1.0.1", 4), Exit::Accept),
        (within("10.0.0.2", "10.1.0.1", 4), Exit::Ask),
        (within("2001:db8::1", "2001:db8::2", 41), Exit::Drop),
        (bytes(plain().ttl(1)), Exit::Ttl),
        (
            bytes(Frame::ip(src, dst, IpProtocol::UDP).fragment(fragment)),
            Exit::Fragment,
        ),
        (options, Exit::Options),
        (group, Exit::Group),
        (extension, Exit::Extension),
        (bytes(plain())[..36].to_vec(), Exit::Malformed),
        ([&[2; 12][..], &[8, 6], &[0; 28]].concat(), Exit::NotIp),
    ];
    // The second time, flows come from the cache, which both hooks share.
    for (turn, hook) in [(1, Hook::Xdp), (2, Hook::Xdp), (3, Hook::Tc)] {
        let mut chain = at_hook(&firewall, hook);
        for (packet, exit) in &table {
            let before = counted(&firewall, *exit);
            let action = chain.test_run(packet, 1).unwrap().action;
            let expected = match exit {
                Exit::Drop => Action::Drop,
                _ => Action::Pass,
            };
            assert_eq!(action, expected, "{exit:?}, turn {turn}: {packet:02x?}");
            let after = counted(&firewall, *exit);
            assert_eq!(after.packets, before.packets + 1, "{exit:?}, turn {turn}");
            assert_eq!(after.bytes, before.bytes + packet.len() as u64);
        }
    }
    assert_eq!(firewall.dropped_by(2).unwrap().packets, 3, "by rule");
    assert_eq!(firewall.dropped_by(3).unwrap().packets, 6, "by rule");
}

/// As packets of a run have come in by no interface, the host has made them.
// promise: 15.63
#[test]
fn on_the_way_out_groups_and_last_hops_are_decided_too() {
    if !is_root("on_the_way_out_groups_and_last_hops_are_decided_too") {
        return;
    }
    let of = |traffic| Firewall::load(&[Stage { traffic, ..stage() }], &[]).unwrap();
    let refused = || udp("10.0.0.3:1000", "10.1.0.1:53");
    let mut group = bytes(refused());
    group[0] |= 1;
    let tags = [VlanTag::new(5)];
    for (traffic, expected) in [
        (Traffic::All, Exit::Drop),
        (Traffic::Local, Exit::Drop),
        (Traffic::Forwarded, Exit::Accept),
    ] {
        let firewall = of(traffic);
        let mut chain = at_hook(&firewall, Hook::Egress);
        for packet in [bytes(refused()), bytes(refused().ttl(1)), group.clone()] {
            let before = counted(&firewall, expected);
            chain.test_run(&packet, 1).unwrap();
            let after = counted(&firewall, expected);
            assert_eq!(
                after.packets,
                before.packets + 1,
                "{traffic:?}: {packet:02x?}"
            );
        }
        chain.test_run(&bytes(refused().vlans(&tags)), 1).unwrap();
        assert_eq!(counted(&firewall, Exit::Tagged).packets, 1);
    }
}

fn at_hook(firewall: &Firewall, hook: Hook) -> Chain {
    Chain::new(vec![firewall.member_at(hook).unwrap()]).unwrap()
}

fn counted(firewall: &Firewall, exit: Exit) -> Counts {
    let exits = firewall.exits().unwrap();
    exits.iter().find(|(own, _)| *own == exit).unwrap().1
}

// promise: 15.1
#[test]
fn a_stage_that_cannot_tell_is_not_overruled_by_those_behind_it() {
    if !is_root("a_stage_that_cannot_tell_is_not_overruled_by_those_behind_it") {
        return;
    }
    let all = |verdict| Stage {
        traffic: Traffic::All,
        rules: vec![rule(Pattern::any(Family::V4), verdict)],
    };
    let packet = bytes(udp("10.0.0.3:1000", "10.1.0.1:53"));
    for (verdicts, expected) in [
        ([Verdict::Accept, Verdict::Drop], Action::Drop),
        ([Verdict::Drop, Verdict::Ask], Action::Drop),
        ([Verdict::Ask, Verdict::Drop], Action::Pass),
        ([Verdict::Accept, Verdict::Accept], Action::Pass),
    ] {
        let firewall = Firewall::load(&verdicts.map(all), &[]).unwrap();
        for hook in [Hook::Tc, Hook::Xdp] {
            let run = at_hook(&firewall, hook).test_run(&packet, 1).unwrap();
            assert_eq!(run.action, expected, "{verdicts:?}, {hook:?}");
        }
    }
}
