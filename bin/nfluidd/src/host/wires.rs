//! Where ports' frames go.

use super::Host;
use nfluid_control::apply::{PlatformError, PlatformErrorKind};
use nfluid_control::model::{PortRef, Switch as SwitchModel};
use nfluid_control::wiring::{Destination, SwitchPort};
use nfluid_switch::Destination as SwitchDestination;
use nfluid_switch::SwitchError;

impl Host {
    /// Sends the frames of `port` to `to`, or nowhere.
    pub(super) fn connect(
        &mut self,
        port: &PortRef,
        to: Option<&Destination>,
    ) -> Result<(), PlatformError> {
        self.connect_once(port, to)?;
        self.follow_bypass(port)
    }

    /// As [`Host::connect`], without those who send past the port's owner.
    pub(super) fn connect_once(
        &mut self,
        port: &PortRef,
        to: Option<&Destination>,
    ) -> Result<(), PlatformError> {
        let ids = self.queue_ids(port).ok_or_else(|| missing(port))?;
        let id = ids.start;
        if let PortRef::Uplink(name) = port {
            self.steer(name, to)?;
        }
        match to {
            None => self.link(ids, None)?,
            Some(Destination::Port(peer)) => {
                self.port_id(peer).ok_or_else(|| missing(peer))?;
                let peer = self.past_bypassed(peer);
                self.link(ids, peer.and_then(|peer| self.port_id(&peer)))?;
            }
            Some(Destination::Switch(place)) => self.join(port, id, place)?,
            Some(Destination::Classify(entries)) => {
                self.clients.number_templates(entries);
                let past = |to: &PortRef| self.past_bypassed(to);
                let rules = super::uplinks::rules(
                    entries,
                    |to| self.port_id(&past(to)?),
                    |template| self.clients.number_of(template),
                );
                self.switch.set_rules(id, &rules).map_err(failed)?;
                self.switch
                    .connect(id, SwitchDestination::Classifier)
                    .map_err(failed)?;
            }
        }
        let before = self.note_wire(port, to);
        for end in before.iter().chain(to).flat_map(Destination::targets) {
            self.choose_bell(end);
            if let Some(end) = self.past_bypassed(end) {
                self.choose_bell(&end);
            }
        }
        Ok(())
    }

    /// Remembers where a port's frames go; where they went before.
    fn note_wire(&mut self, port: &PortRef, to: Option<&Destination>) -> Option<Destination> {
        let before = match to {
            Some(to) => self.wires.insert(port.clone(), to.clone()),
            None => self.wires.remove(port),
        };
        if let Some(Destination::Port(receiver)) = &before
            && let Some(senders) = self.senders.get_mut(receiver)
        {
            senders.remove(port);
            if senders.is_empty() {
                self.senders.remove(receiver);
            }
        }
        if let Some(Destination::Port(receiver)) = to {
            let senders = self.senders.entry(receiver.clone()).or_default();
            senders.insert(port.clone());
        }
        before
    }

    /// How many addresses a switch learns on a port, and for how long.
    pub(super) fn limit_learning(&self, port: u32, model: &SwitchModel) {
        let ageing_s = (model.ageing.0 / 1000).clamp(1, u64::from(u32::MAX)) as u32;
        self.switch.set_fdb_limits(port, ageing_s, model.addresses);
    }

    fn join(&self, port: &PortRef, id: u32, place: &SwitchPort) -> Result<(), PlatformError> {
        let (switch, model) = self.switches.get(&place.switch).ok_or_else(|| {
            PlatformError::new(
                PlatformErrorKind::NotFound,
                format!("no switch {}", place.switch),
            )
        })?;
        if place.vlan.is_some() {
            let why = format!(
                "port {port}: access VLANs are not there yet; tagged frames pass a switch unchanged"
            );
            return Err(PlatformError::new(PlatformErrorKind::Unsupported, why)
                .with_remedy("remove 'vlan' from the port; the nf 'vlan' pushes and pops tags"));
        }
        self.switch.set_learning(id, place.learn);
        self.limit_learning(id, model);
        self.switch
            .connect(id, SwitchDestination::Switch(*switch))
            .map_err(failed)?;
        if let PortRef::Instance {
            instance,
            port: name,
        } = port
            && let Some(running) = self.instances.get(instance)
            && let Some(spec) = running.spec.ports.iter().find(|spec| spec.name == *name)
        {
            self.switch
                .pin_address(*switch, 0, spec.mac.0, id)
                .map_err(failed)?;
        }
        Ok(())
    }

    /// A link's sender wakes its peer itself if it was given the peer's bell when it started; for
    /// any other the switch does.
    fn choose_bell(&self, receiver: &PortRef) {
        let (Some(ids), Some(owner)) = (self.queue_ids(receiver), receiver.owner()) else {
            return;
        };
        if ids.len() > 1 {
            // Made so that the switch rings.
            return;
        }
        let mut senders = self.senders.get(receiver).into_iter().flatten();
        let all_ring =
            senders.all(|from| self.can_ring(from, owner)) && !self.is_behind_bypassed(receiver);
        // What is for members is rung by the switch: a sender has the bell of the first at most.
        let one = !self.is_one_of_several(owner);
        self.switch.set_kernel_bell(ids.start, !(all_ring && one));
    }

    /// For an instance's own ports: those who send there may be others.
    pub(super) fn choose_own_bells(&self, name: &str) {
        let Some(running) = self.instances.get(name) else {
            return;
        };
        for port in &running.spec.ports {
            self.choose_bell(&PortRef::instance(name, &port.name));
        }
    }

    /// For the ports at the other ends of an instance's wires: it may have been given other bells.
    pub(super) fn choose_bells_of(&self, name: &str) {
        let own = self
            .wires
            .iter()
            .filter(|(port, _)| port.owner() == Some(name));
        for end in own.flat_map(|(_, to)| to.targets()) {
            self.choose_bell(end);
        }
    }

    fn can_ring(&self, sender: &PortRef, receiver: &str) -> bool {
        let PortRef::Instance { instance, port } = sender else {
            return false;
        };
        let Some(running) = self.instances.get(instance) else {
            return false;
        };
        let index = running
            .spec
            .ports
            .iter()
            .position(|spec| spec.name == *port);
        let bell = index.and_then(|index| running.record.bells.get(index));
        bell.and_then(Option::as_deref) == Some(receiver)
    }
}

fn missing(port: &PortRef) -> PlatformError {
    PlatformError::new(
        PlatformErrorKind::NotFound,
        format!("there is no port {port}"),
    )
}

/// An error of the switch, for the operator.
pub fn failed(error: SwitchError) -> PlatformError {
    let kind = match &error {
        SwitchError::Limit(_) => PlatformErrorKind::Exhausted,
        _ => PlatformErrorKind::Failed,
    };
    PlatformError::new(kind, error.to_string())
}
