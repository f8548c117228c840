//! Real traffic, odd traffic and fuzzers' output: every captured frame is parsed, none panics.
//!
//! The captures are beside the project, not in it; without them the test says so and checks
//! nothing.

mod exercise;

use std::path::PathBuf;

use nfluid_wire::ipv4::Ipv4Packet;
use nfluid_wire::{IpProtocol, PacketMeta};

const LINKTYPE_ETHERNET: u16 = 1;

#[derive(Clone, Copy)]
struct Bytes<'a> {
    data: &'a [u8],
    big_endian: bool,
}

impl<'a> Bytes<'a> {
    fn slice(&self, start: usize, len: usize) -> Option<&'a [u8]> {
        self.data.get(start..)?.get(..len)
    }

    fn u32(&self, at: usize) -> Option<u32> {
        let bytes = *self.slice(at, 4)?.first_chunk()?;
        Some(if self.big_endian {
            u32::from_be_bytes(bytes)
        } else {
            u32::from_le_bytes(bytes)
        })
    }

    fn u16(&self, at: usize) -> Option<u16> {
        let bytes = *self.slice(at, 2)?.first_chunk()?;
        Some(if self.big_endian {
            u16::from_be_bytes(bytes)
        } else {
            u16::from_le_bytes(bytes)
        })
    }
}

/// Link type and bytes of each packet; ends quietly where the file does.
type Packets<'a> = Vec<(u16, &'a [u8])>;

fn packets(file: &[u8]) -> Packets<'_> {
    let mut packets = Vec::new();
    let magic = file.first_chunk().map(|magic| u32::from_le_bytes(*magic));
    match magic {
        Some(0xa1b2_c3d4 | 0xa1b2_3c4d) => read_pcap(
            Bytes {
                data: file,
                big_endian: false,
            },
            &mut packets,
        ),
        Some(0xd4c3_b2a1 | 0x4d3c_b2a1) => read_pcap(
            Bytes {
                data: file,
                big_endian: true,
            },
            &mut packets,
        ),
        Some(0x0a0d_0d0a) => read_pcapng(file, &mut packets),
        _ => None,
    };
    packets
}

fn read_pcap<'a>(file: Bytes<'a>, packets: &mut Packets<'a>) -> Option<()> {
    let link_type = file.u32(20)? as u16;
    let mut at = 24;
    loop {
        let captured = file.u32(at + 8)? as usize;
        packets.push((link_type, file.slice(at + 16, captured)?));
        at += 16 + captured;
    }
}

fn read_pcapng<'a>(data: &'a [u8], packets: &mut Packets<'a>) -> Option<()> {
    let mut file = Bytes {
        data,
        big_endian: data.get(8..12)? == [0x1a, 0x2b, 0x3c, 0x4d],
    };
    let mut link_types = Vec::new();
    let mut at = 0;
    while at < data.len() {
        let length = file.u32(at + 4)? as usize;
        match file.u32(at)? {
            0x0a0d_0d0a => file.big_endian = file.slice(at + 8, 4)? == [0x1a, 0x2b, 0x3c, 0x4d],
            1 => link_types.push(file.u16(at + 8)?),
            6 => {
                let link_type = *link_types.get(file.u32(at + 8)? as usize)?;
                packets.push((link_type, file.slice(at + 28, file.u32(at + 20)? as usize)?));
            }
            _ => {}
        }
        at += length.max(12);
    }
    Some(())
}

fn captures() -> Vec<(PathBuf, Vec<u8>)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/pcap");
    let Ok(entries) = std::fs::read_dir(&folder) else {
        eprintln!("skipped: no captures in {}", folder.display());
        return Vec::new();
    };
    let read = |path: PathBuf| {
        let bytes = std::fs::read(&path).expect("a readable capture");
        (path, bytes)
    };
    entries.flatten().map(|entry| read(entry.path())).collect()
}

// promise: 9.4
#[test]
fn every_captured_frame_parses_or_says_why_not() {
    for (path, file) in captures() {
        let packets = packets(&file);
        assert!(
            !packets.is_empty(),
            "{}: the test's reader finds no packet",
            path.display()
        );
        for (_, packet) in packets {
            exercise::everything(packet);
        }
    }
}

#[test]
fn ordinary_captures_have_no_malformed_frame() {
    for (path, file) in captures() {
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        if !matches!(name, "ssh.pcap" | "http_ipv6.pcap" | "vxlan.pcap") {
            continue;
        }
        for (link_type, frame) in packets(&file) {
            assert_eq!(link_type, LINKTYPE_ETHERNET, "{name}");
            let meta = PacketMeta::parse(frame).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(meta.is_ipv4() || meta.is_ipv6(), "{name}: {meta:?}");
            if matches!(meta.protocol, IpProtocol::TCP | IpProtocol::UDP) {
                assert!(meta.src_port != 0 && meta.dst_port != 0, "{name}: {meta:?}");
            }
            if meta.is_ipv4() {
                let packet = Ipv4Packet::new_checked(&frame[meta.l3_offset.into()..]);
                assert!(packet.expect("IPv4").verify_checksum(), "{name}: {meta:?}");
            }
        }
    }
}
