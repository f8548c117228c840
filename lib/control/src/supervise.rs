//! The decision about the restart of an ended instance.
//!
//! A state machine without a clock: time is handed to it, in milliseconds on any monotonic clock.

use crate::model::{Restart, RestartPolicy};
use crate::quantity::Millis;

/// The kind of an instance's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The program ended by itself, with success.
    Success,
    /// The program ended with an error, by a signal, or by a limit.
    Failure,
}

/// The decision after an exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Restart the instance at this time.
    RestartAt(Millis),
    /// Do not restart: the policy asks for no restart.
    Stop,
    /// Do not restart: the instance failed more often in a row than its policy allows.
    GiveUp {
        /// Number of consecutive restarts that were tried.
        restarts: u32,
    },
}

/// The supervisor of one instance.
#[derive(Clone, Debug)]
pub struct Supervisor {
    restart: Restart,
    state: State,
    /// Restarts since the last healthy run.
    in_a_row: u32,
    /// Total number of restarts.
    total: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Running { since: Millis },
    Waiting { until: Millis },
    Ended,
}

impl Supervisor {
    /// Creates the supervisor of an instance that was started at `now`.
    pub fn new(restart: Restart, now: Millis) -> Self {
        Supervisor {
            restart,
            state: State::Running { since: now },
            in_a_row: 0,
            total: 0,
        }
    }

    /// Changes the policy; a wait in progress goes on.
    pub fn set_restart(&mut self, restart: Restart) {
        self.restart = restart;
    }

    /// Returns the number of restarts since the supervisor was created.
    pub fn restarts(&self) -> u64 {
        self.total
    }

    /// Returns true if a restart is due at `now`.
    pub fn is_due(&self, now: Millis) -> bool {
        matches!(self.state, State::Waiting { until } if until <= now)
    }

    /// Returns the time of the next restart, if one is due.
    pub fn due_at(&self) -> Option<Millis> {
        match self.state {
            State::Waiting { until } => Some(until),
            _ => None,
        }
    }

    /// Notes that the instance was started again at `now`, by this policy or by an operator.
    pub fn started(&mut self, now: Millis) {
        self.state = State::Running { since: now };
        self.total += 1;
    }

    /// Forgets past failures, for a restart by an operator.
    pub fn forgive(&mut self) {
        self.in_a_row = 0;
    }

    /// Notes that the instance ended at `now`, or could not be started. Returns the decision.
    pub fn ended(&mut self, now: Millis, exit: Exit) -> Decision {
        if let State::Running { since } = self.state
            && now.0.saturating_sub(since.0) >= self.restart.healthy.0
        {
            self.in_a_row = 0;
        }
        self.state = State::Ended;
        let wanted = match self.restart.policy {
            RestartPolicy::Always => true,
            RestartPolicy::OnFailure => exit == Exit::Failure,
            RestartPolicy::Never => false,
        };
        if !wanted {
            return Decision::Stop;
        }
        if self.restart.max.is_some_and(|max| self.in_a_row >= max) {
            return Decision::GiveUp {
                restarts: self.in_a_row,
            };
        }
        let until = Millis(now.0.saturating_add(self.wait().0));
        self.in_a_row = self.in_a_row.saturating_add(1);
        self.state = State::Waiting { until };
        Decision::RestartAt(until)
    }

    /// Returns the wait before the next restart: the shortest wait, doubled for each restart in a row.
    fn wait(&self) -> Millis {
        let backoff = self.restart.backoff;
        let factor = 1u64.checked_shl(self.in_a_row).unwrap_or(u64::MAX);
        Millis(
            backoff
                .shortest
                .0
                .saturating_mul(factor)
                .min(backoff.longest.0),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Backoff;
    use proptest::prelude::*;

    fn policy(policy: RestartPolicy, max: Option<u32>) -> Restart {
        Restart {
            policy,
            max,
            backoff: Backoff {
                shortest: Millis(100),
                longest: Millis(1_000),
            },
            healthy: Millis(5_000),
        }
    }

    /// Returns the waits of `count` crashes, each right after its start.
    fn waits(supervisor: &mut Supervisor, mut now: u64, count: usize) -> Vec<u64> {
        let mut waits = Vec::new();
        for _ in 0..count {
            let Decision::RestartAt(at) = supervisor.ended(Millis(now), Exit::Failure) else {
                break;
            };
            waits.push(at.0 - now);
            now = at.0;
            supervisor.started(Millis(now));
        }
        waits
    }

    // promise: 5.5
    #[test]
    fn waits_double_up_to_the_longest() {
        let mut supervisor = Supervisor::new(policy(RestartPolicy::Always, None), Millis(0));
        assert_eq!(
            waits(&mut supervisor, 0, 6),
            [100, 200, 400, 800, 1_000, 1_000]
        );
        assert_eq!(supervisor.restarts(), 6);
    }

    // promise: 5.6
    #[test]
    fn by_default_the_first_restart_comes_soon_and_a_crash_loop_slows_down() {
        let mut supervisor = Supervisor::new(Restart::default(), Millis(0));
        let waits = waits(&mut supervisor, 0, 12);
        assert_eq!(waits[..4], [10, 20, 40, 80]);
        assert_eq!(waits[10..], [10_000, 10_000]);
    }

    // promise: 5.5
    #[test]
    fn a_healthy_run_starts_the_waits_anew() {
        let mut supervisor = Supervisor::new(policy(RestartPolicy::Always, None), Millis(0));
        waits(&mut supervisor, 0, 3);
        let since = 700;
        assert_eq!(
            supervisor.ended(Millis(since + 5_000), Exit::Failure),
            Decision::RestartAt(Millis(since + 5_100))
        );
    }

    // promise: 5.5
    #[test]
    fn a_crash_loop_is_given_up_and_can_be_forgiven() {
        let mut supervisor = Supervisor::new(policy(RestartPolicy::Always, Some(2)), Millis(0));
        assert_eq!(waits(&mut supervisor, 0, 9), [100, 200]);
        assert_eq!(supervisor.due_at(), None);
        supervisor.started(Millis(400));
        assert_eq!(
            supervisor.ended(Millis(401), Exit::Failure),
            Decision::GiveUp { restarts: 2 }
        );
        supervisor.forgive();
        supervisor.started(Millis(500));
        assert_eq!(waits(&mut supervisor, 501, 1), [100]);
    }

    #[test]
    fn policies_look_at_how_it_ended() {
        for (restart, exit, again) in [
            (RestartPolicy::Always, Exit::Success, true),
            (RestartPolicy::Always, Exit::Failure, true),
            (RestartPolicy::OnFailure, Exit::Success, false),
            (RestartPolicy::OnFailure, Exit::Failure, true),
            (RestartPolicy::Never, Exit::Success, false),
            (RestartPolicy::Never, Exit::Failure, false),
        ] {
            let mut supervisor = Supervisor::new(policy(restart, None), Millis(0));
            let decision = supervisor.ended(Millis(1), exit);
            assert_eq!(matches!(decision, Decision::RestartAt(_)), again);
            assert_eq!(supervisor.is_due(Millis(u64::MAX)), again);
        }
    }

    proptest! {
        #[test]
        fn a_wait_is_never_shorter_than_the_shortest_nor_longer_than_the_longest(
            ends in proptest::collection::vec((0u64..20_000, any::<bool>()), 1..200),
        ) {
            let mut supervisor = Supervisor::new(policy(RestartPolicy::Always, None), Millis(0));
            let mut now = 0u64;
            for (run, failed) in ends {
                now += run;
                let exit = if failed { Exit::Failure } else { Exit::Success };
                let Decision::RestartAt(at) = supervisor.ended(Millis(now), exit) else {
                    panic!("always means always");
                };
                prop_assert!((100..=1_000).contains(&(at.0 - now)));
                prop_assert!(!supervisor.is_due(Millis(at.0 - 1)) && supervisor.is_due(at));
                now = at.0;
                supervisor.started(at);
            }
        }
    }
}
