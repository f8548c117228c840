//! Captures (pcap and pcapng), read as a stream: one record in memory at a time, whatever the size
//! of the file, and errors that say which record, at which byte, and how many were good before it.
//!
//! Read are both byte orders, microsecond and nanosecond pcap, and of pcapng the packet blocks with
//! the time resolution and offset of their interface, over several sections. Handed out are
//! Ethernet frames, bare IP packets and Linux's cooked ones; another link type is an error.

mod legacy;
mod nextgen;
mod window;

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use window::Window;

/// Longest record taken for meant, in bytes: the largest snapshot length of libpcap.
pub const RECORD_MAX: usize = 262_144;

/// The first header of a captured packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// An Ethernet header.
    Ethernet,
    /// An IPv4 or IPv6 header.
    Ip,
    /// The 16 bytes that Linux makes up for captures on all interfaces ("cooked", SLL); the last
    /// two are an ethertype.
    Cooked,
}

impl Link {
    /// From the number in the capture (<https://www.tcpdump.org/linktypes.html>).
    fn from_number(number: u32) -> Result<Self, Flaw> {
        match number {
            1 => Ok(Link::Ethernet),
            101 | 228 | 229 => Ok(Link::Ip),
            113 => Ok(Link::Cooked),
            _ => Err(format!(
                "link type {number}; known are Ethernet (1), raw IP (101, 228, 229) and \
                 Linux cooked (113): convert the capture first"
            )),
        }
    }
}

/// A captured frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Captured<'a> {
    /// Time of capture in nanoseconds since 1970.
    pub time_ns: u64,
    /// The first header of the bytes.
    pub link: Link,
    /// Length of the frame when it was captured, in bytes.
    pub original_len: usize,
    /// The bytes that were kept, perhaps fewer.
    pub bytes: &'a [u8],
}

/// The reason why a capture cannot be read, or not any further.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The file cannot be opened.
    #[error("{file}: {cause}")]
    Open {
        /// Name of the file.
        file: String,
        /// The cause.
        cause: io::Error,
    },
    /// The file is no capture.
    #[error("{file}: neither pcap nor pcapng: {reason}")]
    NotACapture {
        /// Name of the file.
        file: String,
        /// The reason, by the beginning of the file.
        reason: String,
    },
    /// A record is cut off, malformed, or of no use.
    #[error("{file}: record {record} at byte {offset}: {reason}; read {packets} packets before it")]
    Record {
        /// Name of the file.
        file: String,
        /// The record or block, counted from 1.
        record: u64,
        /// Its position, in bytes from the start of the file.
        offset: u64,
        /// The defect.
        reason: String,
        /// Packets read before.
        packets: u64,
    },
}

/// The defect of a record; place and file are added by [`Capture`].
type Flaw = String;

#[derive(Debug)]
enum Format {
    Legacy(legacy::Legacy),
    NextGen(nextgen::NextGen),
}

/// A capture being read.
#[derive(Debug)]
pub struct Capture<R> {
    file: String,
    window: Window<R>,
    format: Format,
    records: u64,
    packets: u64,
    failed: bool,
}

impl Capture<File> {
    /// Opens the capture in `path`.
    ///
    /// # Errors
    /// [`CaptureError::Open`] and [`CaptureError::NotACapture`].
    pub fn open(path: &Path) -> Result<Self, CaptureError> {
        let name = path.display().to_string();
        let file = File::open(path).map_err(|cause| CaptureError::Open {
            file: name.clone(),
            cause,
        })?;
        Capture::new(file, &name)
    }
}

impl<R: Read> Capture<R> {
    /// Reads a capture from `source`, called `name` in errors.
    ///
    /// # Errors
    /// [`CaptureError::Open`] and [`CaptureError::NotACapture`].
    pub fn new(source: R, name: &str) -> Result<Self, CaptureError> {
        let mut window = Window::new(source);
        let fail = |reason: String| CaptureError::NotACapture {
            file: name.to_owned(),
            reason,
        };
        let magic = window
            .peek(4)
            .map_err(|cause| CaptureError::Open {
                file: name.to_owned(),
                cause,
            })?
            .first_chunk::<4>()
            .copied()
            .ok_or_else(|| fail("shorter than four bytes".to_owned()))?;
        let format = if magic == nextgen::MAGIC {
            Format::NextGen(nextgen::NextGen::default())
        } else {
            Format::Legacy(legacy::Legacy::begin(&mut window).map_err(fail)?)
        };
        let file = name.to_owned();
        Ok(Capture {
            file,
            window,
            format,
            records: 0,
            packets: 0,
            failed: false,
        })
    }

    /// The next frame; `None` at the end. After an error there is nothing more.
    ///
    /// # Errors
    /// [`CaptureError::Record`].
    pub fn next_frame(&mut self) -> Result<Option<Captured<'_>>, CaptureError> {
        if self.failed {
            return Ok(None);
        }
        let found = match &mut self.format {
            Format::Legacy(legacy) => legacy.next_place(&mut self.window, &mut self.records),
            Format::NextGen(nextgen) => nextgen.next_place(&mut self.window, &mut self.records),
        };
        match found {
            Ok(None) => Ok(None),
            Ok(Some(place)) => {
                self.packets += 1;
                Ok(Some(Captured {
                    time_ns: place.time_ns,
                    link: place.link,
                    original_len: place.original_len,
                    bytes: &self.window.last()[place.bytes],
                }))
            }
            Err(reason) => {
                self.failed = true;
                Err(CaptureError::Record {
                    file: self.file.clone(),
                    record: self.records + 1,
                    offset: self.window.offset(),
                    reason,
                    packets: self.packets,
                })
            }
        }
    }

    /// Packets read so far.
    pub fn packets(&self) -> u64 {
        self.packets
    }
}

/// A frame within the record last taken from the window.
#[derive(Debug)]
struct Place {
    time_ns: u64,
    link: Link,
    original_len: usize,
    bytes: std::ops::Range<usize>,
}

#[cfg(test)]
mod tests;
