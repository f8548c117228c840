use crate::function::{ENTRY, started};
use crate::message::{Kind, Message};
use nfluid_nf::function::{Metric, Nanos, NetworkFunction};
use nfluid_nf::testing::{Collected, ports, run};
use nfluid_wire::build::Frame;
use nfluid_wire::ether::VlanTag;
use nfluid_wire::flow::PacketMeta;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

/// How long a test waits for what must come.
const PATIENCE: Timespec = Timespec {
    tv_sec: 180,
    tv_nsec: 0,
};

/// A slice that is fed, and what it has sent.
pub struct Bed {
    nf: Box<dyn NetworkFunction>,
    bell: OwnedFd,
    sent: Vec<Vec<u8>>,
}

fn addresses() -> (SocketAddr, SocketAddr) {
    (
        "10.0.0.1:7000".parse().unwrap(),
        "10.0.0.2:4991".parse().unwrap(),
    )
}

/// The frames of an interval's input.
fn frames(slice: u16, interval: u16, input: &[u8], envelope: &Frame<'_>) -> Vec<Vec<u8>> {
    let pieces = input.chunks(1024).enumerate();
    let frames = pieces.map(|(index, payload)| {
        let at = index as u32 * 1024;
        let mut message = Vec::new();
        Message {
            kind: Kind::Samples,
            slice,
            interval,
            phase: (interval % 10) as u8,
            at,
            payload,
        }
        .write(&mut message);
        let mut frame = vec![0; 1600];
        let length = envelope.write(&mut frame, &message).unwrap();
        frame.truncate(length);
        frame
    });
    frames.collect()
}

impl Bed {
    /// One slice of this graph, on two PEs.
    pub fn new(graph: &str, parameters: Value) -> Self {
        let slice = json!({ "graph": graph, "parameters": parameters, "deadline": "10s" });
        Self::of(json!({ "pes": 2, "slices": { "s": slice } }))
    }

    fn of(config: Value) -> Self {
        let (nf, bell) = started(&config, &ports(2)).unwrap();
        Bed {
            nf,
            bell,
            sent: Vec::new(),
        }
    }

    /// Sends frames to a port. Returns what passes.
    fn send(&mut self, port: u8, frames: &[Vec<u8>]) -> Vec<(u8, Vec<u8>)> {
        let frames: Vec<_> = frames.iter().map(|frame| (port, frame.clone())).collect();
        run(self.nf.as_mut(), Nanos(1), &frames)
    }

    /// Waits until graphs have ended, and returns the frames that leave.
    fn told(&mut self) -> Vec<Vec<u8>> {
        let mut fds = [PollFd::new(&self.bell, PollFlags::IN)];
        assert_eq!(
            poll(&mut fds, Some(&PATIENCE)).unwrap(),
            1,
            "no graph ended"
        );
        let mut outbox = Collected::default();
        self.nf.tick(Nanos(1), &mut outbox);
        let frames = outbox.plain();
        assert!(frames.iter().all(|(port, _)| *port == 1));
        frames.into_iter().map(|(_, frame)| frame).collect()
    }

    /// Sends the input of an interval, and returns its results.
    pub fn interval(&mut self, interval: u16, input: &[u8]) -> Vec<Vec<u8>> {
        let (from, to) = addresses();
        let passed = self.send(0, &frames(0, interval, input, &Frame::udp(from, to)));
        assert!(passed.is_empty());
        let told = self.told();
        self.sent.extend(told.iter().cloned());
        let results = told.iter().map(|frame| {
            let message = message(frame);
            assert_eq!((message.kind, message.interval), (Kind::Result, interval));
            message.payload.to_vec()
        });
        results.collect()
    }

    fn metric(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let mut found = None;
        self.nf.metrics(&mut |metric: Metric| {
            let has = |(key, value): &(&str, &str)| {
                metric.labels.iter().any(|(k, v)| k == key && v == value)
            };
            if metric.name == name && labels.iter().all(has) {
                found = Some(metric.value);
            }
        });
        found.unwrap_or_else(|| panic!("no metric {name} {labels:?}"))
    }

    fn dropped(&self, reason: &str) -> f64 {
        self.metric("packets_dropped_total", &[("reason", reason)])
    }

    fn ends(&self, end: &str) -> f64 {
        self.metric("slice_intervals_total", &[("end", end)])
    }
}

/// The message in a frame.
fn message(frame: &[u8]) -> Message<'_> {
    let meta = PacketMeta::parse(frame).unwrap();
    Message::parse(&frame[usize::from(meta.payload_offset)..meta.l3_end()]).unwrap()
}

/// All messages that a bed's slice has sent.
pub fn messages(bed: &Bed) -> Vec<Message<'_>> {
    bed.sent.iter().map(|frame| message(frame)).collect()
}

/// The root of a binary tree of SHA-256 over blocks.
pub fn root_of(input: &[u8], block: usize) -> Vec<u8> {
    let hash = |bytes: &[u8]| Sha256::digest(bytes).to_vec();
    let mut level: Vec<Vec<u8>> = input.chunks(block).map(hash).collect();
    while level.len() > 1 {
        level = level.chunks(2).map(|pair| hash(&pair.concat())).collect();
    }
    level.remove(0)
}

fn hash_tree(blocks: usize) -> Value {
    json!({ "blocks": blocks, "block_bytes": 1024 })
}

// promise: 31.1
#[test]
fn results_have_the_addresses_and_tags_of_their_samples() {
    let tags = [VlanTag::new(7), VlanTag::new(9)];
    let (from, to) = addresses();
    let v6 = (
        "[fd00::1]:7000".parse().unwrap(),
        "[fd00::2]:4991".parse().unwrap(),
    );
    let envelopes = [
        Frame::udp(from, to),
        Frame::udp(from, to).vlans(&tags[..1]),
        Frame::udp(v6.0, v6.1),
        Frame::udp(v6.0, v6.1).vlans(&tags),
    ];
    let mut bed = Bed::new("hash-tree", hash_tree(3));
    let input = vec![7; 3 * 1024];
    for (interval, envelope) in (0..).zip(&envelopes) {
        let sent = frames(0, interval, &input, envelope);
        assert!(bed.send(0, &sent).is_empty());
        let told = bed.told();
        let [frame] = &told[..] else {
            panic!("{} results", told.len())
        };
        assert_eq!(message(frame).payload, root_of(&input, 1024));
        let [before, after] = [&sent[0], frame].map(|frame| PacketMeta::parse(frame).unwrap());
        let route = |meta: &PacketMeta| (meta.l3, meta.src_port, meta.dst_port, meta.vlan_tci);
        assert_eq!(route(&before), route(&after));
        assert_eq!(frame[..12], sent[0][..12], "MAC addresses");
        // The slice takes its own frame's checksum for right.
        bed.send(0, std::slice::from_ref(frame));
        assert_eq!(bed.dropped("bad_checksum"), 0.0);
    }
    assert_eq!(bed.ends("done"), 4.0);
}

// promise: 31.1
#[test]
fn what_is_not_for_a_slice_passes_unchanged() {
    let mut bed = Bed::new("hash-tree", hash_tree(1));
    let (from, to) = addresses();
    let other: SocketAddr = "10.0.0.2:4992".parse().unwrap();
    let built = |envelope: Frame<'_>| {
        let mut frame = vec![0; 200];
        let length = envelope.write(&mut frame, &[0x10; 100]).unwrap();
        frame.truncate(length);
        frame
    };
    let pass = [
        built(Frame::udp(from, other)),
        built(Frame::tcp(from, to, nfluid_wire::TcpFlags::default())),
        vec![0xff; 60],
        built(Frame::udp(from, to).vlans(&[VlanTag::new(1); 3])),
    ];
    for frame in &pass {
        assert_eq!(
            bed.send(0, std::slice::from_ref(frame)),
            [(1, frame.clone())]
        );
    }
    let samples = frames(0, 0, &[1; 1024], &Frame::udp(from, to));
    assert_eq!(
        bed.send(1, &samples),
        [(0, samples[0].clone())],
        "the way back has no samples"
    );
    assert_eq!(bed.ends("done"), 0.0);
}

// promise: 31.4
#[test]
fn each_bad_frame_is_dropped_under_its_reason() {
    let mut bed = Bed::new("hash-tree", hash_tree(2));
    let (from, to) = addresses();
    let good = frames(0, 0, &[3; 2048], &Frame::udp(from, to));
    let damaged = |at: usize, with: u8| {
        let mut frame = good[0].clone();
        frame[at] ^= with;
        frame
    };
    let raw = |payload: &[u8]| {
        let mut frame = vec![0; 1600];
        let length = Frame::udp(from, to).write(&mut frame, payload).unwrap();
        frame.truncate(length);
        frame
    };
    let other = frames(5, 0, &[3; 2048], &Frame::udp(from, to)).remove(0);
    let far = frames(0, 0, &[3; 4096], &Frame::udp(from, to)).remove(3);
    let cases = [
        ("bad_checksum", damaged(100, 1)),
        ("malformed", raw(b"")),
        (
            "malformed",
            raw(&[0x10, 0, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 1]),
        ),
        ("no_such_slice", other),
        ("out_of_range", far),
    ];
    for (reason, frame) in cases {
        let before = bed.dropped(reason);
        assert!(bed.send(0, &[frame]).is_empty());
        assert_eq!(bed.dropped(reason), before + 1.0, "{reason}");
    }
    bed.send(0, &good[..1]);
    bed.send(0, &good);
    assert_eq!(bed.dropped("duplicate"), 1.0);
    assert_eq!(message(&bed.told()[0]).payload, root_of(&[3; 2048], 1024));
    bed.send(0, &good);
    assert_eq!(bed.dropped("late"), 2.0);
    let unstarted = &mut *(ENTRY.build)(
        &json!({ "slices": { "s": { "graph": "hash-tree" } } }),
        &ports(2),
    )
    .unwrap();
    assert!(run(unstarted, Nanos(0), &[(0, good[0].clone())]).is_empty());
}

// promise: 31.8
#[test]
fn an_interval_that_cannot_be_in_time_is_refused_whole() {
    // A millisecond of work at least, and a microsecond for it.
    let parameters = json!({ "blocks": 64, "block_bytes": 65_536 });
    let slow = json!({ "graph": "hash-tree", "parameters": parameters, "deadline": "1us" });
    let quick =
        json!({ "graph": "hash-tree", "parameters": hash_tree(1), "id": 1, "deadline": "10s" });
    let mut bed = Bed::of(json!({ "slices": { "quick": quick, "slow": slow } }));
    let (from, to) = addresses();
    bed.send(
        0,
        &frames(0, 0, &vec![1; 64 * 65_536], &Frame::udp(from, to)),
    );
    assert!(bed.told().is_empty());
    let refused = [("slice", "slow"), ("end", "refused")];
    assert_eq!(bed.metric("slice_intervals_total", &refused), 1.0);
    let slices = bed
        .nf
        .command(Nanos(0), "slice", &["slow".to_owned()])
        .unwrap();
    let trouble = slices["last_trouble"].as_str().unwrap();
    assert!(trouble.contains("the deadline is"), "{trouble}");
    bed.send(0, &frames(1, 0, &[1; 1024], &Frame::udp(from, to)));
    assert_eq!(bed.told().len(), 1, "the other slice goes on");
}

// promise: 31.9
#[test]
fn a_change_keeps_what_stays_and_loses_nothing_of_it() {
    let slice = |id: u16, more: &[(&str, Value)]| {
        let mut slice = json!({
            "graph": "hash-tree", "parameters": hash_tree(2), "id": id, "deadline": "10s",
        });
        for (key, value) in more {
            slice[*key] = value.clone();
        }
        slice
    };
    let mut bed = Bed::of(json!({ "pes": 2, "slices": { "a": slice(0, &[]) } }));
    let (from, to) = addresses();
    let input = [5; 2048];
    let sent = frames(0, 0, &input, &Frame::udp(from, to));
    bed.send(0, &sent[..1]);
    let modes = [
        json!({ "a": slice(0, &[("pes", json!([0]))]), "b": slice(1, &[("pes", json!([1]))]) }),
        json!({
            "a": slice(0, &[("interval", json!("2s")), ("window", json!(["0us", "1s"]))]),
            "b": slice(1, &[("interval", json!("2s")), ("window", json!(["1s", "2s"]))]),
        }),
        json!({ "a": slice(0, &[]) }),
    ];
    for ((interval, mode), slices) in (100..).zip(["spatial", "temporal", "shared"]).zip(modes) {
        let config = json!({ "pes": 2, "slices": slices });
        bed.nf.reconfigure(&config, &ports(2)).unwrap();
        let told = bed.nf.command(Nanos(0), "slices", &[]).unwrap();
        assert_eq!(told[0]["mode"], mode);
        let Some(b) = told.get(1) else { continue };
        bed.send(0, &frames(1, interval, &input, &Frame::udp(from, to)));
        assert_eq!(message(&bed.told()[0]).payload, root_of(&input, 1024));
        let trace = bed
            .nf
            .command(Nanos(0), "trace", &["b".to_owned(), "1".to_owned()]);
        let runs = trace.unwrap()["intervals"][0]["runs"].take();
        for run in runs.as_array().unwrap() {
            let is_own = b["pes"].as_array().unwrap().contains(&run[2]);
            assert!(is_own, "{mode}: {run} of {b}");
        }
    }
    bed.send(0, &sent[1..]);
    assert_eq!(message(&bed.told()[0]).payload, root_of(&input, 1024));
    let wrong = json!({ "pes": 2, "slices": { "a": slice(0, &[("pes", json!([2]))]) } });
    let error = bed.nf.reconfigure(&wrong, &ports(2)).unwrap_err();
    assert_eq!(error.path, "slices.a.pes");
    for interval in 1..40 {
        assert_eq!(bed.interval(interval, &input), [root_of(&input, 1024)]);
    }
    assert_eq!(bed.ends("done"), 40.0);
    // Other PEs: the engine begins anew, and the slice with it.
    let config = json!({ "pes": 1, "manager": "own", "slices": { "a": slice(0, &[]) } });
    bed.nf.reconfigure(&config, &ports(2)).unwrap();
    assert_eq!(bed.interval(40, &input), [root_of(&input, 1024)]);
}

// promise: 31.17
#[test]
fn results_are_the_same_if_pes_are_processes_and_a_new_slice_has_its_own() {
    let slice = |id: u16| json!({ "graph": "hash-tree", "id": id, "parameters": hash_tree(8), "deadline": "10s" });
    let config = |slices: Value| json!({ "pes": 2, "back_end": "processes", "slices": slices });
    let input: Vec<u8> = (0..8 * 1024).map(|at| (at * 7) as u8).collect();
    let mut bed = Bed::of(config(json!({ "a": slice(0) })));
    // Over the interval at which the graph is composed anew.
    for interval in 0..40 {
        assert_eq!(bed.interval(interval, &input), [root_of(&input, 1024)]);
    }
    let both = config(json!({ "a": slice(0), "b": slice(1) }));
    bed.nf.reconfigure(&both, &ports(2)).unwrap();
    let (from, to) = addresses();
    let sent = frames(1, 40, &input, &Frame::udp(from, to));
    assert!(bed.send(0, &sent).is_empty());
    assert_eq!(message(&bed.told()[0]).payload, root_of(&input, 1024));
    bed.nf
        .reconfigure(&config(json!({ "b": slice(0) })), &ports(2))
        .unwrap();
    assert_eq!(bed.interval(41, &input), [root_of(&input, 1024)]);
    let told = bed.nf.command(Nanos(0), "slice", &["b".to_owned()]);
    let told = told.unwrap();
    assert_eq!(told["back_end"], "processes");
    assert_eq!(told["done"], 1, "{told}");
}

#[test]
fn counters_move_to_a_successor() {
    let mut bed = Bed::new("hash-tree", hash_tree(1));
    bed.interval(0, &[1; 1024]);
    bed.send(0, &[vec![0xff; 60]]);
    let mut image = Vec::new();
    image = nfluid_nf::stateful::export_into(image, "dataflow", bed.nf.as_mut(), Nanos(0)).unwrap();
    let mut next = Bed::new("hash-tree", hash_tree(1));
    nfluid_nf::stateful::import("dataflow", next.nf.as_mut(), Nanos(0), &image).unwrap();
    for (name, labels) in [
        ("packets_taken_total", &[][..]),
        ("results_sent_total", &[]),
        ("packets_forwarded_total", &[("from", "p0")]),
    ] {
        assert_eq!(next.metric(name, labels), 1.0, "{name}");
    }
}

#[test]
fn a_trace_has_every_unit_of_the_intervals_asked_for() {
    let mut bed = Bed::new("hash-tree", hash_tree(8));
    for interval in 0..5 {
        bed.interval(interval, &[9; 8 * 1024]);
    }
    let mut trace = |args: &[&str]| {
        let args: Vec<String> = args.iter().map(|&arg| arg.to_owned()).collect();
        bed.nf.command(Nanos(0), "trace", &args)
    };
    let told = trace(&["s", "3"]).unwrap();
    let intervals = told["intervals"].as_array().unwrap();
    let numbers: Vec<u64> = intervals
        .iter()
        .map(|it| it["interval"].as_u64().unwrap())
        .collect();
    assert_eq!(numbers, [2, 3, 4]);
    for interval in intervals {
        let runs = interval["runs"].as_array().unwrap();
        assert!(!runs.is_empty());
        for run in runs {
            let [start, took] = [3, 4].map(|at| run[at].as_u64().unwrap());
            assert!(interval["taken_ns"].as_u64().unwrap() <= start);
            assert!(start + took <= interval["ended_ns"].as_u64().unwrap());
        }
    }
    for bad in [
        &["s", "0"][..],
        &["s", "17"],
        &["s", "x"],
        &["t"],
        &[],
        &["s", "1", "2"],
    ] {
        assert!(trace(bad).is_err(), "{bad:?}");
    }
}

// promise: 31.10
#[test]
fn a_bad_configuration_is_refused_at_its_key() {
    let refused = |config: Value| match (ENTRY.build)(&config, &ports(2)) {
        Ok(_) => panic!("{config} was accepted"),
        Err(error) => (error.path, error.message),
    };
    let one = |slice: Value| json!({ "slices": { "s": slice } });
    let rows = [
        (json!({}), "slices", "1 to 64 slices"),
        (json!({ "pes": 0, "slices": {} }), "pes", "0 is not within"),
        (
            json!({ "pes": 65, "slices": {} }),
            "pes",
            "65 is not within",
        ),
        (
            json!({ "manager": "core" }),
            "manager",
            "unknown variant `core`",
        ),
        (
            json!({ "back_end": "forks", "slices": {} }),
            "back_end",
            "unknown variant `forks`",
        ),
        (
            json!({ "back_end": "processes", "manager": "pe", "slices": { "a": { "graph": "spectrum" } } }),
            "manager",
            "write 'own'",
        ),
        (
            json!({
                "back_end": "processes",
                "pes": 64,
                "slices": {
                    "a": { "graph": "spectrum" },
                    "b": { "graph": "spectrum", "id": 1 },
                    "c": { "graph": "spectrum", "id": 2, "pes": [0] },
                },
            }),
            "back_end",
            "are 129 processes",
        ),
        (
            json!({ "slices": { "a\"b": { "graph": "spectrum" } } }),
            "slices.a\"b",
            "a name has",
        ),
        (one(json!({})), "slices.s", "missing field `graph`"),
        (
            one(json!({ "graph": "lte" })),
            "slices.s.graph",
            "there are: hash-tree, lte-uplink",
        ),
        (
            one(json!({ "graph": "spectrum", "parameters": { "bins": 100 } })),
            "slices.s.parameters.bins",
            "a power of two",
        ),
        (
            one(json!({ "graph": "lte-uplink", "parameters": { "users": [7] } })),
            "slices.s.parameters.users",
            "7 resource blocks",
        ),
        (
            one(
                json!({ "graph": "hash-tree", "parameters": { "blocks": 1024, "block_bytes": 65_536 } }),
            ),
            "slices.s.parameters",
            "reads 67108864 bytes",
        ),
        (
            one(json!({ "graph": "spectrum", "interval": "1" })),
            "slices.s.interval",
            "is no time",
        ),
        (
            one(json!({ "graph": "spectrum", "interval": "0us" })),
            "slices.s.interval",
            "1us to 10s",
        ),
        (
            one(json!({ "graph": "spectrum", "deadline": "11s" })),
            "slices.s.deadline",
            "1us to 10s",
        ),
        (
            one(json!({ "graph": "spectrum", "pes": [] })),
            "slices.s.pes",
            "at least one PE",
        ),
        (
            one(json!({ "graph": "spectrum", "pes": [1] })),
            "slices.s.pes",
            "there is no PE 1",
        ),
        (
            one(json!({ "graph": "spectrum", "window": ["500us", "2ms"] })),
            "slices.s.window",
            "within the interval",
        ),
        (
            json!({ "slices": { "a": { "graph": "spectrum" }, "b": { "graph": "spectrum" } } }),
            "slices.b.id",
            "the slice 'a' has this number",
        ),
    ];
    for (config, path, message) in rows {
        let (found, text) = refused(config.clone());
        assert_eq!(found, path, "{config}: {text}");
        assert!(text.contains(message), "{config}: {text}");
    }
}
