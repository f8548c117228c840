//! The rates that are offered to the NFs, and the number of NFs, at each time of a scenario.

use crate::roles::paced::Script;

/// NFs at most.
pub const NFS: usize = 30;
/// A scenario's steps of five seconds each.
const STEPS: usize = 12;
/// NFs when it begins, and how many come or go with each step.
const NFS_FIRST: usize = 15;
const NFS_STEP: usize = 3;

/// Steps by which a process is started before frames are offered to it.
const AHEAD: usize = 2;

/// The literature's three.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scenario {
    /// Each NF's rate changes with every step, their total does not.
    Rates,
    /// The total changes too: up from a quarter, and down again.
    Total,
    /// NFs come, then go; each has the same rate.
    Population,
}

/// All of them.
pub const ALL: [Scenario; 3] = [Scenario::Rates, Scenario::Total, Scenario::Population];

/// How a scenario is cut into stretches of time.
#[derive(Clone, Copy, Debug)]
pub struct Timeline {
    /// A multiple of the steps.
    pub stretches: usize,
    /// Seconds of each.
    pub seconds: f64,
}

impl Scenario {
    /// As in figures: the literature's letters.
    pub fn name(self) -> &'static str {
        match self {
            Scenario::Rates => "a",
            Scenario::Total => "b",
            Scenario::Population => "c",
        }
    }

    /// For people.
    pub fn title(self) -> &'static str {
        match self {
            Scenario::Rates => "rates change, their total does not",
            Scenario::Total => "the total changes too",
            Scenario::Population => "NFs come and go",
        }
    }

    /// Returns the rate offered to each NF, in frames per second; `peak`: the highest total.
    pub fn script(self, timeline: &Timeline, peak: f64) -> Script {
        let rates = |stretch| self.rates(timeline.step(stretch), peak);
        Script {
            seconds: timeline.seconds,
            rates: (0..timeline.stretches).map(rates).collect(),
        }
    }

    fn rates(self, step: usize, peak: f64) -> Vec<f64> {
        let total = match self {
            Scenario::Rates => peak,
            Scenario::Total => {
                let middle = STEPS as f64 / 2.0;
                peak * (1.0 - 0.75 * (step as f64 - middle).abs() / middle)
            }
            Scenario::Population => {
                let active = self.active(step);
                let rate = |nf| if nf < active { peak / NFS as f64 } else { 0.0 };
                return (0..NFS).map(rate).collect();
            }
        };
        let weights: Vec<f64> = (0..NFS).map(|nf| weight(nf, step)).collect();
        let sum: f64 = weights.iter().sum();
        weights.iter().map(|weight| weight / sum * total).collect()
    }

    /// NFs that are offered frames.
    fn active(self, step: usize) -> usize {
        let most = (NFS - NFS_FIRST) / NFS_STEP;
        match self {
            Scenario::Population if step > most => NFS - NFS_STEP * (step - most),
            Scenario::Population => NFS_FIRST + NFS_STEP * step,
            Scenario::Rates | Scenario::Total => NFS,
        }
    }

    /// NFs whose processes run while this stretch is over and the next one begins. A process is started
    /// before frames are offered to it, and ends when those of its last stretch have gone.
    pub fn running(self, timeline: &Timeline, over: Option<usize>) -> usize {
        let next = timeline.step(over.map_or(0, |stretch| stretch + 1));
        let last = over.map(|stretch| timeline.step(stretch));
        let ahead = (next..=next + AHEAD).map(|step| step.min(STEPS - 1));
        let steps = last.into_iter().chain(ahead);
        steps.map(|step| self.active(step)).max().unwrap_or(NFS)
    }
}

impl Timeline {
    fn step(&self, stretch: usize) -> usize {
        (stretch * STEPS / self.stretches).min(STEPS - 1)
    }
}

/// From 0.2 to 1.8, spread evenly over the NFs, other ones with each step.
fn weight(nf: usize, step: usize) -> f64 {
    let golden = 0.618_033_988_749_895 * (nf + 17 * step) as f64;
    0.2 + 1.6 * golden.fract()
}

#[cfg(test)]
mod tests {
    use super::{ALL, NFS, Scenario, Timeline};

    const TIMELINE: Timeline = Timeline {
        stretches: 60,
        seconds: 1.0,
    };

    fn totals(scenario: Scenario) -> Vec<f64> {
        let rates = scenario.script(&TIMELINE, 30.0).rates;
        assert_eq!(rates.len(), 60);
        assert!(rates.iter().all(|rates| rates.len() == NFS));
        rates.iter().map(|rates| rates.iter().sum()).collect()
    }

    #[test]
    fn totals_are_as_the_scenario_says() {
        let is = |value: f64, wanted: f64| (value - wanted).abs() < 1e-9;
        assert!(
            totals(Scenario::Rates)
                .into_iter()
                .all(|total| is(total, 30.0))
        );
        let total = totals(Scenario::Total);
        assert!(is(total[0], 7.5) && is(total[30], 30.0));
        let population = totals(Scenario::Population);
        let wanted = [15, 18, 21, 24, 27, 30, 27, 24, 21, 18, 15, 12];
        for (step, wanted) in wanted.into_iter().enumerate() {
            assert!(
                is(population[5 * step], f64::from(wanted)),
                "{population:?}"
            );
        }
    }

    #[test]
    fn whoever_is_offered_frames_runs() {
        for scenario in ALL {
            let script = scenario.script(&TIMELINE, 30.0);
            for (stretch, rates) in script.rates.iter().enumerate() {
                let offered = rates.iter().filter(|rate| **rate > 0.0).count();
                let over = stretch.checked_sub(1);
                assert!(scenario.running(&TIMELINE, over) >= offered, "{stretch}");
                assert!(scenario.running(&TIMELINE, Some(stretch)) >= offered);
            }
        }
        let running = |over| Scenario::Population.running(&TIMELINE, over);
        assert_eq!((running(None), running(Some(59))), (21, 12));
    }
}
