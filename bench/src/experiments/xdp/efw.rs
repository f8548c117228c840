//! eFW's fast path by `BPF_PROG_TEST_RUN`: a packet of a known flow, and the first packet of an unknown flow, by the
//! number of rules.

use crate::report::Report;
use crate::sweep::{Quantity, Shown, Side, Sweep};
use nfluid_evnf::firewall::{Family, Firewall, Pattern, Prefix, Rule, Stage, Traffic, Verdict};
use nfluid_evnf::load::{Action, Run};
use nfluid_figures::statistics::Samples;
use nfluid_wire::TcpFlags;
use nfluid_wire::build::Frame;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

const TCP: u8 = 6;
/// Masks of the rules: bits of source and destination, and true if the destination port counts.
const SHAPES: [(u8, u8, bool); 5] = [
    (24, 0, false),
    (0, 24, true),
    (24, 24, true),
    (32, 0, false),
    (32, 32, true),
];
/// Numbers of rules: the literature's firewall, the target, and beyond.
const RULES: [u32; 4] = [10, 100, 1000, 10_000];

/// Nanoseconds per packet, in the order of [`UnderTest::measure`].
const QUANTITIES: [Quantity; 3] = [
    Quantity::new(
        ".ns",
        "ns/packet",
        &[("known flow, accepted", Shown::Median)],
    ),
    Quantity::new(
        ".drop_ns",
        "ns/packet",
        &[("known flow, dropped", Shown::Median)],
    ),
    Quantity::new(".new_flow_ns", "ns/packet", &[("new flow", Shown::Median)]),
];

/// A firewall with a number of rules, and the number of its measured rounds.
struct UnderTest {
    rules: u32,
    firewall: Firewall,
    rounds: u16,
}

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    let (rounds, repeat) = report.effort((101, 1_000_000), (11, 200_000));
    let mut sides = Vec::new();
    for rules in RULES {
        let stage = Stage {
            traffic: Traffic::All,
            rules: (0..rules).map(rule).collect(),
        };
        let under_test = UnderTest {
            rules,
            firewall: Firewall::load(&[stage], &[])?,
            rounds: 0,
        };
        let how = "one core, BPF_PROG_TEST_RUN, TCP over IPv4";
        let key = [rules.to_string()];
        sides.push(Side::new(key, format!("efw.{rules}"), under_test).under(how));
    }
    let mut sweep = Sweep::new(&["rules"], QUANTITIES);
    sweep.settles = false;
    let rows = sweep.run(report, rounds, &mut sides, |under_test, _| {
        under_test.measure(repeat)
    })?;
    sweep.report(report, rows);
    sweep.print("eFW, ns per packet");
    Ok(())
}

impl UnderTest {
    fn measure(&mut self, repeat: u32) -> anyhow::Result<[f64; 3]> {
        let round = self.rounds;
        self.rounds += 1;
        let accepted = packet(Ipv4Addr::new(172, 16, 0, 1), round);
        let Run { action, ns, .. } = self.firewall.fast().test_run(&accepted, repeat)?;
        anyhow::ensure!(
            action == Action::Pass,
            "a packet that no rule matches was dropped"
        );
        let known = f64::from(ns);
        // The last rule of the first shape.
        let last = (self.rules - 1) / SHAPES.len() as u32 * SHAPES.len() as u32;
        let refused = packet(source(last), round);
        let Run { action, ns, .. } = self.firewall.fast().test_run(&refused, repeat)?;
        anyhow::ensure!(
            action == Action::Drop,
            "a packet that rule {last} matches has passed"
        );
        let dropped = f64::from(ns);
        // Every packet is the first of a flow.
        let mut each = Samples::default();
        for port in 0..500 {
            let address = Ipv4Addr::from_bits(0xac11_0000 + u32::from(round));
            let run = self.firewall.fast().test_run(&packet(address, port), 1)?;
            each.push(f64::from(run.ns));
        }
        Ok([known, dropped, each.median()])
    }
}

/// Returns rule `number`: each drops packets of another network or host.
fn rule(number: u32) -> Rule {
    let (src, dst, port) = SHAPES[number as usize % SHAPES.len()];
    let prefix = |address: Ipv4Addr, len| Prefix::of_address(IpAddr::V4(address), len);
    let dport = Prefix {
        bits: u128::from(number as u16) << 112,
        len: 16,
    };
    Rule {
        patterns: vec![Pattern {
            src: prefix(source(number), src),
            dst: prefix(Ipv4Addr::from_bits(0xc000_0000 + (number << 8)), dst),
            proto: Some(TCP),
            dport: if port { dport } else { Prefix::default() },
            ports: port,
            ..Pattern::any(Family::V4)
        }],
        verdict: Verdict::Drop,
    }
}

fn source(number: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x0a00_0000 + (number << 8) + 1)
}

fn packet(source: Ipv4Addr, port: u16) -> Vec<u8> {
    let from = SocketAddr::from((source, port));
    let to = SocketAddr::from((Ipv4Addr::new(198, 51, 100, 1), 443));
    let mut buffer = [0; 128];
    let written = Frame::tcp(from, to, TcpFlags::ACK).write(&mut buffer, &[0; 10]);
    buffer[..written.expect("it fits")].to_vec()
}
