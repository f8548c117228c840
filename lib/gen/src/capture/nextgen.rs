//! The pcapng format (draft-ietf-opsawg-pcapng).

use std::io::Read;

use pcap_file::Endianness;
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::{Block, PcapNgParser};

use super::window::Window;
use super::{Flaw, Link, Place};

/// Type of the block that every section begins with, the same in both byte orders.
pub(super) const MAGIC: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];

/// Most interfaces of a section: the parser keeps every one of them.
const INTERFACES_MAX: usize = 4096;
/// Type, length, and of a section header the byte-order magic.
const BLOCK_HEAD_LEN: usize = 12;
/// Offset of the packet in an enhanced (or obsolete) packet block, and in a simple one.
const ENHANCED_DATA: usize = 28;
const SIMPLE_DATA: usize = 12;

/// The needed fields of an interface description.
#[derive(Clone, Copy, Debug)]
struct Interface {
    link_type: u32,
    /// Most bytes kept of a packet; 0 for all.
    snap_len: usize,
    /// Units per second of its time stamps.
    units_per_s: u64,
    offset_s: u64,
}

/// A pcapng file between two blocks.
#[derive(Default)]
pub(super) struct NextGen {
    /// The parser; absent before the first section header.
    parser: Option<PcapNgParser>,
    interfaces: Vec<Interface>,
    /// Time of the last packet, for those without.
    time_ns: u64,
}

impl NextGen {
    /// Takes blocks up to and including the next one with a packet.
    pub(super) fn next_place<R: Read>(
        &mut self,
        window: &mut Window<R>,
        records: &mut u64,
    ) -> Result<Option<Place>, Flaw> {
        loop {
            let head = window
                .peek(BLOCK_HEAD_LEN)
                .map_err(|cause| cause.to_string())?;
            if head.is_empty() {
                return Ok(None);
            }
            let head = window.need(BLOCK_HEAD_LEN, "a block header")?;
            let length = self.block_len(head)?;
            let place = self.read_block(window.need(length, "the block")?)?;
            window.take(length);
            *records += 1;
            if place.is_some() {
                return Ok(place);
            }
        }
    }

    /// Total length of a block, from its first bytes.
    fn block_len(&self, head: &[u8]) -> Result<usize, Flaw> {
        let field = [head[4], head[5], head[6], head[7]];
        let order = if head[..4] == MAGIC {
            match head[8..12] {
                [0x1a, 0x2b, 0x3c, 0x4d] => Endianness::Big,
                [0x4d, 0x3c, 0x2b, 0x1a] => Endianness::Little,
                _ => return Err("a section header without byte-order magic".to_owned()),
            }
        } else {
            self.parser
                .as_ref()
                .map_or(Endianness::Big, |parser| parser.section().endianness)
        };
        let length = match order {
            Endianness::Big => u32::from_be_bytes(field),
            Endianness::Little => u32::from_le_bytes(field),
        } as usize;
        if length < BLOCK_HEAD_LEN || !length.is_multiple_of(4) {
            return Err(format!(
                "a block of {length} bytes; lengths are multiples of 4 from 12"
            ));
        }
        Ok(length)
    }

    fn read_block(&mut self, bytes: &[u8]) -> Result<Option<Place>, Flaw> {
        let Some(parser) = &mut self.parser else {
            let (_, parser) = PcapNgParser::new(bytes).map_err(|error| error.to_string())?;
            self.parser = Some(parser);
            return Ok(None);
        };
        let little = parser.section().endianness == Endianness::Little;
        let (_, block) = parser
            .next_block(bytes)
            .map_err(|error| error.to_string())?;
        match block {
            Block::SectionHeader(_) => self.interfaces.clear(),
            Block::InterfaceDescription(description) => self.add_interface(&description)?,
            Block::EnhancedPacket(packet) => {
                let stamp = packet.timestamp.as_nanos() as u64;
                let length = (packet.data.len(), packet.original_len);
                return self
                    .packet(packet.interface_id, stamp, ENHANCED_DATA, length)
                    .map(Some);
            }
            Block::Packet(packet) => {
                // The upper half comes first in either byte order, which the parser overlooks.
                let stamp = if little {
                    packet.timestamp.rotate_left(32)
                } else {
                    packet.timestamp
                };
                let length = (packet.data.len(), packet.original_len);
                let interface = u32::from(packet.interface_id);
                return self
                    .packet(interface, stamp, ENHANCED_DATA, length)
                    .map(Some);
            }
            Block::SimplePacket(packet) => {
                let interface = self.interface(0)?;
                let link = Link::from_number(interface.link_type)?;
                let limit = match interface.snap_len {
                    0 => usize::MAX,
                    snap_len => snap_len,
                };
                let original_len = packet.original_len as usize;
                // The block's data ends in padding.
                let kept = packet.data.len().min(original_len).min(limit);
                let bytes = SIMPLE_DATA..SIMPLE_DATA + kept;
                return Ok(Some(Place {
                    time_ns: self.time_ns,
                    link,
                    original_len,
                    bytes,
                }));
            }
            _ => {}
        }
        Ok(None)
    }

    fn packet(
        &mut self,
        interface: u32,
        stamp: u64,
        start: usize,
        (kept, original_len): (usize, u32),
    ) -> Result<Place, Flaw> {
        let interface = self.interface(interface)?;
        let link = Link::from_number(interface.link_type)?;
        let ns = u128::from(stamp) * 1_000_000_000 / u128::from(interface.units_per_s)
            + u128::from(interface.offset_s) * 1_000_000_000;
        self.time_ns = u64::try_from(ns).unwrap_or(u64::MAX);
        Ok(Place {
            time_ns: self.time_ns,
            link,
            original_len: original_len as usize,
            bytes: start..start + kept,
        })
    }

    fn interface(&self, number: u32) -> Result<Interface, Flaw> {
        self.interfaces
            .get(number as usize)
            .copied()
            .ok_or_else(|| {
                let known = self.interfaces.len();
                format!("a packet of interface {number}, but only {known} are described before it")
            })
    }

    fn add_interface(&mut self, description: &InterfaceDescriptionBlock<'_>) -> Result<(), Flaw> {
        if self.interfaces.len() >= INTERFACES_MAX {
            return Err(format!(
                "more than {INTERFACES_MAX} interfaces in one section"
            ));
        }
        let mut interface = Interface {
            link_type: u32::from(description.linktype),
            snap_len: description.snaplen as usize,
            units_per_s: 1_000_000,
            offset_s: 0,
        };
        for option in &description.options {
            match *option {
                InterfaceDescriptionOption::IfTsResol(resolution) => {
                    interface.units_per_s = units_per_s(resolution)?;
                }
                InterfaceDescriptionOption::IfTsOffset(offset_s) => interface.offset_s = offset_s,
                _ => {}
            }
        }
        self.interfaces.push(interface);
        Ok(())
    }
}

/// Reads the option `if_tsresol`: a negative power of ten, or with the highest bit set of two.
fn units_per_s(resolution: u8) -> Result<u64, Flaw> {
    let exponent = u32::from(resolution & 0x7f);
    let base: u64 = if resolution & 0x80 == 0 { 10 } else { 2 };
    base.checked_pow(exponent)
        .ok_or_else(|| format!("a time resolution of {base}^-{exponent} s, finer than any clock"))
}

impl std::fmt::Debug for NextGen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NextGen")
            .field("interfaces", &self.interfaces)
            .finish_non_exhaustive()
    }
}
