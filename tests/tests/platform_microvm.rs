//! Instances of tier `microvm`: KVM guests that are one network function, with everything that other instances have.

use nfluid_testbed::process::signal;
use nfluid_tests::harness::patience::eventually;
use nfluid_tests::harness::platform::Platform;
use nfluid_tests::harness::program::guest_image;
use nfluid_tests::harness::skip::skip;
use nfluid_tests::harness::two_hosts::{
    BRIDGE_AND_FIREWALL, SERVER, UPLINKS, one_bridge, two_hosts,
};
use rustix::process::Signal;
use std::path::Path;
use std::process::Command;

/// The chain of a bridge and a firewall, both in guests.
fn guests() -> String {
    BRIDGE_AND_FIREWALL
        .replace("br: { nf: bridge }", "br: { nf: bridge, tier: microvm }")
        .replace("nf: firewall\n", "nf: firewall\n    tier: microvm\n")
}

/// Rules by which answers come back only to who has asked.
const STATEFUL: &str = r#"rules: "check-state\nallow icmp from any to any keep-state""#;

/// Two hosts on a machine that has KVM, or the test is skipped.
fn hosts_with_kvm(test: &str) -> Option<Platform> {
    if !Path::new("/dev/kvm").exists() {
        skip(test, "it needs /dev/kvm");
        return None;
    }
    two_hosts(test)
}

// promise: 18.1
#[test]
fn a_chain_of_guests_forwards_and_is_operated_like_any_other() {
    let test = "a_chain_of_guests_forwards_and_is_operated_like_any_other";
    let Some(mut platform) = hosts_with_kvm(test) else {
        return;
    };
    platform.apply(&guests());
    eventually("a ping crosses", || platform.pings("client", SERVER));
    for name in ["br", "fw"] {
        assert_eq!(platform.instance(name)["tier"], "microvm");
    }
    // Metrics come from the guest, and say what its machine does.
    let counters = platform.page("/metrics");
    assert!(counters.contains("guest_exits_total"), "{counters}");
    let unknown = platform.nfluid(&["command", "fw", "no-such-command"]);
    assert!(unknown.stderr.contains("there are"), "{unknown:?}");

    // A configuration that is refused changes nothing; another one takes effect in the running guest.
    let before = platform.pids();
    let closed = guests().replace("allow icmp from any to any", "deny icmp from any to any");
    platform.apply(&closed);
    assert!(!platform.pings("client", SERVER), "the rules are in force");
    platform.apply(&guests());
    eventually("a ping crosses again", || platform.pings("client", SERVER));
    assert_eq!(platform.pids(), before, "no guest was started again");

    // A pause holds the virtual CPU, and a killed monitor is a killed instance.
    platform.must_say(&["pause", "br"]);
    assert!(!platform.pings("client", SERVER));
    platform.must_say(&["unpause", "br"]);
    eventually("a ping crosses after the pause", || {
        platform.pings("client", SERVER)
    });
    signal(before["fw"], Signal::KILL);
    eventually("it runs again", || {
        platform
            .pids()
            .get("fw")
            .is_some_and(|pid| *pid != before["fw"])
    });
    eventually("a ping crosses a new guest", || {
        platform.pings("client", SERVER)
    });

    // Its state moves on in an upgrade, and guests outlive the daemon.
    platform.must_say(&["upgrade", "fw"]);
    assert!(platform.reaches("client", SERVER));
    let before = platform.pids();
    platform.kill_daemon();
    platform.start();
    assert_eq!(platform.pids(), before);
    assert!(platform.reaches("client", SERVER));
    platform.must_say(&["delete", "--all"]);
    eventually("nothing is left", || {
        platform.instance_processes().is_empty()
    });
}

// promise: 18.6
#[test]
fn guests_come_out_of_pools() {
    let Some(platform) = hosts_with_kvm("guests_come_out_of_pools") else {
        return;
    };
    let pools = "pool: { machines: { size: 2, for: microvms }, processes: { size: 1 } }\n";
    let (uplinks, _) = BRIDGE_AND_FIREWALL.split_once("instances:").expect("some");
    platform.apply(&format!("{uplinks}{pools}"));
    let taken = |platform: &Platform, name: &str| {
        let pools = platform.ask(&["get", "pools"]);
        let found = nfluid_tests::harness::platform::list(&pools).find(|it| it["name"] == name);
        let found = found.expect("the pool").clone();
        (found["ready"].clone(), found["taken"].clone())
    };
    eventually("the shells are ready", || {
        taken(&platform, "machines").0 == 2 && taken(&platform, "processes").0 == 1
    });
    platform.apply(&format!("{}{pools}", guests()));
    eventually("a ping crosses", || platform.pings("client", SERVER));
    assert_eq!(taken(&platform, "machines").1, 2);
    assert_eq!(taken(&platform, "processes").1, 0);
}

// promise: 18.1
#[test]
fn a_state_is_saved_and_cloned() {
    let Some(platform) = hosts_with_kvm("a_state_is_saved_and_cloned") else {
        return;
    };
    let deployment = guests().replace("rules: 'allow icmp from any to any'", STATEFUL);
    platform.apply(&deployment);
    eventually("a ping crosses", || platform.pings("client", SERVER));
    let file = platform.directory().join("fw.state");
    let file = file.to_str().expect("text");
    platform.must_say(&["save", "fw", file]);
    let restored = platform.must_say(&["restore", file, "--name", "clone"]);
    assert!(restored.contains("clone"), "{restored}");
    assert_eq!(platform.instance("clone")["tier"], "microvm");
    for name in ["fw", "clone"] {
        let states = platform.must_say(&["command", name, "states"]);
        assert!(states.contains(SERVER), "{name}: {states}");
    }
}

/// Compiles a guest in C into the platform's folder. Returns the path of the image.
fn guest_in_c(platform: &Platform, name: &str, source: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let (from, to) = (
        platform.directory().join(format!("{name}.c")),
        platform.directory().join(name),
    );
    std::fs::write(&from, source).expect("written");
    let output = Command::new("cc")
        .args([
            "-std=c11",
            "-O2",
            "-ffreestanding",
            "-fno-stack-protector",
            "-fno-pic",
        ])
        .args(["-fcf-protection=none", "-nostdlib", "-static", "-no-pie"])
        .arg(format!("-I{}", root.join("lib/guest/include").display()))
        .arg(format!(
            "-Wl,--build-id=none,-T{}",
            root.join("lib/guest/image.ld").display()
        ))
        .arg("-o")
        .args([&to, &from])
        .output()
        .expect("a C compiler, as the build of libbpf needs one");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    to.to_str().expect("text").to_owned()
}

// promise: 18.9
#[test]
fn a_guest_in_c_is_an_instance() {
    let Some(platform) = hosts_with_kvm("a_guest_in_c_is_an_instance") else {
        return;
    };
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/guest-in-c/ttl.c");
    let source = std::fs::read_to_string(example).expect("the example");
    let image = guest_in_c(&platform, "ttl", &source);
    let deployment =
        one_bridge("").replace("nf: bridge, ", &format!("program: {image}, tier: microvm"));
    platform.apply(&deployment);
    eventually("a ping crosses", || platform.pings("client", SERVER));
    platform.await_log("a", "ttl: ready");
    let counters = platform.page("/metrics");
    assert!(counters.contains("packets_forwarded_total"), "{counters}");
    let refused = platform.nfluid(&["command", "a", "any"]);
    assert!(refused.stderr.contains("no such operation"), "{refused:?}");
}

/// Two servers, each behind an uplink of its own; `body` is the page of the first.
fn servers(body: &str) -> String {
    let (web, clock) = (guest_image("http"), guest_image("daytime"));
    format!(
        "{UPLINKS}instances:
  web:
    program: {web}
    tier: microvm
    ports: [in]
    config: {{ addresses: [10.0.0.8/24], body: '{body}' }}
  clock:
    program: {clock}
    tier: microvm
    ports: [in]
    config: {{ addresses: [10.0.0.9/24], connections: 8 }}
links:
  - [lan, web.in]
  - [wan, clock.in]
"
    )
}

// promise: 18.10
#[test]
fn servers_in_guests_answer_the_clients_of_a_kernel() {
    let test = "servers_in_guests_answer_the_clients_of_a_kernel";
    let Some(platform) = hosts_with_kvm(test) else {
        return;
    };
    platform.apply(&servers("first"));
    let page = |line: &str| {
        platform
            .on("client", &format!("curl --silent {line}"))
            .stdout
    };
    eventually("the page is there", || page("http://10.0.0.8/") == "first");

    // Many at once, each on a connection of its own and on connections that stay.
    for keep in ["", "--no-keepalive"] {
        let all = page(&format!(
            "--parallel --parallel-max 30 {keep} http://10.0.0.8/[1-300]"
        ));
        assert_eq!(all, "first".repeat(300));
    }
    let before = platform.pids()["web"];
    platform.apply(&servers("second"));
    assert_eq!(page("http://10.0.0.8/"), "second");
    assert_eq!(platform.pids()["web"], before, "no guest was started again");
    assert_eq!(
        page("--output /dev/null --write-out %{http_code} --data x http://10.0.0.8/"),
        "405"
    );

    // The time is that of the host, also for more clients in a second than there are sockets.
    for _ in 0..20 {
        let now = || {
            platform
                .on("server", "date -u +%s")
                .stdout
                .trim()
                .parse::<i64>()
        };
        let (from, told, to) = (
            now().expect("a time"),
            platform.on("server", "busybox nc 10.0.0.9 13").stdout,
            now().expect("a time"),
        );
        let told = told.trim().replace(',', "").replace("-UTC", " UTC");
        let words: Vec<&str> = told.split(' ').collect();
        let date = Command::new("date")
            .args(["-u", "+%s", "-d", &words[1..].join(" ")])
            .output();
        let date = String::from_utf8(date.expect("date runs").stdout).expect("text");
        let date: i64 = date.trim().parse().unwrap_or_else(|_| panic!("{told}"));
        assert!((from..=to).contains(&date), "{told}: {from} to {to}");
    }
    assert!(
        platform
            .page("/metrics")
            .contains("connections_accepted_total")
    );
    signal(platform.pids()["web"], Signal::KILL);
    eventually("a new guest serves the page", || {
        page("http://10.0.0.8/") == "second"
    });
}

// promise: 18.5
#[test]
fn a_guest_that_goes_wrong_is_reported_and_started_again() {
    let test = "a_guest_that_goes_wrong_is_reported_and_started_again";
    let Some(platform) = hosts_with_kvm(test) else {
        return;
    };
    for (name, code, why) in [
        (
            "endless",
            "for (;;) ;",
            "has not returned from a call within 2 s",
        ),
        (
            "wild",
            "*(volatile int *)0x30000000 = 1;",
            "wrote to address 0x30000000",
        ),
        ("null", "*(volatile int *)16 = 1;", "made an exception"),
    ] {
        let source = format!("#include \"nfluid_guest.h\"\nvoid nfg_main(void) {{ {code} }}\n");
        let image = guest_in_c(&platform, name, &source);
        platform.apply(&format!(
            "version: 1\ninstances: {{ {name}: {{ program: {image}, tier: microvm }} }}\n"
        ));
        eventually("the reason is in its log, twice", || {
            platform.log(name).matches(why).count() >= 2
        });
    }
}

// promise: 18.8
#[test]
fn a_running_function_moves_between_tiers_with_its_state() {
    let test = "a_running_function_moves_between_tiers_with_its_state";
    let Some(platform) = hosts_with_kvm(test) else {
        return;
    };
    let process = BRIDGE_AND_FIREWALL.replace("rules: 'allow icmp from any to any'", STATEFUL);
    platform.apply(&process);
    // Pings with this identifier are one flow.
    let flow = |identifier: u16| {
        let line = format!("ping -n -c 1 -W 1 -e {identifier} {SERVER}");
        platform.on("client", &line).succeeded()
    };
    eventually("a ping crosses", || flow(4242));
    let in_guest = process.replace("nf: firewall\n", "nf: firewall\n    tier: microvm\n");
    for (document, tier) in [(&in_guest, "microvm"), (&process, "process")] {
        let before = platform.pids()["fw"];
        platform.apply(document);
        assert_eq!(platform.instance("fw")["tier"], tier);
        assert_ne!(platform.pids()["fw"], before, "a successor has its ports");
        let states = platform.must_say(&["command", "fw", "states"]);
        assert!(states.contains(SERVER), "{states}");
        assert!(flow(4242), "frames pass");
    }
    let events = platform.events_of("fw");
    assert!(events.iter().all(|event| event != "stopped"), "{events:?}");
}

// promise: 18.3
#[test]
fn what_a_guest_cannot_have_is_refused_with_a_remedy() {
    let Some(platform) = hosts_with_kvm("what_a_guest_cannot_have_is_refused_with_a_remedy") else {
        return;
    };
    let text = platform.directory().join("text");
    std::fs::write(&text, "no image\n").expect("written");
    for (instance, why) in [
        (
            "{ nf: bridge, tier: microvm, ports: { in: { queues: 2 }, out: { queues: 2 } } }"
                .to_owned(),
            "one thread",
        ),
        (
            "{ nf: tls, tier: microvm, listen: '127.0.0.1:1' }".to_owned(),
            "tier",
        ),
        (
            "{ program: /bin/true, args: [x], tier: microvm }".to_owned(),
            "no arguments",
        ),
        (
            format!("{{ program: {}, tier: microvm }}", text.display()),
            "cannot be run",
        ),
    ] {
        platform.must_refuse_instance(&instance, why);
    }
    // A program of the host is no guest image: the monitor says so.
    platform.try_apply(
        "version: 1\ninstances: { x: { program: /bin/true, tier: microvm, restart: never } }\n",
    );
    platform.await_log("x", "not linked statically");
}
