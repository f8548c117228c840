//! eFW's fast path by `BPF_PROG_TEST_RUN`: a packet of a flow that it knows, and the first of one that it does not, by the number
//! of rules.

use crate::report::{Report, significant, table};
use crate::statistics::Samples;
use nfluid_evnf::firewall::{Family, Firewall, Pattern, Prefix, Rule, Stage, Traffic, Verdict};
use nfluid_evnf::load::{Action, Run};
use nfluid_wire::TcpFlags;
use nfluid_wire::build::Frame;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

const TCP: u8 = 6;
/// Masks of the rules: bits of source, destination, and whether the destination port counts.
const SHAPES: [(u8, u8, bool); 5] = [
    (24, 0, false),
    (0, 24, true),
    (24, 24, true),
    (32, 0, false),
    (32, 32, true),
];
/// The literature's firewall; the target; and beyond.
const RULES: [u32; 4] = [10, 100, 1000, 10_000];

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    let (rounds, repeat) = report.effort((101, 1_000_000), (11, 200_000));
    let mut firewalls = Vec::new();
    for rules in RULES {
        let stage = Stage {
            traffic: Traffic::All,
            rules: (0..rules).map(rule).collect(),
        };
        firewalls.push(Firewall::load(&[stage], &[])?);
    }
    let mut known = RULES.map(|_| Samples::default());
    let mut dropped = RULES.map(|_| Samples::default());
    let mut new = RULES.map(|_| Samples::default());
    for round in 0..rounds {
        for (lane, firewall) in firewalls.iter_mut().enumerate() {
            let accepted = packet(Ipv4Addr::new(172, 16, 0, 1), round as u16);
            let Run { action, ns, .. } = firewall.fast().test_run(&accepted, repeat)?;
            anyhow::ensure!(
                action == Action::Pass,
                "a packet that no rule matches was dropped"
            );
            known[lane].push(f64::from(ns));
            // The last rule of the first shape.
            let last = (RULES[lane] - 1) / SHAPES.len() as u32 * SHAPES.len() as u32;
            let refused = packet(source(last), round as u16);
            let Run { action, ns, .. } = firewall.fast().test_run(&refused, repeat)?;
            anyhow::ensure!(
                action == Action::Drop,
                "a packet that rule {last} matches has passed"
            );
            dropped[lane].push(f64::from(ns));
            // Every packet is the first of a flow.
            let mut each = Samples::default();
            for port in 0..500 {
                let address = Ipv4Addr::from_bits(0xac11_0000 + round as u32);
                let run = firewall.fast().test_run(&packet(address, port), 1)?;
                each.push(f64::from(run.ns));
            }
            new[lane].push(each.median());
        }
    }
    let mut rows = Vec::new();
    for (lane, rules) in RULES.into_iter().enumerate() {
        let how = "one core, BPF_PROG_TEST_RUN, TCP over IPv4";
        report.figure(format!("efw.{rules}.ns"), &known[lane], "ns/packet", how);
        report.figure(
            format!("efw.{rules}.drop_ns"),
            &dropped[lane],
            "ns/packet",
            how,
        );
        report.figure(
            format!("efw.{rules}.new_flow_ns"),
            &new[lane],
            "ns/packet",
            how,
        );
        rows.push(vec![
            rules.to_string(),
            significant(known[lane].median()),
            significant(dropped[lane].median()),
            significant(new[lane].median()),
        ]);
    }
    table(
        "eFW, ns per packet",
        &[
            "rules",
            "known flow, accepted",
            "known flow, dropped",
            "new flow",
        ],
        &rows,
    );
    Ok(())
}

/// Rule `number`: each drops what another network or host sends.
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
