//! The state and the counters of all objects, for the API.

use super::Host;
use nfluid_api::types::{
    Counters, InstanceSnapshot, InstanceState, InstanceStats, InstanceStatus, IoStats, IoStatus,
    IoThread, PortState, PortStats, PortStatus, Stats, SwitchStatus, WakeStatus,
};
use nfluid_congestion::thread::Figures;
use nfluid_control::model::{PortRef, check_name};
use nfluid_control::portion::Portion;
use nfluid_lifecycle::machine;
use nfluid_lifecycle::running::Running;
use nfluid_process::io::{IoProcess, setup};
use nfluid_protocol::{Request, daemon};
use nfluid_switch::{DropReason, PortCounters};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

/// Limit of the metrics of one NF; the NF is hostile.
const METRICS_MAX: usize = 4096;

impl Host {
    /// Returns the traffic of a port.
    pub fn counters_of(&self, port: &PortRef) -> Counters {
        self.queue_ids(port)
            .map(|ids| counters(&self.switch.counters_of(ids)))
            .unwrap_or_default()
    }

    /// Returns the state of a port: whether frames pass.
    pub fn port_state(&self, port: &PortRef) -> PortState {
        match self.port_id(port) {
            Some(id) if self.switch.is_up(id) => PortState::Up,
            _ => PortState::Down,
        }
    }

    pub(super) fn destination_of(&self, port: &PortRef) -> String {
        self.wires
            .get(port)
            .map_or_else(|| "nowhere".to_owned(), ToString::to_string)
    }

    /// Returns the state of all instances.
    pub fn instance_statuses(&self) -> Vec<InstanceStatus> {
        let processes = self.instances.iter();
        let processes = processes.map(|(name, running)| instance_status(name, running));
        let fast = self.fast.lock().statuses();
        let mut all: Vec<_> = processes.chain(fast).collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    /// Returns the state of one instance; `None` if it does not exist.
    pub fn status_of(&self, name: &str) -> Option<InstanceStatus> {
        let Some(running) = self.instances.get(name) else {
            let fast = self.fast.lock().statuses();
            return fast.into_iter().find(|status| status.name == name);
        };
        Some(instance_status(name, running))
    }

    /// Returns the state of all ports of instances.
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

    /// Returns the state of all switches.
    pub fn switch_statuses(&self) -> Vec<SwitchStatus> {
        let entries = self.switch.fdb_entries().unwrap_or_default();
        let status = |(name, (id, model)): (&String, &(u32, nfluid_control::model::Switch))| {
            let ports = self.wires.on_switch(name);
            SwitchStatus {
                name: name.clone(),
                ports: ports.map(ToString::to_string).collect(),
                ageing_s: model.ageing.0 / 1000,
                addresses: Some(
                    entries
                        .iter()
                        .filter(|entry| entry.switch == *id && !entry.aged)
                        .count() as u64,
                ),
                owner: model.owner.clone(),
            }
        };
        self.switches.iter().map(status).collect()
    }

    /// Returns the state of the I/O threads.
    pub fn io_status(&self) -> IoStatus {
        let settings = self.io.settings();
        IoStatus {
            cores: setup(settings).cores,
            idle: settings.idle.to_string(),
            cap_percent: settings.cap.map(nfluid_control::quantity::Share::percent),
            pid: self.io.process().map(IoProcess::pid),
            reason: self.io.problem(&self.instances),
            stats: self.io_stats().unwrap_or_default(),
        }
    }

    /// Returns what the I/O threads have used; `None` if there are none.
    fn io_stats(&self) -> Option<IoStats> {
        let used = self.io.cgroup()?.stats().unwrap_or_default();
        let mut threads: BTreeMap<i32, IoThread> = BTreeMap::new();
        for (instance, thread) in self.io.threads() {
            let known = threads.entry(thread.tid).or_insert_with(|| IoThread {
                name: thread.name.clone(),
                model: thread.model.to_string(),
                ..IoThread::default()
            });
            known.instances.push(instance.clone());
        }
        for (tid, thread) in &mut threads {
            let process = self.io.process();
            if let Some(used) = process.and_then(|process| process.thread_use(*tid)) {
                thread.cpu_ns = used.cpu_time.as_nanos() as u64;
                thread.core = Some(used.core);
            }
        }
        Some(IoStats {
            cpu_ns: used.cpu_usage_ns.unwrap_or(0),
            throttled_ns: used.throttled_ns,
            threads: threads.into_values().collect(),
        })
    }

    /// Returns all counters of the switch and the cgroups. The caller adds the NFs' own metrics, which it asks for
    /// without the host's lock.
    pub fn stats(&self, found: &Figures) -> Stats {
        let mut ports = Vec::new();
        for (name, running) in self.instances.iter() {
            ports.extend(self.ports_stats(name, running, found));
        }
        for (name, ring) in self.uplinks.rings() {
            let port = PortRef::Uplink(name.to_owned());
            ports.push(self.port_stats(&port, ring, found));
        }
        let fast = self.fast.lock().stats();
        let io = self.io_stats();
        let own_io = own_io(io.as_ref());
        let instances = self.instances.iter();
        let instances =
            instances.map(|(name, running)| self.instance_stats(name, running, &own_io, found));
        Stats {
            pools: self.pool.statuses(),
            templates: Vec::new(),
            time_ns: self.started.elapsed().as_nanos() as u64,
            ports,
            instances: instances.chain(fast).collect(),
            uplinks: self.uplinks.costs(),
            groups: self.group_stats(&own_io),
            chains: Vec::new(),
            io,
            congestion: Some(found.stats()),
        }
    }

    /// Returns the counters of one instance; `None` if there is no such instance.
    pub fn snapshot_of(&self, name: &str, found: &Figures) -> Option<InstanceSnapshot> {
        let time_ns = self.started.elapsed().as_nanos() as u64;
        let Some(running) = self.instances.get(name) else {
            let fast = self.fast.lock().stats();
            return Some(InstanceSnapshot {
                time_ns,
                instance: fast.into_iter().find(|stats| stats.name == name)?,
                ports: Vec::new(),
            });
        };
        let io = self.io_stats();
        Some(InstanceSnapshot {
            time_ns,
            instance: self.instance_stats(name, running, &own_io(io.as_ref()), found),
            ports: self.ports_stats(name, running, found).collect(),
        })
    }

    fn instance_stats(
        &self,
        name: &str,
        running: &Running,
        own_io: &BTreeMap<&str, u64>,
        found: &Figures,
    ) -> InstanceStats {
        InstanceStats {
            io_cpu_ns: own_io.get(name).copied(),
            uplink_ns: self.uplinks.spent_for(name),
            ..instance_stats(name, running, found)
        }
    }

    fn ports_stats(
        &self,
        name: &str,
        running: &Running,
        found: &Figures,
    ) -> impl Iterator<Item = PortStats> {
        running.spec.ports.iter().map(move |spec| {
            let port = PortRef::instance(name, &spec.name);
            self.port_stats(&port, running.spec.ring, found)
        })
    }

    fn port_stats(&self, port: &PortRef, ring: u32, costs: &Figures) -> PortStats {
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
            cpu_ns: costs.port_cpu_ns(port),
            signal: costs.signals.get(port).copied(),
        }
    }

    /// Returns the control sockets of all running instances that answer requests, and are known to.
    pub fn control_sockets(&self) -> Vec<(String, PathBuf)> {
        let running = self.instances.iter().filter(|(_, running)| {
            running.answers() && running.condition.unhealthy.is_none() && running.spec.is_hosted()
        });
        running
            .map(|(name, running)| (name.clone(), running.workload.control().to_owned()))
            .collect()
    }

    /// Returns the path of the socket on which an instance accepts commands.
    pub fn control_socket(&self, name: &str) -> Option<PathBuf> {
        self.instances.control(name)
    }

    /// Returns lines of the log of an instance, or of one that is gone and whose log is kept; `None` if there is none.
    pub fn log_lines(
        &self,
        name: &str,
        since: u64,
        tail: usize,
    ) -> Option<std::io::Result<(Vec<String>, u64)>> {
        let path = self.settings.paths.log(name);
        let writes_one = self.instances.contains(name) || self.fast.lock().has_process(name);
        let is_kept = || check_name(name).is_ok() && path.exists();
        (writes_one || is_kept()).then(|| nfluid_instance::logs::read_lines(&path, since, tail))
    }
}

/// Returns the CPU time of the threads that work for one instance only.
fn own_io(io: Option<&IoStats>) -> BTreeMap<&str, u64> {
    let threads = io.into_iter().flat_map(|io| &io.threads);
    threads
        .filter_map(|thread| Some((thread.only_instance()?, thread.cpu_ns)))
        .collect()
}

/// Returns the metrics of NFs, by instance, without the NFs that do not answer.
pub fn nf_metrics(instances: Vec<(String, PathBuf)>) -> HashMap<String, BTreeMap<String, f64>> {
    let (names, sockets): (Vec<String>, Vec<PathBuf>) = instances.into_iter().unzip();
    let answers = daemon::ask_each(&sockets, &Request::Metrics, |answer| figures_of(&answer));
    let found = names.into_iter().zip(answers);
    found
        .filter_map(|(name, figures)| Some((name, figures?)))
        .collect()
}

/// Reads the metrics in an NF's answer, up to the limit of one NF.
fn figures_of(answer: &Value) -> BTreeMap<String, f64> {
    let metrics = answer.get("nf").and_then(Value::as_object);
    let pairs = metrics.into_iter().flatten();
    pairs
        .filter_map(|(name, value)| Some((name.clone(), value.as_f64()?)))
        .take(METRICS_MAX)
        .collect()
}

/// Runs an operator's command in an instance.
///
/// # Errors
/// The instance does not answer, or refuses.
pub fn nf_command(control: &std::path::Path, name: &str, args: &[String]) -> anyhow::Result<Value> {
    let request = Request::Command {
        name: name.to_owned(),
        args: args.to_vec(),
    };
    daemon::ask(control, &request)
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
        rx_segments: found.rx_frames + found.rx_more_segments,
        rx_wire_bytes: found.rx_bytes + found.rx_more_bytes,
        tx_segments: found.tx_frames + found.tx_more_segments,
        tx_wire_bytes: found.tx_bytes + found.tx_more_bytes,
        marked_packets: found.marked,
        forwarded_packets: found.forwarded,
        drops: drops.filter(|(_, count)| *count > 0).collect(),
    }
}

/// Returns the state of an instance, including its health.
fn state_of(running: &Running) -> InstanceState {
    match running.state {
        InstanceState::Running if running.condition.unhealthy.is_some() => InstanceState::Unhealthy,
        state => state,
    }
}

fn instance_status(name: &str, running: &Running) -> InstanceStatus {
    let spec = &running.spec;
    InstanceStatus {
        name: name.to_owned(),
        nf: spec.program.name().to_owned(),
        owner: spec.owner.clone(),
        tier: spec.tier.to_string(),
        state: state_of(running),
        unhealthy: running.condition.unhealthy.clone(),
        paused_traffic: running.record().paused,
        pid: running.pid(),
        uptime_ms: running
            .pid()
            .map(|_| running.since.elapsed().as_millis() as u64),
        restarts: running.supervisor.restarts(),
        started_ms: Some(running.record().started_ms).filter(|time| *time > 0),
        last_exit: running.last_exit.clone(),
        exit: running.exit.filter(|_| !running.has_process()),
        io: spec.io.to_string(),
        trust: spec.trust.clone(),
        wake: spec.wake.map(|wake| WakeStatus {
            frames: wake.frames,
            after_us: wake.after.0,
        }),
        flavor: spec.flavor.clone(),
        ring: spec.ring,
        group: spec.resources.group.clone(),
        share_percent: percent(spec.resources.share),
        cap_percent: percent(spec.resources.cap),
        guarantee_percent: percent(spec.resources.guarantee),
        placement: spec.resources.placement.to_string(),
        core: running.core,
        slice_us: spec.resources.slice.map(|slice| slice.0),
        cpus: spec.resources.cpus.clone(),
        memory_limit_bytes: spec.resources.memory.0,
        ports: spec
            .ports
            .iter()
            .map(|port| format!("{name}.{}", port.name))
            .collect(),
        fast: None,
        config: spec.config.clone(),
    }
}

/// Converts a portion to percent of a core.
fn percent(portion: Option<Portion>) -> Option<f64> {
    portion.map(|portion| portion.percent(machine::cpu_count()))
}

fn instance_stats(name: &str, running: &Running, found: &Figures) -> InstanceStats {
    let used = running.workload.usage();
    let cost = found.instances.get(name);
    InstanceStats {
        name: name.to_owned(),
        cpu_ns: used.cpu_ns,
        io_cpu_ns: None,
        uplink_ns: None,
        cost_ns: cost.and_then(|cost| cost.cost_ns),
        mean_cost_ns: cost.and_then(|cost| cost.mean_cost_ns),
        core: running.core,
        share_percent: percent(running.spec.resources.share),
        throttled_ns: used.throttled_ns,
        memory_bytes: used.memory_bytes,
        memory_limit_bytes: Some(running.spec.resources.memory.0),
        restarts: running.supervisor.restarts(),
        paused: running.is_paused(),
        healthy: running
            .spec
            .health
            .as_ref()
            .map(|_| running.condition.unhealthy.is_none()),
        unhealthy_total: running.condition.times,
        metrics: BTreeMap::new(),
    }
}
