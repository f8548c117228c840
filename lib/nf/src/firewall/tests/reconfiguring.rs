//! New rules while traffic flows, and what `rules` shows.

use super::*;

fn reconfigure(fw: &mut Bench, config: Value) {
    fw.nf
        .reconfigure(&config, &ports(2))
        .unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn states_stay_where_the_new_rules_still_keep_them() {
    let mut fw = Bench::with_rules("allow udp from any to any out keep-state");
    for port in [53, 123] {
        assert!(fw.passes(INSIDE, &udp("10.0.0.1:1", &format!("1.1.1.1:{port}"))));
    }
    assert!(fw.passes(INSIDE, &udp("[fc00::1]:1", "[fc00::2]:53")));
    let rules = "deny udp from any to any 123 out
         allow udp from any to any out keep-state";
    reconfigure(&mut fw, json!({ "rules": rules }));
    assert!(fw.passes(OUTSIDE, &udp("1.1.1.1:53", "10.0.0.1:1")));
    assert!(!fw.passes(OUTSIDE, &udp("1.1.1.1:123", "10.0.0.1:1")));
    assert!(fw.passes(OUTSIDE, &udp("[fc00::2]:53", "[fc00::1]:1")));
    assert_eq!(fw.metric("states", ""), 2);
    assert_eq!(fw.metric("states_created_total", ""), 3);
}

#[test]
fn a_kept_state_wins_no_time() {
    let mut fw = Bench::with_rules("allow udp from any to any out keep-state");
    fw.passes(INSIDE, &udp("10.0.0.1:1", "1.1.1.1:2"));
    fw.wait_s(20);
    reconfigure(
        &mut fw,
        json!({"rules": "allow ip from any to any out keep-state"}),
    );
    fw.wait_s(11);
    assert!(!fw.passes(OUTSIDE, &udp("1.1.1.1:2", "10.0.0.1:1")));
}

#[test]
fn counters_stay_with_unchanged_rules() {
    let mut fw = Bench::with_rules("10 count ip from any to any\n20 allow udp from any to any");
    fw.passes(INSIDE, &udp("10.0.0.1:1", "1.1.1.1:2"));
    let rules =
        "5 deny tcp from any to any\n10 count ip from any to any\n20 allow ip from any to any";
    reconfigure(&mut fw, json!({ "rules": rules }));
    assert_eq!(fw.metric("rule_packets_total", "5"), 0);
    assert_eq!(fw.metric("rule_packets_total", "10"), 1);
    assert_eq!(fw.metric("rule_packets_total", "20"), 0, "its text changed");
    assert_eq!(fw.metric("packets_forwarded_total", "p0"), 1);
}

// promise: 10.7
#[test]
fn a_bad_configuration_changes_nothing() {
    let mut fw = Bench::with_rules("allow udp from any to any out keep-state");
    fw.passes(INSIDE, &udp("10.0.0.1:1", "1.1.1.1:2"));
    let refused = fw.nf.reconfigure(&json!({"rules": "allow udp"}), &ports(2));
    assert!(refused.is_err());
    assert!(fw.passes(OUTSIDE, &udp("1.1.1.1:2", "10.0.0.1:1")));
}

#[test]
fn the_rules_command_shows_text_and_counters() {
    let mut fw = Bench::with_rules(
        "allow udp from any to any 53 out keep-state\n777 deny ip from any to any",
    );
    fw.passes(INSIDE, &udp("10.0.0.1:1", "1.1.1.1:53"));
    fw.passes(OUTSIDE, &tcp("10.0.0.1:1", "1.1.1.1:53", SYN));
    let answer = fw.command("rules", &[]);
    assert_eq!(answer["total"], 2);
    let expected = json!([
        {"number": 100, "rule": "100 allow udp from any to any 53 out keep-state",
         "packets": 1, "bytes": 46, "states": 1},
        {"number": 777, "rule": "777 deny ip from any to any", "packets": 1, "bytes": 54, "states": 0},
    ]);
    assert_eq!(answer["rules"], expected);
    let from_200 = fw.command("rules", &["200", "5"]);
    assert_eq!(from_200["rules"][0]["number"], 777);
}

#[test]
fn unknown_commands_and_arguments_are_refused() {
    let mut fw = Bench::with_rules("");
    let mut refused = |name: &str, args: &[&str]| {
        let args: Vec<String> = args.iter().map(|arg| (*arg).into()).collect();
        let error = fw.nf.command(Nanos(0), name, &args).unwrap_err();
        std::string::ToString::to_string(&error)
    };
    assert!(refused("rule", &[]).contains("rules, states, flush-states"));
    assert!(refused("states", &["many"]).contains("expected a number"));
    assert!(refused("flush-states", &["now"]).contains("usage"));
}
