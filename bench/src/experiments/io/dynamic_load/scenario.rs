//! The rates offered to the NFs, and the number of NFs, at each time of a scenario.

use crate::roles::paced::Script;

/// Largest number of NFs.
pub const NFS: usize = 30;
/// A scenario's steps of five seconds each.
const STEPS: usize = 12;
/// Number of NFs at the beginning, and the change at each step.
const NFS_FIRST: usize = 15;
const NFS_STEP: usize = 3;

/// Number of steps by which a process starts before frames are offered to it.
const AHEAD: usize = 2;

/// The three scenarios of the literature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scenario {
    /// Each NF's rate changes at every step; the total rate is constant.
    Rates,
    /// The total rate changes as well: up from a quarter, and down again.
    Total,
    /// The number of NFs grows, then shrinks; each has the same rate.
    Population,
}

/// All scenarios.
pub const ALL: [Scenario; 3] = [Scenario::Rates, Scenario::Total, Scenario::Population];

/// Division of a scenario into stretches of time.
#[derive(Clone, Copy, Debug)]
pub struct Timeline {
    /// Number of stretches, a multiple of the steps.
    pub stretches: usize,
    /// Seconds of each stretch.
    pub seconds: f64,
}

impl Scenario {
    /// Returns the name in figure ids: the literature's letters.
    pub fn name(self) -> &'static str {
        match self {
            Scenario::Rates => "a",
            Scenario::Total => "b",
            Scenario::Population => "c",
        }
    }

    /// Returns the title for readers.
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

    /// Returns the number of NFs to which frames are offered.
    fn active(self, step: usize) -> usize {
        let most = (NFS - NFS_FIRST) / NFS_STEP;
        match self {
            Scenario::Population if step > most => NFS - NFS_STEP * (step - most),
            Scenario::Population => NFS_FIRST + NFS_STEP * step,
            Scenario::Rates | Scenario::Total => NFS,
        }
    }

    /// Returns the number of NFs whose processes run at the end of this stretch and the beginning of the next. A
    /// process starts before frames are offered to it, and ends after the frames of its last stretch have left.
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

/// Returns weights from 0.2 to 1.8, evenly spread over the NFs, and different at each step.
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
