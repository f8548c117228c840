//! RED_4: two TCP flows through two NFs on one core, whose packets cost 1:1, 1:4 and 1:16 (Sharing CPUs by congestion
//! control, KBNets '17, simulated there). Compared: no signals, RED_4 MQ by thresholds, and the self-tuning law; reno
//! and cubic, with ECN and with drops.
//!
//! Every instance has its own cgroup, and cgroups of equal weight alone give each flow its half of the core: two
//! instances cannot share a cgroup, so the paper's unfairness cannot occur. The benefit of signals here is therefore
//! not the halves but the queues in the rings (round trip times) and the losses: both are reported beside the shares.
//!
//! Uses the daemon that users run, its meter, controller and switch; iperf3 in network namespaces. The NFs have one
//! core to themselves, the TCP ends the other.

mod counters;
mod ends;
mod flow;
pub mod mptcp;
pub mod refusal;
mod sockets;

use crate::host::cpu::require_two_cores;
use crate::host::platform;
use crate::report::Report;
use crate::sweep::{Quantity, Row, Shown, Side, Sweep};
use counters::{Counters, Moment};
use ends::{Ends, OF_ENDS, OF_NFS};
use nfluid_testbed::namespace::Namespace;
use nfluid_testbed::platform::Platform;
use std::time::Duration;

/// Signatures per frame of the cheap NF: about 10 us, so that the NFs' core is full long before that of the TCP ends.
const ROUNDS: u32 = 900;
const RATIOS: [u32; 3] = [1, 4, 16];
/// The two flows: their NFs, and their number in addresses.
const FLOWS: [(&str, u8); 2] = [("cheap", 1), ("dear", 2)];
const NFS: [&str; 2] = [FLOWS[0].0, FLOWS[1].0];

/// The signals that senders get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Signals {
    /// No signals: only full rings drop.
    Off,
    /// RED_4 MQ by the thresholds of the guide's example.
    Thresholds,
    /// The self-tuning law of `congestion: on`.
    SelfTuning,
}

const SIGNALS: [Signals; 3] = [Signals::Off, Signals::Thresholds, Signals::SelfTuning];

impl Signals {
    fn id(self) -> &'static str {
        match self {
            Signals::Off => "off",
            Signals::Thresholds => "red4",
            Signals::SelfTuning => "self_tuning",
        }
    }

    fn deployed(self) -> &'static str {
        match self {
            Signals::Off => "",
            Signals::Thresholds => "congestion: { law: red4, min: 64, max: 256 }\n",
            Signals::SelfTuning => "congestion: on\n",
        }
    }
}

/// A compared setting.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Setting {
    ratio: u32,
    control: &'static str,
    ecn: bool,
    signals: Signals,
}

/// The quantities of a setting: the distance of the flows' CPU time from equal is in percent of an equal part.
const QUANTITIES: [Quantity; 12] = [
    Quantity::new(
        ".unfairness_percent",
        "%",
        &[("CPU: from equal %", Shown::Median)],
    )
    .meaning("CPU time of the flows' NFs, distance from equal"),
    Quantity::new(".cpu_percent", "%", &[("CPU used %", Shown::Median)])
        .meaning("of the core, both NFs"),
    Quantity::new(".cheap.cpu_percent", "%", &[]).meaning("of the core"),
    Quantity::new(".dear.cpu_percent", "%", &[]).meaning("of the core"),
    Quantity::new(".cheap.mbps", "Mbit/s", &[("Mbit/s: cheap", Shown::Median)])
        .meaning("frames into the NF"),
    Quantity::new(".dear.mbps", "Mbit/s", &[("dear", Shown::Median)]).meaning("frames into the NF"),
    Quantity::new(".cheap.rtt_us", "us", &[("RTT us: cheap", Shown::Median)]).meaning(OF_SENDER),
    Quantity::new(".dear.rtt_us", "us", &[("dear", Shown::Median)]).meaning(OF_SENDER),
    Quantity::new(
        ".cheap.retransmits",
        "/s",
        &[("sent again /s: cheap", Shown::Median)],
    )
    .meaning("segments sent again"),
    Quantity::new(".dear.retransmits", "/s", &[("dear", Shown::Median)])
        .meaning("segments sent again"),
    Quantity::new(".lost_percent", "%", &[("lost %", Shown::Median)])
        .meaning("of the frames for the NFs"),
    Quantity::new(".marked_percent", "%", &[("marked %", Shown::Median)])
        .meaning("of the frames for the NFs"),
];
const UNFAIRNESS: usize = 0;
const RTT: [usize; 2] = [6, 7];
const LOST: usize = 10;
const OF_SENDER: &str = "as the sender's kernel sees it";

/// Measuring time of a variant, and the time before it, because flows start slowly.
#[derive(Clone, Copy)]
struct Times {
    settle: Duration,
    measured: Duration,
}

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    require_two_cores()?;
    let outside = Namespace::new()?;
    let ends = FLOWS
        .iter()
        .map(|(_, flow)| Ends::new(&outside, *flow))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let platform = platform::start()?;
    let _servers = ends
        .iter()
        .map(Ends::serve)
        .collect::<anyhow::Result<Vec<_>>>()?;
    let (rounds, settle, measured) = report.effort((3, 2, 8), (1, 1, 1));
    let times = Times {
        settle: Duration::from_secs(settle),
        measured: Duration::from_secs(measured),
    };
    let mut sides: Vec<_> = settings(report).into_iter().map(Setting::side).collect();
    let mut sweep = Sweep::plain(&["cost", "control", "ECN", "signals"], QUANTITIES);
    sweep.run(report, rounds, &mut sides, |setting, _| {
        measure(*setting, &platform, &outside, &ends, times)
    })?;
    sweep.print("Two TCP flows through two NFs on one core");
    sweep.report_all(report);
    let settings = sides.iter().map(|side| side.subject);
    let found: Vec<_> = settings.zip(sweep.rows()).collect();
    summary(report, &found);
    Ok(())
}

fn settings(report: &Report) -> Vec<Setting> {
    let ratios = report.choose(RATIOS.to_vec(), vec![16]);
    let controls = report.choose(vec!["reno", "cubic"], vec!["cubic"]);
    let ecn = report.choose(vec![true, false], vec![true]);
    let mut all = Vec::new();
    for ratio in ratios {
        for control in &controls {
            for ecn in &ecn {
                all.extend(SIGNALS.map(|signals| Setting {
                    ratio,
                    control,
                    ecn: *ecn,
                    signals,
                }));
            }
        }
    }
    all
}

/// Hands in the figures that compare variants, at costs 1:16.
fn summary(report: &mut Report, found: &[(Setting, &Row<12>)]) {
    let tuned = found
        .iter()
        .filter(|(setting, _)| setting.is_tuned() && setting.ratio == 16);
    let unfairness = |row: &Row<12>| row.samples[UNFAIRNESS].median();
    let worst = tuned.max_by(|(_, a), (_, b)| unfairness(a).total_cmp(&unfairness(b)));
    if let Some((setting, row)) = worst {
        let conditions = format!(
            "costs 1:16, signals on (self-tuning), the worst of all ways: {}; cgroups of equal weight alone give about the same",
            setting.words()
        );
        let id = "red4.16.unfairness_percent";
        report.figure(id, &row.samples[UNFAIRNESS], "%", &conditions);
    }
    for (signals, ending) in [
        (Signals::Off, "_off"),
        (Signals::Thresholds, "_red4"),
        (Signals::SelfTuning, ""),
    ] {
        let wanted = Setting {
            ratio: 16,
            control: "cubic",
            ecn: true,
            signals,
        };
        let Some((_, row)) = found.iter().find(|(setting, _)| *setting == wanted) else {
            continue;
        };
        let words = format!("costs 1:16, {}", wanted.words());
        let [cheap, dear] = RTT.map(|flow| row.samples[flow].median());
        let slower = usize::from(dear > cheap);
        let which = FLOWS[slower].0;
        report.figure(
            format!("red4.16.delay{ending}_us"),
            &row.samples[RTT[slower]],
            "us",
            &format!("round trip time as the sender's kernel sees it, of the flow that waits longer ({which}); {words}"),
        );
        let lost = match signals {
            Signals::SelfTuning => "lost_on".to_owned(),
            _ => format!("lost{ending}"),
        };
        report.figure(
            format!("red4.16.{lost}"),
            &row.samples[LOST],
            "%",
            &format!("of the frames for both NFs; {words}"),
        );
    }
}

impl Setting {
    fn side(self) -> Side<Self> {
        let Setting {
            ratio,
            control,
            ecn,
            signals,
        } = self;
        let cost = format!("1:{ratio}");
        let marks = if ecn { "on" } else { "off" };
        let key = [&*cost, control, marks, signals.id()];
        let ecn = if ecn { "ecn" } else { "no_ecn" };
        let id = format!("red4.{ratio}.{control}.{ecn}.{}", signals.id());
        let conditions = format!(
            "costs 1:{ratio}, {}; NFs on core {OF_NFS}, TCP's ends on core {OF_ENDS}",
            self.words()
        );
        Side::new(key.map(str::to_owned), id, self).under(&conditions)
    }

    /// As users have it who ask for signals.
    fn is_tuned(self) -> bool {
        self.signals == Signals::SelfTuning
    }

    fn words(self) -> String {
        let how = match (self.signals, self.ecn) {
            (Signals::Off, _) => "a full ring alone",
            (Signals::Thresholds, true) => "RED_4 MQ by thresholds, ECN marks",
            (Signals::Thresholds, false) => "RED_4 MQ by thresholds, drops",
            (Signals::SelfTuning, true) => "self-tuning, ECN marks",
            (Signals::SelfTuning, false) => "self-tuning, drops",
        };
        let ecn = if self.ecn { "" } else { ", ECN off" };
        format!("{}{ecn}, signals: {how}", self.control)
    }

    /// Returns the deployment. Rings are long: TCP fills any ring.
    fn deployment(self, namespace: &str) -> String {
        let (mut uplinks, mut instances, mut chains) =
            (String::new(), String::new(), String::new());
        for (name, flow) in FLOWS {
            let times = if flow == 1 { 1 } else { self.ratio };
            for end in ["left", "right"] {
                let end = format!("{end}{flow}");
                uplinks += &format!("  {end}: {{ interface: {end}, netns: {namespace} }}\n");
            }
            let rounds = ROUNDS * times;
            instances += &format!(
                "  {name}: {{ nf: signature, flavor: large, cpus: [{OF_NFS}], config: {{ rounds: {rounds} }} }}\n"
            );
            chains +=
                &format!("  {name}: {{ from: left{flow}, to: right{flow}, via: [{name}] }}\n");
        }
        let signals = self.signals.deployed();
        format!("version: 1\n{signals}uplinks:\n{uplinks}instances:\n{instances}chains:\n{chains}")
    }
}

fn measure(
    setting: Setting,
    platform: &Platform,
    outside: &Namespace,
    ends: &[Ends],
    times: Times,
) -> anyhow::Result<[f64; 12]> {
    platform.apply(&setting.deployment(outside.name()))?;
    for end in ends {
        end.set_ecn(setting.ecn)?;
    }
    // The ends find each other, and the last variant's flows are gone.
    for end in ends {
        end.reach()?;
    }
    let clients = ends
        .iter()
        .map(|end| end.client(setting.control, times.settle + times.measured))
        .collect::<anyhow::Result<Vec<_>>>()?;
    std::thread::sleep(times.settle);
    let before = Moment::now(platform, &NFS)?;
    std::thread::sleep(times.measured);
    let found = Moment::now(platform, &NFS)?.since(&before);
    let [mut rtt_us, mut retransmits] = [[0.0; 2]; 2];
    for (at, client) in clients.into_iter().enumerate() {
        let flow = client.finish(times.settle)?;
        (rtt_us[at], retransmits[at]) = (flow.rtt_us, flow.retransmits);
    }
    let cpu = [0, 1].map(|at| found.cpu_percent(at));
    let both: f64 = cpu.iter().sum();
    anyhow::ensure!(both > 0.0, "no NF was at work");
    let sum = |of: fn(&Counters) -> u64| found.of.iter().map(of).sum::<u64>() as f64;
    let offered = sum(Counters::offered).max(1.0);
    Ok([
        (cpu[0] - cpu[1]).abs() / both * 100.0,
        both,
        cpu[0],
        cpu[1],
        found.mbps(0),
        found.mbps(1),
        rtt_us[0],
        rtt_us[1],
        retransmits[0],
        retransmits[1],
        sum(Counters::lost) / offered * 100.0,
        sum(|one| one.marked) / offered * 100.0,
    ])
}

#[cfg(test)]
mod tests {
    use super::{RATIOS, Setting, Signals};

    #[test]
    fn the_dear_nf_costs_as_many_times_as_much_and_marks_are_off_unless_asked_for() {
        for ratio in RATIOS {
            let text = |signals| {
                let setting = Setting {
                    ratio,
                    control: "reno",
                    ecn: true,
                    signals,
                };
                setting.deployment("there")
            };
            let plain = text(Signals::Off);
            assert!(
                plain.contains(&format!("rounds: {} ", 900 * ratio)),
                "{plain}"
            );
            assert!(!plain.contains("congestion"));
            assert!(text(Signals::SelfTuning).contains("congestion: on"));
            assert!(text(Signals::Thresholds).contains("law: red4"));
        }
    }
}
