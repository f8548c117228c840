//! The fast side: from the rings that are in use to the words by which the switch marks and refuses.

use super::figures::Figures;
use super::orders::{Orders, WayOrder};
use super::roll::Roll;
use nfluid_api::types::PortSignal as Told;
use nfluid_congestion::{Controller, PortLook, Way, Word};
use nfluid_control::model::PortRef;
use nfluid_switch::{PortSignal, Switch};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::time::Duration;

/// How long a word counts that is not renewed: if the daemon dies, frames pass as they are.
const VALID: Duration = Duration::from_millis(250);

/// Where in the list of rings those of a port are.
type Places = BTreeMap<PortRef, Range<usize>>;

/// A chain's direction, and how it is.
struct FollowedWay {
    order: WayOrder,
    way: Way,
}

/// Whoever is at work, and what is done about it.
#[derive(Default)]
pub struct Following {
    version: u64,
    controller: Controller,
    backpressure: bool,
    ways: Vec<FollowedWay>,
    /// By instance, the ways that it is on.
    ways_of: HashMap<String, Vec<usize>>,
    /// The ways on which somebody is at work.
    busy_ways: BTreeSet<usize>,
    /// Whose rings are mapped, by number in the roll.
    followed: BTreeSet<usize>,
    places: Places,
    /// As of the last turn, by ring.
    words: Vec<(u32, Word)>,
    /// Ports whose words say something.
    written: BTreeSet<u32>,
}

impl Following {
    /// Of the orders that were taken over last.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Takes over orders that have changed.
    pub fn obey(&mut self, orders: Orders) {
        self.version = orders.version;
        self.backpressure = orders.backpressure;
        if *self.controller.settings() != orders.settings {
            match Controller::new(orders.settings) {
                Ok(controller) => self.controller = controller,
                Err(error) => tracing::error!(%error, "a law that cannot be followed"),
            }
        }
        let mut before = std::mem::take(&mut self.ways);
        self.ways = orders
            .ways
            .into_iter()
            .map(|order| {
                let known = before.iter_mut().find(|known| {
                    known.order.chain == order.chain
                        && known.order.forward == order.forward
                        && known.order.inputs == order.inputs
                });
                let way = known.map_or_else(Way::default, |known| std::mem::take(&mut known.way));
                FollowedWay { order, way }
            })
            .collect();
        self.busy_ways.clear();
        self.ways_of.clear();
        for (index, followed) in self.ways.iter().enumerate() {
            for name in followed.order.owners() {
                let ways = self.ways_of.entry(name.to_owned()).or_default();
                ways.push(index);
            }
        }
    }

    /// Whether anything may have to be written.
    pub fn is_on(&self) -> bool {
        self.marks() || (self.backpressure && !self.ways.is_empty())
    }

    /// Whether any core marks, so that it has to be known who runs where.
    pub fn marks(&self) -> bool {
        !self.controller.settings().is_off()
    }

    /// Chooses the rings to follow: those of instances at work, and of all that are in a chain with one of them.
    pub fn choose(&mut self, switch: &Switch, roll: &mut Roll) {
        let busy_ways = self.busy_ways(roll);
        for left in self.busy_ways.difference(&busy_ways) {
            // Nothing waits on it any more: what was known of it is of the past.
            if let Some(followed) = self.ways.get_mut(*left) {
                followed.way = Way::default();
            }
        }
        let mut chosen = roll.at_work().clone();
        let beside = busy_ways.iter().filter_map(|index| self.ways.get(*index));
        let names = beside.flat_map(|followed| followed.order.owners());
        chosen.extend(names.filter_map(|name| roll.number(name)));
        for number in self.followed.difference(&chosen) {
            if let Some(one) = roll.get_mut(*number) {
                one.follow(switch, false);
            }
        }
        self.busy_ways = busy_ways;
        self.followed = chosen;
        self.place(switch, roll);
    }

    /// The ways on which somebody is at work.
    fn busy_ways(&self, roll: &Roll) -> BTreeSet<usize> {
        let names = roll.at_work().iter().filter_map(|number| roll.get(*number));
        let ways = names.filter_map(|one| self.ways_of.get(&one.subject.name));
        ways.flatten().copied().collect()
    }

    /// Notes where in the list of rings those of each port are.
    fn place(&mut self, switch: &Switch, roll: &mut Roll) {
        self.places.clear();
        let mut next = 0;
        for number in &self.followed {
            let Some(one) = roll.get_mut(*number) else {
                continue;
            };
            one.follow(switch, true);
            let mut first = next;
            next += one.rings.len();
            if one.rings.is_empty() {
                continue;
            }
            for (port, ids) in &one.subject.ports {
                self.places.insert(port.clone(), first..first + ids.len());
                first += ids.len();
            }
        }
    }

    /// Looks at the rings and writes what is to become of frames for them. Whether any frame waits.
    pub fn turn(&mut self, switch: &Switch, roll: &Roll, now_ns: u64) -> bool {
        let mut looks = Vec::new();
        for one in self.followed.iter().filter_map(|number| roll.get(*number)) {
            looks.extend(one.rings.iter().map(|ring| one.port_look(switch, ring)));
        }
        let mut found = self.controller.update(now_ns, &looks);
        for index in &self.busy_ways {
            let Some(followed) = self.ways.get_mut(*index) else {
                continue;
            };
            let places = followed
                .order
                .inputs
                .iter()
                .map(|port| self.places.get(port));
            let rings: Vec<Option<PortLook>> = places.map(|at| together(at, &looks)).collect();
            let refuses = followed.way.update(now_ns, &rings) && self.backpressure;
            let entry = followed.order.inputs.first();
            let entry = entry.and_then(|port| self.places.get(port)).cloned();
            for word in entry.and_then(|at| found.get_mut(at)).into_iter().flatten() {
                word.refuse |= refuses;
            }
        }
        let words = looks.iter().map(|look| look.port).zip(found);
        self.words = words.collect();
        self.write(switch);
        looks.iter().any(|look| look.waiting > 0)
    }

    /// Words count for a while only: those that say something are renewed in every turn.
    fn write(&mut self, switch: &Switch) {
        let mut stale = std::mem::take(&mut self.written);
        for (port, word) in &self.words {
            if *word != Word::default() {
                write(switch, *port, *word);
                self.written.insert(*port);
                stale.remove(port);
            }
        }
        for port in stale {
            write(switch, port, Word::default());
        }
    }

    /// Nobody is at work: what was written is taken back.
    pub fn rest(&mut self, switch: &Switch) {
        self.words.clear();
        self.write(switch);
    }

    /// Tells what is so now.
    pub fn tell(&self, figures: &mut Figures) {
        figures.signals.clear();
        for (port, at) in &self.places {
            let words = self.words.get(at.clone()).unwrap_or_default();
            let said = words.iter().map(|(_, word)| word);
            let strongest = said.clone().map(|word| word.probability).max();
            let refuses = said.clone().any(|word| word.refuse);
            if strongest.unwrap_or(0) > 0 || refuses {
                let signal = Told {
                    probability: part(strongest.unwrap_or(0)),
                    refuses,
                };
                figures.signals.insert(port.clone(), signal);
            }
        }
        let cores = self.controller.cores();
        figures.cores = cores.map(|(core, p)| (core, part(p))).collect();
        figures.bottlenecks.clear();
        let busy = self.busy_ways.iter();
        for followed in busy.filter_map(|index| self.ways.get(*index)) {
            let order = &followed.order;
            let index = followed.way.bottleneck();
            let held_up = index.and_then(|index| order.inputs.get(index)?.owner());
            if let Some(name) = held_up {
                let key = (order.chain.clone(), order.forward);
                figures.bottlenecks.insert(key, name.to_owned());
            }
        }
    }
}

fn write(switch: &Switch, port: u32, word: Word) {
    let signal = PortSignal {
        probability: word.probability,
        is_refused: word.refuse,
    };
    if let Err(error) = switch.set_signal(port, signal, VALID) {
        tracing::error!(port, %error, "telling the switch of congestion");
    }
}

/// A probability between 0 and 1.
fn part(probability: u32) -> f64 {
    f64::from(probability) / f64::from(u32::MAX)
}

/// The queues of a port as one ring.
fn together(at: Option<&Range<usize>>, looks: &[PortLook]) -> Option<PortLook> {
    let queues = looks.get(at?.clone())?;
    let mut sum = *queues.first()?;
    for more in queues.iter().skip(1) {
        sum.waiting = sum.waiting.saturating_add(more.waiting);
        sum.slots = sum.slots.saturating_add(more.slots);
    }
    Some(sum)
}
