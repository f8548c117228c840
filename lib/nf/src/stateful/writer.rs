//! Writing records.

use alloc::vec::Vec;
use serde::Serialize;

/// Takes the records of an NF, one after the other, as [postcard](https://postcard.jamesmunns.com/wire-format) has them.
#[derive(Debug, Default)]
pub struct Writer {
    records: Vec<u8>,
}

impl Writer {
    /// Writes one record.
    ///
    /// # Panics
    /// For a type that postcard cannot write (a sequence of unknown length): no NF has one.
    pub fn put<T: Serialize>(&mut self, record: &T) {
        let before = core::mem::take(&mut self.records);
        self.records = postcard::to_extend(record, before)
            .expect("records are plain data, and memory takes any number of bytes");
    }

    /// Writes a list: how many, then each.
    pub fn list<T: Serialize>(&mut self, records: impl ExactSizeIterator<Item = T>) {
        self.put(&(records.len() as u64));
        for record in records {
            self.put(&record);
        }
    }

    /// Writes counters.
    pub fn counters(&mut self, counters: &[u64]) {
        self.list(counters.iter());
    }

    pub(super) fn into_records(self) -> Vec<u8> {
        self.records
    }
}
