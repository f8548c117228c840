//! The same where a router and stations are behind an uplink, at XDP and at tc.

use super::uplink_fixture::{Fixture, Raw};
use super::{ALL_HOSTS, GROUP, GROUP_MAC, QUERY, REPORT_2, ethernet, igmp, message};
use nfluid_ring::Level;
use nfluid_ring::port::{Port, WhenFull};
use nfluid_switch::{Destination, Switch};
use nfluid_tests::harness::patience::{PATIENCE, eventually};
use nfluid_uplink::Levels;

const OUTSIDE: [u8; 6] = [2, 0xee, 0, 0, 0, 1];
const LONG_SLOTS: u32 = 4096;

/// A switch with an uplink and instances.
struct Lan<'a> {
    switch: &'a Switch,
    uplink: u32,
    outside: Raw,
    ports: Vec<Port>,
}

impl Lan<'_> {
    /// Which instances have got a frame since the last look.
    fn reached(&mut self) -> Vec<usize> {
        let mut reached = Vec::new();
        for (index, port) in self.ports.iter_mut().enumerate() {
            port.receive(usize::MAX, |_| reached.push(index));
        }
        reached
    }

    /// A frame comes in; which instances get it.
    fn arrives(&mut self, frame: &[u8]) -> Vec<usize> {
        let entered = || self.switch.counters(self.uplink).tx_frames;
        let before = entered();
        self.outside.send(frame);
        eventually("it has come in", || entered() > before);
        // It is counted before all copies are made.
        self.switch.await_programs().expect("a grace period");
        self.reached()
    }

    /// An instance sends; which others get it, and whether it leaves.
    fn sends(&mut self, from: usize, frame: &[u8]) -> Vec<usize> {
        let queued = self.ports[from].send(|slot| {
            slot[..frame.len()].copy_from_slice(frame);
            frame.len()
        });
        assert!(queued && self.ports[from].flush(WhenFull::Drop).is_ok());
        let leaves = loop {
            match self.outside.receive(PATIENCE) {
                Some(left) if left == frame => break true,
                Some(_) => {}
                None => break false,
            }
        };
        assert!(leaves, "a router is out there");
        self.reached()
    }
}

// promise: 1.46
#[test]
fn an_uplink_hears_who_has_joined_a_group_and_who_queries() {
    for (test, at_tc) in [("groupsx", false), ("groupst", true)] {
        let Some(mut fixture) = Fixture::new(test, &["up", "out"]) else {
            return;
        };
        fixture.join(("up", "up0"), ("out", "out0"));
        let mut spec = fixture.spec("up", "up0");
        if at_tc {
            spec.offloads = true;
            spec.long_slots = LONG_SLOTS;
            spec.levels = Levels {
                enter: Level::Super,
                take: Level::Super,
            };
        }
        let _uplink = fixture.open(&spec).expect("an uplink");
        let instance = |_| fixture.scratch.instance(1, 64, 64).expect("an instance");
        let instances: Vec<_> = (0..3).map(instance).collect();
        let switch = &fixture.scratch.switch;
        let mut ports = Vec::new();
        for instance in &instances {
            let (id, mac) = (instance.id(0), instance.mac(0));
            switch.connect(id, Destination::Switch(7)).expect("connect");
            switch.pin_address(7, 0, mac, id).expect("pinned");
            ports.append(&mut instance.attach().expect("attach").ports);
        }
        let on_switch = Destination::Switch(7);
        switch.connect(spec.port, on_switch).expect("connect");
        let mut lan = Lan {
            switch,
            uplink: spec.port,
            outside: fixture.raw("out", "out0"),
            ports,
        };
        let mac = |index: usize| instances[index].mac(0);
        let data = ethernet(GROUP_MAC, OUTSIDE, 0x0800, &[5; 60]);
        let join = |mac| igmp(GROUP_MAC, mac, [10, 0, 0, 9], &message(REPORT_2, GROUP));
        let query = igmp(ALL_HOSTS, OUTSIDE, [10, 0, 0, 1], &message(QUERY, [0; 4]));
        assert_eq!(lan.arrives(&data), [0, 1, 2], "{test}: nobody queries");
        assert_eq!(lan.arrives(&query), [0, 1, 2], "{test}: a query is for all");
        assert_eq!(lan.arrives(&data), [0, 1, 2], "{test}: nobody has joined");
        // The router gets what stations say, and what they send to a group.
        lan.sends(1, &join(mac(1)));
        assert_eq!(lan.arrives(&data), [1], "{test}");
        let of_a_station = ethernet(GROUP_MAC, mac(0), 0x0800, &[6; 60]);
        assert_eq!(lan.sends(0, &of_a_station), [1], "{test}");
        // A station on the wire joins.
        assert_eq!(lan.arrives(&join(OUTSIDE)), [1], "{test}");
        let entries = switch.fdb_entries().expect("the table");
        let joined = entries.iter().filter(|entry| entry.mac == GROUP_MAC);
        let mut ports: Vec<u32> = joined.map(|entry| entry.port).collect();
        ports.sort_unstable();
        let mut expected = vec![instances[1].id(0), spec.port];
        expected.sort_unstable();
        assert_eq!(ports, expected, "{test}");
    }
}
