//! The promise: what passes a port with security groups is what passes with the same groups in nftables. The kernel bridges in a namespace
//! of its own, with connection tracking for bridged packets, as Neutron's hybrid driver has it. Beside it are the guard, with the configuration
//! that the platform gives it, and Open vSwitch with nfluid's firewall. The same random connections go through both, packet by packet.

mod connection;
mod groups;

use connection::{Connection, Kind, MACS};
use groups::{Rule, calls, document, random_groups, ruleset};
use nfluid_control::document::read_unchecked;
use nfluid_control::guards::{guard_of, with_guards};
use nfluid_nf::testing::{ports, run_one};
use nfluid_nf::{Nanos, NetworkFunction, firewall};
use nfluid_testbed::ovs::{Firewall, OpenVSwitch};
use nfluid_testbed::random::Random;
use nfluid_tests::harness::oracle::{Namespaces, OnPort, Oracle, marker};
use nfluid_tests::harness::skip::{is_root, skip};
use nfluid_tests::harness::soak::choose;
use std::collections::HashSet;
use std::process::Command;

/// Rounds of this many connections: a million verdicts in a soak.
const ROUNDS: [u64; 2] = [40, 600];
/// The same for Open vSwitch, which takes longer for a packet.
const ROUNDS_OF_OVS: [u64; 2] = [12, 600];
const CONNECTIONS: u32 = 1500;
const BRIDGE: &str = "br-int";
/// The guarded port's network.
const NET: u16 = 7;

fn guard(groups: &[Vec<Rule>]) -> Box<dyn NetworkFunction> {
    let text = document(groups);
    let deployment =
        read_unchecked(&text, None).unwrap_or_else(|faults| panic!("{faults:?}\n{text}"));
    let whole = with_guards(&deployment);
    let guard = whole.instances.get(&guard_of("i0", "p")).expect("a guard");
    firewall::build(&guard.config, &ports(2)).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// Two ports of what filters, and of the test.
fn joined(name: &str) -> Namespaces {
    let namespaces = Namespaces::new(name);
    for (port, mac) in [(0, "02:00:00:00:01:00"), (1, "02:00:00:00:01:01")] {
        namespaces.join(port, mac);
    }
    namespaces.kernel.disable_ipv6();
    namespaces
}

fn kernel(name: &str) -> Oracle {
    let namespaces = joined(name);
    let kernel = &namespaces.kernel;
    let bridge = "link add br0 type bridge mcast_snooping 0\nlink set n0 master br0\nlink set n1 master br0\nlink set br0 up\n";
    kernel.ip_batch(bridge).expect("a bridge");
    namespaces.set("net.bridge.bridge-nf-call-iptables=1 net.bridge.bridge-nf-call-ip6tables=1");
    kernel
        .run_with_input("nft -f -", &ruleset(&[]))
        .expect("rules");
    Oracle::new(namespaces, 2, marker(MACS.1, MACS.0), |_| false)
}

/// The filter that is compared with the kernel.
trait Filter {
    fn set_groups(&mut self, groups: &[Vec<Rule>]);
    /// How many codes of ICMP's queries it tracks as the kernel does.
    const CODES: u32;
    /// Returns what leaves.
    fn pass(&mut self, packet: &OnPort) -> Vec<OnPort>;
}

struct Guard(Box<dyn NetworkFunction>);

impl Filter for Guard {
    const CODES: u32 = 2;

    fn set_groups(&mut self, groups: &[Vec<Rule>]) {
        self.0 = guard(groups);
    }

    fn pass(&mut self, (port, frame): &OnPort) -> Vec<OnPort> {
        run_one(&mut *self.0, Nanos::from_secs(1), *port, frame)
    }
}

/// Open vSwitch between two ports: the guarded one, and one beyond which the rest of the network is.
struct Switch {
    oracle: Oracle,
    firewall: Firewall,
    switch: OpenVSwitch,
}

impl Switch {
    fn start(name: &str) -> Self {
        let namespaces = joined(name);
        let switch = OpenVSwitch::start(&namespaces.kernel, &[], None).expect("a switch");
        let control = &switch.control;
        control.make_bridge(BRIDGE).expect("a bridge");
        for (port, number) in [("n0", 1), ("n1", 2)] {
            let options =
                format!("ofport_request={number} -- set Port {port} tag={NET} vlan_mode=access");
            control.add_port(BRIDGE, port, &options).expect("a port");
        }
        // What the agent has around its firewall: packets from beyond are tagged. A marker leaves by both ports.
        let flows = format!(
            "priority=200,udp,nw_src=10.0.0.250,tp_dst=9,actions=output:1,output:2,in_port\n\
             priority=110,in_port=2,vlan_tci=0,actions=mod_vlan_vid:{NET},resubmit(,60)\n\
             priority=0,actions=resubmit(,60)\n\
             table=60,priority=4,dl_vlan={NET},actions=strip_vlan,normal\n"
        );
        control.add_flows(BRIDGE, &flows).expect("flows");
        let firewall = Firewall::start(&switch, BRIDGE, 1, None).expect("a firewall");
        let marker = marker(MACS.1, MACS.0);
        let oracle = Oracle::new(namespaces, 2, marker, |_| false).marking_each_port();
        Switch {
            oracle,
            firewall,
            switch,
        }
    }
}

impl Filter for Switch {
    // To its own connection tracking, a query with another code than 0 is none.
    const CODES: u32 = 1;

    fn set_groups(&mut self, groups: &[Vec<Rule>]) {
        let calls = calls(groups, (1, NET));
        let changed = self.firewall.change(&calls);
        changed.unwrap_or_else(|error| panic!("{error:#}\n{calls}"));
        let forgotten = self.switch.control.appctl("dpctl/flush-conntrack");
        forgotten.expect("the switch forgets connections");
    }

    fn pass(&mut self, packet: &OnPort) -> Vec<OnPort> {
        self.oracle.pass(packet)
    }
}

fn compare<F: Filter>(test: &str, rounds: u64, filter: &mut F, kernel: &mut Oracle) {
    let (mut packets, mut passed) = (0_u32, 0_u32);
    for seed in 0..rounds {
        let mut random = Random(seed);
        let groups = random_groups(&mut random);
        kernel.set_rules(&ruleset(&groups));
        filter.set_groups(&groups);
        let mut known = HashSet::new();
        for number in 0..CONNECTIONS {
            let connection = Connection::random(&mut random, number, F::CODES);
            // Of segments of known connections, other oracles tell.
            let ends = [connection.from, connection.to];
            let is_new = known.insert(ends) && !known.contains(&[ends[1], ends[0]]);
            if matches!(connection.kind, Kind::Tcp) && !is_new {
                continue;
            }
            let mut both = |what: &str, packet: OnPort| {
                let theirs = kernel.pass(&packet);
                let ours = filter.pass(&packet);
                packets += 1;
                passed += u32::from(!ours.is_empty());
                assert_eq!(
                    ours,
                    theirs,
                    "seed {seed}, {what} of {connection:?}; the kernel's packets are on the right\n{}\n{}",
                    document(&groups),
                    ruleset(&groups)
                );
                !ours.is_empty()
            };
            let passes = both("the opening", connection.opening());
            if passes && random.one_in(2) {
                both("the reply", connection.reply());
            }
        }
    }
    println!("{test}: {packets} verdicts compared, {passed} passed");
    let share = passed * 100 / packets;
    assert!(
        (10..=90).contains(&share),
        "a one-sided comparison: {share} % passed"
    );
}

fn can_run(test: &str) -> bool {
    if !is_root(test) {
        return false;
    }
    let has_nft = Command::new("nft").arg("--version").output().is_ok();
    if !has_nft {
        skip(test, "no program 'nft': install nftables");
    }
    has_nft
}

// promise: 33.2
#[test]
fn verdicts_are_those_of_nftables_with_the_same_groups() {
    let test = "verdicts_are_those_of_nftables_with_the_same_groups";
    if can_run(test) {
        let rounds = choose(ROUNDS[0], ROUNDS[1]);
        compare(test, rounds, &mut Guard(guard(&[])), &mut kernel("groups"));
    }
}

// promise: 35.1
#[test]
fn verdicts_on_open_vswitch_are_those_of_nftables() {
    let test = "verdicts_on_open_vswitch_are_those_of_nftables";
    if !can_run(test) {
        return;
    }
    if let Err(why) = OpenVSwitch::find().and(Firewall::find()) {
        return skip(test, &why.to_string());
    }
    let mut switch = Switch::start("groups-ovs");
    let rounds = choose(ROUNDS_OF_OVS[0], ROUNDS_OF_OVS[1]);
    compare(test, rounds, &mut switch, &mut kernel("groups-nft"));
}
