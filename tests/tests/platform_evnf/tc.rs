//! The promise: fast paths at tc are instances as those at XDP are, and packets stay as they are between namespaces.

use super::fixture::{are_dropped, connect, metric, nft, nothing_is_left, program_on, routed};
use nfluid_tests::harness::patience::eventually;
use nfluid_tests::harness::platform::{Platform, list};
use nfluid_tests::harness::within;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
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

// promise: 15.62
#[test]
fn fast_paths_at_tc_carry_connections_through_a_kill_and_leave_nothing() {
    let test = "fast_paths_at_tc_carry_connections_through_a_kill_and_leave_nothing";
    let Some(mut platform) = Platform::new(test) else {
        return;
    };
    routed(&mut platform, &["client", "s1"]);
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

/// Packets that the balancer forwards bypass the kernel's chains: only a function at egress can evaluate the rules.
const ON_THE_WAY_OUT: &str = "table ip filter { chain post { type filter hook postrouting priority 0; \
    tcp dport 8080 drop; }; }";

// promise: 15.63
#[test]
fn a_firewall_on_the_way_out_stops_what_goes_around_the_kernels_rules() {
    let test = "a_firewall_on_the_way_out_stops_what_goes_around_the_kernels_rules";
    let Some(mut platform) = Platform::new(test) else {
        return;
    };
    routed(&mut platform, &["client", "s1"]);
    nft(&platform, ON_THE_WAY_OUT);
    let _server = within(&platform.host_netns("s1"), || {
        TcpListener::bind((Ipv4Addr::UNSPECIFIED, 8080)).expect("a port")
    });
    let balancer = AT_TC
        .lines()
        .filter(|line| !line.contains("fw:"))
        .collect::<Vec<_>>()
        .join("\n");
    platform.apply(&balancer);
    // Where a server is the kernel has to find out, with a packet that it lets pass.
    let other = SocketAddr::from((Ipv4Addr::new(10, 0, 1, 2), 8081));
    let edge = Path::new("/run/netns").join(platform.edge());
    let _refused = within(&edge, || TcpStream::connect(other));
    assert!(connect(&platform).is_some(), "nobody asks postrouting");
    let refused = platform.try_apply(&format!(
        "{balancer}\n  out: {{ tier: xdp, nf: efw, interface: s1, netns: EDGE, mode: native, direction: egress }}"
    ));
    assert!(refused.stderr.contains("write 'mode: tc'"), "{refused:?}");
    let guard = "version: 1\ninstances: { g: { tier: xdp, nf: guard, interface: s1, netns: EDGE, mode: tc } }";
    let refused = platform.try_apply(guard);
    assert!(
        refused.stderr.contains("it has no form for tc"),
        "{refused:?}"
    );

    let both = format!(
        "{balancer}\n  out: {{ tier: xdp, nf: efw, interface: s1, netns: EDGE, mode: tc, direction: egress }}"
    );
    platform.apply(&both);
    let interface = &platform.instance("out")["fast"]["interfaces"][0];
    assert_eq!(
        (&interface["mode"], &interface["direction"]),
        (&"tc".into(), &"egress".into())
    );
    let drop = "xdp_packets{verdict=\"drop\",reason=\"rule\"}";
    assert!(
        connect(&platform).is_none(),
        "it is asked for the interface"
    );
    assert!(metric(&platform, "out", drop) > 0);
    platform.kill_daemon();
    assert!(connect(&platform).is_none(), "it needs no daemon");
    platform.start();
    assert!(platform.events_of("out").contains(&"adopted".to_owned()));
    assert!(
        connect(&platform).is_none(),
        "the next one has taken it over"
    );
    nft(&platform, "flush chain ip filter post");
    eventually("another rule set is followed", || {
        connect(&platform).is_some()
    });

    let deleted = platform.nfluid(&["delete", "--all"]);
    assert!(deleted.succeeded(), "{deleted:?}");
    nothing_is_left(&platform, &["client", "s1"]);
}
