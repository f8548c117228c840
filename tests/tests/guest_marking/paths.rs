//! Signals on every path into a ring: within trust groups, by I/O threads, into queues, from uplinks.

use super::*;

/// Every frame of `frames` from `from` to `to`, whose word says always: marked, or dropped.
fn assert_signals(scratch: &Scratch, ports: &mut [Port; 2], to: u32, frames: &[Vec<u8>]) {
    signals(scratch, to, ALWAYS);
    let before = scratch.switch.counters(to);
    let want: Vec<_> = frames.iter().map(|frame| marked(frame)).collect();
    assert_eq!(pass(ports, frames), want);
    let blind: Vec<_> = (0..7).map(|_| ipv4([2; 6], 0, 5, 0, 300)).collect();
    assert_eq!(pass(ports, &blind), [[0_u8; 0]; 0]);
    refuses(scratch, to);
    assert_eq!(pass(ports, frames), [[0_u8; 0]; 0]);
    signals(scratch, to, 0);
    assert_eq!(pass(ports, frames), frames);
    let after = scratch.switch.counters(to);
    let count = frames.len() as u64;
    assert_eq!(after.marked - before.marked, count);
    assert_eq!(after.rx_frames - before.rx_frames, 2 * count);
    assert_eq!(
        after.dropped(DropReason::Congestion),
        before.dropped(DropReason::Congestion) + 7
    );
    assert_eq!(
        after.dropped(DropReason::Refused),
        before.dropped(DropReason::Refused) + count
    );
}

fn assert_keeps_its_slots(group: &Group, instance: &ScratchInstance, count: usize) {
    let mut own = group.slots_of(instance.memory.pool_id);
    own.sort_unstable();
    own.dedup();
    assert_eq!(own.len(), count);
}

// promise: 1.30
#[test]
fn members_of_a_group_and_their_senders_are_signalled_alike() {
    in_time("group", |scratch| {
        let group: Arc<Group> = scratch.group(256).expect("a group");
        let mut outside = scratch.instance(1, 64, 64).expect("instance");
        let mut first = scratch.member(&group, 1, 64, 64).expect("member");
        let mut second = scratch.member(&group, 1, 64, 64).expect("member");
        let frames: Vec<_> = with_ecn_field([2; 6], 2).into_iter().take(50).collect();
        scratch
            .link((&mut first, 0), (&mut second, 0))
            .expect("link");
        let mut ports = [port_of(&first), port_of(&second)];
        for _ in 0..5 {
            assert_signals(scratch, &mut ports, second.id(0), &frames);
        }
        for member in [&first, &second] {
            assert_keeps_its_slots(&group, member, 128);
        }
        scratch
            .link((&mut outside, 0), (&mut second, 0))
            .expect("link");
        let [_, second_port] = ports;
        let mut ports = [port_of(&outside), second_port];
        for _ in 0..5 {
            assert_signals(scratch, &mut ports, second.id(0), &frames);
        }
        assert_keeps_its_slots(&group, &second, 128);
    });
}

// promise: 1.30
#[test]
fn an_io_thread_signals_as_the_sender_itself_does() {
    in_time("io", |scratch| {
        let pair = Pair::new(scratch, 256);
        let serve = scratch.switch.serve().expect("it was loaded here");
        let idle = Idle::Sleep { looks: 0 };
        let thread = IoThread::start("io", serve, idle, Placement::Anywhere).expect("a thread");
        for duty in duties(&pair.instances[0]).expect("descriptors") {
            thread.add(duty).expect("the thread lives");
        }
        let Pair {
            instances,
            ports: [mut from, mut to],
        } = pair;
        let frames = with_ecn_field([2; 6], 1);
        let id = instances[1].id(0);
        signals(scratch, id, ALWAYS);
        let mut arrived = Vec::new();
        let count = frames.len();
        for frame in &frames {
            send(&mut from, frame);
        }
        send(&mut from, &ipv4([2; 6], 0, 5, 0, 60));
        from.flush(WhenFull::Drop).expect("up");
        // A frame is counted before its call publishes it, and those before it.
        eventually("all have gone their way", || {
            // The frames need not have come to them within the second that the word counts.
            signals(scratch, id, ALWAYS);
            arrived.extend(received(&mut to));
            let dropped = scratch.switch.counters(id).dropped(DropReason::Congestion);
            dropped > 0 && arrived.len() >= count
        });
        let want: Vec<_> = frames.iter().map(|frame| marked(frame)).collect();
        assert_eq!(arrived, want);
        assert_eq!(scratch.switch.counters(id).marked as usize, count);
    });
}

/// A receiver that writes nonsense into its ring while frames are marked in it harms itself at most.
// promise: 1.30
#[test]
fn a_receiver_that_writes_into_its_ring_meanwhile_changes_nothing_of_others() {
    in_time("scribbled", |scratch| {
        let mut members = Members::of_switch(scratch, 0, 3);
        signals(scratch, members.id(1), ALWAYS / 2);
        let (from, bystander) = (members.mac(0), members.mac(2));
        let to = members.ports.remove(1);
        let stop = AtomicBool::new(false);
        let mut sent = 0;
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut word = 1_u64;
                while !stop.load(Ordering::Relaxed) {
                    for desc in &to.raw_ring().rx[..64] {
                        word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                        desc.store(word >> 7, Ordering::Relaxed);
                    }
                    to.raw_ring()
                        .receiver
                        .rx_released
                        .store(word >> 33, Ordering::Relaxed);
                }
            });
            for round in 0..400 {
                signals(scratch, members.id(1), ALWAYS / 2);
                for number in 0..50 {
                    let mut frame = ipv4([2, 0, 0, 0, 0, 2], 2 * (number & 1), 5, 0, 60 + round);
                    frame[..6].copy_from_slice(&members.instances[1].mac(0));
                    frame[6..12].copy_from_slice(&from);
                    send(&mut members.ports[0], &frame);
                    sent += 1;
                }
                let good = frame(bystander, from, 100, round as u8);
                send(&mut members.ports[0], &good);
                sent += 1;
                members.ports[0].flush(WhenFull::Drop).expect("up");
                assert_eq!(received(&mut members.ports[1]), [good]);
            }
            stop.store(true, Ordering::Relaxed);
        });
        let [from, to, other] =
            [0, 1, 2].map(|i: usize| scratch.switch.counters(members.instances[i].id(0)));
        assert_eq!((from.tx_frames, from.dropped_total()), (sent, 0));
        assert_eq!(
            (other.rx_frames, other.dropped_total(), other.marked),
            (400, 0, 0)
        );
        // The counted frames may be fewer than the received frames, never more.
        assert!(to.rx_frames + to.dropped(DropReason::RingFull) <= sent - 400);
        assert!(to.rx_bytes <= from.tx_bytes);
    });
}

// promise: 1.29
#[test]
fn each_queue_of_a_port_has_its_own_word() {
    in_time("queues", |scratch| {
        let first = scratch.port_ids(2);
        let mut specs = Vec::new();
        for queue in 0..2 {
            let name = format!("q{queue}");
            let mut spec = nfluid_switch::PortSpec::new(
                first + u32::from(queue),
                &name,
                [2, 9, 9, 9, 9, 9],
                64,
            );
            spec.queue = (queue, 2);
            specs.push(spec);
        }
        let receiver = scratch.instance_with(&specs).expect("instance");
        let sender = scratch.instance(1, 64, 64).expect("instance");
        let link = Destination::Link(first);
        scratch.switch.connect(sender.id(0), link).expect("connect");
        let (mut from, mut to) = (port_of(&sender), receiver.attach().expect("attach").ports);
        let mut seen = [0, 0];
        for host in 0..50 {
            let mut frame = ipv4([2; 6], 2, 5, 0, 60);
            frame[33] = host;
            Ipv4Packet::new_unchecked(&mut frame[14..]).fill_checksum();
            signals(scratch, first + 1, ALWAYS);
            send(&mut from, &frame);
            assert_eq!(from.flush(WhenFull::Drop).expect("up"), 1);
            for (queue, port) in to.iter_mut().enumerate() {
                for arrived in received(port) {
                    let want = if queue == 1 {
                        marked(&frame)
                    } else {
                        frame.clone()
                    };
                    assert_eq!(arrived, want);
                    seen[queue] += 1;
                }
            }
        }
        assert_eq!(seen[0] + seen[1], 50);
        assert!(seen[0] > 0 && seen[1] > 0, "{seen:?}");
    });
}

// promise: 1.30
#[test]
fn frames_from_an_uplink_are_signalled_as_those_from_an_instance() {
    let Some(mut fixture) = Fixture::new("marking", &["up", "out"]) else {
        return;
    };
    fixture.join(("up", "up0"), ("out", "out0"));
    let spec = fixture.spec("up", "up0");
    let _uplink = fixture.open(&spec).expect("an uplink");
    let instance = fixture.scratch.instance(1, 256, 64).expect("an instance");
    let (id, mut port) = (instance.id(0), port_of(&instance));
    let link = Destination::Link(id);
    fixture
        .scratch
        .switch
        .connect(spec.port, link)
        .expect("link");
    let outside = fixture.raw("out", "out0");
    let counters = || fixture.scratch.switch.counters(id);
    let dst = [2, 1, 1, 1, 1, 1];
    // Sends one, and waits until it is counted as what becomes of it.
    let mut arrive = |signal: PortSignal, frame: &[u8], count: &dyn Fn(&PortCounters) -> u64| {
        let before = count(&counters());
        let set = || fixture.scratch.switch.set_signal(id, signal, LONG);
        set().expect("set");
        outside.send(frame);
        eventually("the frame is counted", || {
            set().expect("set");
            count(&counters()) > before
        });
        let arrived = received(&mut port);
        if !arrived.is_empty() {
            return arrived;
        }
        // The frame is counted before it is delivered.
        fixture
            .scratch
            .switch
            .await_programs()
            .expect("a grace period");
        received(&mut port)
    };
    let signal = |probability, is_refused| PortSignal {
        probability,
        is_refused,
    };
    for ecn in 1..=3 {
        // The kernel that sends wants a whole header behind tags, and no more than its MTU.
        let frames = with_ecn_field(dst, ecn).into_iter();
        for frame in frames.filter(|frame| (60..1500).contains(&frame.len())) {
            let arrived = arrive(signal(ALWAYS, false), &frame, &|now| now.marked);
            assert_eq!(arrived, [marked(&frame)]);
            let arrived = arrive(signal(0, false), &frame, &|now| now.rx_frames);
            assert_eq!(arrived, [frame]);
        }
    }
    let blind = ipv4(dst, 0, 5, 0, 100);
    let congestion = |now: &PortCounters| now.dropped(DropReason::Congestion);
    let refused = |now: &PortCounters| now.dropped(DropReason::Refused);
    assert_eq!(
        arrive(signal(ALWAYS, false), &blind, &congestion),
        [[0_u8; 0]; 0]
    );
    assert_eq!(arrive(signal(0, true), &blind, &refused), [[0_u8; 0]; 0]);
    assert_eq!(
        arrive(signal(0, false), &blind, &|now| now.rx_frames),
        [blind]
    );
    fixture
        .scratch
        .switch
        .await_programs()
        .expect("a grace period");
    let entered = fixture.scratch.switch.counters(spec.port);
    let now = counters();
    assert_eq!(
        entered.tx_frames,
        now.rx_frames + now.dropped_total() + entered.dropped_total()
    );
}
