//! Frames to a multicast group go to those who have joined the group, and to routers, while somebody queries; otherwise to
//! all. Both loop forms behave alike.

mod switch_fixture;
mod uplink_fixture;
#[path = "guest_multicast/uplinks.rs"]
mod uplinks;

use nfluid_switch::Destination;
use nfluid_testbed::scratch::Scratch;
use std::time::{Duration, Instant};
use switch_fixture::{Members, for_each_form, tagged};

/// 239.1.2.3 and its address.
const GROUP: [u8; 4] = [239, 1, 2, 3];
const GROUP_MAC: [u8; 6] = [0x01, 0x00, 0x5e, 1, 2, 3];
const OTHER: [u8; 4] = [239, 9, 9, 9];
/// ff05::1:3 and its address.
const GROUP6: [u8; 16] = [0xff, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 3];
const GROUP6_MAC: [u8; 6] = [0x33, 0x33, 0, 1, 0, 3];
const ALL_HOSTS: [u8; 6] = [0x01, 0x00, 0x5e, 0, 0, 1];
const ALL_NODES: [u8; 6] = [0x33, 0x33, 0, 0, 0, 1];
/// Members of the switch: behind the first is a router that queries; the others are stations.
const ROUTER: usize = 0;

const QUERY: u8 = 0x11;
const REPORT_1: u8 = 0x12;
const REPORT_2: u8 = 0x16;
const LEAVE: u8 = 0x17;
const MLD_QUERY: u8 = 130;
const MLD_REPORT: u8 = 131;
const MLD_DONE: u8 = 132;

/// An Ethernet frame.
fn ethernet(dst: [u8; 6], src: [u8; 6], ether: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = [&dst[..], &src, &ether.to_be_bytes(), payload].concat();
    frame.resize(frame.len().max(60), 0);
    frame
}

/// An IPv4 packet of IGMP, with the router alert option, from this address.
fn igmp(dst: [u8; 6], src: [u8; 6], from: [u8; 4], message: &[u8]) -> Vec<u8> {
    let mut ip = vec![
        0x46,
        0xc0,
        0,
        (24 + message.len()) as u8,
        0,
        0,
        0,
        0,
        1,
        2,
        0,
        0,
    ];
    ip.extend(from);
    ip.extend([224, 0, 0, 22]);
    ip.extend([0x94, 4, 0, 0]);
    ip.extend(message);
    ethernet(dst, src, 0x0800, &ip)
}

fn message(kind: u8, group: [u8; 4]) -> Vec<u8> {
    [&[kind, 0, 0, 0][..], &group].concat()
}

/// A report of version 3: a type and a group with `sources` sources for each record.
fn report_3(records: &[(u8, [u8; 4], u8)]) -> Vec<u8> {
    let mut message = vec![0x22, 0, 0, 0, 0, 0, 0, records.len() as u8];
    for (kind, group, sources) in records {
        message.extend([*kind, 0, 0, *sources]);
        message.extend(group);
        message.extend(vec![10; usize::from(*sources) * 4]);
    }
    message
}

/// An IPv6 packet of MLD behind a hop-by-hop header.
fn mld(dst: [u8; 6], src: [u8; 6], message: &[u8]) -> Vec<u8> {
    let mut ip = vec![0x60, 0, 0, 0, 0, (8 + message.len()) as u8, 0, 1];
    ip.extend([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    ip.extend([0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x16]);
    ip.extend([58, 0, 5, 2, 0, 0, 1, 0]);
    ip.extend(message);
    ethernet(dst, src, 0x86dd, &ip)
}

fn mld_message(kind: u8, group: [u8; 16]) -> Vec<u8> {
    [&[kind, 0, 0, 0, 0, 0, 0, 0][..], &group].concat()
}

fn mld_report_2(kind: u8, group: [u8; 16]) -> Vec<u8> {
    [&[143, 0, 0, 0, 0, 0, 0, 1, kind, 0, 0, 0][..], &group].concat()
}

/// A switch with a router and stations.
struct Lan {
    members: Members,
}

impl Lan {
    fn new(scratch: &mut Scratch, stations: usize) -> Self {
        let members = Members::of_switch(scratch, 0, 1 + stations);
        scratch.switch.set_learning(members.id(ROUTER), true);
        Lan { members }
    }

    /// Who gets a frame to this address from the last member.
    fn takers(&mut self, dst: [u8; 6]) -> Vec<usize> {
        let sender = self.members.ports.len() - 1;
        let frame = ethernet(dst, self.members.mac(sender), 0x0800, &[7; 60]);
        self.members.switched(sender, &frame)
    }

    fn says(&mut self, member: usize, dst: [u8; 6], said: &[u8]) {
        let from = [10, 0, 0, member as u8 + 1];
        let frame = igmp(dst, self.members.mac(member), from, said);
        self.members.switched(member, &frame);
    }

    fn says6(&mut self, member: usize, dst: [u8; 6], said: &[u8]) {
        let frame = mld(dst, self.members.mac(member), said);
        self.members.switched(member, &frame);
    }

    fn query(&mut self) {
        self.says(ROUTER, ALL_HOSTS, &message(QUERY, [0; 4]));
    }
}

// promise: 1.46
#[test]
fn a_group_that_was_joined_goes_to_those_who_joined_and_to_routers() {
    for_each_form("joined", |scratch| {
        let mut lan = Lan::new(scratch, 4);
        let report = message(REPORT_2, GROUP);
        lan.says(2, GROUP_MAC, &report);
        assert_eq!(lan.takers(GROUP_MAC), [0, 1, 2, 3], "nobody queries");
        lan.query();
        assert_eq!(lan.takers(GROUP_MAC), [0, 2]);
        lan.says(3, GROUP_MAC, &message(REPORT_1, GROUP));
        assert_eq!(lan.takers(GROUP_MAC), [0, 2, 3]);
        // One that nobody has joined goes to all, and so do those that stations need not join.
        let other = [0x01, 0x00, 0x5e, 9, 9, 9];
        assert_eq!(lan.takers(other), [0, 1, 2, 3]);
        for local in [
            ALL_HOSTS,
            [0x01, 0x00, 0x5e, 0, 0, 5],
            [0x01, 0x00, 0x5e, 0, 0, 251],
        ] {
            lan.says(1, local, &message(REPORT_2, [224, 0, 0, local[5]]));
            assert_eq!(lan.takers(local), [0, 1, 2, 3], "{local:x?}");
        }
        assert_eq!(lan.takers([0xff; 6]), [0, 1, 2, 3], "broadcast");
        // A frame of a router is no exception: it does not come back.
        let frame = ethernet(GROUP_MAC, lan.members.mac(ROUTER), 0x0800, &[7; 60]);
        assert_eq!(lan.members.switched(ROUTER, &frame), [2, 3]);
    });
}

// promise: 1.46
#[test]
fn reports_of_all_versions_join_and_leave() {
    for_each_form("versions", |scratch| {
        let mut lan = Lan::new(scratch, 4);
        lan.query();
        // IS_EX, TO_EX, ALLOW, and IS_IN and TO_IN with a source; the second record is behind sources.
        for (kind, sources) in [(2, 0), (4, 3), (5, 1), (1, 1), (3, 2)] {
            let said = report_3(&[(kind, OTHER, sources), (kind, GROUP, sources)]);
            lan.says(2, [0x01, 0x00, 0x5e, 0, 0, 22], &said);
            assert_eq!(lan.takers(GROUP_MAC), [0, 2], "{kind}");
            assert_eq!(lan.takers([0x01, 0x00, 0x5e, 9, 9, 9]), [0, 2], "{kind}");
        }
        for (kind, dst) in [(MLD_REPORT, GROUP6_MAC), (MLD_REPORT, ALL_NODES)] {
            lan.says6(1, dst, &mld_message(kind, GROUP6));
            assert_eq!(lan.takers(GROUP6_MAC), [0, 1]);
        }
        lan.says6(3, [0x33, 0x33, 0, 0, 0, 22], &mld_report_2(4, GROUP6));
        assert_eq!(lan.takers(GROUP6_MAC), [0, 1, 3]);
        // Solicited nodes and the groups of ff02 go to all.
        for local in [
            ALL_NODES,
            [0x33, 0x33, 0xff, 1, 2, 3],
            [0x33, 0x33, 0, 0, 0, 0xfb],
        ] {
            assert_eq!(lan.takers(local), [0, 1, 2, 3], "{local:x?}");
        }
        // Who leaves is out after the time in which others behind the port answer.
        let left_at = Instant::now();
        lan.says(2, [0x01, 0x00, 0x5e, 0, 0, 2], &message(LEAVE, GROUP));
        lan.says(2, [0x01, 0x00, 0x5e, 0, 0, 22], &report_3(&[(3, OTHER, 0)]));
        lan.says6(1, [0x33, 0x33, 0, 0, 0, 2], &mld_message(MLD_DONE, GROUP6));
        lan.says6(3, [0x33, 0x33, 0, 0, 0, 22], &mld_report_2(3, GROUP6));
        lan.says6(3, GROUP6_MAC, &mld_message(MLD_REPORT, GROUP6));
        let takers = lan.takers(GROUP_MAC);
        // Otherwise the machine was too slow for a result.
        if left_at.elapsed() < Duration::from_secs(2) {
            assert_eq!(takers, [0, 2], "not at once");
        }
        std::thread::sleep(Duration::from_secs(6));
        assert_eq!(lan.takers(GROUP_MAC), [0, 1, 2, 3], "nobody has joined");
        assert_eq!(lan.takers(GROUP6_MAC), [0, 3], "it joined again");
        let swept = scratch.switch.fdb_sweep().expect("swept");
        assert!(swept >= 3, "{swept}");
        let left = scratch.switch.fdb_entries().expect("the table");
        let groups: Vec<_> = left.iter().filter(|entry| entry.mac[0] & 1 != 0).collect();
        assert_eq!(groups.len(), 1, "{groups:?}");
        assert_eq!(scratch.switch.counters(lan.members.id(2)).fdb_used, 0);
    });
}

// promise: 1.46
#[test]
fn who_may_not_teach_makes_no_switch_filter_and_fills_no_table() {
    for_each_form("trust", |scratch| {
        let mut lan = Lan::new(scratch, 4);
        lan.says(2, GROUP_MAC, &message(REPORT_2, GROUP));
        // A query of an instance; one of a switch, which has no address; and what is none.
        lan.says(3, ALL_HOSTS, &message(QUERY, [0; 4]));
        lan.says6(3, ALL_NODES, &mld_message(MLD_QUERY, [0; 16]));
        let source = lan.members.mac(ROUTER);
        let of_a_switch = igmp(ALL_HOSTS, source, [0; 4], &message(QUERY, [0; 4]));
        lan.members.switched(ROUTER, &of_a_switch);
        for end in 14..of_a_switch.len() {
            lan.members.switched(ROUTER, &of_a_switch[..end]);
        }
        assert_eq!(lan.takers(GROUP_MAC), [0, 1, 2, 3]);
        lan.says6(ROUTER, ALL_NODES, &mld_message(MLD_QUERY, [0; 16]));
        assert_eq!(lan.takers(GROUP_MAC), [0, 2]);
        // A port has as many memberships as it may have addresses.
        let greedy = lan.members.id(3);
        scratch.switch.set_fdb_limits(greedy, 1000, 5);
        for number in 0..50 {
            let records: Vec<_> = (0..7).map(|it| (4, [239, 7, number, it], 0)).collect();
            lan.says(3, [0x01, 0x00, 0x5e, 0, 0, 22], &report_3(&records));
        }
        let counters = scratch.switch.counters(greedy);
        assert_eq!((counters.fdb_used, counters.fdb_refused), (5, 345));
        // One that may not teach addresses has few, whatever the limit of addresses is.
        scratch.switch.set_fdb_limits(greedy, 1000, 4096);
        for number in 50..100 {
            let records: Vec<_> = (0..7).map(|it| (4, [239, 7, number, it], 0)).collect();
            lan.says(3, [0x01, 0x00, 0x5e, 0, 0, 22], &report_3(&records));
        }
        assert_eq!(scratch.switch.counters(greedy).fdb_used, 64);
        // Records that lie about their sources lead nowhere.
        for (sources, count) in [(255, 200), (1, 255), (0, 255)] {
            let mut said = report_3(&[(4, GROUP, 1)]);
            (said[7], said[11]) = (count, sources);
            said.resize(200, 0xff);
            lan.says(1, GROUP_MAC, &said);
        }
        assert_eq!(lan.takers(GROUP_MAC), [0, 1, 2]);
        assert_eq!(lan.takers([0xff; 6]), [0, 1, 2, 3]);
    });
}

// promise: 1.46
#[test]
fn a_membership_is_of_its_vlan_its_switch_and_its_ports_stay_there() {
    for_each_form("membership", |scratch| {
        let mut lan = Lan::new(scratch, 4);
        lan.query();
        let station = lan.members.mac(2);
        let joins = igmp(GROUP_MAC, station, [10, 0, 0, 3], &message(REPORT_2, GROUP));
        for member in 0..5 {
            let (mac, id) = (lan.members.mac(member), lan.members.id(member));
            scratch.switch.pin_address(0, 5, mac, id).expect("pin");
        }
        lan.members.switched(2, &tagged(&joins, 0x8100, 5));
        assert_eq!(lan.takers(GROUP_MAC), [0, 1, 2, 3], "another VLAN");
        let data = ethernet(GROUP_MAC, lan.members.mac(4), 0x0800, &[7; 60]);
        let in_vlan = tagged(&data, 0x8100, 5);
        assert_eq!(lan.members.switched(4, &in_vlan), [0, 2]);
        // The port leaves the switch, and comes back as one that has joined nothing.
        let id = lan.members.id(2);
        for to in [Destination::Switch(1), Destination::Switch(0)] {
            scratch.switch.connect(id, to).expect("connect");
            lan.query();
        }
        assert_eq!(lan.members.switched(4, &in_vlan), [0, 1, 2, 3]);
    });
}
