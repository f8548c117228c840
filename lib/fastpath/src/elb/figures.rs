//! Status and metrics of a balancer and its servers.

use super::config::{ServerConfig, ServiceConfig};
use super::load::Estimate;
use super::services::{ALL, Balancing, state_of};
use crate::record::Numbers;
use nfluid_api::types::{FastLoad, FastServer, FastService};
use nfluid_evnf::balancer::{Exit, State};
use std::collections::BTreeMap;

/// Returns the verdict of an exit of a balancer.
pub fn verdict(exit: Exit) -> &'static str {
    match exit {
        Exit::Sent | Exit::Returned | Exit::IcmpError | Exit::Echo => "send",
        Exit::Other | Exit::Unreadable | Exit::Neighbour => "up",
        _ => "drop",
    }
}

impl Balancing {
    /// Returns the status of a server's load.
    fn load_status(
        &self,
        service: &ServiceConfig,
        key: &str,
        numbers: &Numbers,
    ) -> Option<FastLoad> {
        service.load.as_ref()?;
        let known = self.loads.get(key);
        Some(FastLoad {
            percent: known.and_then(Estimate::load_percent),
            weight_percent: numbers.percents.get(key).copied().unwrap_or(ALL),
            failures: known.map_or(0, Estimate::failures),
            reason: known.and_then(Estimate::reason).map(str::to_owned),
        })
    }

    /// Returns the status of the services.
    pub fn statuses(&self, numbers: &Numbers) -> Vec<FastService> {
        let status = |(name, service): (&String, &ServiceConfig)| {
            let server = |server: &ServerConfig| {
                let key = service.server_key(server.at);
                let number = numbers.servers.get(&key);
                let sent = number.and_then(|number| self.balancer.sent_to(*number).ok());
                let state = match state_of(service, server, numbers) {
                    State::Up => "up",
                    State::Draining => "draining",
                    State::Down => "down",
                };
                FastServer {
                    at: server.at.to_string(),
                    state: state.to_owned(),
                    reason: self.reasons.get(&key).cloned(),
                    weight: server.weight,
                    load: self.load_status(service, &key, numbers),
                    packets: sent.map_or(0, |sent| sent.packets),
                }
            };
            FastService {
                name: name.clone(),
                at: service.at.to_string(),
                protocol: service.protocol.name().to_owned(),
                servers: service.servers.iter().map(server).collect(),
            }
        };
        self.config.services.iter().map(status).collect()
    }

    /// Adds metrics of services and servers, by name with labels.
    pub fn add_metrics(&self, numbers: &Numbers, metrics: &mut BTreeMap<String, f64>) {
        if let Ok(midway) = self.balancer.begun_midway() {
            metrics.insert("xdp_midway_connections".to_owned(), midway as f64);
        }
        for service in self.statuses(numbers) {
            for server in &service.servers {
                let labels = format!("{{service=\"{}\",server=\"{}\"}}", service.name, server.at);
                let up = f64::from(server.state != "down");
                metrics.insert(format!("xdp_server_packets{labels}"), server.packets as f64);
                metrics.insert(format!("xdp_server_up{labels}"), up);
                let Some(load) = &server.load else { continue };
                for (name, number) in [
                    ("xdp_server_load_percent", load.percent.map(f64::from)),
                    (
                        "xdp_server_weight_percent",
                        Some(load.weight_percent.into()),
                    ),
                    ("xdp_server_load_failures", Some(load.failures as f64)),
                ] {
                    metrics.extend(number.map(|number| (format!("{name}{labels}"), number)));
                }
            }
        }
    }
}
