//! Jumbo frames and super-frames of an instance, out of each kind of uplink and in again.

use crate::uplink_fixture::{Fixture, frame};
use crate::{Ends, SUPER};
use nfluid_netdev::Mode;
use nfluid_ring::offload::{SegmentKind, Segmentation, VNET_BYTES};
use nfluid_ring::port::{Port, WhenFull};
use nfluid_ring::{Level, Offload};
use nfluid_switch::Destination;
use nfluid_testbed::random::Bytes;
use nfluid_tests::harness::command::must;
use nfluid_tests::harness::patience::eventually;
use nfluid_uplink::{Kind, Levels};

const OUTSIDE: [u8; 6] = [2, 0xee, 0, 0, 0, 1];
const INSIDE: [u8; 6] = [2, 0xee, 0, 0, 0, 2];

/// An uplink on `interface` of host `out`, or on the other end of its veth, whose port is linked to that of an instance.
/// Does `job` with that port. Returns false where no such uplink can be.
fn with_an_instance(
    (test, mode, ends): (&str, Mode, Ends),
    (mtu, levels): (u32, Levels),
    job: impl FnOnce(&Fixture, &mut Port),
) -> bool {
    let Some(mut fixture) = Fixture::new(test, &["up", "out"]) else {
        return false;
    };
    let set_mtu = |netns: String, interface: &str| {
        must(&format!("ip -n {netns} link set {interface} mtu {mtu}"));
    };
    let mut spec = if ends == Ends::Tap {
        fixture.spec("out", "out0")
    } else {
        fixture.join(("up", "up0"), ("out", "out0"));
        set_mtu(fixture.netns("up"), "up0");
        set_mtu(fixture.netns("out"), "out0");
        fixture.spec("up", "up0")
    };
    if ends == Ends::Tap {
        spec.kind = Kind::Tap;
    }
    (spec.mode, spec.offloads, spec.long_slots, spec.levels) = (mode, true, 256, levels);
    let _uplink = fixture.open(&spec).expect("an uplink");
    if ends == Ends::Tap {
        set_mtu(fixture.netns("out"), "out0");
    }
    let id = fixture.scratch.port_ids(1);
    let port = nfluid_switch::PortSpec {
        long: nfluid_switch::LongSlots { rx: 256, tx: 256 },
        level: Level::Super,
        ..nfluid_switch::PortSpec::new(id, "p0", INSIDE, 64)
    };
    let instance = fixture.scratch.instance_with(&[port]).expect("an instance");
    let switch = &fixture.scratch.switch;
    for (from, to) in [(spec.port, id), (id, spec.port)] {
        switch
            .connect(from, Destination::Link(to))
            .expect("connect");
    }
    let mut attached = instance.attach().expect("attach");
    job(&fixture, &mut attached.ports[0]);
    true
}

fn send(port: &mut Port, frame: &[u8], offload: Offload) {
    assert!(port.send_long(|slots| {
        slots[..frame.len()].copy_from_slice(frame);
        (frame.len(), offload)
    }));
    port.flush(WhenFull::Drop).expect("the port is up");
}

// promise: 2.34
#[test]
fn jumbo_frames_cross_every_kind_of_uplink() {
    let rows = [
        ("jnat", Mode::Native, Levels::default(), Ends::Veth),
        ("jgen", Mode::Generic, Levels::default(), Ends::Veth),
        ("jtc", Mode::Auto, SUPER, Ends::Veth),
        ("jtap", Mode::Auto, SUPER, Ends::Tap),
        ("jtapp", Mode::Auto, Levels::default(), Ends::Tap),
    ];
    for (test, mode, levels, ends) in rows {
        let job = |fixture: &Fixture, port: &mut Port| {
            let outside = fixture.raw("out", "out0");
            for tag in [&[][..], &[0x81, 0, 0, 7]] {
                for (number, len) in [(1, 60), (2, 2033), (3, 9014), (4, 9230 + tag.len())] {
                    let inward = frame(INSIDE, OUTSIDE, tag, len, number);
                    let mut got = Vec::new();
                    eventually("a frame comes in", || {
                        outside.send(&inward);
                        port.receive(64, |bytes| got.push(bytes.to_vec()));
                        got.contains(&inward)
                    });
                    let outward = frame(OUTSIDE, INSIDE, tag, len, number);
                    send(port, &outward, Offload::NONE);
                    let back = outside.receive_wanted(|bytes| bytes.starts_with(&OUTSIDE));
                    assert!(back == Some(outward), "{test}: {len} bytes out");
                }
            }
        };
        if !with_an_instance((test, mode, ends), (9216, levels), job) {
            return;
        }
    }
}

/// A frame of TCP over IPv4 behind tags with 4 segments and the rest of one; its headers are `headers` bytes.
fn super_frame(dst: [u8; 6], src: [u8; 6], tags: &[u8]) -> (Vec<u8>, Offload) {
    const SEGMENT: usize = 1000;
    let mut bytes = [&dst[..], &src, tags, &[8, 0]].concat();
    let ip = bytes.len();
    let (headers, len) = (ip + 40, ip + 40 + 4 * SEGMENT + 300);
    bytes.resize(len, 0);
    Bytes::of(len as u64).fill(&mut bytes[headers..]);
    bytes[ip..][..2].copy_from_slice(&[0x45, 0]);
    bytes[ip + 2..][..2].copy_from_slice(&((len - ip) as u16).to_be_bytes());
    bytes[ip + 8..][..2].copy_from_slice(&[64, 6]);
    bytes[ip + 12..][..8].copy_from_slice(&[10, 9, 0, 1, 10, 9, 0, 2]);
    bytes[ip + 32] = 5 << 4;
    let cut = Segmentation {
        kind: SegmentKind::TcpV4,
        header_len: headers,
        payload_len: SEGMENT,
        is_ecn: false,
    };
    (bytes, Offload::segmented(ip + 20, cut))
}

// promise: 2.30
#[test]
fn metadata_fits_the_frame_behind_any_tags() {
    for (test, ends) in [("tagsv", Ends::Veth), ("tagst", Ends::Tap)] {
        let job = |fixture: &Fixture, port: &mut Port| {
            let mut outside = fixture.raw("out", "out0");
            outside.takes_headers();
            let tags = [0x88, 0xa8, 0, 7, 0x81, 0, 0, 9];
            for tags in [&[][..], &tags[4..], &tags] {
                let (frame, offload) = super_frame(INSIDE, OUTSIDE, tags);
                let headers = 14 + tags.len() + 40;
                let start = &frame[..14 + tags.len()];
                let mut got = Vec::new();
                eventually("a frame comes in", || {
                    outside.send(&[&offload.to_kernel()[..], &frame].concat());
                    port.receive_offload(64, |bytes, offload| got.push((bytes.to_vec(), offload)));
                    let ours = got.iter().filter(|(bytes, _)| bytes.starts_with(start));
                    let payload: usize = ours.map(|(bytes, _)| bytes.len() - headers).sum();
                    payload >= frame.len() - headers
                });
                let ours = got.iter().filter(|(bytes, _)| bytes.starts_with(start));
                let mut payload = Vec::new();
                for (bytes, offload) in ours {
                    // With two tags some kernels cut the frame themselves.
                    let is_whole = bytes.len() == frame.len();
                    let lens = (bytes.len(), frame.len());
                    assert_eq!(
                        offload.segmentation().is_some(),
                        is_whole,
                        "{lens:?} {offload:?}"
                    );
                    assert!(is_whole || tags.len() == 8, "{test}: {} bytes", bytes.len());
                    if let Some(checksum) = offload.checksum() {
                        assert_eq!(checksum.start, headers - 20, "{test}: {tags:?}");
                    }
                    payload.extend_from_slice(&bytes[headers..]);
                }
                assert!(payload.starts_with(&frame[headers..]), "{test}: {tags:?}");

                let (frame, offload) = super_frame(OUTSIDE, INSIDE, tags);
                send(port, &frame, offload);
                let mut payload = Vec::new();
                while payload.len() < frame.len() - headers {
                    let got =
                        outside.receive_wanted(|bytes| bytes[VNET_BYTES..].starts_with(&OUTSIDE));
                    let got = got.expect("a frame goes out");
                    let bytes = &got[VNET_BYTES..];
                    assert_eq!(bytes[..14 + tags.len()], frame[..14 + tags.len()]);
                    payload.extend_from_slice(&bytes[headers..]);
                }
                assert!(payload == frame[headers..], "{test}: {tags:?}");
            }
        };
        if !with_an_instance((test, Mode::Auto, ends), (1500, SUPER), job) {
            return;
        }
    }
}
