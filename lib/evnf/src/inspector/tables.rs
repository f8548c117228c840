//! The tables of the fast path by their descriptors: all that a classifier needs, wherever it runs.

use super::copies::{Copied, Copies};
use super::entry::{Entry, FlowKey};
use crate::handed::{Handed, Words, open_read_only};
use crate::load::{Counts, LoadError, because};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// Flows that are decided, their counters, copies of packets, and the ledger.
#[derive(Debug)]
pub struct Tables {
    flows: Handed,
    counts: Handed,
    copies: OwnedFd,
    ledger: OwnedFd,
}

impl Tables {
    /// Number of descriptors.
    pub const COUNT: usize = 4;

    /// Makes tables from descriptors in the order of [`Tables::to_be_handed`]: flows, counters, copies, ledger. `cpus`:
    /// the number of possible CPUs of the kernel.
    ///
    /// # Errors
    /// When a descriptor is not the expected table.
    pub fn handed(fds: [OwnedFd; Self::COUNT], cpus: usize) -> Result<Self, LoadError> {
        let [flows, counts, copies, ledger] = fds;
        Ok(Tables {
            flows: Handed::new(flows, 1)?,
            counts: Handed::new(counts, cpus)?,
            copies,
            ledger,
        })
    }

    /// Returns descriptors of the tables in a folder for an untrusted process: it can read the program's counters, and
    /// write the other tables.
    ///
    /// # Errors
    /// When the tables do not exist.
    pub fn to_be_handed(&self, folder: &Path) -> Result<[OwnedFd; Self::COUNT], LoadError> {
        let own = self.try_clone()?;
        Ok([
            own.flows.into_descriptor(),
            open_read_only(&folder.join(super::program::COUNTS))?,
            own.copies,
            own.ledger,
        ])
    }

    /// Duplicates the descriptors of the tables.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub fn try_clone(&self) -> Result<Self, LoadError> {
        let clone = |fd: &OwnedFd| {
            let clone = fd.try_clone();
            clone.map_err(because("handed table", "duplicating its descriptor"))
        };
        Ok(Tables {
            flows: self.flows.try_clone()?,
            counts: self.counts.try_clone()?,
            copies: clone(&self.copies)?,
            ledger: clone(&self.ledger)?,
        })
    }

    /// Returns the largest number of flows.
    pub fn flows_max(&self) -> u32 {
        self.flows.entries_max()
    }

    /// Sets the entry of a flow in one step.
    ///
    /// # Errors
    /// When the table is full.
    pub fn enter(&self, key: &FlowKey, entry: &Entry) -> Result<(), LoadError> {
        self.flows.enter(key.bytes(), &entry.to_bytes())
    }

    /// Removes a flow from the table. A packet in progress may still be counted, within milliseconds.
    ///
    /// # Errors
    /// When the flow is not in the table.
    pub fn remove(&self, key: &FlowKey) -> Result<(), LoadError> {
        self.flows.remove(key.bytes())
    }

    /// Returns the flows that are in the table. Unreadable entries are taken out.
    pub fn entries(&self) -> Vec<(FlowKey, Entry)> {
        let keys = self.flows.keys().into_iter();
        let entries = keys.filter_map(|bytes| {
            let key = FlowKey::read(&bytes);
            let value = self.flows.value(&bytes).ok();
            let entry = value.and_then(|value| Entry::read(&value));
            let found = key.zip(entry);
            if found.is_none() {
                // Gone is as good.
                let _gone = self.flows.remove(&bytes);
            }
            found
        });
        entries.collect()
    }

    /// Returns the counts of a slot since the table was made.
    ///
    /// # Errors
    /// When the slot does not exist, or the kernel does not report the counts.
    pub fn counted(&self, slot: u32) -> Result<Counts, LoadError> {
        let each = self.counts.value(&slot.to_ne_bytes())?;
        let mut sum = Counts::default();
        for (word, at) in each.chunks_exact(8).zip(0..) {
            let word = word
                .first_chunk()
                .map_or(0, |word| u64::from_ne_bytes(*word));
            if at % 2 == 0 {
                sum.packets += word;
            } else {
                sum.bytes += word;
            }
        }
        Ok(sum)
    }

    /// Returns the ledger.
    ///
    /// # Errors
    /// When the ledger cannot be mapped.
    pub fn ledger(&self) -> Result<Words, LoadError> {
        Words::map(self.ledger.as_fd())
    }

    /// Passes each copy to `take`, which returns false to stop for now. Only a single reader is permitted.
    ///
    /// # Errors
    /// When the ring cannot be mapped.
    pub fn copies<'a>(
        &self,
        take: impl FnMut(Copied<'_>) -> bool + Send + 'a,
    ) -> Result<Copies<'a>, LoadError> {
        Copies::new(self.copies.as_fd(), take)
    }
}
