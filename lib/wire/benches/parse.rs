//! Nanoseconds per frame of the data path's functions, 18 bytes of payload: `cargo bench -p nfluid-wire`.
//!
//! Each line is the median of 15 rounds over 256 frames that fit the L1 cache, and the spread
//! from the fastest to the slowest round.

use std::hint::black_box;
use std::time::Instant;

use nfluid_wire::build::Frame;
use nfluid_wire::ipv4::Ipv4Packet;
use nfluid_wire::{HashSeed, PacketMeta, TcpFlags, VlanTag, checksum};

const FRAMES: usize = 256;
const SLOT: usize = 128;
const PASSES: usize = 400;
const ROUNDS: usize = 15;

/// `FRAMES` frames from `make(i)`, with their length.
fn frames(make: impl Fn(u8) -> Frame<'static>) -> Vec<(usize, [u8; SLOT])> {
    let one = |index: usize| {
        let mut slot = [0; SLOT];
        let len = make(index as u8).write(&mut slot, &[index as u8; 18]);
        (len.expect("the slot has room"), slot)
    };
    (0..FRAMES).map(one).collect()
}

fn measure(name: &str, frames: &mut [(usize, [u8; SLOT])], mut each: impl FnMut(&mut [u8]) -> u64) {
    let mut rounds = [0.0; ROUNDS];
    for round in &mut rounds {
        let start = Instant::now();
        for _ in 0..PASSES {
            for (len, frame) in &mut *frames {
                black_box(each(&mut frame[..*len]));
            }
        }
        *round = start.elapsed().as_nanos() as f64 / (PASSES * FRAMES) as f64;
    }
    rounds.sort_by(f64::total_cmp);
    let (low, median, high) = (rounds[0], rounds[ROUNDS / 2], rounds[ROUNDS - 1]);
    println!("{name:<28} {median:6.2} ns/frame ({low:.2} - {high:.2})");
}

fn parse(frame: &mut [u8]) -> u64 {
    let parsed = PacketMeta::parse(frame);
    black_box(&parsed).is_ok().into()
}

fn main() {
    let v4 = |i: u8| (([10, 0, 0, i], 1000).into(), ([10, 1, i, 1], 53).into());
    let v6 = |i: u8| {
        let address = |host| [0x2001, 0xdb8, 0, 0, 0, 0, 0, host];
        ((address(i.into()), 1000).into(), (address(1), 53).into())
    };
    let tags: &'static [VlanTag] = const { &[VlanTag::new(7)] };
    let udp4 = |i| Frame::udp(v4(i).0, v4(i).1);
    let mut udp4_frames = frames(udp4);

    measure("parse ipv4/udp", &mut udp4_frames, parse);
    measure(
        "parse ipv4/tcp",
        &mut frames(|i| Frame::tcp(v4(i).0, v4(i).1, TcpFlags::ACK)),
        parse,
    );
    measure(
        "parse vlan/ipv4/udp",
        &mut frames(|i| udp4(i).vlans(tags)),
        parse,
    );
    measure(
        "parse ipv6/udp",
        &mut frames(|i| Frame::udp(v6(i).0, v6(i).1)),
        parse,
    );
    measure("parse + key + hash", &mut udp4_frames, |frame| {
        let seed = black_box(HashSeed::new(1));
        let key = PacketMeta::parse(frame)
            .ok()
            .and_then(|meta| meta.flow_key());
        key.map_or(0, |key| key.flow_hash(seed))
    });
    measure("sum of 64 bytes", &mut udp4_frames, |frame| {
        checksum::sum(frame).into()
    });
    measure("decrement ttl", &mut udp4_frames, |frame| {
        let mut packet = Ipv4Packet::new_unchecked(&mut frame[14..]);
        if packet.decrement_ttl().is_none() {
            packet.set_ttl(255);
        }
        0
    });
}
