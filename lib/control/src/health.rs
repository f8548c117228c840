//! The health of a running instance: checks, and decisions from their results.
//!
//! A state machine without a clock. Time is counted as the instance had it: the time in which the instance waited for
//! a core does not count. So an instance with a small share, or with a busy neighbour, is not taken for one that
//! hangs.

use crate::quantity::Millis;
use serde::Serialize;
use std::fmt;

/// A kind of check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Check {
    /// nfluid's own program in the instance answers on its control socket, between two batches of frames.
    Process,
    /// Where frames wait, the instance takes some.
    Progress,
}

/// The action on an unhealthy instance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Remedy {
    /// The instance is killed, and restarted as its restart policy says.
    #[default]
    Restart,
    /// An event is reported, and the instance is left as it is.
    Report,
}

/// The health checks of an instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Health {
    /// The checks; empty: all that the program supports.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<Check>,
    /// Interval between two checks.
    pub interval: Millis,
    /// The instance's own time within which it has to answer, and to take waiting frames.
    pub timeout: Millis,
    /// Consecutive failures after which it is unhealthy.
    pub failures: u32,
    /// Time after the start in which failures do not count.
    pub grace: Millis,
    /// The action on an unhealthy instance.
    pub action: Remedy,
}

impl Default for Health {
    fn default() -> Self {
        Health {
            checks: Vec::new(),
            interval: Millis::secs(1),
            timeout: Millis::secs(1),
            failures: 3,
            grace: Millis::secs(5),
            action: Remedy::default(),
        }
    }
}

impl Health {
    /// Returns true if `check` applies to an instance in which nfluid's own program runs, or not.
    pub fn makes(&self, check: Check, is_hosted: bool) -> bool {
        let is_possible = check == Check::Progress || is_hosted;
        is_possible && (self.checks.is_empty() || self.checks.contains(&check))
    }
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "every {}", self.interval)
    }
}

/// The state of the last question to an NF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// No question was asked since the last answer.
    NotAsked,
    /// The answer has come.
    Came,
    /// The answer has come, and says that work was late since the last one.
    Late,
    /// The answer is awaited.
    Awaited,
    /// An invalid answer has come, or the NF does not listen.
    Wrong(&'static str),
}

/// The state of a port's ring. The instance's own position may be any number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingFound {
    /// Frames that wait.
    pub waiting: u32,
    /// The position up to which the instance has read, as the instance reports it.
    pub read_to: u32,
}

/// The readings of one check.
#[derive(Clone, Debug)]
pub struct Look {
    /// Time since the instance was started, or taken over.
    pub age: Millis,
    /// The instance's own time since the last check: it ran, or did not want to run.
    pub had: Millis,
    /// The state of its control socket.
    pub answer: Answer,
    /// The states of its rings, always in the same order.
    pub rings: Vec<RingFound>,
    /// True if the instance waits for room in the rings of its receivers.
    pub is_held_up: bool,
}

/// A change of health.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The instance has become unhealthy, with the reason.
    Fell(String),
    /// The instance does its work, but too late, with the reason. Another start would not help it.
    Late(String),
    /// The instance is healthy again.
    Recovered,
}

#[derive(Clone, Copy, Debug, Default)]
struct Stall {
    read_to: u32,
    lasted: Millis,
}

/// Tracks the health of one run of an instance.
#[derive(Clone, Debug, Default)]
pub struct Checkup {
    silent: Millis,
    stalls: Vec<Stall>,
    /// Consecutive failures.
    failures: u32,
    /// The instance's own time at the last failure that was counted.
    counted: Millis,
    is_unhealthy: bool,
    /// Consecutive answers that say that work was late.
    late: u32,
    is_late: bool,
}

impl Checkup {
    /// Evaluates a check. Returns a change of health.
    pub fn look(&mut self, health: &Health, look: &Look) -> Option<Turn> {
        self.follow(look);
        if look.age < health.grace {
            *self = Checkup {
                stalls: self.stalls.iter().map(Stall::without_time).collect(),
                ..Checkup::default()
            };
            return None;
        }
        let Some((lasted, why)) = self.trouble(look) else {
            self.failures = 0;
            self.counted = Millis(0);
            let is_well = std::mem::take(&mut self.is_unhealthy);
            let lateness = self.lateness(health, look);
            return is_well.then_some(Turn::Recovered).or(lateness);
        };
        let is_wrong = matches!(look.answer, Answer::Wrong(_));
        if is_wrong || lasted.0 >= self.counted.0.saturating_add(health.timeout.0) {
            self.counted = lasted;
            self.failures = self.failures.saturating_add(1);
        }
        if self.failures < health.failures || self.is_unhealthy {
            return None;
        }
        self.is_unhealthy = true;
        (self.late, self.is_late) = (0, false);
        Some(Turn::Fell(why))
    }

    /// Counts the answers of an instance that does not hang. Returns a change.
    fn lateness(&mut self, health: &Health, look: &Look) -> Option<Turn> {
        match look.answer {
            Answer::Late => self.late = self.late.saturating_add(1),
            Answer::Came => self.late = 0,
            Answer::NotAsked | Answer::Awaited | Answer::Wrong(_) => return None,
        }
        if self.late == 0 {
            return std::mem::take(&mut self.is_late).then_some(Turn::Recovered);
        }
        if self.late < health.failures || self.is_late {
            return None;
        }
        self.is_late = true;
        let checks = self.late;
        Some(Turn::Late(format!(
            "it was late with its work in {checks} checks in a row"
        )))
    }

    fn follow(&mut self, look: &Look) {
        self.silent = match look.answer {
            Answer::Awaited | Answer::Wrong(_) => self.silent.plus(look.had),
            Answer::NotAsked | Answer::Came | Answer::Late => Millis(0),
        };
        self.stalls.resize_with(look.rings.len(), Stall::default);
        for (stall, ring) in self.stalls.iter_mut().zip(&look.rings) {
            let moves = ring.waiting == 0 || ring.read_to != stall.read_to || look.is_held_up;
            stall.read_to = ring.read_to;
            stall.lasted = if moves {
                Millis(0)
            } else {
                stall.lasted.plus(look.had)
            };
        }
    }

    /// Returns the present fault, its duration, and its description.
    fn trouble(&self, look: &Look) -> Option<(Millis, String)> {
        if let Answer::Wrong(what) = look.answer {
            return Some((self.silent, what.to_owned()));
        }
        let silent = (
            self.silent,
            format!(
                "it has not answered for {} of its own running time",
                self.silent
            ),
        );
        let stalled = self.stalls.iter().zip(&look.rings).map(|(stall, ring)| {
            let why = format!(
                "{} frames wait, and it has taken none for {} of its own running time",
                ring.waiting, stall.lasted
            );
            (stall.lasted, why)
        });
        let worst = stalled.chain([silent]).max_by_key(|(lasted, _)| *lasted)?;
        (worst.0.0 > 0).then_some(worst)
    }
}

impl Stall {
    fn without_time(&self) -> Stall {
        Stall {
            lasted: Millis(0),
            ..*self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn health() -> Health {
        Health {
            timeout: Millis(1_000),
            failures: 3,
            grace: Millis(2_000),
            ..Health::default()
        }
    }

    fn look(age: u64, had: u64, answer: Answer, waiting: u32, read_to: u32) -> Look {
        Look {
            age: Millis(age),
            had: Millis(had),
            answer,
            rings: vec![RingFound { waiting, read_to }],
            is_held_up: false,
        }
    }

    /// Checks once a second from second `from` on. Returns the reported change, and the number of the check.
    fn first_change(
        checkup: &mut Checkup,
        from: u64,
        looks: u64,
        found: Look,
    ) -> Option<(u64, Turn)> {
        (from..from + looks).find_map(|second| {
            let look = Look {
                age: Millis(second * 1_000),
                ..found.clone()
            };
            Some((second, checkup.look(&health(), &look)?))
        })
    }

    #[test]
    fn a_silent_instance_becomes_unhealthy_once_after_its_failures_and_recovers() {
        let mut checkup = Checkup::default();
        let hung = look(0, 1_000, Answer::Awaited, 0, 7);
        let (at, turn) = first_change(&mut checkup, 0, 20, hung.clone()).expect("it falls");
        assert_eq!(at, 4, "two seconds of grace, three failures");
        assert!(matches!(turn, Turn::Fell(why) if why.contains("not answered for 3s")));
        assert_eq!(
            first_change(&mut checkup, 5, 20, hung),
            None,
            "it is told once"
        );
        let well = look(60_000, 1_000, Answer::Came, 0, 7);
        assert_eq!(checkup.look(&health(), &well), Some(Turn::Recovered));
        assert_eq!(checkup.look(&health(), &well), None);
    }

    #[test]
    fn frames_that_wait_count_until_some_are_taken() {
        let mut checkup = Checkup::default();
        let hung = look(0, 1_000, Answer::NotAsked, 5, 7);
        let (_, turn) = first_change(&mut checkup, 10, 20, hung.clone()).expect("it falls");
        assert!(matches!(turn, Turn::Fell(why) if why.starts_with("5 frames wait")));
        let mut checkup = Checkup::default();
        for second in 10..100u32 {
            let full = look(
                u64::from(second) * 1_000,
                1_000,
                Answer::Came,
                64,
                second / 2,
            );
            assert_eq!(checkup.look(&health(), &full), None, "slow, not hung");
        }
    }

    // promise: 5.16
    #[test]
    fn an_instance_that_a_receiver_holds_up_stays_healthy() {
        let held = Look {
            is_held_up: true,
            ..look(0, 1_000, Answer::NotAsked, 64, 7)
        };
        assert_eq!(first_change(&mut Checkup::default(), 10, 100, held), None);
    }

    // promise: 31.16
    #[test]
    fn work_that_is_late_is_told_once_and_does_not_hide_that_an_instance_hangs() {
        let mut checkup = Checkup::default();
        let late = look(0, 1_000, Answer::Late, 0, 7);
        let well = look(60_000, 1_000, Answer::Came, 0, 7);
        assert_eq!(first_change(&mut checkup, 10, 2, late.clone()), None);
        assert_eq!(checkup.look(&health(), &well), None, "not in a row");
        let (at, turn) = first_change(&mut checkup, 20, 9, late.clone()).expect("it is late");
        assert_eq!(at, 22);
        assert!(matches!(turn, Turn::Late(why) if why.contains("3 checks")));
        assert_eq!(first_change(&mut checkup, 23, 20, late.clone()), None);
        let hung = look(0, 1_000, Answer::Awaited, 0, 7);
        let (_, turn) = first_change(&mut checkup, 50, 20, hung).expect("it falls");
        assert!(matches!(turn, Turn::Fell(_)));
        assert_eq!(checkup.look(&health(), &well), Some(Turn::Recovered));
        let (_, turn) = first_change(&mut checkup, 80, 9, late).expect("it is late again");
        assert!(matches!(turn, Turn::Late(_)));
        assert_eq!(checkup.look(&health(), &well), Some(Turn::Recovered));
        assert_eq!(checkup.look(&health(), &well), None);
    }

    #[test]
    fn nonsense_is_a_failure_without_waiting() {
        let wrong = look(0, 0, Answer::Wrong("it answers nonsense"), 0, 0);
        let (at, turn) = first_change(&mut Checkup::default(), 10, 9, wrong).expect("it falls");
        assert_eq!((at, turn), (12, Turn::Fell("it answers nonsense".into())));
    }

    proptest! {
        /// Whatever the instance reports: with less time of its own than the failures take, it never becomes
        /// unhealthy.
        // promise: 5.16
        #[test]
        fn an_instance_without_cpu_time_never_becomes_unhealthy(
            looks in proptest::collection::vec((0u64..50, any::<u32>(), 0u32..3, any::<bool>()), 1..59),
        ) {
            let mut checkup = Checkup::default();
            for (had, waiting, read_to, is_answered) in looks {
                let answer = if is_answered { Answer::Came } else { Answer::Awaited };
                let found = look(1_000_000, had, answer, waiting, read_to);
                prop_assert_eq!(checkup.look(&health(), &found), None);
            }
        }
    }
}
