//! Slices: samples that a radio sends come back as bits, over a chain, beside slices that end.

use nfluid_baseband::channel::{Channel, Random};
use nfluid_baseband::size::{Cell, LAYERS};
use nfluid_baseband::transmit::{Subframe, subframe};
use nfluid_baseband::uplink::Identity;
use nfluid_slices::message::{Kind, Message};
use nfluid_slices::radio;
use nfluid_testbed::namespace::within;
use nfluid_testbed::process::signal;
use nfluid_tests::harness::patience::{PATIENCE, eventually};
use nfluid_tests::harness::platform::{Platform, list};
use rustix::process::Signal;
use serde_json::Value;
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const PORT: u16 = 4991;
/// Time between two intervals, which is no promise about this machine.
const PAUSE: Duration = Duration::from_millis(5);

/// A radio and a core, in a network of their own, and the instance between them.
struct Site {
    radio: &'static str,
    core: &'static str,
    network: &'static str,
    via: &'static str,
}

const SITE: Site = Site {
    radio: "radio",
    core: "core",
    network: "10.2.0",
    via: "cell",
};

impl Site {
    fn address(&self, host: u8) -> String {
        format!("{}.{host}", self.network)
    }

    fn hosts(&self, platform: &mut Platform) {
        for (host, number) in [(self.radio, 1), (self.core, 2)] {
            platform.host(host, &format!("{}/24", self.address(number)));
        }
    }
}

/// The deployment of some sites.
fn deployment(slices: &str, sites: &[&Site]) -> String {
    let uplinks = sites.iter().flat_map(|site| [site.radio, site.core]);
    let uplinks = uplinks.map(|name| format!("  {name}: {{ interface: {name}, netns: EDGE }}\n"));
    let chains = sites.iter().map(|site| {
        let Site {
            radio, core, via, ..
        } = site;
        format!("  {via}: {{ from: {radio}, via: [{via}], to: {core} }}\n")
    });
    let (uplinks, chains) = (uplinks.collect::<String>(), chains.collect::<String>());
    format!("version: 1\nuplinks:\n{uplinks}slices:\n{slices}chains:\n{chains}")
}

/// The sockets at both ends.
struct Ends {
    radio: UdpSocket,
    core: UdpSocket,
}

impl Ends {
    fn of(platform: &Platform, site: &Site) -> Ends {
        let bound = |host: &str, number: u8| {
            let address = site.address(number);
            let bind = || UdpSocket::bind((address.as_str(), PORT));
            let socket = within(&platform.host_netns(host), bind);
            let socket = socket.expect("a namespace").expect("a socket");
            socket.set_read_timeout(Some(PATIENCE)).expect("a time-out");
            socket
        };
        let (radio, core) = (bound(site.radio, 1), bound(site.core, 2));
        let to = core.local_addr().expect("an address");
        radio.connect(to).expect("it is there");
        Ends { radio, core }
    }

    /// Sends the samples of an interval.
    fn send(&self, slice: u16, interval: u16, input: &[u8]) {
        for (at, payload) in (0..).step_by(1200).zip(input.chunks(1200)) {
            let kind = Kind::Samples;
            let mut datagram = Vec::new();
            Message {
                kind,
                slice,
                interval,
                phase: (interval % 10) as u8,
                at,
                payload,
            }
            .write(&mut datagram);
            self.radio.send(&datagram).expect("sent");
        }
    }

    /// Waits for a result: slice, interval, number and bytes.
    fn result(&self) -> (u16, u16, u32, Vec<u8>) {
        let mut buffer = [0; 2048];
        let (length, from) = self.core.recv_from(&mut buffer).expect("a result");
        assert_eq!(Some(from), self.radio.local_addr().ok());
        let message = Message::parse(&buffer[..length]).expect("a message");
        assert_eq!(message.kind, Kind::Result, "samples came through");
        (
            message.slice,
            message.interval,
            message.at,
            message.payload.to_vec(),
        )
    }

    /// Sends an interval again and again, under new numbers, until results of the slice come.
    fn until_results(&self, slice: u16, first: u16, input: &[u8]) -> u16 {
        self.core
            .set_read_timeout(Some(Duration::from_millis(200)))
            .expect("a time-out");
        let mut buffer = [0; 2048];
        let intervals = (first..).find(|&interval| {
            self.send(slice, interval, input);
            self.core.recv(&mut buffer).is_ok()
        });
        // Late results of it are of no interest.
        while self.core.recv(&mut buffer).is_ok() {}
        self.core
            .set_read_timeout(Some(PATIENCE))
            .expect("a time-out");
        intervals.expect("results") + 1
    }
}

/// The transmitted bits of a user's layer, as a result has them.
fn bits(sent: &Subframe, user: usize, layer: usize) -> Vec<u8> {
    let bits = &sent.blocks[user][layer];
    let mut result = vec![0, user as u8, layer as u8, 1];
    result.extend((bits.len() as u16).to_be_bytes());
    let byte = |bits: &[u8]| (0..8).fold(0, |byte, at| byte << 1 | bits.get(at).unwrap_or(&0));
    result.extend(bits.chunks(8).map(byte));
    result
}

// promise: 31.12
#[test]
fn a_radios_samples_become_the_transmitted_bits_on_their_way() {
    let test = "a_radios_samples_become_the_transmitted_bits_on_their_way";
    let Some(mut platform) = Platform::new(test) else {
        return;
    };
    SITE.hosts(&mut platform);
    let slices = "  cell:\n    graph: lte-uplink\n    deadline: 10s\n    pes: 2\n    memory: 128MiB\n    \
                  share: 50%\n    parameters: { cell: 3, blocks: 6, users: [3, 3] }\n";
    platform.apply(&deployment(slices, &[&SITE]));
    assert!(
        platform.reaches("radio", &SITE.address(2)),
        "what is not for the slice passes"
    );
    let ends = Ends::of(&platform, &SITE);
    let cell = Cell::new(6, &[3, 3]).expect("a cell");
    let mut random = Random::new(5);
    let mut next = |interval: u16| {
        let identity = Identity {
            cell: 3,
            subframe: usize::from(interval % 10),
        };
        // 16 dB.
        let unitary = |_, _: &mut Random| Channel::unitary();
        subframe(&cell, identity, 0.025, unitary, &mut random)
    };
    let first = next(0);
    let begin = ends.until_results(0, 0, &radio::sent(&first.samples));
    for interval in begin..begin + 50 {
        let sent = next(interval);
        ends.send(0, interval, &radio::sent(&sent.samples));
        for index in 0..2 * LAYERS {
            let expected = bits(&sent, index / LAYERS, index % LAYERS);
            assert_eq!(ends.result(), (0, interval, index as u32, expected));
        }
        std::thread::sleep(PAUSE);
    }
    let slices = platform.ask(&["get", "slices"]);
    let slice = list(&slices).next().expect("a slice").clone();
    assert_eq!(
        (&slice["name"], &slice["instance"], &slice["mode"]),
        (&"cell".into(), &"cell".into(), &"shared".into())
    );
    assert!(
        slice["done"].as_u64() > Some(50) && slice["late"] == 0,
        "{slice}"
    );
    let described = platform.must_say(&["describe", "slice", "cell"]);
    for told in [
        "graph: lte-uplink",
        "kind: channel",
        "measured_ns",
        "critical_path_ns",
    ] {
        assert!(described.contains(told), "{told}: {described}");
    }
    let table = platform.must_say(&["get", "slices", "cell", "-o", "table"]);
    assert!(
        table.contains("lte-uplink") && table.contains("P99"),
        "{table}"
    );
    traces(&platform);
    let stats = platform.must_say(&["stats", "-o", "table"]);
    assert!(
        stats.contains("slice_intervals_total{slice=\"cell\",end=\"done\"}"),
        "{stats}"
    );
    let top = platform.must_say(&["top", "--once"]);
    assert!(
        top.contains("SLICE") && top.contains("UTILISATION"),
        "{top}"
    );
    platform.must_refuse(&["describe", "slice", "nobody"], "nobody");
    platform.must_refuse(
        &["trace", "slice", "cell/other", "-w", "/dev/null"],
        "there is no slice 'other'",
    );
}

/// A trace has what ran, in both forms.
fn traces(platform: &Platform) {
    let [json, svg] = ["trace.json", "trace.svg"].map(|name| platform.directory().join(name));
    let [json_text, svg_text] = [&json, &svg].map(|path| path.to_string_lossy().into_owned());
    platform.must_say(&[
        "trace", "slice", "cell", "-w", &json_text, "-g", &svg_text, "-n", "3",
    ]);
    let trace = std::fs::read_to_string(&json).expect("it is written");
    let trace: Value = serde_json::from_str(&trace).expect("it is JSON");
    let of_kind = |kind: &str| {
        let events = list(&trace["traceEvents"]);
        events.filter(|event| event["ph"] == kind).count()
    };
    assert_eq!(of_kind("i"), 6, "three graphs were taken, and ended");
    assert!(of_kind("X") >= 3, "{trace}");
    let svg = std::fs::read_to_string(svg).expect("it is written");
    assert_eq!(svg.matches("<rect").count(), of_kind("X"));
}

// promise: 31.13
#[test]
fn a_slice_whose_process_ends_takes_no_interval_of_another_with_it() {
    let test = "a_slice_whose_process_ends_takes_no_interval_of_another_with_it";
    let Some(mut platform) = Platform::new(test) else {
        return;
    };
    let frail = Site {
        radio: "radio2",
        core: "core2",
        network: "10.3.0",
        via: "frail",
    };
    let slice = "graph: hash-tree, deadline: 10s, share: 30%, memory: 64MiB, \
                 parameters: { blocks: 4, block_bytes: 1200 }";
    let slices = format!("  cell: {{ {slice} }}\n  frail: {{ {slice} }}\n");
    let sites = [&SITE, &frail];
    sites.iter().for_each(|site| site.hosts(&mut platform));
    platform.apply(&deployment(&slices, &sites));
    let input = [7; 4 * 1200];
    let [sound, ends] = sites.map(|site| {
        assert!(
            platform.reaches(site.radio, &site.address(2)),
            "{}",
            site.via
        );
        let ends = Ends::of(&platform, site);
        let begin = ends.until_results(0, 0, &input);
        (ends, begin)
    });
    let (sound, begin) = sound;
    let (ends, next) = ends;
    let pid = platform.pids()["frail"];
    for interval in begin..begin + 200 {
        if interval == begin + 20 {
            signal(pid, Signal::KILL);
        }
        ends.send(0, next + interval, &input);
        sound.send(0, interval, &input);
        let (slice, found, ..) = sound.result();
        assert_eq!((slice, found), (0, interval));
    }
    eventually("the slice that ended runs again", || {
        platform.pids().get("frail").is_some_and(|&now| now != pid)
    });
    ends.until_results(0, next + begin + 200, &input);
}

/// The processes of PEs of a slice, by what they are called.
fn processes_of(platform: &Platform, slice: &str) -> Vec<u32> {
    let is_its = |pid: &u32| {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        name.starts_with("pe-") && name.trim().ends_with(&format!(" {slice}"))
    };
    let all = platform.instance_processes().into_iter();
    all.filter(is_its).collect()
}

// promise: 31.17
#[test]
fn a_slices_pe_that_is_killed_takes_no_interval_of_a_slice_of_the_same_instance_with_it() {
    let test =
        "a_slices_pe_that_is_killed_takes_no_interval_of_a_slice_of_the_same_instance_with_it";
    let Some(mut platform) = Platform::new(test) else {
        return;
    };
    SITE.hosts(&mut platform);
    let graph = "graph: hash-tree, deadline: 10s, parameters: { blocks: 4, block_bytes: 1200 }";
    let config = |back_end: &str| {
        format!(
            "{{ pes: 2, manager: own, {back_end} slices: {{ sound: {{ {graph}, id: 1, pes: [0] }}, frail: {{ {graph}, id: 2, pes: [1] }} }} }}"
        )
    };
    let all = |back_end: &str| {
        format!(
            "version: 1\nuplinks:\n  radio: {{ interface: radio, netns: EDGE }}\n  core: {{ interface: core, netns: EDGE }}\n\
             instances:\n  cell: {{ nf: dataflow, memory: 128MiB, config: {} }}\n\
             chains: {{ cell: {{ from: radio, via: [cell], to: core }} }}\n",
            config(back_end)
        )
    };
    // Another back end needs another sandbox: the instance is replaced.
    platform.apply(&all(""));
    let first = platform.pids()["cell"];
    platform.apply(&all("back_end: processes,"));
    assert_ne!(platform.pids()["cell"], first);
    assert!(platform.reaches("radio", &SITE.address(2)));
    let ends = Ends::of(&platform, &SITE);
    let input = [7; 4 * 1200];
    let begin = ends.until_results(1, 0, &input);
    let next = ends.until_results(2, 0, &input);
    let filters = |pid: u32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("Seccomp_filters:"));
        line.and_then(|line| line.trim().parse::<u32>().ok())
    };
    let manager = platform.pids()["cell"];
    let [pe] = processes_of(&platform, "frail")[..] else {
        panic!("{:?}", platform.instance_processes());
    };
    assert!(
        filters(pe) > filters(manager),
        "a PE may not do more than compute"
    );
    for interval in begin..begin + 300 {
        // Idle, and at work.
        if interval % 5 == 0 {
            for pid in processes_of(&platform, "frail") {
                signal(pid, Signal::KILL);
            }
        }
        ends.send(2, next + interval, &input);
        ends.send(1, interval, &input);
        let found = loop {
            let (slice, found, ..) = ends.result();
            if slice == 1 {
                break found;
            }
        };
        assert_eq!(found, interval);
    }
    assert_eq!(platform.pids()["cell"], manager, "the instance went on");
    ends.until_results(2, next + begin + 300, &input);
    let stats = platform.must_say(&["stats", "-o", "table"]);
    let lost = stats
        .lines()
        .find(|line| line.contains("slice_pes_lost_total"));
    let lost = lost.and_then(|line| line.split_whitespace().last());
    assert!(lost.is_some_and(|lost| lost != "0"), "{stats}");
    platform.must_say(&["delete", "--all"]);
    eventually("nothing runs", || platform.instance_processes().is_empty());
}

// Catches: lateness that nobody is told of, or for which a slice is killed again and again.
// promise: 31.16
#[test]
fn a_slice_that_is_late_is_unhealthy_and_goes_on() {
    let Some(mut platform) = Platform::new("a_slice_that_is_late_is_unhealthy_and_goes_on") else {
        return;
    };
    SITE.hosts(&mut platform);
    let slice = |deadline: &str| {
        let slice = format!(
            "  cell: {{ graph: hash-tree, deadline: {deadline}, memory: 64MiB, parameters: {{ blocks: 64, block_bytes: 4096 }}, \
             health: {{ interval: 100ms, timeout: 60s, failures: 3, grace: 100ms, action: restart }} }}\n"
        );
        deployment(&slice, &[&SITE])
    };
    platform.apply(&slice("10us"));
    let pid = platform.pids()["cell"];
    assert!(platform.reaches("radio", &SITE.address(2)));
    let ends = Ends::of(&platform, &SITE);
    let input = [7; 64 * 4096];
    let state = || platform.instance("cell")["state"].clone();
    let mut interval = 0;
    eventually("it is unhealthy", || {
        ends.send(0, interval, &input);
        interval = interval.wrapping_add(1);
        state() == "unhealthy"
    });
    let why = platform.instance("cell")["unhealthy"].clone();
    assert!(
        why.as_str().is_some_and(|why| why.contains("late")),
        "{why}"
    );
    platform.apply(&slice("10s"));
    eventually("it is well again", || state() == "running");
    assert_eq!(platform.pids()["cell"], pid, "it was not started anew");
    let events = platform.events_of("cell");
    let told = |kind: &str| events.iter().filter(|event| event.contains(kind)).count();
    assert_eq!((told("unhealthy"), told("healthy")), (1, 2), "{events:?}");
}

// promise: 31.15
#[test]
fn a_slice_comes_from_a_pool_and_is_upgraded_in_place() {
    let Some(mut platform) = Platform::new("a_slice_comes_from_a_pool_and_is_upgraded_in_place")
    else {
        return;
    };
    SITE.hosts(&mut platform);
    let pool = "pool: { shells: { size: 1 } }\n";
    platform.apply(&format!("version: 1\n{pool}"));
    eventually("a shell is ready", || {
        let pools = platform.ask(&["get", "pools"]);
        list(&pools).all(|pool| pool["ready"] == 1)
    });
    let shells = platform.instance_processes();
    let slice = "  cell: { graph: hash-tree, deadline: 10s, parameters: { blocks: 2, block_bytes: 1200 } }\n";
    platform.apply(&(deployment(slice, &[&SITE]) + pool));
    let pid = platform.pids()["cell"];
    assert!(shells.contains(&pid), "{pid} is none of {shells:?}");
    assert!(platform.reaches("radio", &SITE.address(2)));
    let ends = Ends::of(&platform, &SITE);
    let input = [9; 2 * 1200];
    let next = ends.until_results(0, 0, &input);
    let upgraded = platform.nfluid(&["upgrade", "cell"]);
    assert!(upgraded.succeeded(), "{upgraded:?}");
    assert_ne!(platform.pids()["cell"], pid);
    ends.until_results(0, next, &input);
}

// promise: 31.10
#[test]
fn a_bad_slice_is_refused_at_its_line() {
    let Some(platform) = Platform::new("a_bad_slice_is_refused_at_its_line") else {
        return;
    };
    let rows = [
        (
            "graph: lte",
            ":3:15: error: instances.s.config.slices.s.graph: unknown graph 'lte'",
        ),
        (
            "graph: spectrum, interval: 1",
            "instances.s.config.slices.s.interval",
        ),
        (
            "graph: spectrum, pes: 100",
            "instances.s.config.pes: 100 is not within 1 to 64",
        ),
        (
            "graph: spectrum, tier: microvm",
            "instances.s.tier: the NF 'dataflow' has threads of its own",
        ),
        ("graph: spectrum, sahre: 3%", "unknown key 'sahre'"),
        ("graph: spectrum, nf: bridge", "duplicate name 'nf'"),
        ("graph: spectrum, ports: [a]", "has 2 ports, not 1"),
    ];
    for (slice, why) in rows {
        let outcome = platform.try_apply(&format!("version: 1\nslices:\n  s: {{ {slice} }}\n"));
        assert!(
            !outcome.succeeded() && outcome.stderr.contains(why),
            "{slice}: {outcome:?}"
        );
    }
    let outcome = platform.try_apply("version: 1\nslices: [s]\n");
    assert!(outcome.stderr.contains("slices: wrong type"), "{outcome:?}");
}

// promise: 31.14
#[test]
fn the_example_tells_the_frequencies_in_use() {
    let Some(mut platform) = Platform::new("the_example_tells_the_frequencies_in_use") else {
        return;
    };
    SITE.hosts(&mut platform);
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/slices");
    let text = std::fs::read_to_string(example.join("deployment.yaml")).expect("it is there");
    let text = ["radio", "core"].iter().fold(text, |text, name| {
        text.replace(
            &format!("interface: {name}0 "),
            &format!("interface: {name}, netns: EDGE "),
        )
    });
    // This machine may be busy: that it is in time is not what is tested.
    platform.apply(&text.replace("deadline: 10ms", "deadline: 10s"));
    assert!(
        platform.reaches("radio", &SITE.address(2)),
        "the chain is there"
    );
    let core = SITE.address(2);
    let tones = example.join("tones");
    let on = |host: &str, arguments: &[&str]| {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &platform.namespace_name(host)]);
        command.arg(&tones).args(arguments).stdout(Stdio::piped());
        command.spawn().expect("it starts")
    };
    let hears = on("core", &["hear", &core, "3"]);
    let sends = on("radio", &["send", &core, "100", "37", "300"]);
    let heard = hears.wait_with_output().expect("it ends");
    assert!(sends.wait_with_output().expect("it ends").status.success());
    let heard = String::from_utf8_lossy(&heard.stdout).into_owned();
    let lines: Vec<&str> = heard.lines().collect();
    assert_eq!(lines.len(), 3, "{heard}");
    for line in lines {
        assert!(
            line.ends_with(": 37 (256 x the mean), 300 (256 x the mean)"),
            "{line}"
        );
    }
}
