//! Takes in who comes for the first time.

use super::Demand;
use super::book::{Refusal, Seat, Stay};
use crate::host::lock;
use nfluid_control::model::{Deployment, PortRef};
use nfluid_control::template::{Guest, Template, bytes_of_client};
use nfluid_switch::client::{Arrival, Arrivals, Client};
use nfluid_switch::serve::{Ringer, Sleeper};
use nfluid_switch::{DropReason, Switch, SwitchError};
use nfluid_uplinks::rules::client_by;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long nothing may come before it is looked whether anybody still waits.
const PATIENCE: Duration = Duration::from_secs(1);
/// The same while frames wait for instances to be gone.
const PARKED_PATIENCE: Duration = Duration::from_millis(1);
/// Frames taken at once.
const BURST: usize = 64;
/// Instances made at once.
const TOGETHER: usize = 8;
/// Frames that wait for instances to be gone.
const PARKED_MAX: usize = 256;
/// Refusing rests so many times as long as it works: who is flooded has cores left for others.
const REST: u32 = 4;
/// Not longer than a frame may wait without harm, however slow that was.
const REST_MAX: Duration = Duration::from_millis(5);
/// What the host must keep free for other things than instances on demand, in bytes.
const MEMORY_KEPT: u64 = 256 << 20;

/// Somebody new, and what has come of it.
struct Newcomer {
    client: Client,
    guest: Guest,
    /// The ports of its instances that get what comes from it, and what is for it.
    ends: (PortRef, PortRef),
    frames: Vec<Arrival>,
}

/// The thread's state.
struct Reception<'a> {
    demand: &'a Demand,
    switch: Arc<Switch>,
    arrivals: Arrivals,
    bell: Ringer,
    /// Frames of clients whose instances are being ended.
    parked: Vec<Arrival>,
}

/// Runs until the daemon ends.
pub fn run(demand: &Demand) {
    let switch = lock(&demand.host).switch();
    match Reception::open(demand, switch) {
        Ok(mut reception) => loop {
            reception.once();
        },
        Err(error) => tracing::error!(%error, "instances on demand are not made"),
    }
}

impl<'a> Reception<'a> {
    fn open(demand: &'a Demand, switch: Arc<Switch>) -> Result<Self, SwitchError> {
        let arrivals = switch.arrivals()?;
        let bell = switch.ringer()?;
        let reception = Reception {
            demand,
            switch,
            arrivals,
            bell,
            parked: Vec::new(),
        };
        // What an earlier daemon has left has numbers of templates that mean others now.
        loop {
            let left = reception.arrivals.take(Duration::ZERO, BURST)?;
            if left.is_empty() {
                return Ok(reception);
            }
            reception.refuse("", Refusal::Gone, &left);
        }
    }

    fn once(&mut self) {
        let patience = if self.parked.is_empty() {
            PATIENCE
        } else {
            PARKED_PATIENCE
        };
        let mut frames = std::mem::take(&mut self.parked);
        match self.arrivals.take(patience, BURST) {
            Ok(came) => frames.extend(came),
            Err(error) => {
                tracing::warn!(%error, "taking frames that wait");
                std::thread::sleep(PATIENCE);
            }
        }
        if frames.is_empty() {
            return;
        }
        let begun = Instant::now();
        let sorted = self.sort(frames);
        let worked = begun.elapsed();
        let mut admitted = sorted.admitted;
        while !admitted.is_empty() {
            let rest = admitted.split_off(admitted.len().min(TOGETHER));
            self.take_in(admitted);
            admitted = rest;
        }
        if sorted.refused {
            std::thread::sleep((worked * REST).min(REST_MAX));
        }
    }

    /// Hands over what is for somebody who is there; the others are new, or refused.
    fn sort(&mut self, frames: Vec<Arrival>) -> Sorted {
        let mut sorted = Sorted::default();
        let mut newcomers: BTreeMap<Client, Newcomer> = BTreeMap::new();
        let mut templates: BTreeMap<String, Template> = BTreeMap::new();
        for frame in frames {
            let Some((name, by)) = lock(&self.demand.host).template_of(frame.template()) else {
                self.refuse("", Refusal::Gone, &[frame]);
                continue;
            };
            let Some(client) = frame.client(client_by(by)) else {
                self.refuse(&name, Refusal::Gone, &[frame]);
                continue;
            };
            if let Some(newcomer) = newcomers.get_mut(&client) {
                newcomer.frames.push(frame);
                continue;
            }
            let Some(frame) = self.give_to_present(&client, &name, frame) else {
                continue;
            };
            if !templates.contains_key(&name) {
                let found = self.demand.desired.read().templates.get(&name).cloned();
                templates.extend(found.map(|template| (name.clone(), template)));
            }
            let own = newcomers
                .values()
                .filter(|other| other.guest.template == name);
            let guest = Guest {
                template: name.clone(),
                client: client.id.to_string(),
            };
            let found = templates.get(&name);
            let found = found.and_then(|it| Some((it, it.ends_of(&guest)?)));
            let asked = match found {
                Some((template, ends)) => {
                    let more = own.count() as u32;
                    let now = Instant::now();
                    let mut book = self.demand.book();
                    book.ask(&name, template, more, now).map(|()| ends)
                }
                None => Err(Refusal::Gone),
            };
            match asked {
                Ok(ends) => {
                    let newcomer = Newcomer {
                        client,
                        guest,
                        ends,
                        frames: vec![frame],
                    };
                    newcomers.insert(client, newcomer);
                }
                Err(why) => {
                    sorted.refused = true;
                    self.refuse(&name, why, &[frame]);
                }
            }
        }
        sorted.admitted = newcomers.into_values().collect();
        sorted
    }

    /// Hands a frame to its client's instance, or keeps it until that is gone; gives it back if there is none.
    fn give_to_present(
        &mut self,
        client: &Client,
        template: &str,
        frame: Arrival,
    ) -> Option<Arrival> {
        let mut book = self.demand.book();
        let Some(seat) = book.seat(client).cloned() else {
            return Some(frame);
        };
        if seat.stay == Stay::Ending {
            drop(book);
            if self.parked.len() >= PARKED_MAX {
                self.refuse(template, Refusal::Waiting, &[frame]);
            } else {
                self.parked.push(frame);
            }
            return None;
        }
        let host = lock(&self.demand.host);
        if !host.has_client(&seat.instance) {
            drop(host);
            book.strike(client);
            return Some(frame);
        }
        // With the book in hand: who finds out whether the client is silent sees that it is not.
        let given = host.give_waiting(&seat.instance, seat.ports.entry, &[&frame.frame]);
        drop(host);
        drop(book);
        if given == 0 {
            self.refuse(template, Refusal::RingFull, &[frame]);
        }
        self.ring(seat.ports.entry);
        None
    }

    /// Makes the instances of newcomers, and hands them what they have sent.
    fn take_in(&mut self, newcomers: Vec<Newcomer>) {
        let guests: Vec<Guest> = newcomers.iter().map(|new| new.guest.clone()).collect();
        let mut results = Vec::new();
        let has_memory = {
            let mut controller = self.demand.controller();
            let has_memory = has_memory_for(&controller.deployment(), &guests);
            if has_memory {
                results = controller.welcome(&guests);
            }
            has_memory
        };
        results.resize_with(newcomers.len(), || Ok(()));
        for (new, made) in newcomers.into_iter().zip(results) {
            let template = &new.guest.template;
            if !has_memory {
                self.refuse(template, Refusal::Memory, &new.frames);
                continue;
            }
            if let Err(why) = made {
                tracing::warn!(client = new.guest.client, template, "no instance: {why}");
                self.refuse(template, Refusal::Failed, &new.frames);
                continue;
            }
            self.seat(&new);
        }
    }

    /// Enters a client whose instance has been made.
    fn seat(&mut self, new: &Newcomer) {
        let (instance, template) = (new.guest.name(), &new.guest.template);
        let frames: Vec<&[u8]> = new.frames.iter().map(|it| it.frame.as_slice()).collect();
        let mut book = self.demand.book();
        let mut host = lock(&self.demand.host);
        let admitted = host.admit(&instance, &new.ends, &new.client);
        let ports = match admitted {
            Ok(ports) => ports,
            Err(why) => {
                drop((host, book));
                tracing::warn!(instance, "its client cannot be entered: {why}");
                let left = self.demand.controller().farewell(&[instance]);
                for (name, why) in left {
                    tracing::warn!(instance = name, "it cannot be ended: {why}");
                }
                return self.refuse(template, Refusal::Failed, &new.frames);
            }
        };
        let given = host.give_waiting(&instance, ports.entry, &frames);
        drop(host);
        let seat = Seat {
            instance,
            template: template.clone(),
            ports,
            stay: Stay::Here,
            heard: 0,
            since: Instant::now(),
        };
        book.enter(new.client, seat);
        drop(book);
        self.ring(ports.entry);
        self.refuse(template, Refusal::RingFull, &new.frames[given..]);
    }

    fn ring(&self, port: u32) {
        if let Err(error) = self.bell.ring(port, Sleeper::Owner) {
            tracing::debug!(port, %error, "waking who has got a frame");
        }
    }

    /// Counts frames that nobody gets: with their template, and as dropped on the uplink on which they came.
    fn refuse(&self, template: &str, why: Refusal, frames: &[Arrival]) {
        if frames.is_empty() {
            return;
        }
        for frame in frames {
            if frame.uplink < nfluid_switch::abi::PORTS_MAX {
                self.switch.count_drop(frame.uplink, DropReason::Client, 1);
            }
        }
        if !template.is_empty() {
            self.demand
                .book()
                .refuse(template, why, frames.len() as u64);
        }
    }
}

/// What has become of frames that waited.
#[derive(Default)]
struct Sorted {
    admitted: Vec<Newcomer>,
    refused: bool,
}

/// Whether the host has memory for these instances, and enough besides.
fn has_memory_for(deployment: &Deployment, guests: &[Guest]) -> bool {
    let needed = guests.iter().filter_map(|guest| {
        let template = deployment.templates.get(&guest.template)?;
        Some(bytes_of_client(deployment, template))
    });
    let needed = needed.fold(MEMORY_KEPT, u64::saturating_add);
    nfluid_lifecycle::machine::memory_available().is_none_or(|available| available >= needed)
}
