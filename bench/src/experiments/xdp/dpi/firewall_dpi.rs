//! E5: four flows of iperf3 through a firewall of 50 rules, of which none matches, and DPI: iptables and `ndpiReader`, against eFW
//! and eDPI in one chain, with the same rules.

use super::inspected::{Rules, during};
use super::topology::{FRONT, PORTS, Topology};
use super::{library, reader};
use crate::host::cpu::require_two_cores;
use crate::report::{Report, significant, table};
use anyhow::Context;
use nfluid_figures::statistics::Samples;
use nfluid_testbed::directory::ScratchDirectory;
use nfluid_testbed::interrupt;
use std::fmt::Write as _;
use std::time::Duration;

const RULES: u32 = 50;

/// A host with rules, and what arrives through it.
struct Side {
    id: &'static str,
    name: &'static str,
    topology: Topology,
    gbps: Samples,
}

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    require_two_cores()?;
    library()?;
    let directory = ScratchDirectory::new()?;
    let side = |id, name, program: &str, rules: String| {
        let topology = Topology::new()?;
        let file = directory.path(id);
        std::fs::write(&file, rules).context("writing the rules")?;
        topology
            .host
            .run(&format!("{program} {}", file.display()))?;
        anyhow::Ok(Side {
            id,
            name,
            topology,
            gbps: Samples::default(),
        })
    };
    let mut kernel = side(
        "iptables",
        "iptables, ndpiReader",
        "iptables-restore",
        iptables(),
    )?;
    let mut fast = side("evnf", "eFW, eDPI", "nft -f", nftables())?;
    let (rounds, seconds) = report.effort((5, 4), (2, 2));
    let time = Duration::from_secs(seconds);
    for _ in 0..rounds {
        interrupt::check()?;
        let reader = reader::start(&kernel.topology.host, FRONT, time)?;
        kernel.gbps.push(kernel.topology.transfer(time)?);
        drop(reader);
        let all = PORTS.len();
        let topology = &fast.topology;
        let (gbps, _) = during(topology, all, Rules::InForce, || topology.transfer(time))?;
        fast.gbps.push(gbps);
    }
    let how = format!(
        "four flows of iperf3, {seconds} s a round, {RULES} rules, no offloads, the ends on the same two cores"
    );
    let mut rows = Vec::new();
    for side in [&kernel, &fast] {
        report.figure(format!("e5.{}.gbps", side.id), &side.gbps, "Gbit/s", &how);
        rows.push(vec![
            side.name.to_owned(),
            significant(side.gbps.median()),
            format!("{:.0} %", side.gbps.spread_percent()),
        ]);
    }
    table(
        "four TCP flows through a firewall and DPI",
        &["between", "Gbit/s", "spread"],
        &rows,
    );
    let pairs = fast.gbps.values().iter().zip(kernel.gbps.values());
    let ratio: Samples = pairs.map(|(fast, kernel)| fast / kernel).collect();
    let how = format!("eFW and eDPI / iptables and ndpiReader; {how}");
    report.figure("e5.ratio", &ratio, "x", &how);
    Ok(())
}

/// Network and port of a rule; no packet is for them.
fn rule(number: u32) -> (String, u32) {
    (format!("10.99.{number}.0/24"), 1000 + number)
}

fn nftables() -> String {
    let mut text = String::from(
        "table inet bench {\nchain forward { type filter hook forward priority 0; policy accept;\n",
    );
    for number in 0..RULES {
        let (network, port) = rule(number);
        let _infallible = writeln!(text, "ip daddr {network} tcp dport {port} drop");
    }
    text + "}\n}\n"
}

/// The same for iptables.
fn iptables() -> String {
    let mut text = String::from("*filter\n");
    for number in 0..RULES {
        let (network, port) = rule(number);
        let _infallible = writeln!(
            text,
            "-A FORWARD -d {network} -p tcp --dport {port} -j DROP"
        );
    }
    text + "COMMIT\n"
}

#[cfg(test)]
mod tests {
    use super::{RULES, iptables, nftables};

    #[test]
    fn both_firewalls_have_as_many_rules() {
        let count = |text: String, end: &str| text.lines().filter(|l| l.ends_with(end)).count();
        assert_eq!(count(nftables(), " drop"), RULES as usize);
        assert_eq!(count(iptables(), " DROP"), RULES as usize);
    }
}
