//! Interfaces that refuse a level, or that become others: what was there goes on.

use crate::{Ends, Joined, SUPER, V4, stream};
use nfluid_evnf::chain::Chain;
use nfluid_evnf::firewall::Firewall;
use nfluid_evnf::hook::Hook;
use nfluid_netdev::programs_at_tc;
use nfluid_ring::Level;
use nfluid_tests::harness::command::must;
use nfluid_tests::harness::mounts::has_own_mounts;
use nfluid_tests::harness::patience::eventually;
use nfluid_tests::harness::within;
use nfluid_uplink::Levels;

const BYTES: usize = 1 << 20;

/// Another owner's program at XDP on `interface` of the namespace `up`.
fn another_program(joined: &Joined, interface: &str) -> Chain {
    within(&joined.fixture.path("up"), || {
        let firewall = Firewall::load(&[], &[]).expect("the kernel takes it");
        let member = firewall.member_at(Hook::Xdp).expect("a member");
        let mut chain = Chain::new(vec![member]).expect("a chain");
        chain.attach(interface).expect("XDP is free");
        chain
    })
}

// promise: 2.43
#[test]
fn a_level_that_is_refused_leaves_the_uplink_as_it_was() {
    let Some(joined) = Joined::new("refusev", Ends::Veth, Levels::default()) else {
        return;
    };
    let netns = joined.fixture.netns("up");
    let uplink = &joined.uplinks[0];
    let levels = || uplink.status().path.map(|path| path.levels);
    stream(&joined, V4, BYTES);

    must(&format!("tc -n {netns} qdisc add dev upa ingress"));
    for _ in 0..3 {
        let why = uplink.set_levels(SUPER).expect_err("no room for a filter");
        assert!(why.to_string().contains("ingress"), "{why}");
        assert_eq!(levels(), Some(Levels::default()));
        stream(&joined, V4, BYTES);
    }
    must(&format!("tc -n {netns} qdisc del dev upa ingress"));
    joined.set_levels(SUPER);
    stream(&joined, V4, BYTES);

    let mut other = another_program(&joined, "upa");
    joined.uplinks[1]
        .set_levels(Levels::default())
        .expect("XDP is free there");
    for _ in 0..3 {
        uplink
            .set_levels(Levels::default())
            .expect_err("XDP is taken");
        let takes_all = Levels {
            enter: Level::Plain,
            take: Level::Super,
        };
        assert_eq!(levels(), Some(takes_all));
        stream(&joined, V4, BYTES);
    }
    other.detach();
    eventually("XDP is free", || {
        uplink.set_levels(Levels::default()).is_ok()
    });
    assert_eq!(levels(), Some(Levels::default()));
    stream(&joined, V4, BYTES);
}

// promise: 2.43
#[test]
fn an_interface_that_refuses_the_level_when_it_returns_is_taken_as_it_is() {
    let Some(joined) = Joined::new("returnv", Ends::Veth, SUPER) else {
        return;
    };
    let netns = joined.fixture.netns("up");
    let levels = || joined.uplinks[0].status().path.map(|path| path.levels);
    assert_eq!(levels(), Some(SUPER));
    must(&format!("ip -n {netns} link del upa"));
    eventually("the loss is noticed", || levels().is_none());
    must(&format!(
        "ip -n {netns} link add other type veth peer name eth0 netns {}",
        joined.fixture.netns("a")
    ));
    must(&format!("tc -n {netns} qdisc add dev other ingress"));
    must(&format!("ip -n {netns} link set other name upa"));
    eventually("it is there with plain frames", || {
        levels() == Some(Levels::default())
    });
}

// promise: 2.43
#[test]
fn an_interface_that_gets_another_name_is_left() {
    if !has_own_mounts("refused::an_interface_that_gets_another_name_is_left") {
        return;
    }
    let Some(joined) = Joined::new("namep", Ends::Pinned, SUPER) else {
        return;
    };
    let netns = joined.fixture.netns("up");
    let at = || joined.uplinks[0].status().path.map(|path| path.index);
    let former = at().expect("connected");
    must(&format!(
        "ip -n {netns} link add new type veth peer name newer"
    ));
    // Older kernels rename interfaces only while they are down.
    must(&format!("ip -n {netns} link set upa down"));
    must(&format!("ip -n {netns} link set upa name gone"));
    must(&format!("ip -n {netns} link set gone up"));
    must(&format!("ip -n {netns} link set new name upa"));
    eventually("the uplink has the other interface", || {
        at().is_some_and(|index| index != former)
    });
    let now = at().expect("connected");
    let at_tc = |index| {
        within(&joined.fixture.path("up"), || {
            !programs_at_tc(index).is_empty()
        })
    };
    // The kernel detaches a link by a work queue, when nobody has it any more.
    eventually("none is left there", || !at_tc(former));
    // If the kernel has refused the new one at tc, it is taken with plain frames, see above.
    let is_plain = || {
        let path = joined.uplinks[0].status().path;
        path.is_some_and(|path| path.levels == Levels::default())
    };
    eventually("the new one is taken at tc, or as it is", || {
        at_tc(now) || is_plain() || !nfluid_netdev::kernel_is_at_least(6, 6)
    });
}
