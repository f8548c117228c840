//! Noisy: one NF turns hostile; measures the throughput and latency that the others on its core keep.
//!
//! All NFs have the same weight. Before and after, the hostile NF works normally and is always busy, so that it gets
//! exactly its share: the others then have their shares. In between it spins, floods a port that no NF empties, fills
//! its memory, or rings a neighbour without frames. The neighbour is an NF that is idle except for pings; the same
//! frames circulate through the busy NFs, so that no external traffic determines their load.

use crate::host::cpu::require_two_cores;
use crate::io_model::Model;
use crate::peer::Peer;
use crate::report::Report;
use crate::roles::function::Manner;
use crate::roles::hostile::{Conduct, Order};
use crate::roles::work::Outcome;
use crate::roles::{Role, Task};
use crate::setups::fleet::{Fleet, Plan};
use crate::setups::forwarders::{LEN, RING, forwarders, traffic};
use crate::setups::loopback::{self, Loopback};
use crate::sweep::{Quantity, Shown, Side, Sweep};
use crate::workload::Workload;
use anyhow::Context;
use nfluid_figures::statistics::Samples;
use nfluid_sandbox::cgroup::Share;
use nfluid_testbed::cgroups::Cgroups;
use nfluid_testbed::scratch::{Scratch, ScratchInstance};

/// Slots of the hostile NF's rings.
const HOSTILE_RING: u32 = 256;
/// The hostile NF's memory limit, and the memory that it takes of that.
const MEMORY_MAX: u64 = 192 << 20;
const MEMORY: usize = 128 << 20;
/// Seconds by which the hostile NF starts before the others, and ends after them.
const AHEAD: f64 = 0.01;

const HOSTILE: [(&str, Conduct); 4] = [
    ("spins", Conduct::Spins),
    ("floods", Conduct::Floods),
    ("memory", Conduct::FillsMemory),
    ("rings", Conduct::Rings),
];

/// The NFs. A process is declared before the resources that it uses, so that it ends first.
struct Neighbours {
    /// The idle NF, and the process that pings it.
    fleet: Fleet,
    busy: Loopback,
    hostile: Peer,
    _groups: Cgroups,
    _instances: [ScratchInstance; 2],
}

/// Throughput and latency of the other NFs in a phase.
struct Phase {
    mpps: f64,
    /// CPU time of the busy NFs, as a part of the core.
    cores: f64,
    p99_us: f64,
}

/// Effect of a kind of hostility. What is kept is about the product of what is kept of the CPU time, and of the frames
/// per second of it.
const EFFECT: [Quantity; 8] = [
    Quantity::shown(&[("Mpps before", Shown::Median)]),
    Quantity::shown(&[("Mpps meanwhile", Shown::Median)]),
    Quantity::new(".kept_percent", "%", &[("kept %", Shown::Tenths)]),
    Quantity::new(".time_kept_percent", "%", &[("of CPU time", Shown::Tenths)]),
    Quantity::new(".pace_kept_percent", "%", &[("of pace", Shown::Tenths)]),
    Quantity::shown(&[("p99 us before", Shown::Median)]),
    Quantity::new(".p99_us", "us", &[("p99 us meanwhile", Shown::Median)]),
    Quantity::new(".p99_ratio", "ratio", &[("ratio", Shown::Median)]),
];
const KEPT: usize = 2;
const P99_RATIO: usize = 7;

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    require_two_cores()?;
    let (rounds, seconds) = report.effort((11, 1.0), (3, 0.25));
    let mut scratch = Scratch::new("noisy")?;
    let mut neighbours = Neighbours::start(&mut scratch)?;
    let mut effects = HOSTILE.map(|_| <[Samples; 8]>::default());
    for round in 0..=rounds {
        // The first round warms up.
        let seconds = if round == 0 { seconds / 4.0 } else { seconds };
        let mut phase = |conduct| neighbours.measure(&scratch, conduct, seconds);
        report.settle();
        let mut before = phase(Conduct::Honest)?;
        for (samples, (_, conduct)) in effects.iter_mut().zip(HOSTILE) {
            let during = phase(conduct)?;
            let after = phase(Conduct::Honest)?;
            if round > 0 {
                let values = effect(&before, &during, &after);
                samples
                    .iter_mut()
                    .zip(values)
                    .for_each(|(samples, value)| samples.push(value));
            }
            // The phase after one kind of hostility is the phase before the next kind.
            before = after;
        }
    }
    let mut sweep = Sweep::plain(&["the hostile one"], EFFECT);
    for (samples, (name, _)) in effects.into_iter().zip(HOSTILE) {
        let side = Side::new([name.to_owned()], format!("noisy.{name}"), ()).under(CONDITIONS);
        sweep.add(&side, samples);
    }
    sweep.print("Beside a hostile NF");
    sweep.report_all(report);
    let medians = |quantity: usize| {
        sweep
            .rows()
            .iter()
            .map(move |row| row.samples[quantity].median())
    };
    let of = "of all kinds of hostility";
    report.derived(
        "noisy.kept_percent",
        medians(KEPT).fold(f64::INFINITY, f64::min),
        "%",
        &format!("smallest {of}; {CONDITIONS}"),
    );
    report.derived(
        "noisy.p99_ratio",
        medians(P99_RATIO).fold(0.0, f64::max),
        "ratio",
        &format!("largest {of}; {CONDITIONS}"),
    );
    Ok(())
}

const CONDITIONS: &str = "three busy forwarders, an idle NF that is pinged and the hostile NF on one core, each in a \
                          cgroup of the same weight; before and after the hostile one is busy and honest; traffic on \
                          the other core";

impl Neighbours {
    fn start(scratch: &mut Scratch) -> anyhow::Result<Self> {
        let mut plan: Plan = forwarders(1, Manner::HOSTED, RING);
        plan.traffic = vec![traffic(LEN, RING, true)];
        let fleet = Fleet::start(scratch, plan)?;
        let mut groups = fleet.share()?;
        let whole = Some(Share::from_percent(100)?);
        let role = Role {
            core: Model::nf_core(),
            task: Task::Circle {
                workload: Workload::Bridge,
                len: LEN,
                frames: loopback::FRAMES,
            },
        };
        let busy = Loopback::start(scratch, Model::Inline, &[role.clone(), role.clone(), role])?;
        for pid in busy.pids() {
            groups.add(&[pid], None, whole)?;
        }
        let mut instance = scratch.instance(4, HOSTILE_RING, HOSTILE_RING)?;
        let sink = scratch.instance(1, HOSTILE_RING, HOSTILE_RING)?;
        for (from, to) in [(0, 1), (1, 0)] {
            let link = nfluid_switch::Destination::Link(instance.id(to));
            scratch.switch.connect(instance.id(from), link)?;
        }
        scratch.lead((&mut instance, 2), (&sink, 0))?;
        let idle = fleet.instance(0).context("the idle NF")?;
        scratch.lead((&mut instance, 3), (idle, 0))?;
        let role = Role {
            core: Model::nf_core(),
            task: Task::Hostile,
        };
        let mut hostile = Peer::start(&instance, &role)?;
        hostile.await_ready()?;
        groups.add(&[hostile.pid()], None, whole)?;
        groups.limit_memory(MEMORY_MAX)?;
        Ok(Neighbours {
            fleet,
            busy,
            hostile,
            _groups: groups,
            _instances: [instance, sink],
        })
    }

    fn measure(
        &mut self,
        scratch: &Scratch,
        conduct: Conduct,
        seconds: f64,
    ) -> anyhow::Result<Phase> {
        let order = Order {
            conduct,
            seconds: seconds + 2.0 * AHEAD + loopback::AROUND.as_secs_f64(),
            memory: MEMORY,
        };
        self.hostile.send_line(&serde_json::to_string(&order)?)?;
        std::thread::sleep(std::time::Duration::from_secs_f64(AHEAD));
        self.busy.begin_sharing(seconds)?;
        let measured = self.fleet.measure(scratch, seconds)?;
        let busy = self.busy.end()?;
        self.hostile.outcome().context("the hostile NF")?;
        let pings = measured.traffic.first().context("no traffic")?;
        let rate = |nf: &Outcome| nf.frames as f64 / nf.seconds / 1e6;
        let part = |nf: &Outcome| nf.cpu_seconds / nf.seconds;
        Ok(Phase {
            mpps: busy.iter().map(rate).sum(),
            cores: busy.iter().map(part).sum(),
            p99_us: pings.p99_us,
        })
    }
}

/// The quantities of [`EFFECT`] in a round.
fn effect(before: &Phase, during: &Phase, after: &Phase) -> [f64; 8] {
    let mpps = f64::midpoint(before.mpps, after.mpps);
    let p99 = f64::midpoint(before.p99_us, after.p99_us);
    let cores = f64::midpoint(before.cores, after.cores);
    [
        mpps,
        during.mpps,
        during.mpps / mpps * 100.0,
        during.cores / cores * 100.0,
        during.mpps / during.cores / (mpps / cores) * 100.0,
        p99,
        during.p99_us,
        during.p99_us / p99,
    ]
}
