//! Nanoseconds of CPU time per packet of the router alone, no rings and no I/O: batches of 32 plain packets of
//! 64 bytes (60 without FCS) to random destinations, from 10 routes and from a million.
//!
//! ```text
//! cargo run --release -p nfluid-nf --features testing --example router_speed
//! ```

use arrayvec::ArrayVec;
use nfluid_nf::testing::{Collected, ports};
use nfluid_nf::{Nanos, NetworkFunction, catalogue};
use nfluid_ring::layout::{BATCH_MAX, SLOT_SIZE};
use nfluid_ring::{Action, Batch, Frame};
use nfluid_wire::{MacAddr, build};
use serde_json::json;
use std::fmt::Write as _;
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

const BATCH: usize = 32;
const FRAME: usize = 60;
/// The number of slots of a pair of rings: the packets' own cache misses are part of the cost.
const SLOTS: usize = 512;
const ROUNDS: usize = 9;
const PACKETS_PER_ROUND: usize = 2_000_000;

struct Xorshift(u64);

impl Xorshift {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// Route lines for the router and addresses that they cover.
struct Network {
    name: &'static str,
    routes: String,
    prefixes: Vec<(IpAddr, u32)>,
}

impl Network {
    /// A host in one of the prefixes.
    fn host(&self, random: &mut Xorshift) -> IpAddr {
        let (prefix, length) = self.prefixes[random.next() as usize % self.prefixes.len()];
        match prefix {
            IpAddr::V4(prefix) => {
                let host = random.next() as u32 & (u32::MAX >> length);
                Ipv4Addr::from_bits(prefix.to_bits() | host).into()
            }
            IpAddr::V6(prefix) => {
                let host = u128::from(random.next()) & (u128::MAX >> length);
                Ipv6Addr::from_bits(prefix.to_bits() | host).into()
            }
        }
    }
}

/// `count` prefixes with the lengths of the Internet's table: six in ten are /24.
fn ipv4(name: &'static str, count: usize, random: &mut Xorshift) -> Network {
    let mut seen = std::collections::HashSet::new();
    let mut routes = String::new();
    let mut prefixes = Vec::new();
    while seen.len() < count {
        let length = match random.next() % 100 {
            0..60 => 24,
            60..72 => 23,
            72..84 => 22,
            84..92 => 20,
            92..97 => 16,
            97 => 19,
            _ => 28,
        };
        let address =
            (random.next() as u32 % 0xc000_0000 + 0x0b00_0000) & (u32::MAX << (32 - length));
        let first = address >> 24;
        if matches!(first, 127 | 169 | 224..) || !seen.insert((address, length)) {
            continue;
        }
        let prefix = Ipv4Addr::from_bits(address);
        let gateway = 2 + random.next() % 4;
        let _ = writeln!(routes, "{prefix}/{length} via 10.0.1.{gateway} dev p1");
        prefixes.push((prefix.into(), length));
    }
    Network {
        name,
        routes,
        prefixes,
    }
}

fn ipv6(name: &'static str, count: usize, random: &mut Xorshift) -> Network {
    let mut seen = std::collections::HashSet::new();
    let mut routes = String::new();
    let mut prefixes = Vec::new();
    while seen.len() < count {
        let length = [48, 48, 48, 48, 32, 36, 40, 44][random.next() as usize % 8];
        let high = 0x2000_0000_0000_0000 | random.next() >> 3;
        let address = u128::from(high) << 64 & (u128::MAX << (128 - length));
        if !seen.insert((address, length)) {
            continue;
        }
        let prefix = Ipv6Addr::from_bits(address);
        let _ = writeln!(routes, "{prefix}/{length} via 2001:db8:1::2 dev p1");
        prefixes.push((prefix.into(), length));
    }
    Network {
        name,
        routes,
        prefixes,
    }
}

fn router(network: &Network) -> Box<dyn NetworkFunction> {
    let neighbours: Vec<_> = (2..6)
        .map(|i| json!({"port": "p1", "address": format!("10.0.1.{i}"), "mac": format!("02:aa:00:00:00:0{i}")}))
        .chain([json!({"port": "p1", "address": "2001:db8:1::2", "mac": "02:aa:00:00:00:06"})])
        .collect();
    let config = json!({
        "addresses": {"p0": ["10.0.0.1/24", "2001:db8::1/64"], "p1": ["10.0.1.1/24", "2001:db8:1::1/64"]},
        "routes_text": network.routes,
        "neighbours": neighbours,
    });
    catalogue::build("router", &config, &ports(2)).expect("a valid configuration")
}

fn frames(network: &Network, random: &mut Xorshift) -> Vec<[u8; FRAME]> {
    (0..1 << 20)
        .map(|_| {
            let to = network.host(random);
            let from: IpAddr = match to {
                IpAddr::V4(_) => Ipv4Addr::new(10, 0, 0, 9).into(),
                IpAddr::V6(_) => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 9).into(),
            };
            let mut frame = [0; FRAME];
            let description = build::Frame::ip(from, to, nfluid_wire::IpProtocol(253))
                .macs(MacAddr([2, 0xbb, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 0]));
            let payload = FRAME - description.header_len();
            description
                .write(&mut frame, &[0; 26][..payload])
                .expect("it fits");
            frame
        })
        .collect()
}

/// Time that this thread has spent on a CPU: what others do on a shared machine counts as little as
/// it can.
fn cpu_time() -> Duration {
    let statistics = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    let on_cpu = statistics
        .split(' ')
        .next()
        .and_then(|nanos| nanos.parse().ok());
    Duration::from_nanos(on_cpu.expect("the first field of schedstat"))
}

/// Median of the rounds in ns per packet, with and without copying the frames in.
fn measure(nf: &mut dyn NetworkFunction, frames: &[[u8; FRAME]]) -> (f64, f64) {
    let mut slots = vec![[0u8; SLOT_SIZE]; SLOTS];
    let mut both = Vec::new();
    let mut copy = Vec::new();
    for _ in 0..ROUNDS {
        both.push(round(Some(&mut *nf), frames, &mut slots));
        copy.push(round(None, frames, &mut slots));
    }
    let median = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    (median(both), median(copy))
}

fn round(
    mut nf: Option<&mut dyn NetworkFunction>,
    frames: &[[u8; FRAME]],
    slots: &mut [[u8; SLOT_SIZE]],
) -> f64 {
    let mut outbox = Collected::default();
    let mut sent = 0;
    let start = cpu_time();
    for number in 0..PACKETS_PER_ROUND / BATCH {
        let first = number * BATCH;
        let slots = &mut slots[first % SLOTS..][..BATCH];
        for (slot, frame) in slots.iter_mut().zip(&frames[first % frames.len()..]) {
            slot[..FRAME].copy_from_slice(frame);
        }
        let mut batch: ArrayVec<Frame<'_>, BATCH_MAX> = slots
            .iter_mut()
            .map(|slot| Frame::new(slot, FRAME as u16, 0))
            .collect();
        if let Some(nf) = &mut nf {
            nf.process(
                Nanos(number as u64),
                &mut Batch::new(&mut batch, &mut outbox),
            );
            sent += batch
                .iter()
                .filter(|frame| frame.action() == Action::Send(1))
                .count();
        }
        black_box(&mut batch);
    }
    let elapsed = cpu_time() - start;
    assert!(
        nf.is_none() || sent == PACKETS_PER_ROUND / BATCH * BATCH,
        "{sent} packets forwarded"
    );
    elapsed.as_secs_f64() * 1e9 / PACKETS_PER_ROUND as f64
}

fn main() {
    let mut random = Xorshift(0x5eed_1234_5678_9abc);
    println!(
        "router alone, {FRAME} B frames, batch {BATCH}, random destinations, median of {ROUNDS}"
    );
    let networks = [
        ipv4("IPv4, 10 routes", 10, &mut random),
        ipv4("IPv4, 1,000,000 routes", 1_000_000, &mut random),
        ipv6("IPv6, 10 routes", 10, &mut random),
        ipv6("IPv6, 200,000 routes", 200_000, &mut random),
    ];
    for network in networks {
        let start = Instant::now();
        let mut nf = router(&network);
        let loaded = start.elapsed();
        let frames = frames(&network, &mut random);
        let (both, copy) = measure(&mut *nf, &frames);
        let mut megabytes = 0.0;
        nf.metrics(&mut |metric| {
            if metric.name == "route_table_bytes" {
                megabytes = metric.value / 1e6;
            }
        });
        println!(
            "{:<24} {:6.1} ns/packet ({:.1} Mpps), copying the frame in {:.1} ns apart; table {megabytes:.1} MB, loaded in {} ms",
            network.name,
            both - copy,
            1e3 / (both - copy),
            copy,
            loaded.as_millis(),
        );
    }
}
