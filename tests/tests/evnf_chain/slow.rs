//! The promise: no packet overtakes an earlier one of its flow that is in a slow path of its own, however rules change,
//! packets come, and the slow path takes its time, or loses some.

use crate::fixture::{Fixture, SERVICE, datagram, from_hosts};
use nfluid_evnf::balancer;
use nfluid_evnf::firewall::{Family, Firewall, Pattern, Rule, Sharing, Stage, Verdict};
use nfluid_evnf::load::Action;
use nfluid_evnf::slow::{Back, Direction, SlowExit, SlowPath};
use nfluid_testbed::random::Random;
use nfluid_tests::harness::skip::is_root;
use std::collections::VecDeque;
use std::time::Duration;

const HOSTS: [&str; 4] = ["10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5"];
const FLOWS: u32 = 8;
const TO: &str = "192.0.2.2:80";
/// The loopback interface of each namespace: nothing is sent when a program is run on single packets.
const SOMEWHERE: u32 = 1;
const NEVER: Duration = Duration::from_secs(1_000_000);
const AT_ONCE: Duration = Duration::ZERO;

/// How a slow path is.
#[derive(Clone, Copy)]
struct Kind {
    /// How long a flow waits for its packets before it goes fast without them.
    patience: Duration,
    /// Loses one of this many packets; 0: none.
    loses: u32,
}

/// A fast path with a slow one, and all that is on its way.
struct Way {
    random: Random,
    path: SlowPath,
    firewall: Firewall,
    back: Back,
    /// Hosts whose packets the rules leave to the slow path.
    asked: Vec<&'static str>,
    /// Of each flow, numbers of packets in the slow path.
    inside: Vec<VecDeque<u32>>,
    next: Vec<u32>,
    /// Of each flow, the last one that has come through.
    last: Vec<Option<u32>>,
    lost: Vec<bool>,
    fast: u64,
    returned: u64,
    late: u64,
}

fn host(flow: u32) -> &'static str {
    HOSTS[(flow % 4) as usize]
}

fn packet(flow: u32, number: u32) -> Vec<u8> {
    datagram(&format!("{}:{}", host(flow), 1000 + flow), TO, number)
}

fn load(path: &SlowPath, asked: &[&str]) -> Firewall {
    let stage = from_hosts(&[(asked, Verdict::Ask), (&["10.0.0.9"], Verdict::Drop)]);
    load_stage(path, stage)
}

fn load_stage(path: &SlowPath, stage: Stage) -> Firewall {
    let tables = path.tables();
    let sharing = Sharing {
        slow: Some(&tables),
        exits: None,
    };
    let firewall = Firewall::load_with(&[stage], &[], sharing).expect("the kernel takes it");
    let entrance = firewall.entrance().expect("it has a slow path");
    entrance.lead_to(SOMEWHERE).expect("it is there");
    firewall
}

impl Way {
    fn new(seed: u64, kind: Kind) -> Self {
        let path = SlowPath::load(None).expect("the kernel takes it");
        let path = path.waiting(kind.patience, NEVER);
        Way {
            random: Random(seed),
            firewall: load(&path, &[]),
            back: path
                .back(SOMEWHERE, Direction::Inward)
                .expect("the kernel takes it"),
            path,
            asked: Vec::new(),
            inside: vec![VecDeque::new(); FLOWS as usize],
            next: vec![0; FLOWS as usize],
            last: vec![None; FLOWS as usize],
            lost: vec![false; FLOWS as usize],
            fast: 0,
            returned: 0,
            late: 0,
        }
    }

    fn change_rules(&mut self) {
        let random = &mut self.random;
        self.asked = HOSTS.into_iter().filter(|_| random.one_in(2)).collect();
        self.firewall = load(&self.path, &self.asked);
    }

    fn come_through(&mut self, flow: u32, number: u32) {
        let last = self.last[flow as usize].replace(number);
        assert!(
            last.is_none_or(|last| last < number),
            "flow {flow}: {number} comes behind {last:?}"
        );
    }

    fn arrive(&mut self, kind: Kind) {
        let flow = self.random.below(FLOWS);
        let at = flow as usize;
        let number = self.next[at];
        self.next[at] += 1;
        let run = self.firewall.fast().test_run(&packet(flow, number), 1);
        let action = run.expect("it runs").action;
        let is_asked = self.asked.contains(&host(flow));
        let waits = kind.patience == NEVER && (self.lost[at] || !self.inside[at].is_empty());
        let expected = if is_asked || waits {
            Action::Send
        } else {
            Action::Pass
        };
        assert_eq!(action, expected, "flow {flow}, asked: {:?}", self.asked);
        match action {
            Action::Send => self.inside[at].push_back(number),
            _ => {
                self.fast += 1;
                self.come_through(flow, number);
            }
        }
    }

    /// The slow path is done with a packet, of any flow.
    fn give_back(&mut self, kind: Kind) {
        let flow = self.random.below(FLOWS);
        let at = flow as usize;
        let Some(number) = self.inside[at].pop_front() else {
            return;
        };
        if kind.loses > 0 && self.random.one_in(kind.loses) {
            self.lost[at] = true;
            return;
        }
        let run = self.back.test_run(&packet(flow, number));
        match run.expect("it runs").action {
            Action::Send => {
                self.returned += 1;
                self.come_through(flow, number);
            }
            action => {
                assert_eq!(action, Action::Drop);
                self.late += 1;
            }
        }
    }

    fn run(&mut self, kind: Kind) {
        for event in 0..600 {
            match self.random.below(4) {
                _ if event % 60 == 59 => self.change_rules(),
                0 => self.give_back(kind),
                _ if event % 60 > 50 => self.give_back(kind),
                _ => self.arrive(kind),
            }
        }
        while self.inside.iter().any(|inside| !inside.is_empty()) {
            self.give_back(kind);
        }
    }

    fn counted(&self, which: SlowExit) -> u64 {
        let exits = self.path.exits().expect("the kernel tells");
        let found = exits.iter().find(|(exit, _)| *exit == which);
        found.expect("each is counted").1.packets
    }
}

// promise: 15.65
#[test]
fn nothing_overtakes_what_is_in_a_slow_path_whatever_the_interleaving() {
    if !is_root("nothing_overtakes_what_is_in_a_slow_path_whatever_the_interleaving") {
        return;
    }
    let kinds = [(NEVER, 0), (NEVER, 8), (AT_ONCE, 0), (AT_ONCE, 8)];
    for (patience, loses) in kinds {
        let kind = Kind { patience, loses };
        let (mut behind, mut late) = (0, 0);
        for seed in 0..3 {
            let mut way = Way::new(seed, kind);
            way.run(kind);
            assert!(way.fast > 50 && way.returned > 20, "the test says nothing");
            assert_eq!(way.counted(SlowExit::Returned), way.returned);
            assert_eq!(way.counted(SlowExit::Late), way.late);
            if loses == 0 && patience == NEVER {
                assert_eq!(way.late, 0, "nothing is dropped that need not be");
            }
            behind += way.counted(SlowExit::Behind);
            late += way.late;
        }
        // Each kind of packet has reached its case.
        assert_eq!(behind > 0, patience == NEVER, "{behind}");
        assert_eq!(late > 0, patience == AT_ONCE, "{late}");
    }
}

// promise: 15.65
#[test]
fn without_its_slow_path_a_fast_path_drops_what_it_cannot_decide_and_nothing_else() {
    if !is_root("without_its_slow_path_a_fast_path_drops_what_it_cannot_decide_and_nothing_else") {
        return;
    }
    let path = SlowPath::load(None).expect("the kernel takes it");
    let everything_v6 = Rule {
        patterns: vec![Pattern::any(Family::V6)],
        verdict: Verdict::Ask,
    };
    let mut stage = from_hosts(&[(&[HOSTS[0]], Verdict::Ask)]);
    stage.rules.push(everything_v6);
    let mut firewall = load_stage(&path, stage);
    let entrance = firewall.entrance().expect("it has one");
    // To the host itself: who is asked for a neighbour answers so.
    let mut advertised = datagram("[fe80::2]:1", "[fe80::1]:1", 0);
    (advertised[20], advertised[21], advertised[54]) = (58, 255, 136);
    let mut forwarded = advertised.clone();
    forwarded[21] = 254;
    let mut fragment = packet(1, 0);
    fragment[20] = 0x20;
    let mut arp = packet(1, 0);
    arp[13] = 6;
    let mut group = packet(1, 0);
    group[0] |= 1;
    let cases = [
        ("asked about", packet(0, 0), Action::Send, Action::Drop),
        ("fragment", fragment, Action::Send, Action::Drop),
        ("accepted", packet(1, 0), Action::Pass, Action::Pass),
        ("ARP is the kernel's", arp, Action::Pass, Action::Pass),
        ("groups are the kernel's", group, Action::Pass, Action::Pass),
        ("so are neighbours", advertised, Action::Pass, Action::Pass),
        ("of here", forwarded, Action::Send, Action::Drop),
    ];
    for is_there in [true, false, true] {
        if is_there {
            entrance.lead_to(SOMEWHERE).expect("it is there");
        } else {
            entrance.close().expect("it is ours");
        }
        for (what, packet, with, without) in &cases {
            let run = firewall.fast().test_run(packet, 1).expect("it runs");
            let expected = if is_there { with } else { without };
            assert_eq!(run.action, *expected, "{what}, slow path: {is_there}");
        }
    }
    entrance.close().expect("it is ours");
    entrance.close().expect("closed is closed");
    assert!(entrance.lead_to(u32::MAX).is_err(), "no such interface");
    let exits = path.exits().expect("the kernel tells");
    let absent = exits.iter().find(|(exit, _)| *exit == SlowExit::Absent);
    assert_eq!(absent.expect("it is counted").1.packets, 3);
}

// promise: 15.66
#[test]
fn in_a_row_the_firewalls_slow_path_gets_what_nobody_in_it_can_read() {
    if !is_root("in_a_row_the_firewalls_slow_path_gets_what_nobody_in_it_can_read") {
        return;
    }
    let fixture = Fixture::new("slowrow");
    let path = SlowPath::load(None).expect("the kernel takes it");
    let firewall = load(&path, &[]);
    let entrance = firewall.entrance().expect("it has one");
    let mut row = fixture.chain(&firewall);
    let whole = datagram("10.0.0.2:1000", SERVICE, 0);
    let mut fragment = whole.clone();
    fragment[20] = 0x20;
    let counted = |which| {
        let came = fixture.came();
        let found = came.iter().find(|(exit, _)| *exit == which);
        found.expect("each is counted").1
    };
    for (is_there, sent) in [(true, 1), (false, 2)] {
        if !is_there {
            entrance.close().expect("it is ours");
        }
        let run = row.test_run(&fragment, 1).expect("it runs");
        let expected = if is_there { Action::Send } else { Action::Drop };
        assert_eq!((run.action, run.packet), (expected, fragment.clone()));
        assert_eq!(counted(balancer::Exit::Unreadable), 0, "it has not met it");
        let run = row.test_run(&whole, 1).expect("it runs");
        assert_eq!(run.action, Action::Send, "slow path: {is_there}");
        assert_eq!(counted(balancer::Exit::Sent), sent, "by the balancer");
    }
}
