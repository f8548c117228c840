//! Taking over what an earlier daemon left running.

use super::Host;
use super::ids::InUse;
use super::instance::{Running, cgroup_name, port_specs, supervisor_time};
use super::record::{self, Record};
use anyhow::{Context, bail};
use nfluid_api::types::{EventKind, InstanceState, Kind};
use nfluid_control::inventory::Inventory;
use nfluid_control::spec::InstanceSpec;
use nfluid_control::supervise::Supervisor;
use nfluid_sandbox::Instance;
use nfluid_switch::InstanceMemory;
use std::collections::BTreeSet;
use std::time::Instant;

impl Host {
    /// Adopts every recorded instance that still runs as `desired` asks for, and removes what is
    /// left of all others. Returns what exists.
    pub fn adopt(&mut self, desired: &Inventory) -> Inventory {
        let mut present = Inventory::default();
        let recorded = record::names(&self.settings.paths.records());
        for name in &recorded {
            let Some(spec) = desired.instances.get(name) else {
                continue;
            };
            match self.adopt_instance(name, spec) {
                Ok(()) => {
                    present.instances.insert(name.clone(), spec.clone());
                    self.event(
                        EventKind::Adopted,
                        Some((Kind::Instance, name)),
                        "still runs, taken over",
                    );
                }
                Err(why) => {
                    self.event(
                        EventKind::Warning,
                        Some((Kind::Instance, name)),
                        format!("not taken over: {why:#}"),
                    );
                }
            }
        }
        present.uplinks = self.adopt_uplinks(&desired.uplinks);
        self.recall_switches(&desired.switches);
        self.remove_leftovers();
        let kept = |name: &str| desired.uplinks.contains_key(name);
        for name in nfluid_switch::uplink::clean_leftovers(&self.settings.paths.uplinks(), kept) {
            self.event(
                EventKind::Removed,
                Some((Kind::Uplink, &name)),
                "left by a daemon that crashed",
            );
        }
        present
    }

    fn adopt_instance(&mut self, name: &str, spec: &InstanceSpec) -> anyhow::Result<()> {
        let record =
            Record::load(&self.settings.paths.record(name)).context("reading its record")?;
        if record.spec != serde_json::to_string(spec)? {
            bail!("it was made from another specification");
        }
        let process = record.process.as_ref().context("it had no process")?;
        let process = Instance::adopt(&process.into())?;
        let specs = port_specs(spec, record.first_port);
        let memory = InstanceMemory::reopen(
            &self.switch,
            &self.settings.paths.instance_pins(name),
            &specs,
        )?;
        let cgroup = self.maker.cgroups.open(&cgroup_name(name))?;
        self.maker.make_pipes(name)?;
        self.maker.numbers.mark(&InUse {
            first_port: record.first_port,
            ports: record.ports,
            pool: record.pool,
            user: record.user,
        });
        let running = Running {
            spec: spec.clone(),
            memory,
            cgroup,
            process: Some(process),
            supervisor: Supervisor::new(spec.restart, supervisor_time(self.started)),
            state: InstanceState::Running,
            last_exit: None,
            since: Instant::now(),
            record,
        };
        self.instances.insert(name.to_owned(), running);
        Ok(())
    }

    /// Cgroups, processes, ports, pins and records of instances that were not adopted.
    fn remove_leftovers(&mut self) {
        let names = self.maker.cgroups.names().unwrap_or_default();
        let doomed = names.iter().filter_map(|name| name.strip_prefix("i-"));
        for name in doomed.filter(|name| !self.instances.contains_key(*name)) {
            if let Err(error) = self.maker.cgroups.remove_leftover(&cgroup_name(name)) {
                tracing::warn!(instance = name, %error, "removing a leftover");
            }
        }
        let adopted = self.instances.values();
        let in_use: BTreeSet<u32> = adopted
            .flat_map(|running| running.memory.ports.iter().map(|part| part.spec.id))
            .collect();
        let paths = &self.settings.paths;
        let (mut pools, mut ports) = (Vec::new(), Vec::new());
        for name in record::names(&paths.records()) {
            if self.instances.contains_key(&name) {
                continue;
            }
            if let Ok(record) = Record::load(&paths.record(&name))
                && let Some(end) = record.first_port.checked_add(record.ports)
                && end <= nfluid_switch::abi::PORTS_MAX
                && record.pool < nfluid_switch::abi::PORTS_MAX
            {
                pools.push(record.pool);
                ports.extend((record.first_port..end).filter(|port| !in_use.contains(port)));
            }
            let _ = std::fs::remove_dir_all(paths.instance_pins(&name));
            let _ = std::fs::remove_file(paths.record(&name));
        }
        // Addresses of theirs, left in a switch, would lead to whoever gets their numbers next.
        if let Err(error) = self.switch.remove_ids(&pools, &ports) {
            tracing::warn!(%error, "removing the ports of leftovers");
        }
    }
}
