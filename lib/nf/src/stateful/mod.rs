//! The state of an NF on its way to another instance: to the successor in an upgrade, into a file, to a clone.
//!
//! [`export`] makes an image: a header that identifies the image, records, a checksum
//! (`docs/adr/0013-state-of-nfs.md`). [`import`] trusts nothing in the image: it may come from a hostile instance,
//! another version, a damaged disk. Records that do not fit the new instance's configuration or limits are left out
//! and counted; a malformed record is an error.
//!
//! Times are kept as the rest or the past part of a time, never as moments: the other instance has another clock.

mod image;
mod reader;
#[cfg(test)]
mod tests;
mod writer;

pub use image::{FORMAT, IMAGE_BYTES_MAX};
pub use reader::Reader;
pub use writer::Writer;

use crate::function::{Nanos, NetworkFunction};
use alloc::string::String;
use alloc::vec::Vec;
use nfluid_ring::flow::Buckets;
use thiserror::Error;

/// The operations of an NF whose state is worth keeping.
pub trait Stateful {
    /// Version of the records that [`Stateful::export`] writes; a change of them is another version.
    fn state_version(&self) -> u16;

    /// The oldest version of the records that [`Stateful::import`] reads: that of [`Reader::version`] is not below it.
    fn oldest_version(&self) -> u16 {
        self.state_version()
    }

    /// Writes the state, as it is at `now`.
    fn export(&mut self, now: Nanos, writer: &mut Writer);

    /// Adds the state of another instance, as far as the own configuration and limits allow.
    ///
    /// # Errors
    /// Malformed records. The records before them have been added.
    fn import(&mut self, now: Nanos, reader: &mut Reader<'_>) -> Result<Imported, StateError>;

    /// Imports a part of the state, as [`Stateful::import`]: omitted records are not counted. A part is only imported
    /// by NFs that divide by flow ([`NetworkFunction::divides_by_flow`]); the behaviour of other NFs does not matter.
    ///
    /// # Errors
    /// As for [`Stateful::import`].
    fn import_part(
        &mut self,
        now: Nanos,
        reader: &mut Reader<'_>,
        _part: &Part,
    ) -> Result<Imported, StateError> {
        self.import(now, reader)
    }

    /// Ends all flows but those in `kept`: other instances go on with them. Counters stay. Returns the number of
    /// ended flows.
    fn part_with(&mut self, _kept: &Buckets) -> u64 {
        0
    }

    /// Imports a state and forgets it: the import that follows finds the memory that it needs. Only for an NF that
    /// has no state of its own yet; afterwards it still has none. Malformed records are not reported. An NF without
    /// tables does nothing.
    fn rehearse(&mut self, _now: Nanos, _reader: &mut Reader<'_>) {}
}

/// An NF whose state is counters, none of which is an entry that an importer could leave out.
pub trait OnlyCounts {
    /// As [`Stateful::state_version`].
    const VERSION: u16;

    /// Writes the counters.
    fn write_counts(&self, writer: &mut Writer);

    /// Adds the counters of another instance.
    ///
    /// # Errors
    /// As for [`Stateful::import`].
    fn add_counts(&mut self, reader: &mut Reader<'_>) -> Result<(), StateError>;
}

impl<T: OnlyCounts> Stateful for T {
    fn state_version(&self) -> u16 {
        T::VERSION
    }

    fn export(&mut self, _now: Nanos, writer: &mut Writer) {
        self.write_counts(writer);
    }

    fn import(&mut self, _now: Nanos, reader: &mut Reader<'_>) -> Result<Imported, StateError> {
        self.add_counts(reader)?;
        Ok(Imported::default())
    }

    fn import_part(
        &mut self,
        now: Nanos,
        reader: &mut Reader<'_>,
        part: &Part,
    ) -> Result<Imported, StateError> {
        if part.counts {
            return self.import(now, reader);
        }
        reader.skip_rest();
        Ok(Imported::default())
    }
}

/// The part of another instance's state that an instance takes over, when flows move between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The flows.
    pub flows: Buckets,
    /// Imports the other's counters as well, because the other ends, if true.
    pub counts: bool,
}

/// Result of importing the entries of an image: states, mappings, neighbours, buckets. Counters are no entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// Entries that were taken over.
    pub taken: u64,
    /// Entries that the configuration does not know any more, or for which there is no room.
    pub left_out: u64,
}

impl Imported {
    /// Counts one entry.
    pub fn count(&mut self, taken: bool) {
        if taken {
            self.taken += 1;
        } else {
            self.left_out += 1;
        }
    }
}

/// The reason why an image cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum StateError {
    /// The bytes begin with another magic number.
    #[error("this is no state of an NF")]
    NoImage,
    /// The image is longer than [`IMAGE_BYTES_MAX`].
    #[error("{0} bytes of state are more than the {IMAGE_BYTES_MAX} that are read")]
    TooLong(usize),
    /// The image ends early, or goes on after its end.
    #[error("the state has {found} bytes, and says that it has {said}: it is not whole")]
    Length {
        /// Bytes that are there.
        found: u64,
        /// Bytes that its header announces.
        said: u64,
    },
    /// The checksum is not that of the bytes.
    #[error("the state is damaged: its checksum is wrong")]
    Checksum,
    /// The image has another format.
    #[error("the state is of format {found}, this version reads format {FORMAT}")]
    Format {
        /// The format of the image.
        found: u16,
    },
    /// The state of another NF.
    #[error("the state is that of a '{found}', not of a '{expected}'")]
    Foreign {
        /// The NF of the image.
        found: String,
        /// The NF that imports the image.
        expected: String,
    },
    /// Other records.
    #[error("the state is of version {found}, this '{nf}' reads version {expected}")]
    Version {
        /// The NF.
        nf: String,
        /// Version of the records.
        found: u16,
        /// Version that is understood.
        expected: u16,
    },
    /// A record that is none.
    #[error("the state makes no sense at byte {at}: {what}")]
    Malformed {
        /// Position, counted from the first record.
        at: usize,
        /// The defect there.
        what: &'static str,
    },
    /// Flows of the NF cannot be separated.
    #[error("the state of the NF '{nf}' cannot be divided: {why}")]
    Shared {
        /// The NF.
        nf: String,
        /// The reason.
        why: &'static str,
    },
    /// The NF keeps no state.
    #[error("the NF '{0}' has no state that could be moved")]
    Stateless(String),
}

/// The state of `nf`, which is one of the NF `name`, as it is at `now`.
///
/// # Errors
/// [`StateError::Stateless`], [`StateError::TooLong`].
pub fn export(name: &str, nf: &mut dyn NetworkFunction, now: Nanos) -> Result<Vec<u8>, StateError> {
    export_into(Vec::new(), name, nf, now)
}

/// As [`export`], in the memory of `buffer`.
///
/// # Errors
/// As for [`export`].
pub fn export_into(
    buffer: Vec<u8>,
    name: &str,
    nf: &mut dyn NetworkFunction,
    now: Nanos,
) -> Result<Vec<u8>, StateError> {
    let stateful = nf
        .stateful()
        .ok_or_else(|| StateError::Stateless(name.into()))?;
    let mut writer = Writer::behind(image::begin(buffer, name, stateful.state_version())?);
    stateful.export(now, &mut writer);
    image::seal(writer.into_written(), name)
}

/// Makes an image with any records, for tests of untrusted imports.
///
/// # Errors
/// [`StateError::TooLong`].
#[cfg(any(test, feature = "testing"))]
pub fn forged(name: &str, version: u16, records: &[u8]) -> Result<Vec<u8>, StateError> {
    let mut image = image::begin(Vec::new(), name, version)?;
    image.extend_from_slice(records);
    image::seal(image, name)
}

/// Adds the state in `image` to that of `nf`, which is one of the NF `name`.
///
/// # Errors
/// See [`StateError`]. Only after [`StateError::Malformed`] a part of the state may have been added: only a forger
/// makes such an image.
pub fn import(
    name: &str,
    nf: &mut dyn NetworkFunction,
    now: Nanos,
    image: &[u8],
) -> Result<Imported, StateError> {
    let (stateful, mut reader) = open(name, nf, image)?;
    let imported = stateful.import(now, &mut reader)?;
    reader.end()?;
    Ok(imported)
}

/// As [`import`], of a part of the state.
///
/// # Errors
/// As for [`import`], and [`StateError::Shared`] for an NF whose flows cannot be separated.
pub fn import_part(
    name: &str,
    nf: &mut dyn NetworkFunction,
    now: Nanos,
    image: &[u8],
    part: &Part,
) -> Result<Imported, StateError> {
    if let Err(why) = nf.divides_by_flow() {
        return Err(StateError::Shared {
            nf: name.into(),
            why,
        });
    }
    let (stateful, mut reader) = open(name, nf, image)?;
    let imported = stateful.import_part(now, &mut reader, part)?;
    reader.end()?;
    Ok(imported)
}

/// Has `nf`, which is one of the NF `name` and has no state yet, take in the state in `image` and forget it: see
/// [`Stateful::rehearse`].
///
/// # Errors
/// See [`StateError`]; it has no state either way.
pub fn rehearse(
    name: &str,
    nf: &mut dyn NetworkFunction,
    now: Nanos,
    image: &[u8],
) -> Result<(), StateError> {
    let (stateful, mut reader) = open(name, nf, image)?;
    stateful.rehearse(now, &mut reader);
    Ok(())
}

/// The records of an image that is one for `nf`.
fn open<'nf, 'image>(
    name: &str,
    nf: &'nf mut dyn NetworkFunction,
    image: &'image [u8],
) -> Result<(&'nf mut dyn Stateful, Reader<'image>), StateError> {
    let stateful = nf
        .stateful()
        .ok_or_else(|| StateError::Stateless(name.into()))?;
    let opened = image::open(image)?;
    if opened.name != name {
        return Err(StateError::Foreign {
            found: opened.name.into(),
            expected: name.into(),
        });
    }
    if !(stateful.oldest_version()..=stateful.state_version()).contains(&opened.version) {
        return Err(StateError::Version {
            nf: name.into(),
            found: opened.version,
            expected: stateful.state_version(),
        });
    }
    Ok((stateful, Reader::new(opened.version, opened.records)))
}
