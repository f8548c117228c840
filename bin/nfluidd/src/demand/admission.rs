//! Admits clients that come for the first time.

use super::Demand;
use super::client_table::{ClientInstance, ClientState, Refusal};
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

/// Time without a frame after which the thread checks whether frames still wait.
const PATIENCE: Duration = Duration::from_secs(1);
/// The same time while frames wait for the end of instances.
const PARKED_PATIENCE: Duration = Duration::from_millis(1);
/// Frames taken at once.
const BURST: usize = 64;
/// Instances created at once.
const TOGETHER: usize = 8;
/// Limit of frames that wait for the end of instances.
const PARKED_MAX: usize = 256;
/// After refusing frames, the thread rests this many times as long as the refusing took: under a flood, cores are
/// left for others.
const REST: u32 = 4;
/// Longest rest: a frame may wait this long without harm, however slow the refusing was.
const REST_MAX: Duration = Duration::from_millis(5);
/// Memory in bytes that the host keeps free for uses other than instances on demand.
const MEMORY_KEPT: u64 = 256 << 20;

/// A new client, and the frames that came from the client.
struct NewClient {
    client: Client,
    guest: Guest,
    /// The ports of the client's instances that get the frames from the client and the frames for the client.
    ends: (PortRef, PortRef),
    frames: Vec<Arrival>,
}

/// The thread's state.
struct Admission<'a> {
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
    match Admission::open(demand, switch) {
        Ok(mut admission) => loop {
            admission.once();
        },
        Err(error) => tracing::error!(%error, "instances on demand are not made"),
    }
}

impl<'a> Admission<'a> {
    fn open(demand: &'a Demand, switch: Arc<Switch>) -> Result<Self, SwitchError> {
        let arrivals = switch.arrivals()?;
        let bell = switch.ringer()?;
        let admission = Admission {
            demand,
            switch,
            arrivals,
            bell,
            parked: Vec::new(),
        };
        // Frames that an earlier daemon left carry numbers of templates which may mean other templates now.
        loop {
            let left = admission.arrivals.take(Duration::ZERO, BURST)?;
            if left.is_empty() {
                return Ok(admission);
            }
            admission.refuse("", Refusal::Gone, &left);
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
            self.admit(admitted);
            admitted = rest;
        }
        if sorted.refused {
            std::thread::sleep((worked * REST).min(REST_MAX));
        }
    }

    /// Delivers frames for clients that have an instance. The other frames belong to new clients, or are refused.
    fn sort(&mut self, frames: Vec<Arrival>) -> Sorted {
        let mut sorted = Sorted::default();
        let mut new_clients: BTreeMap<Client, NewClient> = BTreeMap::new();
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
            if let Some(new_client) = new_clients.get_mut(&client) {
                new_client.frames.push(frame);
                continue;
            }
            let Some(frame) = self.deliver(&client, &name, frame) else {
                continue;
            };
            if !templates.contains_key(&name) {
                let found = self.demand.desired.read().templates.get(&name).cloned();
                templates.extend(found.map(|template| (name.clone(), template)));
            }
            let own = new_clients
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
                    let mut clients = self.demand.client_table();
                    clients.admit(&name, template, more, now).map(|()| ends)
                }
                None => Err(Refusal::Gone),
            };
            match asked {
                Ok(ends) => {
                    let new_client = NewClient {
                        client,
                        guest,
                        ends,
                        frames: vec![frame],
                    };
                    new_clients.insert(client, new_client);
                }
                Err(why) => {
                    sorted.refused = true;
                    self.refuse(&name, why, &[frame]);
                }
            }
        }
        sorted.admitted = new_clients.into_values().collect();
        sorted
    }

    /// Delivers a frame to its client's instance, or keeps the frame until an instance that ends is gone. Returns the
    /// frame if the client has no instance.
    fn deliver(&mut self, client: &Client, template: &str, frame: Arrival) -> Option<Arrival> {
        let mut clients = self.demand.client_table();
        let Some(served) = clients.get(client).cloned() else {
            return Some(frame);
        };
        if served.state == ClientState::Ending {
            drop(clients);
            if self.parked.len() >= PARKED_MAX {
                self.refuse(template, Refusal::Waiting, &[frame]);
            } else {
                self.parked.push(frame);
            }
            return None;
        }
        let host = lock(&self.demand.host);
        if !host.has_client(&served.instance) {
            drop(host);
            clients.remove(client);
            return Some(frame);
        }
        // The table of clients is locked meanwhile, so that the idle thread sees that the client is not silent.
        let given = host.put_waiting(&served.instance, served.ports.entry, &[&frame.frame]);
        drop(host);
        drop(clients);
        if given == 0 {
            self.refuse(template, Refusal::RingFull, &[frame]);
        }
        self.ring(served.ports.entry);
        None
    }

    /// Creates the instances of new clients, and delivers the frames that the clients have sent.
    fn admit(&mut self, new_clients: Vec<NewClient>) {
        let guests: Vec<Guest> = new_clients.iter().map(|new| new.guest.clone()).collect();
        let mut results = Vec::new();
        let has_memory = {
            let mut controller = self.demand.controller();
            let has_memory = has_memory_for(&controller.deployment(), &guests);
            if has_memory {
                results = controller.welcome(&guests);
            }
            has_memory
        };
        results.resize_with(new_clients.len(), || Ok(()));
        for (new, made) in new_clients.into_iter().zip(results) {
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
            self.record_client(&new);
        }
    }

    /// Adds a client whose instance has been created to the table.
    fn record_client(&mut self, new: &NewClient) {
        let (instance, template) = (new.guest.name(), &new.guest.template);
        let frames: Vec<&[u8]> = new.frames.iter().map(|it| it.frame.as_slice()).collect();
        let mut clients = self.demand.client_table();
        let mut host = lock(&self.demand.host);
        let admitted = host.admit(&instance, &new.ends, &new.client);
        let ports = match admitted {
            Ok(ports) => ports,
            Err(why) => {
                drop((host, clients));
                tracing::warn!(
                    instance,
                    "the client of the instance cannot be admitted: {why}"
                );
                let left = self.demand.controller().farewell(&[instance]);
                for (name, why) in left {
                    tracing::warn!(instance = name, "the instance cannot be ended: {why}");
                }
                return self.refuse(template, Refusal::Failed, &new.frames);
            }
        };
        let given = host.put_waiting(&instance, ports.entry, &frames);
        drop(host);
        let served = ClientInstance {
            instance,
            template: template.clone(),
            ports,
            state: ClientState::Served,
            received: 0,
            since: Instant::now(),
        };
        clients.insert(new.client, served);
        drop(clients);
        self.ring(ports.entry);
        self.refuse(template, Refusal::RingFull, &new.frames[given..]);
    }

    fn ring(&self, port: u32) {
        if let Err(error) = self.bell.ring(port, Sleeper::Owner) {
            tracing::debug!(port, %error, "waking the receiver of a frame");
        }
    }

    /// Counts frames that are not delivered: with their template, and as dropped on the uplink on which they came.
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
                .client_table()
                .refuse(template, why, frames.len() as u64);
        }
    }
}

/// The result of sorting the frames that waited.
#[derive(Default)]
struct Sorted {
    admitted: Vec<NewClient>,
    refused: bool,
}

/// Returns true if the host has memory for these instances, and enough memory besides.
fn has_memory_for(deployment: &Deployment, guests: &[Guest]) -> bool {
    let needed = guests.iter().filter_map(|guest| {
        let template = deployment.templates.get(&guest.template)?;
        Some(bytes_of_client(deployment, template))
    });
    let needed = needed.fold(MEMORY_KEPT, u64::saturating_add);
    nfluid_lifecycle::machine::memory_available().is_none_or(|available| available >= needed)
}
