//! The promise: programs on DPDK, as Debian ships them or as they are in DPDK's source, run as instances. The test builds
//! nfluid's driver as the guide says.

mod dpdk_fixture;

use dpdk_fixture::{Driver, TESTPMD, driver_and_hosts};
use nfluid_testbed::process::signal;
use nfluid_tests::harness::patience::eventually;
use nfluid_tests::harness::platform::Platform;
use nfluid_tests::harness::transfer::stream;
use nfluid_tests::harness::two_hosts::{UPLINKS, two_hosts};
use rustix::process::Signal;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

/// A chain of one program on DPDK, with these arguments and keys.
fn chain(program: &str, arguments: &[String], keys: &str) -> String {
    let mut words = String::new();
    for argument in arguments {
        write!(words, "'{argument}', ").expect("memory");
    }
    format!(
        "{UPLINKS}instances:
  a:
    program: {program}
    api: dpdk
    args: [{words}]
    memory: 256MiB
    {keys}
    ports: {{ in: {{}}, out: {{}} }}
chains:
  web: {{ from: lan, to: wan, via: [a] }}
"
    )
}

/// The hardware address of a host.
fn mac(platform: &Platform, host: &str) -> String {
    let found = platform.on(host, "cat /sys/class/net/eth0/address");
    found.stdout.trim().to_owned()
}

const BOTH: [&str; 2] = ["net_nfluid0,port=in", "net_nfluid1,port=out"];
const LENT: [&str; 2] = [
    "net_nfluid0,port=in,zero-copy=yes",
    "net_nfluid1,port=out,zero-copy=yes",
];

/// testpmd, which sends on one port what it receives on the other.
fn testpmd(driver: &Driver, devices: &[&str], keys: &str, options: &[&str]) -> String {
    testpmd_of(driver, "io", devices, keys, options)
}

/// testpmd in this mode.
fn testpmd_of(
    driver: &Driver,
    mode: &str,
    devices: &[&str],
    keys: &str,
    options: &[&str],
) -> String {
    let mut words = driver.eal(devices);
    words.extend(["--lcores", "0,1@0", "--", "--total-num-mbufs=4096"].map(str::to_owned));
    words.push(format!("--forward-mode={mode}"));
    words.push("--stats-period=1".to_owned());
    words.extend(options.iter().map(|option| (*option).to_owned()));
    chain(TESTPMD, &words, keys)
}

// promise: 21.1
#[test]
fn testpmd_forwards_as_it_is_and_comes_back_when_it_is_killed() {
    let test = "testpmd_forwards_as_it_is";
    let Some((driver, platform)) = driver_and_hosts(test) else {
        return;
    };
    platform.apply(&testpmd(&driver, &BOTH, "cpus: [1]", &[]));
    eventually("testpmd forwards", || platform.pings("client", "10.0.0.2"));
    stream(&platform, 4 << 20);
    let pid = platform.pids()["a"];
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let allowed = status
        .lines()
        .find(|line| line.starts_with("Cpus_allowed_list"));
    let cpus = allowed.and_then(|line| line.split_whitespace().last());
    assert_eq!(cpus, Some("1"), "EAL pins no thread: {status}");
    signal(pid, Signal::KILL);
    eventually("another one runs", || {
        platform.pids().get("a").is_some_and(|now| *now != pid)
    });
    eventually("it forwards again", || platform.pings("client", "10.0.0.2"));
    stream(&platform, 1 << 20);
    platform.await_log("a", "RX-packets");
}

// promise: 21.1
#[test]
fn testpmd_writes_addresses_and_checksums_and_makes_flows() {
    let test = "testpmd_writes_addresses";
    let Some((driver, platform)) = driver_and_hosts(test) else {
        return;
    };
    let client = format!("--eth-peer=0,{}", mac(&platform, "client"));
    let server = format!("--eth-peer=1,{}", mac(&platform, "server"));
    for mode in ["mac", "csum"] {
        let options = [client.as_str(), server.as_str()];
        platform.apply(&testpmd_of(&driver, mode, &BOTH, "", &options));
        eventually(mode, || platform.pings("client", "10.0.0.2"));
        stream(&platform, 1 << 20);
        assert_eq!(platform.bad_checksums("server"), 0, "{mode}");
    }
    platform.apply(&testpmd_of(&driver, "flowgen", &BOTH, "", &[]));
    eventually("made flows arrive", || {
        let sent = platform.port_counter("tx_packets", "a.out");
        sent.is_some_and(|sent| sent > 10_000)
    });
}

// promise: 21.6
#[test]
fn frames_that_are_lent_to_a_program_come_back() {
    let test = "frames_that_are_lent";
    let Some((driver, platform)) = driver_and_hosts(test) else {
        return;
    };
    // Beside the smallest ring, which a program can hold as a whole; with checksums that the driver looks at, and with
    // packets that a program sends twice, or holds back until there are more of them.
    for (keys, options) in [
        ("", [].as_slice()),
        ("flavor: small", &["--enable-rx-cksum", "--burst=64"]),
        ("flavor: small", &["--burst=128", "--mbcache=0"]),
    ] {
        platform.apply(&testpmd(&driver, &LENT, keys, options));
        eventually("testpmd forwards", || platform.pings("client", "10.0.0.2"));
        stream(&platform, 8 << 20);
        let before = platform.pids()["a"];
        // More frames than slots, and then none: all have come back.
        let _flood = platform.flood("client", "10.0.0.2", 0);
        eventually("it forwards after a flood", || {
            platform.pings("client", "10.0.0.2")
        });
        assert_eq!(platform.pids()["a"], before, "{}", platform.log("a"));
    }
}

// promise: 21.4
#[test]
fn frames_with_work_left_undone_reach_a_program_on_dpdk_as_packets() {
    let test = "frames_with_work_left_undone";
    let Some((driver, platform)) = driver_and_hosts(test) else {
        return;
    };
    for options in [[].as_slice(), &["--enable-rx-cksum"]] {
        platform.apply(&testpmd(&driver, &BOTH, "frames: super", options));
        platform.await_frames(&["lan", "wan"], "super");
        eventually("testpmd forwards", || platform.pings("client", "10.0.0.2"));
        stream(&platform, 4 << 20);
        assert_eq!(platform.bad_checksums("server"), 0);
    }
}

// promise: 21.2
#[test]
fn a_device_that_cannot_be_is_refused_with_the_reason() {
    let test = "a_device_that_cannot_be";
    let Some((driver, platform)) = driver_and_hosts(test) else {
        return;
    };
    for (devices, reason) in [
        (
            &["net_nfluid0,port=sideways"][..],
            "the instance has no port 'sideways'; it has: in, out",
        ),
        (
            &["net_nfluid0"],
            "write --vdev=net_nfluid0,port=NAME[,zero-copy=yes]",
        ),
        (
            &["net_nfluid0,port=in", "net_nfluid1,port=in"],
            "port 'in' is the port of net_nfluid0 already",
        ),
        (
            &["net_nfluid0,port=in,zero-copy=maybe"],
            "write --vdev=net_nfluid0,port=NAME",
        ),
        (
            &["net_nfluid0,prot=in"],
            "write --vdev=net_nfluid0,port=NAME[,zero-copy=yes]",
        ),
    ] {
        let mut words = driver.eal(devices);
        words.extend(["--", "--total-num-mbufs=4096"].map(str::to_owned));
        platform.apply(&chain(TESTPMD, &words, "restart: never"));
        platform.await_log("a", reason);
        platform.apply(UPLINKS);
    }
    let reason = "zero-copy is for frames as they are on a wire";
    platform.apply(&testpmd(
        &driver,
        &LENT,
        "restart: never\n    frames: super",
        &[],
    ));
    platform.await_log("a", reason);
    platform.apply(UPLINKS);
    // A program that nfluid has not started has no ports.
    let words = driver.eal(&BOTH[..1]);
    let mut alone = Command::new(TESTPMD);
    let done = alone.args(words).output().expect("it starts");
    let text =
        String::from_utf8_lossy(&done.stderr).into_owned() + &String::from_utf8_lossy(&done.stdout);
    assert!(
        text.contains("start this program as an nfluid instance"),
        "{text}"
    );
    assert!(!done.status.success());
}

// promise: 21.1
#[test]
fn l2fwd_and_l3fwd_forward_between_two_hosts() {
    let test = "l2fwd_and_l3fwd";
    let Some(driver) = Driver::build(test) else {
        return;
    };
    let Some((l2fwd, l3fwd)) = driver
        .example(test, "l2fwd")
        .zip(driver.example(test, "l3fwd"))
    else {
        return;
    };
    let Some(platform) = two_hosts(test) else {
        return;
    };
    // Both have memory for 8192 packets, l3fwd also for tables of routes.
    let run = |program: &Path, mebibytes: u32, own: &str| {
        let mut words = driver.eal(&BOTH);
        words.extend(own.split(' ').map(str::to_owned));
        let memory = words.iter().position(|word| word == "64").expect("-m 64");
        words[memory] = mebibytes.to_string();
        let chain = chain(&program.display().to_string(), &words, "");
        platform.apply(&chain.replace("256MiB", "768MiB"));
    };
    run(
        &l2fwd,
        192,
        "--lcores 0 -- -p 3 -q 2 --no-mac-updating -T 0",
    );
    eventually("l2fwd forwards", || platform.pings("client", "10.0.0.2"));
    stream(&platform, 4 << 20);

    // The networks of its ports are 198.18.0.0/24 and 198.18.1.0/24.
    for (host, own, other) in [("client", 0, 1), ("server", 1, 0)] {
        for line in [
            format!("ip address add 198.18.{own}.1/24 dev eth0"),
            format!("ip neighbour add 198.18.{own}.254 lladdr 02:00:00:00:00:fe dev eth0"),
            format!("ip route add 198.18.{other}.0/24 via 198.18.{own}.254"),
        ] {
            let done = platform.on(host, &line);
            assert!(done.succeeded(), "{done:?}");
        }
    }
    let [client, server] = ["client", "server"].map(|host| mac(&platform, host));
    let own = format!(
        "--lcores 0 -- -p 3 -P --config (0,0,0),(1,0,0) --no-numa --parse-ptype --eth-dest=0,{client} --eth-dest=1,{server}"
    );
    run(&l3fwd, 512, &own);
    eventually("l3fwd forwards", || platform.pings("client", "198.18.1.1"));
    let ping = platform.on("client", "ping -c 1 198.18.1.1");
    assert!(ping.stdout.contains("ttl=63"), "it is a router: {ping:?}");
}

// promise: 21.3
#[test]
fn a_program_that_sleeps_on_receive_interrupts_wakes_for_every_frame() {
    let test = "a_program_that_sleeps";
    let Some(driver) = Driver::build(test) else {
        return;
    };
    let Some(program) = driver.example(test, "l3fwd-power") else {
        return;
    };
    let Some(platform) = two_hosts(test) else {
        return;
    };
    let mut words = driver.eal(&BOTH);
    let own = "--lcores 0 -- -p 3 -P --config (0,0,0),(1,0,0) --interrupt-only --no-numa";
    words.extend(own.split(' ').map(str::to_owned));
    // It has memory for 8192 packets.
    let memory = words.iter().position(|word| word == "64").expect("-m 64");
    words[memory] = "160".to_owned();
    platform.apply(&chain(&program.display().to_string(), &words, ""));
    platform.await_log("a", "sleeps until interrupt");
    let received = || platform.port_counter("rx_packets", "a.in").unwrap_or(0);
    let neighbour = "ip neighbour add 10.0.0.2 lladdr 02:00:00:00:00:99 dev eth0";
    assert!(platform.on("client", neighbour).succeeded());
    // One by one, each after a pause in which it sleeps: no later frame wakes it for an earlier one.
    let wakes = || {
        platform
            .log("a")
            .matches("is waked up from rx interrupt on port 0")
            .count()
    };
    for _ in 0..20 {
        let (before, woken) = (received(), wakes());
        let _unanswered = platform.on("client", "ping -c 1 -W 0.1 10.0.0.2");
        eventually("it wakes for the frame", || {
            received() > before && wakes() > woken
        });
    }
}
