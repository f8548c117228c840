//! Cost of a network function's own work: nanoseconds per frame for bridge, signature and NAT, 64-byte UDP frames in
//! batches of 64, without rings and switch.
//!
//! `cargo run --release -p nfluid-nf --example nat_speed [flows]`; the default is 10,000 flows, of
//! 100 inside hosts. Each figure is the median of 15 rounds over all flows. The frames lie in as
//! many slots as a small ring has, and are written anew before each batch, outside of the measured
//! time: a real ring's slots come from the cache too.

use arrayvec::ArrayVec;
use nfluid_nf::testing::{Collected, ports};
use nfluid_nf::{Nanos, NetworkFunction, catalogue};
use nfluid_ring::layout::{BATCH_MAX, SLOT_SIZE};
use nfluid_ring::{Action, Batch, Frame};
use nfluid_wire::build;
use serde_json::{Value, json};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

const FRAME_LEN: usize = 64;
const ROUNDS: usize = 15;
const SLOTS: usize = 256;
/// A host keeps its pool address, so some margin below four times 64,512.
const FLOWS_MAX: usize = 150_000;

type FrameBytes = [u8; FRAME_LEN];

fn main() {
    let flows = std::env::args().nth(1).map_or(10_000, |text| {
        text.parse().expect("the argument is a number of flows")
    });
    assert!(
        (1..=FLOWS_MAX).contains(&flows),
        "write 1 to {FLOWS_MAX} flows: the NAT's four addresses have no more ports"
    );
    let out: Vec<FrameBytes> = (0..flows).map(|flow| outbound(flow, true)).collect();
    let cuttable: Vec<FrameBytes> = (0..flows).map(|flow| outbound(flow, false)).collect();
    println!("{flows} flows, 64 B, batches of {BATCH_MAX}; median of {ROUNDS} rounds");
    for name in ["bridge", "signature"] {
        let mut nf = build_nf(name, &Value::Null);
        let (spent, _) = measure(&mut *nf, 0, &out);
        println!("{name:<12} {spent:>6.1} ns/frame");
    }
    let config = json!({
        "pool": ["203.0.113.1-203.0.113.4"],
        "sessions_max": flows.next_power_of_two().max(65_536),
    });
    let mut nat = build_nf("nat", &config);
    let (_, translated) = round(&mut *nat, 0, &out);
    assert_eq!(translated.len(), flows, "every flow gets a mapping");
    let back: Vec<FrameBytes> = translated.iter().map(answer).collect();
    // Flows in another order than they were made in, as if by chance.
    let out = shuffled(&out);
    let back = shuffled(&back);
    let cuttable = shuffled(&cuttable);
    let cases = [
        ("nat out", 0, &out),
        ("nat in", 1, &back),
        ("nat out DF=0", 0, &cuttable),
    ];
    for (name, port, frames) in cases {
        let (spent, passed) = measure(&mut *nat, port, frames);
        assert_eq!(passed, flows, "every frame passes");
        println!("{name:<12} {spent:>6.1} ns/frame");
    }
}

fn build_nf(name: &str, config: &Value) -> Box<dyn NetworkFunction> {
    catalogue::build(name, config, &ports(2)).expect("the configuration is right")
}

/// The median time per frame in nanoseconds, and the frames that passed in the last round.
fn measure(nf: &mut dyn NetworkFunction, port: u8, frames: &[FrameBytes]) -> (f64, usize) {
    let mut passed = 0;
    let mut times: Vec<Duration> = (0..ROUNDS)
        .map(|_| {
            let (time, sent) = round(nf, port, frames);
            passed = sent.len();
            time
        })
        .collect();
    times.sort_unstable();
    let median = times[ROUNDS / 2].as_nanos() as f64 / frames.len() as f64;
    (median, passed)
}

/// Passes all frames to the NF; returns the time within it, and the frames that it forwarded.
fn round(
    nf: &mut dyn NetworkFunction,
    port: u8,
    frames: &[FrameBytes],
) -> (Duration, Vec<FrameBytes>) {
    let mut slots = vec![[0u8; SLOT_SIZE]; SLOTS];
    let mut time = Duration::ZERO;
    let mut sent = Vec::with_capacity(frames.len());
    let mut outbox = Collected::default();
    for (turn, chunk) in frames.chunks(BATCH_MAX).enumerate() {
        let first = turn * BATCH_MAX % SLOTS;
        let slots = &mut slots[first..first + chunk.len()];
        for (slot, frame) in slots.iter_mut().zip(chunk) {
            slot[..FRAME_LEN].copy_from_slice(frame);
        }
        let mut batch: ArrayVec<Frame<'_>, BATCH_MAX> = slots
            .iter_mut()
            .map(|slot| Frame::new(slot, FRAME_LEN as u16, port))
            .collect();
        let start = Instant::now();
        nf.process(
            Nanos::from_secs(1),
            &mut Batch::new(&mut batch, &mut outbox),
        );
        time += start.elapsed();
        let passed = batch.iter().filter(|frame| frame.action() != Action::Drop);
        sent.extend(passed.map(|frame| <FrameBytes>::try_from(frame.bytes()).expect("64 bytes")));
    }
    (time, sent)
}

/// The frame of a flow's inside host: 100 hosts, the flows spread over their ports. Most hosts send with "don't
/// fragment"; a packet without gets another identification from the NAT.
fn outbound(flow: usize, dont_fragment: bool) -> FrameBytes {
    let host = Ipv4Addr::new(10, 0, 0, 1 + (flow % 100) as u8);
    let port = 1024 + (flow / 100) as u16;
    udp(
        SocketAddr::from((host, port)),
        SocketAddr::from(([192, 0, 2, (flow % 250) as u8], 53)),
        dont_fragment,
    )
}

/// The answer to a translated frame.
fn answer(frame: &FrameBytes) -> FrameBytes {
    let meta = nfluid_wire::PacketMeta::parse(frame).expect("a frame of ours");
    let (src, dst) = meta.addresses().expect("IPv4");
    udp(
        (dst, meta.dst_port).into(),
        (src, meta.src_port).into(),
        true,
    )
}

fn udp(src: SocketAddr, dst: SocketAddr, dont_fragment: bool) -> FrameBytes {
    let mut frame = [0; FRAME_LEN];
    let payload = [0x2a; FRAME_LEN - 42];
    let description = build::Frame {
        dont_fragment,
        ..build::Frame::udp(src, dst)
    };
    description
        .write(&mut frame, &payload)
        .expect("the frame has just room for it");
    frame
}

/// Returns the frames in an order with a large stride, so that neighbours in time are no neighbours in memory.
fn shuffled(frames: &[FrameBytes]) -> Vec<FrameBytes> {
    let mut stride = frames.len() * 5 / 8 + 1;
    while gcd(stride, frames.len()) != 1 {
        stride += 1;
    }
    (0..frames.len())
        .map(|i| frames[i * stride % frames.len()])
        .collect()
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}
