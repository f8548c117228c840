//! The cost of following TCP connections: nanoseconds per segment in firewall and NAT, 60-byte segments of established
//! connections in batches of 64, without rings and switch.
//!
//! `cargo run --release -p nfluid-nf --example tcp_speed [flows]`; the default is 1,000 flows. Each figure is the
//! median of all batches of 31 rounds: a batch that was interrupted by other work does not count.

use arrayvec::ArrayVec;
use nfluid_nf::testing::{Collected, ports};
use nfluid_nf::{Nanos, NetworkFunction, catalogue};
use nfluid_ring::layout::{BATCH_MAX, SLOT_SIZE};
use nfluid_ring::{Action, Batch, Frame};
use nfluid_wire::{PacketMeta, TcpFlags, build};
use serde_json::json;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Instant;

const ROUNDS: usize = 31;
const FRAME_LEN: usize = 60;
const NOW: Nanos = Nanos::from_secs(1);

type FrameBytes = [u8; FRAME_LEN];

fn main() {
    let flows = std::env::args().nth(1).map_or(1_000, |text| {
        text.parse().expect("the argument is a number of flows")
    });
    let rules = "check-state\nallow tcp from any to any out setup keep-state";
    let configs = [
        ("firewall", json!({ "rules": rules })),
        ("nat", json!({ "pool": ["203.0.113.1-203.0.113.4"] })),
    ];
    println!(
        "{flows} connections, {FRAME_LEN} B, batches of {BATCH_MAX}; median of {ROUNDS} rounds"
    );
    for (name, config) in configs {
        let mut nf = catalogue::build(name, &config, &ports(2)).expect("a valid configuration");
        let syns: Vec<FrameBytes> = (0..flows)
            .map(|flow| near(flow, TcpFlags::SYN, 99, 0))
            .collect();
        let sent = pass(&mut *nf, 0, &syns).1;
        assert_eq!(sent.len(), flows, "{name}: every connection begins");
        let answers: Vec<FrameBytes> = sent
            .iter()
            .map(|syn| far(syn, TcpFlags(0x12), 899, 100))
            .collect();
        assert_eq!(pass(&mut *nf, 1, &answers).1.len(), flows);
        let out: Vec<FrameBytes> = (0..flows)
            .map(|flow| near(flow, TcpFlags::ACK, 100, 900))
            .collect();
        assert_eq!(pass(&mut *nf, 0, &out).1.len(), flows);
        let back: Vec<FrameBytes> = sent
            .iter()
            .map(|syn| far(syn, TcpFlags::ACK, 900, 100))
            .collect();
        for (direction, port, frames) in [("out", 0, &out), ("in", 1, &back)] {
            let mut times = Vec::new();
            for _ in 0..ROUNDS {
                let (spent, passed) = pass(&mut *nf, port, frames);
                assert_eq!(
                    passed.len(),
                    flows,
                    "{name} {direction}: every segment passes"
                );
                times.extend(spent);
            }
            times.sort_by(f64::total_cmp);
            println!(
                "{name:<9} {direction:<4} {:>6.1} ns",
                times[times.len() / 2]
            );
        }
    }
}

/// Passes all frames to the NF; returns the nanoseconds per frame of each batch, and the forwarded frames.
fn pass(
    nf: &mut dyn NetworkFunction,
    port: u8,
    frames: &[FrameBytes],
) -> (Vec<f64>, Vec<FrameBytes>) {
    let mut slots = vec![[0u8; SLOT_SIZE]; BATCH_MAX];
    let (mut times, mut sent) = (Vec::new(), Vec::with_capacity(frames.len()));
    let mut outbox = Collected::default();
    for chunk in frames.chunks(BATCH_MAX) {
        for (slot, frame) in slots.iter_mut().zip(chunk) {
            slot[..FRAME_LEN].copy_from_slice(frame);
        }
        let mut batch: ArrayVec<Frame<'_>, BATCH_MAX> = slots[..chunk.len()]
            .iter_mut()
            .map(|slot| Frame::new(slot, FRAME_LEN as u16, port))
            .collect();
        let start = Instant::now();
        nf.process(NOW, &mut Batch::new(&mut batch, &mut outbox));
        times.push(start.elapsed().as_nanos() as f64 / chunk.len() as f64);
        let passed = batch.iter().filter(|frame| frame.action() != Action::Drop);
        sent.extend(passed.map(|frame| <FrameBytes>::try_from(frame.bytes()).expect("60 bytes")));
    }
    (times, sent)
}

/// A segment of a flow's inside host: 100 hosts, the flows spread over their ports.
fn near(flow: usize, flags: TcpFlags, seq: u32, ack: u32) -> FrameBytes {
    let host = Ipv4Addr::new(10, 0, 0, 1 + (flow % 100) as u8);
    let peer = Ipv4Addr::new(192, 0, 2, (flow % 250) as u8);
    tcp(
        (host, 1024 + (flow / 100) as u16).into(),
        (peer, 443).into(),
        flags,
        seq,
        ack,
    )
}

/// A segment that answers a translated one.
fn far(frame: &FrameBytes, flags: TcpFlags, seq: u32, ack: u32) -> FrameBytes {
    let meta = PacketMeta::parse(frame).expect("a frame of ours");
    let (src, dst) = meta.addresses().expect("IPv4");
    tcp(
        (dst, meta.dst_port).into(),
        (src, meta.src_port).into(),
        flags,
        seq,
        ack,
    )
}

fn tcp(src: SocketAddr, dst: SocketAddr, flags: TcpFlags, seq: u32, ack: u32) -> FrameBytes {
    let mut frame = [0; FRAME_LEN];
    let segment = build::Frame::tcp(src, dst, flags).sequence(seq, ack);
    segment
        .write(&mut frame, &[])
        .expect("there is room for it");
    frame
}
