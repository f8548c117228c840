//! I/O models: each forwards alike, they are changed while frames pass, and what makes the calls may be killed.

#[path = "uplink_fixture/mod.rs"]
mod uplink_fixture;

use nfluid_testbed::process::{is_alive, signal};
use nfluid_tests::harness::command::run;
use nfluid_tests::harness::measure::one_holds;
use nfluid_tests::harness::patience::{PATIENCE, eventually};
use nfluid_tests::harness::platform::{Platform, list};
use nfluid_tests::harness::program::program;
use nfluid_tests::harness::two_hosts::{SERVER, two_hosts};
use nfluid_tests::harness::within;
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use uplink_fixture::{Raw, frame};

/// Every model, the one that needs no thread first.
const MODELS: [&str; 4] = ["inline", "split", "merge", "mix"];

/// Two NFs in a chain, with rings that hold what comes while a process is started again.
fn chain(io: &str) -> String {
    format!(
        "
version: 1
io: {io}
uplinks:
  lan: {{ interface: client, netns: EDGE, ring: 1024 }}
  wan: {{ interface: server, netns: EDGE, ring: 1024 }}
instances:
  a: {{ nf: bridge, share: 30%, flavor: large }}
  b: {{ nf: firewall, share: 30%, flavor: large, config: {{ rules: 'allow ip from any to any' }} }}
chains:
  web: {{ from: lan, to: wan, via: [a, b] }}
"
    )
}

fn namespace(platform: &Platform, host: &str) -> String {
    platform.edge().replace("-p", &format!("-{host}"))
}

/// `nfluid gen` on a host's interface, in the background.
fn generator(platform: &Platform, host: &str, arguments: &str) -> Child {
    Command::new("ip")
        .args(["netns", "exec", &namespace(platform, host)])
        .arg(program("nfluid"))
        .arg("gen")
        .args(arguments.split_whitespace())
        .args(["--interface", "eth0", "--quiet", "-o", "json"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("ip(8) is there")
}

/// Sends numbered frames from the client while `meanwhile` does something, and holds that each arrives once, in order.
fn every_frame_arrives_while(
    platform: &mut Platform,
    rate: &str,
    meanwhile: impl FnOnce(&mut Platform),
) {
    // Longer than anything that is done meanwhile keeps frames from arriving.
    let receiver = generator(platform, "server", "receive --idle 8s");
    eventually("the receiver listens", || {
        let sockets = platform.on("server", "cat /proc/net/packet").stdout;
        // Bound to its interface, and running: what came while it was being bound is lost.
        sockets.lines().skip(1).any(|socket| {
            let mut columns = socket.split_whitespace().skip(4);
            columns.next() != Some("0") && columns.next() == Some("1")
        })
    });
    let arguments = format!("send --rate {rate} --size 64,512");
    let sender = generator(platform, "client", &arguments);
    let before = received(platform);
    let dropped = backlog_drops();
    eventually("frames pass", || received(platform) > before + 100);
    meanwhile(platform);
    signal(sender.id(), Signal::INT);
    let sent = report(sender)["packets"].as_u64();
    let received = report(receiver);
    let figure = |key: &str| received["check"][key].as_u64().expect("a figure");
    let why = || {
        format!(
            "{received}\n{}\n{}{}",
            counted(platform),
            run(&format!("ip -s -n {} link", platform.edge())).stdout,
            platform.on("server", "ip -s link").stdout
        )
    };
    // Frames that enter at one uplink leave at the other.
    assert_eq!(drops(platform), BTreeMap::new(), "{}", why());
    let uplinks = platform.ask(&["get", "uplinks"]);
    let of = |uplink: usize, key: &str| uplinks[uplink]["counters"][key].clone();
    assert_eq!(of(0, "tx_packets"), of(1, "rx_packets"), "{}", why());
    // Behind it the host's queue, which all namespaces of a processor share, may be full of others' frames.
    let dropped = backlog_drops() - dropped;
    let lost = sent.expect("a figure") - figure("unique");
    assert!(
        lost <= dropped,
        "{lost} lost, {dropped} by the host: {}",
        why()
    );
    let wrong = ["duplicates", "reordered", "corrupt"].map(figure);
    assert_eq!(wrong, [0; 3], "{}", why());
}

/// Frames that the host's processors have dropped between two of its own interfaces (netif_rx()).
fn backlog_drops() -> u64 {
    let text = fs::read_to_string("/proc/net/softnet_stat").expect("/proc is mounted");
    let dropped = text
        .lines()
        .filter_map(|line| line.split_whitespace().nth(1));
    let counts = dropped.map(|count| u64::from_str_radix(count, 16).expect("a number"));
    counts.sum()
}

/// Returns the final report of a generator.
fn report(generator: Child) -> Value {
    let output = generator.wait_with_output().expect("it is our child");
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text.lines().last().unwrap_or_default();
    serde_json::from_str(last).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Frames that the second instance has received.
fn received(platform: &Platform) -> u64 {
    let ports = platform.ask(&["get", "ports"]);
    let port = list(&ports).find(|port| port["name"] == "b.in");
    port.and_then(|port| port["counters"]["rx_packets"].as_u64())
        .expect("a figure")
}

/// Drops of all ports, by port and reason.
fn drops(platform: &Platform) -> BTreeMap<String, u64> {
    let mut all = BTreeMap::new();
    for kind in ["ports", "uplinks"] {
        for port in list(&platform.ask(&["get", kind])) {
            let drops = port["counters"]["drops"].as_object().expect("drops");
            for (reason, count) in drops {
                let key = format!("{} {reason}", port["name"].as_str().expect("a name"));
                all.insert(key, count.as_u64().expect("a number"));
            }
        }
    }
    all
}

/// The process of the I/O threads.
fn io_pid(platform: &Platform) -> Option<u32> {
    let io = platform.ask(&["get", "io"]);
    Some(u32::try_from(io["pid"].as_u64()?).expect("a process id"))
}

/// Threads as `model: instance instance`, sorted.
fn threads(platform: &Platform) -> Vec<String> {
    let io = platform.ask(&["get", "io"]);
    let mut threads: Vec<String> = list(&io["threads"])
        .map(|thread| {
            let names: Vec<&str> = list(&thread["instances"])
                .map(|name| name.as_str().expect("a name"))
                .collect();
            format!(
                "{}: {}",
                thread["model"].as_str().expect("a model"),
                names.join(" ")
            )
        })
        .collect();
    threads.sort();
    threads
}

fn expected_threads(model: &str) -> Vec<String> {
    match model {
        "inline" => Vec::new(),
        "split" => vec!["split: a b".to_owned()],
        other => vec![format!("{other}: a"), format!("{other}: b")],
    }
}

// promise: 7.27
#[test]
fn the_model_changes_under_traffic_and_no_frame_is_lost_doubled_or_reordered() {
    let test = "the_model_changes_under_traffic_and_no_frame_is_lost_doubled_or_reordered";
    let Some(mut platform) = two_hosts(test) else {
        return;
    };
    platform.apply(&chain("inline"));
    eventually("a ping crosses", || platform.pings("client", SERVER));
    let pids = platform.pids();
    every_frame_arrives_while(&mut platform, "500pps --burst 16", |platform| {
        for round in 1..=4 * MODELS.len() {
            let model = MODELS[round % MODELS.len()];
            let changed = platform.apply(&chain(model));
            assert_eq!(changed, ["changed instance a", "changed instance b"]);
            assert_eq!(threads(platform), expected_threads(model));
        }
        for (from, to) in [(1, 3), (3, 2), (2, 1), (1, 2), (2, 0)] {
            platform.apply(&chain(MODELS[from]));
            platform.apply(&chain(MODELS[to]));
        }
    });
    assert_eq!(platform.pids(), pids, "no instance was restarted");
    assert_eq!(platform.instance("a")["restarts"], 0);
    assert_eq!(io_pid(&platform), None, "nobody needs it");
    let left = platform.cgroups().into_iter().map(|path| path.join("io"));
    assert!(
        left.clone().all(|path| !path.exists()),
        "{:?}",
        left.collect::<Vec<_>>()
    );
}

// promise: 7.29
#[test]
fn a_killed_process_of_the_threads_comes_back_and_no_frame_is_lost() {
    let Some(mut platform) = two_hosts("a_killed_process_of_the_threads_comes_back") else {
        return;
    };
    for model in ["split", "merge"] {
        platform.apply(&chain(model));
        eventually("a ping crosses", || platform.pings("client", SERVER));
        every_frame_arrives_while(&mut platform, "150pps --burst 1", |platform| {
            // The wait before a restart doubles each time: more kills would be told by full rings.
            for _ in 0..4 {
                let before = io_pid(platform).expect("instances need it");
                signal(before, Signal::KILL);
                eventually("another runs", || {
                    io_pid(platform).is_some_and(|pid| pid != before)
                });
                assert_eq!(threads(platform), expected_threads(model));
                let so_far = received(platform);
                eventually("frames pass again", || received(platform) > so_far + 30);
            }
        });
        // Failures of a thread that is no longer needed are forgotten.
        platform.apply(&chain("inline"));
    }
    let events = platform.events_of("io");
    let crashes = events.iter().filter(|kind| *kind == "crashed").count();
    assert_eq!(crashes, 8, "{events:?}");
}

// promise: 7.29
#[test]
fn the_threads_outlive_the_daemon_and_the_next_one_adopts_them() {
    let Some(mut platform) = two_hosts("the_threads_outlive_the_daemon") else {
        return;
    };
    for model in ["merge", "split"] {
        platform.apply(&chain(model));
        eventually("a ping crosses", || platform.pings("client", SERVER));
        let (pid, pids) = (io_pid(&platform), platform.pids());
        assert!(pid.is_some());
        every_frame_arrives_while(&mut platform, "150pps --burst 1", |platform| {
            platform.kill_daemon();
            assert!(is_alive(pid.expect("it runs")));
            platform.start();
            assert_eq!((io_pid(platform), platform.pids()), (pid, pids.clone()));
            assert_eq!(platform.events_of("io"), ["adopted"]);
            platform.hand_over();
            platform.start();
            assert_eq!((io_pid(platform), platform.pids()), (pid, pids.clone()));
        });
        assert_eq!(platform.apply(&chain(model)), [""; 0], "all is as desired");
        assert_eq!(threads(&platform), expected_threads(model));
    }
    // Adopted threads can be changed, and threads that died while no daemon ran are made anew.
    platform.apply(&chain("mix"));
    let before = io_pid(&platform).expect("it runs");
    platform.kill_daemon();
    signal(before, Signal::KILL);
    eventually("it is gone", || !is_alive(before));
    platform.start();
    assert_ne!(io_pid(&platform), Some(before));
    assert_eq!(threads(&platform), expected_threads("mix"));
    every_frame_arrives_while(&mut platform, "150pps --burst 1", |platform| {
        platform.apply(&chain("inline"));
    });
}

// promise: 7.29
#[test]
fn a_restarted_instance_gets_its_thread_again() {
    let Some(platform) = two_hosts("a_restarted_instance_gets_its_thread_again") else {
        return;
    };
    for model in MODELS {
        platform.apply(&chain(model));
        eventually("a ping crosses", || platform.pings("client", SERVER));
        let before = platform.pids()["a"];
        signal(before, Signal::KILL);
        eventually("it runs again", || {
            platform.pids().get("a").is_some_and(|pid| *pid != before)
        });
        eventually("a ping crosses again", || platform.pings("client", SERVER));
        assert_eq!(threads(&platform), expected_threads(model));
        let replaced = platform.apply(&chain(model).replace("a: { nf: bridge", "a: { nf: counter"));
        assert_eq!(replaced, ["replaced instance a"]);
        eventually("a ping crosses the other", || {
            platform.pings("client", SERVER)
        });
        assert_eq!(threads(&platform), expected_threads(model));
        platform.apply(&chain(model));
    }
}

/// Two ways between two switches, of which one may not pass on what others have sent.
fn switches(io: &str) -> String {
    format!(
        "
version: 1
io: {io}
switches: {{ front: {{}}, back: {{}} }}
uplinks:
  lan: {{ interface: client, netns: EDGE, switch: front }}
  wan: {{ interface: server, netns: EDGE, switch: back }}
instances:
  open:
    nf: bridge
    ports: {{ in: {{ switch: front, learn: true }}, out: {{ switch: back, learn: true }} }}
  pinned:
    nf: bridge
    ports: {{ in: {{ switch: front }}, out: {{ switch: back }} }}
  loose: {{ nf: bridge, ports: {{ in: {{ switch: front }}, out: {{}} }} }}
"
    )
}

/// Frames of all sorts: known and unknown destinations, sources that may not be, tags, shortest and longest.
fn odd_frames() -> Vec<Vec<u8>> {
    let station = |number| [2, 0, 0, 0, 7, number];
    let all = [0xff; 6];
    let tag = [0x81, 0x00, 0x00, 0x07];
    let mut frames = Vec::new();
    for round in 0..5u32 {
        for (dst, src, tag, len) in [
            (all, station(1), &[][..], 60),
            (station(1), station(2), &[], 1514),
            (station(2), station(1), &[], 14),
            (station(9), station(1), &tag, 64),
            (station(1), station(1), &[], 100),
            (all, [1, 0, 0, 0, 7, 1], &[], 60),
            (station(3), [0; 6], &[], 60),
            ([1, 0, 0x5e, 0, 0, 1], station(3), &[], 333),
            (station(3), station(2), &tag, 1514),
        ] {
            frames.push(frame(dst, src, tag, len, round));
        }
    }
    frames
}

/// Returns the switch's counters: of each port all but the calls, and the learned addresses.
fn counted(platform: &Platform) -> Value {
    let mut all = Vec::new();
    for kind in ["ports", "uplinks"] {
        for port in list(&platform.ask(&["get", kind])) {
            all.push(serde_json::json!([port["name"], port["counters"]]));
        }
    }
    for switch in list(&platform.ask(&["get", "switches"])) {
        all.push(serde_json::json!([switch["name"], switch["addresses"]]));
    }
    Value::Array(all)
}

// promise: 7.28
#[test]
fn every_model_forwards_drops_learns_and_counts_alike() {
    let Some(platform) = two_hosts("every_model_forwards_drops_learns_and_counts_alike") else {
        return;
    };
    let mut first: Option<(Value, Vec<Vec<u8>>)> = None;
    for model in MODELS {
        platform.apply("version: 1");
        platform.apply(&switches(model));
        let raw = |host: &str| {
            within(&platform.host_netns(host), || Raw::open("eth0")).expect("a raw socket")
        };
        let (client, server) = (raw("client"), raw("server"));
        let mut arrived = Vec::new();
        for frame in odd_frames() {
            // One frame at a time: the order of frames on two paths is not promised.
            client.send(&frame);
            arrived.extend(server.receive(Duration::from_millis(100)));
        }
        // On a busy machine the last ones may be on their way.
        while let Some(frame) = server.receive(Duration::from_secs(1)) {
            arrived.push(frame);
        }
        assert!(arrived.len() > 10, "{model}: {} arrived", arrived.len());
        let mut last = counted(&platform);
        let Some((counters, frames)) = &first else {
            eventually("nothing is under way", || {
                thread::sleep(Duration::from_millis(500));
                let now = counted(&platform);
                std::mem::replace(&mut last, now.clone()) == now
            });
            assert!(drops(&platform).len() >= 2, "{last:#}");
            first = Some((last, arrived));
            continue;
        };
        let in_short = |frames: &[Vec<u8>]| -> Vec<String> {
            let head = |frame: &Vec<u8>| format!("{} {:02x?}", frame.len(), &frame[..14]);
            frames.iter().map(head).collect()
        };
        assert_eq!(in_short(&arrived), in_short(frames), "{model}");
        assert!(
            arrived == *frames,
            "{model}: a frame has changed on its way"
        );
        let start = Instant::now();
        while last != *counters && start.elapsed() < PATIENCE {
            last = counted(&platform);
        }
        assert_eq!(&last, counters, "{model}");
    }
}

// promise: 7.30
#[test]
fn what_io_costs_is_told() {
    let Some(platform) = two_hosts("what_io_costs_is_told") else {
        return;
    };
    let cpu = |platform: &Platform| {
        let io = platform.ask(&["get", "io"]);
        (
            io["cpu_ns"].as_u64().expect("a number"),
            list(&io["threads"])
                .map(|thread| thread["cpu_ns"].as_u64().expect("a number"))
                .sum::<u64>(),
        )
    };
    for model in ["split", "merge", "mix"] {
        platform.apply(&chain(&format!(
            "{{ model: {model}, idle: poll, cap: 20% }}"
        )));
        // Polling threads use all CPU time that they get, and their cgroup is capped.
        one_holds(
            &format!("{model}: in ns, all, its threads, and the time"),
            || {
                // Before the figures are asked for: what is between the two cannot count against the cap.
                let start = Instant::now();
                let before = cpu(&platform);
                thread::sleep(Duration::from_millis(1500));
                let after = cpu(&platform);
                let elapsed = start.elapsed().as_nanos() as u64;
                (after.0 - before.0, after.1 - before.1, elapsed)
            },
            |(all, threads, elapsed)| {
                all * 100 / elapsed <= 30 && *threads > 0 && *threads <= all + all / 10
            },
        );
        let text = platform.page("/metrics");
        assert!(text.contains("nfluid_io_cpu_seconds_total "), "{text}");
        let of_instance = text.contains("nfluid_instance_io_cpu_seconds_total{instance=\"a\"}");
        assert_eq!(of_instance, model != "split", "{text}");
        let thread = format!("model=\"{model}\"");
        assert!(text.contains(&thread), "{text}");
    }
    // A thread that sleeps costs nothing.
    platform.apply(&chain("merge"));
    eventually("they sleep", || {
        let before = cpu(&platform).1;
        thread::sleep(Duration::from_millis(500));
        cpu(&platform).1 - before < 5_000_000
    });
    let names = fs::read_dir(format!(
        "/proc/{}/task",
        io_pid(&platform).expect("it runs")
    ));
    let names: Vec<String> = names
        .expect("it runs")
        .flatten()
        .filter_map(|task| fs::read_to_string(task.path().join("comm")).ok())
        .collect();
    for name in ["merge a\n", "merge b\n"] {
        assert!(names.iter().any(|found| found == name), "{names:?}");
    }
    platform.apply(&chain("inline"));
    assert!(!platform.page("/metrics").contains("nfluid_io_"));
}

// promise: 7.31
#[test]
fn what_the_host_cannot_do_is_refused_and_nothing_changes() {
    let Some(platform) = two_hosts("what_the_host_cannot_do_is_refused_and_nothing_changes") else {
        return;
    };
    platform.apply(&chain("merge"));
    let before = (io_pid(&platform), platform.pids());
    for (io, why) in [
        (
            "{ model: split, cores: [8191] }",
            "the host has no CPU 8191",
        ),
        (
            "{ model: merge, cores: [0] }",
            "'cores' are those of split workers",
        ),
        ("vhost", "there is no I/O model 'vhost'"),
    ] {
        let outcome = platform.try_apply(&chain(io));
        assert!(
            !outcome.succeeded() && outcome.stderr.contains(why),
            "{outcome:?}"
        );
    }
    assert_eq!((io_pid(&platform), platform.pids()), before);
    assert_eq!(threads(&platform), expected_threads("merge"));
    eventually("a ping crosses", || platform.pings("client", SERVER));
}
