//! TCP connections: which packets establish them, which connections are evicted, which segments belong to them.

use super::*;

const SERVICE: &str = "check-state
     allow tcp from any to 10.0.0.80 80 in setup keep-state
     allow tcp from 10.0.0.0/8 to any out setup keep-state
     deny ip from any to any";

/// A connection from inside.
struct Call {
    here: String,
    there: &'static str,
}

impl Call {
    fn from(port: u16) -> Call {
        Call {
            here: format!("10.0.0.1:{port}"),
            there: "1.1.1.1:443",
        }
    }

    fn forth(&self, flags: TcpFlags, seq: u32, ack: u32) -> Vec<u8> {
        segment(&self.here, self.there, flags, seq, ack)
    }

    fn back(&self, flags: TcpFlags, seq: u32, ack: u32) -> Vec<u8> {
        segment(self.there, &self.here, flags, seq, ack)
    }

    /// Returns true if the three segments of an opening pass.
    fn opens(&self, fw: &mut Bench) -> bool {
        fw.passes(INSIDE, &self.forth(SYN, 100, 0))
            && fw.passes(OUTSIDE, &self.back(SYN_ACK, 900, 101))
            && fw.passes(INSIDE, &self.forth(ACK, 101, 901))
    }

    /// Returns true if data passes in both directions.
    fn goes_on(&self, fw: &mut Bench) -> bool {
        fw.passes(INSIDE, &self.forth(ACK, 101, 901))
            && fw.passes(OUTSIDE, &self.back(ACK, 901, 101))
    }
}

/// A SYN from a forged address to the allowed service, and the service's answer, which the forger never sees.
fn forged_opening(fw: &mut Bench, number: u32) -> bool {
    let [_, a, b, c] = number.to_be_bytes();
    let from = format!("6.{a}.{b}.{c}:7777");
    let passed = fw.passes(OUTSIDE, &segment(&from, "10.0.0.80:80", SYN, number, 0));
    let answer = segment("10.0.0.80:80", &from, SYN_ACK, 5000, number + 1);
    assert_eq!(fw.passes(INSIDE, &answer), passed);
    passed
}

/// Catches: a SYN-ACK establishes; a full table refuses the next connection; established connections give way.
// promise: 10.32
#[test]
fn a_flood_of_answered_syns_shuts_nobody_out() {
    let mut fw = Bench::new(json!({"rules": SERVICE, "states": {"max": 64}}));
    let old = Call::from(1);
    assert!(old.opens(&mut fw));
    for number in 0..1000 {
        forged_opening(&mut fw, number);
    }
    assert!(old.goes_on(&mut fw), "an established connection");
    let new = Call::from(2);
    assert!(new.opens(&mut fw), "a new one from inside");
    for number in 1000..2000 {
        forged_opening(&mut fw, number);
    }
    fw.wait_s(600);
    assert!(old.goes_on(&mut fw) && new.goes_on(&mut fw));
    assert_eq!(fw.dropped("state_table_full"), 0);
    // 2000 openings and one connection came after the first connection, and found 63 places free.
    assert_eq!(fw.metric("states_evicted_total", ""), 2001 - 63);
    assert_eq!(fw.metric("states", ""), 64);
}

/// Catches: each SYN in a flood pushes out the one before it.
#[test]
fn a_connection_that_begins_during_a_flood_has_as_long_as_the_table_lasts() {
    let mut fw = Bench::new(json!({"rules": SERVICE, "states": {"max": 64}}));
    for number in 0..200 {
        forged_opening(&mut fw, number);
    }
    let call = Call::from(1);
    assert!(fw.passes(INSIDE, &call.forth(SYN, 100, 0)));
    for number in 200..263 {
        forged_opening(&mut fw, number);
    }
    assert!(fw.passes(OUTSIDE, &call.back(SYN_ACK, 900, 101)));
    assert!(fw.passes(INSIDE, &call.forth(ACK, 101, 901)));
}

// promise: 10.32
#[test]
fn established_connections_give_way_to_nobody() {
    let mut fw = Bench::new(json!({"rules": SERVICE, "states": {"max": 3}}));
    for port in 1..=3 {
        assert!(Call::from(port).opens(&mut fw));
    }
    assert!(!Call::from(4).opens(&mut fw) && !forged_opening(&mut fw, 1));
    assert_eq!(fw.dropped("state_table_full"), 2);
    assert!((1..=3).all(|port| Call::from(port).goes_on(&mut fw)));
}

/// Catches: a source at its limit takes the places of others.
#[test]
fn who_is_at_a_limit_pushes_out_nobody() {
    let rules = "check-state
         allow tcp from any to any in setup limit src-addr 1
         allow tcp from any to any out setup keep-state";
    let mut fw = Bench::new(json!({"rules": rules, "states": {"max": 2}}));
    let call = Call::from(1);
    assert!(fw.passes(INSIDE, &call.forth(SYN, 100, 0)));
    let attempt = |port| segment(&format!("6.6.6.6:{port}"), "10.0.0.80:80", SYN, 1, 0);
    assert!(fw.passes(OUTSIDE, &attempt(1)));
    assert!(!fw.passes(OUTSIDE, &attempt(2)) && !fw.passes(OUTSIDE, &attempt(3)));
    assert_eq!(fw.dropped("state_source_limit"), 2);
    assert!(fw.passes(OUTSIDE, &call.back(SYN_ACK, 900, 101)));
}

// promise: 10.32
#[test]
fn a_handshake_that_is_not_finished_ends_soon() {
    let passes_after = |answered: bool, seconds| {
        let mut fw = Bench::with_rules(SERVICE);
        let call = Call::from(1);
        fw.passes(INSIDE, &call.forth(SYN, 100, 0));
        if answered {
            fw.passes(OUTSIDE, &call.back(SYN_ACK, 900, 101));
        }
        fw.wait_s(seconds);
        fw.passes(OUTSIDE, &call.back(SYN_ACK, 900, 101))
    };
    assert!(passes_after(false, 119) && !passes_after(false, 121));
    assert!(passes_after(true, 59) && !passes_after(true, 61));
}

/// Catches: any RST closes; a RST that passes though it ends nothing is taken for the end.
// promise: 10.33
#[test]
fn a_blind_reset_does_not_end_a_connection() {
    let mut fw = Bench::with_rules(SERVICE);
    let call = Call::from(1);
    assert!(call.opens(&mut fw));
    assert!(
        !fw.passes(OUTSIDE, &call.back(RST, 77_000_000, 0)),
        "out of the window"
    );
    assert_eq!(fw.dropped("tcp_out_of_window"), 1);
    assert!(
        fw.passes(OUTSIDE, &call.back(RST, 950, 0)),
        "in it, and not exact"
    );
    fw.wait_s(600);
    assert!(call.goes_on(&mut fw));
    assert!(fw.passes(OUTSIDE, &call.back(RST, 901, 0)));
    assert_eq!(fw.command("states", &[])["states"][0]["phase"], "closed");
}

#[test]
fn data_out_of_the_window_is_dropped_unless_the_operator_is_liberal() {
    let stray = Call::from(1).back(ACK, 77_000_000, 101);
    for liberal in [false, true] {
        let states = json!({"tcp_liberal": liberal});
        let mut fw = Bench::new(json!({"rules": SERVICE, "states": states}));
        assert!(Call::from(1).opens(&mut fw));
        assert_eq!(fw.passes(OUTSIDE, &stray), liberal);
        assert_eq!(fw.dropped("tcp_out_of_window"), u64::from(!liberal));
        assert!(Call::from(1).goes_on(&mut fw));
    }
}

/// Catches: a segment that its state refuses is asked of the rules, which may allow it.
#[test]
fn a_refused_segment_is_not_asked_of_the_rules() {
    let mut fw = Bench::with_rules("check-state\nallow tcp from any to any keep-state");
    let call = Call::from(1);
    assert!(call.opens(&mut fw));
    assert!(!fw.passes(OUTSIDE, &call.back(ACK, 77_000_000, 101)));
    assert!(call.goes_on(&mut fw));
}

#[test]
fn a_connection_in_the_middle_is_picked_up_where_rules_allow_it() {
    let mut fw = Bench::with_rules("check-state\nallow tcp from any to any out keep-state");
    let call = Call::from(1);
    assert!(fw.passes(INSIDE, &call.forth(ACK, 101, 901)));
    assert!(fw.passes(OUTSIDE, &call.back(ACK, 901, 101)));
    assert_eq!(fw.command("states", &[])["states"][0]["phase"], "open");
    assert!(
        fw.passes(INSIDE, &Call::from(2).forth(RST, 1, 0)),
        "a RST of nothing"
    );
    assert_eq!(fw.metric("states", ""), 1);
}
