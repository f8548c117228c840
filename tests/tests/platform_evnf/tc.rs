//! The promise: fast paths at tc are instances as those at XDP are, and packets stay as they are between namespaces.

use super::ground::{are_dropped, connect, metric, nft, nothing_is_left, program_on, routed};
use super::uplink_ground::within;
use nfluid_tests::harness::platform::{Platform, list};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::thread;

/// None that asks connection tracking: what may match it would be the kernel's, which knows no service.
const RULES: &str = "table ip filter { chain forward { type filter hook forward priority 0; \
    udp dport 9 drop; }; }";

const AT_TC: &str = "
version: 1
instances:
  fw: { tier: xdp, nf: efw, interface: [client, s1], netns: EDGE, mode: tc, order: 1 }
  lb:
    tier: xdp
    nf: elb
    interface: [client, s1]
    netns: EDGE
    mode: tc
    order: 2
    config:
      services:
        web: { at: 203.0.113.1:80, servers: [{ at: 10.0.1.2:8080 }] }
";

/// Sends a lot, in segments that are cut late or never, and gets it back.
fn is_echoed(platform: &Platform, server: &TcpListener) {
    let sent: Vec<u8> = (0..1_000_000u32).flat_map(u32::to_ne_bytes).collect();
    let mut client = connect(platform).expect("it is served");
    thread::scope(|scope| {
        scope.spawn(|| {
            let (mut stream, _) = server.accept().expect("the client");
            let mut got = vec![0; sent.len()];
            stream.read_exact(&mut got).expect("all of it");
            stream.write_all(&got).expect("it is there");
        });
        client.write_all(&sent).expect("it is connected");
        let mut got = vec![0; sent.len()];
        client.read_exact(&mut got).expect("all of it");
        assert!(got == sent, "it comes back as it was");
    });
}

#[test]
fn fast_paths_at_tc_carry_connections_through_a_kill_and_leave_nothing() {
    let test = "fast_paths_at_tc_carry_connections_through_a_kill_and_leave_nothing";
    let Some(mut platform) = Platform::new(test) else {
        return;
    };
    routed(
        &mut platform,
        &[
            ("client", "10.0.0.2", "10.0.0.1"),
            ("s1", "10.0.1.2", "10.0.1.1"),
        ],
    );
    nft(&platform, RULES);
    let server = within(&platform.host_netns("s1"), || {
        TcpListener::bind((Ipv4Addr::UNSPECIFIED, 8080)).expect("a port")
    });
    platform.apply(AT_TC);
    let interfaces = &platform.instance("lb")["fast"]["interfaces"];
    assert!(
        list(interfaces).all(|interface| interface["mode"] == "tc"),
        "{interfaces}"
    );
    assert_eq!(program_on(&platform, "client"), None, "not at XDP");
    are_dropped(&platform, 9);
    let sent = "xdp_packets{verdict=\"send\",reason=\"sent\"}";
    is_echoed(&platform, &server);
    assert!(metric(&platform, "lb", sent) > 0, "by the fast path");

    platform.kill_daemon();
    is_echoed(&platform, &server);
    platform.start();
    assert!(platform.events_of("lb").contains(&"adopted".to_owned()));
    is_echoed(&platform, &server);
    are_dropped(&platform, 9);

    let uplink = "version: 1\nuplinks:\n  up: { interface: client, netns: EDGE, mode: tc }\n";
    let refused = platform.try_apply(uplink);
    assert!(
        refused.stderr.contains("there is no mode 'tc'"),
        "{refused:?}"
    );
    let deleted = platform.nfluid(&["delete", "--all"]);
    assert!(deleted.succeeded(), "{deleted:?}");
    nothing_is_left(&platform, &["client", "s1"]);
    assert!(connect(&platform).is_none(), "nobody translates any more");
}
