use std::path::PathBuf;
use std::time::Duration;

use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketBlock;
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::blocks::simple_packet::SimplePacketBlock;
use pcap_file::pcapng::{PcapNgBlock, PcapNgWriter};
use pcap_file::{DataLink, Endianness, TsResolution};
use proptest::prelude::*;

use super::*;

/// (time in nanoseconds, original length, bytes).
type Frame = (u64, usize, Vec<u8>);

fn read_all(file: &[u8]) -> (Vec<Frame>, Option<CaptureError>) {
    let mut frames = Vec::new();
    let mut capture = match Capture::new(file, "test.pcap") {
        Ok(capture) => capture,
        Err(error) => return (frames, Some(error)),
    };
    loop {
        match capture.next_frame() {
            Ok(Some(frame)) => {
                frames.push((frame.time_ns, frame.original_len, frame.bytes.to_vec()));
            }
            Ok(None) => return (frames, None),
            Err(error) => return (frames, Some(error)),
        }
    }
}

fn frames() -> Vec<Frame> {
    (0..5u8)
        .map(|i| {
            (
                1_700_000_000_000_000_000 + u64::from(i) * 1_234_000,
                100,
                vec![i; 61],
            )
        })
        .collect()
}

fn pcap(frames: &[Frame], ts_resolution: TsResolution, endianness: Endianness) -> Vec<u8> {
    let header = PcapHeader {
        ts_resolution,
        endianness,
        ..PcapHeader::default()
    };
    let mut writer = PcapWriter::with_header(Vec::new(), header).unwrap();
    for (time_ns, original_len, bytes) in frames {
        let time = Duration::from_nanos(*time_ns);
        writer
            .write_packet(&PcapPacket::new(time, *original_len as u32, bytes))
            .unwrap();
    }
    writer.into_writer()
}

fn pcapng(frames: &[Frame], endianness: Endianness, resolution: u8) -> Vec<u8> {
    let mut writer = PcapNgWriter::with_endianness(Vec::new(), endianness).unwrap();
    let interface = InterfaceDescriptionBlock {
        linktype: DataLink::ETHERNET,
        snaplen: 0,
        options: vec![InterfaceDescriptionOption::IfTsResol(resolution)],
    };
    writer.write_block(&interface.into_block()).unwrap();
    for (time_ns, original_len, bytes) in frames {
        let units = time_ns / 10u64.pow(9 - u32::from(resolution));
        let packet = EnhancedPacketBlock {
            interface_id: 0,
            timestamp: Duration::from_nanos(units),
            original_len: *original_len as u32,
            data: bytes.as_slice().into(),
            options: Vec::new(),
        };
        writer.write_block(&packet.into_block()).unwrap();
    }
    writer.into_inner()
}

#[test]
fn every_form_of_both_formats_is_read() {
    let frames = frames();
    for endianness in [Endianness::Big, Endianness::Little] {
        for resolution in [TsResolution::MicroSecond, TsResolution::NanoSecond] {
            let (read, error) = read_all(&pcap(&frames, resolution, endianness));
            assert!(error.is_none(), "{error:?}");
            assert_eq!(read, frames);
        }
        for resolution in [6, 9] {
            let (read, error) = read_all(&pcapng(&frames, endianness, resolution));
            assert!(error.is_none(), "{error:?}");
            assert_eq!(read, frames);
        }
    }
}

#[test]
fn a_second_section_may_have_the_other_byte_order() {
    let frames = frames();
    let file = [
        pcapng(&frames, Endianness::Big, 6),
        pcapng(&frames, Endianness::Little, 9),
    ]
    .concat();
    let (read, error) = read_all(&file);
    assert!(error.is_none(), "{error:?}");
    assert_eq!(read, [frames.clone(), frames].concat());
}

#[test]
fn a_simple_packet_has_no_padding_and_the_time_of_the_last_one() {
    let mut writer = PcapNgWriter::new(Vec::new()).unwrap();
    let interface = InterfaceDescriptionBlock::new(DataLink::ETHERNET, 0);
    writer.write_block(&interface.into_block()).unwrap();
    let packet = SimplePacketBlock {
        original_len: 15,
        data: vec![7; 15].into(),
    };
    writer.write_block(&packet.into_block()).unwrap();
    let (read, error) = read_all(&writer.into_inner());
    assert!(error.is_none(), "{error:?}");
    assert_eq!(read, [(0, 15, vec![7; 15])]);
}

// promise: 12.3
#[test]
fn a_cut_off_file_gives_what_was_whole_and_says_where_it_ends() {
    let file = pcap(&frames(), TsResolution::MicroSecond, Endianness::Little);
    let record = 16 + 61;
    for cut in [1, 15, 16, 40] {
        let (read, error) = read_all(&file[..24 + 2 * record + cut]);
        assert_eq!(read.len(), 2);
        let text = error.unwrap().to_string();
        let place = format!("test.pcap: record 3 at byte {}: cut off", 24 + 2 * record);
        assert!(text.starts_with(&place), "{text}");
        assert!(text.ends_with("read 2 packets before it"), "{text}");
    }
    let file = pcapng(&frames(), Endianness::Little, 6);
    let (read, error) = read_all(&file[..file.len() - 3]);
    assert_eq!(read.len(), 4);
    assert!(
        error.unwrap().to_string().contains("record 7 at byte"),
        "section, interface, five"
    );
}

#[test]
fn nothing_follows_an_error() {
    let file = pcap(&frames(), TsResolution::MicroSecond, Endianness::Little);
    let mut capture = Capture::new(&file[..30], "test").unwrap();
    assert!(capture.next_frame().is_err());
    assert_eq!(capture.next_frame().unwrap(), None);
}

#[test]
fn what_is_no_capture_or_no_ethernet_is_refused() {
    let mut foreign = pcap(&frames(), TsResolution::MicroSecond, Endianness::Little);
    foreign[20] = 105;
    for (file, reason) in [
        (&b""[..], "shorter than four"),
        (b"not a capture at all....", "magic"),
        (&foreign[..10], "cut off"),
        (&foreign, "link type 105"),
    ] {
        let text = read_all(file).1.unwrap().to_string();
        assert!(
            text.contains("neither pcap nor pcapng") && text.contains(reason),
            "{text}"
        );
    }
    let missing = Capture::open(Path::new("/nonexistent.pcap"))
        .unwrap_err()
        .to_string();
    assert!(missing.starts_with("/nonexistent.pcap: "), "{missing}");
}

// promise: 12.6
#[test]
fn an_absurd_length_is_refused_without_reserving_memory() {
    let mut file = pcap(&frames(), TsResolution::MicroSecond, Endianness::Little);
    file[24 + 8..24 + 12].fill(0xff);
    let text = read_all(&file).1.unwrap().to_string();
    assert!(text.contains("4294967295 bytes"), "{text}");
    let mut file = pcapng(&frames(), Endianness::Little, 6);
    let block = file.len() - 16;
    file[block..].fill(0xfc);
    let _ = read_all(&file);
}

#[test]
fn real_captures_are_read_to_the_end() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/pcap");
    let Ok(entries) = std::fs::read_dir(&folder) else {
        eprintln!("skipped: no captures in {}", folder.display());
        return;
    };
    for entry in entries {
        let path = entry.unwrap().path();
        let mut capture = Capture::open(&path).unwrap();
        while let Some(frame) = capture.next_frame().unwrap() {
            assert!(
                frame.bytes.len() <= frame.original_len,
                "{}",
                path.display()
            );
        }
        assert!(capture.packets() > 0, "{}", path.display());
    }
}

proptest! {
    #[test]
    fn any_damage_is_survived(
        nextgen: bool, little: bool, cut in 0usize..1000,
        damage in prop::collection::vec((0usize..1000, any::<u8>()), 0..6),
    ) {
        let order = if little { Endianness::Little } else { Endianness::Big };
        let mut file = if nextgen {
            pcapng(&frames(), order, 6)
        } else {
            pcap(&frames(), TsResolution::MicroSecond, order)
        };
        for (place, value) in damage {
            let length = file.len();
            file[place % length] = value;
        }
        file.truncate(cut);
        let (read, _) = read_all(&file);
        prop_assert!(read.len() <= 50);
    }
}
