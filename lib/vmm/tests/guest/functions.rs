//! Each network function of the catalogue does in a guest what it does in a process: the same frames leave in the same
//! order, and counters, commands and states are the same.

use crate::bed::{pool, start};
use nfluid_nf::testing::{Collected, SentOffload, ports};
use nfluid_nf::{Metric, Nanos, NetworkFunction, PortInfo, catalogue, stateful};
use nfluid_ring::{Action, Batch, Frame, Outbox};
use nfluid_vmm::{Guest, Image};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Bytes of a slot that a frame can have.
const SLOT: usize = 2048;
const FRAME: usize = 2032;

/// Network functions and their configurations.
fn functions() -> Vec<(&'static str, Value, u8)> {
    vec![
        ("bridge", json!({}), 2),
        ("counter", json!({}), 2),
        (
            "firewall",
            json!({ "rules": "check-state\nallow udp from any to any out keep-state\nallow tcp from any to any" }),
            2,
        ),
        (
            "limiter",
            json!({ "forward": { "cir": 80_000_000, "cbs": 20_000 } }),
            2,
        ),
        ("mirror", json!({}), 2),
        ("nat", json!({ "pool": ["203.0.113.1"], "seed": 7 }), 2),
        (
            // Its next hop answers nobody, so it makes requests and errors.
            "router",
            json!({
                "addresses": { "p0": ["10.0.0.1/24"], "p1": ["10.0.1.1/24"] },
                "routes": [{ "to": "default", "via": "10.0.1.254" }],
                "neighbours": [{ "port": "p1", "address": "10.0.1.9", "mac": "02:00:00:00:00:09" }],
            }),
            2,
        ),
        ("signature", json!({}), 2),
        ("vlan", json!({ "push": { "id": 7 } }), 2),
    ]
}

fn guest(name: &str, config: &Value, infos: &[PortInfo], pool: &[u8]) -> Option<Guest> {
    let image = Image::functions().expect("the image of this version");
    let mut guest = start(image, pool)?.expect("it starts");
    guest.build(name, config, infos).expect("it is built");
    Some(guest)
}

/// Builds a network function for tests, or finds that its configuration is none.
fn native(name: &str, config: &Value, infos: &[PortInfo]) -> Box<dyn NetworkFunction> {
    catalogue::build(name, config, infos).unwrap_or_else(|why| panic!("{name}: {why}"))
}

/// Numbers that look random.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }
}

/// A frame: mostly IPv4 with UDP or TCP, sometimes anything.
fn frame(numbers: &mut Numbers, to: &PortInfo) -> Vec<u8> {
    let length = 60 + numbers.next(1400) as usize;
    let mut frame: Vec<u8> = (0..length).map(|_| numbers.next(256) as u8).collect();
    frame[..6].copy_from_slice(&to.mac.0);
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 2]);
    if numbers.next(16) == 0 {
        return frame;
    }
    frame[12..16].copy_from_slice(&[8, 0, 0x45, 0]);
    frame[16..18].copy_from_slice(&((length - 14) as u16).to_be_bytes());
    frame[20..22].copy_from_slice(&[0, 0]);
    frame[22..26].copy_from_slice(&[64, if numbers.next(2) == 0 { 17 } else { 6 }, 0, 0]);
    let target = [9, 254, 1][numbers.next(3) as usize];
    frame[26..34].copy_from_slice(&[10, 0, 0, 2 + numbers.next(4) as u8, 10, 0, 1, target]);
    if frame[23] == 17 {
        frame[38..40].copy_from_slice(&((length - 34) as u16).to_be_bytes());
        frame[40..42].copy_from_slice(&[0, 0]);
    } else {
        frame[46..48].copy_from_slice(&[0x50, 2 + 16 * numbers.next(2) as u8]);
    }
    let words = frame[14..34].chunks_exact(2);
    let sum: u32 = words
        .map(|it| u32::from(u16::from_be_bytes([it[0], it[1]])))
        .sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame
}

/// Has a network function handle frames that lie in slots. Returns what leaves.
fn handle(
    nf: &mut dyn NetworkFunction,
    now: Nanos,
    slots: &mut [u8],
    frames: &[(u8, Vec<u8>)],
) -> Vec<SentOffload> {
    let mut batch = arrayvec::ArrayVec::new();
    for (slot, (port, bytes)) in slots.chunks_exact_mut(SLOT).zip(frames) {
        slot[..bytes.len()].copy_from_slice(bytes);
        batch.push(Frame::new(&mut slot[..FRAME], bytes.len() as u16, *port));
    }
    let mut outbox = InOrder::default();
    nf.process(now, &mut Batch::new(&mut batch, &mut outbox));
    outbox.commit(&batch);
    outbox.sent.0
}

/// Collects frames in the order in which they leave.
#[derive(Default)]
struct InOrder {
    sent: Collected,
    committed: usize,
}

impl Outbox for InOrder {
    fn emit_offload(&mut self, port: u8, frame: &[u8], offload: nfluid_ring::Offload) -> bool {
        self.sent.emit_offload(port, frame, offload)
    }

    fn commit(&mut self, decided: &[Frame<'_>]) {
        for frame in decided.iter().skip(self.committed) {
            self.committed += 1;
            if let Action::Send(port) = frame.action() {
                assert!(self.sent.emit_offload(port, frame.bytes(), frame.offload()));
            }
        }
    }
}

fn metrics(nf: &dyn NetworkFunction) -> BTreeMap<String, f64> {
    let mut all = BTreeMap::new();
    nf.metrics(&mut |metric: Metric| {
        if !metric.name.starts_with("guest_") {
            all.insert(format!("{} {:?}", metric.name, metric.labels), metric.value);
        }
    });
    all
}

// promise: 18.2
#[test]
fn a_function_does_in_a_guest_what_it_does_in_a_process() {
    for (name, config, count) in functions() {
        let infos = ports(count);
        let (slots, own) = (pool(64), pool(64));
        let Some(mut guest) = guest(name, &config, &infos, slots) else {
            return;
        };
        let mut native = native(name, &config, &infos);
        let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
        let mut now = Nanos::from_secs(1000);
        let mut left = 0;
        for _ in 0..200 {
            let many = 1 + numbers.next(64);
            let frames: Vec<_> = (0..many)
                .map(|_| {
                    let port = numbers.next(u64::from(count)) as u8;
                    (port, frame(&mut numbers, &infos[usize::from(port)]))
                })
                .collect();
            now = Nanos(now.0 + 1_000_000 * numbers.next(20));
            let expected = handle(native.as_mut(), now, own, &frames);
            let found = handle(&mut guest, now, slots, &frames);
            assert!(found == expected, "{name}: other frames");
            left += found.len();
            let (mut one, mut other) = (Collected::default(), Collected::default());
            native.tick(now, &mut one);
            guest.tick(now, &mut other);
            assert_eq!(one.0, other.0, "{name}: a tick");
            assert_eq!(native.has_timers(), guest.has_timers(), "{name}");
        }
        assert!(left > 0, "{name}: nothing leaves");
        assert_eq!(metrics(native.as_ref()), metrics(&guest), "{name}");
        let (one, other) = (
            native.command(now, "no-such", &[]),
            guest.command(now, "no-such", &[]),
        );
        assert_eq!(
            one.expect_err("unknown").to_string(),
            other.expect_err("unknown").to_string(),
            "{name}"
        );
        assert_eq!(
            native.divides_by_flow().is_ok(),
            guest.divides_by_flow().is_ok()
        );
    }
}

// promise: 18.2
#[test]
fn a_state_moves_between_a_process_and_a_guest() {
    let config = json!({ "rules": "check-state\nallow udp from any to any out keep-state" });
    let infos = ports(2);
    let (slots, own) = (pool(64), pool(64));
    let Some(mut first) = guest("firewall", &config, &infos, slots) else {
        return;
    };
    let now = Nanos::from_secs(5);
    let mut numbers = Numbers(77);
    let outgoing: Vec<_> = (0..64)
        .map(|_| (0, frame(&mut numbers, &infos[0])))
        .collect();
    handle(&mut first, now, slots, &outgoing);
    let image = stateful::export("firewall", &mut first, now).expect("a state");
    let mut second = native("firewall", &config, &infos);
    let taken = stateful::import("firewall", second.as_mut(), now, &image).expect("taken");
    assert!(taken.taken > 10, "{taken:?}");
    let again = stateful::export("firewall", second.as_mut(), now).expect("a state");
    let mut third = guest("firewall", &config, &infos, slots).expect("KVM");
    let retaken = stateful::import("firewall", &mut third, now, &again).expect("taken");
    assert_eq!(taken, retaken);
    let forged = stateful::forged("firewall", 1, &[0xff; 40_000]).expect("an image");
    stateful::import("firewall", &mut third, now, &forged).expect_err("it makes no sense");
    let before = handle(second.as_mut(), now, own, &outgoing);
    assert!(
        before == handle(&mut third, now, slots, &outgoing),
        "the same states"
    );
}

/// Page faults of this thread so far, those of its guests included.
fn faults() -> i64 {
    // SAFETY: a `rusage` is plain numbers, which the kernel fills in.
    let mut used: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &mut used) };
    used.ru_minflt
}

// promise: 18.6
#[test]
fn a_guest_that_has_waited_has_the_memory_of_a_state() {
    let config = json!({ "rules": "check-state\nallow udp from any to any out keep-state" });
    let (infos, now) = (ports(2), Nanos::from_secs(5));
    let mut native = native("firewall", &config, &infos);
    let (mut numbers, own) = (Numbers(5), pool(64));
    for _ in 0..64 {
        let frames: Vec<_> = (0..64)
            .map(|_| (0, frame(&mut numbers, &infos[0])))
            .collect();
        handle(native.as_mut(), now, own, &frames);
    }
    let image = stateful::export("firewall", native.as_mut(), now).expect("a state");
    let mut counted = Vec::new();
    for waits in [false, true] {
        let image_of_guest = Image::functions().expect("the image");
        let Some(guest) = start(image_of_guest, pool(64)) else {
            return;
        };
        let mut guest = guest.expect("it starts");
        if waits {
            guest.rehearse("firewall", &config, &infos);
        }
        guest.build("firewall", &config, &infos).expect("built");
        let before = faults();
        let taken = stateful::import("firewall", &mut guest, now, &image).expect("taken");
        assert!(taken.taken > 500, "{taken:?}");
        counted.push(faults() - before);
    }
    assert!(counted[1] * 2 < counted[0], "{counted:?}");
}

// promise: 18.3
#[test]
fn a_configuration_that_is_refused_says_where_and_why() {
    let infos = ports(2);
    let wrong = json!({ "rules": "allow ip from any to any\nnonsense here" });
    let slots = pool(64);
    let image = Image::functions().expect("the image");
    let Some(guest) = start(image, slots) else {
        return;
    };
    let mut guest = guest.expect("it starts");
    let found = guest
        .build("firewall", &wrong, &infos)
        .expect_err("refused");
    let expected = catalogue::build("firewall", &wrong, &infos)
        .err()
        .expect("refused");
    assert_eq!(found, expected);
    let right = json!({ "rules": "allow ip from any to any" });
    guest
        .build("firewall", &right, &infos)
        .expect("it is built");
    let kept = guest.reconfigure(&wrong, &infos).expect_err("refused");
    assert_eq!(kept, expected);
}
