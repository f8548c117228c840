//! E5: four flows of iperf3 through a firewall of 50 rules, of which none matches, and DPI: iptables and `ndpiReader`,
//! against eFW and eDPI in one chain, with the same rules.

use super::inspected::{Rules, during};
use super::topology::{FRONT, PORTS, Topology};
use super::{library, reader};
use crate::host::cpu::require_two_cores;
use crate::report::Report;
use crate::sweep::{Quantity, Shown, Side, Sweep};
use anyhow::Context;
use nfluid_testbed::directory::ScratchDirectory;
use std::fmt::Write as _;
use std::time::Duration;

const RULES: u32 = 50;

const QUANTITIES: [Quantity; 1] = [Quantity::new(
    ".gbps",
    "Gbit/s",
    &[("Gbit/s", Shown::Median), ("spread", Shown::Spread)],
)];

/// The programs on the host: a firewall and DPI.
#[derive(Clone, Copy)]
enum Programs {
    /// iptables and ndpiReader.
    Kernel,
    /// eFW and eDPI.
    Evnf,
}

/// A host with rules.
struct Host {
    programs: Programs,
    topology: Topology,
}

impl Host {
    fn new(programs: Programs, directory: &ScratchDirectory) -> anyhow::Result<Self> {
        let (program, rules) = match programs {
            Programs::Kernel => ("iptables-restore", iptables()),
            Programs::Evnf => ("nft -f", nftables()),
        };
        let topology = Topology::new()?;
        let file = directory.path(programs.id());
        std::fs::write(&file, rules).context("writing the rules")?;
        topology
            .host
            .run(&format!("{program} {}", file.display()))?;
        Ok(Host { programs, topology })
    }

    /// Returns the throughput through the host, in Gbit/s.
    fn measure(&self, time: Duration) -> anyhow::Result<f64> {
        let topology = &self.topology;
        match self.programs {
            Programs::Kernel => {
                let _reader = reader::start(&topology.host, FRONT, time)?;
                topology.transfer(time)
            }
            Programs::Evnf => {
                let transfer = || topology.transfer(time);
                let (gbps, _) = during(topology, PORTS.len(), Rules::InForce, transfer)?;
                Ok(gbps)
            }
        }
    }
}

impl Programs {
    fn id(self) -> &'static str {
        match self {
            Programs::Kernel => "iptables",
            Programs::Evnf => "evnf",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Programs::Kernel => "iptables, ndpiReader",
            Programs::Evnf => "eFW, eDPI",
        }
    }
}

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    require_two_cores()?;
    library()?;
    let directory = ScratchDirectory::new()?;
    let (rounds, seconds) = report.effort((5, 4), (2, 2));
    let how = format!(
        "four flows of iperf3, {seconds} s a round, {RULES} rules, no offloads, the ends on the same two cores"
    );
    let side = |programs: Programs| {
        let host = Host::new(programs, &directory)?;
        let id = format!("e5.{}", programs.id());
        anyhow::Ok(Side::new([programs.name().to_owned()], id, host).under(&how))
    };
    let mut sides = [side(Programs::Kernel)?, side(Programs::Evnf)?];
    let mut sweep = Sweep::plain(&["between"], QUANTITIES);
    sweep.run(report, rounds, &mut sides, |host, _| {
        Ok([host.measure(Duration::from_secs(seconds))?])
    })?;
    sweep.report_all(report);
    sweep.print("four TCP flows through a firewall and DPI");
    if let [kernel, fast] = sweep.rows() {
        let ratio = fast.samples[0].ratios(&kernel.samples[0]);
        let how = format!("eFW and eDPI / iptables and ndpiReader; {how}");
        report.figure("e5.ratio", &ratio, "x", &how);
    }
    Ok(())
}

/// Returns network and port of a rule that matches no packet.
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

/// Returns the same rules for iptables.
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
