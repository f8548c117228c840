//! Time of the firewall per packet: `cargo run --release -p nfluid-nf --example firewall_speed [ROUNDS]`.
//!
//! Rule lists like those of ClassBench (Taylor and Turner, 2005): nested prefixes, exact ports,
//! ranges and wildcards; half of the 64-byte frames are drawn from inside of random rules, half at
//! random, so that a third to a half of them reach the end of the list. The time covers
//! everything between the rings: making the batch, parsing, evaluating, counting. The median of the
//! batches of all rounds is printed.

use arrayvec::ArrayVec;
use nfluid_nf::firewall::ruleset::{Engine, Ruleset};
use nfluid_nf::firewall::{self, packet, parse};
use nfluid_nf::testing::{Collected, ports};
use nfluid_nf::{Nanos, NetworkFunction};
use nfluid_ring::layout::BATCH_MAX;
use nfluid_ring::{Batch, Frame};
use nfluid_wire::{PacketMeta, TcpFlags, build};
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Instant;

/// A linear congruential generator: the same rules and frames in every run.
struct Lcg(u64);

impl Lcg {
    fn next(&mut self) -> u32 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as u32
    }

    fn below(&mut self, n: u32) -> u32 {
        self.next() % n
    }
}

/// A rule as text, and a packet that it matches.
struct Generated {
    text: String,
    inside: SocketPair,
}

type SocketPair = (u8, SocketAddr, SocketAddr);

fn prefix(random: &mut Lcg, v6: bool, lengths: &[u32]) -> (String, IpAddr) {
    let len = lengths[random.below(lengths.len() as u32) as usize];
    // Sites have 16 networks and each of them 256 subnets: prefixes nest, as in real lists.
    let address = (10 << 24) | random.below(16) << 20 | random.next() & 0xf_ffff;
    if v6 {
        let len = if len == 0 { 0 } else { len + 32 };
        let site = u128::from(0x2001_0db8_u32) << 96 | u128::from(address) << 64;
        let host = site | u128::from(random.next());
        let net = if len == 0 {
            0
        } else {
            host >> (128 - len) << (128 - len)
        };
        (
            format!("{}/{len}", Ipv6Addr::from(net)),
            Ipv6Addr::from(host).into(),
        )
    } else {
        let net = if len == 0 {
            0
        } else {
            address >> (32 - len) << (32 - len)
        };
        (
            format!("{}/{len}", Ipv4Addr::from(net)),
            Ipv4Addr::from(address).into(),
        )
    }
}

/// A source in eight is "any".
fn source_lengths(random: &mut Lcg) -> &'static [u32] {
    if random.below(8) == 0 {
        &[0]
    } else {
        &[16, 20, 24, 28, 32]
    }
}

fn rule(random: &mut Lcg, v6: bool) -> Generated {
    let (protocol, number) =
        [("tcp", 6), ("tcp", 6), ("tcp", 6), ("udp", 17)][random.below(4) as usize];
    let lengths = source_lengths(random);
    let (from, src) = prefix(random, v6, lengths);
    let (to, dst) = prefix(random, v6, &[16, 20, 24, 28, 32, 32]);
    let (ports, port) = match random.below(10) {
        0..=5 => {
            let port = [
                22, 25, 53, 80, 110, 123, 143, 443, 993, 1433, 3306, 5060, 8080,
            ][random.below(13) as usize];
            (format!(" {port}"), port)
        }
        6 => (" 1024-65535".into(), 1024 + random.below(64_000)),
        7 => {
            let low = random.below(60_000);
            let width = random.below(1000);
            (
                format!(" {low}-{}", low + width),
                low + random.below(width + 1),
            )
        }
        _ => (String::new(), random.below(65_536)),
    };
    let action = ["allow", "deny"][random.below(2) as usize];
    Generated {
        text: format!("{action} {protocol} from {from} to {to}{ports}\n"),
        inside: (
            number,
            SocketAddr::new(src, 1024 + random.below(60_000) as u16),
            SocketAddr::new(dst, port as u16),
        ),
    }
}

fn frames(random: &mut Lcg, rules: &[Generated], v6: bool, flows: usize) -> Vec<[u8; 128]> {
    let outside = |random: &mut Lcg| rule(random, v6).inside;
    (0..flows)
        .map(|flow| {
            let (protocol, from, to) = if flow % 2 == 0 && !rules.is_empty() {
                rules[random.below(rules.len() as u32) as usize].inside
            } else {
                outside(random)
            };
            let frame = match protocol {
                6 => build::Frame::tcp(from, to, TcpFlags::ACK),
                _ => build::Frame::udp(from, to),
            };
            let mut buffer = [0; 128];
            frame.write(&mut buffer, &[]).expect("fits");
            buffer
        })
        .collect()
}

/// Nanoseconds per packet of each batch of one pass over all frames.
fn pass(nf: &mut dyn NetworkFunction, frames: &mut [[u8; 128]], len: u16) -> Vec<f64> {
    let mut made = Collected::default();
    let mut one_batch = |chunk: &mut [[u8; 128]]| {
        let packets = chunk.len() as f64;
        let begin = Instant::now();
        let mut batch: ArrayVec<Frame<'_>, BATCH_MAX> = chunk
            .iter_mut()
            .map(|slot| Frame::new(slot, len, 0))
            .collect();
        nf.process(Nanos(1), &mut Batch::new(&mut batch, &mut made));
        black_box(&batch);
        begin.elapsed().as_nanos() as f64 / packets
    };
    frames.chunks_mut(BATCH_MAX).map(&mut one_batch).collect()
}

/// Batches that were interrupted by other work do not count.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn whole_firewall(count: usize, v6: bool, flows: usize, rounds: usize, prologue: &str) -> f64 {
    let mut random = Lcg(count as u64);
    let rules: Vec<Generated> = (0..count).map(|_| rule(&mut random, v6)).collect();
    let text: String = std::iter::once(prologue)
        .chain(rules.iter().map(|r| r.text.as_str()))
        .collect();
    let mut frames = frames(&mut random, &rules, v6, flows);
    let config = serde_json::json!({"rules": text, "default": "allow"});
    let mut nf = firewall::build(&config, &ports(2)).expect("valid rules");
    let len = if v6 { 74 } else { 60 };
    pass(&mut *nf, &mut frames, len);
    median(
        (0..rounds)
            .flat_map(|_| pass(&mut *nf, &mut frames, len))
            .collect(),
    )
}

/// Nanoseconds per look-up alone, by engine.
fn lookup(count: usize, engine: Engine, rounds: usize) -> f64 {
    let mut random = Lcg(count as u64);
    let generated: Vec<Generated> = (0..count).map(|_| rule(&mut random, false)).collect();
    let text: String = generated.iter().map(|r| r.text.as_str()).collect();
    let frames = frames(&mut random, &generated, false, 1024);
    lookup_in(&text, &frames, engine, rounds)
}

/// The worst list for the classifier: every other rule admits the packets on one axis, the rest on
/// another, none on both, so that no summary helps.
fn lookup_worst(count: usize, rounds: usize) -> f64 {
    let text = "deny udp from any to any 1\ndeny udp from 1.2.3.4 to any\n".repeat(count / 2);
    let from = SocketAddr::new(Ipv4Addr::new(10, 0, 0, 1).into(), 1000);
    let to = SocketAddr::new(Ipv4Addr::new(10, 0, 0, 2).into(), 2);
    let mut frame = [0; 128];
    build::Frame::udp(from, to)
        .write(&mut frame, &[])
        .expect("fits");
    lookup_in(&text, &[frame; 64], Engine::Classifier, rounds)
}

fn lookup_in(text: &str, frames: &[[u8; 128]], engine: Engine, rounds: usize) -> f64 {
    let names = ["p0".into(), "p1".into()];
    let rules = parse::rules(text, "rules", &mut parse::Context::new(&names)).expect("valid");
    let ruleset = Ruleset::with_engine(rules, engine);
    let packets: Vec<packet::Packet> = frames
        .iter()
        .filter_map(|frame| packet::Packet::new(&PacketMeta::parse(&frame[..60]).ok()?, 0))
        .collect();
    let pass = |_| {
        packets.chunks(BATCH_MAX).map(|batch| {
            let begin = Instant::now();
            for packet in batch {
                black_box(ruleset.first_match(packet, 0));
            }
            begin.elapsed().as_nanos() as f64 / batch.len() as f64
        })
    };
    median((0..rounds).flat_map(pass).collect())
}

fn main() {
    let rounds = std::env::args()
        .nth(1)
        .and_then(|n| n.parse().ok())
        .unwrap_or(31);
    println!("whole firewall, ns per packet (Mpps)");
    println!(
        "{:>7} {:>16} {:>16} {:>16} {:>16}",
        "rules", "v4 1k flows", "v4 64k flows", "v6 1k flows", "v4 + states"
    );
    for count in [0, 10, 50, 200, 1000, 10_000] {
        let shown = |ns: f64| format!("{ns:.1} ({:.1})", 1e3 / ns);
        println!(
            "{count:>7} {:>16} {:>16} {:>16} {:>16}",
            shown(whole_firewall(count, false, 1024, rounds, "")),
            shown(whole_firewall(count, false, 65_536, rounds.min(9), "")),
            shown(whole_firewall(count, true, 1024, rounds, "")),
            shown(whole_firewall(
                count,
                false,
                1024,
                rounds,
                "check-state\nallow ip from any to any keep-state\n"
            )),
        );
    }
    println!("look-up alone, ns per packet");
    println!(
        "{:>7} {:>10} {:>10} {:>10} {:>10}",
        "rules", "reference", "linear", "classifier", "worst list"
    );
    for count in [2, 10, 24, 50, 64, 100, 1000, 10_000] {
        println!(
            "{count:>7} {:>10.1} {:>10.1} {:>10.1} {:>10.1}",
            lookup(count, Engine::Reference, rounds.min(9)),
            lookup(count, Engine::Linear, rounds),
            lookup(count, Engine::Classifier, rounds),
            lookup_worst(count, rounds),
        );
    }
}
