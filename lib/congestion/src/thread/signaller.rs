//! From the rings in use to the signals by which the switch marks and refuses frames.

use super::figures::Figures;
use super::orders::{DirectionOrder, Orders};
use super::table::InstanceTable;
use crate::{Controller, Direction, PortSample, Word};
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
struct DirectionState {
    order: DirectionOrder,
    direction: Direction,
}

/// Chooses the rings to sample, and writes their signals.
#[derive(Default)]
pub struct Signaller {
    version: u64,
    controller: Controller,
    backpressure: bool,
    directions: Vec<DirectionState>,
    /// By instance, the indices of its directions.
    directions_of: HashMap<String, Vec<usize>>,
    /// The directions with a busy instance.
    busy_directions: BTreeSet<usize>,
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

    /// Applies changed orders. A direction that has not changed keeps its state.
    pub fn apply_orders(&mut self, orders: Orders) {
        self.version = orders.version;
        self.backpressure = orders.backpressure;
        if *self.controller.settings() != orders.settings {
            match Controller::new(orders.settings) {
                Ok(controller) => self.controller = controller,
                Err(error) => tracing::error!(%error, "an invalid law is ignored"),
            }
        }
        let mut before = std::mem::take(&mut self.directions);
        self.directions = orders
            .directions
            .into_iter()
            .map(|order| {
                let known = before.iter_mut().find(|known| {
                    known.order.chain == order.chain
                        && known.order.forward == order.forward
                        && known.order.inputs == order.inputs
                });
                let direction = known.map_or_else(Direction::default, |known| {
                    std::mem::take(&mut known.direction)
                });
                DirectionState { order, direction }
            })
            .collect();
        self.busy_directions.clear();
        self.directions_of.clear();
        for (index, state) in self.directions.iter().enumerate() {
            for name in state.order.owners() {
                let directions = self.directions_of.entry(name.to_owned()).or_default();
                directions.push(index);
            }
        }
    }

    /// Returns true if any signal may have to be written.
    pub fn is_on(&self) -> bool {
        self.marks() || (self.backpressure && !self.directions.is_empty())
    }

    /// Returns true if any core has a law, so that the cores of instances have to be known.
    pub fn marks(&self) -> bool {
        !self.controller.settings().is_off()
    }

    /// Chooses the rings to sample: those of busy instances, and of all instances in a chain with a busy one.
    pub fn choose_rings(&mut self, switch: &Switch, table: &mut InstanceTable) {
        let busy_directions = self.busy_directions(table);
        for left in self.busy_directions.difference(&busy_directions) {
            // No frames wait in this direction any more: its averages are out of date.
            if let Some(state) = self.directions.get_mut(*left) {
                state.direction = Direction::default();
            }
        }
        let mut chosen = table.busy().clone();
        let beside = busy_directions
            .iter()
            .filter_map(|index| self.directions.get(*index));
        let names = beside.flat_map(|state| state.order.owners());
        chosen.extend(names.filter_map(|name| table.number(name)));
        for number in self.chosen.difference(&chosen) {
            if let Some(one) = table.get_mut(*number) {
                one.set_mapped(switch, false);
            }
        }
        self.busy_directions = busy_directions;
        self.chosen = chosen;
        self.note_positions(switch, table);
    }

    /// The directions with a busy instance.
    fn busy_directions(&self, table: &InstanceTable) -> BTreeSet<usize> {
        let names = table.busy().iter().filter_map(|number| table.get(*number));
        let directions = names.filter_map(|one| self.directions_of.get(&one.subject.name));
        directions.flatten().copied().collect()
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

    /// Samples the chosen rings and writes their signals. Returns true if any frame waits.
    pub fn update(&mut self, switch: &Switch, table: &InstanceTable, now_ns: u64) -> bool {
        let mut samples = Vec::new();
        for one in self.chosen.iter().filter_map(|number| table.get(*number)) {
            samples.extend(one.rings.iter().map(|ring| one.port_sample(switch, ring)));
        }
        let mut words = self.controller.update(now_ns, &samples);
        for index in &self.busy_directions {
            let Some(state) = self.directions.get_mut(*index) else {
                continue;
            };
            let inputs = state.order.inputs.iter();
            let positions = inputs.map(|port| self.positions.get(port));
            let rings: Vec<Option<PortSample>> =
                positions.map(|at| sum_of_queues(at, &samples)).collect();
            let refuses = state.direction.update(now_ns, &rings) && self.backpressure;
            let entry = state.order.inputs.first();
            let entry = entry.and_then(|port| self.positions.get(port)).cloned();
            for word in entry.and_then(|at| words.get_mut(at)).into_iter().flatten() {
                word.refuse |= refuses;
            }
        }
        self.words = samples
            .iter()
            .map(|sample| sample.port)
            .zip(words)
            .collect();
        self.write_signals(switch);
        samples.iter().any(|sample| sample.waiting > 0)
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
        let busy = self.busy_directions.iter();
        for state in busy.filter_map(|index| self.directions.get(*index)) {
            let order = &state.order;
            let index = state.direction.bottleneck();
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
fn sum_of_queues(at: Option<&Range<usize>>, samples: &[PortSample]) -> Option<PortSample> {
    let queues = samples.get(at?.clone())?;
    let mut sum = *queues.first()?;
    for more in queues.iter().skip(1) {
        sum.waiting = sum.waiting.saturating_add(more.waiting);
        sum.slots = sum.slots.saturating_add(more.slots);
    }
    Some(sum)
}
