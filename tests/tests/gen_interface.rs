//! The promise: what the traffic library says about traffic on a network interface is what happened there. A bridge in
//! a namespace of its own joins two others; what is lost there is lost by a rule of nftables that counts it.

use nfluid_gen::capture::Capture;
use nfluid_gen::clock::MonotonicClock;
use nfluid_gen::interface::{InterfaceReceiver, InterfaceSender, hardware_address, open};
use nfluid_gen::io::Receiver;
use nfluid_gen::pingpong::{PingJob, ReflectJob, ping, reflect};
use nfluid_gen::receive::{ReceiveJob, receive};
use nfluid_gen::replay::{ReplayJob, Timing, replay};
use nfluid_gen::report::{ReceiveReport, SendReport};
use nfluid_gen::send::{SendError, SendJob, send};
use nfluid_gen::spec::{FlowSpec, Rate, TrafficSpec, Transport};
use nfluid_testbed::namespace::Namespace;
use nfluid_tests::harness::patience::PATIENCE;
use nfluid_tests::harness::skip::is_root;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const LEFT: &str = "nflgen0";
const RIGHT: &str = "nflgen1";

/// Runs a program that must succeed; its output.
fn run(line: &str) -> String {
    let mut words = line.split_whitespace();
    let output = Command::new(words.next().unwrap())
        .args(words)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// Two namespaces joined by a bridge in a third, removed when dropped.
struct Pair {
    left: Namespace,
    middle: Namespace,
    right: Namespace,
}

impl Pair {
    /// Reports the reason and returns `None` if the test cannot run here.
    fn new(test: &str) -> Option<Self> {
        if !is_root(test) {
            return None;
        }
        let made = || Namespace::new().expect("a namespace");
        let (left, middle, right) = (made(), made(), made());
        for namespace in [&left, &middle, &right] {
            namespace.disable_ipv6();
        }
        run(&format!(
            "ip -n {middle} link add bridge type bridge mcast_snooping 0"
        ));
        run(&format!("ip -n {middle} link set bridge up"));
        for (side, name, end) in [(&left, LEFT, "left"), (&right, RIGHT, "right")] {
            run(&format!(
                "ip -n {side} link add {name} type veth peer name {end} netns {middle}"
            ));
            run(&format!("ip -n {side} link set {name} up"));
            run(&format!("ip -n {middle} link set {end} up master bridge"));
            // Captures have both directions of a conversation, which come from one side here.
            run(&format!(
                "bridge -n {middle} link set dev {end} learning off"
            ));
        }
        let forwarding = || run(&format!("bridge -n {middle} link show"));
        while forwarding().matches("state forwarding").count() < 2 {
            thread::sleep(Duration::from_millis(20));
        }
        Some(Pair {
            left,
            middle,
            right,
        })
    }

    /// Drops every `nth` generated UDP datagram from the left where it enters the bridge.
    fn drop_every(&self, nth: u32) {
        let rules = format!(
            "add table netdev loss; \
             add chain netdev loss out {{ type filter hook ingress device left priority 0; }}; \
             add rule netdev loss out udp dport 9 numgen inc mod {nth} 0 counter drop"
        );
        self.middle.run(&format!("nft {rules}")).expect("rules");
    }

    /// How many the rule has dropped.
    fn dropped(&self) -> u64 {
        let listing = self.middle.run("nft list ruleset").expect("rules");
        let counter = listing
            .split("counter packets ")
            .nth(1)
            .unwrap_or_else(|| panic!("no counter in {listing}"));
        counter.split_whitespace().next().unwrap().parse().unwrap()
    }
}

/// Does `work` in a thread within a namespace.
fn within<'scope, T: Send + 'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    namespace: &'scope Namespace,
    work: impl FnOnce() -> T + Send + 'scope,
) -> thread::ScopedJoinHandle<'scope, T> {
    scope.spawn(move || {
        namespace.enter().expect("root may");
        work()
    })
}

/// Opens a receiver on the right, then sends `traffic` from the left; returns the reports of both sides.
fn send_across(pair: &Pair, traffic: TrafficSpec, arriving: u64) -> (SendReport, ReceiveReport) {
    let (ready, is_ready) = std::sync::mpsc::channel();
    thread::scope(|scope| {
        let receiving = within(scope, &pair.right, move || {
            let mut receiver = InterfaceReceiver::open(RIGHT).unwrap();
            ready.send(()).unwrap();
            let job = ReceiveJob {
                expect: Some(arriving),
                idle: Some("60s".parse().unwrap()),
                ..ReceiveJob::default()
            };
            let stop = AtomicBool::new(false);
            receive(&job, &mut receiver, &MonotonicClock, &stop, &mut |_| {}).unwrap()
        });
        is_ready.recv().unwrap();
        let sending = within(scope, &pair.left, move || {
            let mut sender = InterfaceSender::open(LEFT).unwrap();
            let job = SendJob {
                traffic,
                script: None,
            };
            let stop = AtomicBool::new(false);
            send(&job, &mut sender, &MonotonicClock, &stop, &mut |_| {}).unwrap()
        });
        (sending.join().unwrap(), receiving.join().unwrap())
    })
}

fn traffic(count: u64, rate: &str) -> TrafficSpec {
    TrafficSpec {
        rate: rate.parse().unwrap(),
        count: Some(count),
        ..TrafficSpec::default()
    }
}

#[test]
fn what_is_sent_arrives_whole_in_order_and_is_timed() {
    let test = "what_is_sent_arrives_whole_in_order_and_is_timed";
    let Some(pair) = Pair::new(test) else { return };
    let traffic = TrafficSpec {
        sizes: "imix".parse().unwrap(),
        flows: FlowSpec {
            count: 100,
            ..FlowSpec::default()
        },
        ..traffic(20_000, "40kpps")
    };
    let (sent, received) = send_across(&pair, traffic, 20_000);
    assert_eq!((sent.sent.packets, sent.dropped), (20_000, 0));
    assert_eq!(received.received.packets, 20_000);
    assert_eq!(received.received.bytes, sent.sent.bytes);
    let check = received.check.unwrap();
    assert!(check.is_clean(), "{received}");
    assert_eq!((check.streams, received.lost()), (100, 0));
    let latency = received.latency.unwrap();
    assert_eq!((latency.count, received.clock_skewed), (20_000, 0));
    assert!(latency.min_ns > 100 && latency.p50_ns <= latency.p99_ns);
}

#[test]
fn tagged_ipv6_and_tcp_frames_arrive_too() {
    let Some(pair) = Pair::new("tagged_ipv6_and_tcp_frames_arrive_too") else {
        return;
    };
    let flows = FlowSpec {
        count: 10,
        vlans: vec![100, 7],
        src: "2001:2::/64".parse().unwrap(),
        dst: "2001:2:0:1::1".parse().unwrap(),
        transport: Transport::Tcp,
        ..FlowSpec::default()
    };
    let traffic = TrafficSpec {
        sizes: "100,1514".parse().unwrap(),
        flows,
        ..traffic(1000, "20kpps")
    };
    let (sent, received) = send_across(&pair, traffic, 1000);
    assert!(received.check.unwrap().is_clean(), "{received}");
    // The kernel takes the outer tag off before a packet socket sees the frame.
    assert_eq!(received.received.bytes, sent.sent.bytes - 4 * 1000);
}

// promise: 12.2
#[test]
fn the_loss_reported_is_the_loss_counted_by_the_kernel() {
    let test = "the_loss_reported_is_the_loss_counted_by_the_kernel";
    let Some(pair) = Pair::new(test) else { return };
    pair.drop_every(10);
    let (sent, mut received) = send_across(&pair, traffic(10_000, "20kpps"), 9000);
    assert_eq!(sent.sent.packets, 10_000);
    assert_eq!(pair.dropped(), 1000);
    let check = received.check.unwrap();
    assert_eq!(
        (check.unique, check.lost, check.duplicates),
        (9000, 1000, 0)
    );
    received.expected = Some(10_000);
    assert_eq!(received.lost(), 1000);
}

/// Pings `count` times across the pair; probes answered, lost, and reflected.
fn ping_across(pair: &Pair, job: PingJob) -> (u64, u64, u64) {
    let stop = AtomicBool::new(false);
    let (ready, is_ready) = std::sync::mpsc::channel();
    thread::scope(|scope| {
        let stop = &stop;
        let reflecting = within(scope, &pair.right, move || {
            let (mut sender, mut receiver) = open(RIGHT).unwrap();
            ready.send(()).unwrap();
            let halves = (&mut sender, &mut receiver);
            reflect(&ReflectJob::default(), halves, &MonotonicClock, stop).unwrap()
        });
        is_ready.recv().unwrap();
        let asking = within(scope, &pair.left, move || {
            let (mut sender, mut receiver) = open(LEFT).unwrap();
            let halves = (&mut sender, &mut receiver);
            let never = AtomicBool::new(false);
            ping(&job, halves, &MonotonicClock, &never, &mut |_| {}).unwrap()
        });
        let report = asking.join().unwrap();
        stop.store(true, Ordering::Relaxed);
        let reflected = reflecting.join().unwrap();
        if let Some(rtt) = &report.rtt {
            assert_eq!(rtt.count, report.answered);
            assert!(rtt.min_ns > 500, "{rtt}");
        }
        (report.answered, report.lost, reflected.reflected)
    })
}

#[test]
fn probes_come_back_or_are_counted_as_lost() {
    let Some(pair) = Pair::new("probes_come_back_or_are_counted_as_lost") else {
        return;
    };
    let job = PingJob {
        count: Some(500),
        timeout: "60s".parse().unwrap(),
        ..PingJob::default()
    };
    let (answered, lost, reflected) = ping_across(&pair, job.clone());
    assert_eq!((answered, lost, reflected), (500, 0, 500));
    pair.drop_every(10);
    let job = PingJob {
        timeout: "2s".parse().unwrap(),
        interval: Some("1ms".parse().unwrap()),
        ..job
    };
    let (answered, lost, _) = ping_across(&pair, job);
    assert_eq!((answered + lost, pair.dropped()), (500, 50));
    assert!(lost >= 50, "{lost} lost");
}

// promise: 12.3
#[test]
fn a_replayed_capture_arrives_byte_for_byte() {
    let test = "a_replayed_capture_arrives_byte_for_byte";
    let Some(pair) = Pair::new(test) else { return };
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/pcap/dns-tunnel-iodine.pcap");
    let Ok(mut capture) = Capture::open(&path) else {
        nfluid_tests::harness::skip::skip(test, "the captures are not there");
        return;
    };
    let mut frames = Vec::new();
    while let Some(frame) = capture.next_frame().unwrap() {
        frames.push(frame.bytes.to_vec());
    }
    let (ready, is_ready) = std::sync::mpsc::channel();
    let arrived = thread::scope(|scope| {
        let wanted = frames.len();
        let receiving = within(scope, &pair.right, move || {
            let mut receiver = InterfaceReceiver::open(RIGHT).unwrap();
            ready.send(()).unwrap();
            let mut arrived = Vec::new();
            let start = Instant::now();
            while arrived.len() < wanted && start.elapsed() < PATIENCE {
                receiver.wait(Duration::from_secs(1)).unwrap();
                let count = receiver.receive(256, |frame| arrived.push(frame.to_vec()));
                count.unwrap();
            }
            arrived
        });
        is_ready.recv().unwrap();
        let sending = within(scope, &pair.left, || {
            let mut sender = InterfaceSender::open(LEFT).unwrap();
            let job = ReplayJob {
                timing: Timing::Rate(Rate::Packets(20e3)),
                ..ReplayJob::default()
            };
            let stop = AtomicBool::new(false);
            let open = || Capture::open(&path);
            replay(&job, open, &mut sender, &MonotonicClock, &stop, &mut |_| {}).unwrap()
        });
        assert_eq!(sending.join().unwrap().sent.packets, frames.len() as u64);
        receiving.join().unwrap()
    });
    assert!(arrived == frames, "frames differ");
}

#[test]
fn frames_beyond_the_mtu_are_refused_with_a_reason() {
    let Some(pair) = Pair::new("frames_beyond_the_mtu_are_refused_with_a_reason") else {
        return;
    };
    thread::scope(|scope| {
        let sending = within(scope, &pair.left, || {
            let mut sender = InterfaceSender::open(LEFT).unwrap();
            let traffic = TrafficSpec {
                sizes: "2000".parse().unwrap(),
                ..traffic(10, "max")
            };
            let job = SendJob {
                traffic,
                script: None,
            };
            let stop = AtomicBool::new(false);
            send(&job, &mut sender, &MonotonicClock, &stop, &mut |_| {})
        });
        let error = sending.join().unwrap().unwrap_err();
        assert!(matches!(error, SendError::Io(_)));
        let text = error.to_string();
        assert!(
            text.contains("2000 bytes") && text.contains("MTU"),
            "{text}"
        );
    });
}

#[test]
fn an_interface_is_looked_for_in_its_own_namespace() {
    let Some(pair) = Pair::new("an_interface_is_looked_for_in_its_own_namespace") else {
        return;
    };
    thread::scope(|scope| {
        let there = within(scope, &pair.left, || hardware_address(LEFT).is_ok());
        let elsewhere = within(scope, &pair.right, || hardware_address(LEFT).is_err());
        assert!(there.join().unwrap() && elsewhere.join().unwrap());
    });
}
