//! H10: dynamic traffic through 30 unpinned firewalls, 256 B, in every I/O model (HyperNF, SoCC '17, figs. 10 to 12):
//! the forwarded part of the offered traffic, over time.
//!
//! Three scenarios, each below and above the inline model's capacity: its PDR is searched first, with the same traffic.
//! The generator, the same for all models, has priority on a core over all other processes.

mod scenario;

use crate::host::cpu::ANY_CORE;
use crate::host::cpu::require_two_cores;
use crate::io_model::Model;
use crate::report::{Report, significant, table};
use crate::roles::function::Manner;
use crate::roles::paced::Script;
use crate::roles::work::Outcome;
use crate::roles::{Role, Task};
use crate::setups::fleet::{Fleet, Member, Plan};
use crate::setups::layout::Layout;
use crate::workload::Workload;
use nfluid_figures::plot::{Axis, Plot, Series};
use nfluid_figures::statistics::Samples;
use nfluid_gen::search::{Counted, Goal, SearchSpec, search};
use nfluid_testbed::scratch::Scratch;
use scenario::{ALL, NFS, Scenario, Timeline};
use std::time::Duration;

const LEN: usize = 256;
const RING: u32 = 1024;
const FIREWALL: Workload = Workload::Firewall {
    rules: 10,
    flows: 1000,
};
const MODELS: [Model; 4] = [
    Model::Inline,
    Model::Split { polls: false },
    Model::Merge,
    Model::Mix,
];
/// The highest total rate as a fraction of the inline model's PDR.
const LEVELS: [(&str, f64); 2] = [("below", 0.55), ("above", 2.0)];
/// Range of rates searched for a capacity, in frames per second, and the search's relative precision (one part in so
/// many).
const RATES: (f64, f64) = (0.2e6, 50e6);
const PRECISION: f64 = 0.05;
/// Number of trials per rate, so that a single disturbance of the machine is outvoted.
const TRIALS: u32 = 3;

/// Results of a run through a scenario.
struct Played {
    scenario: Scenario,
    level: &'static str,
    model: Model,
    seconds: f64,
    /// Outcomes per stretch.
    outcomes: Vec<Outcome>,
    /// Frames per second of CPU time of NFs and I/O threads, in millions.
    per_cpu: f64,
}

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    require_two_cores()?;
    let timelines = report.choose(
        [timeline(60, 1.0), timeline(60, 0.25)],
        [timeline(12, 0.04), timeline(12, 0.015)],
    );
    let mut scratch = Scratch::new("h10")?;
    let mut fleets = Vec::new();
    for model in MODELS {
        fleets.push((model, fleet(&mut scratch, model)?));
    }
    let trial = report.effort(1.0, 0.1);
    // The levels need only the inline model's capacity; the others take time.
    let searched = report.choose(MODELS.len(), 1);
    let mut capacity = 0.0;
    for (model, fleet) in fleets.iter_mut().take(searched) {
        report.settle();
        let [ndr, pdr] = limits(fleet, trial)?;
        let conditions = format!(
            "{}, all NFs at one rate, trials of {trial} s, the majority of {TRIALS} decides",
            model.name()
        );
        let id = |what| format!("h10.{}.{what}_mpps", model.name());
        report.derived(
            id("ndr"),
            ndr / 1e6,
            "Mpps",
            &format!("{conditions}; without loss"),
        );
        report.derived(
            id("pdr"),
            pdr / 1e6,
            "Mpps",
            &format!("{conditions}; 0.5 % lost"),
        );
        if *model == Model::Inline {
            capacity = pdr;
        }
    }
    let mut all = Vec::new();
    for scenario in ALL {
        for ((level, part), timeline) in LEVELS.into_iter().zip(&timelines) {
            for (model, fleet) in &mut fleets {
                report.settle();
                let before = fleet.so_far(&scratch)?;
                let outcomes = play(fleet, scenario, timeline, capacity * part)?;
                let done = fleet.so_far(&scratch)?.since(&before);
                all.push(Played {
                    scenario,
                    level,
                    model: *model,
                    seconds: timeline.seconds,
                    outcomes,
                    per_cpu: done.per_cpu_mpps(),
                });
            }
        }
    }
    figures(report, &all);
    plots(report, &all);
    let header = [
        "scenario",
        "offered",
        "model",
        "offered Mpps",
        "forwarded Mpps",
        "forwarded %",
        "Mpps per CPU-second",
    ];
    let rows: Vec<_> = all.iter().map(Played::row).collect();
    table("Dynamic traffic through 30 firewalls", &header, &rows);
    Ok(())
}

fn timeline(stretches: usize, seconds: f64) -> Timeline {
    Timeline { stretches, seconds }
}

fn fleet(scratch: &mut Scratch, model: Model) -> anyhow::Result<Fleet> {
    let layout = Layout::here(model);
    let member = Member {
        core: ANY_CORE,
        workload: FIREWALL,
        manner: Manner::HOSTED,
    };
    let generator = Role {
        core: *Layout::here(Model::Inline).traffic.first().unwrap_or(&0),
        task: Task::Paced {
            workload: FIREWALL,
            len: LEN,
        },
    };
    let plan = Plan {
        members: vec![member; NFS],
        ring: RING,
        traffic: vec![generator],
        io: layout.io_role(model),
    };
    let mut fleet = Fleet::start(scratch, plan)?;
    for generator in fleet.traffic() {
        generator.await_ready()?;
    }
    Ok(fleet)
}

/// Returns the NDR and PDR (RFC 2544) with all NFs at one rate, in frames per second.
fn limits(fleet: &mut Fleet, seconds: f64) -> anyhow::Result<[f64; 2]> {
    let goal = |goal: Goal| Goal {
        precision: PRECISION,
        ..goal.majority_of(TRIALS)
    };
    let spec = SearchSpec {
        rate_min: RATES.0,
        goals: vec![goal(Goal::ndr()), goal(Goal::pdr())],
        ..SearchSpec::ndr_pdr(RATES.1, Duration::from_secs_f64(seconds))
    };
    // The search needs errors of `std::io::Error`'s kind.
    let measure =
        |rate, duration| trial(fleet, rate, duration).map_err(anyhow::Error::into_boxed_dyn_error);
    let found = search(&spec, measure).map_err(|error| anyhow::anyhow!("{error}"))?;
    let rate = |at: usize| found.goals.get(at).map_or(0.0, |goal| goal.rate);
    Ok([rate(0), rate(1)])
}

fn trial(fleet: &mut Fleet, rate: f64, duration: Duration) -> anyhow::Result<Counted> {
    let script = Script {
        seconds: duration.as_secs_f64(),
        rates: vec![vec![rate / NFS as f64; NFS]],
    };
    fleet.resume()?;
    let outcomes = offer(fleet, &script, |_, _| Ok(()));
    fleet.pause()?;
    let outcomes = outcomes?;
    let offered = sum(&outcomes, |outcome| outcome.offered);
    let came = sum(&outcomes, |outcome| outcome.frames);
    Ok(Counted {
        offered,
        lost: offered.saturating_sub(came),
    })
}

/// Offers the rates of a scenario, and starts and ends NFs accordingly.
fn play(
    fleet: &mut Fleet,
    scenario: Scenario,
    timeline: &Timeline,
    peak: f64,
) -> anyhow::Result<Vec<Outcome>> {
    fleet.resume()?;
    fleet.populate(scenario.running(timeline, None))?;
    let script = scenario.script(timeline, peak);
    let outcomes = offer(fleet, &script, |fleet, stretch| {
        fleet.populate(scenario.running(timeline, Some(stretch)))
    });
    fleet.pause()?;
    outcomes
}

/// Plays a script; calls `then` at the end of each stretch.
fn offer(
    fleet: &mut Fleet,
    script: &Script,
    mut then: impl FnMut(&mut Fleet, usize) -> anyhow::Result<()>,
) -> anyhow::Result<Vec<Outcome>> {
    let text = serde_json::to_string(script)?;
    for generator in fleet.traffic() {
        generator.send_line(&text)?;
    }
    let mut outcomes = Vec::with_capacity(script.rates.len());
    for stretch in 0..script.rates.len() {
        for generator in fleet.traffic() {
            outcomes.push(generator.outcome()?);
        }
        then(fleet, stretch)?;
    }
    Ok(outcomes)
}

fn sum(outcomes: &[Outcome], what: impl Fn(&Outcome) -> u64) -> u64 {
    outcomes.iter().map(what).sum()
}

fn figures(report: &mut Report, all: &[Played]) {
    let (mut frames, mut offered) = (0, 0);
    for played in all {
        let (scenario, model) = (played.scenario.name(), played.model.name());
        let conditions = format!(
            "{NFS} unpinned firewalls, {LEN} B, rings of {RING} slots; {}; {}",
            played.scenario.title(),
            match played.model {
                Model::Split { .. } => "one I/O thread for all, pinned",
                Model::Merge => "an I/O thread per NF, which follows it",
                Model::Mix => "an I/O thread per NF, unpinned",
                Model::Inline => "no I/O threads",
            }
        );
        let id = |what: &str| format!("h10.{scenario}.{model}.{what}");
        if played.level == "above" {
            report.derived(id("above_mpps"), played.forwarded(), "Mpps", &conditions);
        } else {
            report.derived(id("followed_percent"), played.followed(), "%", &conditions);
            report.derived(id("per_cpu_mpps"), played.per_cpu, "Mpps", &conditions);
            if played.model == Model::Inline {
                frames += sum(&played.outcomes, |outcome| outcome.frames);
                offered += sum(&played.outcomes, |outcome| outcome.offered);
            }
        }
    }
    report.derived(
        "h10.followed_percent",
        frames as f64 / offered as f64 * 100.0,
        "%",
        "inline, all scenarios, while the highest total offered is 55 % of the capacity",
    );
}

fn plots(report: &mut Report, all: &[Played]) {
    for of_one in all.chunks(MODELS.len()) {
        let [first, ..] = of_one else { continue };
        let mut series = vec![first.over_time("offered", |outcome| outcome.offered)];
        series.extend(
            of_one
                .iter()
                .map(|played| played.over_time(played.model.name(), |outcome| outcome.frames)),
        );
        report.plot(Plot {
            id: format!("h10.{}.{}", first.scenario.name(), first.level),
            title: format!("{NFS} firewalls, {LEN} B: {}", first.scenario.title()),
            x: Axis::linear("seconds"),
            y: Axis::linear("Mpps"),
            series,
        });
    }
}

impl Played {
    fn over_time(&self, name: &str, what: impl Fn(&Outcome) -> u64) -> Series {
        let mut series = Series::new(name);
        for (at, outcome) in self.outcomes.iter().enumerate() {
            let mpps = what(outcome) as f64 / self.seconds / 1e6;
            series.push((at + 1) as f64 * self.seconds, &Samples::from(mpps));
        }
        series
    }

    /// Returns a rate in millions per second.
    fn rate(&self, what: impl Fn(&Outcome) -> u64) -> f64 {
        let seconds = self.seconds * self.outcomes.len() as f64;
        sum(&self.outcomes, what) as f64 / seconds / 1e6
    }

    fn forwarded(&self) -> f64 {
        self.rate(|outcome| outcome.frames)
    }

    /// Returns the forwarded part of the offered frames, in percent.
    fn followed(&self) -> f64 {
        self.forwarded() / self.rate(|outcome| outcome.offered) * 100.0
    }

    fn row(&self) -> Vec<String> {
        vec![
            format!("{}: {}", self.scenario.name(), self.scenario.title()),
            format!("{} capacity", self.level),
            self.model.name().to_owned(),
            significant(self.rate(|outcome| outcome.offered)),
            significant(self.forwarded()),
            format!("{:.3}", self.followed()),
            significant(self.per_cpu),
        ]
    }
}
