//! The model of the switch's protocol (docs/internals/model.md) does what the real program does: the same frames, calls
//! and changes, one after the other, leave the same counters, rings and addresses in both. Both loop forms.

mod switch_fixture;

use nfluid_ring::layout::{
    DESC_OFFLOAD, FRAME_MAX, LONG_MAX, OFFLOAD_AT, Released, SLOT_SIZE, frame_slots, tx_desc_long,
    tx_desc_slot,
};
use nfluid_ring::offload::{
    Level, OFFLOAD_BYTES, Offload, PartialChecksum, SegmentKind, Segmentation,
};
use nfluid_ring::port::{Port, TakenSlot, WhenFull};
use nfluid_sim::protocol::audit::drops_of;
use nfluid_sim::protocol::daemon::{Daemon, Spec};
use nfluid_sim::protocol::instance::{self, Form, Instance};
use nfluid_sim::protocol::memory::{self, Memory, Pool};
use nfluid_sim::protocol::schedule::alone;
use nfluid_sim::protocol::transmit::{CallError, Caller, hyperio};
use nfluid_switch::fdb::FdbEntry;
use nfluid_switch::{Destination, Group, Inlet, LongSlots, PortSpec};
use nfluid_testbed::random::Random;
use nfluid_testbed::scratch::{Scratch, ScratchInstance, mac_of};
use nfluid_tests::harness::soak;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use switch_fixture::{BROADCAST, for_each_form, frame, tagged};

const SLOTS: u32 = 64;
/// Ports, of which the last are members of a trust group.
const PLACES: usize = 6;
const FIRST_MEMBER: usize = 4;
const SWITCHES: u32 = 2;
/// Ageing time that no test outlasts, in seconds.
const LONG: u32 = 1_000_000;
/// Addresses that a port may teach.
const ADDRESSES: u32 = 3;
/// The model's pool of the group: the real one has as many slots.
const GROUP_SLOTS: u32 = (PLACES - FIRST_MEMBER) as u32 * 2 * SLOTS;

/// A port of the real switch and the same one of the model.
struct Place {
    real: ScratchInstance,
    model: Instance,
    ports: [Port; 2],
}

struct Both<'a> {
    scratch: &'a mut Scratch,
    m: Rc<Memory>,
    daemon: Rc<Daemon>,
    places: Vec<Place>,
    random: Random,
    /// The group lives as long as its members.
    _group: Arc<Group>,
}

fn word_of(mac: [u8; 6]) -> u64 {
    let [a, b, c, d, e, f] = mac;
    u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
}

/// The real instance, and what the model is to know of it.
fn made(scratch: &mut Scratch, random: &mut Random) -> (ScratchInstance, Form) {
    let (rx, tx) = random.pick(&[(0, 64), (64, 64), (64, 128), (128, 64), (128, 0)]);
    let level = match (random.below(4), rx) {
        (0, _) | (2, 0) => Level::Plain,
        (1, _) | (3, 0) => Level::Checksums,
        _ => Level::Super,
    };
    let id = scratch.port_ids(1);
    let spec = PortSpec {
        tx_slots: SLOTS,
        long: LongSlots { rx, tx },
        level,
        ..PortSpec::new(id, "p0", mac_of(id), SLOTS)
    };
    let form = Form {
        long: instance::LongSlots { rx, tx },
        level,
        ..Form::default()
    };
    (scratch.instance_with(&[spec]).expect("instance"), form)
}

/// Something that may be beside a frame of this length, or a lie.
fn some_words(random: &mut Random, len: usize) -> [u8; OFFLOAD_BYTES] {
    let start = 14 + random.below(30) as usize;
    let offset = random.pick(&[6, 16]);
    let (kind, transport) = random.pick(&[
        (SegmentKind::TcpV4, 20),
        (SegmentKind::TcpV6, 32),
        (SegmentKind::Udp, 8),
        (SegmentKind::Udp, 20),
    ]);
    let header_len = start + transport;
    let cut = Segmentation {
        kind,
        header_len,
        payload_len: random.pick(&[1, 45, 500, 1448]) + random.below(100) as usize,
        is_ecn: random.one_in(4),
    };
    let offload = match random.below(4) {
        0 => Offload::NONE,
        1 => Offload::partial_checksum(PartialChecksum { start, offset }),
        _ => Offload::segmented(start, cut),
    };
    let mut words = offload.words(len.max(header_len + 1));
    if random.one_in(4) {
        words[random.below(10) as usize] = random.below(256) as u8;
    }
    // The sender's number of segments does not count.
    for byte in &mut words[10..] {
        *byte = random.below(256) as u8;
    }
    words
}

/// The last bytes of a slot of a real pool.
fn words_at(port: &Port, slot: u32) -> *mut [u8; OFFLOAD_BYTES] {
    let (start, len) = port.pool().as_raw_parts();
    let at = slot as usize * SLOT_SIZE + OFFLOAD_AT;
    assert!(at + OFFLOAD_BYTES <= len);
    // SAFETY: the bytes lie within the pool's mapping.
    unsafe { start.add(at).cast() }
}

fn attached(real: &ScratchInstance, model: &Instance) -> [Port; 2] {
    let real = real.attach().expect("attach").ports.remove(0);
    let [_, sender] = model.attach();
    [real, sender]
}

/// The frame is the same in both, and what lies beside it.
fn assert_arrived(real: &Port, model: &Instance, taken: &TakenSlot) {
    let bytes = model.pool.read(taken.slot, usize::from(taken.len));
    let frame = real.taken_frame(taken).expect("taken");
    let number = model.number;
    assert!(frame == bytes, "a frame of {} bytes at {number}", taken.len);
    let desc = real.raw_ring().rx[(taken.position & (SLOTS - 1)) as usize].load(SeqCst);
    if taken.slots > 1 || desc & DESC_OFFLOAD != 0 && model.group == 0 {
        let last = taken.slot + u32::from(taken.slots) - 1;
        // SAFETY: bytes of the mapping; the switch writes there in calls of this thread alone.
        let words = unsafe { words_at(real, last).read_unaligned() };
        assert_eq!(
            words,
            model.pool.offload(last),
            "beside a frame at {number}"
        );
    }
}

/// The TX descriptor of the frame that was queued last.
fn queued_last(port: &Port) -> &AtomicU64 {
    let ring = port.raw_ring();
    let behind = ring.switch.tx_tail.load(SeqCst).wrapping_add(port.queued());
    &ring.tx[(behind.wrapping_sub(1) & (SLOTS - 1)) as usize]
}

impl<'a> Both<'a> {
    fn new(scratch: &'a mut Scratch, seed: u64) -> Self {
        let group = scratch.group(GROUP_SLOTS).expect("a group");
        let m = Memory::new(256, SWITCHES as usize + 1, GROUP_SLOTS, None);
        let daemon = Daemon::start(&m, false);
        let pool = Pool::create(GROUP_SLOTS);
        let mut random = Random(seed);
        let places = (0..PLACES).map(|index| {
            let is_member = index >= FIRST_MEMBER;
            let (real, form) = match is_member {
                true => {
                    let member = scratch.member(&group, 1, SLOTS, SLOTS);
                    (member.expect("a member"), Form::default())
                }
                false => made(scratch, &mut random),
            };
            let (id, mac, learns) = (real.id(0), word_of(real.mac(0)), index % 2 == 0);
            scratch.switch.set_learning(id, learns);
            scratch.switch.set_fdb_limits(id, LONG, ADDRESSES);
            let shared = (u32::from(is_member), is_member.then_some(&pool));
            let model = Instance::create(id, SLOTS, shared, form);
            let fdb_limit = ADDRESSES;
            alone(daemon.enter(
                &model,
                Spec {
                    mac,
                    learns,
                    fdb_limit,
                },
            ));
            let ports = attached(&real, &model);
            Place { real, model, ports }
        });
        let places = places.collect();
        let _group = group;
        Both {
            scratch,
            m,
            daemon,
            places,
            random,
            _group,
        }
    }

    fn some_place(&mut self) -> usize {
        self.random.below(PLACES as u32) as usize
    }

    fn some_address(&mut self) -> [u8; 6] {
        let index = self.some_place();
        match self.random.below(10) {
            0 => BROADCAST,
            1 => [1, 0x80, 0xc2, 0, 0, self.random.below(20) as u8],
            2..5 => [2, 9, 0, 0, 0, self.random.below(8) as u8],
            _ => self.places[index].real.mac(0),
        }
    }

    fn some_frame(&mut self, from: usize, fill: u8) -> Vec<u8> {
        let own = self.places[from].real.mac(0);
        let (dst, other) = (self.some_address(), self.some_address());
        let src = if self.random.one_in(3) { other } else { own };
        let len = self.random.pick(&[
            14, 15, 17, 60, 61, 255, 256, 257, 1514, 2028, 2032, 2040, 9014,
        ]);
        let len = match self.random.below(40) {
            0 => LONG_MAX - self.random.below(100) as usize,
            1 => FRAME_MAX + self.random.below(20_000) as usize,
            _ => len,
        };
        let frame = frame(dst, src, len, fill);
        let mut frame = match self.random.below(6) {
            0 => tagged(&frame, 0x8100, self.random.pick(&[0, 1, 2])),
            1 => tagged(&frame, 0x88a8, 1),
            2 => {
                // Cut within its tag, or just behind.
                let len = 14 + self.random.below(5) as usize;
                let mut frame = tagged(&frame, 0x8100, 1);
                frame.truncate(len);
                frame
            }
            _ => frame,
        };
        frame.truncate(LONG_MAX);
        frame
    }

    /// Queues a frame, as one that has to lie in the slots for long frames, or not.
    fn queue(&mut self, at: usize, sent: &[u8]) -> bool {
        let is_long = sent.len() > FRAME_MAX || self.random.one_in(8);
        let Place {
            model,
            ports: [real, own],
            ..
        } = &mut self.places[at];
        let len = sent.len();
        let [is_sent, is_modelled] = if is_long {
            let fill = |slots: &mut [u8]| {
                slots[..len].copy_from_slice(sent);
                (len, Offload::NONE)
            };
            [
                real.send_long(fill),
                own.send_long(|_| (len, Offload::NONE)),
            ]
        } else {
            let fill = |slot: &mut [u8]| {
                slot[..len].copy_from_slice(sent);
                len
            };
            [real.send(fill), own.send(|_| len)]
        };
        assert_eq!(is_sent, is_modelled, "room at {at}");
        if is_sent {
            let slot = tx_desc_slot(queued_last(own).load(SeqCst));
            model.pool.write(slot, sent);
        }
        is_sent
    }

    /// Marks the frame that was queued last: something is beside it.
    fn say(&mut self, at: usize, len: usize) {
        let words = some_words(&mut self.random, len);
        let Place { model, ports, .. } = &self.places[at];
        let [real, own] = ports;
        for port in [real, own] {
            let desc = queued_last(port);
            desc.store(desc.load(SeqCst) | DESC_OFFLOAD, SeqCst);
        }
        let last = tx_desc_slot(queued_last(own).load(SeqCst)) + frame_slots(len) as u32 - 1;
        model.pool.set_offload(last, words);
        // SAFETY: bytes of the mapping, which no reference covers, and which the switch reads in a call of this thread.
        unsafe { words_at(real, last).write_unaligned(words) };
    }

    /// Queues what no library would: a descriptor of the port's own TX slots, or of slots that there are not, so often.
    fn queue_raw(&mut self, at: usize, times: u32) {
        let random = &mut self.random;
        let Place { model, ports, .. } = &mut self.places[at];
        let last_block = model.pool.slots() / 64 - 1;
        let block = match random.below(4) {
            0 => random.pick(&[last_block + 1, u32::MAX / 64]),
            1 if model.long.tx > 0 => last_block,
            _ => 1,
        };
        let slot = block * 64 + random.pick(&[0, 1, 31, 32, 33, 40, 62, 63]);
        let slots = 1 + random.below(32);
        let len = match random.below(3) {
            0 => random.pick(&[0, 13, 14, 60, 2032, 2033, 65_520, 65_521, 65_535]),
            _ => slots * SLOT_SIZE as u32 - random.pick(&[0, 15, 16, 17, 500, 2048]),
        };
        let mut desc = tx_desc_long(len as u16, slot, slots as u8);
        if random.one_in(3) {
            desc |= DESC_OFFLOAD;
        }
        for port in ports {
            for _ in 0..times {
                if port.can_queue() {
                    port.queue_raw(60, 0);
                    queued_last(port).store(desc, SeqCst);
                }
            }
        }
    }

    /// Queues the longest frame there is for all, again and again: more than a call may flood.
    fn queue_for_all(&mut self, at: usize) {
        let sent = frame(BROADCAST, self.places[at].real.mac(0), LONG_MAX, 9);
        self.flush(at, WhenFull::Drop);
        if self.places[at].model.long.tx == 0 || !self.queue(at, &sent) {
            return;
        }
        for port in &mut self.places[at].ports {
            let desc = queued_last(port).load(SeqCst);
            while port.can_queue() {
                port.queue_raw(60, 0);
                queued_last(port).store(desc, SeqCst);
            }
        }
    }

    /// As `Port::flush` does it, over the model's switch.
    fn flush(&mut self, at: usize, when_full: WhenFull) {
        let Place {
            model,
            ports: [real, own],
            ..
        } = &mut self.places[at];
        let flushed = real.flush(when_full).ok();
        let keeps = when_full == WhenFull::Keep;
        let mut consumed = Some(0);
        while own.queued() > 0 {
            let ring = own.raw_ring();
            let head = ring.switch.tx_tail.load(SeqCst).wrapping_add(own.queued());
            ring.sender.tx_head.store(head, SeqCst);
            if alone(hyperio(&self.m, model.number, Caller::Instance { keeps })).is_err() {
                own.discard_queued();
                consumed = None;
                break;
            }
            let step = own.collect();
            consumed = consumed.map(|consumed| consumed + step);
            if step == 0 || keeps && own.queued() > 0 {
                break;
            }
        }
        assert_eq!(flushed, consumed, "a flush at {at}");
    }

    fn send(&mut self) {
        let at = self.some_place();
        let count = self.random.pick(&[5, 20, 80]);
        for number in 0..1 + self.random.below(count) {
            let sent = self.some_frame(at, number as u8);
            // Runs of frames for the same receiver.
            for _ in 0..1 + self.random.below(3) {
                if !self.queue(at, &sent) {
                    self.flush(at, WhenFull::Drop);
                } else if self.random.one_in(8) {
                    self.say(at, sent.len());
                }
            }
            if self.random.one_in(200) {
                self.queue_for_all(at);
                self.flush(at, WhenFull::Drop);
            }
            if at < FIRST_MEMBER && self.random.one_in(20) {
                let times = self.random.pick(&[1, 1, 1, 40]);
                self.queue_raw(at, times);
            }
        }
        let when_full = self.random.pick(&[WhenFull::Drop, WhenFull::Keep]);
        self.flush(at, when_full);
        self.flush(at, WhenFull::Drop);
    }

    fn receive(&mut self, at: usize, most: usize) {
        let Place { model, ports, .. } = &mut self.places[at];
        let mut held = Vec::new();
        for _ in 0..most.min(SLOTS as usize) {
            let [got, modelled] = ports.each_mut().map(Port::take_slot);
            assert_eq!(got, modelled, "a frame at {at}");
            let Some(taken) = got else { break };
            assert_arrived(&ports[0], model, &taken);
            held.push(taken.position);
        }
        // Of what was taken, all or some are released.
        let some = self.random.below(2 * held.len() as u32 + 1) as usize;
        for port in ports.iter_mut() {
            let to = held.get(some).copied().unwrap_or(port.taken());
            port.release_to(to);
        }
        let word = ports[1].raw_ring().receiver.rx_released.load(SeqCst);
        self.m.audit.released(model.number, Released::of(word));
    }

    fn bad_head(&mut self) {
        let at = self.some_place();
        let head = self.random.below(u32::MAX);
        let Place {
            model,
            ports: [real, own],
            ..
        } = &mut self.places[at];
        for port in [&*real, &*own] {
            port.raw_ring().sender.tx_head.store(head, SeqCst);
        }
        let called = real.call_empty().map_err(|error| error.raw_os_error());
        let modelled = alone(hyperio(
            &self.m,
            model.number,
            Caller::Instance { keeps: false },
        ));
        let number = |error| match error {
            CallError::NetDown => Some(libc::ENETDOWN),
            CallError::Busy => Some(libc::EBUSY),
        };
        assert_eq!(called, modelled.map_err(number), "a call at {at}");
        real.discard_queued();
        own.discard_queued();
    }

    fn connect(&mut self) {
        let at = self.some_place();
        let (id, mac) = (self.places[at].real.id(0), self.places[at].real.mac(0));
        let peer = self.some_place();
        let peer = self.places[peer].real.id(0);
        let (real, model) = match self.random.below(9) {
            0 => (Destination::None, memory::Destination::None),
            1..4 => (Destination::Link(peer), memory::Destination::Link(peer)),
            number => {
                let switch = 1 + number % SWITCHES;
                (
                    Destination::Switch(switch),
                    memory::Destination::Switch(switch),
                )
            }
        };
        self.scratch.switch.connect(id, real).expect("connect");
        alone(self.daemon.connect(id, model));
        if let Destination::Switch(switch) = real {
            self.scratch
                .switch
                .pin_address(switch, 0, mac, id)
                .expect("pin");
            alone(self.daemon.pin_address(switch, word_of(mac), id));
        }
    }

    fn go_down_or_up(&mut self) {
        let at = self.some_place();
        let (id, up) = (self.places[at].real.id(0), !self.random.one_in(3));
        self.scratch.switch.set_up(id, up);
        alone(self.daemon.set_up(id, up));
    }

    /// The daemon deposits frames, or is killed while it does, and the next one finds what it has left.
    fn deposit(&mut self) {
        let at = self.random.below(FIRST_MEMBER as u32) as usize;
        let frames: Vec<_> = (0..1 + self.random.below(8))
            .map(|fill| self.some_frame(at, fill as u8))
            .collect();
        let is_killed = self.random.one_in(2);
        let Place { real, model, .. } = &self.places[at];
        let switch = &self.scratch.switch;
        let memory = (&real.memory, &real.handover.maps);
        let inlet = Inlet::of(memory, 0).expect("mapped").expect("of no group");
        if is_killed {
            for frame in &frames {
                if frame.len() <= FRAME_MAX {
                    let reserved = switch.reserve(&inlet, 1, 0);
                    assert_eq!(reserved, alone(self.daemon.reserve(model, 1)));
                } else if model.long.rx > 0 {
                    let reserved = switch.reserve_long(&inlet, frame.len(), 0);
                    assert_eq!(
                        reserved,
                        alone(self.daemon.reserve_long(model, frame.len()))
                    );
                }
            }
            let filled = switch.fill_gaps(memory.0, memory.1).expect("filled");
            assert_eq!(filled, alone(self.daemon.fill_gaps(model)));
        } else {
            let slices: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
            let deposited = switch.deposit_at(&inlet, &slices, 0);
            assert_eq!(deposited, alone(self.daemon.deposit(model, &frames)));
        }
    }

    /// The instance ends, and another one continues with its ports.
    fn restart(&mut self) {
        let at = self.some_place();
        let Place { real, model, ports } = &mut self.places[at];
        let taken = ports[1].taken();
        self.scratch
            .switch
            .reclaim(&real.memory, &real.handover.maps)
            .expect("reclaimed");
        self.scratch.switch.revive(&real.memory);
        alone(self.daemon.reclaim(model, taken));
        alone(self.daemon.set_up(model.number, true));
        *ports = attached(real, model);
    }

    fn step(&mut self) {
        match self.random.below(40) {
            0..13 => self.send(),
            13..32 => {
                let at = self.some_place();
                let most = self.random.pick(&[1, 10, usize::MAX]);
                self.receive(at, most);
            }
            32 | 33 => self.go_down_or_up(),
            34 | 35 => self.connect(),
            36 => self.deposit(),
            37 => self.restart(),
            _ => self.bad_head(),
        }
    }

    /// All that has arrived is taken, and all slots are given back.
    fn drain(&mut self) {
        for at in 0..PLACES {
            self.receive(at, usize::MAX);
            let Place { model, ports, .. } = &mut self.places[at];
            ports.iter_mut().for_each(Port::release);
            let word = ports[0].raw_ring().receiver.rx_released.load(SeqCst);
            let reserved = self.m.port(model.number).rx_reserved.get();
            assert_eq!(Released::of(word), Released::of(reserved), "at {at}");
        }
    }

    fn assert_agrees(&self) {
        assert_eq!(self.m.audit.violation(), None);
        for (at, Place { real, ports, .. }) in self.places.iter().enumerate() {
            let (counters, port) = (
                self.scratch.switch.counters(real.id(0)),
                self.m.port(real.id(0)),
            );
            let words = [
                counters.tx_frames,
                counters.tx_bytes,
                counters.tx_calls,
                counters.tx_bad_heads,
                counters.tx_more_segments,
                counters.tx_more_bytes,
                counters.rx_more_segments,
                counters.rx_more_bytes,
            ];
            let modelled = [
                &port.tx_frames,
                &port.tx_bytes,
                &port.tx_calls,
                &port.tx_bad_heads,
                &port.tx_more_segments,
                &port.tx_more_bytes,
                &port.rx_more_segments,
                &port.rx_more_bytes,
            ];
            assert_eq!(
                words,
                modelled.map(std::cell::Cell::get),
                "what {at} has sent"
            );
            let words = (
                counters.rx_frames,
                counters.rx_bytes,
                counters.fdb_used,
                counters.fdb_refused,
            );
            let modelled = (
                port.rx_frames.get(),
                port.rx_bytes.get(),
                port.fdb_used.get(),
                port.fdb_refused.get(),
            );
            assert_eq!(words, modelled, "what {at} has got and taught");
            assert_eq!(counters.drops, drops_of(port), "what {at} has dropped");
            let rings = ports.each_ref().map(|port| {
                let ring = port.raw_ring();
                let words = |words: &[std::sync::atomic::AtomicU64]| -> Vec<u64> {
                    words[..SLOTS as usize]
                        .iter()
                        .map(|word| word.load(SeqCst))
                        .collect()
                };
                (
                    words(&ring.rx),
                    words(&ring.tx),
                    ring.switch.tx_tail.load(SeqCst),
                    Released::of(ring.receiver.rx_released.load(SeqCst)),
                )
            });
            let [real, modelled] = rings;
            assert_eq!(real, modelled, "the rings of {at}");
        }
        let entry = |entry: FdbEntry| {
            let address = word_of(entry.mac) | u64::from(entry.vlan) << 48;
            let pinned = u64::from(entry.pinned) << 63;
            ((entry.switch, address), u64::from(entry.port) | pinned)
        };
        let entries = self
            .scratch
            .switch
            .fdb_entries()
            .expect("the FDB")
            .into_iter();
        let mut entries: Vec<_> = entries.filter(|entry| !entry.aged).map(entry).collect();
        entries.sort_unstable();
        let fdb = self.m.fdb.borrow();
        let modelled = fdb.iter().filter(|(_, entry)| {
            alone(nfluid_sim::protocol::fdb::counts(
                &self.m,
                entry.owner.get(),
            ))
        });
        let modelled =
            modelled.map(|(key, entry)| (*key, entry.owner.get() & (1 << 63 | 0xffff_ffff)));
        assert_eq!(entries, modelled.collect::<Vec<_>>(), "the FDB");
    }
}

/// Catches: any line of the program that counts, checks or delivers otherwise than the model, which then is to be
/// changed like it, so that its interleavings are those of the real one.
// promise: 1.41
#[test]
fn the_model_does_what_the_program_does() {
    for_each_form("model", |scratch| {
        for seed in 0..soak::choose(8, 100) {
            let mut both = Both::new(scratch, seed);
            for _ in 0..PLACES * 2 {
                both.connect();
            }
            for _ in 0..soak::choose(300, 4000) {
                both.step();
                both.assert_agrees();
            }
            both.drain();
            let ids: Vec<_> = both.places.iter().map(|place| place.real.id(0)).collect();
            for id in ids {
                both.scratch
                    .switch
                    .connect(id, Destination::None)
                    .expect("disconnect");
            }
        }
    });
}
