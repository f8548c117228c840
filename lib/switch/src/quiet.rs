//! Waiting until no call is under way that has seen the switch as it was before.
//!
//! A call that an instance makes itself is a reader of the kernel's RCU, and so is an uplink's program: a grace period waits
//! for them. An I/O thread's call may sleep, and is waited for by its port's own words. All of them end: the programs are
//! bounded, and a thread that is killed or stopped within one brings it to an end first.

use crate::SwitchError;
use crate::abi::{PORTS_MAX, PortState};
use crate::program::Switch;
use crate::states::States;
use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::fence;
use std::time::{Duration, Instant};

/// The time for which a call is waited for before the wait is logged: the call's thread has not got a CPU for so
/// long.
const LONG: Duration = Duration::from_secs(1);

/// Ports that have left a switch, whose frames may still be on their way to them.
#[derive(Debug, Default)]
pub(crate) struct Left {
    /// Ports other than those below may have an I/O thread, which started while another daemon ran.
    others: bool,
    ports: BTreeSet<u32>,
}

impl Left {
    /// At first: another daemon may have run before.
    pub(crate) fn before(others: bool) -> Self {
        Left {
            others,
            ..Left::default()
        }
    }
}

/// A call over a port's TX ring that may be under way.
pub(crate) struct CallUnderWay<'a> {
    state: &'a PortState,
    calls: u64,
}

impl<'a> CallUnderWay<'a> {
    /// The one that is under way now, if any.
    pub(crate) fn on(state: &'a PortState) -> Self {
        CallUnderWay {
            state,
            calls: state.tx_calls.load(SeqCst),
        }
    }

    /// A call that has begun may not have counted itself yet: it is over when the second after that has begun.
    pub(crate) fn is_over(&self) -> bool {
        self.state.busy.load(SeqCst) == 0
            || self.state.tx_calls.load(SeqCst).wrapping_sub(self.calls) >= 2
    }
}

impl Switch {
    /// Declares that I/O threads make the calls of these ports from now on, or no longer make them: the declaration
    /// comes before the first of such calls, and after the last. Until the first declaration, any port may have a
    /// thread.
    pub fn note_served(&self, ports: &[u32], are_served: bool) {
        let mut served = self.served.lock().unwrap_or_else(PoisonError::into_inner);
        if are_served {
            served.get_or_insert_default().extend(ports);
        } else if let Some(served) = &mut *served {
            served.retain(|port| !ports.contains(port));
        }
    }

    /// The ports whose calls I/O threads may make.
    fn served(&self) -> Vec<u32> {
        let served = self.served.lock().unwrap_or_else(PoisonError::into_inner);
        match &*served {
            Some(served) => served.iter().copied().collect(),
            None => (0..PORTS_MAX).collect(),
        }
    }

    /// Waits until every call of an I/O thread that is under way now is over, however long that takes: a caller that
    /// goes on before gives memory away that is still written to.
    ///
    /// # Errors
    /// The states of the ports cannot be mapped: calls may be still in progress.
    pub(crate) fn await_calls(&self) -> Result<(), SwitchError> {
        // An uplink's process has mapped its own port's state alone.
        let all = match self.states.covers(PORTS_MAX) {
            true => None,
            false => Some(States::map(self.map("nfl_ports")?.as_fd())?),
        };
        let states = all.as_ref().unwrap_or(&self.states);
        fence(SeqCst);
        let begun = Instant::now();
        let mut is_told = false;
        let served = self.served();
        let calls = served.into_iter().map(|port| (port, states.port(port)));
        let under_way: Vec<_> = calls
            .map(|(port, state)| (port, CallUnderWay::on(state)))
            .filter(|(_, call)| !call.is_over())
            .collect();
        for (port, call) in under_way {
            while !call.is_over() {
                if !is_told && begun.elapsed() > LONG {
                    is_told = true;
                    tracing::warn!(port, "waiting for a call of an I/O thread to end");
                }
                std::thread::yield_now();
            }
        }
        Ok(())
    }

    /// Waits until every call, of whomever, and every run of an interface's program that is under way now is over.
    ///
    /// # Errors
    /// The kernel refuses: programs may be still in progress.
    pub fn await_quiet(&self) -> Result<(), SwitchError> {
        self.await_programs()?;
        self.await_calls()
    }

    /// Notes that the port has left a switch: frames from that switch must have arrived before the port gets frames of
    /// another.
    pub(crate) fn note_left(&self, port: u32) {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        left.ports.insert(port);
    }

    /// Waits until no frame is in transit to a port from a switch that the port has left. This takes a grace period,
    /// some 10 ms, if the port has left one.
    ///
    /// # Errors
    /// As for [`Switch::await_quiet`].
    pub(crate) fn await_what_was_left(&self, port: u32) -> Result<(), SwitchError> {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        if left.others || left.ports.contains(&port) {
            self.await_quiet()?;
            *left = Left::default();
        }
        Ok(())
    }
}
