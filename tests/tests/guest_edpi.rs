//! eDPI's fast path on each kernel: it loads, counts each packet once, and treats packets of flows by its table.

use nfluid_evnf::chain::Chain;
use nfluid_evnf::hook::Hook;
use nfluid_evnf::inspector::{Action as Treated, Copied, Entry, Exit, FlowKey, Inspector, Sizes};
use nfluid_evnf::load::{Action, Counts};
use nfluid_tests::harness::skip::is_root;
use nfluid_wire::VlanTag;
use nfluid_wire::build::Frame;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const UDP: u8 = 17;
const ENDS: [[&str; 2]; 2] = [
    ["10.0.0.3:1000", "10.1.0.1:53"],
    ["[2001:db8::3]:1000", "[2001:db8:1::1]:53"],
];
const ENTRY: Entry = Entry {
    slot: 3,
    action: Treated::Pass,
    dscp: None,
    copy: false,
    note: 0,
};

fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn udp([from, to]: [&str; 2]) -> Frame<'static> {
    Frame::udp(at(from), at(to))
}

fn bytes(frame: Frame<'_>, payload: usize) -> Vec<u8> {
    let mut buffer = [0; 2048];
    let len = frame.write(&mut buffer, &vec![7; payload]).unwrap();
    buffer[..len].to_vec()
}

fn key([one, other]: [&str; 2]) -> FlowKey {
    FlowKey::new(at(one), at(other), UDP)
}

fn load(copies: u32) -> Inspector {
    let sizes = Sizes {
        flows: 8,
        copies,
        ..Sizes::default()
    };
    Inspector::load(sizes).unwrap()
}

fn at_hook(inspector: &Inspector, hook: Hook) -> Chain {
    Chain::new(vec![inspector.member_at(hook).unwrap()]).unwrap()
}

fn pass(inspector: &mut Chain, packet: &[u8]) -> (Action, Vec<u8>) {
    let run = inspector.test_run(packet, 1).unwrap();
    (run.action, run.packet)
}

fn counted(inspector: &Inspector, exit: Exit) -> Counts {
    let exits = inspector.exits().unwrap();
    exits.iter().find(|(own, _)| *own == exit).unwrap().1
}

fn of(packets: u64, len: usize) -> Counts {
    Counts {
        packets,
        bytes: packets * len as u64,
    }
}

// promise: 15.23, 15.61
#[test]
fn packets_of_flows_in_the_table_are_counted_there_and_others_are_copied() {
    if !is_root("packets_of_flows_in_the_table_are_counted_there_and_others_are_copied") {
        return;
    }
    for hook in [Hook::Xdp, Hook::Tc] {
        counts_and_copies(hook);
    }
}

fn counts_and_copies(hook: Hook) {
    let inspector = load(1 << 16);
    let mut chain = at_hook(&inspector, hook);
    let copies = Arc::new(Mutex::new(Vec::new()));
    let own = Arc::clone(&copies);
    let reader = inspector.tables().copies(move |copied: Copied<'_>| {
        let Copied {
            length,
            counted,
            bytes,
            ..
        } = copied;
        own.lock().unwrap().push((length, counted, bytes.to_vec()));
        true
    });
    let reader = reader.unwrap();
    let mut sum = Counts::default();
    for ends in ENDS {
        let back = [ends[1], ends[0]];
        for (ends, payload) in [(ends, 20), (back, 1400)] {
            let packet = bytes(udp(ends), payload);
            assert_eq!(pass(&mut chain, &packet), (Action::Pass, packet.clone()));
            reader.wait(Duration::ZERO);
            let expected = (packet.len() as u32, false, packet);
            assert_eq!(copies.lock().unwrap().pop(), Some(expected));
        }
        inspector.tables().enter(&key(ends), &ENTRY).unwrap();
        for (ends, payload) in [(ends, 20), (back, 1400)] {
            let packet = bytes(udp(ends), payload);
            assert_eq!(pass(&mut chain, &packet), (Action::Pass, packet.clone()));
            sum.packets += 1;
            sum.bytes += packet.len() as u64;
        }
        reader.wait(Duration::ZERO);
        assert_eq!(
            copies.lock().unwrap().len(),
            0,
            "they are counted by their flow"
        );
        assert_eq!(inspector.tables().counted(3).unwrap(), sum);
        let copied = Entry {
            copy: true,
            ..ENTRY
        };
        inspector.tables().enter(&key(back), &copied).unwrap();
        let packet = bytes(udp(ends), 30);
        pass(&mut chain, &packet);
        sum.packets += 1;
        sum.bytes += packet.len() as u64;
        reader.wait(Duration::ZERO);
        let expected = (packet.len() as u32, true, packet);
        assert_eq!(copies.lock().unwrap().pop(), Some(expected));
        assert_eq!(inspector.tables().counted(3).unwrap(), sum);
        inspector.tables().remove(&key(ends)).unwrap();
        assert!(
            inspector.tables().remove(&key(ends)).is_err(),
            "it is not there"
        );
    }
    assert_eq!(counted(&inspector, Exit::Passed), sum);
    assert_eq!(counted(&inspector, Exit::Copied).packets, 4);
}

// promise: 15.23, 15.61
#[test]
fn flows_are_dropped_and_marked_by_their_entry() {
    if !is_root("flows_are_dropped_and_marked_by_their_entry") {
        return;
    }
    for hook in [Hook::Xdp, Hook::Tc] {
        drops_and_marks(hook);
    }
}

fn drops_and_marks(hook: Hook) {
    let inspector = load(1 << 16);
    let mut chain = at_hook(&inspector, hook);
    for ends in ENDS {
        let packet = bytes(udp(ends).traffic_class(1), 20);
        let mark = Entry {
            dscp: Some(46),
            ..ENTRY
        };
        inspector.tables().enter(&key(ends), &mark).unwrap();
        // The two bits of ECN stay; the checksum is right.
        let expected = bytes(udp(ends).traffic_class(46 << 2 | 1), 20);
        assert_eq!(pass(&mut chain, &packet), (Action::Pass, expected));
        let drop = Entry {
            action: Treated::Drop,
            ..ENTRY
        };
        inspector.tables().enter(&key(ends), &drop).unwrap();
        assert_eq!(pass(&mut chain, &packet), (Action::Drop, packet.clone()));
    }
    assert_eq!(counted(&inspector, Exit::Dropped).packets, 2);
    assert_eq!(counted(&inspector, Exit::Passed).packets, 2);
    assert_eq!(inspector.tables().counted(3).unwrap().packets, 4);
}

// promise: 15.23
#[test]
fn what_is_of_no_flow_and_what_has_no_room_leaves_by_its_own_exit() {
    if !is_root("what_is_of_no_flow_and_what_has_no_room_leaves_by_its_own_exit") {
        return;
    }
    let inspector = load(4096);
    let mut chain = at_hook(&inspector, Hook::Xdp);
    let tags = [VlanTag::new(5)];
    let tagged = bytes(udp(ENDS[0]).vlans(&tags), 20);
    let cut = bytes(udp(ENDS[0]), 20)[..36].to_vec();
    let arp = [&[2; 12][..], &[8, 6], &[0; 28]].concat();
    for (packet, exit) in [
        (&tagged, Exit::Unreadable),
        (&cut, Exit::Unreadable),
        (&arp, Exit::NotIp),
    ] {
        let before = counted(&inspector, exit);
        assert_eq!(pass(&mut chain, packet), (Action::Pass, packet.clone()));
        let after = counted(&inspector, exit);
        assert_eq!(after.packets, before.packets + 1, "{exit:?}");
        assert_eq!(after.bytes, before.bytes + packet.len() as u64);
    }
    // No process reads the copies.
    let packet = bytes(udp(ENDS[0]), 100);
    for _ in 0..100 {
        assert_eq!(pass(&mut chain, &packet).0, Action::Pass);
    }
    let copied = counted(&inspector, Exit::Copied).packets;
    assert!((1..100).contains(&copied), "{copied}");
    assert_eq!(
        counted(&inspector, Exit::Unseen),
        of(100 - copied, packet.len())
    );
    // A full table returns an error.
    for port in 0..8 {
        let one = SocketAddr::from(([10, 0, 0, 1], port));
        let key = FlowKey::new(one, at("10.0.0.2:1"), UDP);
        inspector.tables().enter(&key, &ENTRY).unwrap();
    }
    assert!(inspector.tables().enter(&key(ENDS[0]), &ENTRY).is_err());
}
