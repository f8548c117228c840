//! The model of the switch's protocol (docs/internals/model.md) does what the real program does: the same frames, calls
//! and changes, one after the other, leave the same counters, rings and addresses in both. Both loop forms.

mod switch_fixture;

use nfluid_ring::port::{Port, WhenFull};
use nfluid_sim::protocol::audit::drops_of;
use nfluid_sim::protocol::daemon::{Daemon, Spec};
use nfluid_sim::protocol::instance::Instance;
use nfluid_sim::protocol::memory::{self, Memory, Pool};
use nfluid_sim::protocol::schedule::alone;
use nfluid_sim::protocol::transmit::{CallError, Caller, hyperio};
use nfluid_switch::fdb::FdbEntry;
use nfluid_switch::{Destination, Group, Inlet};
use nfluid_testbed::random::Random;
use nfluid_testbed::scratch::{Scratch, ScratchInstance};
use nfluid_tests::harness::soak;
use std::rc::Rc;
use std::sync::Arc;
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

fn attached(real: &ScratchInstance, model: &Instance) -> [Port; 2] {
    let real = real.attach().expect("attach").ports.remove(0);
    let [_, sender] = model.attach();
    [real, sender]
}

impl<'a> Both<'a> {
    fn new(scratch: &'a mut Scratch, seed: u64) -> Self {
        let group = scratch.group(GROUP_SLOTS).expect("a group");
        let m = Memory::new(256, SWITCHES as usize + 1, GROUP_SLOTS, None);
        let daemon = Daemon::start(&m, false);
        let pool = Pool::create(GROUP_SLOTS);
        let places = (0..PLACES).map(|index| {
            let is_member = index >= FIRST_MEMBER;
            let real = match is_member {
                true => scratch.member(&group, 1, SLOTS, SLOTS).expect("a member"),
                false => scratch.instance(1, SLOTS, SLOTS).expect("instance"),
            };
            let (id, mac, learns) = (real.id(0), word_of(real.mac(0)), index % 2 == 0);
            scratch.switch.set_learning(id, learns);
            scratch.switch.set_fdb_limits(id, LONG, ADDRESSES);
            let shared = (u32::from(is_member), is_member.then_some(&pool));
            let model = Instance::create(id, SLOTS, shared);
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
        let (random, _group) = (Random(seed), group);
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
        let len = self
            .random
            .pick(&[14, 15, 17, 60, 61, 255, 256, 257, 1514, 2028]);
        let frame = frame(dst, src, len, fill);
        match self.random.below(6) {
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
        }
    }

    fn queue(&mut self, at: usize, sent: &[u8]) -> bool {
        let Place {
            model,
            ports: [real, own],
            ..
        } = &mut self.places[at];
        let is_sent = real.send(|slot| {
            slot[..sent.len()].copy_from_slice(sent);
            sent.len()
        });
        let slot = own.next_tx_slot();
        slot.inspect(|slot| model.pool.write(*slot, sent));
        assert_eq!(own.send(|_| sent.len()), is_sent, "room at {at}");
        is_sent
    }

    fn queue_raw(&mut self, at: usize, len: u16, slot: u32) {
        for port in &mut self.places[at].ports {
            port.queue_raw(len, slot);
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
        for number in 0..1 + self.random.below(80) {
            let sent = self.some_frame(at, number as u8);
            // Runs of frames for the same receiver.
            for _ in 0..1 + self.random.below(3) {
                if !self.queue(at, &sent) {
                    self.flush(at, WhenFull::Drop);
                }
            }
            if at < FIRST_MEMBER && self.random.one_in(20) {
                let slot = self.random.pick(&[u32::MAX, SLOTS, 4 * SLOTS]);
                let len = self.random.pick(&[0, 13, 60, 2033]);
                self.queue_raw(at, len, slot);
            }
        }
        let when_full = self.random.pick(&[WhenFull::Drop, WhenFull::Keep]);
        self.flush(at, when_full);
        self.flush(at, WhenFull::Drop);
    }

    fn receive(&mut self, at: usize) {
        let most = self.random.pick(&[1, 10, usize::MAX]);
        let Place {
            model,
            ports: [real, own],
            ..
        } = &mut self.places[at];
        for _ in 0..most.min(SLOTS as usize) {
            let (got, modelled) = (real.take_slot(), own.take_slot());
            assert_eq!(got, modelled, "a frame at {at}");
            let Some(taken) = got else { break };
            let bytes = model.pool.read(taken.slot, usize::from(taken.len));
            assert_eq!(
                real.taken_frame(&taken),
                Some(&bytes[..]),
                "a frame at {at}"
            );
        }
        real.release();
        own.release();
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
        let (real, model) = match self.random.below(6) {
            0 => (Destination::None, memory::Destination::None),
            1 => (Destination::Link(peer), memory::Destination::Link(peer)),
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
            let reserved = switch.reserve(&inlet, frames.len(), 0);
            let modelled = alone(self.daemon.reserve(model, frames.len()));
            let count = modelled.end.wrapping_sub(modelled.start);
            assert_eq!(reserved, (modelled.start, count));
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
            0..18 => self.send(),
            18..32 => {
                let at = self.some_place();
                self.receive(at);
            }
            32 | 33 => self.go_down_or_up(),
            34 | 35 => self.connect(),
            36 => self.deposit(),
            37 => self.restart(),
            _ => self.bad_head(),
        }
    }

    fn assert_agrees(&self) {
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
            ];
            let modelled = [
                &port.tx_frames,
                &port.tx_bytes,
                &port.tx_calls,
                &port.tx_bad_heads,
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
        for seed in 0..soak::choose(3, 100) {
            let mut both = Both::new(scratch, seed);
            for _ in 0..PLACES * 2 {
                both.connect();
            }
            for _ in 0..soak::choose(200, 4000) {
                both.step();
                both.assert_agrees();
            }
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
