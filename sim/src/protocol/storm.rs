//! A run: instances send and receive, an I/O thread makes the calls of some, and the daemon changes everything meanwhile,
//! and is killed and started again.

mod checks;
mod frames;
mod traffic;

use super::daemon::{Content, Daemon, Spec, unread};
use super::deliver::{DEST_SWITCH, WAY_KIND_SHIFT};
use super::fdb::counts;
use super::instance::{Form, Instance, LongSlots};
use super::memory::{Destination, Memory, Pool, Word};
use super::mutation::Mutation;
use super::schedule::{Ran, Spawner, alone, run, step};
use super::transmit::{Caller, hyperio, is_up};
use crate::random::Random;
use nfluid_ring::port::Port;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

/// Ports of a run; those from [`FIRST_MEMBER`] on are members of a trust group.
const PLACES: u32 = 7;
const FIRST_MEMBER: u32 = 5;
/// Slots of a ring: the fewest that there may be.
const SLOTS: u32 = 64;
const SWITCHES: u32 = 2;
/// Changes by the daemon.
const CHANGES: u32 = 24;
/// How often the daemon is killed.
const KILLS: u32 = 3;
/// Addresses that each instance teaches.
const ADDRESSES: u8 = 4;
/// More steps than a run has that comes to its end.
const STEPS_MAX: u64 = 20_000_000;

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Accesses to shared memory, each of which was a point of preemption.
    pub steps: u64,
    /// The violated condition.
    pub violation: Option<String>,
}

/// Runs the storm of a seed.
pub fn storm(seed: u64, mutation: Option<Mutation>) -> Outcome {
    let storm = Storm::new(seed, mutation);
    let mut random = Random::new(seed);
    let m = Rc::clone(&storm.m);
    let Ran { steps, is_over } = run(&storm.spawner, &mut random, STEPS_MAX, || !m.audit.holds());
    if !is_over {
        m.audit
            .violated(format!("the run does not end: {}", storm.waits()));
    }
    let violation = m.audit.violation();
    Outcome { steps, violation }
}

/// The present change of a place; the daemon's record, which outlives the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Record {
    Runs,
    /// The instance goes, and another comes.
    Changes,
    /// The instance is started again.
    Restarts,
}

/// The order to an instance's threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    GoOn,
    /// Come to an end, and leave nothing behind.
    Leave,
    /// Killed: a call that is under way is over first.
    Die,
}

/// A process.
#[derive(Debug)]
struct Process {
    order: Cell<Order>,
    senders: Cell<u32>,
    receivers: Cell<u32>,
}

#[derive(Debug)]
struct Place {
    instance: RefCell<Instance>,
    /// Numbers by which instances are distinguished.
    serial: Cell<u32>,
    process: RefCell<Rc<Process>>,
    record: Cell<Record>,
    wants: Cell<Destination>,
    is_served: Cell<bool>,
    /// Position up to which frames were taken.
    taken: Cell<u32>,
    /// Threads of the daemon that deposit frames there.
    fed: Cell<u32>,
    /// A frame on its way whose metadata changes: the slot with the metadata, and the frame's length.
    doubtful: Cell<Option<(u32, usize)>>,
}

struct Storm {
    m: Rc<Memory>,
    places: Vec<Place>,
    spawner: Spawner,
    random: RefCell<Random>,
    group_pool: Rc<Pool>,
    serials: Cell<u32>,
    sent: Cell<u64>,
    changes: Cell<u32>,
    kills: Cell<u32>,
    daemon: RefCell<Vec<u32>>,
    /// The senders are to come to an end; then the I/O thread.
    is_over: Cell<bool>,
    io_is_over: Cell<bool>,
    io_threads: Cell<u32>,
}

fn mac_of(number: u32) -> [u8; 6] {
    [2, 0, 0, 0, 0, number as u8]
}

/// An address that an instance teaches.
fn taught(serial: u32, which: u8) -> [u8; 6] {
    let [a, b, ..] = serial.to_le_bytes();
    [2, 9, a, b, 0, which]
}

fn word_of(mac: [u8; 6]) -> u64 {
    let [a, b, c, d, e, f] = mac;
    u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
}

impl Storm {
    fn new(seed: u64, mutation: Option<Mutation>) -> Rc<Self> {
        let group_slots = (PLACES - FIRST_MEMBER) * 2 * SLOTS;
        let m = Memory::new(
            PLACES as usize,
            SWITCHES as usize + 1,
            group_slots,
            mutation,
        );
        let group_pool = Pool::create(group_slots);
        let place = |number| Place {
            instance: RefCell::new(instance(number, &group_pool, Form::default())),
            serial: Cell::new(0),
            process: RefCell::new(Process::none()),
            record: Cell::new(Record::Changes),
            wants: Cell::new(Destination::Switch(1 + number % SWITCHES)),
            is_served: Cell::new(false),
            taken: Cell::new(0),
            fed: Cell::new(0),
            doubtful: Cell::new(None),
        };
        let storm = Rc::new(Storm {
            places: (0..PLACES).map(place).collect(),
            m,
            spawner: Spawner::default(),
            random: RefCell::new(Random::new(!seed)),
            group_pool,
            serials: Cell::new(0),
            sent: Cell::new(0),
            changes: Cell::new(CHANGES),
            kills: Cell::new(KILLS),
            daemon: RefCell::default(),
            is_over: Cell::new(false),
            io_is_over: Cell::new(false),
            io_threads: Cell::new(1),
        });
        storm.start_daemon(false);
        storm.spawner.spawn(Rc::clone(&storm).io_thread());
        storm.spawner.spawn(Rc::clone(&storm).scribbler());
        storm.spawner.spawn(Rc::clone(&storm).fate());
        storm
    }

    fn below(&self, bound: u32) -> u32 {
        self.random.borrow_mut().below(u64::from(bound)) as u32
    }

    fn numbers(&self) -> std::ops::Range<u32> {
        0..PLACES
    }

    fn place(&self, number: u32) -> &Place {
        &self.places[number as usize]
    }

    fn start_daemon(self: &Rc<Self>, others: bool) {
        let daemon = Daemon::start(&self.m, others);
        let control = Rc::clone(self).control(Rc::clone(&daemon));
        let depositors = [0, u32::MAX]
            .map(|sender| Rc::clone(self).depositor(Rc::clone(&daemon), sender))
            .map(|depositor| self.spawner.spawn(depositor));
        let control = self.spawner.spawn(control);
        *self.daemon.borrow_mut() = [&[control], &depositors[..]].concat();
    }

    /// Kills the daemon now and then, and starts another one.
    async fn fate(self: Rc<Self>) {
        while self.kills.get() > 0 && self.changes.get() > 0 {
            for _ in 0..1 + self.below(20_000) {
                step().await;
            }
            if self.changes.get() == 0 {
                break;
            }
            self.kills.set(self.kills.get() - 1);
            self.daemon
                .borrow()
                .iter()
                .for_each(|actor| self.spawner.kill(*actor));
            // The kill counts when this step is over.
            step().await;
            self.places.iter().for_each(|place| place.fed.set(0));
            self.start_daemon(true);
        }
    }

    async fn control(self: Rc<Self>, daemon: Rc<Daemon>) {
        for number in self.numbers() {
            self.take_over(&daemon, number).await;
        }
        while self.changes.get() > 0 {
            self.change(&daemon).await;
            self.changes.set(self.changes.get() - 1);
        }
        self.end(&daemon).await;
    }

    /// Starts a daemon: another daemon may have been killed in the middle of any operation.
    async fn take_over(self: &Rc<Self>, daemon: &Daemon, number: u32) {
        let place = self.place(number);
        match place.record.get() {
            Record::Changes => self.replace(daemon, number).await,
            Record::Restarts => self.restart(daemon, number).await,
            Record::Runs => {
                let instance = place.instance.borrow().clone();
                daemon.fill_gaps(&instance).await;
                daemon.set_up(number, true).await;
                if place.process.borrow().order.get() != Order::GoOn {
                    self.upgrade(number).await;
                }
            }
        }
        self.connect(daemon, number).await;
    }

    /// Connects a port as it should be.
    async fn connect(&self, daemon: &Daemon, number: u32) {
        let wants = self.place(number).wants.get();
        daemon.connect(number, wants).await;
        if let Destination::Switch(switch) = wants {
            daemon
                .pin_address(switch, word_of(mac_of(number)), number)
                .await;
        }
    }

    async fn change(self: &Rc<Self>, daemon: &Daemon) {
        let number = self.below(PLACES);
        let place = self.place(number);
        match self.below(14) {
            0..3 => {
                daemon.set_up(number, false).await;
                for _ in 0..self.below(200) {
                    step().await;
                }
                daemon.set_up(number, true).await;
            }
            3..6 => {
                place
                    .wants
                    .set(Destination::Switch(1 + self.below(SWITCHES)));
                self.connect(daemon, number).await;
            }
            6 => {
                let peer = (number + 1 + self.below(PLACES - 1)) % PLACES;
                place.wants.set(Destination::Link(peer));
                self.connect(daemon, number).await;
            }
            7 => {
                place.wants.set(Destination::None);
                self.connect(daemon, number).await;
            }
            8 | 13 => {
                self.replace(daemon, number).await;
                place
                    .wants
                    .set(Destination::Switch(1 + self.below(SWITCHES)));
                self.connect(daemon, number).await;
            }
            9 | 12 => self.restart(daemon, number).await,
            10 if number < FIRST_MEMBER => self.upgrade(number).await,
            10 => self.restart(daemon, number).await,
            _ => {
                for number in self.numbers() {
                    daemon.heal(number).await;
                }
                daemon.sweep().await;
            }
        }
    }

    /// Waits until the process of a place has ended.
    async fn stop(&self, number: u32, order: Order) {
        let place = self.place(number);
        while place.fed.get() > 0 {
            step().await;
        }
        let process = Rc::clone(&place.process.borrow());
        process.order.set(order);
        while process.senders.get() + process.receivers.get() > 0 {
            step().await;
        }
    }

    fn start(self: &Rc<Self>, number: u32) {
        let place = self.place(number);
        let [receiver, sender] = place.instance.borrow().attach();
        let process = Process::start();
        *place.process.borrow_mut() = Rc::clone(&process);
        place.taken.set(receiver.taken());
        place.record.set(Record::Runs);
        self.spawner
            .spawn(Rc::clone(self).receiver(number, Rc::clone(&process), receiver));
        self.spawner
            .spawn(Rc::clone(self).sender(number, process, sender));
    }

    /// The instance goes, and its number is another's.
    async fn replace(self: &Rc<Self>, daemon: &Daemon, number: u32) {
        let place = self.place(number);
        while place.fed.get() > 0 {
            step().await;
        }
        place.record.set(Record::Changes);
        self.stop(number, Order::Die).await;
        let gone = place.instance.borrow().clone();
        daemon.remove(&gone).await;
        let reserved = self.m.port(number).rx_reserved.get() as u32;
        let (frames, bytes) = unread(&gone, reserved, place.taken.get());
        self.m.audit.unread(number, frames, bytes);
        // An actor that is killed from here on has nothing left to count.
        let form = self.some_form(number);
        *place.instance.borrow_mut() = instance(number, &self.group_pool, form);
        place.taken.set(form.begins.head);
        let is_learner = number < FIRST_MEMBER;
        let spec = Spec {
            mac: word_of(mac_of(number)),
            learns: is_learner,
            fdb_limit: 64,
        };
        place.is_served.set(self.below(2) == 0);
        let made = place.instance.borrow().clone();
        daemon.enter(&made, spec).await;
        self.serials.set(self.serials.get() + 1);
        place.serial.set(self.serials.get());
        self.start(number);
    }

    /// The process is killed, and another one started in its place.
    async fn restart(self: &Rc<Self>, daemon: &Daemon, number: u32) {
        let place = self.place(number);
        while place.fed.get() > 0 {
            step().await;
        }
        place.record.set(Record::Restarts);
        self.stop(number, Order::Die).await;
        let instance = place.instance.borrow().clone();
        daemon.reclaim(&instance, place.taken.get()).await;
        daemon.set_up(number, true).await;
        self.start(number);
    }

    /// The process ends, and another one goes on where it stopped.
    async fn upgrade(self: &Rc<Self>, number: u32) {
        self.stop(number, Order::Leave).await;
        self.start(number);
    }
}

impl Process {
    fn none() -> Rc<Self> {
        Rc::new(Process {
            order: Cell::new(Order::Die),
            senders: Cell::new(0),
            receivers: Cell::new(0),
        })
    }

    fn start() -> Rc<Self> {
        Rc::new(Process {
            order: Cell::new(Order::GoOn),
            senders: Cell::new(1),
            receivers: Cell::new(1),
        })
    }
}

fn instance(number: u32, shared: &Rc<Pool>, form: Form) -> Instance {
    let group = u32::from(number >= FIRST_MEMBER);
    let shared = (group, (group > 0).then_some(shared));
    Instance::create(number, SLOTS, shared, form)
}
