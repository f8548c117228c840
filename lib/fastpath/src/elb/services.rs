//! A balancer's services and servers in the tables of its fast path.

use super::config::{BalancerConfig, ServerConfig, ServiceConfig};
use super::load::{Estimate, Reading};
use crate::record::Numbers;
use anyhow::Context;
use nfluid_evnf::balancer::program::{SERVERS_MAX, SERVICES_MAX};
use nfluid_evnf::balancer::{Balancer, Server, Service, State, Transport};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::Path;

/// Percent: the configured weight.
pub(super) const ALL: u32 = 100;

/// The services of a running balancer.
pub struct Balancing {
    pub(super) balancer: Balancer,
    pub(super) config: BalancerConfig,
    /// Services as last entered, with the states of their servers.
    entered: BTreeMap<u32, (Service, Vec<State>)>,
    /// Reasons why servers are down, by key.
    pub(super) reasons: BTreeMap<String, String>,
    /// Estimates of the load of servers, by key.
    pub(super) loads: BTreeMap<String, Estimate>,
}

/// Effect of a reading of the load on a server's weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// The weight is unchanged.
    Same,
    /// The weight has changed.
    Changed,
    /// The load is no longer known: the weight is the configured weight.
    GivenUp,
    /// The load is known again.
    Again,
}

impl Balancing {
    /// Loads a balancer on the tables in `folder`, and enters its services. Makes new tables if there are none;
    /// otherwise connections and counters are kept.
    ///
    /// # Errors
    /// When the kernel refuses the program, or the tables have another version.
    pub fn load(
        config: &BalancerConfig,
        folder: &Path,
        numbers: &mut Numbers,
    ) -> anyhow::Result<Self> {
        let mut balancing = Balancing {
            balancer: Balancer::load_kept(config.connections, folder)?,
            config: config.clone(),
            entered: BTreeMap::new(),
            reasons: BTreeMap::new(),
            loads: BTreeMap::new(),
        };
        balancing.enter(config, numbers)?;
        Ok(balancing)
    }

    /// Returns the program.
    pub fn balancer(&self) -> &Balancer {
        &self.balancer
    }

    /// Returns the configuration in force.
    pub fn config(&self) -> &BalancerConfig {
        &self.config
    }

    /// Forgets the entered services, so that all are entered again.
    pub fn forget(&mut self) {
        self.entered.clear();
    }

    /// Replaces the configuration in force. Each service changes in one step; connections stay with their servers, also
    /// with removed servers.
    ///
    /// # Errors
    /// When the kernel refuses; then the former configuration is in force again, as far as possible.
    pub fn change(&mut self, new: &BalancerConfig, numbers: &mut Numbers) -> anyhow::Result<()> {
        number(new, numbers)?;
        let before = numbers.clone();
        let entered = self.enter(new, numbers);
        if let Err(why) = entered {
            *numbers = before;
            let old = self.config.clone();
            self.forget();
            if let Err(again) = self.enter(&old, numbers) {
                return Err(why.context(format!("the former services are not all back: {again:#}")));
            }
            return Err(why);
        }
        self.config = new.clone();
        Ok(())
    }

    fn enter(&mut self, config: &BalancerConfig, numbers: &mut Numbers) -> anyhow::Result<()> {
        let wanted: BTreeSet<String> = config
            .services
            .values()
            .flat_map(|service| service.servers.iter().map(|at| service.server_key(at.at)))
            .collect();
        for service in config.services.values() {
            self.enter_service(service, numbers)?;
        }
        let keys: BTreeSet<String> = config.services.values().map(ServiceConfig::key).collect();
        let gone = numbers
            .services
            .iter()
            .filter(|(key, _)| !keys.contains(*key));
        let gone: Vec<(String, u32)> = gone.map(|(key, id)| (key.clone(), *id)).collect();
        for (key, id) in gone {
            let (at, transport) = place_of(&key).context("a service's key is damaged")?;
            self.balancer.remove_service(id, at, transport)?;
            self.entered.remove(&id);
            numbers.services.remove(&key);
        }
        for (key, number) in numbers.leave_out(&wanted) {
            let at = server_of(&key).context("a server's key is damaged")?;
            let state = State::Draining;
            self.balancer.set_server(number, Server { at, state })?;
            self.reasons.remove(&key);
        }
        self.loads.retain(|key, _| wanted.contains(key));
        Ok(())
    }

    fn enter_service(
        &mut self,
        service: &ServiceConfig,
        numbers: &mut Numbers,
    ) -> anyhow::Result<()> {
        let mut servers = Vec::new();
        let mut states = Vec::new();
        for server in &service.servers {
            let number = numbers.server(&service.server_key(server.at), SERVERS_MAX);
            let number = number.with_context(|| format!("more than {SERVERS_MAX} servers"))?;
            servers.push((number, weight_of(service, server, numbers)));
            states.push(state_of(service, server, numbers));
        }
        let id = numbers.service(&service.key(), SERVICES_MAX);
        let id = id.with_context(|| format!("more than {SERVICES_MAX} services"))?;
        let entry = Service {
            at: service.at,
            transport: service.transport(),
            mode: service.mode(),
            servers,
        };
        let is_new = |(known, were): &(Service, Vec<State>)| *known != entry || *were != states;
        if !self.entered.get(&id).is_none_or(is_new) {
            return Ok(());
        }
        let numbered = entry.servers.iter().zip(&states).zip(&service.servers);
        for (((number, weight), state), server) in numbered {
            let at = server.at;
            let state = entered_state(*state, *weight);
            self.balancer.set_server(*number, Server { at, state })?;
        }
        self.balancer.set_service(id, &entry)?;
        self.entered.insert(id, (entry, states));
        Ok(())
    }

    /// Notes the result of a server's health check. Connections of a server that is down go to other servers. Returns
    /// true if the state has changed.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn found(
        &mut self,
        key: &str,
        down: Option<&str>,
        numbers: &mut Numbers,
    ) -> anyhow::Result<bool> {
        let known = numbers.servers.contains_key(key);
        let changes = known && numbers.down.contains(key) != down.is_some();
        if !changes {
            return Ok(false);
        }
        match down {
            Some(why) => {
                numbers.down.insert(key.to_owned());
                self.reasons.insert(key.to_owned(), why.to_owned());
            }
            None => {
                numbers.down.remove(key);
                self.reasons.remove(key);
            }
        }
        let config = self.config.clone();
        let services = config.services.values();
        for service in services.filter(|service| key.starts_with(&format!("{} > ", service.key())))
        {
            self.enter_service(service, numbers)?;
        }
        Ok(true)
    }

    /// Takes in a reading of a server's load, or the reason why there is none. New connections follow the weight.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn loaded(
        &mut self,
        key: &str,
        reading: Result<Reading, String>,
        numbers: &mut Numbers,
    ) -> anyhow::Result<Weight> {
        let mut services = self.config.services.values();
        let service = services.find(|service| key.starts_with(&format!("{} > ", service.key())));
        let Some((service, load)) = service.and_then(|one| Some((one, one.load.as_ref()?))) else {
            return Ok(Weight::Same);
        };
        if !numbers.servers.contains_key(key) {
            return Ok(Weight::Same);
        }
        let law = load.law();
        let before = numbers.percents.get(key).copied().unwrap_or(ALL);
        let estimate = self.loads.entry(key.to_owned());
        let estimate = estimate.or_insert_with(|| Estimate::new(before));
        let had_given_up = estimate.has_given_up(&law);
        estimate.take_in(&law, reading);
        let (percent, has_given_up) = (estimate.percent(), estimate.has_given_up(&law));
        if percent != before {
            numbers.percents.insert(key.to_owned(), percent);
            let service = service.clone();
            self.enter_service(&service, numbers)?;
        }
        Ok(match (had_given_up, has_given_up) {
            (false, true) => Weight::GivenUp,
            (true, false) => Weight::Again,
            _ if percent != before => Weight::Changed,
            _ => Weight::Same,
        })
    }

    /// Returns the reason why a server's load is not known.
    pub fn load_reason(&self, key: &str) -> Option<&str> {
        self.loads.get(key)?.reason()
    }
}

/// Assigns numbers to the services and servers of a configuration. Services and servers with a number keep it. Numbers
/// are recorded before a table has them.
///
/// # Errors
/// When there are more than the tables can hold.
pub fn number(config: &BalancerConfig, numbers: &mut Numbers) -> anyhow::Result<()> {
    for service in config.services.values() {
        for server in &service.servers {
            let number = numbers.server(&service.server_key(server.at), SERVERS_MAX);
            number.with_context(|| format!("more than {SERVERS_MAX} servers"))?;
        }
        let id = numbers.service(&service.key(), SERVICES_MAX);
        id.with_context(|| format!("more than {SERVICES_MAX} services"))?;
    }
    Ok(())
}

/// Returns a server's weight. Weights that follow loads are in percent of the configured weights.
fn weight_of(service: &ServiceConfig, server: &ServerConfig, numbers: &Numbers) -> u32 {
    if service.load.is_none() {
        return server.weight;
    }
    let key = service.server_key(server.at);
    server.weight
        * numbers
            .percents
            .get(&key)
            .map_or(ALL, |percent| *percent.min(&ALL))
}

/// Returns the state of a server in the tables. A server without weight also gets no connection of a client that reuses
/// one of its ports.
fn entered_state(state: State, weight: u32) -> State {
    match state {
        State::Up if weight == 0 => State::Draining,
        state => state,
    }
}

pub(super) fn state_of(service: &ServiceConfig, server: &ServerConfig, numbers: &Numbers) -> State {
    let is_looked_after = service.health.is_some();
    if is_looked_after && numbers.down.contains(&service.server_key(server.at)) {
        State::Down
    } else if server.drain {
        State::Draining
    } else {
        State::Up
    }
}

/// Parses the result of [`ServiceConfig::key`].
fn place_of(key: &str) -> Option<(SocketAddr, Transport)> {
    let (protocol, at) = key.split_once(' ')?;
    let transport = match protocol {
        "tcp" => Transport::Tcp,
        "udp" => Transport::Udp,
        _ => return None,
    };
    Some((at.parse().ok()?, transport))
}

/// Parses the server in the result of [`ServiceConfig::server_key`].
fn server_of(key: &str) -> Option<SocketAddr> {
    key.split_once(" > ")?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::super::config::parse;
    use super::*;
    use serde_json::json;

    fn config(servers: &[&str]) -> BalancerConfig {
        let servers: Vec<_> = servers.iter().map(|at| json!({ "at": at })).collect();
        let config =
            json!({ "services": { "web": { "at": "203.0.113.1:80", "servers": servers } } });
        parse(&config).expect("it is right")
    }

    // promise: 15.70
    #[test]
    fn a_server_without_weight_drains() {
        assert_eq!(entered_state(State::Up, 0), State::Draining);
        assert_eq!(entered_state(State::Up, 1), State::Up);
        assert_eq!(entered_state(State::Down, 0), State::Down);
    }

    // promise: 15.17
    #[test]
    fn a_change_has_the_numbers_of_the_old_servers_and_the_new_ones_written_down() {
        let mut numbers = Numbers::default();
        number(&config(&["192.0.2.1:80", "192.0.2.2:80"]), &mut numbers).expect("there is room");
        let key = |server: &str| format!("tcp 203.0.113.1:80 > {server}:80");
        // The record on disk when the tables change, in case the daemon dies then.
        number(&config(&["192.0.2.2:80", "192.0.2.3:80"]), &mut numbers).expect("there is room");
        let written = serde_json::to_string(&numbers).expect("it is text");
        let mut found: Numbers = serde_json::from_str(&written).expect("it was written so");
        for (server, number) in [("192.0.2.1", 0), ("192.0.2.2", 1), ("192.0.2.3", 2)] {
            assert_eq!(found.servers.get(&key(server)), Some(&number), "{server}");
        }
        assert_eq!(found.server("another", SERVERS_MAX), Some(3));
    }
}
