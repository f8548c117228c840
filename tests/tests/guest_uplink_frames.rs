//! The promise: what arrives on an interface arrives in the port that takes it, and what is sent to
//! an uplink leaves its interface: whole, in order, counted.

mod uplink_fixture;

use nfluid_netdev::{Mode, NetdevError, ReceivePath};
use nfluid_ring::port::{Port, WhenFull};
use nfluid_switch::{Destination, DropReason};
use nfluid_tests::harness::command::must;
use nfluid_tests::harness::patience::{PATIENCE, eventually};
use nfluid_tests::harness::within;
use nfluid_uplink::{DirectOutlet, Transmit, TransmitPath, Uplink, UplinkError};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::Duration;
use uplink_fixture::{Fixture, Raw, frame};

const OUTSIDE: [u8; 6] = [2, 0xee, 0, 0, 0, 1];
const INSIDE: [u8; 6] = [2, 0xee, 0, 0, 0, 2];

fn lengths(mtu: usize, tag: usize) -> Vec<usize> {
    let longest = (mtu + 14 + tag).min(2032);
    // The kernel that receives here wants two bytes behind a tag's EtherType.
    let shortest = if tag > 0 { 16 + tag } else { 14 };
    (shortest..300)
        .chain([511, 512, 1023, 1024, longest - 1, longest])
        .collect()
}

fn take(port: &mut Port, count: usize) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    eventually("all frames have arrived", || {
        port.receive(usize::MAX, |bytes| frames.push(bytes.to_vec()));
        frames.len() >= count
    });
    frames
}

/// Sends every length both ways, with the tag, and compares.
fn exchange(outside: &Raw, port: &mut Port, mtu: usize, tag: &[u8]) {
    let lengths = lengths(mtu, tag.len());
    for (round, chunk) in lengths.chunks(50).enumerate() {
        let number = |i: usize| (round * 50 + i) as u32;
        let sent: Vec<_> = chunk
            .iter()
            .enumerate()
            .map(|(i, len)| frame(INSIDE, OUTSIDE, tag, *len, number(i)))
            .collect();
        sent.iter().for_each(|frame| outside.send(frame));
        assert_eq!(take(port, chunk.len()), sent, "from the wire");
        let sent: Vec<_> = chunk
            .iter()
            .enumerate()
            .map(|(i, len)| frame(OUTSIDE, INSIDE, tag, *len, number(i)))
            .collect();
        for frame in &sent {
            assert!(port.send(|slot| {
                slot[..frame.len()].copy_from_slice(frame);
                frame.len()
            }));
        }
        port.flush(WhenFull::Drop).expect("the port is up");
        let got: Vec<_> = sent
            .iter()
            .map(|_| {
                let ours = |frame: &[u8]| frame.starts_with(&OUTSIDE);
                outside.receive_wanted(ours).expect("a frame to the wire")
            })
            .collect();
        assert_eq!(got, sent, "to the wire");
    }
}

fn frames_cross(test: &str, mode: Mode, transmit: Transmit, mtu: usize) {
    let Some(mut fixture) = Fixture::new(test, &["up", "out"]) else {
        return;
    };
    fixture.join(("up", "up0"), ("out", "out0"));
    let (up, out) = (fixture.netns("up"), fixture.netns("out"));
    must(&format!("ip -n {up} link set up0 mtu {mtu}"));
    must(&format!("ip -n {out} link set out0 mtu {mtu}"));
    let mut spec = fixture.spec("up", "up0");
    spec.mode = mode;
    spec.transmit = transmit;
    let uplink = fixture.open(&spec).expect("an uplink");
    let path = uplink.status().path.expect("it is connected");
    let want = match mode {
        Mode::Generic => ReceivePath::Generic,
        _ => ReceivePath::Native,
    };
    assert_eq!(path.receive, want, "{path:?}");
    let want = match transmit {
        Transmit::Packet => TransmitPath::Packet,
        _ => TransmitPath::XdpCopy,
    };
    assert_eq!(path.transmit, want, "{path:?}");
    let instance = fixture.scratch.instance(1, 256, 64).expect("an instance");
    let switch = &fixture.scratch.switch;
    switch
        .connect(spec.port, Destination::Link(instance.id(0)))
        .expect("connect");
    switch
        .connect(instance.id(0), Destination::Link(spec.port))
        .expect("connect");
    let mut ring = instance.attach().expect("attach");
    let outside = fixture.raw("out", "out0");
    exchange(&outside, &mut ring.ports[0], mtu, &[]);
    exchange(&outside, &mut ring.ports[0], mtu, &[0x81, 0, 0x20, 100]);
    let two_tags = [0x88, 0xa8, 0, 7, 0x81, 0, 0, 9];
    exchange(&outside, &mut ring.ports[0], mtu - 8, &two_tags);
    let counters = switch.counters(spec.port);
    assert_eq!(counters.dropped_total(), 0, "{counters:?}");
    assert_eq!(
        counters.tx_frames,
        switch.counters(instance.id(0)).rx_frames
    );
    eventually("all frames are confirmed", || {
        uplink.status().sent_frames == switch.counters(spec.port).rx_frames
    });
    uplink.close(&fixture.scratch.switch).expect("close");
}

// promise: 2.1
#[test]
fn frames_of_every_length_cross_natively() {
    frames_cross("native", Mode::Auto, Transmit::Auto, 1500);
}

// promise: 2.1
#[test]
fn frames_of_every_length_cross_generically() {
    frames_cross("generic", Mode::Generic, Transmit::Copy, 2018);
}

// promise: 2.1
#[test]
fn frames_of_every_length_cross_without_af_xdp() {
    frames_cross("packet", Mode::Native, Transmit::Packet, 1500);
}

#[test]
fn a_sender_with_a_socket_of_its_own_sends_every_length() {
    const SLOTS: u32 = 192; // no power of two
    let test = "direct";
    let Some(mut fixture) = Fixture::new(test, &["up", "out"]) else {
        return;
    };
    fixture.join(("up", "up0"), ("out", "out0"));
    let outside = fixture.raw("out", "out0");
    let instance = fixture.scratch.instance(1, 64, SLOTS).expect("instance");
    let open = |interface| {
        let mut ring = instance.attach().expect("attach");
        let port = ring.ports.pop().expect("a port");
        within(&fixture.path("up"), || DirectOutlet::open(interface, port))
    };
    let error = open("nothing").expect_err("no such interface");
    assert!(
        matches!(error, UplinkError::Netdev(NetdevError::NoInterface { .. })),
        "{error}"
    );
    let mut outlet = open("up0").expect("an outlet");
    let put = |bytes: &[u8]| {
        let bytes = bytes.to_vec();
        move |slot: &mut [u8]| {
            slot[..bytes.len()].copy_from_slice(&bytes);
            bytes.len()
        }
    };
    let too_long = frame(OUTSIDE, INSIDE, &[], 1500 + 14 + 1, 0);
    assert!(!outlet.send(put(&too_long)), "it would never be confirmed");
    for (number, len) in lengths(1500, 0).into_iter().enumerate() {
        let sent = frame(OUTSIDE, INSIDE, &[], len, number as u32);
        eventually("there is room", || {
            outlet.collect();
            outlet.send(put(&sent))
        });
        eventually("it is taken", || outlet.flush().is_ok());
        let ours = |frame: &[u8]| frame.starts_with(&OUTSIDE);
        assert_eq!(outside.receive_wanted(ours), Some(sent));
    }
    eventually("all frames are confirmed", || {
        outlet.collect();
        outlet.room() == SLOTS as usize
    });
    let sent = (0..2 * SLOTS).filter(|_| outlet.send(|_| 64)).count();
    assert_eq!(sent, SLOTS as usize, "more than there are slots");
}

/// Two namespaces, each behind an uplink; the uplinks are linked.
fn joined(test: &str, mode: Mode) -> Option<(Fixture, [Uplink; 2])> {
    let mut fixture = Fixture::new(test, &["up", "a", "b"])?;
    fixture.join(("up", "up0"), ("a", "in0"));
    fixture.join(("up", "up1"), ("b", "in0"));
    for (name, address) in [("a", "10.9.0.1/24"), ("b", "10.9.0.2/24")] {
        let netns = fixture.netns(name);
        must(&format!("ip -n {netns} addr add {address} dev in0"));
    }
    let mut specs = [fixture.spec("up", "up0"), fixture.spec("up", "up1")];
    specs.iter_mut().for_each(|spec| spec.mode = mode);
    let uplinks = [0, 1].map(|i| fixture.open(&specs[i]).expect("an uplink"));
    let switch = &fixture.scratch.switch;
    for (from, to) in [(0, 1), (1, 0)] {
        switch
            .connect(specs[from].port, Destination::Link(specs[to].port))
            .expect("connect");
    }
    Some((fixture, uplinks))
}

fn tcp_runs_through(test: &str, mode: Mode) {
    const BYTES: usize = 32 << 20;
    let Some((fixture, uplinks)) = joined(test, mode) else {
        return;
    };
    let listener = within(&fixture.path("b"), || TcpListener::bind("10.9.0.2:7000")).expect("bind");
    let mut stream =
        within(&fixture.path("a"), || TcpStream::connect("10.9.0.2:7000")).expect("connect");
    let block: Vec<u8> = (0..65536u32).map(|i| (i * 7 + i / 251) as u8).collect();
    let expected = block.clone();
    let server = thread::spawn(move || {
        let (mut peer, _) = listener.accept().expect("accept");
        let mut got = vec![0u8; expected.len()];
        for _ in 0..BYTES / expected.len() {
            peer.read_exact(&mut got).expect("read");
            assert!(got == expected, "TCP data is changed");
        }
        peer.write_all(b"done").expect("write");
    });
    for _ in 0..BYTES / block.len() {
        stream.write_all(&block).expect("write");
    }
    let mut done = [0u8; 4];
    stream.read_exact(&mut done).expect("read");
    server.join().expect("the server has checked all");
    for uplink in uplinks {
        let (port, status) = (uplink.spec().port, uplink.status());
        let counters = fixture.scratch.switch.counters(port);
        // Segments of 64 KiB would be too long, partial checksums would need to be sent again.
        assert_eq!(counters.dropped(DropReason::BadLength), 0, "{counters:?}");
        assert_eq!(counters.dropped(DropReason::Uplink), 0, "{status:?}");
        uplink.close(&fixture.scratch.switch).expect("close");
    }
    let errors = within(&fixture.path("b"), || {
        std::fs::read_to_string("/proc/thread-self/net/snmp").expect("counters")
    });
    let rows: Vec<Vec<&str>> = errors
        .lines()
        .filter(|line| line.starts_with("Tcp:"))
        .map(|line| line.split_whitespace().collect())
        .collect();
    let column = rows[0].iter().position(|name| *name == "InCsumErrors");
    assert_eq!(rows[1][column.expect("the kernel counts them")], "0");
}

// promise: 2.2
#[test]
fn tcp_of_a_kernel_stack_runs_through_natively() {
    tcp_runs_through("tcp", Mode::Native);
}

// promise: 2.2
#[test]
fn tcp_of_a_kernel_stack_runs_through_generically() {
    tcp_runs_through("tcpg", Mode::Generic);
}

// promise: 2.3
#[test]
fn datagrams_are_answered_one_by_one() {
    let Some((fixture, uplinks)) = joined("udp", Mode::Auto) else {
        return;
    };
    let server = within(&fixture.path("b"), || UdpSocket::bind("10.9.0.2:7000")).expect("bind");
    let client = within(&fixture.path("a"), || UdpSocket::bind("10.9.0.1:0")).expect("bind");
    client.connect("10.9.0.2:7000").expect("connect");
    for socket in [&server, &client] {
        socket.set_read_timeout(Some(PATIENCE)).expect("timeout");
    }
    for number in 0..200u32 {
        // With pauses: both workers go to sleep, and are woken.
        if number % 20 == 0 {
            thread::sleep(Duration::from_millis(30));
        }
        client.send(&number.to_be_bytes()).expect("send");
        let mut bytes = [0u8; 64];
        let (len, from) = server.recv_from(&mut bytes).expect("a question");
        server.send_to(&bytes[..len], from).expect("send");
        let len = client.recv(&mut bytes).expect("an answer");
        assert_eq!(bytes[..len], number.to_be_bytes());
    }
    drop(uplinks);
}

// promise: 2.5
#[test]
fn a_frame_longer_than_the_interface_takes_is_dropped_and_counted() {
    for (test, transmit) in [("long", Transmit::Auto), ("longp", Transmit::Packet)] {
        let Some(mut fixture) = Fixture::new(test, &["up", "out"]) else {
            return;
        };
        fixture.join(("up", "up0"), ("out", "out0"));
        let mut spec = fixture.spec("up", "up0");
        spec.transmit = transmit;
        let uplink = fixture.open(&spec).expect("an uplink");
        let instance = fixture.scratch.instance(1, 256, 64).expect("an instance");
        let switch = &fixture.scratch.switch;
        switch
            .connect(instance.id(0), Destination::Link(spec.port))
            .expect("connect");
        let mut ring = instance.attach().expect("attach");
        let outside = fixture.raw("out", "out0");
        let port = &mut ring.ports[0];
        let tag = [0x81, 0, 0, 5];
        for (tag, len) in [
            (&[][..], 1514),
            (&[], 1515),
            (&tag, 1518),
            (&tag, 1519),
            (&[], 2032),
            (&[], 60),
        ] {
            let frame = frame(OUTSIDE, INSIDE, tag, len, len as u32);
            assert!(port.send(|slot| {
                slot[..len].copy_from_slice(&frame);
                len
            }));
        }
        port.flush(WhenFull::Drop).expect("the port is up");
        for len in [1514, 1518, 60] {
            let frame = outside.receive_wanted(|frame| frame.starts_with(&OUTSIDE));
            assert_eq!(frame.expect("a frame").len(), len);
        }
        eventually("all are accounted for", || {
            let status = uplink.status();
            status.sent_frames == 3 && status.refused_frames == 3
        });
        assert_eq!(switch.counters(spec.port).dropped(DropReason::Uplink), 3);
    }
}

// promise: 2.5
#[test]
fn frames_too_long_for_a_slot_are_dropped_and_counted() {
    let Some(mut fixture) = Fixture::new("jumbo", &["up", "out"]) else {
        return;
    };
    fixture.join(("up", "up0"), ("out", "out0"));
    for (name, interface) in [("up", "up0"), ("out", "out0")] {
        let netns = fixture.netns(name);
        must(&format!("ip -n {netns} link set {interface} mtu 9000"));
    }
    let spec = fixture.spec("up", "up0");
    let _uplink = fixture.open(&spec).expect("an uplink");
    let instance = fixture.scratch.instance(1, 256, 64).expect("an instance");
    let switch = &fixture.scratch.switch;
    switch
        .connect(spec.port, Destination::Link(instance.id(0)))
        .expect("connect");
    let mut ring = instance.attach().expect("attach");
    let outside = fixture.raw("out", "out0");
    for len in [9014, 2033, 2032] {
        outside.send(&frame(INSIDE, OUTSIDE, &[], len, 1));
    }
    let want = frame(INSIDE, OUTSIDE, &[], 2032, 1);
    assert_eq!(take(&mut ring.ports[0], 1), [want]);
    let counters = switch.counters(instance.id(0));
    assert_eq!(counters.dropped(DropReason::TooLong), 2);
    assert_eq!(switch.counters(spec.port).tx_frames, 3);
}

// promise: 2.6
#[test]
fn an_uplink_learns_on_a_switch_and_floods_what_it_does_not_know() {
    let Some(mut fixture) = Fixture::new("switch", &["up", "out"]) else {
        return;
    };
    fixture.join(("up", "up0"), ("out", "out0"));
    let spec = fixture.spec("up", "up0");
    let _uplink = fixture.open(&spec).expect("an uplink");
    let instances: Vec<_> = (0..3)
        .map(|_| fixture.scratch.instance(1, 64, 64).expect("an instance"))
        .collect();
    let switch = &fixture.scratch.switch;
    switch
        .connect(spec.port, Destination::Switch(7))
        .expect("connect");
    let mut ports: Vec<Port> = Vec::new();
    for instance in &instances {
        let id = instance.id(0);
        switch.connect(id, Destination::Switch(7)).expect("connect");
        switch
            .pin_address(7, 0, instance.mac(0), id)
            .expect("pinned");
        ports.append(&mut instance.attach().expect("attach").ports);
    }
    let outside = fixture.raw("out", "out0");
    let mac = |i: usize| instances[i].mac(0);
    let mut entered = 0;
    let mut arrive = |bytes: &[u8], copies: u64| -> Vec<usize> {
        outside.send(bytes);
        entered += copies;
        let counted = || switch.counters(spec.port).tx_frames;
        eventually("it has come in", || counted() >= entered);
        // The frame is counted before it is delivered.
        switch.await_programs().expect("a grace period");
        assert_eq!(counted(), entered);
        let mut got = Vec::new();
        for (index, port) in ports.iter_mut().enumerate() {
            port.receive(64, |frame| {
                assert_eq!(frame, bytes);
                got.push(index);
            });
        }
        got
    };
    let from = |src: [u8; 6], dst: [u8; 6]| frame(dst, src, &[], 80, 5);
    assert_eq!(arrive(&from(OUTSIDE, mac(1)), 1), [1]);
    assert_eq!(arrive(&from(OUTSIDE, [0xff; 6]), 3), [0, 1, 2]);
    assert_eq!(arrive(&from(OUTSIDE, [2, 9, 9, 9, 9, 9]), 3), [0, 1, 2]);
    // A tenant's address does not come from the wire, a bridge's own protocol goes nowhere, and
    // what is known to be on the wire stays there.
    assert_eq!(arrive(&from(mac(0), mac(1)), 1), [0usize; 0]);
    assert_eq!(
        arrive(&from(OUTSIDE, [1, 0x80, 0xc2, 0, 0, 0]), 1),
        [0usize; 0]
    );
    assert_eq!(arrive(&from([2, 7, 7, 7, 7, 7], OUTSIDE), 1), [0usize; 0]);
    let counters = switch.counters(spec.port);
    for reason in [
        DropReason::ForeignMac,
        DropReason::ReservedMac,
        DropReason::SamePort,
    ] {
        assert_eq!(counters.dropped(reason), 1, "{reason}");
    }
    assert_eq!(counters.fdb_used, 2);
    // The way back is known: no flood.
    let answer = frame(OUTSIDE, mac(2), &[], 70, 6);
    assert!(ports[2].send(|slot| {
        slot[..70].copy_from_slice(&answer);
        70
    }));
    ports[2].flush(WhenFull::Drop).expect("the port is up");
    let back = outside.receive_wanted(|frame| frame.starts_with(&OUTSIDE));
    assert_eq!(back, Some(answer));
    assert_eq!(switch.counters(instances[2].id(0)).tx_frames, 1);
}

// promise: 2.4
#[test]
fn what_enters_is_delivered_or_dropped_with_a_reason_to_the_frame() {
    const FRAMES: u64 = 20_000;
    /// Of a sender on their way at once: fewer than a veth has room for, which counts nothing.
    const WINDOW: u64 = 128;
    let Some((mut fixture, uplinks)) = joined("sum", Mode::Auto) else {
        return;
    };
    // Two namespaces send at once, on different CPUs, into one port whose owner comes and goes.
    let instance = fixture.scratch.instance(1, 64, 64).expect("an instance");
    let switch = &fixture.scratch.switch;
    for uplink in &uplinks {
        switch
            .connect(uplink.spec().port, Destination::Link(instance.id(0)))
            .expect("connect");
    }
    let mut ring = instance.attach().expect("attach");
    let sockets = ["a", "b"].map(|name| fixture.raw(name, "in0"));
    let ports = uplinks.each_ref().map(|uplink| uplink.spec().port);
    let entered = |port| switch.counters(port).tx_frames;
    let mut got = 0;
    thread::scope(|scope| {
        let senders = [0, 1].map(|side: usize| {
            let (socket, port) = (&sockets[side], ports[side]);
            scope.spawn(move || {
                for number in 0..FRAMES as u32 {
                    while u64::from(number) >= entered(port) + WINDOW {
                        thread::yield_now();
                    }
                    let len = 14 + number as usize % 1500;
                    socket.send(&frame(INSIDE, OUTSIDE, &[], len, number));
                }
            })
        });
        while !senders.iter().all(thread::ScopedJoinHandle::is_finished) {
            // The owner does not come before its ring has been full.
            if switch
                .counters(instance.id(0))
                .dropped(DropReason::RingFull)
                > 0
            {
                got += ring.ports[0].receive(64, |_| ()) as u64;
            }
            thread::sleep(Duration::from_micros(200));
        }
    });
    eventually("all have come in", || {
        ports.iter().all(|port| entered(*port) >= FRAMES)
    });
    switch.await_programs().expect("a grace period");
    got += ring.ports[0].receive(usize::MAX, |_| ()) as u64;
    let delivered = switch.counters(instance.id(0));
    let dropped: u64 = ports
        .map(|port| switch.counters(port).dropped_total())
        .iter()
        .sum();
    assert_eq!(delivered.rx_frames, got);
    assert_eq!(
        ports.map(entered).iter().sum::<u64>(),
        delivered.rx_frames + delivered.dropped_total() + dropped
    );
    assert!(delivered.dropped(DropReason::RingFull) > 0, "{delivered:?}");
}

#[test]
fn a_capture_shows_what_comes_in_and_what_goes_out() {
    let Some(mut fixture) = Fixture::new("capture", &["up", "out"]) else {
        return;
    };
    fixture.join(("up", "up0"), ("out", "out0"));
    let spec = fixture.spec("up", "up0");
    let _uplink = fixture.open(&spec).expect("an uplink");
    let instance = fixture.scratch.instance(1, 64, 64).expect("an instance");
    let switch = &fixture.scratch.switch;
    for (from, to) in [(spec.port, instance.id(0)), (instance.id(0), spec.port)] {
        switch
            .connect(from, Destination::Link(to))
            .expect("connect");
    }
    let mut ring = instance.attach().expect("attach");
    let outside = fixture.raw("out", "out0");
    switch.set_capture(spec.port, true);
    let inward = frame(INSIDE, OUTSIDE, &[], 1000, 1);
    outside.send(&inward);
    assert_eq!(take(&mut ring.ports[0], 1), std::slice::from_ref(&inward));
    let outward = frame(OUTSIDE, INSIDE, &[], 77, 2);
    assert!(ring.ports[0].send(|slot| {
        slot[..77].copy_from_slice(&outward);
        77
    }));
    ring.ports[0].flush(WhenFull::Drop).expect("the port is up");
    switch.set_capture(spec.port, false);
    let mut seen = Vec::new();
    let reader = switch.capture_reader().expect("a reader");
    reader
        .run(Duration::from_millis(50), |captured| {
            seen.extend(captured.map(|c| (c.from, c.to, c.frame.to_vec())));
            captured.is_some()
        })
        .expect("captured frames");
    let id = instance.id(0);
    assert_eq!(seen, [(spec.port, id, inward), (id, spec.port, outward)]);
}
