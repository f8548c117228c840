//! Reading records, none of which is believed.

use super::StateError;
use serde::Deserialize;

/// Gives out the records of an image in the order in which they were written.
#[derive(Debug)]
pub struct Reader<'a> {
    version: u16,
    all: usize,
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads records of a version.
    pub fn new(version: u16, records: &'a [u8]) -> Self {
        Reader {
            version,
            all: records.len(),
            rest: records,
        }
    }

    /// Version of the records.
    pub fn version(&self) -> u16 {
        self.version
    }

    /// Returns the next record. Text and bytes in it are borrowed: nothing is allocated by a length that the record
    /// claims.
    ///
    /// # Errors
    /// The next record is missing, or has another type.
    pub fn get<T: Deserialize<'a>>(&mut self) -> Result<T, StateError> {
        let (record, rest) = postcard::take_from_bytes(self.rest)
            .map_err(|_| self.nonsense("no such record can be there"))?;
        self.rest = rest;
        Ok(record)
    }

    /// Passes each record of the next list to `take`. The length that the list claims is only counted down.
    ///
    /// # Errors
    /// As for [`Reader::get`], and what `take` finds wrong.
    pub fn list<T: Deserialize<'a>>(
        &mut self,
        mut take: impl FnMut(T) -> Result<(), &'static str>,
    ) -> Result<(), StateError> {
        let count: u64 = self.get()?;
        for _ in 0..count {
            let at = self.rest;
            let record = self.get()?;
            take(record).map_err(|what| StateError::Malformed {
                at: self.all - at.len(),
                what,
            })?;
        }
        Ok(())
    }

    /// Adds counters to those of the other instance.
    ///
    /// # Errors
    /// The record has other counters.
    pub fn counters<'b>(
        &mut self,
        counters: impl IntoIterator<Item = &'b mut u64>,
    ) -> Result<(), StateError> {
        let mut counters = counters.into_iter();
        self.list(|value: u64| {
            let counter = counters.next().ok_or("more counters than there are")?;
            *counter = counter.saturating_add(value);
            Ok(())
        })?;
        match counters.next() {
            Some(_) => Err(self.nonsense("fewer counters than there are")),
            None => Ok(()),
        }
    }

    /// Returns all records that are left, as they were written.
    pub fn take_rest(&mut self) -> &'a [u8] {
        core::mem::take(&mut self.rest)
    }

    /// Leaves out all records that are left.
    pub fn skip_rest(&mut self) {
        self.rest = &[];
    }

    /// Returns an error about the last record.
    pub fn nonsense(&self, what: &'static str) -> StateError {
        StateError::Malformed {
            at: self.all - self.rest.len(),
            what,
        }
    }

    /// Ends reading.
    ///
    /// # Errors
    /// There are records that were not read.
    pub fn end(self) -> Result<(), StateError> {
        if self.rest.is_empty() {
            return Ok(());
        }
        Err(self.nonsense("there is more than the NF has read"))
    }
}
