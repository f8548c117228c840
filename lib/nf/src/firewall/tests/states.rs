//! `keep-state`, `check-state` and `limit`.

use super::*;

const OUT_KEEPS_STATE: &str = "check-state
     allow tcp from 10.0.0.0/8 to any out setup keep-state
     allow udp from 10.0.0.0/8 to any out keep-state
     allow icmp from 10.0.0.0/8 to any out keep-state
     deny ip from any to any";

// promise: 10.5
#[test]
fn replies_pass_and_nothing_else_does() {
    let mut fw = Bench::with_rules(OUT_KEEPS_STATE);
    let reply = udp("8.8.8.8:53", "10.0.0.1:4000");
    assert!(!fw.passes(OUTSIDE, &reply), "nobody has asked yet");
    assert!(fw.passes(INSIDE, &udp("10.0.0.1:4000", "8.8.8.8:53")));
    assert!(fw.passes(OUTSIDE, &reply));
    assert!(
        !fw.passes(OUTSIDE, &udp("8.8.8.8:54", "10.0.0.1:4000")),
        "other port"
    );
    assert!(
        !fw.passes(OUTSIDE, &udp("8.8.4.4:53", "10.0.0.1:4000")),
        "other host"
    );
    assert!(!fw.passes(INSIDE, &reply), "reply from the wrong side");
    assert!(
        !fw.passes(OUTSIDE, &udp("10.0.0.1:4000", "8.8.8.8:53")),
        "spoofed from outside"
    );
    assert_eq!(fw.metric("states", ""), 1);
    assert_eq!(
        fw.metric("rule_packets_total", "300"),
        2,
        "the state counts for its rule"
    );
}

#[test]
fn a_tcp_connection_from_open_to_close() {
    let mut fw = Bench::with_rules(OUT_KEEPS_STATE);
    let there = |flags, seq, ack| segment("10.0.0.1:4000", "1.1.1.1:80", flags, seq, ack);
    let back = |flags, seq, ack| segment("1.1.1.1:80", "10.0.0.1:4000", flags, seq, ack);
    assert!(!fw.passes(OUTSIDE, &back(SYN_ACK, 9, 2)));
    assert!(
        !fw.passes(INSIDE, &there(ACK, 2, 10)),
        "only a SYN makes a state"
    );
    assert!(fw.passes(INSIDE, &there(SYN, 1, 0)));
    assert!(fw.passes(OUTSIDE, &back(SYN_ACK, 9, 2)));
    assert!(fw.passes(INSIDE, &there(ACK, 2, 10)));
    fw.wait_s(7_000);
    assert!(
        fw.passes(OUTSIDE, &back(ACK, 10, 2)),
        "idle for less than 2 h 4 min"
    );
    assert!(fw.passes(INSIDE, &there(FIN_ACK, 2, 10)));
    assert!(fw.passes(OUTSIDE, &back(FIN_ACK, 10, 3)));
    assert!(fw.passes(INSIDE, &there(ACK, 3, 11)));
    fw.wait_s(6);
    assert!(!fw.passes(OUTSIDE, &back(ACK, 11, 3)), "closed");
    assert_eq!(fw.metric("states_expired_total", ""), 1);
}

#[test]
fn a_half_open_connection_ends_soon() {
    let mut fw = Bench::with_rules(OUT_KEEPS_STATE);
    assert!(fw.passes(INSIDE, &tcp("10.0.0.1:4000", "1.1.1.1:80", SYN)));
    fw.wait_s(121);
    let answer = segment("1.1.1.1:80", "10.0.0.1:4000", SYN_ACK, 0, 1);
    assert!(!fw.passes(OUTSIDE, &answer));
}

#[test]
fn a_reset_connection_ends_soon_and_may_begin_anew() {
    let mut fw = Bench::with_rules(OUT_KEEPS_STATE);
    let there = |flags, seq, ack| segment("10.0.0.1:4000", "1.1.1.1:80", flags, seq, ack);
    let back = |flags, seq, ack| segment("1.1.1.1:80", "10.0.0.1:4000", flags, seq, ack);
    assert!(fw.passes(INSIDE, &there(SYN, 1, 0)) && fw.passes(OUTSIDE, &back(RST | ACK, 0, 2)));
    assert_eq!(fw.command("states", &[])["states"][0]["phase"], "closed");
    assert!(fw.passes(INSIDE, &there(SYN, 1, 0)), "the same ports again");
    assert!(fw.passes(OUTSIDE, &back(SYN_ACK, 9, 2)));
    assert_eq!(fw.command("states", &[])["states"][0]["phase"], "answered");
    assert!(fw.passes(INSIDE, &there(ACK, 2, 10)));
    assert_eq!(fw.command("states", &[])["states"][0]["phase"], "open");
    assert_eq!(fw.metric("states", ""), 1);
    assert_eq!(fw.metric("states_created_total", ""), 2);
}

#[test]
fn timeouts_are_those_of_the_configuration() {
    let mut fw = Bench::new(json!({
        "rules": "allow udp from any to any out keep-state",
        "states": {"timeouts": {"udp_opening": 5, "udp": 50}},
    }));
    let (there, back) = (
        udp("10.0.0.1:1", "1.1.1.1:2"),
        udp("1.1.1.1:2", "10.0.0.1:1"),
    );
    fw.passes(INSIDE, &there);
    fw.wait_s(6);
    assert!(!fw.passes(OUTSIDE, &back), "no reply within 5 s");
    fw.passes(INSIDE, &there);
    fw.wait_s(4);
    assert!(fw.passes(OUTSIDE, &back));
    fw.wait_s(49);
    assert!(fw.passes(OUTSIDE, &back), "50 s from the first reply on");
    fw.wait_s(51);
    assert!(!fw.passes(OUTSIDE, &back));
}

#[test]
fn a_rule_may_have_its_own_timeout() {
    let mut fw = Bench::with_rules("allow udp from any to any out keep-state timeout 600");
    fw.passes(INSIDE, &udp("10.0.0.1:1", "1.1.1.1:2"));
    fw.wait_s(599);
    assert!(fw.passes(OUTSIDE, &udp("1.1.1.1:2", "10.0.0.1:1")));
}

#[test]
fn pings_are_answered_with_the_right_identifier() {
    let mut fw = Bench::with_rules(OUT_KEEPS_STATE);
    assert!(fw.passes(INSIDE, &ping("10.0.0.1", "1.1.1.1", 77)));
    assert!(fw.passes(OUTSIDE, &pong("1.1.1.1", "10.0.0.1", 77)));
    assert!(!fw.passes(OUTSIDE, &pong("1.1.1.1", "10.0.0.1", 78)));
    assert!(
        !fw.passes(OUTSIDE, &ping("1.1.1.1", "10.0.0.1", 77)),
        "asks, does not answer"
    );
}

#[test]
fn an_icmp_error_about_a_flow_passes_with_it() {
    let mut fw = Bench::with_rules(OUT_KEEPS_STATE);
    let query = udp("10.0.0.1:4000", "8.8.8.8:53");
    assert!(fw.passes(INSIDE, &query));
    let error = |quoted: &[u8], to: &str| {
        let frame = Frame::icmp(ip("9.9.9.9"), ip(to), 3, 3, [0; 4]);
        bytes(frame, &quoted[14..])
    };
    assert!(fw.passes(OUTSIDE, &error(&query, "10.0.0.1")));
    assert!(
        !fw.passes(OUTSIDE, &error(&query, "10.0.0.2")),
        "not the sender of the packet"
    );
    assert!(!fw.passes(
        OUTSIDE,
        &error(&udp("10.0.0.1:4001", "8.8.8.8:53"), "10.0.0.1")
    ));
    assert!(
        !fw.passes(INSIDE, &error(&query, "10.0.0.1")),
        "from the sender's own side"
    );
    let config = json!({"rules": OUT_KEEPS_STATE, "states": {"icmp_errors": false}});
    let mut strict = Bench::new(config);
    assert!(strict.passes(INSIDE, &query));
    assert!(!strict.passes(OUTSIDE, &error(&query, "10.0.0.1")));
}

#[test]
fn flows_of_different_vlans_are_different() {
    let mut fw = Bench::with_rules(OUT_KEEPS_STATE);
    let there = Frame::udp(socket("10.0.0.1:4000"), socket("8.8.8.8:53"));
    let back = Frame::udp(socket("8.8.8.8:53"), socket("10.0.0.1:4000"));
    assert!(fw.passes(INSIDE, &tagged(there, 5)));
    assert!(fw.passes(OUTSIDE, &tagged(back, 5)));
    assert!(!fw.passes(OUTSIDE, &tagged(back, 6)));
    assert!(!fw.passes(OUTSIDE, &bytes(back, b"")));
}

/// IEEE 802.1Q: a tag with identifier 0 has a priority and is of no VLAN. Catches: it is a VLAN of its own.
// promise: 10.35
#[test]
fn a_priority_tag_is_of_no_vlan() {
    let mut fw = Bench::with_rules(OUT_KEEPS_STATE);
    let there = Frame::udp(socket("10.0.0.1:4000"), socket("8.8.8.8:53"));
    let back = Frame::udp(socket("8.8.8.8:53"), socket("10.0.0.1:4000"));
    assert!(fw.passes(INSIDE, &tagged(there, 0)));
    assert!(fw.passes(OUTSIDE, &bytes(back, b"")) && fw.passes(OUTSIDE, &tagged(back, 0)));
    assert!(!fw.passes(OUTSIDE, &tagged(back, 5)));
    let double = [VlanTag::new(0), VlanTag::new(5)];
    let mut of_vlan = Bench::with_rules("allow ip from any to any vlan 5");
    assert!(of_vlan.passes(INSIDE, &bytes(there.vlans(&double), b"data")));
    assert!(!of_vlan.passes(INSIDE, &tagged(there, 0)));
}

#[test]
fn rules_before_the_first_check_see_every_packet() {
    let mut fw = Bench::with_rules(
        "deny ip from 6.6.6.6 to any
         allow udp from any to any out keep-state",
    );
    assert!(fw.passes(INSIDE, &udp("10.0.0.1:1", "6.6.6.6:2")));
    assert!(!fw.passes(OUTSIDE, &udp("6.6.6.6:2", "10.0.0.1:1")));
}

#[test]
fn ipv6_flows_keep_state_too() {
    let mut fw = Bench::with_rules("allow ip6 from fc00::/7 to any out keep-state");
    assert!(fw.passes(INSIDE, &tcp("[fc00::1]:4000", "[2001:db8::1]:80", SYN)));
    let answer = |to| segment("[2001:db8::1]:80", to, SYN_ACK, 0, 1);
    assert!(fw.passes(OUTSIDE, &answer("[fc00::1]:4000")));
    assert!(!fw.passes(OUTSIDE, &answer("[fc00::2]:4000")));
    assert!(fw.passes(INSIDE, &ping("fc00::1", "2001:db8::1", 3)));
    assert!(fw.passes(OUTSIDE, &pong("2001:db8::1", "fc00::1", 3)));
}

// promise: 10.5
#[test]
fn a_full_table_refuses_and_counts() {
    let mut fw = Bench::new(json!({
        "rules": "allow udp from any to any out keep-state",
        "states": {"max": 3, "timeouts": {"udp_opening": 10, "udp": 10}},
    }));
    let flow = |port: u16| udp(&format!("10.0.0.1:{port}"), "1.1.1.1:2");
    let answer = |port: u16| udp("1.1.1.1:2", &format!("10.0.0.1:{port}"));
    for port in 1..=3 {
        assert!(fw.passes(INSIDE, &flow(port)));
        assert!(fw.passes(OUTSIDE, &answer(port)));
    }
    assert!(!fw.passes(INSIDE, &flow(4)));
    assert!(fw.passes(INSIDE, &flow(2)), "an old flow goes on");
    assert_eq!(fw.dropped("state_table_full"), 1);
    fw.wait_s(11);
    assert!(fw.passes(INSIDE, &flow(4)), "an expired state makes room");
}

/// Catches: datagrams from forged addresses that keep the table full, so that no host opens anything; answered flows
/// that give way to them.
// promise: 10.32
#[test]
fn a_flood_of_datagrams_that_nobody_answers_shuts_nobody_out() {
    let mut fw = Bench::new(json!({
        "rules": "check-state
                  allow udp from any to 10.0.0.53 53 in keep-state
                  allow icmp from any to 10.0.0.53 in keep-state
                  allow ip from 10.0.0.0/8 to any out keep-state",
        "states": {"max": 64},
    }));
    let flow = |port: u16| udp(&format!("10.0.0.1:{port}"), "1.1.1.1:2");
    let answer = |port: u16| udp("1.1.1.1:2", &format!("10.0.0.1:{port}"));
    assert!(fw.passes(INSIDE, &flow(1)) && fw.passes(OUTSIDE, &answer(1)));
    for number in 0..500u16 {
        let [high, low] = number.to_be_bytes();
        let from = format!("6.7.{high}.{low}");
        assert!(fw.passes(OUTSIDE, &udp(&format!("{from}:9"), "10.0.0.53:53")));
        assert!(fw.passes(OUTSIDE, &ping(&from, "10.0.0.53", number)));
    }
    assert!(fw.passes(OUTSIDE, &answer(1)), "an answered flow stays");
    assert!(
        fw.passes(INSIDE, &tcp("10.0.0.1:5", "1.1.1.1:80", SYN)),
        "a new one"
    );
    let answered = segment("1.1.1.1:80", "10.0.0.1:5", SYN_ACK, 0, 1);
    assert!(fw.passes(OUTSIDE, &answered));
    assert_eq!(fw.dropped("state_table_full"), 0);
    assert_eq!(fw.metric("states", ""), 64);
}

#[test]
fn a_rule_has_at_most_so_many_states() {
    let mut fw = Bench::with_rules(
        "allow udp from any to any 1 out keep-state max 2
         allow udp from any to any out keep-state",
    );
    let flow = |from: u16, to: u16| udp(&format!("10.0.0.1:{from}"), &format!("1.1.1.1:{to}"));
    assert!(fw.passes(INSIDE, &flow(1, 1)) && fw.passes(INSIDE, &flow(2, 1)));
    assert!(!fw.passes(INSIDE, &flow(3, 1)));
    assert!(fw.passes(INSIDE, &flow(3, 2)));
    assert_eq!(fw.dropped("state_rule_limit"), 1);
}

// promise: 10.5
#[test]
fn a_source_has_at_most_so_many_states() {
    let mut fw = Bench::with_rules("allow udp from any to any out limit src-addr 2 timeout 10");
    let flow = |host: u8, port: u16| udp(&format!("10.0.0.{host}:{port}"), "1.1.1.1:1");
    assert!(fw.passes(INSIDE, &flow(1, 1)) && fw.passes(INSIDE, &flow(1, 2)));
    assert!(!fw.passes(INSIDE, &flow(1, 3)));
    assert!(fw.passes(INSIDE, &flow(2, 3)), "another host");
    assert_eq!(fw.dropped("state_source_limit"), 1);
    fw.wait_s(11);
    fw.tick();
    assert_eq!(fw.metric("states", ""), 0);
    assert!(
        fw.passes(INSIDE, &flow(1, 3)),
        "the count fell with the states"
    );
}

#[test]
fn ticks_sweep_all_expired_states_in_bounded_steps() {
    let mut fw = Bench::with_rules("allow udp from any to any out keep-state");
    for i in 0..5000_u32 {
        fw.passes(
            INSIDE,
            &udp(&format!("10.0.{}.{}:9", i / 250, i % 250), "1.1.1.1:1"),
        );
    }
    assert_eq!(fw.metric("states", ""), 5000);
    assert!(fw.nf.has_timers());
    fw.wait_s(31);
    fw.tick();
    let left = fw.metric("states", "");
    assert!(
        (1..5000).contains(&left),
        "one tick does part of the work, {left} left"
    );
    for _ in 0..4 {
        fw.tick();
    }
    assert_eq!(fw.metric("states", ""), 0);
    assert!(!fw.nf.has_timers(), "nothing waits for time to pass");
}

// promise: 10.24
#[test]
fn an_idle_firewall_sleeps_until_its_first_state_ends() {
    let mut fw = Bench::with_rules("allow udp from any to any out keep-state timeout 10");
    assert!(!fw.nf.has_timers());
    let left = |fw: &Bench| fw.nf.next_tick().since(fw.now).0 / 1_000_000_000;
    fw.passes(INSIDE, &udp("10.0.0.1:1", "1.1.1.1:1"));
    fw.wait_s(4);
    fw.passes(INSIDE, &udp("10.0.0.1:2", "1.1.1.1:1"));
    assert_eq!(left(&fw), 0, "nobody has looked yet");
    fw.tick();
    assert_eq!(left(&fw), 7, "with what ends within a second more");
    fw.wait_s(7);
    fw.tick();
    assert_eq!((fw.metric("states", ""), left(&fw)), (1, 4));
    fw.passes(INSIDE, &udp("10.0.0.1:2", "1.1.1.1:1"));
    fw.tick();
    assert_eq!(left(&fw), 11, "another packet came");
    fw.wait_s(11);
    fw.tick();
    assert!(!fw.nf.has_timers());
}

#[test]
fn states_and_flush_states_commands() {
    let mut fw = Bench::with_rules("7 allow ip from any to any out keep-state");
    fw.passes(INSIDE, &udp("10.0.0.1:1", "1.1.1.1:1"));
    for _ in 0..5 {
        fw.passes(INSIDE, &tcp("10.0.0.2:2", "1.1.1.1:80", SYN));
    }
    let answer = fw.command("states", &["1"]);
    assert_eq!(answer["total"], 2);
    let top = &answer["states"][0];
    assert_eq!(answer["states"].as_array().map(Vec::len), Some(1));
    assert_eq!(
        (&top["src"], &top["dst_port"]),
        (&json!("10.0.0.2"), &json!(80))
    );
    assert_eq!(
        (&top["rule"], &top["forth"]["packets"]),
        (&json!(7), &json!(5))
    );
    assert_eq!(fw.command("flush-states", &[])["flushed"], 2);
    assert_eq!(fw.metric("states", ""), 0);
    assert!(!fw.passes(OUTSIDE, &udp("1.1.1.1:1", "10.0.0.1:1")));
}
