//! The pcap format (draft-ietf-opsawg-pcap).

use std::io::Read;

use pcap_file::TsResolution;
use pcap_file::pcap::PcapParser;

use super::window::Window;
use super::{Flaw, Link, Place, RECORD_MAX};

const FILE_HEADER_LEN: usize = 24;
const RECORD_HEADER_LEN: usize = 16;

/// A pcap file behind its header.
#[derive(Debug)]
pub(super) struct Legacy {
    parser: PcapParser,
    link: Link,
    ns_per_fraction: u64,
}

impl Legacy {
    /// Reads the file header.
    pub(super) fn begin<R: Read>(window: &mut Window<R>) -> Result<Self, Flaw> {
        let header = window.need(FILE_HEADER_LEN, "the file header")?;
        let (_, parser) = PcapParser::new(header).map_err(|error| error.to_string())?;
        // The upper half of the field has the length of an FCS.
        let link = Link::from_number(u32::from(parser.header().datalink) & 0xffff)?;
        window.take(FILE_HEADER_LEN);
        let ns_per_fraction = match parser.header().ts_resolution {
            TsResolution::MicroSecond => 1000,
            TsResolution::NanoSecond => 1,
        };
        Ok(Legacy {
            parser,
            link,
            ns_per_fraction,
        })
    }

    /// Takes the next record. The checks are our own: the parser's cooked form refuses every
    /// packet that was longer than the snapshot length, which is what snapshots are for.
    pub(super) fn next_place<R: Read>(
        &self,
        window: &mut Window<R>,
        records: &mut u64,
    ) -> Result<Option<Place>, Flaw> {
        let header = window
            .peek(RECORD_HEADER_LEN)
            .map_err(|cause| cause.to_string())?;
        if header.is_empty() {
            return Ok(None);
        }
        let header = window.need(RECORD_HEADER_LEN, "a record header")?;
        let kept = self.kept_len(header);
        if kept > RECORD_MAX {
            return Err(format!(
                "a packet of {kept} bytes; the longest possible is {RECORD_MAX}"
            ));
        }
        let length = RECORD_HEADER_LEN + kept;
        let record = window.need(length, "the record")?;
        let (_, packet) = self
            .parser
            .next_raw_packet(record)
            .map_err(|error| error.to_string())?;
        let (seconds, fraction) = (u64::from(packet.ts_sec), u64::from(packet.ts_frac));
        let place = Place {
            time_ns: seconds * 1_000_000_000 + fraction * self.ns_per_fraction,
            link: self.link,
            original_len: packet.orig_len as usize,
            bytes: RECORD_HEADER_LEN..length,
        };
        window.take(length);
        *records += 1;
        Ok(Some(place))
    }

    /// Number of bytes kept, from a record header.
    fn kept_len(&self, header: &[u8]) -> usize {
        let field = [header[8], header[9], header[10], header[11]];
        let kept = match self.parser.header().endianness {
            pcap_file::Endianness::Big => u32::from_be_bytes(field),
            pcap_file::Endianness::Little => u32::from_le_bytes(field),
        };
        kept as usize
    }
}
