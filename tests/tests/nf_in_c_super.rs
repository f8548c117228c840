//! The promise: a program in C takes and sends super-frames, whatever it asks for by mistake is refused, and TCP crosses
//! the example `meter` whole and in packets.

mod c_fixture;

use c_fixture::{GuideCopy, Running, project, read};
use nfluid_ring::attach::Attached;
use nfluid_ring::doorbell::AGEING;
use nfluid_ring::layout::LONG_MAX;
use nfluid_ring::offload::{PartialChecksum, SegmentKind, Segmentation};
use nfluid_ring::port::WhenFull;
use nfluid_ring::{Level, Offload};
use nfluid_switch::{DropReason, LongSlots, PortSpec};
use nfluid_testbed::process::signal;
use nfluid_testbed::scratch::{Scratch, mac_of};
use nfluid_tests::harness::patience::{PATIENCE, eventually};
use nfluid_tests::harness::platform::Platform;
use nfluid_tests::harness::transfer::stream;
use nfluid_tests::harness::two_hosts::two_hosts;
use nfluid_wire::TcpFlags;
use nfluid_wire::build::Frame;
use rustix::process::Signal;
use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Instant;

/// Bytes of Ethernet, IPv4 and TCP without options.
const HEADERS: usize = 54;
const CHECKSUM: PartialChecksum = PartialChecksum {
    start: 34,
    offset: 16,
};
const CUT: Segmentation = Segmentation {
    kind: SegmentKind::TcpV4,
    header_len: HEADERS,
    payload_len: 1460,
    is_ecn: false,
};

type Sent = (Vec<u8>, Offload);

/// A TCP packet with `len` bytes of payload, the first of which says what the program is to do with it.
fn packet(what: u8, len: usize, is_partial: bool) -> Vec<u8> {
    let end = |text: &str| -> SocketAddr { text.parse().expect("an address") };
    let frame = Frame::tcp(end("10.0.0.1:1000"), end("10.0.0.2:80"), TcpFlags::ACK);
    let frame = if is_partial {
        frame.partial_checksum()
    } else {
        frame
    };
    let mut payload: Vec<u8> = (0..len).map(|at| (at * 7) as u8).collect();
    payload[0] = what;
    let mut bytes = vec![0; HEADERS + len];
    frame.write(&mut bytes, &payload).expect("it fits");
    bytes
}

/// The packets that a frame becomes on a wire.
fn packets((bytes, offload): &Sent) -> Vec<Sent> {
    let mut segments = offload.packets_of(bytes).expect("a proper frame");
    let mut buffer = vec![0; segments.packet_len()];
    let mut packets = Vec::new();
    while let Some(len) = segments.write_next(&mut buffer) {
        packets.push((buffer[..len].to_vec(), Offload::NONE));
    }
    packets
}

/// The frame of 65,520 bytes with which the program begins, or its first `len` bytes.
fn beginning(len: usize) -> Vec<u8> {
    let byte = |at: usize| match at {
        0..12 => 0xff,
        12..14 => 0,
        _ => (at % 251) as u8,
    };
    (0..len).map(byte).collect()
}

fn send(peer: &mut Attached, (bytes, offload): &Sent) {
    let is_sent = peer.ports[0].send_long(|slots| {
        slots[..bytes.len()].copy_from_slice(bytes);
        (bytes.len(), *offload)
    });
    assert!(is_sent, "{} bytes", bytes.len());
    assert_eq!(peer.ports[0].flush(WhenFull::Drop).expect("flush"), 1);
}

fn receive(peer: &mut Attached, count: usize, running: &mut Running) -> Vec<Sent> {
    let start = Instant::now();
    let mut frames = Vec::new();
    while frames.len() < count {
        let arrived = frames.len();
        assert!(start.elapsed() < PATIENCE, "{arrived} of {count} frames");
        // The program may end as soon as it has sent its last frame: what it sent is read after this look.
        let ended = running.child.try_wait().unwrap();
        peer.doorbell.wait(&mut peer.ports, None, AGEING).unwrap();
        let left = count - frames.len();
        peer.ports[0].receive_offload(left, |bytes, offload| {
            frames.push((bytes.to_vec(), offload));
        });
        let is_short = frames.len() < count;
        assert!(ended.is_none() || !is_short, "it has ended: {ended:?}");
    }
    frames
}

/// Compares frames; a difference is told by lengths, not by 64 KiB of bytes.
fn assert_same(arrived: &[Sent], sent: &[Sent], what: &str) {
    let shape = |frames: &[Sent]| -> Vec<(usize, Offload)> {
        let shape = |(bytes, offload): &Sent| (bytes.len(), *offload);
        frames.iter().map(shape).collect()
    };
    assert_eq!(shape(arrived), shape(sent), "{what}");
    assert!(arrived == sent, "{what}: bytes differ");
}

// promise: 11.4
#[test]
fn every_function_on_super_frames_does_what_the_header_says() {
    let test = "every_function_on_super_frames_does_what_the_header_says";
    let Some(copy) = GuideCopy::new(test) else {
        return;
    };
    let mut scratch = Scratch::new("nf-in-c-super").unwrap();
    let port = |id, name: &str, rx, tx, level| PortSpec {
        long: LongSlots { rx, tx },
        level,
        ..PortSpec::new(id, name, mac_of(id), 64)
    };
    let first = scratch.port_ids(4);
    let takes_all = port(first, "p0", 256, 128, Level::Super);
    let plain = port(first + 3, "p0", 0, 0, Level::Plain);
    let mut peer = scratch.instance_with(&[takes_all]).unwrap();
    let mut plain_peer = scratch.instance_with(&[plain]).unwrap();
    let subject = [
        port(first + 1, "p0", 256, 128, Level::Super),
        port(first + 2, "p1", 0, 0, Level::Plain),
    ];
    let mut subject = scratch.instance_with(&subject).unwrap();
    scratch.link((&mut peer, 0), (&mut subject, 0)).unwrap();
    scratch
        .link((&mut subject, 1), (&mut plain_peer, 0))
        .unwrap();
    let mut program = copy.compiled("super_frames");
    let child = subject.spawn(program.stdout(Stdio::piped())).unwrap();
    let mut running = Running::new(child);
    let mut peer = peer.attach().unwrap();

    let partial = Offload::partial_checksum(CHECKSUM);
    let begun = [
        (beginning(LONG_MAX), Offload::NONE),
        (beginning(4000), Offload::segmented(34, CUT)),
        (beginning(60), partial),
    ];
    assert_same(
        &receive(&mut peer, 3, &mut running),
        &begun,
        "what it makes",
    );

    let whole = Offload::segmented(34, CUT);
    let super_frame = (packet(b's', 2 * 1460 + 100, true), whole);
    send(&mut peer, &super_frame);
    let mut expected = vec![super_frame.clone()];
    expected.extend(packets(&super_frame));
    let smaller = Segmentation {
        payload_len: 1000,
        ..CUT
    };
    expected.push((super_frame.0, Offload::segmented(34, smaller)));
    assert_same(
        &receive(&mut peer, 5, &mut running),
        &expected,
        "whole, cut, whole",
    );

    send(&mut peer, &(packet(b'p', 100, true), partial));
    let complete = (packet(b'p', 100, false), Offload::NONE);
    assert_same(
        &receive(&mut peer, 1, &mut running),
        &[complete],
        "finished",
    );

    let mut elsewhere = packet(b'e', 100, false);
    let start = HEADERS + 2;
    let inner = PartialChecksum { start, offset: 16 };
    send(
        &mut peer,
        &(elsewhere.clone(), Offload::partial_checksum(inner)),
    );
    assert!(nfluid_wire::segment::finish(&mut elsewhere, inner));
    let settled = [(elsewhere, Offload::NONE)];
    assert_same(&receive(&mut peer, 1, &mut running), &settled, "settled");

    let shifted = Segmentation {
        header_len: HEADERS + 8,
        ..CUT
    };
    let lie = Offload::segmented(42, shifted);
    send(&mut peer, &(packet(b'h', 3000, true), lie));
    let longest = (packet(b'l', LONG_MAX - HEADERS, false), Offload::NONE);
    send(&mut peer, &longest);
    assert_same(
        &receive(&mut peer, 1, &mut running),
        &[longest],
        "the longest",
    );
    let (status, said) = running.wait();
    assert!(status.success(), "{status}: {said}");

    let dropped = scratch.switch.counters(first + 3);
    assert_eq!(dropped.dropped(DropReason::NoOffload), 1, "the super-frame");
    assert_eq!(dropped.dropped(DropReason::TooLong), 1, "the longest");
}

// promise: 11.4
#[test]
fn a_member_of_a_trust_group_has_plain_frames_alone() {
    let test = "a_member_of_a_trust_group_has_plain_frames_alone";
    let Some(copy) = GuideCopy::new(test) else {
        return;
    };
    let mut scratch = Scratch::new("nf-in-c-group").unwrap();
    let group = scratch.group(1024).unwrap();
    let mut peer = scratch.member(&group, 1, 64, 64).unwrap();
    let mut subject = scratch.member(&group, 1, 64, 64).unwrap();
    scratch.link((&mut peer, 0), (&mut subject, 0)).unwrap();
    let mut program = copy.compiled("group_member");
    let child = subject.spawn(program.stdout(Stdio::piped())).unwrap();
    let running = Running::new(child);
    let mut peer = peer.attach().unwrap();
    let question = (beginning(60), Offload::NONE);
    assert!(peer.ports[0].send(|slot| {
        slot[..60].copy_from_slice(&question.0);
        60
    }));
    assert_eq!(peer.ports[0].flush(WhenFull::Drop).unwrap(), 1);
    let (status, said) = running.wait();
    assert!(status.success(), "{status}: {said}");
    let mut answers = Vec::new();
    peer.ports[0].receive_offload(2, |bytes, offload| answers.push((bytes.to_vec(), offload)));
    assert_same(&answers, &[question], "sent back");
}

/// The chain of the example between two hosts.
fn deployment(copy: &GuideCopy, keys: &str) -> String {
    let program = copy.folder.join("my-nf/meter");
    let text = read(project().join("examples/nf-in-c/super-frames.yaml"));
    let replaced = [
        ("interface: eth1", "interface: client, netns: EDGE"),
        ("interface: eth2", "interface: server, netns: EDGE"),
        ("/opt/nf-in-c/meter", program.to_str().expect("text")),
        ("    frames: super\n", keys),
    ];
    replaced.iter().fold(text, |text, (from, to)| {
        assert!(text.contains(from), "{from}");
        text.replace(from, to)
    })
}

/// Packets, and the frames in which they are.
#[derive(Clone, Copy, Debug)]
struct Amount {
    packets: u64,
    frames: u64,
}

/// Frames that have come in at both uplinks; none if there are no uplinks.
fn came_in(platform: &Platform) -> Amount {
    let of = |name: &str, key: &str| platform.uplink(name)["counters"][key].as_u64();
    let sum = |key| of("left", key).unwrap_or(0) + of("right", key).unwrap_or(0);
    Amount {
        packets: sum("tx_segments"),
        frames: sum("tx_packets"),
    }
}

/// Ends the meter's process, and returns what it has counted.
fn counted(platform: &Platform) -> Amount {
    let log = platform.instance_log("meter");
    let told = || -> Vec<String> {
        let text = read(&log);
        let lines = text.lines().filter(|line| line.contains("; dropped "));
        lines.map(str::to_owned).collect()
    };
    let before = told().len();
    signal(platform.pids()["meter"], Signal::TERM);
    eventually("the meter has told its counters", || {
        told().len() == before + 2
    });
    let lines = &told()[before..];
    let sum = |word: &str| -> u64 {
        let number = |line: &String| -> u64 {
            assert!(line.contains("dropped 0 too long, 0 bad"), "{line}");
            let before = line.split(word).next().expect("a part");
            let number = before.split_whitespace().last().expect("a word");
            number.parse().expect("a number")
        };
        lines.iter().map(number).sum()
    };
    Amount {
        packets: sum(" packets"),
        frames: sum(" frames"),
    }
}

/// Frames of TCP that came through the meter.
#[derive(Debug)]
struct Crossed {
    /// Frames that came in meanwhile, at the least.
    least: Amount,
    /// The same, and what came in before and after the stream.
    most: Amount,
    /// Frames that the meter sent.
    sent: u64,
    /// As the meter itself says.
    counted: Amount,
}

/// Applies the example with `keys` in place of its `frames: super`, waits until the uplinks let in `frames`, and sends
/// `bytes` bytes through the meter and back.
fn cross(platform: &Platform, copy: &GuideCopy, keys: &str, frames: &str, bytes: usize) -> Crossed {
    let since = |after: Amount, before: Amount| Amount {
        packets: after.packets - before.packets,
        frames: after.frames - before.frames,
    };
    let first = came_in(platform);
    platform.apply(&deployment(copy, keys));
    platform.await_frames(&["left", "right"], frames);
    let start = came_in(platform);
    stream(platform, bytes);
    let end = came_in(platform);
    let ports = ["meter.in", "meter.out"];
    let sent = ports.map(|port| platform.port_counter("tx_packets", port).expect("a port"));
    let counted = counted(platform);
    Crossed {
        least: since(end, start),
        most: since(came_in(platform), first),
        sent: sent.iter().sum(),
        counted,
    }
}

// promise: 11.5
#[test]
fn tcp_crosses_the_meter_of_the_guide_in_super_frames_and_in_packets() {
    let test = "tcp_crosses_the_meter_of_the_guide_in_super_frames_and_in_packets";
    let Some(copy) = GuideCopy::new(test) else {
        return;
    };
    copy.run("cp -r examples/nf-in-c my-nf; make -s -C my-nf STATIC=1");
    let Some(platform) = two_hosts(test) else {
        return;
    };
    let is_super = |it: &Crossed| {
        assert!(it.least.packets > 4 * it.least.frames, "{it:?}");
        let packets = it.least.packets..=it.most.packets;
        let frames = it.least.frames..=it.most.frames;
        assert!(packets.contains(&it.counted.packets), "{it:?}");
        assert!(frames.contains(&it.counted.frames), "{it:?}");
        (packets, frames)
    };
    let whole = cross(&platform, &copy, "    frames: super\n", "super", 8 << 20);
    let (_, frames) = is_super(&whole);
    assert!(frames.contains(&whole.sent), "they leave whole: {whole:?}");

    let keys = "    frames: super\n    args: [--packets]\n";
    let cut = cross(&platform, &copy, keys, "super", 8 << 20);
    let (packets, _) = is_super(&cut);
    assert!(packets.contains(&cut.sent), "they leave as such: {cut:?}");

    let plain = cross(&platform, &copy, "", "plain", 1 << 20);
    assert_eq!(plain.least.packets, plain.least.frames, "{plain:?}");
    assert_eq!(plain.counted.packets, plain.counted.frames, "{plain:?}");
    let why = platform.uplink("left")["frames_reason"].clone();
    let why = why.as_str().expect("a reason");
    assert!(
        why.starts_with("instance 'meter' takes plain frames"),
        "{why}"
    );
}
