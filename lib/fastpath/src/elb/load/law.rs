//! The law from an agent's values to a weight: smoothed, in steps, within bounds.
//!
//! A server's weight is the unloaded part of its configured weight. A new value is smoothed, and never counts more than
//! a full server's; small changes are not applied, so that tables of slots, and with them new connections, stay where
//! they are.

/// Values above this multiple of a full server's are refused.
const ABSURD: f64 = 100.0;
/// Percent: the configured weight.
const ALL: u32 = 100;

/// Parameters of the law.
#[derive(Clone, Copy, Debug)]
pub struct Law {
    /// The value of a fully loaded server.
    pub full: f64,
    /// Least weight of a server, in percent of its configured weight.
    pub least: u32,
    /// Weight of a new value, above 0 up to 1.
    pub smoothing: f64,
    /// Least change of a weight, in percent; smaller changes are not applied.
    pub step: u32,
    /// Failures in a row after which a server gets its configured weight.
    pub fall: u32,
}

/// Type of an agent's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A number.
    Number,
    /// A number as text.
    Text,
}

/// A reading of an agent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reading {
    /// The type of the values.
    pub kind: Kind,
    /// The mean of the values.
    pub value: f64,
}

/// Estimate of a server's load.
#[derive(Clone, Debug)]
pub struct Estimate {
    /// The load, 0 to 1; `None`: unknown.
    load: Option<f64>,
    kind: Option<Kind>,
    /// Percent of the configured weight in force.
    percent: u32,
    failures: u64,
    in_a_row: u32,
    reason: Option<String>,
}

impl Estimate {
    /// Makes the estimate of a server that has not been queried yet, with its former weight.
    pub fn new(percent: u32) -> Self {
        Estimate {
            load: None,
            kind: None,
            percent: percent.clamp(1, ALL),
            failures: 0,
            in_a_row: 0,
            reason: None,
        }
    }

    /// Percent of the configured weight.
    pub fn percent(&self) -> u32 {
        self.percent
    }

    /// The load in percent of a full server's.
    pub fn load_percent(&self) -> Option<u32> {
        self.load.map(|load| (load * 100.0).round() as u32)
    }

    /// Returns the number of failed or implausible readings.
    pub fn failures(&self) -> u64 {
        self.failures
    }

    /// Returns the reason why the last reading failed; `None` if it succeeded.
    pub fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }

    /// Returns true if the load has been unknown for so long that the configured weight is in force.
    pub fn has_given_up(&self, law: &Law) -> bool {
        self.in_a_row >= law.fall
    }

    /// Updates the estimate by a reading, or by the reason why there is none.
    pub fn take_in(&mut self, law: &Law, said: Result<Reading, String>) {
        match said.and_then(|reading| self.believe(law, reading)) {
            Ok(load) => {
                let before = self.load.unwrap_or(load);
                let load = before + (load - before) * law.smoothing;
                self.load = Some(load);
                self.in_a_row = 0;
                self.reason = None;
                let wanted = ((1.0 - load) * f64::from(ALL)).round() as u32;
                let wanted = wanted.clamp(law.least.min(ALL), ALL);
                if wanted.abs_diff(self.percent) >= law.step {
                    self.percent = wanted;
                }
            }
            Err(why) => {
                self.failures += 1;
                self.in_a_row = self.in_a_row.saturating_add(1);
                self.reason = Some(why);
                if self.has_given_up(law) {
                    self.load = None;
                    self.kind = None;
                    self.percent = ALL;
                }
            }
        }
    }

    /// Returns a plausible load, 0 to 1.
    fn believe(&mut self, law: &Law, reading: Reading) -> Result<f64, String> {
        let Reading { kind, value } = reading;
        if !value.is_finite() || value < 0.0 || value > law.full * ABSURD {
            return Err(format!("its load cannot be {value}"));
        }
        if *self.kind.get_or_insert(kind) != kind {
            return Err("its load is of another type than before".to_owned());
        }
        Ok((value / law.full).min(1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAW: Law = Law {
        full: 200.0,
        least: 10,
        smoothing: 0.5,
        step: 10,
        fall: 3,
    };

    fn number(value: f64) -> Result<Reading, String> {
        let kind = Kind::Number;
        Ok(Reading { kind, value })
    }

    fn silence() -> Result<Reading, String> {
        Err("no answer".to_owned())
    }

    fn percents(said: impl IntoIterator<Item = Result<Reading, String>>) -> Vec<u32> {
        let mut estimate = Estimate::new(100);
        said.into_iter()
            .map(|said| {
                estimate.take_in(&LAW, said);
                estimate.percent()
            })
            .collect()
    }

    // promise: 15.34
    #[test]
    fn a_weight_follows_the_load_smoothly_in_steps_and_within_bounds() {
        let loads = [
            0.0, 100.0, 100.0, 100.0, 110.0, 200.0, 200.0, 200.0, 200.0, 200.0,
        ];
        assert_eq!(
            percents(loads.map(number)),
            [100, 75, 63, 63, 51, 25, 13, 13, 13, 13]
        );
        let full = percents((0..50).map(|_| number(20_000.0)));
        assert_eq!(full, [10; 50], "a full server keeps a part");
        let tiny = percents([0.0, 19.0, 0.0, 19.0].map(number));
        assert_eq!(tiny, [100; 4], "little changes nothing");
    }

    // promise: 15.34
    #[test]
    fn what_cannot_be_true_counts_for_nothing_and_then_the_weight_is_the_configured_one() {
        let text = Ok(Reading {
            kind: Kind::Text,
            value: 100.0,
        });
        let lies = [
            number(f64::NAN),
            number(-1.0),
            number(f64::INFINITY),
            number(20_001.0),
            number(1e300),
            text,
            silence(),
        ];
        for lie in lies {
            let mut estimate = Estimate::new(100);
            estimate.take_in(&LAW, number(100.0));
            assert_eq!(estimate.percent(), 50);
            for _ in 0..2 {
                estimate.take_in(&LAW, lie.clone());
                assert_eq!(estimate.percent(), 50, "{lie:?}");
            }
            estimate.take_in(&LAW, lie.clone());
            assert_eq!(estimate.percent(), 100, "{lie:?}");
            assert_eq!((estimate.failures(), estimate.load_percent()), (3, None));
            assert!(estimate.reason().is_some());
            estimate.take_in(&LAW, number(100.0));
            assert_eq!((estimate.percent(), estimate.reason()), (50, None));
        }
    }

    // promise: 15.34
    #[test]
    fn no_agent_gets_its_server_more_than_is_configured_nor_less_than_its_part() {
        let mut estimate = Estimate::new(100);
        for said in 0..1000u32 {
            let value = f64::from(said.wrapping_mul(2_654_435_761) >> 8) - 1000.0;
            estimate.take_in(&LAW, number(value));
            assert!((LAW.least..=100).contains(&estimate.percent()));
        }
    }
}
