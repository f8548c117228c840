//! Very many tiny NFs: shared code of the experiments of rows D1 to D5.
//!
//! As in the literature: the switch forwards by hardware address, NFs are processes, consecutive frames go to different
//! NFs, every frame passes two NFs, and an NF signs the first 64 bytes. On each core, one process is the generator and
//! sink, and shares the core with its NFs.

mod architecture;
mod core_traffic;
pub mod host;
pub mod population;
mod repetitions;
mod results;
mod wired_entry;

use crate::report::Report;
pub use architecture::{Architecture, Sizes};
use architecture::{MANY, MODERATE};
pub use core_traffic::WINDOW;
use nfluid_ring::doorbell::AGEING_IDLE;
use nfluid_switch::SwitchError;
use nfluid_testbed::CannotRun;
use nfluid_testbed::scratch::Scratch;
pub use population::{Buffers, Cores, Offer, Plan, Population, Waiting};
pub use repetitions::Repetitions;
use repetitions::Row;
use std::time::{Duration, Instant};
pub use wired_entry::Entry;

/// Longest sleep of populations with fewer NFs than [`MANY`].
const FEW_SLEEP: Duration = Duration::from_secs(8);
/// Measures architectures alternately with each number of NFs and each length. A number for which an architecture or
/// the host has no room is left out with a message.
///
/// # Errors
/// When a measurement fails, or there is room for none of the numbers.
pub fn measure(
    report: &mut Report,
    architectures: &[Architecture],
    sizes: &Sizes,
) -> anyhow::Result<()> {
    let mut rows: Vec<Vec<Row>> = architectures.iter().map(|_| Vec::new()).collect();
    let mut no_room = None;
    for &nfs in &sizes.nfs {
        match of_number(report, architectures, sizes, nfs) {
            Ok(found) => {
                results::compare(report, architectures, &found, sizes);
                for (rows, found) in rows.iter_mut().zip(found) {
                    rows.extend(found);
                }
            }
            Err(error) if is_limit(&error) => {
                println!("\n{}: {nfs} NFs left out: {error:#}", architectures[0].id);
                no_room = Some(error);
            }
            Err(error) => return Err(error),
        }
    }
    match no_room {
        Some(error) if rows.iter().all(Vec::is_empty) => return Err(error),
        _ => {}
    }
    for (architecture, rows) in architectures.iter().zip(&rows) {
        results::show(report, architecture, rows, sizes.lens[0]);
    }
    results::plots(report, architectures, &rows, &sizes.lens);
    Ok(())
}

/// Returns true if the host or the platform has no room for this many NFs.
fn is_limit(error: &anyhow::Error) -> bool {
    let limit = error.downcast_ref::<SwitchError>();
    error.is::<CannotRun>() || matches!(limit, Some(SwitchError::Limit(_)))
}

/// Measures one number of NFs: returns a row per length for each architecture.
fn of_number(
    report: &mut Report,
    architectures: &[Architecture],
    sizes: &Sizes,
    nfs: u32,
) -> anyhow::Result<Vec<Vec<Row>>> {
    let mut scratch = Scratch::new(architectures[0].id)?;
    let mut stage = Stage::start(&mut scratch, architectures, nfs)?;
    stage.leave_out(&scratch, nfs)?;
    if sizes.idle {
        idle(report, &architectures[0], &stage.populations[0], nfs)?;
    }
    let mut rows: Vec<Vec<Row>> = architectures.iter().map(|_| Vec::new()).collect();
    let times = (sizes.rounds, sizes.seconds(nfs));
    for &len in &sizes.lens {
        report.settle();
        let measured = stage.both_loads(&scratch, len, times)?;
        for (variant, (full, half)) in stage.variants.iter().zip(measured) {
            let row = Row {
                nfs,
                len,
                full,
                half,
                megabytes: stage.populations[variant.population].bytes_each()? / 1e6,
            };
            rows[variant.architecture].push(row);
        }
    }
    Ok(rows)
}

/// Architectures that are measured alternately.
struct Stage {
    /// Architectures that differ only in how frames find their NFs share a population.
    populations: Vec<Population>,
    variants: Vec<Variant>,
}

/// An architecture and its population, by their indices.
struct Variant {
    architecture: usize,
    entry: Entry,
    population: usize,
}

impl Stage {
    fn start(
        scratch: &mut Scratch,
        architectures: &[Architecture],
        nfs: u32,
    ) -> anyhow::Result<Self> {
        let mut plans: Vec<Plan> = Vec::new();
        let mut variants = Vec::new();
        for (index, architecture) in architectures.iter().enumerate() {
            let plan = architecture.plan(nfs);
            let known = plans.iter().position(|other| *other == plan);
            let population = known.unwrap_or(plans.len());
            if known.is_none() {
                plans.push(plan);
            }
            variants.push(Variant {
                architecture: index,
                entry: architecture.entry,
                population,
            });
        }
        host::prepare(nfs * plans.len() as u32)?;
        let cores: Vec<_> = (0..host::cores())
            .map(|core| Cores {
                nfs: core,
                traffic: core,
            })
            .collect();
        let mut populations: Vec<Population> = Vec::new();
        for mut plan in plans {
            plan.first_switch = populations.last().map_or(0, Population::next_switch);
            populations.push(Population::start(scratch, &plan, &cores)?);
        }
        Ok(Stage {
            populations,
            variants,
        })
    }

    /// Removes the variants whose entry does not support this many NFs.
    ///
    /// # Errors
    /// When no variant remains.
    fn leave_out(&mut self, scratch: &Scratch, nfs: u32) -> anyhow::Result<()> {
        let mut possible = Vec::new();
        let mut no_room = None;
        for variant in self.variants.drain(..) {
            match self.populations[variant.population].set_entry(&scratch.switch, variant.entry) {
                Ok(()) => possible.push(variant),
                Err(error) if is_limit(&error) => {
                    println!("\n{nfs} NFs, {:?}, left out: {error:#}", variant.entry);
                    no_room = Some(error);
                }
                Err(error) => return Err(error),
            }
        }
        self.variants = possible;
        match no_room {
            Some(error) if self.variants.is_empty() => Err(error),
            _ => Ok(()),
        }
    }

    /// Measures at full rate, then all variants at [`MODERATE`] of the slowest variant's rate.
    fn both_loads(
        &self,
        scratch: &Scratch,
        len: usize,
        times: (usize, f64),
    ) -> anyhow::Result<Vec<(Repetitions, Repetitions)>> {
        let mut offer = Offer {
            len,
            window: WINDOW,
            mpps: 0.0,
        };
        let full = self.in_turn(scratch, &offer, times)?;
        let reached = full.iter().map(|repetitions| repetitions.mpps.median());
        offer.mpps = reached.fold(f64::INFINITY, f64::min) * MODERATE;
        let half = self.in_turn(scratch, &offer, times)?;
        Ok(full.into_iter().zip(half).collect())
    }

    fn in_turn(
        &self,
        scratch: &Scratch,
        offer: &Offer,
        (rounds, seconds): (usize, f64),
    ) -> anyhow::Result<Vec<Repetitions>> {
        let traffic = self
            .populations
            .iter()
            .map(|population| population.traffic(offer));
        let mut traffic = traffic.collect::<anyhow::Result<Vec<_>>>()?;
        let mut measured: Vec<Vec<_>> = self.variants.iter().map(|_| Vec::new()).collect();
        for round in 0..=rounds {
            for (variant, measured) in self.variants.iter().zip(&mut measured) {
                let population = &self.populations[variant.population];
                population.set_entry(&scratch.switch, variant.entry)?;
                let one = population.round(&mut traffic[variant.population], seconds)?;
                // The first round warms up.
                if round > 0 {
                    measured.push(one);
                }
            }
        }
        let repetitions = measured
            .iter()
            .map(|of_variant| Repetitions::of(of_variant, offer.len));
        Ok(repetitions.collect())
    }
}

/// Measures the CPU time of idle NFs over the longest sleep.
fn idle(
    report: &mut Report,
    architecture: &Architecture,
    population: &Population,
    nfs: u32,
) -> anyhow::Result<()> {
    let longest = if nfs >= MANY {
        // By then the NFs' sleeps have reached their final length.
        std::thread::sleep(report.choose(AGEING_IDLE, Duration::ZERO));
        AGEING_IDLE
    } else {
        FEW_SLEEP
    };
    let time = report.effort(longest, Duration::from_secs(1));
    let (start, before) = (Instant::now(), population.cpu_seconds()?);
    std::thread::sleep(time);
    let used = population.cpu_seconds()? - before;
    report.derived(
        format!("{}.{nfs}.idle_cpu_percent", architecture.id),
        used / start.elapsed().as_secs_f64() * 100.0,
        "%",
        &format!(
            "CPU time of {nfs} NFs without a frame, percent of one core; if they are many, they sleep for 64 s at a time, and have done nothing for as long before"
        ),
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::is_limit;
    use anyhow::{Context, anyhow};
    use nfluid_switch::SwitchError;
    use nfluid_testbed::CannotRun;

    // promise: 13.9
    #[test]
    fn a_number_is_left_out_for_want_of_room_only() {
        let host = CannotRun("small".to_owned());
        assert!(is_limit(&host.into()));
        let platform = Err::<(), _>(SwitchError::Limit("no more ports".to_owned()));
        let platform = platform.context("joining").expect_err("a limit");
        assert!(is_limit(&platform));
        assert!(!is_limit(&anyhow!("an NF has ended")));
    }
}
