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
use crate::report::{Report, significant, table};
use counters::Moment;
use ends::{Ends, OF_ENDS, OF_NFS};
use flow::Flow;
use nfluid_figures::statistics::Samples;
use nfluid_testbed::interrupt;
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

/// A setting and its results.
struct Variant {
    setting: Setting,
    /// Distance of the flows' CPU time from equal, in percent of an equal part.
    unfairness: Samples,
    /// CPU time of both NFs, in percent of the core.
    used: Samples,
    /// Lost frames of both NFs, in percent.
    lost: Samples,
    marked: Samples,
    flows: [FlowSamples; 2],
}

/// The measurements of a flow.
#[derive(Default)]
struct FlowSamples {
    cpu: Samples,
    mbps: Samples,
    rtt_us: Samples,
    retransmits: Samples,
}

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
    let mut variants: Vec<Variant> = settings(report).into_iter().map(Variant::new).collect();
    for _ in 0..rounds {
        for variant in &mut variants {
            interrupt::check()?;
            variant.measure(&platform, &outside, &ends, times)?;
        }
    }
    let rows: Vec<_> = variants.iter().map(Variant::row).collect();
    table(
        "Two TCP flows through two NFs on one core (two values: cheap and dear)",
        &HEADER,
        &rows,
    );
    variants.iter().for_each(|variant| variant.figures(report));
    summary(report, &variants);
    Ok(())
}

const HEADER: [&str; 10] = [
    "cost",
    "control",
    "ECN",
    "signals",
    "CPU: from equal %",
    "CPU used %",
    "Mbit/s",
    "RTT us",
    "sent again /s",
    "lost, marked %",
];

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

/// Reports the figures that compare variants, at costs 1:16.
fn summary(report: &mut Report, variants: &[Variant]) {
    let tuned = |variant: &&Variant| variant.setting.is_tuned() && variant.setting.ratio == 16;
    let worst = variants
        .iter()
        .filter(tuned)
        .max_by(|a, b| a.unfairness.median().total_cmp(&b.unfairness.median()));
    if let Some(variant) = worst {
        let conditions = format!(
            "costs 1:16, signals on (self-tuning), the worst of all ways: {}; cgroups of equal weight alone give about the same",
            variant.setting.words()
        );
        let id = "red4.16.unfairness_percent";
        report.figure(id, &variant.unfairness, "%", &conditions);
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
        let Some(variant) = variants.iter().find(|variant| variant.setting == wanted) else {
            continue;
        };
        let words = format!("costs 1:16, {}", wanted.words());
        let slower = variant.slower();
        let which = FLOWS[slower].0;
        report.figure(
            format!("red4.16.delay{ending}_us"),
            &variant.flows[slower].rtt_us,
            "us",
            &format!("round trip time as the sender's kernel sees it, of the flow that waits longer ({which}); {words}"),
        );
        let lost = match signals {
            Signals::SelfTuning => "lost_on".to_owned(),
            _ => format!("lost{ending}"),
        };
        report.figure(
            format!("red4.16.{lost}"),
            &variant.lost,
            "%",
            &format!("of the frames for both NFs; {words}"),
        );
    }
}

impl Setting {
    /// Returns true for the signals that users get by default.
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

impl Variant {
    fn new(setting: Setting) -> Self {
        Variant {
            setting,
            unfairness: Samples::default(),
            used: Samples::default(),
            lost: Samples::default(),
            marked: Samples::default(),
            flows: Default::default(),
        }
    }

    fn measure(
        &mut self,
        platform: &Platform,
        outside: &Namespace,
        ends: &[Ends],
        times: Times,
    ) -> anyhow::Result<()> {
        platform.apply(&self.setting.deployment(outside.name()))?;
        for end in ends {
            end.set_ecn(self.setting.ecn)?;
        }
        // Waits until the ends reach each other, and the last variant's flows are gone.
        for end in ends {
            end.reach()?;
        }
        let clients = ends
            .iter()
            .map(|end| end.client(self.setting.control, times.settle + times.measured))
            .collect::<anyhow::Result<Vec<_>>>()?;
        std::thread::sleep(times.settle);
        let before = Moment::now(platform, &NFS)?;
        std::thread::sleep(times.measured);
        let found = Moment::now(platform, &NFS)?.since(&before);
        for (variant, client) in self.flows.iter_mut().zip(clients) {
            variant.follow(client.finish(times.settle)?);
        }
        self.push(&found)
    }

    fn push(&mut self, found: &Moment) -> anyhow::Result<()> {
        let cpu = [0, 1].map(|at| found.cpu_percent(at));
        let both: f64 = cpu.iter().sum();
        anyhow::ensure!(both > 0.0, "no NF was at work");
        self.unfairness.push((cpu[0] - cpu[1]).abs() / both * 100.0);
        self.used.push(both);
        let sum = |of: fn(&counters::Counters) -> u64| found.of.iter().map(of).sum::<u64>() as f64;
        let offered = sum(counters::Counters::offered).max(1.0);
        let lost = sum(counters::Counters::lost);
        self.lost.push(lost / offered * 100.0);
        self.marked.push(sum(|one| one.marked) / offered * 100.0);
        for (at, flow) in self.flows.iter_mut().enumerate() {
            flow.cpu.push(cpu[at]);
            flow.mbps.push(found.mbps(at));
        }
        Ok(())
    }

    /// Returns the flow with the longer round trip times.
    fn slower(&self) -> usize {
        let [cheap, dear] = self.flows.each_ref().map(|flow| flow.rtt_us.median());
        usize::from(dear > cheap)
    }

    fn row(&self) -> Vec<String> {
        let both = |of: fn(&FlowSamples) -> &Samples| {
            let [cheap, dear] = self.flows.each_ref().map(|flow| of(flow).median());
            format!("{} {}", significant(cheap), significant(dear))
        };
        vec![
            format!("1:{}", self.setting.ratio),
            self.setting.control.to_owned(),
            (if self.setting.ecn { "on" } else { "off" }).to_owned(),
            self.setting.signals.id().to_owned(),
            significant(self.unfairness.median()),
            significant(self.used.median()),
            both(|flow| &flow.mbps),
            both(|flow| &flow.rtt_us),
            both(|flow| &flow.retransmits),
            format!(
                "{} {}",
                significant(self.lost.median()),
                significant(self.marked.median())
            ),
        ]
    }

    fn figures(&self, report: &mut Report) {
        let Setting {
            ratio,
            control,
            ecn,
            signals,
        } = self.setting;
        let ecn = if ecn { "ecn" } else { "no_ecn" };
        let variant = format!("red4.{ratio}.{control}.{ecn}.{}", signals.id());
        let conditions = format!(
            "costs 1:{ratio}, {}; NFs on core {OF_NFS}, TCP's ends on core {OF_ENDS}",
            self.setting.words()
        );
        let mut figure = |id: &str, samples: &Samples, unit, what: &str| {
            report.figure(
                format!("{variant}.{id}"),
                samples,
                unit,
                &format!("{what}; {conditions}"),
            );
        };
        figure(
            "unfairness_percent",
            &self.unfairness,
            "%",
            "CPU time of the flows' NFs, distance from equal",
        );
        figure("cpu_percent", &self.used, "%", "of the core, both NFs");
        figure("lost_percent", &self.lost, "%", "of the frames for the NFs");
        figure(
            "marked_percent",
            &self.marked,
            "%",
            "of the frames for the NFs",
        );
        for ((name, _), flow) in FLOWS.iter().zip(&self.flows) {
            let of = |id: &str| format!("{name}.{id}");
            figure(&of("cpu_percent"), &flow.cpu, "%", "of the core");
            figure(&of("mbps"), &flow.mbps, "Mbit/s", "frames into the NF");
            figure(
                &of("rtt_us"),
                &flow.rtt_us,
                "us",
                "as the sender's kernel sees it",
            );
            figure(
                &of("retransmits"),
                &flow.retransmits,
                "/s",
                "segments sent again",
            );
        }
    }
}

impl FlowSamples {
    fn follow(&mut self, flow: Flow) {
        self.rtt_us.push(flow.rtt_us);
        self.retransmits.push(flow.retransmits);
    }
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
