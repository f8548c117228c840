//! Taking over what an earlier daemon left running.

use super::Host;
use nfluid_api::types::{EventKind, Kind};
use nfluid_control::inventory::Inventory;
use nfluid_control::model::PortRef;
use nfluid_instance::process::remove_leftovers;
use nfluid_lifecycle::services::Services as _;
use nfluid_lifecycle::{creation, scaling};

impl Host {
    /// Adopts every recorded instance that still runs as `desired` asks for, and removes what is left of all others.
    /// Returns the objects that exist.
    pub fn adopt(&mut self, desired: &Inventory) -> Inventory {
        let mut present = Inventory::default();
        // Instances of templates are ended below, since the desired state does not contain them: their clients get
        // new instances.
        if let Err(error) = self.switch.remove_clients() {
            tracing::warn!(%error, "removing an earlier daemon's clients");
        }
        self.tenants.adopt(&desired.groups, &*self.events);
        present.groups = self.tenants.groups().clone();
        let recorded = nfluid_records::names(&self.settings.paths.records());
        for name in &recorded {
            let Some(spec) = desired.spec_left(name) else {
                continue;
            };
            match creation::adopt(self, name, spec) {
                Ok(lost) => {
                    if let Some(adopted) = self.instances.get(name) {
                        present.instances.insert(name.clone(), adopted.spec.clone());
                    }
                    if lost > 0 {
                        let message = format!(
                            "{lost} frames are lost that an earlier daemon was putting into its rings when it ended"
                        );
                        self.event(EventKind::Warning, Some((Kind::Instance, name)), message);
                    }
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
        scaling::adopt(self, &mut present);
        self.io.adopt(&mut self.instances, &desired.io);
        self.set_io_weights();
        present.io = desired.io.clone();
        // Before uplinks are adopted: another uplink may have had the interface.
        self.with_fast(|fast| fast.adopt(desired, &mut present));
        present.uplinks = self.uplinks.adopt(&desired.uplinks);
        present.levels = self.uplinks.adopt_levels(&desired.levels);
        self.recall_switches(&desired.switches);
        remove_leftovers(&self.maker, self.instances.table(), self.tenants.groups());
        let is_desired = |name: &str| desired.uplinks.contains_key(name);
        self.uplinks.remove_leftovers(is_desired);
        self.remove_left_doorbells(&present);
        present
    }

    /// Removes the doorbells of uplinks that are not there. A doorbell that an instance has is left: the instance rings a later
    /// uplink of that name by it.
    fn remove_left_doorbells(&self, present: &Inventory) {
        let folder = self.settings.paths.directories().uplink_doorbells();
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_used = present.uplinks.contains_key(&name) || {
                let doorbell = PortRef::Uplink(name).doorbell();
                self.instances.is_doorbell_held(&doorbell)
            };
            if !is_used {
                let _absent = std::fs::remove_file(entry.path());
            }
        }
    }
}
