//! A core (or a link) with its rings.

use super::Packet;
use super::congestion::{Congestion, Marking};
use super::service::{Scheduler, Service};
use nfluid_marking::{LawError, Ring as Waiting, delay_ns};
use std::collections::VecDeque;

/// Packets of the same cost: those of one network function, or of one flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class {
    /// The ring that they wait in.
    pub ring: usize,
    /// Time that one takes, nanoseconds.
    pub cost_ns: u64,
}

/// Counters of the packets of a class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets that arrived.
    pub arrived: u64,
    /// Packets that were served.
    pub served: u64,
    /// Time spent on them, nanoseconds.
    pub used_ns: u64,
    /// The ring was full.
    pub dropped_full: u64,
    /// A signal for those that cannot be marked.
    pub dropped_early: u64,
    /// A signal for the others.
    pub marked: u64,
}

impl Counts {
    /// Returns the counts since `before`.
    pub fn since(&self, before: &Counts) -> Counts {
        Counts {
            arrived: self.arrived - before.arrived,
            served: self.served - before.served,
            used_ns: self.used_ns - before.used_ns,
            dropped_full: self.dropped_full - before.dropped_full,
            dropped_early: self.dropped_early - before.dropped_early,
            marked: self.marked - before.marked,
        }
    }
}

/// The treatment of a packet that arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// The packet waits.
    Queued,
    /// The packet is dropped.
    Dropped,
}

/// A server of packets.
#[derive(Debug)]
pub struct Station {
    classes: Vec<Class>,
    counts: Vec<Counts>,
    /// Waiting packets with their class.
    rings: Vec<VecDeque<(usize, Packet)>>,
    slots: usize,
    scheduler: Scheduler,
    batch: usize,
    congestion: Option<Congestion>,
    waiting: Vec<Waiting>,
    /// The turn that goes on.
    turn: Vec<(usize, Packet)>,
}

impl Station {
    /// An idle one, with rings of so many slots and turns of at most so many packets.
    ///
    /// # Errors
    /// The law of the marking makes no sense.
    pub fn new(
        classes: &[Class],
        slots: usize,
        service: Service,
        batch: usize,
        marking: Option<Marking>,
    ) -> Result<Self, LawError> {
        let rings = classes
            .iter()
            .map(|class| class.ring + 1)
            .max()
            .unwrap_or(0);
        let costs_ns: Vec<u64> = classes.iter().map(|class| class.cost_ns).collect();
        let waiting = |&cost_ns: &u64| Waiting {
            occupancy: 0,
            cost_ns,
        };
        Ok(Station {
            classes: classes.to_vec(),
            counts: vec![Counts::default(); classes.len()],
            rings: vec![VecDeque::new(); rings],
            slots,
            scheduler: Scheduler::new(service, rings),
            batch,
            congestion: marking
                .map(|marking| Congestion::new(marking, &costs_ns))
                .transpose()?,
            waiting: costs_ns.iter().map(waiting).collect(),
            turn: Vec::new(),
        })
    }

    /// Counts of each class.
    pub fn counts(&self) -> &[Counts] {
        &self.counts
    }

    /// Packets that wait or are being served.
    pub fn held(&self) -> usize {
        self.turn.len() + self.rings.iter().map(VecDeque::len).sum::<usize>()
    }

    /// The time that what waits is going to take, nanoseconds.
    pub fn delay_ns(&self) -> u64 {
        delay_ns(&self.waiting)
    }

    /// Samples the waiting packets, to update the probability of signals.
    pub fn sample(&mut self, now_ns: u64) {
        if let Some(congestion) = &mut self.congestion {
            congestion.sample(now_ns, &self.waiting);
        }
    }

    /// A packet arrives; `random` decides whether it gets a signal.
    pub fn enter(&mut self, class: usize, mut packet: Packet, random: u32) -> Entry {
        let counts = &mut self.counts[class];
        counts.arrived += 1;
        let ring = &mut self.rings[self.classes[class].ring];
        if ring.len() >= self.slots {
            counts.dropped_full += 1;
            return Entry::Dropped;
        }
        if self
            .congestion
            .as_ref()
            .is_some_and(|c| c.signals(class, random))
        {
            if !packet.can_be_marked {
                counts.dropped_early += 1;
                return Entry::Dropped;
            }
            counts.marked += 1;
            packet.marked = true;
        }
        if ring.is_empty() {
            self.scheduler.wakes(self.classes[class].ring);
        }
        ring.push_back((class, packet));
        self.waiting[class].occupancy += 1;
        Entry::Queued
    }

    /// Begins a turn, if none goes on and something waits; returns how long it takes, nanoseconds.
    pub fn begin_turn(&mut self) -> Option<u64> {
        if !self.turn.is_empty() {
            return None;
        }
        let rings = &self.rings;
        let chosen = self.scheduler.choose(|ring| !rings[ring].is_empty())?;
        let mut turn_ns = 0;
        while self.turn.len() < self.batch {
            let Some(&(class, packet)) = self.rings[chosen].front() else {
                break;
            };
            let cost_ns = self.classes[class].cost_ns;
            if !self.turn.is_empty() && turn_ns + cost_ns > self.scheduler.turn_ns_max() {
                break;
            }
            turn_ns += cost_ns;
            self.counts[class].used_ns += cost_ns;
            self.waiting[class].occupancy -= 1;
            self.rings[chosen].pop_front();
            self.turn.push((class, packet));
        }
        self.scheduler.charge(chosen, turn_ns);
        Some(turn_ns)
    }

    /// Ends the turn; its packets go on, all at once: a batch is sent when it is done.
    pub fn end_turn(&mut self, mut go_on: impl FnMut(Packet)) {
        for (class, packet) in self.turn.drain(..) {
            self.counts[class].served += 1;
            go_on(packet);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Class, Entry, Station};
    use crate::network::{Packet, Service};

    const FAIR: Service = Service::CpuFair { quantum_ns: None };
    const PACKET: Packet = Packet {
        subflow: 0,
        hop: 0,
        number: 0,
        sequence: 0,
        can_be_marked: true,
        marked: false,
    };

    /// CPU time in percent that a class gets whose packets cost 1 us, beside one of 10 us, both with
    /// packets waiting at all times.
    fn cheap_percent(service: Service, batch: usize) -> f64 {
        let classes = [(0, 1000), (1, 10_000)].map(|(ring, cost_ns)| Class { ring, cost_ns });
        let mut station = Station::new(&classes, 256, service, batch, None).unwrap();
        for _ in 0..2000 {
            for class in 0..2 {
                while station.enter(class, PACKET, 0) == Entry::Queued {}
            }
            station.begin_turn().unwrap();
            station.end_turn(|_| {});
        }
        let used: Vec<f64> = station.counts().iter().map(|c| c.used_ns as f64).collect();
        used[0] / (used[0] + used[1]) * 100.0
    }

    #[test]
    fn turns_are_packet_fair_cpu_fair_or_neither_by_batch_and_quantum() {
        let turns = |quantum_ns| Service::Turns {
            quantum_ns: Some(quantum_ns),
        };
        let near = |percent: f64, expected: f64| (percent - expected).abs() < 1.0;
        assert!(
            near(cheap_percent(turns(10_000_000), 32), 100.0 / 11.0),
            "packet-fair"
        );
        assert!(
            near(cheap_percent(turns(20_000), 64), 50.0),
            "both beyond the quantum"
        );
        // R3: a batch of 32 us against a quantum of 160 us.
        assert!(
            near(cheap_percent(turns(160_000), 32), 32.0 / 192.0 * 100.0),
            "neither"
        );
        let packets = Service::Turns { quantum_ns: None };
        assert!(near(cheap_percent(packets, 1), 100.0 / 11.0));
        for batch in [1, 32, 200] {
            assert!(near(cheap_percent(FAIR, batch), 50.0), "{batch}");
        }
    }

    #[test]
    fn a_ring_that_was_empty_has_saved_nothing() {
        let classes = [0, 1].map(|ring| Class { ring, cost_ns: 10 });
        let mut station = Station::new(&classes, 8, FAIR, 1, None).unwrap();
        for _ in 0..1000 {
            station.enter(0, PACKET, 0);
            station.begin_turn();
            station.end_turn(|_| {});
        }
        for class in [0, 0, 0, 1, 1, 1] {
            station.enter(class, PACKET, 0);
        }
        for _ in 0..4 {
            station.begin_turn();
            station.end_turn(|_| {});
        }
        let served: Vec<u64> = station.counts().iter().map(|c| c.served).collect();
        assert_eq!(served, [1002, 2]);
    }

    #[test]
    fn a_full_ring_drops_and_counts() {
        let class = [Class {
            ring: 0,
            cost_ns: 10,
        }];
        let mut station = Station::new(&class, 2, FAIR, 1, None).unwrap();
        let entries: Vec<_> = (0..3).map(|_| station.enter(0, PACKET, 0)).collect();
        assert_eq!(entries, [Entry::Queued, Entry::Queued, Entry::Dropped]);
        assert_eq!((station.held(), station.delay_ns()), (2, 20));
        assert_eq!(station.counts()[0].dropped_full, 1);
    }
}
