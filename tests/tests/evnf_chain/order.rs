//! The promise: a packet does not overtake an earlier one of its flow that has gone through the kernel, also while
//! members are replaced under way, so that flows change their path.

use crate::fixture::{Fixture, SERVICE, asks_about, datagram};
use nfluid_evnf::hook::Hook;
use nfluid_gen::interface::{InterfaceReceiver, InterfaceSender};
use nfluid_gen::io::{Receiver, Sender};
use nfluid_testbed::random::Random;
use nfluid_tests::harness::skip::is_root;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

const HOSTS: [&str; 4] = ["10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5"];
/// A host without rules: its flow always takes the fast path.
const ALWAYS_FAST: &str = HOSTS[3];
const BATCH: u32 = 64;
const BATCHES_MIN: u32 = 50;
const CHANGES_MIN: u32 = 20;
/// Longest wait for packets that are on their way.
const PATIENCE: Duration = Duration::from_secs(120);

/// Of an IPv4 packet: whether a kernel has forwarded it, its source, the number that it carries.
fn read(frame: &[u8]) -> Option<(bool, [u8; 6], u32)> {
    let ours = frame.get(12..14)? == [8, 0] && frame.get(23)? == &17;
    let hops = *frame.get(22)?;
    let source = [frame.get(26..30)?, frame.get(34..36)?].concat();
    let number = frame.get(42..46)?.try_into().ok()?;
    ours.then_some((
        hops == 63,
        source.try_into().ok()?,
        u32::from_be_bytes(number),
    ))
}

/// Arrivals of each flow.
#[derive(Default)]
struct Arrived {
    latest: HashMap<[u8; 6], u32>,
    slow: u32,
    fast: u32,
}

impl Arrived {
    fn add(&mut self, frame: &[u8]) {
        let Some((slow, source, number)) = read(frame) else {
            return;
        };
        let latest = self.latest.get(&source).copied();
        let in_order = latest.is_none_or(|latest| latest < number);
        let must = slow || source.starts_with(&[10, 0, 0, 5]);
        assert!(
            in_order || !must,
            "{source:?}: {latest:?} has come before {number} (slow path: {slow})"
        );
        self.latest.insert(source, latest.unwrap_or(0).max(number));
        self.slow += u32::from(slow);
        self.fast += u32::from(!slow);
    }

    fn take(&mut self, receiver: &mut InterfaceReceiver) {
        while receiver
            .receive(256, |frame: &[u8]| self.add(frame))
            .unwrap()
            > 0
        {}
    }
}

/// Ends what runs beside the test, also when that fails.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

// promise: 15.9
#[test]
fn nothing_overtakes_what_went_through_the_kernel() {
    if !is_root("nothing_overtakes_what_went_through_the_kernel") {
        return;
    }
    nothing_overtakes(Hook::Xdp);
    // The other end of a veth that is handed packets gets them before those that wait for it: here nobody is.
    nothing_overtakes(Hook::Tc);
}

fn nothing_overtakes(hook: Hook) {
    let fixture = Fixture::new(&format!("ord{hook:?}"));
    let firewalls = [&HOSTS[..0], &HOSTS[..2], &HOSTS[1..3]].map(asks_about);
    let mut chain = fixture.chain_at(hook, &firewalls[0]);
    fixture
        .within(|| chain.attach("n0"))
        .expect("a veth takes it");
    // A veth takes redirected frames when its other end polls.
    let hosts = &fixture.namespaces.hosts;
    hosts.run("ethtool -K h1 gro on").expect("ethtool");
    hosts.enter().expect("root may");
    let mut sender = InterfaceSender::open("h0").unwrap();
    let mut receiver = InterfaceReceiver::open("h1").unwrap();
    let (ended, changes) = (AtomicBool::new(false), AtomicU32::new(0));
    let mut random = Random(1);
    let mut arrived = Arrived::default();
    let mut sent = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = Random(2);
            while !ended.load(Ordering::Relaxed) {
                let firewall = &firewalls[random.below(3) as usize];
                chain.replace(0, firewall.member_at(hook).unwrap()).unwrap();
                changes.fetch_add(1, Ordering::Relaxed);
            }
        });
        let _end = End(&ended);
        let mut batches = 0;
        while batches < BATCHES_MIN || changes.load(Ordering::Relaxed) < CHANGES_MIN {
            // At most one batch of each path is in flight: the kernel's queues have room for it.
            let start = Instant::now();
            while sent > arrived.slow + arrived.fast + BATCH && start.elapsed() < PATIENCE {
                arrived.take(&mut receiver);
                std::thread::yield_now();
            }
            let fill = |_: usize, slot: &mut [u8]| {
                let host = random.pick(&HOSTS);
                let from = format!("{host}:{}", 1000 + random.below(3));
                sent += 1;
                let packet = datagram(&from, SERVICE, sent);
                slot[..packet.len()].copy_from_slice(&packet);
                packet.len()
            };
            assert_eq!(sender.send(BATCH as usize, fill).unwrap(), BATCH as usize);
            sender.flush().unwrap();
            arrived.take(&mut receiver);
            batches += 1;
        }
    });
    let deadline = Instant::now() + PATIENCE;
    while arrived.slow + arrived.fast < sent {
        assert!(
            Instant::now() < deadline,
            "{} of {sent} are lost",
            sent - arrived.slow - arrived.fast
        );
        std::thread::sleep(Duration::from_millis(5));
        arrived.take(&mut receiver);
    }
    assert_eq!(sender.dropped(), 0);
    assert!(
        arrived.slow > 100 && arrived.fast > 100,
        "the test says nothing"
    );
    let fast = ALWAYS_FAST.parse::<std::net::Ipv4Addr>().unwrap().octets();
    assert!(
        arrived
            .latest
            .keys()
            .any(|source| source.starts_with(&fast))
    );
}
