//! Writing records.

use alloc::vec::Vec;
use serde::Serialize;

/// Takes the records of an NF, one after the other, as [postcard](https://postcard.jamesmunns.com/wire-format) has them.
#[derive(Debug)]
pub struct Writer {
    written: Vec<u8>,
}

impl Writer {
    /// Writes behind the present bytes.
    pub fn behind(written: Vec<u8>) -> Self {
        Writer { written }
    }

    /// Writes one record.
    ///
    /// # Panics
    /// For a type that postcard cannot write (a sequence of unknown length): no NF has one.
    pub fn put<T: Serialize>(&mut self, record: &T) {
        let before = core::mem::take(&mut self.written);
        self.written = postcard::to_extend(record, before)
            .expect("records are plain data, and memory takes any number of bytes");
    }

    /// Writes records that were written elsewhere.
    pub fn put_records(&mut self, records: &[u8]) {
        self.written.extend_from_slice(records);
    }

    /// Writes a list: its length, then each record. The function goes through the records twice, so that the caller
    /// need not collect them.
    pub fn list<T: Serialize>(&mut self, records: impl Iterator<Item = T> + Clone) {
        self.put(&(records.clone().count() as u64));
        for record in records {
            self.put(&record);
        }
    }

    /// Writes counters.
    pub fn counters(&mut self, counters: &[u64]) {
        self.list(counters.iter());
    }

    /// Returns what was written, behind what was there before.
    pub fn into_written(self) -> Vec<u8> {
        self.written
    }
}
