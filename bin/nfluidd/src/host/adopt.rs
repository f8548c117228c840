//! Taking over what an earlier daemon left running.

use super::Host;
use anyhow::{Context, bail};
use nfluid_api::types::{EventKind, InstanceState, Kind};
use nfluid_control::inventory::Inventory;
use nfluid_control::spec::InstanceSpec;
use nfluid_control::supervise::Supervisor;
use nfluid_instance::cores::Load;
use nfluid_instance::doorbell;
use nfluid_instance::making::shell::is_shell;
use nfluid_instance::numbers::InUse;
use nfluid_instance::record::Record;
use nfluid_instance::running::Condition;
use nfluid_instance::running::{Running, cgroup_name, port_specs, supervisor_time};
use nfluid_switch::InstanceMemory;
use std::collections::BTreeSet;
use std::time::Instant;

impl Host {
    /// Adopts every recorded instance that still runs as `desired` asks for, and removes what is
    /// left of all others. Returns what exists.
    pub fn adopt(&mut self, desired: &Inventory) -> Inventory {
        let mut present = Inventory::default();
        // Instances of templates are ended below, as nobody desires them: their clients get new ones.
        if let Err(error) = self.switch.remove_clients() {
            tracing::warn!(%error, "removing an earlier daemon's clients");
        }
        self.adopt_tenants(&desired.groups);
        present.groups = self.tenants.clone();
        let recorded = nfluid_records::names(&self.settings.paths.records());
        for name in &recorded {
            let Some(spec) = desired.spec_left(name) else {
                continue;
            };
            match self.adopt_instance(name, spec) {
                Ok(()) => {
                    let adopted = &self.instances[name].spec;
                    present.instances.insert(name.clone(), adopted.clone());
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
        self.adopt_members(&mut present);
        self.adopt_io(&desired.io);
        present.io = desired.io.clone();
        // Before uplinks are looked for: another may have had the interface.
        self.with_fast(|fast| fast.adopt(desired, &mut present));
        present.uplinks = self.uplinks.adopt(&desired.uplinks);
        self.recall_switches(&desired.switches);
        self.remove_leftovers();
        let is_desired = |name: &str| desired.uplinks.contains_key(name);
        self.uplinks.remove_leftovers(is_desired);
        present
    }

    fn adopt_instance(&mut self, name: &str, spec: &InstanceSpec) -> anyhow::Result<()> {
        let mut record: Record = nfluid_records::load(&self.settings.paths.record(name))
            .context("reading its record")?;
        if record.spec != serde_json::to_string(spec)? {
            bail!("it was made from another specification");
        }
        let successor = record.successor.clone();
        let process = super::upgrade::settled(&mut record)?;
        let specs = port_specs(spec, record.first_port, record.tx_slots);
        let group = spec.trust.as_ref().map(|trust| {
            let id = self.switch.group_of(record.first_port);
            self.maker.groups.adopt(trust, id)
        });
        let group = group.transpose().context("its trust group")?;
        let (memory, maps) = InstanceMemory::reopen(
            &self.switch,
            &self.settings.paths.instance_pins(name),
            &specs,
            group,
        )?;
        let lost = self.switch.fill_gaps(&memory, &maps)?;
        let own = record.cgroup.clone().unwrap_or_else(|| cgroup_name(name));
        let cgroup = nfluid_instance::cgroups::cgroup_of(&self.maker.cgroups, &own, process.pid())
            .context("it is in no cgroup of the platform")?;
        let io_bell = record
            .io_bell
            .filter(|_| record.io.has_threads())
            .map(|number| doorbell::take_io(&process, number));
        let io_bell = io_bell.transpose().unwrap_or_else(|why| {
            tracing::warn!(instance = name, "{why:#}; its I/O model cannot be changed");
            None
        });
        if let Some(successor) = successor {
            let next = self.settings.paths.next_control(name);
            // It listens there until it has the ports; who has not got them has left only the file.
            let _none = if *process.identity() == successor {
                std::fs::rename(next, self.settings.paths.control(name))
            } else {
                std::fs::remove_file(next)
            };
            nfluid_records::save(&record, &self.settings.paths.record(name))?;
        }
        self.maker.make_pipes(name)?;
        self.maker.numbers.mark(&InUse {
            first_port: record.first_port,
            ports: record.ports,
            pool: record.pool,
            user: record.user,
        });
        let running = Running {
            core: record.core,
            pinned: None,
            load: Load::default(),
            sliced: None,
            moved_at: supervisor_time(self.started),
            spec: InstanceSpec {
                io: record.io,
                ..spec.clone()
            },
            memory,
            cgroup,
            process: Some(process),
            io_bell,
            supervisor: Supervisor::new(spec.restart, supervisor_time(self.started)),
            state: InstanceState::Running,
            condition: Condition::default(),
            last_exit: None,
            since: Instant::now(),
            record,
        };
        // A daemon that was killed in the middle of a change may have made it and not written it down.
        running.set_wake(&self.switch, spec.wake)?;
        self.take_up(name, running);
        let adopted = self
            .put_in_force(name, &spec.resources)
            .and_then(|()| Ok(self.adopt_pause(name)?));
        if let Err(why) = adopted {
            self.let_go(name);
            return Err(why);
        }
        if lost > 0 {
            // Whoever sent behind these has rung, and it found nothing.
            self.ring(name);
            let message = format!(
                "{lost} frames are lost that an earlier daemon was putting into its rings when it ended"
            );
            self.event(EventKind::Warning, Some((Kind::Instance, name)), message);
        }
        Ok(())
    }

    /// Files of shells: their records are gone, or those of instances by now.
    fn remove_left_shells(&self) {
        let paths = &self.settings.paths;
        let pins = paths.instance_pins("");
        for folder in [&pins, &paths.bell(""), &paths.log(""), &paths.control("")] {
            let folder = if folder.is_dir() {
                Some(folder.as_path())
            } else {
                folder.parent()
            };
            let entries = folder.and_then(|folder| std::fs::read_dir(folder).ok());
            for entry in entries.into_iter().flatten().flatten() {
                if entry.file_name().to_str().is_some_and(is_shell) {
                    let path = entry.path();
                    let _ = std::fs::remove_file(&path).or_else(|_| std::fs::remove_dir_all(&path));
                }
            }
        }
    }

    /// Cgroups, processes, ports, pins and records of instances that were not adopted.
    fn remove_leftovers(&mut self) {
        self.remove_left_cgroups();
        let adopted = self.instances.values();
        let in_use: BTreeSet<u32> = adopted
            .flat_map(|running| running.memory.ports.iter().map(|part| part.spec.id))
            .collect();
        let paths = &self.settings.paths;
        let (mut pools, mut ports) = (Vec::new(), Vec::new());
        for name in nfluid_records::names(&paths.records()) {
            if self.instances.contains_key(&name) {
                continue;
            }
            if let Ok(record) = nfluid_records::load::<Record>(&paths.record(&name))
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
        self.remove_left_shells();
        if let Some(folder) = paths.log("").parent() {
            self.maker.logs.adopt_former(folder);
        }
        // Addresses of theirs, left in a switch, would lead to whoever gets their numbers next.
        if let Err(error) = self.switch.remove_ids(&pools, &ports) {
            tracing::warn!(%error, "removing the ports of leftovers");
        }
        let adopted = self.instances.values();
        let pools = adopted.map(|running| running.memory.pool_id).collect();
        self.maker.groups.keep_only(&self.switch, &pools);
    }
}
