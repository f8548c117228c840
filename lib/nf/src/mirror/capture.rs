//! The frames kept in memory, and how they leave it: as a pcap file.
//!
//! The file is the classic format, version 2.4, little endian, link type Ethernet, with
//! nanosecond timestamps (magic 0xa1b23c4d). Every program that reads pcap reads it.

use crate::function::{CommandError, Nanos};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

const MAGIC_NANOSECONDS: u32 = 0xa1b2_3c4d;
const LINK_TYPE_ETHERNET: u32 = 1;
const FILE_HEADER_LEN: usize = 24;
const RECORD_HEADER_LEN: usize = 16;
const NANOS_PER_SECOND: u64 = 1_000_000_000;
/// Memory of a frame besides its bytes: the record and the allocator's own.
const OVERHEAD: usize = 64;
/// Most frames of one answer.
const FRAMES_MAX: usize = 100_000;

#[derive(Debug)]
struct Record {
    at: Nanos,
    frame_len: u32,
    bytes: Box<[u8]>,
}

impl Record {
    fn cost(&self) -> usize {
        self.bytes.len() + OVERHEAD
    }
}

/// The latest frames that fit a number of bytes; the oldest give way.
#[derive(Debug)]
pub(super) struct Capture {
    records: VecDeque<Record>,
    bytes: usize,
    bytes_max: usize,
    /// Frames that were overwritten before a command read them.
    pub(super) overwritten: u64,
}

/// The parameters of a `pcap` command.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Request {
    limit: usize,
    clear: bool,
    /// Nanoseconds since 1970 at the host's moment 0; 0 leaves timestamps relative to that.
    epoch_ns: u64,
}

impl Request {
    /// Reads `limit=N clear=true epoch_ns=N`.
    pub(super) fn parse(args: &[String]) -> Result<Request, CommandError> {
        let mut request = Request {
            limit: FRAMES_MAX,
            clear: false,
            epoch_ns: 0,
        };
        for arg in args {
            let bad = || {
                CommandError::BadArgument(format!(
                    "'{arg}': write limit=1 to {FRAMES_MAX}, clear=true or epoch_ns=NANOSECONDS"
                ))
            };
            let (key, value) = arg.split_once('=').ok_or_else(bad)?;
            match key {
                "limit" => request.limit = value.parse().map_err(|_| bad())?,
                "clear" => request.clear = value.parse().map_err(|_| bad())?,
                "epoch_ns" => request.epoch_ns = value.parse().map_err(|_| bad())?,
                _ => return Err(bad()),
            }
            if !(1..=FRAMES_MAX).contains(&request.limit) {
                return Err(bad());
            }
        }
        Ok(request)
    }
}

impl Capture {
    pub(super) fn new(bytes_max: usize) -> Capture {
        Capture {
            records: VecDeque::new(),
            bytes: 0,
            bytes_max,
            overwritten: 0,
        }
    }

    /// Frames kept.
    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    /// Keeps a copy; `frame_len` is the whole frame's. A copy that is larger than the bound counts as overwritten.
    pub(super) fn record(&mut self, at: Nanos, bytes: &[u8], frame_len: usize) {
        let Some(rest) = self.bytes_max.checked_sub(bytes.len() + OVERHEAD) else {
            self.overwritten += 1;
            return;
        };
        self.shrink_to(rest);
        let record = Record {
            at,
            frame_len: frame_len as u32,
            bytes: bytes.into(),
        };
        self.bytes += record.cost();
        self.records.push_back(record);
    }

    /// Changes the bound.
    pub(super) fn set_bound(&mut self, bytes_max: usize) {
        self.bytes_max = bytes_max;
        self.shrink_to(bytes_max);
    }

    fn shrink_to(&mut self, bytes_max: usize) {
        while self.bytes > bytes_max
            && let Some(oldest) = self.records.pop_front()
        {
            self.bytes -= oldest.cost();
            self.overwritten += 1;
        }
    }

    /// Forgets all frames; returns how many.
    pub(super) fn clear(&mut self) -> usize {
        self.bytes = 0;
        let frames = self.records.len();
        self.records.clear();
        frames
    }

    /// The latest frames as a pcap file in base64.
    pub(super) fn answer(&mut self, now: Nanos, request: &Request, snaplen: usize) -> Value {
        let skipped = self.records.len().saturating_sub(request.limit);
        let chosen = self.records.iter().skip(skipped);
        let file = pcap_file(chosen, snaplen, request.epoch_ns);
        let answer = json!({
            "format": "pcap",
            "encoding": "base64",
            "frames": self.records.len() - skipped,
            "frames_left_out": skipped,
            "frames_overwritten": self.overwritten,
            "now_ns": now.0,
            "file": STANDARD.encode(file),
        });
        if request.clear {
            self.clear();
        }
        answer
    }
}

fn pcap_file<'a>(
    records: impl Iterator<Item = &'a Record> + Clone,
    snaplen: usize,
    epoch_ns: u64,
) -> Vec<u8> {
    let size = |record: &Record| RECORD_HEADER_LEN + record.bytes.len();
    let total: usize = records.clone().map(size).sum();
    let mut file = Vec::with_capacity(FILE_HEADER_LEN + total);
    file.extend(MAGIC_NANOSECONDS.to_le_bytes());
    file.extend(2u16.to_le_bytes());
    file.extend(4u16.to_le_bytes());
    file.extend([0; 8]);
    file.extend((snaplen as u32).to_le_bytes());
    file.extend(LINK_TYPE_ETHERNET.to_le_bytes());
    for record in records {
        let time = epoch_ns.saturating_add(record.at.0);
        // Seconds are 32 bits wide in this format: until 2106.
        for word in [
            (time / NANOS_PER_SECOND) as u32,
            (time % NANOS_PER_SECOND) as u32,
            record.bytes.len() as u32,
            record.frame_len,
        ] {
            file.extend(word.to_le_bytes());
        }
        file.extend(&record.bytes);
    }
    file
}
