//! Time until a guest that does nothing has run its first instructions: from nothing, and in a machine that is ready.

use crate::host::machine;
use nfluid_figures::statistics::Samples;
use nfluid_testbed::interrupt;
use nfluid_vmm::{Hypervisor, Image};
use std::time::Instant;

/// The times of guests that do nothing, in milliseconds.
#[derive(Default)]
pub struct Starts {
    /// From the opening of KVM to the first ring of the doorbell.
    pub whole_ms: Samples,
    /// The part of it in which the guest runs.
    pub ready_ms: Samples,
    /// The end of the machine.
    pub end_ms: Samples,
}

impl Starts {
    /// Starts and ends guests, one after the other.
    ///
    /// # Errors
    /// KVM refuses.
    pub fn measure(&mut self, count: usize) -> anyhow::Result<()> {
        let image: Image = machine::noop()?;
        for _ in 0..count {
            interrupt::check()?;
            let begun = Instant::now();
            let hypervisor = Hypervisor::open()?;
            let mut machine = machine::bare(&hypervisor, image.clone())?;
            let made = Instant::now();
            machine.run()?;
            let running = Instant::now();
            drop(machine);
            let ended = Instant::now();
            let ms = |from: Instant, to: Instant| (to - from).as_secs_f64() * 1e3;
            self.whole_ms.push(ms(begun, running));
            self.ready_ms.push(ms(made, running));
            self.end_ms.push(ms(running, ended));
        }
        Ok(())
    }
}
