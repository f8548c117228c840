//! NFs that share a core by weight, with frames circulating through each: every NF always has work, and no generator
//! affects the scheduling.

use super::fairness::{Fairness, Repetition};
use crate::io_model::Model;
use crate::roles::work::Outcome;
use crate::roles::{Role, Task};
use crate::setups::loopback::{self, Loopback};
use crate::setups::wire::{Wire, uplink, uplink_at};
use crate::workload::Workload;
use anyhow::Context;
use nfluid_netdev::{ProgramTime, TimeKeeping, program_time};
use nfluid_sandbox::cgroup::Share;
use nfluid_switch::Destination;
use nfluid_testbed::cgroups::Cgroups;
use nfluid_testbed::directory::ScratchDirectory;
use nfluid_testbed::scratch::Scratch;
use nfluid_uplink::{Uplink, program_of};

/// The port that leads to the uplink.
const OUT: usize = 2;

/// An NF with frames of one size.
#[derive(Clone, Debug)]
pub struct Nf {
    pub name: String,
    pub workload: Workload,
    pub len: usize,
}

/// Durations of the parts of a repetition, in seconds.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// Time of each NF alone, before and after the common run.
    pub alone: f64,
    pub together: f64,
}

/// Two uplinks per NF: frames leave by one, and return by the other at the far end of the wire. An uplink is declared
/// before its wire, so that it ends first.
struct Uplinks {
    _leaving: Vec<Uplink>,
    coming: Vec<Uplink>,
    _wires: Vec<Wire>,
    /// The directory of the uplinks' records.
    records: ScratchDirectory,
    /// Per NF: nanoseconds per frame of the kernel's receive side, which are charged to the process running on that
    /// core.
    frame_ns: Vec<f64>,
}

/// NFs on one core, in one model. A process is declared before the resources that it uses, so that it ends first.
pub struct Variant {
    pub name: &'static str,
    pub model: Model,
    pub nfs: Vec<Nf>,
    processes: Loopback,
    /// Cgroups of the NFs in order, then that of the I/O threads.
    groups: Cgroups,
    uplinks: Option<Uplinks>,
    /// Results by division of the core.
    pub results: Vec<Fairness>,
}

impl Variant {
    /// Starts the NFs; they are measured with each of the `divisions` of the core.
    pub fn new(
        scratch: &mut Scratch,
        name: &'static str,
        model: Model,
        nfs: Vec<Nf>,
        divisions: &[Vec<u32>],
    ) -> anyhow::Result<Self> {
        let role = |nf: &Nf| Role {
            core: Model::nf_core(),
            task: Task::Circle {
                workload: nf.workload,
                len: nf.len,
                frames: loopback::FRAMES,
            },
        };
        let roles: Vec<_> = nfs.iter().map(role).collect();
        let processes = Loopback::start(scratch, model, &roles)?;
        Variant::of(name, model, nfs, processes, divisions)
    }

    /// As `new`, in the inline model; one of many frames leaves by an uplink of each NF, and returns by another uplink
    /// through the kernel's receive side. The uplinks' threads have the other core.
    pub fn with_uplinks(
        scratch: &mut Scratch,
        name: &'static str,
        nfs: Vec<Nf>,
        divisions: &[Vec<u32>],
    ) -> anyhow::Result<Self> {
        let role = |nf: &Nf| Role {
            core: Model::nf_core(),
            task: Task::Outward {
                workload: nf.workload,
                len: nf.len,
                frames: loopback::FRAMES,
            },
        };
        let roles: Vec<_> = nfs.iter().map(role).collect();
        let processes = Loopback::with_ports(OUT as u32 + 1, scratch, Model::Inline, &roles)?;
        let uplinks = Uplinks::new(scratch, &processes)?;
        let mut variant = Variant::of(name, Model::Inline, nfs, processes, divisions)?;
        variant.uplinks = Some(uplinks);
        Ok(variant)
    }

    fn of(
        name: &'static str,
        model: Model,
        nfs: Vec<Nf>,
        processes: Loopback,
        divisions: &[Vec<u32>],
    ) -> anyhow::Result<Self> {
        let mut groups = Cgroups::new()?;
        let whole = Share::from_percent(100)?;
        for pid in processes.pids() {
            groups.add(&[pid], None, Some(whole))?;
        }
        Ok(Variant {
            name,
            model,
            nfs,
            processes,
            groups,
            uplinks: None,
            results: divisions.iter().cloned().map(Fairness::new).collect(),
        })
    }

    /// Measures one repetition with each division; a repetition that does not count warms up.
    pub fn measure(&mut self, times: Times, counts: bool) -> anyhow::Result<()> {
        for at in 0..self.results.len() {
            for (group, percent) in self.results[at].shares.iter().enumerate() {
                self.groups
                    .set_weight(group, Share::from_percent(*percent)?)?;
            }
            let before = self.alone(times.alone)?;
            let together = self.processes.run_sharing(times.together)?.processes;
            let after = self.alone(times.alone)?;
            if counts {
                let both = before.iter().zip(&after);
                let charged = self.charged(&together, times.together);
                self.results[at].push(&Repetition {
                    alone: both.map(|(a, b)| f64::midpoint(mpps(a), mpps(b))).collect(),
                    together: together.iter().map(mpps).collect(),
                    cpu: together.iter().map(|nf| nf.cpu_seconds).collect(),
                    pace: paces(&together, &before, &after),
                    charged,
                });
            }
        }
        Ok(())
    }

    /// Measures the kernel's cost per frame at each uplink. Must not run during other measurements, because each run of
    /// any eBPF program costs more meanwhile.
    ///
    /// # Errors
    /// When the kernel does not measure, or no frame came in.
    pub fn meter(&mut self, seconds: f64) -> anyhow::Result<()> {
        let Some(uplinks) = &mut self.uplinks else {
            return Ok(());
        };
        let keeping = TimeKeeping::begin().context("measuring eBPF programs")?;
        let before = uplinks.times()?;
        self.processes.run_sharing(seconds)?;
        let after = uplinks.times()?;
        drop(keeping);
        let both = after.into_iter().zip(before);
        let cost = both.map(|(after, before)| after.since(before).ns_per_run(1));
        let cost: Option<Vec<f64>> = cost.collect();
        uplinks.frame_ns = cost.context("no frame came in by an uplink")?;
        Ok(())
    }

    /// Returns the seconds of the kernel's reception for each NF, in a run of `seconds`.
    fn charged(&self, outcomes: &[Outcome], seconds: f64) -> Vec<f64> {
        let Some(uplinks) = &self.uplinks else {
            return vec![0.0; outcomes.len()];
        };
        let costs = outcomes.iter().zip(&uplinks.frame_ns);
        // Frames arrived at the same rate before and after the measured time.
        let part =
            |nf: &Outcome| seconds / (seconds + loopback::AROUND.as_secs_f64()) * nf.came_in as f64;
        costs.map(|(nf, ns)| part(nf) * ns / 1e9).collect()
    }

    /// Measures each NF while the others are stopped.
    fn alone(&mut self, seconds: f64) -> anyhow::Result<Vec<Outcome>> {
        let run = |nf| Ok(self.processes.run_alone(seconds, nf)?.processes[0]);
        (0..self.nfs.len()).map(run).collect()
    }
}

impl Uplinks {
    fn new(scratch: &mut Scratch, processes: &Loopback) -> anyhow::Result<Self> {
        let (core, _) = Model::Inline.traffic();
        let records = ScratchDirectory::new()?;
        let (mut leaving, mut coming, mut wires) = (Vec::new(), Vec::new(), Vec::new());
        for instance in processes.instances() {
            let wire = Wire::new()?;
            let (out, _) = uplink(scratch, instance.id(OUT), &wire, core)?;
            let (back, _) = uplink_at(scratch, wire.far(), core, Some(records.as_ref()))?;
            let to = Destination::Link(instance.id(OUT));
            scratch.switch.connect(back.spec().port, to)?;
            leaving.push(out);
            coming.push(back);
            wires.push(wire);
        }
        Ok(Uplinks {
            frame_ns: vec![0.0; coming.len()],
            _leaving: leaving,
            coming,
            _wires: wires,
            records,
        })
    }

    /// Returns the run times that the kernel has measured of each receiving program.
    fn times(&self) -> anyhow::Result<Vec<ProgramTime>> {
        let time = |uplink: &Uplink| {
            let id = program_of(self.records.as_ref(), &uplink.spec().name)?;
            let time = id.and_then(program_time);
            time.context("an uplink has no program")
        };
        self.coming.iter().map(time).collect()
    }
}

/// Returns the frames per second of CPU time, relative to the runs before and after.
fn paces(together: &[Outcome], before: &[Outcome], after: &[Outcome]) -> Vec<f64> {
    let pace = |nf: &Outcome| nf.frames as f64 / nf.cpu_seconds;
    let alone = before.iter().zip(after);
    let alone = alone.map(|(before, after)| f64::midpoint(pace(before), pace(after)));
    together
        .iter()
        .zip(alone)
        .map(|(nf, alone)| pace(nf) / alone)
        .collect()
}

fn mpps(outcome: &Outcome) -> f64 {
    outcome.frames as f64 / outcome.seconds / 1e6
}
