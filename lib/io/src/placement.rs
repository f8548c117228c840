//! On which core an I/O thread runs.

use rustix::thread::{CpuSet, sched_setaffinity};
use std::io;

/// The CPUs of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// On this core: `split`.
    Core(usize),
    /// On the core on which the instance runs, wherever it goes: `merge`.
    WithInstance,
    /// Wherever the scheduler puts it: `mix`.
    Anywhere,
}

/// Keeps a thread where it is to run.
#[derive(Debug)]
pub(crate) struct Pin {
    placement: Placement,
    core: Option<usize>,
}

impl Pin {
    /// For the calling thread.
    ///
    /// # Errors
    /// When it may not run on the core that was asked for.
    pub(crate) fn new(placement: Placement) -> io::Result<Self> {
        let mut pin = Pin {
            placement,
            core: None,
        };
        if let Placement::Core(core) = placement {
            pin.move_to(core)?;
        }
        Ok(pin)
    }

    /// Follows the instance, which says on which core it runs: its word, so a core that does not
    /// exist leaves the thread where it is.
    pub(crate) fn follow(&mut self, core: Option<usize>) {
        let Some(core) = core else { return };
        if self.placement == Placement::WithInstance && self.core != Some(core) {
            let _ = self.move_to(core);
        }
    }

    fn move_to(&mut self, core: usize) -> io::Result<()> {
        if core >= CpuSet::MAX_CPU {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        let mut cores = CpuSet::new();
        cores.set(core);
        sched_setaffinity(None, &cores)?;
        self.core = Some(core);
        Ok(())
    }
}
