//! Real traffic crosses every network function of the catalogue: no panic, every frame accounted
//! for, and unchanged bytes where nothing should change.
//!
//! A new network function needs a row in [`CASES`]; the test says so if it is missing.

#[path = "../src/captures.rs"]
mod captures;

use nfluid_nf::testing::{Collected, Sent, ports, run};
use nfluid_nf::{Nanos, NetworkFunction, catalogue};
use nfluid_wire::PacketMeta;
use nfluid_wire::ipv4::Ipv4Packet;
use serde_json::{Value, json};
use std::path::Path;

/// The longest frame of a capture that is taken: an NF may add a tag.
const FRAME_MAX: usize = 2000;
/// A frame that is not of the captures, among them; garbage must not disturb what follows.
const GARBAGE: [u8; 60] = [0x5a; 60];
/// Time between two frames.
const STEP: Nanos = Nanos(1_000_000);
/// Longer than any NF keeps a frame back.
const PATIENCE: Nanos = Nanos::from_secs(10);

/// Promises about the frames that an NF sends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Promise {
    /// All pass, in order, byte for byte.
    AllUnchanged,
    /// Frames that pass are byte for byte among those that came, in order; the rest is counted.
    PassedUnchanged,
    /// Frames that pass are well-formed and no longer than they were but for `longer` bytes; the rest is counted.
    Translated { longer: usize },
    /// The NF may answer, wait, and send frames of its own: only the counters must hold.
    Routed,
}

struct Case {
    nf: &'static str,
    config: fn() -> Value,
    promise: Promise,
}

const CASES: &[Case] = &[
    Case {
        nf: "bridge",
        config: || json!({}),
        promise: Promise::AllUnchanged,
    },
    Case {
        nf: "counter",
        config: || json!({}),
        promise: Promise::AllUnchanged,
    },
    Case {
        nf: "firewall",
        config: || json!({"default": "allow", "non_ip": "allow"}),
        promise: Promise::PassedUnchanged,
    },
    Case {
        nf: "limiter",
        config: || json!({"forward": {"cir": 1_000_000, "cbs": 20_000, "ebs": 20_000}}),
        promise: Promise::PassedUnchanged,
    },
    Case {
        nf: "mirror",
        config: || json!({"rate": 100_000}),
        promise: Promise::AllUnchanged,
    },
    Case {
        nf: "nat",
        config: || json!({"pool": ["203.0.113.1"], "tcp_pickup": true}),
        promise: Promise::Translated { longer: 0 },
    },
    Case {
        nf: "router",
        config: || json!({"addresses": {"p0": ["10.255.0.1/24"], "p1": ["10.255.1.1/24"]}}),
        promise: Promise::Routed,
    },
    Case {
        nf: "signature",
        config: || json!({}),
        promise: Promise::AllUnchanged,
    },
    Case {
        nf: "vlan",
        config: || json!({"push": {"id": 100}}),
        promise: Promise::Translated { longer: 4 },
    },
];

/// Longest frame with an ICMP error that an NF makes.
const ICMP_ERROR_MAX: usize = 600;

// promise: 10.1
#[test]
fn every_network_function_has_a_case() {
    let cases: Vec<&str> = CASES.iter().map(|case| case.nf).collect();
    let entries: Vec<&str> = catalogue::ENTRIES.iter().map(|entry| entry.name).collect();
    assert_eq!(cases, entries, "add the missing row to CASES");
}

// promise: 10.1
#[test]
fn captures_cross_every_network_function() {
    let Some(files) = captures::files() else {
        return;
    };
    let mut total = 0;
    for file in files {
        let frames = captures::frames_up_to(&file, FRAME_MAX);
        total += frames.len();
        for case in CASES {
            // Once with all frames from inside, and once as a conversation between the ports.
            cross(case, &file, frames.iter().map(|frame| (0, frame.clone())));
            let ports = [0, 1].into_iter().cycle();
            cross(case, &file, ports.zip(frames.iter().cloned()));
        }
    }
    captures::assert_enough(total);
}

fn cross(case: &Case, file: &Path, frames: impl Iterator<Item = Sent>) {
    let mut nf = catalogue::build(case.nf, &(case.config)(), &ports(2))
        .unwrap_or_else(|error| panic!("{}: {error}", case.nf));
    let mut frames: Vec<Sent> = frames.collect();
    frames.push((0, GARBAGE.to_vec()));
    let mut now = Nanos::from_secs(1);
    let mut sent = Vec::new();
    for batch in frames.chunks(32) {
        now = Nanos(now.0 + STEP.0 * batch.len() as u64);
        sent.append(&mut run(&mut *nf, now, batch));
        nf.tick(now, &mut Collected::default());
    }
    // Frames that still wait for another frame, as fragments do for their first one, end without it.
    nf.tick(Nanos(now.0 + PATIENCE.0), &mut Collected::default());
    let place = format!("{} with {}", case.nf, file.display());
    match case.promise {
        Promise::AllUnchanged => {
            let crossed: Vec<Sent> = frames.into_iter().map(|(port, f)| (port ^ 1, f)).collect();
            assert!(sent == crossed, "{place}: not all passed unchanged");
        }
        Promise::PassedUnchanged => {
            assert_eq!(frames.len(), sent.len() + dropped(&*nf), "{place}");
            assert_is_subsequence(&sent, &frames, &place);
        }
        Promise::Translated { longer } => {
            let made = counted(&*nf, "icmp_errors_total", "sent");
            assert_eq!(frames.len() + made, sent.len() + dropped(&*nf), "{place}");
            for (_, frame) in &sent {
                assert_well_formed(frame, &frames, longer, &place);
            }
        }
        Promise::Routed => {
            let longest = frames.iter().map(|(_, frame)| frame.len()).max();
            assert!(
                sent.iter()
                    .all(|(_, frame)| Some(frame.len()) <= longest.max(Some(ICMP_ERROR_MAX)))
            );
        }
    }
}

/// All drops that the NF reports, whatever the reason.
fn dropped(nf: &dyn NetworkFunction) -> usize {
    counted(nf, "packets_dropped_total", "")
}

/// The sum of a metric, of those of its counters that have the label.
fn counted(nf: &dyn NetworkFunction, name: &str, label: &str) -> usize {
    let mut sum = 0.0;
    nf.metrics(&mut |metric| {
        let mut labels = metric.labels.iter();
        if metric.name == name && (label.is_empty() || labels.any(|(_, text)| text == label)) {
            sum += metric.value;
        }
    });
    sum as usize
}

fn assert_is_subsequence(sent: &[Sent], frames: &[Sent], place: &str) {
    let mut rest = frames.iter();
    for (port, frame) in sent {
        let found = rest.any(|(from, original)| from ^ 1 == *port && original == frame);
        assert!(found, "{place}: a frame was changed or overtaken");
    }
}

/// Checks that an IPv4 frame has a correct header checksum, unless an input frame had a wrong one: then an output frame
/// may have one too.
fn assert_well_formed(frame: &[u8], frames: &[Sent], longer: usize, place: &str) {
    let longest = frames
        .iter()
        .map(|(_, frame)| frame.len())
        .max()
        .unwrap_or(0);
    let longest_made = longest.max(ICMP_ERROR_MAX);
    assert!(
        frame.len() <= longest_made + longer,
        "{place}: a frame grew"
    );
    let header_is_right = |frame: &[u8]| match PacketMeta::parse_l3(frame) {
        Ok(meta) if meta.is_ipv4() => {
            Ipv4Packet::new_unchecked(&frame[usize::from(meta.l3_offset)..]).verify_checksum()
        }
        _ => true,
    };
    assert!(
        header_is_right(frame) || frames.iter().any(|(_, frame)| !header_is_right(frame)),
        "{place}: an IPv4 checksum became wrong"
    );
}
