//! Carries out a plan, event by event.

use crate::events::Events;
use crate::network::congestion::SAMPLE_NS;
use crate::network::{Entry, Packet, Station};
use crate::outcome::{Books, Delay, Moment, Outcome};
use crate::plan::{Plan, PlanError, Route};
use crate::random::Random;
use crate::tcp::congestion::Subflow;
use crate::tcp::{Receiver, Sender};
use std::ops::Range;

enum Event {
    Start {
        connection: usize,
    },
    Stop {
        connection: usize,
    },
    /// At the station of the packet's hop.
    Arrive(Packet),
    TurnEnds {
        station: usize,
    },
    Acknowledged {
        flow: usize,
        number: u64,
        marked: bool,
    },
    Deadline {
        flow: usize,
    },
    Sample,
    Trace,
    Measure,
    End,
}

/// Both ends of a subflow.
struct Flow {
    connection: usize,
    /// Which of the connection's.
    own: usize,
    sender: Sender,
    receiver: Receiver,
    sent: u64,
    /// When the last packet left.
    departed_ns: u64,
    /// True if an [`Event::Deadline`] is on its way.
    is_watched: bool,
}

/// A simulation that goes on.
pub struct Simulation<'a> {
    plan: &'a Plan,
    events: Events<Event>,
    random: Random,
    stations: Vec<Station>,
    flows: Vec<Flow>,
    /// The flows of each connection.
    subflows: Vec<Range<usize>>,
    siblings: Vec<Subflow>,
    travelling: u64,
    dropped: u64,
    delays: Vec<Delay>,
    before: Option<Outcome>,
    trace: Vec<Moment>,
}

/// Carries out a plan.
///
/// # Errors
/// The plan makes no sense, or is too large.
pub fn run(plan: &Plan) -> Result<Outcome, PlanError> {
    plan.validate()?;
    Ok(Simulation::new(plan)?.run())
}

impl<'a> Simulation<'a> {
    fn new(plan: &'a Plan) -> Result<Self, PlanError> {
        let stations = plan.stations.iter().map(|node| {
            Station::new(
                &node.classes,
                node.slots,
                node.service,
                node.batch,
                node.marking,
            )
        });
        let stations = stations.collect::<Result<Vec<_>, _>>()?;
        let mut flows = Vec::new();
        let mut subflows = Vec::new();
        for (connection, planned) in plan.connections.iter().enumerate() {
            let begin = flows.len();
            flows.extend((0..planned.routes.len()).map(|own| Flow {
                connection,
                own,
                sender: Sender::new(planned.control),
                receiver: Receiver::default(),
                sent: 0,
                departed_ns: 0,
                is_watched: false,
            }));
            subflows.push(begin..flows.len());
        }
        Ok(Simulation {
            plan,
            events: Events::new(),
            random: Random::new(plan.seed),
            delays: vec![Delay::default(); stations.len()],
            stations,
            flows,
            subflows,
            siblings: Vec::new(),
            travelling: 0,
            dropped: 0,
            before: None,
            trace: Vec::new(),
        })
    }

    fn run(mut self) -> Outcome {
        for (connection, planned) in self.plan.connections.iter().enumerate() {
            self.events
                .put(planned.start_ns, Event::Start { connection });
            if let Some(stop_ns) = planned.stop_ns {
                self.events.put(stop_ns, Event::Stop { connection });
            }
        }
        self.events.put(SAMPLE_NS, Event::Sample);
        if let Some(trace_ns) = self.plan.trace_ns {
            self.events.put(trace_ns, Event::Trace);
        }
        self.events.put(self.plan.warm_up_ns, Event::Measure);
        self.events.put(self.plan.end_ns(), Event::End);
        while let Some(event) = self.events.take() {
            if matches!(event, Event::End) {
                break;
            }
            self.happen(event);
        }
        let outcome = self.outcome();
        let mut outcome = match &self.before {
            Some(before) => outcome.since(before),
            None => outcome,
        };
        outcome.trace = self.trace;
        outcome
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Start { connection } => {
                for flow in self.subflows[connection].clone() {
                    self.flows[flow].sender.start();
                    self.send(flow);
                }
            }
            Event::Stop { connection } => {
                for flow in self.subflows[connection].clone() {
                    self.flows[flow].sender.stop();
                }
            }
            Event::Arrive(packet) => self.arrive(packet),
            Event::TurnEnds { station } => self.turn_ends(station),
            Event::Acknowledged {
                flow,
                number,
                marked,
            } => self.acknowledged(flow, number, marked),
            Event::Deadline { flow } => self.deadline(flow),
            Event::Sample => self.sample(),
            Event::Trace => self.note_moment(),
            Event::Measure => {
                self.delays.fill(Delay::default());
                self.before = Some(self.outcome());
            }
            Event::End => {}
        }
    }

    fn route(&self, flow: usize) -> &'a Route {
        let Flow {
            connection, own, ..
        } = self.flows[flow];
        &self.plan.connections[connection].routes[own]
    }

    /// Sends what the window has room for.
    fn send(&mut self, index: usize) {
        let now_ns = self.events.now_ns();
        let delay_ns = self.route(index).hops[0].delay_ns;
        let flow = &mut self.flows[index];
        while let Some(transmission) = flow.sender.transmit(now_ns) {
            let jitter_ns = self.random.below(self.plan.jitter_ns.saturating_add(1));
            flow.departed_ns = flow.departed_ns.max(now_ns + jitter_ns);
            flow.sent += 1;
            self.travelling += 1;
            self.events.put(
                flow.departed_ns - now_ns + delay_ns,
                Event::Arrive(Packet {
                    subflow: index as u32,
                    hop: 0,
                    number: transmission.number,
                    sequence: transmission.sequence,
                    can_be_marked: self.plan.connections[flow.connection].ecn,
                    marked: false,
                }),
            );
        }
        self.watch(index);
    }

    /// An event per flow watches its deadline, however often the deadline is moved.
    fn watch(&mut self, index: usize) {
        let now_ns = self.events.now_ns();
        let flow = &mut self.flows[index];
        if let Some(deadline_ns) = flow.sender.deadline_ns().filter(|_| !flow.is_watched) {
            flow.is_watched = true;
            let after_ns = deadline_ns.saturating_sub(now_ns);
            self.events.put(after_ns, Event::Deadline { flow: index });
        }
    }

    fn deadline(&mut self, index: usize) {
        let now_ns = self.events.now_ns();
        let flow = &mut self.flows[index];
        flow.is_watched = false;
        if flow
            .sender
            .deadline_ns()
            .is_some_and(|deadline_ns| deadline_ns <= now_ns)
        {
            flow.sender.expire(now_ns);
            self.send(index);
        } else {
            self.watch(index);
        }
    }

    fn arrive(&mut self, packet: Packet) {
        let hop = self.route(packet.subflow as usize).hops[packet.hop as usize];
        self.travelling -= 1;
        let random = self.random.word();
        match self.stations[hop.station].enter(hop.class, packet, random) {
            Entry::Queued => self.begin_turn(hop.station),
            Entry::Dropped => self.dropped += 1,
        }
    }

    fn begin_turn(&mut self, station: usize) {
        if let Some(turn_ns) = self.stations[station].begin_turn() {
            self.events.put(turn_ns, Event::TurnEnds { station });
        }
    }

    fn turn_ends(&mut self, station: usize) {
        let Simulation {
            plan,
            events,
            stations,
            flows,
            travelling,
            ..
        } = self;
        stations[station].end_turn(|mut packet| {
            let flow = &mut flows[packet.subflow as usize];
            let route = &plan.connections[flow.connection].routes[flow.own];
            packet.hop += 1;
            if let Some(next) = route.hops.get(packet.hop as usize) {
                *travelling += 1;
                events.put(next.delay_ns, Event::Arrive(packet));
            } else {
                flow.receiver.accept(packet.sequence);
                events.put(
                    route.return_ns,
                    Event::Acknowledged {
                        flow: packet.subflow as usize,
                        number: packet.number,
                        marked: packet.marked,
                    },
                );
            }
        });
        self.begin_turn(station);
    }

    fn acknowledged(&mut self, index: usize, number: u64, marked: bool) {
        let siblings = self.subflows[self.flows[index].connection].clone();
        self.siblings.clear();
        let seen = self.flows[siblings]
            .iter()
            .map(|flow| flow.sender.as_subflow());
        self.siblings.extend(seen);
        let flow = &mut self.flows[index];
        let now_ns = self.events.now_ns();
        flow.sender
            .acknowledge(number, marked, now_ns, &self.siblings, flow.own);
        self.send(index);
    }

    fn sample(&mut self) {
        let now_ns = self.events.now_ns();
        for (station, delay) in self.stations.iter_mut().zip(&mut self.delays) {
            station.sample(now_ns);
            delay.note(station.delay_ns());
        }
        self.events.put(SAMPLE_NS, Event::Sample);
    }

    fn note_moment(&mut self) {
        let flows = self.flows.iter();
        self.trace.push(Moment {
            at_ns: self.events.now_ns(),
            flows: flows
                .map(|flow| (flow.sender.window(), flow.receiver.delivered))
                .collect(),
        });
        if let Some(trace_ns) = self.plan.trace_ns {
            self.events.put(trace_ns, Event::Trace);
        }
    }

    /// Returns the outcome so far.
    fn outcome(&self) -> Outcome {
        let delivered = |flows: &Range<usize>| {
            let flows = self.flows[flows.clone()].iter();
            flows.map(|flow| flow.receiver.delivered).collect()
        };
        let total = |of: fn(&Flow) -> u64| self.flows.iter().map(of).sum();
        Outcome {
            measured_ns: self.events.now_ns(),
            delivered: self.subflows.iter().map(delivered).collect(),
            classes: self.stations.iter().map(|s| s.counts().to_vec()).collect(),
            delays: self.delays.clone(),
            books: Books {
                sent: total(|flow| flow.sent),
                delivered: total(|flow| flow.receiver.delivered),
                duplicates: total(|flow| flow.receiver.duplicates),
                dropped: self.dropped,
                held: self.stations.iter().map(|s| s.held() as u64).sum(),
                travelling: self.travelling,
            },
            trace: Vec::new(),
        }
    }
}
