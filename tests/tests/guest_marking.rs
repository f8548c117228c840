//! Congestion signals: a frame that can be marked on its way into a ring is marked, with a checksum that holds; any
//! other frame is dropped and counted; nothing else is touched, and a word that is not renewed is not followed.

#[path = "guest_marking/paths.rs"]
mod paths;
mod switch_fixture;
mod uplink_fixture;

use nfluid_io::{Idle, IoThread, Placement};
use nfluid_ring::port::{Port, WhenFull};
use nfluid_switch::{Destination, DropReason, Group, PortCounters, PortSignal};
use nfluid_testbed::io_process::duties;
use nfluid_testbed::scratch::{Scratch, ScratchInstance};
use nfluid_tests::harness::patience::eventually;
use nfluid_wire::ipv4::Ipv4Packet;
use nfluid_wire::ipv6::Ipv6Packet;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use switch_fixture::{BROADCAST, Members, for_each_form_unless, frame, received, send, tagged};
use uplink_fixture::Fixture;

const CUSTOMER: u16 = 0x8100;
const SERVICE: u16 = 0x88a8;
const ALWAYS: u32 = u32::MAX;
const CE: u8 = 3;
/// Longer than any test.
const LONG: Duration = Duration::from_secs(1);

/// An Ethernet header without its EtherType.
fn addresses(dst: [u8; 6], src: [u8; 6]) -> Vec<u8> {
    [dst, src].concat()
}

/// An IPv4 packet in a frame. `words`: of the header, more than five have options. `fragment`: that field.
fn ipv4(dst: [u8; 6], ecn: u8, words: u8, fragment: u16, payload: usize) -> Vec<u8> {
    let header = usize::from(words) * 4;
    let mut packet = vec![0x5a; header + payload];
    packet[..20].fill(0);
    packet[20..header].fill(1); // no-operation options
    packet[0] = 0x40 | words;
    packet[1] = 0xb8 | ecn;
    packet[2..4].copy_from_slice(&((header + payload) as u16).to_be_bytes());
    packet[6..8].copy_from_slice(&fragment.to_be_bytes());
    packet[8..10].copy_from_slice(&[64, 17]);
    packet[12..20].copy_from_slice(&[10, 1, 2, 3, 192, 0, 2, 77]);
    Ipv4Packet::new_checked(&mut packet)
        .expect("a packet")
        .fill_checksum();
    [addresses(dst, [2; 6]), vec![8, 0], packet].concat()
}

fn ipv6(dst: [u8; 6], ecn: u8, payload: usize) -> Vec<u8> {
    let mut packet = vec![0xa5; 40 + payload];
    let mut view = Ipv6Packet::new_unchecked(&mut packet);
    view.set_version_class_flow(0xb8 | ecn, 0xabcde);
    view.set_payload_len(payload as u16);
    [addresses(dst, [2; 6]), vec![0x86, 0xdd], packet].concat()
}

/// The frame as it must arrive when it is marked: every byte of the header but these summed anew.
fn marked(frame: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    let mut at = 12;
    while [CUSTOMER.to_be_bytes(), SERVICE.to_be_bytes()].contains(&[frame[at], frame[at + 1]]) {
        at += 4;
    }
    let ip = &mut frame[at + 2..];
    if ip[0] >> 4 == 4 {
        ip[1] |= CE;
        Ipv4Packet::new_unchecked(ip).fill_checksum();
    } else {
        ip[1] |= CE << 4;
    }
    frame
}

thread_local! {
    /// When this thread last said something of a port, and whether that may have been over when it was to count.
    static RENEWED: Cell<Option<Instant>> = const { Cell::new(None) };
    static IS_OVER: Cell<bool> = const { Cell::new(false) };
}

/// Notes the end of the time in which what was said last was to count.
fn note() {
    let renewed = RENEWED.take();
    if renewed.is_some_and(|renewed| renewed.elapsed() >= LONG) {
        IS_OVER.set(true);
    }
}

fn set_signal(scratch: &Scratch, port: u32, signal: PortSignal) {
    note();
    RENEWED.set(Some(Instant::now()));
    scratch.switch.set_signal(port, signal, LONG).expect("set");
}

/// For each form of the switch; again, where something fails and what was said of a port may have been over by then: it counts for
/// a second, and a machine may stand still for longer.
fn in_time(label: &str, check: impl Fn(&mut Scratch)) {
    let was_late = || {
        note();
        IS_OVER.take()
    };
    for_each_form_unless(was_late, label, |scratch| {
        RENEWED.set(None);
        IS_OVER.set(false);
        check(scratch);
    });
}

fn signals(scratch: &Scratch, port: u32, probability: u32) {
    let signal = PortSignal {
        probability,
        is_refused: false,
    };
    set_signal(scratch, port, signal);
}

fn refuses(scratch: &Scratch, port: u32) {
    let signal = PortSignal {
        probability: 0,
        is_refused: true,
    };
    set_signal(scratch, port, signal);
}

/// Two instances, a link, and the ports.
struct Pair {
    instances: [ScratchInstance; 2],
    ports: [Port; 2],
}

impl Pair {
    fn new(scratch: &mut Scratch, slots: u32) -> Self {
        let mut a = scratch.instance(1, slots, slots).expect("instance");
        let mut b = scratch.instance(1, slots, slots).expect("instance");
        scratch.link((&mut a, 0), (&mut b, 0)).expect("link");
        Pair {
            ports: [port_of(&a), port_of(&b)],
            instances: [a, b],
        }
    }

    fn to(&self) -> u32 {
        self.instances[1].id(0)
    }

    fn counters(&self, scratch: &Scratch) -> [PortCounters; 2] {
        [0, 1].map(|side: usize| scratch.switch.counters(self.instances[side].id(0)))
    }

    /// Returns the frames that arrive of these frames, sent in one call.
    fn arrive(&mut self, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
        pass(&mut self.ports, frames)
    }
}

fn port_of(instance: &ScratchInstance) -> Port {
    instance.attach().expect("attach").ports.remove(0)
}

fn pass([from, to]: &mut [Port; 2], frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
    frames.iter().for_each(|frame| send(from, frame));
    let sent = from.flush(WhenFull::Drop).expect("the port is up");
    assert_eq!(sent as usize, frames.len());
    received(to)
}

/// Packets of all kinds that have a mark, with each ECN field.
fn with_ecn_field(dst: [u8; 6], ecn: u8) -> Vec<Vec<u8>> {
    let mut plain = Vec::new();
    for payload in [0, 1, 6, 26, 200, 400, 1400] {
        plain.push(ipv6(dst, ecn, payload));
        plain.extend([5, 6, 15].map(|words| ipv4(dst, ecn, words, 0x4000, payload)));
        // The first fragment, one in the middle, the last.
        plain.extend([0x2000, 0x2010, 0x0020].map(|field| ipv4(dst, ecn, 5, field, payload)));
    }
    let one = |frame: &Vec<u8>| tagged(frame, CUSTOMER, 0x2005);
    let single: Vec<_> = plain.iter().map(one).collect();
    let double: Vec<_> = single
        .iter()
        .map(|frame| tagged(frame, SERVICE, 0x0123))
        .collect();
    [plain, single, double].concat()
}

/// Frames that have no ECN field, or not where they say.
fn without_ecn_field(dst: [u8; 6]) -> Vec<Vec<u8>> {
    let whole = |ecn| ipv4(dst, ecn, 5, 0, 100);
    let changed = |at: usize, value: u8| {
        let mut frame = whole(2);
        frame[at] = value;
        frame
    };
    let tags = |mut frame: Vec<u8>, count: usize| {
        (0..count).for_each(|_| frame = tagged(&frame, CUSTOMER, 7));
        frame
    };
    let mut frames = vec![
        changed(13, 0x06),       // ARP
        changed(14, 0x44),       // a header of 16 bytes
        changed(14, 0x40),       // of none
        changed(14, 0x65),       // another version
        changed(12, 0x86),       // no known type
        tags(whole(2), 3),       // deeper than is looked
        whole(2)[..33].to_vec(), // cut within the header
        whole(2)[..14].to_vec(), // before it
        ipv6(dst, 2, 10)[..53].to_vec(),
        tags(whole(2), 1)[..37].to_vec(),
        tags(whole(2), 2)[..41].to_vec(),
        tags(whole(2), 2)[..20].to_vec(),
        tags(ipv6(dst, 1, 0), 2)[..61].to_vec(),
    ];
    // Options that the frame does not have.
    let mut long = ipv4(dst, 1, 15, 0, 0);
    long.truncate(14 + 59);
    frames.push(long);
    let mut other = ipv6(dst, 1, 10);
    other[14] = 0x50;
    frames.push(other);
    frames
}

// promise: 1.27
#[test]
fn what_can_be_marked_is_marked_and_its_checksum_holds() {
    in_time("marks", |scratch| {
        let mut pair = Pair::new(scratch, 256);
        let (mut sent, mut count) = (0, 0);
        for ecn in 0..=3 {
            let frames = with_ecn_field([2, 1, 1, 1, 1, 1], ecn);
            sent += frames.len() as u64;
            signals(scratch, pair.to(), ALWAYS);
            let arrived = pair.arrive(&frames);
            if ecn == 0 {
                assert_eq!(arrived.len(), 0, "not capable of ECN");
                continue;
            }
            count += frames.len() as u64;
            let want: Vec<_> = frames.iter().map(|frame| marked(frame)).collect();
            assert_eq!(arrived, want, "ECN field {ecn}");
            assert_eq!(
                ecn == CE,
                arrived == frames,
                "only what was marked is as before"
            );
        }
        let [from, to] = pair.counters(scratch);
        assert_eq!((from.tx_frames, from.dropped_total()), (sent, 0));
        assert_eq!((to.rx_frames, to.marked), (count, count));
        assert_eq!(to.dropped(DropReason::Congestion), sent - count);
        assert_eq!(to.dropped_total(), sent - count);
    });
}

// promise: 1.27
#[test]
fn a_wrong_checksum_stays_as_wrong_as_it_was() {
    in_time("wrong sum", |scratch| {
        let mut pair = Pair::new(scratch, 64);
        for wrong in [[0, 0], [0xff, 0xff], [0x12, 0x34]] {
            let mut frame = ipv4([2; 6], 1, 5, 0, 10);
            frame[24..26].copy_from_slice(&wrong);
            signals(scratch, pair.to(), ALWAYS);
            let arrived = pair.arrive(&[frame.clone()]).remove(0);
            let error = |frame: &[u8]| nfluid_wire::checksum::sum(&frame[14..34]);
            assert_eq!(error(&arrived), error(&frame), "{wrong:x?}");
            assert_eq!(arrived[15] & CE, CE);
        }
    });
}

// promise: 1.27
#[test]
fn a_frame_without_an_ecn_field_is_dropped_and_nothing_else_happens() {
    in_time("no field", |scratch| {
        let mut pair = Pair::new(scratch, 64);
        let frames = without_ecn_field([2, 1, 1, 1, 1, 1]);
        assert_eq!(pair.arrive(&frames), frames, "without a signal");
        signals(scratch, pair.to(), ALWAYS);
        assert_eq!(pair.arrive(&frames), [[0_u8; 0]; 0]);
        let [_, to] = pair.counters(scratch);
        assert_eq!(to.dropped(DropReason::Congestion), frames.len() as u64);
        assert_eq!((to.marked, to.rx_frames), (0, frames.len() as u64));
        // The ring goes on behind the holes.
        signals(scratch, pair.to(), 0);
        assert_eq!(pair.arrive(&frames), frames);
    });
}

/// Calls, and frames per call.
const ROUNDS: usize = 100;
const BATCH: usize = 200;

/// The frames of one call, each with a number.
fn numbered(round: usize, ecn: u8) -> Vec<Vec<u8>> {
    let one = |number: usize| {
        let mut frame = ipv4([2; 6], ecn, 5, 0, 60);
        frame[60..62].copy_from_slice(&((round * BATCH + number) as u16).to_be_bytes());
        frame
    };
    (0..BATCH).map(one).collect()
}

/// How many of many frames got a signal; all others arrive as they were, in order.
fn count_signals(scratch: &mut Scratch, probability: u32, ecn: u8) -> usize {
    let mut pair = Pair::new(scratch, 256);
    let (mut marks, mut arrived) = (0, 0);
    for round in 0..ROUNDS {
        signals(scratch, pair.to(), probability);
        let frames = numbered(round, ecn);
        let mut rest = frames.iter();
        for frame in pair.arrive(&frames) {
            let sent = rest.find(|sent| sent[60..62] == frame[60..62]);
            let sent = sent.expect("each once, and in order");
            marks += usize::from(frame != *sent);
            assert!(frame == *sent || frame == marked(sent));
            arrived += 1;
        }
    }
    let [from, to] = pair.counters(scratch);
    assert_eq!(
        (to.marked as usize, to.rx_frames as usize),
        (marks, arrived)
    );
    assert_eq!(from.tx_frames, to.rx_frames + to.dropped_total());
    assert_eq!(to.dropped_total(), to.dropped(DropReason::Congestion));
    assert_eq!(to.rx_bytes, to.rx_frames * 94);
    ROUNDS * BATCH - arrived + marks
}

// promise: 1.28
#[test]
fn signals_come_as_often_as_they_should_and_the_rest_arrives_in_order() {
    in_time("how often", |scratch| {
        for ecn in [2, 0] {
            let seen = count_signals(scratch, ALWAYS / 4, ecn);
            // 20,000 coins at 0.25: a standard deviation is 61, the bounds are ten of them away.
            assert!((4400..=5600).contains(&seen), "{seen} of 20,000");
            assert_eq!(count_signals(scratch, 0, ecn), 0);
            assert_eq!(count_signals(scratch, ALWAYS, ecn), ROUNDS * BATCH);
            // Two in four thousand million: more than one in 20,000 is no chance.
            assert!(count_signals(scratch, 1, ecn) <= 1);
        }
    });
}

// promise: 1.28
#[test]
fn a_word_that_is_not_renewed_is_not_followed_and_is_taken_away() {
    in_time("stale", |scratch| {
        let mut pair = Pair::new(scratch, 64);
        let signal = PortSignal {
            probability: ALWAYS,
            is_refused: true,
        };
        let switch = &scratch.switch;
        let short = Duration::from_millis(1);
        set_signal(scratch, pair.to(), signal);
        assert_eq!(switch.signal(pair.to()), signal);
        switch.set_signal(pair.to(), signal, short).expect("set");
        // A tick of the slowest clock, and what the unit of time adds.
        thread::sleep(Duration::from_millis(40));
        assert_eq!(switch.signal(pair.to()), PortSignal::default());
        let frames = [ipv4([2; 6], 0, 5, 0, 60), ipv4([2; 6], 2, 5, 0, 60)];
        assert_eq!(pair.arrive(&frames), frames);
        let [_, to] = pair.counters(scratch);
        assert_eq!((to.dropped_total(), to.marked), (0, 0));
        // A new one counts again.
        refuses(scratch, pair.to());
        assert_eq!(pair.arrive(&frames), [[0_u8; 0]; 0]);
        let too_long = LONG + Duration::from_millis(1);
        let error = scratch.switch.set_signal(pair.to(), signal, too_long);
        assert!(error.expect_err("too long").to_string().contains("1000 ms"));
    });
}

// promise: 1.29
#[test]
fn a_receiver_that_refuses_gets_nothing_and_it_is_counted() {
    in_time("refused", |scratch| {
        let mut pair = Pair::new(scratch, 64);
        let frames = vec![ipv4([2; 6], 2, 5, 0, 60); 40];
        refuses(scratch, pair.to());
        assert_eq!(pair.arrive(&frames), [[0_u8; 0]; 0]);
        frames
            .iter()
            .for_each(|frame| send(&mut pair.ports[0], frame));
        let kept = pair.ports[0].flush(WhenFull::Keep).expect("up");
        assert_eq!(kept, 40, "it is no full ring: nothing is kept");
        let [from, to] = pair.counters(scratch);
        assert_eq!((from.tx_frames, from.dropped_total()), (80, 0));
        assert_eq!(to.dropped(DropReason::Refused), 80);
        assert_eq!((to.dropped_total(), to.rx_frames, to.marked), (80, 0, 0));
        signals(scratch, pair.to(), 0);
        assert_eq!(pair.arrive(&frames), frames);
    });
}

// promise: 1.29
#[test]
fn a_copy_to_one_receiver_is_marked_and_no_other_and_not_the_senders_own() {
    in_time("copies", |scratch| {
        let mut members = Members::of_switch(scratch, 0, 5);
        let from = members.mac(0);
        for frame in [with_ecn_field(BROADCAST, 1), with_ecn_field(BROADCAST, 2)].concat() {
            let mut frame = frame;
            frame[6..12].copy_from_slice(&from);
            // Each time: a second is soon over on a slow machine.
            signals(scratch, members.id(1), ALWAYS);
            refuses(scratch, members.id(2));
            send(&mut members.ports[0], &frame);
            assert_eq!(members.ports[0].flush(WhenFull::Drop).expect("up"), 1);
            let [one, two, three, four] =
                [1, 2, 3, 4].map(|i: usize| received(&mut members.ports[i]));
            assert_eq!(one, [marked(&frame)]);
            assert_eq!(two, [[0_u8; 0]; 0], "refused");
            assert_eq!([three, four], [[frame.clone()], [frame]], "not its copies");
        }
        // The same slot once more, with its present content, to a receiver that gets no signals.
        let mut frame = ipv4(members.mac(1), 2, 5, 0, 60);
        frame[6..12].copy_from_slice(&from);
        signals(scratch, members.id(1), ALWAYS);
        send(&mut members.ports[0], &frame);
        members.ports[0].flush(WhenFull::Drop).expect("up");
        let ring = members.ports[0].raw_ring();
        let last = ring.sender.tx_head.load(Ordering::Relaxed).wrapping_sub(1) % 64;
        let slot = (ring.tx[last as usize].load(Ordering::Relaxed) >> 32) as u32;
        assert_eq!(
            received(&mut members.ports[1]),
            [marked(&frame)],
            "by its address"
        );
        signals(scratch, members.id(1), 0);
        members.ports[0].queue_raw(frame.len() as u16, slot);
        members.ports[0].flush(WhenFull::Drop).expect("up");
        assert_eq!(received(&mut members.ports[1]), [frame]);
        let refused = scratch
            .switch
            .counters(members.id(2))
            .dropped(DropReason::Refused);
        assert!(refused > 0);
    });
}

// promise: 1.29
#[test]
fn a_capture_shows_what_arrives_and_not_what_was_dropped() {
    in_time("captured", |scratch| {
        let mut pair = Pair::new(scratch, 64);
        let reader = scratch.switch.capture_reader().expect("a reader");
        scratch.switch.set_capture(pair.to(), true);
        signals(scratch, pair.to(), ALWAYS);
        let frames = [2, 0, 1].map(|ecn| ipv4([2; 6], ecn, 5, 0, 60));
        let arrived = pair.arrive(&frames);
        assert_eq!(arrived.len(), 2);
        let mut captured = Vec::new();
        reader
            .run(Duration::from_millis(50), |one| {
                captured.extend(one.map(|one| one.frame.to_vec()));
                one.is_some()
            })
            .expect("read");
        assert_eq!(captured, arrived);
    });
}
