//! A server as a network function.

use crate::config::Endpoint;
use crate::connection::{Connection, Connections};
use crate::exchange::{Exchange, Frames};
use crate::service::{Service, UnixTime};
use crate::station::Station;
use alloc::vec::Vec;
use nfluid_nf::{ConfigError, Metric, Nanos, NetworkFunction, PortInfo};
use nfluid_ring::{Batch, Frame, Outbox};
use serde_json::Value;
use smoltcp::socket::tcp::State;

/// A quarter of the sockets is kept listening, as long as sockets of ended connections can give way.
const LISTENING_PART: usize = 4;

/// Random bits and the clock: a server has neither by itself.
#[derive(Clone, Copy, Debug)]
pub struct Surroundings {
    /// Random bits.
    pub seed: u64,
    /// Returns the time of day at a time of the monotonic clock.
    pub time_of_day: fn(Nanos) -> UnixTime,
}

/// A server.
pub struct Server<S> {
    service: S,
    endpoint: Endpoint,
    link: PortInfo,
    surroundings: Surroundings,
    station: Station,
    connections: Vec<Connection>,
    frames: Frames,
    counts: Connections,
    next: Option<Nanos>,
    /// Where the search for sockets that give way goes on.
    oldest: usize,
}

impl<S: Service> Server<S> {
    /// Makes a server.
    ///
    /// # Errors
    /// The configuration has a value that cannot be used, or there is not one port.
    pub fn new(
        config: &Value,
        ports: &[PortInfo],
        surroundings: Surroundings,
    ) -> Result<Self, ConfigError> {
        let (endpoint, service) = S::parse(config)?;
        endpoint.check(ports)?;
        let link = ports[0].clone();
        let mut frames = Frames::default();
        let (station, connections) = open::<S>(&endpoint, &link, surroundings.seed, &mut frames);
        Ok(Server {
            service,
            endpoint,
            link,
            surroundings,
            station,
            connections,
            frames,
            counts: Connections::default(),
            next: None,
            oldest: 0,
        })
    }

    /// Takes in frames, answers clients, and sends what there is to send.
    fn turn(&mut self, now: Nanos, arrived: &[Frame<'_>], outbox: &mut dyn Outbox) {
        let mut exchange = Exchange {
            arrived,
            outbox,
            frames: &mut self.frames,
            mtu: usize::from(self.link.mtu),
        };
        self.station.poll(now, &mut exchange);
        let time = (self.surroundings.time_of_day)(now);
        for (index, connection) in self.connections.iter_mut().enumerate() {
            let socket = self.station.socket(index);
            connection.serve(socket, &self.service, now, time, &mut self.counts);
        }
        self.station.poll(now, &mut exchange);
        self.make_room(now);
        let deadlines = self.connections.iter().filter_map(Connection::deadline);
        self.next = deadlines.chain(self.station.next(now)).min();
    }

    /// Has sockets of ended connections listen again. When few others listen, those give way that only wait for late frames
    /// (TIME-WAIT), and then those whose client has not answered for longest: a flood of connections that nobody opens
    /// (RFC 4987, section 3.4) keeps only those clients away that answer later than the flood fills the rest.
    fn make_room(&mut self, now: Nanos) {
        let sockets = self.station.sockets();
        let mut listening = 0;
        for index in 0..sockets {
            if self.station.socket(index).state() == State::Closed {
                self.listen(index);
            }
            listening += usize::from(self.station.is_listening(index));
        }
        let wanted = sockets.div_ceil(LISTENING_PART);
        for _ in 0..sockets {
            if listening >= wanted {
                return;
            }
            self.oldest = (self.oldest + 1) % sockets;
            if self.station.socket(self.oldest).state() == State::TimeWait {
                self.listen(self.oldest);
                listening += 1;
            }
        }
        for _ in listening..wanted {
            let half_open = (0..sockets).filter(|index| {
                let state = self.station.socket(*index).state();
                state == State::SynReceived && !self.connections[*index].is_of(now)
            });
            let first = half_open.collect::<Vec<_>>().into_iter();
            let Some(first) = first.min_by_key(|index| self.connections[*index].deadline()) else {
                return;
            };
            self.counts.given_up += 1;
            self.listen(first);
        }
    }

    fn listen(&mut self, index: usize) {
        self.connections[index].reset();
        self.station.listen(index);
    }
}

/// Makes the network stack, and a connection for each of its sockets.
fn open<S: Service>(
    endpoint: &Endpoint,
    link: &PortInfo,
    seed: u64,
    frames: &mut Frames,
) -> (Station, Vec<Connection>) {
    let mut nothing = Nowhere;
    let mut device = Exchange {
        arrived: &[],
        outbox: &mut nothing,
        frames,
        mtu: usize::from(link.mtu),
    };
    let port = endpoint.port.unwrap_or(S::PORT);
    let station = Station::new(endpoint, port, link, seed, &mut device);
    let connections = core::iter::repeat_with(Connection::default);
    let connections = connections.take(station.sockets()).collect();
    (station, connections)
}

/// An outbox without room.
struct Nowhere;

impl Outbox for Nowhere {
    fn emit_offload(&mut self, _port: u8, _frame: &[u8], _offload: nfluid_ring::Offload) -> bool {
        false
    }

    fn commit(&mut self, _decided: &[Frame<'_>]) {}
}

impl<S: Service> NetworkFunction for Server<S> {
    fn process(&mut self, now: Nanos, batch: &mut Batch<'_, '_>) {
        let (frames, outbox) = batch.split();
        self.turn(now, frames, outbox);
    }

    fn tick(&mut self, now: Nanos, outbox: &mut dyn Outbox) {
        self.turn(now, &[], outbox);
    }

    fn has_timers(&self) -> bool {
        self.next.is_some()
    }

    fn next_tick(&self) -> Nanos {
        self.next.unwrap_or(Nanos(u64::MAX))
    }

    fn metrics(&self, sink: &mut dyn FnMut(Metric)) {
        let open = self.connections.iter().filter(|it| it.is_open()).count();
        for (name, value) in [
            ("frames_received_total", self.frames.received),
            ("frames_sent_total", self.frames.sent),
            ("frames_without_room_total", self.frames.without_room),
            ("connections_accepted_total", self.counts.accepted),
            ("connections_timed_out_total", self.counts.timed_out),
            ("connections_given_up_total", self.counts.given_up),
            ("connections_open", open as u64),
            ("answers_total", self.counts.answers),
        ] {
            sink(Metric::new(name, value));
        }
    }

    /// Connections end if addresses, port or limits are others.
    fn reconfigure(&mut self, config: &Value, ports: &[PortInfo]) -> Result<(), ConfigError> {
        let (endpoint, service) = S::parse(config)?;
        endpoint.check(ports)?;
        self.service = service;
        if endpoint != self.endpoint || ports[0] != self.link {
            self.link = ports[0].clone();
            let seed = self.surroundings.seed.rotate_left(1);
            self.surroundings.seed = seed;
            let (station, connections) = open::<S>(&endpoint, &self.link, seed, &mut self.frames);
            (self.station, self.connections) = (station, connections);
            (self.endpoint, self.next) = (endpoint, None);
        }
        Ok(())
    }
}
