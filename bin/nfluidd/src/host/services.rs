//! The services that this daemon offers to the life of instances.

use super::{Host, tables};
use nfluid_control::apply::{PlatformError, PlatformErrorKind};
use nfluid_control::events::Events;
use nfluid_control::group::Groups;
use nfluid_control::io::IoModel;
use nfluid_control::model::PortRef;
use nfluid_control::spec::InstanceSpec;
use nfluid_control::tier::Tier;
use nfluid_lifecycle::errors::refused;
use nfluid_lifecycle::runtime::Runtime;
use nfluid_lifecycle::scaling::FlowTables;
use nfluid_lifecycle::services::Services;
use nfluid_lifecycle::table::Instances;
use nfluid_wiring::Ports as _;
use std::path::PathBuf;
use std::sync::Arc;

impl Services for Host {
    fn instances(&self) -> &Instances {
        &self.instances
    }

    fn instances_mut(&mut self) -> &mut Instances {
        &mut self.instances
    }

    fn groups(&self) -> &Groups {
        self.tenants.groups()
    }

    fn runtime(&self, spec: &InstanceSpec) -> Result<Arc<dyn Runtime>, PlatformError> {
        match self.runtimes.get(&spec.tier.isolation()) {
            Some(runtime) => Ok(Arc::clone(runtime)),
            None => Err(no_runtime(spec.tier)),
        }
    }

    fn events(&self) -> Arc<dyn Events> {
        self.events.clone()
    }

    fn link_peers(&self, name: &str, spec: &InstanceSpec) -> Vec<Option<String>> {
        let ports = spec.ports.iter();
        ports
            .map(|port| self.wires.link_peer(&PortRef::instance(name, &port.name)))
            .collect()
    }

    fn check_bypass(&self, name: &str) -> Result<(), PlatformError> {
        let checked = self.wires.check_bypass(&self.ports(), name);
        checked.map_err(|why| refused(why.to_string(), "pause it with --traffic hold or drop"))
    }

    fn begin_bypass(&mut self, name: &str) -> Result<(), PlatformError> {
        self.lead_past(name)
    }

    fn end_bypass(&mut self, name: &str) -> Result<(), PlatformError> {
        self.lead_to(name)
    }

    fn choose_doorbells_of(&self, name: &str) {
        self.choose(&self.wires.own_doorbells(&self.ports(), name));
    }

    fn choose_doorbells_of_peers(&self, name: &str) {
        self.choose(&self.wires.doorbells_of_peers(&self.ports(), name));
    }

    fn senders_to(&self, port: &PortRef) -> Option<Vec<u32>> {
        let senders = self.wires.senders_of(port)?.iter();
        // Frames that an interface receives are counted in the table.
        let instances = senders.filter(|sender| sender.owner().is_some());
        Some(instances.filter_map(|it| self.port_id(it)).collect())
    }

    fn flow_tables(&self) -> Arc<dyn FlowTables> {
        Arc::new(tables::SwitchTables(Arc::clone(&self.switch)))
    }

    fn scaling_note(&self, name: &str) -> PathBuf {
        self.settings.paths.scaling(name)
    }

    fn scaling_notes(&self) -> Vec<String> {
        let names = nfluid_records::names(&self.settings.paths.scalings());
        names.into_iter().collect()
    }

    fn is_one_of_several(&self, name: &str) -> bool {
        self.ports().is_member(name)
    }

    fn assign_io(&mut self, name: &str, model: IoModel) -> anyhow::Result<()> {
        let ran = self.io.process().is_some();
        let entrusted = self.io.entrust(&mut self.instances, name, model);
        if !ran {
            self.set_io_weights();
        }
        entrusted
    }

    fn release(&mut self, name: &str) {
        let _process_is_gone = self.io.release(&self.instances, name);
    }

    fn dismiss(&mut self, name: &str) {
        self.dismiss_client(name);
    }

    fn forget_wires(&mut self, name: &str) {
        let came = self.came_to_member(name);
        self.wires.forget_bypass(name);
        self.add_to_first_member(name, came);
    }

    fn set_io_weights(&self) {
        self.io.weigh(&self.instances, self.tenants.groups());
    }
}

fn no_runtime(tier: Tier) -> PlatformError {
    let message = format!("this daemon cannot make instances of tier {tier}");
    PlatformError::new(PlatformErrorKind::Unsupported, message)
}
