//! Ports behind which are several instances: each flow has one of them (`docs/adr/0022-scale-out.md`).
//!
//! A table names the port that takes the frames of each bucket of flows, `nfluid_ring::flow`. The table is changed
//! while frames pass: each frame goes by the entry that it finds, and [`Switch::await_spread`] returns when all
//! frames have arrived that may have found the former entry.

use crate::SwitchError;
use crate::abi::{PORTS_MAX, QUEUES_SPREAD, SPREADS_MAX, SpreadState};
use crate::program::Switch;
use crate::quiet::CallUnderWay;
use crate::states::{Entry, Mapped};
use nfluid_ring::flow::BUCKETS;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::fence;
use std::time::{Duration, Instant};

/// Interval at which the arrival of a frame is checked.
const LOOK: Duration = Duration::from_micros(20);
/// No port has this number.
const NO_PORT: u32 = 0;

// SAFETY: atomics alone; the assertion in `abi.rs` is that of `switch_types.h`.
unsafe impl Entry for SpreadState {}

/// The port that takes the frames of each bucket.
pub type Members = [u32; BUCKETS];

impl Switch {
    fn spreads(&self) -> Result<&Mapped<SpreadState>, SwitchError> {
        if let Some(mapped) = self.spreads.get() {
            return Ok(mapped);
        }
        let map = self.map("nfl_spreads")?;
        let mapped = Mapped::map_entries(map.as_fd(), (0, SPREADS_MAX))?;
        Ok(self.spreads.get_or_init(|| mapped))
    }

    /// The table that port `front` has.
    fn spread_state(&self, front: u32) -> Result<Option<&SpreadState>, SwitchError> {
        let queues = self.state(front).queues.load(Acquire);
        if queues & QUEUES_SPREAD == 0 {
            return Ok(None);
        }
        Ok(Some(self.spreads()?.entry(queues % SPREADS_MAX)))
    }

    fn has_spread(&self, front: u32) -> Result<&SpreadState, SwitchError> {
        let why = || SwitchError::Limit(format!("port {front} has no members"));
        self.spread_state(front)?.ok_or_else(why)
    }

    /// Which ports take the frames for `front`; nothing: it does, or queues of its own.
    ///
    /// # Errors
    /// When the kernel refuses to show them.
    pub fn spread(&self, front: u32) -> Result<Option<Members>, SwitchError> {
        let state = self.spread_state(front)?;
        Ok(state.map(|state| {
            let mut members = [0; BUCKETS];
            for (member, port) in members.iter_mut().zip(&state.port) {
                *member = u32::from(port.load(Relaxed));
            }
            members
        }))
    }

    /// Gives port `front` a table, by which the port has all buckets itself. When this function returns, every frame in
    /// transit has been directed by the table. A port that has a table keeps it.
    ///
    /// # Errors
    /// All tables are in use, or the kernel refuses.
    pub fn begin_spread(&self, front: u32) -> Result<(), SwitchError> {
        if self.spread_state(front)?.is_some() {
            return Ok(());
        }
        let spreads = self.spreads()?;
        let is_free = |number: &u32| {
            let owner = spreads.entry(*number).front.load(Acquire);
            // A table whose owner is another port by now was left by a daemon that died.
            owner == NO_PORT
                || owner >= PORTS_MAX
                || self.state(owner).queues.load(Acquire) != QUEUES_SPREAD | number
        };
        let number = (0..SPREADS_MAX).find(is_free).ok_or_else(|| {
            SwitchError::Limit(format!(
                "{SPREADS_MAX} ports have several instances behind them, which is all that can be"
            ))
        })?;
        let state = spreads.entry(number);
        for port in &state.port {
            port.store(front as u16, Relaxed);
        }
        state.front.store(front, Release);
        let queues = &self.state(front).queues;
        queues.store(QUEUES_SPREAD | number, Release);
        // An arrival from an interface that has not seen the word is not counted: it has to be through.
        self.await_programs()
    }

    /// Sets the ports that take the frames for `front`, from now on.
    ///
    /// # Errors
    /// The port has no table.
    pub fn set_spread(&self, front: u32, members: &Members) -> Result<(), SwitchError> {
        let state = self.has_spread(front)?;
        for (port, member) in state.port.iter().zip(members) {
            port.store(*member as u16, Relaxed);
        }
        Ok(())
    }

    /// Waits until no frame for `front` is in transit that was directed by the table as it was before its last change.
    /// `senders` are the ports of instances that send frames there. Returns false if a frame is still in transit when
    /// `patience` is over.
    ///
    /// # Errors
    /// The port has no table.
    pub fn await_spread(
        &self,
        front: u32,
        senders: &[u32],
        patience: Duration,
    ) -> Result<bool, SwitchError> {
        let state = self.has_spread(front)?;
        let deadline = Instant::now() + patience;
        fence(SeqCst);
        for sender in senders {
            let port = self.state(*sender);
            let call = CallUnderWay::on(port);
            if !until(|| call.is_over(), deadline) {
                return Ok(false);
            }
        }
        // Twice: an arrival that is slow to count itself does so in the half that is looked at last.
        for _ in 0..2 {
            let half = state.turn.fetch_add(1, SeqCst) as usize % 2;
            if !until(|| state.inside[half].load(SeqCst) == 0, deadline) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Takes the table from port `front`, which has all of its flows again.
    ///
    /// # Errors
    /// When the kernel refuses; the port goes by its table then.
    pub fn end_spread(&self, front: u32) -> Result<(), SwitchError> {
        let Some(state) = self.spread_state(front)? else {
            return Ok(());
        };
        self.state(front).queues.store(1, Release);
        // A program that has read the word may still read the table.
        self.await_programs()?;
        state.front.store(NO_PORT, Release);
        Ok(())
    }

    /// The position behind the last frame that came, or is coming, into a port's RX ring.
    pub fn reserved_to(&self, port: u32) -> u32 {
        self.state(port).rx_reserved.load(Acquire) as u32
    }
}

fn until(mut is_so: impl FnMut() -> bool, deadline: Instant) -> bool {
    while !is_so() {
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(LOOK);
    }
    true
}
