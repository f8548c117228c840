//! Chains of fast paths: a firewall before a balancer, in a kernel's namespace with clients on one side and servers on the other.

mod fixture;
mod order;
mod slow;
mod tc;

use fixture::{Fixture, SERVER, SERVICE, asks_about, datagram, firewall};
use nfluid_evnf::balancer::Exit;
use nfluid_evnf::chain::{Chain, MEMBERS_MAX};
use nfluid_evnf::firewall;
use nfluid_evnf::hook::Hook;
use nfluid_evnf::load::Action;
use nfluid_testbed::random::Random;
use nfluid_tests::harness::skip::is_root;

const HOOKS: [Hook; 2] = [Hook::Xdp, Hook::Tc];

// promise: 15.8
#[test]
fn what_a_member_lets_pass_goes_on_and_what_it_hands_up_does_not() {
    if !is_root("what_a_member_lets_pass_goes_on_and_what_it_hands_up_does_not") {
        return;
    }
    HOOKS.into_iter().for_each(goes_on_and_is_handed_up);
}

fn goes_on_and_is_handed_up(hook: Hook) {
    let fixture = Fixture::new(&format!("pass{hook:?}"));
    let firewall = firewall(&["10.0.0.3"], &["10.0.0.4"]);
    let mut chain = fixture.chain_at(hook, &firewall);
    let mut optional = datagram("10.0.0.2:1000", SERVICE, 0);
    optional[14] = 0x46;
    for (packet, action, left, came) in [
        (
            datagram("10.0.0.2:1000", SERVICE, 0),
            Action::Send,
            firewall::Exit::Accept,
            Some(Exit::Sent),
        ),
        (
            datagram("10.0.0.2:1000", "192.0.2.2:99", 0),
            Action::Pass,
            firewall::Exit::Accept,
            Some(Exit::Other),
        ),
        (
            datagram("10.0.0.3:1000", SERVICE, 0),
            Action::Pass,
            firewall::Exit::Ask,
            None,
        ),
        (
            datagram("10.0.0.4:1000", SERVICE, 0),
            Action::Drop,
            firewall::Exit::Drop,
            None,
        ),
        (optional, Action::Pass, firewall::Exit::Options, None),
    ] {
        let before = (fixture.came(), fixture::left(&firewall, left));
        let run = chain.test_run(&packet, 1).unwrap();
        assert_eq!(run.action, action, "{left:?}");
        assert_eq!(fixture::left(&firewall, left), before.1 + 1, "{left:?}");
        for ((exit, before), (_, after)) in before.0.iter().zip(fixture.came()) {
            assert_eq!(after, before + u64::from(came == Some(*exit)), "{exit:?}");
        }
        if action == Action::Pass {
            assert_eq!(run.packet, packet, "the kernel gets it as it came");
        }
    }
}

// promise: 15.9
#[test]
fn packets_of_a_flow_take_one_path_until_a_member_is_replaced() {
    if !is_root("packets_of_a_flow_take_one_path_until_a_member_is_replaced") {
        return;
    }
    let fixture = Fixture::new("path");
    let sets: [&[&str]; 3] = [&[], &["10.0.0.2", "10.0.0.3"], &["10.0.0.3", "10.0.0.4"]];
    let firewalls = sets.map(asks_about);
    let mut chain = fixture.chain(&firewalls[0]);
    for seed in 0..6 {
        let mut random = Random(seed);
        let mut asked = sets[0];
        chain
            .replace(0, firewalls[0].member().unwrap())
            .expect("a member");
        for _ in 0..300 {
            match random.below(40) {
                // Whatever is replaced, alone or with all others: nothing in between.
                0 => {
                    let at = random.below(3) as usize;
                    asked = sets[at];
                    chain.replace(0, firewalls[at].member().unwrap()).unwrap();
                }
                1 => chain.replace(1, fixture.member()).unwrap(),
                2 => {
                    let at = random.below(3) as usize;
                    asked = sets[at];
                    let members = vec![firewalls[at].member().unwrap(), fixture.member()];
                    chain.replace_all(members).unwrap();
                }
                _ => {
                    let host = random.pick(&["10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5"]);
                    let port = 1000 + random.below(4);
                    let packet = datagram(&format!("{host}:{port}"), SERVICE, 0);
                    let expected = if asked.contains(&host) {
                        Action::Pass
                    } else {
                        Action::Send
                    };
                    let run = chain.test_run(&packet, 1).unwrap();
                    assert_eq!(run.action, expected, "seed {seed}, {host}, asked {asked:?}");
                }
            }
        }
    }
    assert!(fixture.sent_to(SERVER) > 500, "the test says nothing");
}

// promise: 15.10
#[test]
fn what_cannot_be_a_chain_is_refused_by_name() {
    if !is_root("what_cannot_be_a_chain_is_refused_by_name") {
        return;
    }
    let why = Chain::new(Vec::new()).expect_err("empty").to_string();
    assert!(why.contains("0 members"), "{why}");
    let fixture = Fixture::new("no");
    let why = Chain::new(HOOKS.map(|hook| fixture.member_at(hook)).into());
    let why = why.expect_err("of two kinds").to_string();
    assert!(why.contains("some are for XDP"), "{why}");
    let members = (0..=MEMBERS_MAX).map(|_| fixture.member()).collect();
    let why = Chain::new(members).expect_err("too many").to_string();
    assert!(why.contains("33 members"), "{why}");
    // As many as it takes: a packet of no service passes all of them.
    let members = (0..MEMBERS_MAX).map(|_| fixture.member()).collect();
    let mut chain = Chain::new(members).expect("the kernel follows");
    let packet = datagram("10.0.0.2:1000", "192.0.2.2:99", 0);
    assert_eq!(chain.test_run(&packet, 1).unwrap().action, Action::Pass);
    let others = fixture
        .came()
        .into_iter()
        .find(|(exit, _)| *exit == Exit::Other);
    assert_eq!(others, Some((Exit::Other, MEMBERS_MAX as u64)));
    let why = chain.replace(MEMBERS_MAX, fixture.member());
    assert!(
        why.expect_err("no such")
            .to_string()
            .contains("no member 32")
    );

    let why = chain.attach("nowhere0").expect_err("no such interface");
    assert!(why.to_string().contains("finding the interface"), "{why}");
    fixture
        .within(|| chain.attach("n0"))
        .expect("a veth takes it");
    let mut second = Chain::new(vec![fixture.member()]).unwrap();
    let why = fixture.within(|| second.attach("n0")).expect_err("taken");
    let why = why.to_string();
    assert!(
        why.contains("'evnf_balancer'") && why.contains("n0"),
        "{why}"
    );
    chain.detach();
    fixture.within(|| second.attach("n0")).expect("it is free");
}
