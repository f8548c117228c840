//! nfluidd, nfluid and nfluid-nf together: applying, refusing, capturing and counting.

use nfluid_testbed::process::signal;
use nfluid_tests::harness::patience::eventually;
use nfluid_tests::harness::platform::{Platform, list};
use nfluid_tests::harness::two_hosts::{BRIDGE_AND_FIREWALL as CHAIN, SERVER, two_hosts};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use std::time::Duration;

// promise: 7.1
#[test]
fn a_chain_carries_and_only_what_differs_is_changed() {
    let Some(platform) = two_hosts("a_chain_carries_and_only_what_differs_is_changed") else {
        return;
    };
    assert!(!platform.pings("client", SERVER), "nothing joins them yet");
    let changes = platform.apply(CHAIN);
    let created = [
        "chain web",
        "instance br",
        "instance fw",
        "uplink lan",
        "uplink wan",
    ];
    for object in created {
        let change = format!("created {object}");
        assert!(changes.contains(&change), "{change}: {changes:?}");
    }
    eventually("a ping crosses", || platform.pings("client", SERVER));

    let before = platform.pids();
    assert_eq!(before.keys().collect::<Vec<_>>(), ["br", "fw"]);
    assert_eq!(platform.apply(CHAIN), [""; 0]);
    assert_eq!(platform.pids(), before);

    let denying = CHAIN.replace("allow icmp", "deny icmp");
    assert_eq!(platform.apply(&denying), ["changed instance fw"]);
    assert_eq!(platform.pids(), before);
    eventually("the new rule holds", || !platform.pings("client", SERVER));
    assert_eq!(platform.apply(CHAIN), ["changed instance fw"]);
    eventually("the old rule holds", || platform.pings("client", SERVER));

    let longer = CHAIN
        .replace(
            "  br: { nf: bridge }",
            "  br: { nf: bridge }\n  more: { nf: bridge }",
        )
        .replace("[br, fw]", "[br, more, fw]");
    let changes = platform.apply(&longer);
    assert!(
        changes.contains(&"created instance more".to_owned()),
        "{changes:?}"
    );
    let touched = |name: &str| changes.iter().any(|change| change.ends_with(name));
    assert!(
        !touched("instance br") && !touched("instance fw"),
        "{changes:?}"
    );
    let mut after = platform.pids();
    assert!(after.remove("more").is_some());
    assert_eq!(after, before);
    eventually("a ping crosses three", || platform.pings("client", SERVER));
    assert!(port(&platform.ask(&["stats"]), "more.in")["rx_packets"].as_u64() > Some(0));

    // Objects of an earlier file that the new file lacks are removed.
    let changes = platform.apply(CHAIN);
    assert!(
        changes.contains(&"removed instance more".to_owned()),
        "{changes:?}"
    );
    assert_eq!(platform.pids(), before);
    eventually("a ping crosses two", || platform.pings("client", SERVER));
}

// promise: 7.2
#[test]
fn wrong_input_is_refused_and_changes_nothing() {
    let Some(platform) = two_hosts("wrong_input_is_refused_and_changes_nothing") else {
        return;
    };
    platform.apply(CHAIN);
    let before = (platform.pids(), platform.ask(&["get", "deployment"]));
    // The error, the change that causes it, and the key or line that the answer must contain.
    let table = [
        (
            "an unknown NF",
            "nf: bridge",
            "nf: brigde",
            "instances.br.nf",
        ),
        (
            "a port used twice",
            "via: [br, fw]",
            "via: [br, br]",
            "chains.web",
        ),
        (
            "a missing interface",
            "interface: client",
            "interface: nowhere",
            "uplinks.lan.interface",
        ),
        (
            "no share at all",
            "nf: bridge",
            "nf: bridge, share: 0%",
            "instances.br.share",
        ),
        (
            "a wrong key",
            "nf: bridge",
            "nf: bridge, color: red",
            "instances.br",
        ),
        (
            "a bad rule",
            "allow icmp",
            "alow icmp",
            "instances.fw.config",
        ),
        ("no YAML", "version: 1", "version: [1", "deployment.yaml:"),
    ];
    for (what, right, wrong, named) in table {
        let outcome = platform.try_apply(&CHAIN.replacen(right, wrong, 1));
        assert_eq!(outcome.code, Some(1), "{what}: {outcome:?}");
        assert!(outcome.stderr.contains(named), "{what}: {outcome:?}");
        assert_eq!(outcome.stdout, "", "{what}");
        let now = (platform.pids(), platform.ask(&["get", "deployment"]));
        assert_eq!(now, before, "{what}");
    }
    assert_eq!(platform.nfluid(&["aply"]).code, Some(2));
    assert_eq!(platform.nfluid(&["restart", "nobody"]).code, Some(1));
    assert_eq!(
        platform.nfluid(&["delete", "instance", "nobody"]).code,
        Some(1)
    );
    eventually("a ping crosses still", || platform.pings("client", SERVER));
}

// promise: 7.3
#[test]
fn what_cannot_be_carried_out_is_undone() {
    let Some(platform) = two_hosts("what_cannot_be_carried_out_is_undone") else {
        return;
    };
    platform.apply(CHAIN);
    eventually("a ping crosses", || platform.pings("client", SERVER));
    let before = (platform.pids(), platform.ask(&["get", "deployment"]));
    let nonsense = platform.directory().join("nonsense");
    fs::write(&nonsense, "no program").expect("the directory is ours");
    fs::set_permissions(&nonsense, fs::Permissions::from_mode(0o755)).expect("it is ours");
    let added = format!(
        "  br: {{ nf: bridge }}\n  aa: {{ nf: bridge }}\n  zz: {{ program: {} }}",
        nonsense.display()
    );
    let failing = CHAIN
        .replace("  br: { nf: bridge }", &added)
        .replace("[br, fw]", "[aa, zz, br]");
    for _ in 0..2 {
        let outcome = platform.try_apply(&failing);
        assert_eq!(outcome.code, Some(1), "{outcome:?}");
        assert!(outcome.stderr.contains("zz"), "{outcome:?}");
        assert_eq!(
            (platform.pids(), platform.ask(&["get", "deployment"])),
            before
        );
        eventually("a ping crosses still", || platform.pings("client", SERVER));
    }
    assert_eq!(platform.apply(CHAIN), [""; 0]);
}

// promise: 7.4
#[test]
fn a_platform_has_one_daemon_and_its_absence_is_told() {
    let Some(mut platform) = two_hosts("a_platform_has_one_daemon_and_its_absence_is_told") else {
        return;
    };
    platform.apply(CHAIN);
    let before = platform.pids();
    let second = platform.second_daemon();
    assert_eq!(second.code, Some(1), "{second:?}");
    assert!(
        [&second.stdout, &second.stderr]
            .iter()
            .any(|text| text.contains("another nfluidd")),
        "{second:?}"
    );
    assert_eq!(platform.pids(), before, "the first one serves on");
    eventually("a ping crosses", || platform.pings("client", SERVER));

    assert!(platform.terminate_daemon().success());
    let lost = platform.nfluid(&["get", "instances"]);
    assert_eq!(lost.code, Some(3), "{lost:?}");
    assert_eq!(platform.try_apply(CHAIN).code, Some(3));
}

// promise: 7.5
#[test]
fn a_capture_holds_the_frames_that_passed() {
    let Some(platform) = two_hosts("a_capture_holds_the_frames_that_passed") else {
        return;
    };
    platform.apply(CHAIN);
    eventually("a ping crosses", || platform.pings("client", SERVER));
    let mut capture = platform
        .nfluid_command()
        .args(["capture", "br.in"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("nfluid is built");
    let mut pipe = capture.stdout.take().expect("it is piped");
    // The file header is sent when the capture has begun.
    let mut bytes = vec![0; 24];
    pipe.read_exact(&mut bytes).expect("a header");
    let reader = std::thread::spawn(move || {
        // A request and its answer, of 16 bytes of record and 98 of frame each.
        let mut records = vec![0; 2 * (16 + 98)];
        pipe.read_exact(&mut records).map(|()| records)
    });
    let pattern = "6e666c756964";
    let mut done = false;
    eventually("the capture has two frames", || {
        platform.on(
            "client",
            &format!("ping -n -c 1 -W 1 -p {pattern} {SERVER}"),
        );
        done |= reader.is_finished();
        done
    });
    capture.kill().expect("it is our child");
    capture.wait().expect("it is our child");
    bytes.extend(reader.join().expect("it ends").expect("two frames"));

    let mut pcap = pcap_file::pcap::PcapReader::new(&bytes[..]).expect("a pcap file");
    assert_eq!(pcap.header().datalink, pcap_file::DataLink::ETHERNET);
    let mut types = Vec::new();
    while let Some(packet) = pcap.next_packet() {
        let frame = packet.expect("a whole record").data;
        // ARP, if any, is shorter: then the second record would not be whole.
        assert_eq!(frame[12..14], [0x08, 0x00], "IPv4");
        assert_eq!(frame[23], 1, "ICMP");
        assert!(frame.windows(6).any(|bytes| bytes == b"nfluid"));
        types.push((frame[34], frame[29], frame[33]));
    }
    assert_eq!(types, [(8, 1, 2), (0, 2, 1)], "request there, answer back");

    assert_eq!(platform.nfluid(&["capture", "br.nowhere"]).code, Some(1));
}

// promise: 7.6
#[test]
fn every_frame_that_enters_is_delivered_or_dropped_with_a_reason() {
    let Some(platform) = two_hosts("every_frame_that_enters_is_delivered_or_dropped_with_a_reason")
    else {
        return;
    };
    platform.apply(&CHAIN.replace("nf: firewall", "nf: firewall\n    restart: never"));
    eventually("a ping crosses", || platform.pings("client", SERVER));
    let flood = "ping -n -q -f -c 5000 -s 300 10.0.0.2";
    // Once, unless the machine stalls for so long that a ring overflows.
    eventually("the firewall has passed ten thousand", || {
        assert!(platform.on("client", flood).succeeded());
        through(&platform.ask(&["stats"]), "fw", "tx_packets") >= 10_000
    });
    // UDP is denied by the firewall; no socket listens.
    let script = "import socket\ns=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)\nfor i in range(3000): s.sendto(b'x'*200,('10.0.0.2',9))\n";
    let path = platform.directory().join("udp.py");
    fs::write(&path, script).expect("the directory is ours");
    let sent = platform.on("client", &format!("python3 {}", path.display()));
    assert!(sent.succeeded(), "{sent:?}");

    // Frames that the NFs have not processed are delivered to them, and not yet forwarded.
    eventually("nothing waits", || {
        let stats = platform.ask(&["stats"]);
        list(&stats["ports"]).all(|port| port["rx_ring_used"] == 0)
    });
    let stats = settled(&platform);
    assert_eq!(
        entered(&stats),
        delivered(&stats) + dropped(&stats),
        "{stats:#}"
    );

    // The same holds across each NF: the bridge drops no frame, the firewall reports its drops.
    assert_eq!(
        through(&stats, "br", "rx_packets"),
        through(&stats, "br", "tx_packets"),
        "{stats:#}"
    );
    let denied = through(&stats, "fw", "rx_packets") - through(&stats, "fw", "tx_packets");
    assert_eq!(
        denied,
        metric(&stats, "fw", "packets_dropped_total"),
        "{stats:#}"
    );
    assert!(denied > 0, "the firewall has seen UDP");

    // Frames for an NF that is gone are dropped, and counted.
    signal(platform.pids()["fw"], Signal::KILL);
    eventually("it is gone", || {
        platform.instance("fw")["state"] == "stopped"
    });
    platform.on("client", "ping -n -q -i 0.01 -W 1 -c 50 10.0.0.2");
    let after = settled(&platform);
    assert_eq!(
        entered(&after),
        delivered(&after) + dropped(&after),
        "{after:#}"
    );
    assert!(dropped(&after) > dropped(&stats), "{after:#}");
}

/// A counter of both ports of an NF.
fn through(stats: &Value, nf: &str, key: &str) -> u64 {
    let sides = ["in", "out"].map(|side| format!("{nf}.{side}"));
    let counts = sides.iter().map(|side| port(stats, side)[key].as_u64());
    counts.map(|count| count.expect("a counter")).sum()
}

/// Figures after the last frame has come to its end.
fn settled(platform: &Platform) -> Value {
    let mut stats = platform.ask(&["stats"]);
    eventually("traffic stops", || {
        std::thread::sleep(Duration::from_millis(300));
        let now = platform.ask(&["stats"]);
        let same = stats["ports"] == now["ports"];
        stats = now;
        same
    });
    stats
}

fn entered(stats: &Value) -> u64 {
    total(stats, "tx_packets")
}

fn delivered(stats: &Value) -> u64 {
    total(stats, "rx_packets")
}

fn dropped(stats: &Value) -> u64 {
    list(&stats["ports"])
        .map(|port| drops(&port["counters"]))
        .sum()
}

fn total(stats: &Value, key: &str) -> u64 {
    list(&stats["ports"])
        .map(|port| port["counters"][key].as_u64().expect("a counter"))
        .sum()
}

fn port<'a>(stats: &'a Value, name: &str) -> &'a Value {
    let found = list(&stats["ports"]).find(|port| port["name"] == name);
    &found.unwrap_or_else(|| panic!("no port {name}: {stats:#}"))["counters"]
}

fn drops(counters: &Value) -> u64 {
    let reasons = counters["drops"].as_object().into_iter().flatten();
    reasons
        .map(|(_, count)| count.as_u64().expect("a counter"))
        .sum()
}

/// Sum of an instance's metrics whose names begin so.
fn metric(stats: &Value, instance: &str, prefix: &str) -> u64 {
    let found = list(&stats["instances"]).find(|one| one["name"] == instance);
    let metrics = found.and_then(|one| one["metrics"].as_object());
    let metrics = metrics.unwrap_or_else(|| panic!("{instance} tells nothing: {stats:#}"));
    metrics
        .iter()
        .filter(|(name, _)| name.starts_with(prefix))
        .map(|(_, value)| value.as_f64().expect("a figure") as u64)
        .sum()
}
