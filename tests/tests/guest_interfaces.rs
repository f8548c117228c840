//! Interfaces behind ports: frames go from one to the other in the kernel, with no process in between, and by the port's ring
//! where an interface cannot take them at once.

mod uplink_fixture;

use nfluid_netdev::own_stack::{self, Settings};
use nfluid_netdev::{NetNs, Netlink, offload::Undone, packet};
use nfluid_ring::Level;
use nfluid_ring::offload::VNET_BYTES;
use nfluid_ring::port::Port;
use nfluid_switch::{Destination, DropReason, Interface, PortCounters, Switch, abi};
use nfluid_testbed::random::{Bytes, Random};
use nfluid_testbed::scratch::ScratchInstance;
use nfluid_tests::harness::command::must;
use nfluid_tests::harness::patience::{PATIENCE, eventually};
use nfluid_tests::harness::within;
use nfluid_uplink::{Levels, Uplink, UplinkSpec};
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use uplink_fixture::{Fixture, Raw};

const SWITCH: u32 = 7;
const LONG_SLOTS: u32 = 4096;
const STREAM: usize = 4 << 20;
const MTU: u32 = 4000;
/// The stacks' addresses, and that of a host behind the uplink.
const STACKS: [&str; 2] = ["10.0.0.1", "10.0.0.2"];
const OUTSIDE: &str = "10.0.0.9";
const NAMES: [&str; 2] = ["a", "b"];

/// Two stacks on a switch with an uplink, in the namespace in which the outer ends of the stacks are.
struct Lan {
    fixture: Fixture,
    stacks: Vec<ScratchInstance>,
    rings: Vec<Port>,
    uplink: UplinkSpec,
    opened: Option<Uplink>,
}

fn address(text: &str, port: u16) -> SocketAddr {
    SocketAddr::new(text.parse::<IpAddr>().expect("an address"), port)
}

impl Lan {
    /// `None`: the test is skipped.
    fn new(test: &str) -> Option<Self> {
        let mut fixture = Fixture::new(test, &["home", "out", "a", "b"])?;
        fixture.join(("home", "up0"), ("out", "out0"));
        let out = fixture.netns("out");
        must(&format!("ip -n {out} address add {OUTSIDE}/24 dev out0"));
        let uplink = UplinkSpec {
            netns: None,
            offloads: true,
            long_slots: LONG_SLOTS,
            levels: Levels {
                enter: Level::Super,
                take: Level::Super,
            },
            ..fixture.spec("home", "up0")
        };
        let home = fixture.path("home");
        let opened = within(&home, || fixture.open(&uplink)).expect("an uplink");
        let mut lan = Lan {
            fixture,
            stacks: Vec::new(),
            rings: Vec::new(),
            uplink,
            opened: Some(opened),
        };
        for index in 0..STACKS.len() {
            let mut spec = nfluid_switch::PortSpec::new(
                lan.fixture.scratch.port_ids(1),
                "eth0",
                [2, 0, 0, 0, 9, index as u8],
                256,
            );
            spec.kernel_doorbell = true;
            let made = lan.fixture.scratch.instance_with(&[spec]);
            lan.stacks.push(made.expect("an instance"));
            lan.make(index);
        }
        let switch = lan.switch();
        for port in lan.ports() {
            switch
                .connect(port, Destination::Switch(SWITCH))
                .expect("connected");
        }
        for stack in &lan.stacks {
            let pinned = switch.pin_address(SWITCH, 0, stack.mac(0), stack.id(0));
            pinned.expect("pinned");
        }
        let rings = lan
            .stacks
            .iter()
            .map(|stack| stack.attach().expect("attached"));
        lan.rings = rings.flat_map(|attached| attached.ports).collect();
        Some(lan)
    }

    fn switch(&self) -> &Switch {
        &self.fixture.scratch.switch
    }

    /// The ports of the stacks, and the uplink's.
    fn ports(&self) -> Vec<u32> {
        let stacks = self.stacks.iter().map(|stack| stack.id(0));
        stacks.chain([self.uplink.port]).collect()
    }

    /// Makes a stack's interface and puts it behind its port.
    fn make(&self, index: usize) {
        let stack = &self.stacks[index];
        let settings = Settings {
            name: "eth0".to_owned(),
            mac: stack.mac(0),
            mtu: MTU,
            addresses: vec![(STACKS[index].parse().expect("an address"), 24)],
            routes: Vec::new(),
        };
        let namespace = NetNs::open(Some(&self.fixture.path(NAMES[index]))).expect("there");
        let switch = self.switch();
        within(&self.fixture.path("home"), || {
            let netns = NetNs::open(None).expect("there").inode();
            let program = switch.load_shared(netns).expect("loaded");
            let made = own_stack::make(&namespace, &["eth0"]).expect("made");
            let end = Interface {
                index: made[0].outer,
                netns,
            };
            switch.put_veth(stack.id(0), end).expect("behind the port");
            own_stack::open_outer(end.index, program.as_fd()).expect("open");
            own_stack::configure(&namespace, &made, &[settings], false).expect("configured");
        });
    }

    /// Sets what the stacks leave undone on frames that they send.
    fn leave_undone(&self, undone: Undone) {
        for name in NAMES {
            let namespace = NetNs::open(Some(&self.fixture.path(name))).expect("there");
            own_stack::leave_undone(&namespace, &["eth0"], undone).expect("undone");
        }
    }

    fn counters(&self) -> Vec<PortCounters> {
        let ports = self.ports();
        ports
            .iter()
            .map(|port| self.switch().counters(*port))
            .collect()
    }

    /// A stream from `client` to `server`, each a namespace and an address.
    fn stream(&self, client: (&str, &str), server: (&str, &str), port: u16) {
        let at = address(server.1, port);
        let listener = within(&self.fixture.path(server.0), || TcpListener::bind(at));
        let listener = listener.expect("a server");
        let bytes = Bytes::of(port.into()).take(STREAM);
        thread::scope(|scope| {
            let got = scope.spawn(move || {
                let (mut stream, _) = listener.accept().expect("a client");
                let mut got = Vec::new();
                stream.set_read_timeout(Some(PATIENCE)).expect("set");
                stream.read_to_end(&mut got).expect("a whole stream");
                got
            });
            let connect = || TcpStream::connect_timeout(&at, PATIENCE);
            let stream = within(&self.fixture.path(client.0), connect);
            let mut stream = stream.expect("connected");
            stream.write_all(&bytes).expect("sent");
            drop(stream);
            assert!(
                got.join().expect("a server") == bytes,
                "{client:?} {server:?}"
            );
        });
    }

    /// Frames in the rings of the stacks, which nobody reads.
    fn in_rings(&mut self) -> usize {
        let mut frames = 0;
        for ring in &mut self.rings {
            ring.receive(usize::MAX, |_| frames += 1);
        }
        frames
    }
}

impl Drop for Lan {
    fn drop(&mut self) {
        if let Some(uplink) = self.opened.take() {
            uplink.close(&self.fixture.scratch.switch).expect("closed");
        }
    }
}

// promise: 19.6
#[test]
fn frames_between_interfaces_pass_no_process_and_are_counted_as_all_others() {
    let test = "ifpass";
    let Some(mut lan) = Lan::new(test) else {
        return;
    };
    lan.leave_undone(Undone::Segments { udp: true });
    // Also resolution of addresses: broadcasts are copied to all members.
    let (a, b, out) = (("a", STACKS[0]), ("b", STACKS[1]), ("out", OUTSIDE));
    for (port, (client, server)) in (5000..).zip([(out, a), (a, out), (a, b), (b, a)]) {
        lan.stream(client, server, port);
    }
    for (port, counters) in lan.ports().into_iter().zip(lan.counters()) {
        assert_eq!(counters.dropped_total(), 0, "{port}: {counters:?}");
        assert_eq!(counters.forwarded, counters.rx_frames, "{port}");
        assert!(counters.rx_bytes > STREAM as u64, "{port}: {counters:?}");
        let segments = counters.rx_frames + counters.rx_more_segments;
        assert!(
            segments > 4 * counters.rx_frames,
            "{port}: super-frames cross whole"
        );
    }
    let sum = |of: fn(&PortCounters) -> u64| lan.counters().iter().map(of).sum::<u64>();
    assert_eq!(sum(|it| it.tx_frames), sum(|it| it.rx_frames));
    assert_eq!(sum(|it| it.tx_more_segments), sum(|it| it.rx_more_segments));
    // A stack that may leave nothing undone sends packets.
    lan.leave_undone(Undone::Nothing);
    let before = lan.counters()[0];
    lan.stream(a, b, 5010);
    let now = lan.counters()[0];
    assert_eq!(now.tx_more_segments, before.tx_more_segments);
    assert!(now.tx_frames - before.tx_frames >= (STREAM / MTU as usize) as u64);
    assert_eq!(lan.in_rings(), 0);
}

// promise: 19.6
#[test]
fn a_frame_that_an_interface_cannot_take_at_once_goes_by_the_ring() {
    let Some(mut lan) = Lan::new("ifring") else {
        return;
    };
    let send = |lan: &Lan, from: &str, to: &str, bytes: usize| {
        let sent = within(&lan.fixture.path(from), || {
            let socket = UdpSocket::bind("0.0.0.0:0")?;
            socket.send_to(&vec![1; bytes], address(to, 9))
        });
        sent.expect("sent");
    };
    send(&lan, "a", STACKS[1], 100);
    eventually("a frame has crossed", || lan.counters()[1].rx_frames > 0);
    send(&lan, "a", OUTSIDE, 100);
    eventually("a frame has left", || lan.counters()[2].forwarded > 1);
    assert_eq!(lan.in_rings(), 0);

    // Longer than the uplink's interface takes: its thread finds that out, and counts it.
    send(&lan, "a", OUTSIDE, MTU as usize - 100);
    eventually("it is counted", || {
        lan.counters()[2].dropped(DropReason::Uplink) == 1
    });

    // A frame that is to be captured.
    let id = lan.stacks[1].id(0);
    lan.switch().set_capture(id, true);
    send(&lan, "a", STACKS[1], 100);
    eventually("a frame to be captured lies in the ring", || {
        lan.counters()[1].rx_frames > lan.counters()[1].forwarded
    });
    assert_eq!(lan.in_rings(), 1);
    lan.switch().set_capture(id, false);

    // From an interface in another namespace, where interfaces have the numbers of those at home.
    lan.fixture.join(("out", "far0"), ("b", "far1"));
    let out = lan.fixture.netns("out");
    for number in 2..20 {
        let add = format!(
            "-n {out} link add d{number} index {number} type veth peer name e{number} index 10{number}"
        );
        // Some numbers are taken.
        let _taken = Command::new("ip").args(add.split(' ')).output();
    }
    let far = UplinkSpec {
        offloads: true,
        levels: lan.uplink.levels,
        long_slots: LONG_SLOTS,
        ..lan.fixture.spec("out", "far0")
    };
    let opened = lan.fixture.open(&far).expect("an uplink");
    let on_switch = Destination::Switch(SWITCH);
    lan.switch()
        .connect(far.port, on_switch)
        .expect("connected");
    let outside = lan.fixture.raw("b", "far1");
    outside.send(&frame(lan.stacks[0].mac(0), [2, 9, 9, 9, 9, 9]));
    eventually("a frame from elsewhere lies in the ring", || {
        lan.in_rings() == 1
    });
    opened.close(lan.switch()).expect("closed");

    // The interface has gone, and comes again.
    let b = lan.fixture.netns("b");
    must(&format!("ip -n {b} link delete eth0"));
    let forwarded = lan.counters()[1].forwarded;
    let [a, b] = [0, 1].map(|index| lan.stacks[index].mac(0));
    raw(&lan.fixture.path("a")).send(&frame(b, a));
    eventually("a frame for nobody lies in the ring", || {
        lan.in_rings() == 1
    });
    assert_eq!(lan.counters()[1].forwarded, forwarded);
    lan.make(1);
    lan.stream(("a", STACKS[0]), ("b", STACKS[1]), 5000);
    assert_eq!(lan.in_rings(), 0);
}

/// An Ethernet frame without a packet.
fn frame(to: [u8; 6], from: [u8; 6]) -> Vec<u8> {
    [&to[..], &from, &[8, 0], &[0; 50]].concat()
}

/// A socket past the stack of a namespace.
fn raw(namespace: &Path) -> Raw {
    within(namespace, || Raw::open("eth0")).expect("a raw socket")
}

// promise: 19.6
#[test]
fn a_stack_cannot_send_from_the_address_of_another() {
    let Some(mut lan) = Lan::new("iffrom") else {
        return;
    };
    let others = lan.stacks[1].mac(0);
    raw(&lan.fixture.path("a")).send(&frame([0xff; 6], others));
    eventually("it is counted", || {
        lan.counters()[0].dropped(DropReason::ForeignMac) == 1
    });
    let forwarded: u64 = lan.counters().iter().map(|it| it.forwarded).sum();
    assert_eq!((forwarded, lan.in_rings()), (0, 0));
}

/// Sends frames of all kinds past the stack `a`, whatever the kernel says, until it is told to stop.
fn send_anything(lan: &Lan, stop: &AtomicBool) {
    let socket = within(&lan.fixture.path("a"), || {
        let link = Netlink::open().and_then(|netlink| netlink.link("eth0"));
        packet::open_for_offloads(link.expect("an answer").expect("there").index)
    });
    let socket = socket.expect("a socket");
    let mut random = Random(7);
    let receivers = [
        lan.stacks[1].mac(0),
        [0xff; 6],
        [1, 0, 0x5e, 1, 2, 3],
        [2; 6],
    ];
    while !stop.load(Relaxed) {
        let mut frame = vec![0; VNET_BYTES + 14 + random.below(3000) as usize];
        Bytes::of(random.below(u32::MAX).into()).fill(&mut frame);
        // Mostly words of the header that the kernel takes: a checksum, and a kind of segments.
        if !random.one_in(4) {
            let start = 34 + random.below(8) as u16;
            let kind = random.pick(&[0, 1, 4, 5]);
            frame[..2].copy_from_slice(&[1, kind]);
            frame[2..4].copy_from_slice(&(start + 20).to_ne_bytes());
            frame[4..6].copy_from_slice(&(1 + random.below(1500) as u16).to_ne_bytes());
            frame[6..8].copy_from_slice(&start.to_ne_bytes());
            frame[8..10].copy_from_slice(&random.pick(&[16u16, 6]).to_ne_bytes());
        }
        let at = &mut frame[VNET_BYTES..];
        at[..6].copy_from_slice(&random.pick(&receivers));
        at[6..12].copy_from_slice(&lan.stacks[0].mac(0));
        at[12..14].copy_from_slice(&random.pick(&[[8, 0], [0x86, 0xdd], [0x81, 0]]));
        let _or_refused = rustix::io::write(&socket, &frame);
    }
}

// promise: 19.6
#[test]
fn whatever_a_stack_sends_the_streams_of_others_are_whole() {
    let Some(lan) = Lan::new("ifany") else {
        return;
    };
    lan.leave_undone(Undone::Segments { udp: true });
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let sender = scope.spawn(|| send_anything(&lan, &stop));
        let sent = || lan.counters()[0].tx_frames;
        let mut ports = 5000..6000;
        while ports.start < 5003 || (sent() <= 1000 && !sender.is_finished()) {
            let port = ports.next().expect("frames are sent meanwhile");
            lan.stream(("out", OUTSIDE), ("b", STACKS[1]), port);
            lan.stream(("b", STACKS[1]), ("out", OUTSIDE), port + 1000);
        }
        stop.store(true, Relaxed);
    });
    let counters = lan.counters();
    assert!(counters[0].tx_frames > 1000, "{counters:?}");
    lan.stream(("out", OUTSIDE), ("a", STACKS[0]), 5010);
}

#[test]
fn interfaces_that_are_gone_leave_room_for_others() {
    let Some(lan) = Lan::new("ifmany") else {
        return;
    };
    let port = lan.stacks[0].id(0);
    for index in 0..abi::PORTS_MAX + 100 {
        let end = Interface {
            index: 1_000_000 + index,
            netns: 1,
        };
        lan.switch().put_veth(port, end).expect("room");
    }
    lan.switch().take_interface(port).expect("taken");
}
