//! Per core: how likely frames for each ring are marked.

use nfluid_marking::{
    Law, LawError, NEVER, Ring, Signal, cheapest_ns, delay_ns, frames, probability,
};
use std::collections::BTreeMap;

/// A ring from which nothing was taken for so long, although frames wait, gives no evidence about its core: its
/// instance stands still, and its neighbours shall not pay for that. Longer than a hundred busy neighbours take for
/// their turns.
const STILL_NS: u64 = 500_000_000;

/// A delay to aim at is raised to so many of the dearest packets: a TCP sender that has fewer than about eight on their way
/// stands still at a loss instead of slowing down (RFC 5681), and the law needs as many of the others'.
const PACKETS_LEAST: u64 = 16;
/// The target delay is lowered to this part of the time of the frames that the core's rings hold: beyond it, the
/// rings overflow before the target is reached.
const CAPACITY_PART: u64 = 4;
/// A ring in which no more frames wait is spared, however late its core is: its instance keeps up with its traffic. A
/// signal would report others' queues to its senders, and a neighbour that floods, or lies in its ring, would take
/// their frames (RFC 8033, section 4.1, says the same of a whole queue).
const SPARED_FRAMES: u32 = 2;
/// A ring that is full to this part of it counts as a delay of the whole target: a cheap instance's ring overflows
/// after microseconds.
const FILLED_PART: u64 = 2;
/// A part of a ring has this many bits after the point.
const FILLED_SHIFT: u32 = 32;

/// Which law which core has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// The law of cores that are not named; absent: their frames are never marked.
    pub law: Option<Law>,
    /// The laws of these cores.
    pub cores: BTreeMap<u32, Option<Law>>,
}

impl Settings {
    /// The law of a core.
    pub fn law_of(&self, core: u32) -> Option<Law> {
        self.cores.get(&core).copied().unwrap_or(self.law)
    }

    /// Returns true if no core has a law.
    pub fn is_off(&self) -> bool {
        self.law.is_none() && self.cores.values().all(Option::is_none)
    }
}

/// A sample of a ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortSample {
    /// The port's number on the platform.
    pub port: u32,
    /// The core on which its instance runs; absent: unknown.
    pub core: Option<u32>,
    /// Frames that wait.
    pub waiting: u32,
    /// Slots.
    pub slots: u32,
    /// Position up to which the instance has read, as it says.
    pub read_to: u32,
    /// CPU time of a packet in nanoseconds; 0: unknown.
    pub cost_ns: u64,
}

/// The switch's treatment of frames for a ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Word {
    /// Marks, or drops, with this probability: 2^32 would be 1.
    pub probability: u32,
    /// Refuses them.
    pub refuse: bool,
}

#[derive(Debug)]
struct Core {
    law: Law,
    signal: Signal,
    rings: Vec<Ring>,
    room: Room,
}

/// The free room in the rings of a core.
#[derive(Clone, Copy, Debug, Default)]
struct Room {
    /// The time that the core needs for as much as they hold.
    capacity_ns: u64,
    /// The dearest packet.
    dearest_ns: u64,
    /// The filling of the fullest ring, 2^32 for a full one.
    fullest: u64,
}

impl Room {
    fn add(&mut self, ring: Ring, slots: u32) {
        let whole_ns = u64::from(slots).saturating_mul(ring.cost_ns);
        self.capacity_ns = self.capacity_ns.saturating_add(whole_ns);
        self.dearest_ns = self.dearest_ns.max(ring.cost_ns);
        let filled = (u64::from(ring.occupancy) << FILLED_SHIFT) / u64::from(slots.max(1));
        self.fullest = self.fullest.max(filled);
    }
}

impl Core {
    fn clear(&mut self) {
        self.rings.clear();
        self.room = Room::default();
    }

    fn add(&mut self, ring: Ring, slots: u32) {
        self.rings.push(ring);
        self.room.add(ring, slots);
    }

    fn update(&mut self, now_ns: u64) {
        match self.law {
            Law::Red(_) => self.signal.update(now_ns, &self.rings),
            Law::Pie(law) => self.signal.update(now_ns, &self.as_one(law.target_ns)),
        };
    }

    /// Returns a single ring with the delay of all rings, relative to a target that they can reach.
    fn as_one(&self, target_ns: u64) -> [Ring; 1] {
        let reachable_ns = (self.room.dearest_ns)
            .saturating_mul(PACKETS_LEAST)
            .max(target_ns)
            .min(self.room.capacity_ns / CAPACITY_PART)
            .max(1);
        let late =
            u128::from(delay_ns(&self.rings)) * u128::from(target_ns) / u128::from(reachable_ns);
        let parts = u128::from(self.room.fullest) * u128::from(FILLED_PART);
        let filled = (parts * u128::from(target_ns)) >> FILLED_SHIFT;
        let waiting = frames(&self.rings);
        let delay = late.max(filled) / u128::from(waiting.max(1));
        [Ring {
            occupancy: u32::try_from(waiting).unwrap_or(u32::MAX),
            cost_ns: u64::try_from(delay).unwrap_or(u64::MAX),
        }]
    }
}

/// When a ring was last read from.
#[derive(Clone, Copy, Debug)]
struct Progress {
    read_to: u32,
    at_ns: u64,
}

/// The controller of a platform's cores.
#[derive(Debug, Default)]
pub struct Controller {
    settings: Settings,
    cores: BTreeMap<u32, Core>,
    progress: BTreeMap<u32, Progress>,
}

impl Controller {
    /// A controller without a past.
    ///
    /// # Errors
    /// A law that makes no sense.
    pub fn new(settings: Settings) -> Result<Self, LawError> {
        let laws = settings.cores.values().chain([&settings.law]).flatten();
        for law in laws {
            Signal::new(*law)?;
        }
        Ok(Controller {
            settings,
            ..Controller::default()
        })
    }

    /// Which law which core has.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Takes the samples of all rings in use, at `now_ns` of a monotonic clock. Returns the word of each ring, in the
    /// same order.
    pub fn update(&mut self, now_ns: u64, ports: &[PortSample]) -> Vec<Word> {
        for core in self.cores.values_mut() {
            core.clear();
        }
        let mut progress = BTreeMap::new();
        for sample in ports {
            let at_ns = self.read_at(now_ns, sample);
            let read_to = sample.read_to;
            progress.insert(sample.port, Progress { read_to, at_ns });
            let stands = sample.waiting > 0 && now_ns.saturating_sub(at_ns) > STILL_NS;
            if let Some(core) = sample.core
                && !stands
            {
                self.put(core, sample);
            }
        }
        self.progress = progress;
        for core in self.cores.values_mut() {
            core.update(now_ns);
        }
        ports.iter().map(|sample| self.word(sample)).collect()
    }

    /// When the ring was last seen to be read from, or to be empty.
    fn read_at(&self, now_ns: u64, sample: &PortSample) -> u64 {
        match self.progress.get(&sample.port) {
            Some(before) if before.read_to == sample.read_to && sample.waiting > 0 => before.at_ns,
            _ => now_ns,
        }
    }

    fn put(&mut self, core: u32, sample: &PortSample) {
        let Some(law) = self.settings.law_of(core) else {
            return;
        };
        let ring = Ring {
            occupancy: sample.waiting,
            cost_ns: sample.cost_ns,
        };
        if let Some(known) = self.cores.get_mut(&core) {
            known.add(ring, sample.slots);
        } else if let Ok(signal) = Signal::new(law) {
            let mut found = Core {
                law,
                signal,
                rings: Vec::new(),
                room: Room::default(),
            };
            found.add(ring, sample.slots);
            self.cores.insert(core, found);
        }
    }

    fn word(&self, sample: &PortSample) -> Word {
        let core = sample.core.and_then(|core| self.cores.get(&core));
        let core = core.filter(|_| sample.waiting > SPARED_FRAMES);
        Word {
            probability: core.map_or(NEVER, |core| {
                let cheapest = cheapest_ns(&core.rings);
                probability(core.signal.probability(), sample.cost_ns, cheapest)
            }),
            refuse: false,
        }
    }

    /// The probability of each core that has been seen, before it is scaled by costs: 2^32 would be 1.
    pub fn cores(&self) -> impl Iterator<Item = (u32, u32)> {
        let cores = self.cores.iter();
        cores.map(|(core, state)| (*core, state.signal.probability()))
    }
}
