//! From the rings in use to the signals by which the switch marks and refuses frames.

use super::figures::Figures;
use super::orders::{Orders, WayOrder};
use super::table::InstanceTable;
use crate::{Controller, PortLook, Way, Word};
use nfluid_api::types::PortSignal as ReportedSignal;
use nfluid_control::model::PortRef;
use nfluid_switch::{PortSignal, Switch};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::time::Duration;

/// Lifetime of a signal that is not renewed: if the daemon dies, frames pass unmarked.
const VALID: Duration = Duration::from_millis(250);

/// Positions of each port's rings in the list of chosen rings.
type Positions = BTreeMap<PortRef, Range<usize>>;

/// A direction of a chain, and its state.
struct WayState {
    order: WayOrder,
    way: Way,
}

/// Chooses the rings to look at, and writes their signals.
#[derive(Default)]
pub struct Signaller {
    version: u64,
    controller: Controller,
    backpressure: bool,
    ways: Vec<WayState>,
    /// By instance, the indices of its ways.
    ways_of: HashMap<String, Vec<usize>>,
    /// The ways with a busy instance.
    busy_ways: BTreeSet<usize>,
    /// The instances whose rings are mapped, by number in the table.
    chosen: BTreeSet<usize>,
    positions: Positions,
    /// The signals of the last update, by ring.
    words: Vec<(u32, Word)>,
    /// Ports whose signal in the switch is not the neutral one.
    signalled: BTreeSet<u32>,
}

impl Signaller {
    /// Version of the orders that were applied last.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Applies changed orders. A way that has not changed keeps its state.
    pub fn apply_orders(&mut self, orders: Orders) {
        self.version = orders.version;
        self.backpressure = orders.backpressure;
        if *self.controller.settings() != orders.settings {
            match Controller::new(orders.settings) {
                Ok(controller) => self.controller = controller,
                Err(error) => tracing::error!(%error, "an invalid law is ignored"),
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
                WayState { order, way }
            })
            .collect();
        self.busy_ways.clear();
        self.ways_of.clear();
        for (index, state) in self.ways.iter().enumerate() {
            for name in state.order.owners() {
                let ways = self.ways_of.entry(name.to_owned()).or_default();
                ways.push(index);
            }
        }
    }

    /// Returns true if any signal may have to be written.
    pub fn is_on(&self) -> bool {
        self.marks() || (self.backpressure && !self.ways.is_empty())
    }

    /// Returns true if any core has a law, so that the cores of instances have to be known.
    pub fn marks(&self) -> bool {
        !self.controller.settings().is_off()
    }

    /// Chooses the rings to look at: those of busy instances, and of all instances in a chain with a busy one.
    pub fn choose_rings(&mut self, switch: &Switch, table: &mut InstanceTable) {
        let busy_ways = self.busy_ways(table);
        for left in self.busy_ways.difference(&busy_ways) {
            // No frames wait on this way any more: its averages are out of date.
            if let Some(state) = self.ways.get_mut(*left) {
                state.way = Way::default();
            }
        }
        let mut chosen = table.busy().clone();
        let beside = busy_ways.iter().filter_map(|index| self.ways.get(*index));
        let names = beside.flat_map(|state| state.order.owners());
        chosen.extend(names.filter_map(|name| table.number(name)));
        for number in self.chosen.difference(&chosen) {
            if let Some(one) = table.get_mut(*number) {
                one.set_mapped(switch, false);
            }
        }
        self.busy_ways = busy_ways;
        self.chosen = chosen;
        self.note_positions(switch, table);
    }

    /// The ways with a busy instance.
    fn busy_ways(&self, table: &InstanceTable) -> BTreeSet<usize> {
        let names = table.busy().iter().filter_map(|number| table.get(*number));
        let ways = names.filter_map(|one| self.ways_of.get(&one.subject.name));
        ways.flatten().copied().collect()
    }

    /// Notes the positions of each port's rings in the list of chosen rings.
    fn note_positions(&mut self, switch: &Switch, table: &mut InstanceTable) {
        self.positions.clear();
        let mut next = 0;
        for number in &self.chosen {
            let Some(one) = table.get_mut(*number) else {
                continue;
            };
            one.set_mapped(switch, true);
            let mut first = next;
            next += one.rings.len();
            if one.rings.is_empty() {
                continue;
            }
            for (port, ids) in &one.subject.ports {
                self.positions
                    .insert(port.clone(), first..first + ids.len());
                first += ids.len();
            }
        }
    }

    /// Looks at the chosen rings and writes their signals. Returns true if any frame waits.
    pub fn update(&mut self, switch: &Switch, table: &InstanceTable, now_ns: u64) -> bool {
        let mut looks = Vec::new();
        for one in self.chosen.iter().filter_map(|number| table.get(*number)) {
            looks.extend(one.rings.iter().map(|ring| one.port_look(switch, ring)));
        }
        let mut words = self.controller.update(now_ns, &looks);
        for index in &self.busy_ways {
            let Some(state) = self.ways.get_mut(*index) else {
                continue;
            };
            let inputs = state.order.inputs.iter();
            let positions = inputs.map(|port| self.positions.get(port));
            let rings: Vec<Option<PortLook>> =
                positions.map(|at| sum_of_queues(at, &looks)).collect();
            let refuses = state.way.update(now_ns, &rings) && self.backpressure;
            let entry = state.order.inputs.first();
            let entry = entry.and_then(|port| self.positions.get(port)).cloned();
            for word in entry.and_then(|at| words.get_mut(at)).into_iter().flatten() {
                word.refuse |= refuses;
            }
        }
        self.words = looks.iter().map(|look| look.port).zip(words).collect();
        self.write_signals(switch);
        looks.iter().any(|look| look.waiting > 0)
    }

    /// Writes the signals. A signal expires, so each one that is not neutral is renewed in every update.
    fn write_signals(&mut self, switch: &Switch) {
        let mut stale = std::mem::take(&mut self.signalled);
        for (port, word) in &self.words {
            if *word != Word::default() {
                write_signal(switch, *port, *word);
                self.signalled.insert(*port);
                stale.remove(port);
            }
        }
        for port in stale {
            write_signal(switch, port, Word::default());
        }
    }

    /// Takes back all signals.
    pub fn clear_signals(&mut self, switch: &Switch) {
        self.words.clear();
        self.write_signals(switch);
    }

    /// Reports the current signals, probabilities and bottlenecks.
    pub fn report(&self, figures: &mut Figures) {
        figures.signals.clear();
        for (port, at) in &self.positions {
            let words = self.words.get(at.clone()).unwrap_or_default();
            let words = words.iter().map(|(_, word)| word);
            let strongest = words.clone().map(|word| word.probability).max();
            let refuses = words.clone().any(|word| word.refuse);
            if strongest.unwrap_or(0) > 0 || refuses {
                let signal = ReportedSignal {
                    probability: fraction(strongest.unwrap_or(0)),
                    refuses,
                };
                figures.signals.insert(port.clone(), signal);
            }
        }
        let cores = self.controller.cores();
        figures.cores = cores.map(|(core, p)| (core, fraction(p))).collect();
        figures.bottlenecks.clear();
        let busy = self.busy_ways.iter();
        for state in busy.filter_map(|index| self.ways.get(*index)) {
            let order = &state.order;
            let index = state.way.bottleneck();
            let bottleneck = index.and_then(|index| order.inputs.get(index)?.owner());
            if let Some(name) = bottleneck {
                let key = (order.chain.clone(), order.forward);
                figures.bottlenecks.insert(key, name.to_owned());
            }
        }
    }
}

fn write_signal(switch: &Switch, port: u32, word: Word) {
    let signal = PortSignal {
        probability: word.probability,
        is_refused: word.refuse,
    };
    if let Err(error) = switch.set_signal(port, signal, VALID) {
        tracing::error!(port, %error, "writing a congestion signal");
    }
}

/// A probability as a number between 0 and 1.
fn fraction(probability: u32) -> f64 {
    f64::from(probability) / f64::from(u32::MAX)
}

/// The queues of a port, added up as one ring.
fn sum_of_queues(at: Option<&Range<usize>>, looks: &[PortLook]) -> Option<PortLook> {
    let queues = looks.get(at?.clone())?;
    let mut sum = *queues.first()?;
    for more in queues.iter().skip(1) {
        sum.waiting = sum.waiting.saturating_add(more.waiting);
        sum.slots = sum.slots.saturating_add(more.slots);
    }
    Some(sum)
}
