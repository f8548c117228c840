//! Trust groups: instances that share a pool exchange slots instead of copying. Every frame arrives as it was sent,
//! each member keeps as many slots as it has, whatever it writes into its rings and however it ends, and no instance
//! outside the group is affected.

mod switch_fixture;

use nfluid_io::{Idle, IoThread, Placement};
use nfluid_ring::attach::Attached;
use nfluid_ring::doorbell::AGEING;
use nfluid_ring::engine::Engine;
use nfluid_ring::layout::{SLOT_SIZE, rx_desc_slot, rx_desc_with_slot};
use nfluid_ring::port::{Port, WhenFull};
use nfluid_switch::{Destination, DropReason, Group, PortCounters};
use nfluid_testbed::io_process::duties;
use nfluid_testbed::scratch::{Scratch, ScratchInstance};
use std::collections::BTreeSet;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use switch_fixture::{BROADCAST, for_each_form, frame, received, send};

const RING: u32 = 64;
/// Slots of a member with one port, and with two.
const ONE: u32 = 2 * RING;
const TWO: u32 = 4 * RING;
/// The variable by which a copy of this program is a member that forwards.
const ROLE: &str = "NFLUID_TEST_MEMBER";

/// Forwards what waits, as much as there is room for; in batches that are small where a processor is slow.
fn forward(engine: &mut Engine, ports: &mut [Port]) -> usize {
    let mut forwarded = 0;
    loop {
        match engine.run_once(ports, 0, &mut |batch| {
            batch.frames().iter_mut().for_each(|frame| frame.send(1));
        }) {
            0 => return forwarded,
            frames => forwarded += frames,
        }
    }
}

/// Asserts that the member has as many slots as it was given, each at one place: the unheld positions have slots that
/// are all different and its own.
fn assert_keeps_its_slots(group: &Group, instance: &ScratchInstance, count: u32) {
    let own: BTreeSet<u32> = group
        .slots_of(instance.memory.pool_id)
        .into_iter()
        .collect();
    assert_eq!(own.len(), count as usize);
    let attached = instance.attach().expect("attach");
    let mut seen = BTreeSet::new();
    for port in &attached.ports {
        for desc in &port.raw_ring().rx[..RING as usize] {
            let slot = rx_desc_slot(desc.load(Relaxed));
            assert!(own.contains(&slot), "slot {slot} is not its own");
            assert!(seen.insert(slot), "slot {slot} at two positions");
        }
    }
}

/// Asserts that each entered frame is delivered or dropped, and counted once.
fn assert_books_balance(scratch: &Scratch, instances: &[&ScratchInstance]) {
    let ids = instances
        .iter()
        .flat_map(|instance| (0..instance.memory.ports.len()).map(|port| instance.id(port)));
    let all = scratch.switch.counters_of(ids);
    // Reclaimed frames were delivered before.
    let dropped = all.dropped_total() - all.dropped(DropReason::Reclaimed);
    assert_eq!(all.tx_frames, all.rx_frames + dropped);
}

/// An outsider, `count` members that forward, and another outsider, linked in a row.
struct Row {
    group: Arc<Group>,
    ends: [ScratchInstance; 2],
    members: Vec<ScratchInstance>,
}

impl Row {
    fn new(scratch: &mut Scratch, count: usize) -> Self {
        let group = scratch.group(count as u32 * TWO).expect("a group");
        let mut first = scratch.instance(1, RING, RING).expect("instance");
        let mut last = scratch.instance(1, RING, RING).expect("instance");
        let join = |_| scratch.member(&group, 2, RING, RING).expect("a member");
        let mut members: Vec<_> = (0..count).map(join).collect();
        scratch
            .link((&mut first, 0), (&mut members[0], 0))
            .expect("link");
        for index in 1..count {
            let (before, after) = members.split_at_mut(index);
            scratch
                .link((&mut before[index - 1], 1), (&mut after[0], 0))
                .expect("link");
        }
        scratch
            .link((&mut members[count - 1], 1), (&mut last, 0))
            .expect("link");
        Row {
            group,
            ends: [first, last],
            members,
        }
    }

    fn everybody(&self) -> Vec<&ScratchInstance> {
        self.ends.iter().chain(&self.members).collect()
    }
}

// promise: 1.24
#[test]
fn frames_of_every_length_pass_three_members_unchanged() {
    for_each_form("lengths", |scratch| {
        let row = Row::new(scratch, 3);
        let [mut first, mut last] =
            [0, 1].map(|end: usize| row.ends[end].attach().expect("attach"));
        let attach = |member: &ScratchInstance| (Engine::new(), member.attach().expect("attach"));
        let mut members: Vec<(Engine, Attached)> = row.members.iter().map(attach).collect();
        for len in 14..=2032 {
            let sent = frame([2, 1, 1, 1, 1, 1], row.ends[0].mac(0), len, len as u8);
            send(&mut first.ports[0], &sent);
            assert_eq!(first.ports[0].flush(WhenFull::Drop).expect("flush"), 1);
            for (engine, attached) in &mut members {
                assert_eq!(forward(engine, &mut attached.ports), 1, "length {len}");
            }
            assert_eq!(received(&mut last.ports[0]), [sent]);
        }
        for member in &row.members {
            assert_keeps_its_slots(&row.group, member, TWO);
        }
        assert_books_balance(scratch, &row.everybody());
    });
}

// promise: 1.24
#[test]
fn an_io_thread_exchanges_as_the_sender_itself_does() {
    for_each_form("group io", |scratch| {
        let row = Row::new(scratch, 3);
        let serve = scratch.switch.serve().expect("it was loaded here");
        let idle = Idle::Sleep { looks: 0 };
        let thread = IoThread::start("io", serve, idle, Placement::Anywhere).expect("a thread");
        for duty in row
            .members
            .iter()
            .flat_map(|member| duties(member).expect("descriptors"))
        {
            thread.add(duty).expect("the thread lives");
        }
        let [mut first, mut last] =
            [0, 1].map(|end: usize| row.ends[end].attach().expect("attach"));
        let attach = |member: &ScratchInstance| (Engine::new(), member.attach().expect("attach"));
        let mut members: Vec<(Engine, Attached)> = row.members.iter().map(attach).collect();
        let mut wanted = Vec::new();
        let mut got = Vec::new();
        while wanted.len() < 5_000 || got.len() < wanted.len() {
            if wanted.len() < 5_000 && wanted.len() - got.len() < 32 {
                let number = wanted.len();
                let sent = frame([2; 6], row.ends[0].mac(0), 60 + number % 1400, number as u8);
                send(&mut first.ports[0], &sent);
                first.ports[0].flush(WhenFull::Drop).expect("flush");
                wanted.push(sent);
            }
            for (engine, attached) in &mut members {
                forward(engine, &mut attached.ports);
                attached.ports.iter_mut().for_each(Port::ring_all);
            }
            got.append(&mut received(&mut last.ports[0]));
            std::thread::yield_now();
        }
        assert!(got == wanted, "a frame was changed, lost or out of order");
        for (_, attached) in &mut members {
            attached
                .doorbell
                .wait(&mut attached.ports, None, AGEING)
                .expect("wait");
        }
        for member in &row.members {
            assert_eq!(
                row.group.slots_of(member.memory.pool_id).len(),
                TWO as usize
            );
        }
    });
}

// promise: 1.25
#[test]
fn a_million_frames_and_a_full_receiver_leave_everybody_its_slots() {
    for_each_form("million", |scratch| {
        let row = Row::new(scratch, 2);
        let [mut first, mut last] =
            [0, 1].map(|end: usize| row.ends[end].attach().expect("attach"));
        let mut members = [0, 1]
            .map(|index: usize| (Engine::new(), row.members[index].attach().expect("attach")));
        let mut sent = 0u64;
        let mut got = 0u64;
        for round in 0u64.. {
            for _ in 0..RING {
                let len = 14 + (sent * 7 % 500) as usize;
                assert!(first.ports[0].send(|slot| {
                    slot[..8].copy_from_slice(&sent.to_ne_bytes());
                    len
                }));
                sent += 1;
            }
            first.ports[0].flush(WhenFull::Drop).expect("flush");
            // The second is slower than the first, and the last slower still.
            forward(&mut members[0].0, &mut members[0].1.ports);
            if round % 3 != 0 {
                forward(&mut members[1].0, &mut members[1].1.ports);
            }
            if round % 4 == 0 {
                got += last.ports[0].receive(usize::MAX, |bytes| {
                    let number = u64::from_ne_bytes(bytes[..8].try_into().expect("eight"));
                    assert_eq!(bytes.len(), 14 + (number * 7 % 500) as usize);
                }) as u64;
            }
            if sent >= 1_000_000 {
                break;
            }
        }
        let dropped = |instance: &ScratchInstance| {
            scratch
                .switch
                .counters(instance.id(0))
                .dropped(DropReason::RingFull)
        };
        assert!(got > 100_000, "{got} arrived");
        assert!(dropped(&row.members[1]) > 1000, "the second was never full");
        assert!(dropped(&row.ends[1]) > 1000, "the last was never full");
        drop(members);
        for member in &row.members {
            assert_eq!(
                row.group.slots_of(member.memory.pool_id).len(),
                TWO as usize
            );
            let clean = scratch.switch.counters(member.id(1));
            assert_eq!(clean.dropped(DropReason::BadIndex), 0);
        }
        assert_books_balance(scratch, &row.everybody());
    });
}

/// Two instances on a switch with a third that floods reach; the counters of all three after odd frames.
fn odd_frames(scratch: &mut Scratch, switch: u32, group: Option<&Arc<Group>>) -> Vec<PortCounters> {
    let mut make = || match group {
        Some(group) => scratch.member(group, 1, RING, RING),
        None => scratch.instance(1, RING, RING),
    };
    let mut all = vec![make().expect("a"), make().expect("b")];
    all.push(scratch.instance(1, RING, RING).expect("outsider"));
    for instance in &all {
        let (id, mac) = (instance.id(0), instance.mac(0));
        let connected = scratch.switch.connect(id, Destination::Switch(switch));
        connected.expect("connect");
        scratch.switch.pin_address(switch, 0, mac, id).expect("pin");
    }
    let mut from = all[0].attach().expect("attach");
    let (own, to, third) = (all[0].mac(0), all[1].mac(0), all[2].mac(0));
    let port = &mut from.ports[0];
    for len in [14, 60, 61, 256, 257, 1514, 2032] {
        send(port, &frame(to, own, len, 1));
        send(port, &frame(third, own, len, 1));
    }
    send(port, &frame(BROADCAST, own, 60, 2));
    send(port, &frame([2, 9, 9, 9, 9, 9], own, 60, 3));
    send(port, &frame(to, third, 60, 4));
    send(port, &frame(own, own, 60, 5));
    send(port, &frame([1, 0x80, 0xc2, 0, 0, 0], own, 60, 6));
    port.queue_raw(13, u32::MAX);
    port.queue_raw(2033, u32::MAX);
    port.queue_raw(60, u32::MAX);
    port.flush(WhenFull::Drop).expect("flush");
    for _ in 0..100 {
        if port.room() == 0 {
            port.flush(WhenFull::Drop).expect("flush");
        }
        send(port, &frame(to, own, 60, 7));
    }
    port.flush(WhenFull::Drop).expect("flush");
    let ids = all.iter().map(|instance| instance.id(0));
    let mut counters: Vec<_> = ids.map(|id| scratch.switch.counters(id)).collect();
    counters
        .iter_mut()
        .for_each(|counters| counters.tx_calls = 0);
    counters
}

// promise: 1.24
#[test]
fn an_exchange_counts_and_drops_as_a_copy_does() {
    for_each_form("group counters", |scratch| {
        let group = scratch.group(2 * ONE).expect("a group");
        let copied = odd_frames(scratch, 1, None);
        let exchanged = odd_frames(scratch, 2, Some(&group));
        assert_eq!(exchanged, copied);
        assert!(copied[0].dropped(DropReason::BadIndex) > 0);
    });
}

// promise: 1.24
#[test]
fn floods_and_outsiders_reach_members_and_others_alike() {
    for_each_form("mixed", |scratch| {
        let group = scratch.group(3 * ONE).expect("a group");
        let mut all: Vec<ScratchInstance> = Vec::new();
        for index in 0..5 {
            all.push(if index < 3 {
                scratch.member(&group, 1, RING, RING).expect("a member")
            } else {
                scratch.instance(1, RING, RING).expect("an outsider")
            });
        }
        for instance in &all {
            let (id, mac) = (instance.id(0), instance.mac(0));
            let connected = scratch.switch.connect(id, Destination::Switch(0));
            connected.expect("connect");
            scratch.switch.pin_address(0, 0, mac, id).expect("pin");
        }
        let mut attached: Vec<_> = all
            .iter()
            .map(|one| one.attach().expect("attach"))
            .collect();
        for round in 0..200usize {
            for from in 0..all.len() {
                let to = (from + 1 + round % (all.len() - 1)) % all.len();
                let len = 14 + (round * 37 + from) % 2000;
                let one = frame(all[to].mac(0), all[from].mac(0), len, round as u8);
                let flood = frame(BROADCAST, all[from].mac(0), len, !(round as u8));
                let port = &mut attached[from].ports[0];
                send(port, &one);
                send(port, &flood);
                assert_eq!(port.flush(WhenFull::Drop).expect("flush"), 2);
                for (index, one_of_them) in attached.iter_mut().enumerate() {
                    let mut wanted = Vec::new();
                    wanted.extend((index == to).then(|| one.clone()));
                    wanted.extend((index != from).then(|| flood.clone()));
                    assert_eq!(received(&mut one_of_them.ports[0]), wanted);
                }
            }
        }
        drop(attached);
        for member in &all[..3] {
            assert_keeps_its_slots(&group, member, ONE);
        }
    });
}

/// A repeatable source of numbers (xorshift64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// All bytes of an instance's pool.
fn pool_bytes(port: &Port) -> Vec<u8> {
    let (start, len) = port.pool().as_raw_parts();
    // SAFETY: the mapping has that length and lives as long as the port; no process writes to it here.
    unsafe { std::slice::from_raw_parts(start, len) }.to_vec()
}

/// Slot numbers of every kind: another member's, beyond the pool, beyond the table, its own. Catches: an exchange that takes
/// what the sender names without a look at its owner.
// promise: 1.26
#[test]
fn a_hostile_member_spoils_its_group_at_most() {
    for_each_form("hostile member", |scratch| {
        let group = scratch.group(3 * ONE).expect("a group");
        let mut members: Vec<ScratchInstance> = (0..3)
            .map(|_| scratch.member(&group, 1, RING, RING).expect("a member"))
            .collect();
        let mut outsider = scratch.instance(1, RING, RING).expect("instance");
        let bystander = scratch.instance(1, RING, RING).expect("instance");
        let [evil, peer, other] = &mut members[..] else {
            unreachable!("there are three");
        };
        // The outsider sends to the evil one, which sends to its peer; the third member takes no part.
        scratch
            .link((&mut *evil, 0), (&mut *peer, 0))
            .expect("link");
        scratch.lead((&mut outsider, 0), (&*evil, 0)).expect("lead");
        let watched = bystander.attach().expect("attach");
        let untouched = pool_bytes(&watched.ports[0]);
        let mut evil_ports = evil.attach().expect("attach");
        let mut peer_ports = peer.attach().expect("attach");
        let mut outside = outsider.attach().expect("attach");
        let before = pool_bytes(&outside.ports[0]);
        let slots = group.slots();
        let mut random = Random(11);
        for _ in 0..20_000 {
            let port = &mut evil_ports.ports[0];
            for _ in 0..4 {
                let (kind, word) = (random.next() % 4, random.next());
                let slot = match kind {
                    0 => word as u32 % slots,
                    1 => slots + word as u32 % 4096,
                    _ => word as u32,
                };
                let at = (random.next() % u64::from(RING)) as usize;
                let desc = word & 0xffff | u64::from(slot & 0xffff) << 16 | word << 32;
                port.raw_ring().rx[at].store(desc, Relaxed);
                port.queue_raw((14 + word % 2000) as u16, slot);
            }
            let ahead = random.next() % 70;
            port.raw_ring()
                .receiver
                .rx_released
                .fetch_add(ahead, Relaxed);
            // Errors are its own.
            let _ = port.flush(WhenFull::Drop);
            send(
                &mut outside.ports[0],
                &frame([2; 6], outsider.mac(0), 60, 0),
            );
            outside.ports[0].flush(WhenFull::Drop).expect("flush");
            peer_ports.ports[0].receive(usize::MAX, |bytes| {
                assert!((14..=2032).contains(&bytes.len()));
            });
        }
        assert!(
            pool_bytes(&watched.ports[0]) == untouched,
            "a bystander's memory"
        );
        let after = pool_bytes(&outside.ports[0]);
        let written = ONE as usize * SLOT_SIZE;
        assert!(before.len() == written && after.len() == written);
        // The outsider has received nothing. Its RX slots come first.
        let rx = RING as usize * SLOT_SIZE;
        assert!(after[..rx] == before[..rx], "an outsider's memory");
        for member in [&*evil, &*peer, &*other] {
            let own = group.slots_of(member.memory.pool_id);
            assert_eq!(own.len(), ONE as usize, "nobody gains or loses a slot");
        }
        assert_keeps_its_slots(&group, other, ONE);
        assert_keeps_its_slots(&group, peer, ONE);
        assert_books_balance(scratch, &[&*evil, &*peer, &outsider]);
        let counters = scratch.switch.counters(evil.id(0));
        assert!(counters.dropped(DropReason::BadIndex) > 0);
    });
}

/// Catches: an exchange that gives the sender the slot that the receiver names, without a look at its owner.
#[test]
fn a_receiver_gives_no_slot_of_others_away() {
    for_each_form("named slots", |scratch| {
        let group = scratch.group(3 * ONE).expect("a group");
        let mut members: Vec<ScratchInstance> = (0..3)
            .map(|_| scratch.member(&group, 1, RING, RING).expect("a member"))
            .collect();
        let [sender, evil, other] = &mut members[..] else {
            unreachable!("there are three");
        };
        scratch
            .link((&mut *sender, 0), (&mut *evil, 0))
            .expect("link");
        let (mut from, to) = (sender.attach().expect("attach"), evil.attach());
        let foreign = group.slots_of(other.memory.pool_id);
        let ring = to.expect("attach");
        for (desc, slot) in ring.ports[0]
            .raw_ring()
            .rx
            .iter()
            .zip(foreign.iter().cycle())
        {
            desc.store(rx_desc_with_slot(0, *slot), Relaxed);
        }
        let port = &mut from.ports[0];
        for _ in 0..8 {
            send(port, &frame(evil.mac(0), sender.mac(0), 1514, 0));
        }
        port.flush(WhenFull::Drop).expect("flush");
        let counters = scratch.switch.counters(evil.id(0));
        assert_eq!(counters.dropped(DropReason::BadIndex), 8);
        for member in [&*sender, &*evil, &*other] {
            let own = group.slots_of(member.memory.pool_id);
            assert_eq!(own.len(), ONE as usize, "nobody gains or loses a slot");
        }
        assert_keeps_its_slots(&group, other, ONE);
    });
}

// promise: 1.25
#[test]
fn members_that_leave_give_their_slots_to_those_that_join() {
    for_each_form("join", |scratch| {
        let group = scratch.group(2 * TWO).expect("a group");
        let stays = scratch.member(&group, 2, RING, RING).expect("a member");
        for _ in 0..3 {
            let goes = scratch.member(&group, 2, RING, RING).expect("a member");
            assert_eq!(group.free_slots(), 0);
            let error = scratch
                .member(&group, 1, RING, RING)
                .expect_err("it is full");
            assert!(error.to_string().contains("has 0 left"), "{error}");
            scratch.switch.remove(&goes.memory).expect("remove");
            assert_eq!(group.free_slots(), TWO);
        }
        assert_keeps_its_slots(&group, &stays, TWO);
    });
}

fn start_member(instance: &ScratchInstance) -> Child {
    let mut command = Command::new(std::env::current_exe().expect("own path"));
    command
        .args(["--exact", "member_process", "--nocapture"])
        .env(ROLE, "forward")
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    instance.spawn(&mut command).expect("a member's process")
}

/// Not a test: what a member's process does, until it is killed.
#[test]
fn member_process() {
    if std::env::var_os(ROLE).is_none() {
        return;
    }
    let mut attached = Attached::from_env().expect("a member");
    let mut engine = Engine::new();
    loop {
        if forward(&mut engine, &mut attached.ports) == 0 {
            attached.ports.iter_mut().for_each(Port::ring_all);
            let waited = attached.doorbell.wait(&mut attached.ports, None, AGEING);
            waited.expect("wait");
        }
    }
}

// promise: 1.25
#[test]
fn a_member_that_is_killed_and_started_again_finds_all_its_slots() {
    for_each_form("killed member", |scratch| {
        let row = Row::new(scratch, 3);
        let [mut first, mut last] =
            [0, 1].map(|end: usize| row.ends[end].attach().expect("attach"));
        let mut children: Vec<Child> = row.members.iter().map(start_member).collect();
        let mut number = 0u64;
        for round in 0..6 {
            let mut got = 0;
            while got < 3000 {
                while first.ports[0].room() > 0 {
                    let len = 60 + (number % 1400) as usize;
                    let mut sent = frame([2; 6], row.ends[0].mac(0), len, number as u8);
                    sent[14..22].copy_from_slice(&number.to_ne_bytes());
                    send(&mut first.ports[0], &sent);
                    number += 1;
                }
                first.ports[0].flush(WhenFull::Drop).expect("flush");
                got += last.ports[0].receive(usize::MAX, |bytes| {
                    let number = u64::from_ne_bytes(bytes[14..22].try_into().expect("eight"));
                    assert_eq!(bytes.len(), 60 + (number % 1400) as usize);
                    assert!(bytes[22..].iter().all(|byte| *byte == number as u8));
                });
            }
            // In the middle of its work.
            let victim = round % 3;
            children[victim].kill().expect("it runs");
            children[victim].wait().expect("it is our child");
            let member = &row.members[victim];
            scratch
                .switch
                .reclaim(&member.memory, &member.handover.maps)
                .expect("reclaim");
            assert_keeps_its_slots(&row.group, member, TWO);
            scratch.switch.revive(&member.memory);
            children[victim] = start_member(member);
        }
        for child in &mut children {
            child.kill().expect("it runs");
            child.wait().expect("it is our child");
        }
        for member in &row.members {
            scratch
                .switch
                .reclaim(&member.memory, &member.handover.maps)
                .expect("reclaim");
            assert_keeps_its_slots(&row.group, member, TWO);
        }
        assert_books_balance(scratch, &row.everybody());
    });
}
