//! What exists and how it is, for the API.

use super::instance::Running;
use super::{Host, logs, nf_socket};
use nfluid_api::types::{
    Counters, InstanceStats, InstanceStatus, PortState, PortStats, PortStatus, Stats, SwitchStatus,
    UplinkStatus,
};
use nfluid_control::model::PortRef;
use nfluid_control::quantity::Mac;
use nfluid_switch::{DropReason, PortCounters};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;

impl Host {
    /// Traffic of a port.
    pub fn counters_of(&self, port: &PortRef) -> Counters {
        self.queue_ids(port)
            .map(|ids| counters(&self.switch.counters_of(ids)))
            .unwrap_or_default()
    }

    /// Whether the port takes part.
    pub fn port_state(&self, port: &PortRef) -> PortState {
        match self.port_id(port) {
            Some(id) if self.switch.is_up(id) => PortState::Up,
            _ => PortState::Down,
        }
    }

    fn destination_of(&self, port: &PortRef) -> String {
        self.wires
            .get(port)
            .map_or_else(|| "nowhere".to_owned(), ToString::to_string)
    }

    /// All instances.
    pub fn instance_statuses(&self) -> Vec<InstanceStatus> {
        self.instances
            .iter()
            .map(|(name, running)| instance_status(name, running))
            .collect()
    }

    /// All ports of instances.
    pub fn port_statuses(&self) -> Vec<PortStatus> {
        let all = self.instances.iter().flat_map(|(name, running)| {
            running
                .spec
                .ports
                .iter()
                .map(move |port| (PortRef::instance(name, &port.name), port, running.spec.ring))
        });
        all.map(|(port, spec, ring)| PortStatus {
            name: port.to_string(),
            mac: spec.mac.to_string(),
            state: self.port_state(&port),
            destination: self.destination_of(&port),
            ring,
            queues: spec.queues,
            counters: self.counters_of(&port),
        })
        .collect()
    }

    /// All switches.
    pub fn switch_statuses(&self) -> Vec<SwitchStatus> {
        let entries = self.switch.fdb_entries().unwrap_or_default();
        let status = |(name, (id, model)): (&String, &(u32, nfluid_control::model::Switch))| {
            let ports = self
                .wires
                .iter()
                .filter(|(_, to)| to.switch() == Some(name));
            SwitchStatus {
                name: name.clone(),
                ports: ports.map(|(port, _)| port.to_string()).collect(),
                ageing_s: model.ageing.0 / 1000,
                addresses: Some(
                    entries
                        .iter()
                        .filter(|entry| entry.switch == *id && !entry.aged)
                        .count() as u64,
                ),
            }
        };
        self.switches.iter().map(status).collect()
    }

    /// All uplinks.
    pub fn uplink_statuses(&self) -> Vec<UplinkStatus> {
        let status = |(name, uplink): (&String, &super::uplinks::RunningUplink)| {
            let port = PortRef::Uplink(name.clone());
            let (mode, reason) = uplink.mode();
            let (pid, cpu_time) = uplink.process_use();
            UplinkStatus {
                name: name.clone(),
                interface: uplink.spec.interface.clone(),
                netns: uplink.spec.netns.clone(),
                kind: uplink.kind().to_owned(),
                mode,
                mode_reason: reason,
                state: if uplink.problem().is_none() {
                    PortState::Up
                } else {
                    PortState::Down
                },
                reason: uplink.problem(),
                mac: Mac(uplink.mac()).to_string(),
                destination: self.destination_of(&port),
                pid,
                cpu_seconds: cpu_time.map(|time| time.as_secs_f64()),
                counters: self.counters_of(&port),
            }
        };
        self.uplinks.iter().map(status).collect()
    }

    /// All figures of the switch and the cgroups; the NFs' own are added by the caller, who asks
    /// them without holding the host's lock.
    pub fn stats(&self) -> Stats {
        let mut ports = Vec::new();
        for (name, running) in &self.instances {
            for spec in &running.spec.ports {
                let port = PortRef::instance(name, &spec.name);
                ports.push(self.port_stats(&port, running.spec.ring));
            }
        }
        for (name, uplink) in &self.uplinks {
            ports.push(self.port_stats(&PortRef::Uplink(name.clone()), uplink.spec.ring));
        }
        Stats {
            time_ns: self.started.elapsed().as_nanos() as u64,
            ports,
            instances: self
                .instances
                .iter()
                .map(|(name, running)| instance_stats(name, running))
                .collect(),
            chains: Vec::new(),
        }
    }

    fn port_stats(&self, port: &PortRef, ring: u32) -> PortStats {
        let ids = self.queue_ids(port).unwrap_or_default();
        let queues = ids.len() as u32;
        let used = ids.clone().map(|id| self.switch.rx_ring_used(id));
        let used = used.sum::<Option<u32>>();
        let found = self.switch.counters_of(ids);
        PortStats {
            name: port.to_string(),
            counters: counters(&found),
            rx_ring_used: used,
            rx_ring_size: Some(ring * queues),
            calls: Some(found.tx_calls),
        }
    }

    /// Control sockets of all running built-in NFs.
    pub fn control_sockets(&self) -> Vec<(String, PathBuf)> {
        let running = self.instances.iter().filter(|(_, running)| {
            running.process.is_some()
                && matches!(
                    running.spec.program,
                    nfluid_control::model::Program::BuiltIn { .. }
                )
        });
        running
            .map(|(name, _)| (name.clone(), self.settings.paths.control(name)))
            .collect()
    }

    /// Where an instance listens for commands.
    pub fn control_socket(&self, name: &str) -> Option<PathBuf> {
        self.instances
            .contains_key(name)
            .then(|| self.settings.paths.control(name))
    }

    /// Lines of an instance's log; `None`: no such instance.
    pub fn log_lines(
        &self,
        name: &str,
        since: u64,
        tail: usize,
    ) -> Option<std::io::Result<(Vec<String>, u64)>> {
        self.instances
            .contains_key(name)
            .then(|| logs::read_lines(&self.settings.paths.log(name), since, tail))
    }
}

/// An NF's own metrics; empty if it does not answer.
pub fn nf_metrics(control: &std::path::Path) -> BTreeMap<String, f64> {
    let Ok(answer) = nf_socket::ask(control, &json!({ "op": "metrics" })) else {
        return BTreeMap::new();
    };
    let metrics = answer.get("nf").and_then(Value::as_object);
    let pairs = metrics.into_iter().flatten();
    pairs
        .filter_map(|(name, value)| Some((name.clone(), value.as_f64()?)))
        .collect()
}

/// Runs an operator's command in an instance.
///
/// # Errors
/// When it does not answer, or refuses.
pub fn nf_command(control: &std::path::Path, name: &str, args: &[String]) -> anyhow::Result<Value> {
    nf_socket::ask(
        control,
        &json!({ "op": "command", "name": name, "args": args }),
    )
}

fn counters(found: &PortCounters) -> Counters {
    let drops = DropReason::ALL
        .iter()
        .map(|reason| (reason.name().to_owned(), found.dropped(*reason)));
    Counters {
        rx_packets: found.rx_frames,
        rx_bytes: found.rx_bytes,
        tx_packets: found.tx_frames,
        tx_bytes: found.tx_bytes,
        drops: drops.filter(|(_, count)| *count > 0).collect(),
    }
}

fn instance_status(name: &str, running: &Running) -> InstanceStatus {
    let spec = &running.spec;
    InstanceStatus {
        name: name.to_owned(),
        nf: spec.program.name().to_owned(),
        tier: "process".to_owned(),
        state: running.state,
        pid: running.pid(),
        uptime_ms: running
            .pid()
            .map(|_| running.since.elapsed().as_millis() as u64),
        restarts: running.supervisor.restarts(),
        last_exit: running.last_exit.clone(),
        flavor: spec.flavor.clone(),
        ring: spec.ring,
        share_percent: spec
            .resources
            .share
            .map(nfluid_control::quantity::Share::percent),
        cap_percent: spec
            .resources
            .cap
            .map(nfluid_control::quantity::Share::percent),
        cpus: spec.resources.cpus.clone(),
        memory_limit_bytes: spec.resources.memory.0,
        ports: spec
            .ports
            .iter()
            .map(|port| format!("{name}.{}", port.name))
            .collect(),
        config: spec.config.clone(),
    }
}

fn instance_stats(name: &str, running: &Running) -> InstanceStats {
    let used = running.cgroup.stats().unwrap_or_default();
    InstanceStats {
        name: name.to_owned(),
        cpu_ns: used.cpu_usage_ns.unwrap_or(0),
        share_percent: running
            .spec
            .resources
            .share
            .map(nfluid_control::quantity::Share::percent),
        throttled_ns: used.throttled_ns,
        memory_bytes: used.memory_bytes,
        memory_limit_bytes: Some(running.spec.resources.memory.0),
        restarts: running.supervisor.restarts(),
        metrics: BTreeMap::new(),
    }
}
