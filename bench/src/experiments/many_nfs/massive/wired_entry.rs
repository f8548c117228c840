//! A wire in front of the NFs of a core: the traffic's process sends out of a veth in its own context, and the uplink
//! at the other end finds the first NF of each pair by rules of its classifier, or in the table of the NFs' switch.

use crate::roles::across::Targets;
use crate::setups::wire::{End, Wire, uplink_at};
use crate::traffic::numbered;
use nfluid_switch::abi::MEMBERS_MAX;
use nfluid_switch::classifier::{Prefix, Rule};
use nfluid_switch::{Destination, Switch, SwitchError};
use nfluid_testbed::scratch::Scratch;
use nfluid_uplink::Uplink;
use std::net::IpAddr;

/// How frames find the first NF of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// The generator's port is on the pair's switch.
    Port,
    /// Frames come from a wire, and the uplink finds the NF in the table of its switch.
    Table,
    /// Frames come from a wire, and the uplink's rules name the NF.
    Classifier,
}

/// The wire, and the uplink at its far end. The uplink ends before the wire does.
pub struct WiredEntry {
    uplink: Uplink,
    wire: Wire,
    /// The switch of all NFs of the core, if one switch has room for them and the uplink.
    switch: Option<u32>,
}

/// Returns true if a switch has room for `ports` ports and an uplink.
pub fn fit_on_a_switch(ports: u32) -> bool {
    (ports as usize) < MEMBERS_MAX
}

impl WiredEntry {
    /// Makes the wire, and rules that steer the frames to the destination of flow n to NF n of all `targets`.
    pub fn open(
        scratch: &mut Scratch,
        targets: &[Targets],
        switch: Option<u32>,
        core: usize,
    ) -> anyhow::Result<Self> {
        let wire = Wire::new()?;
        let (uplink, _) = uplink_at(scratch, wire.far(), core, None)?;
        let entries = (0..).zip(targets.iter().flat_map(Targets::entries));
        let rules: Vec<Rule> = entries.map(|(flow, entry)| rule(flow, entry)).collect();
        scratch.switch.set_rules(uplink.spec().port, &rules)?;
        Ok(WiredEntry {
            uplink,
            wire,
            switch,
        })
    }

    /// Chooses how the uplink finds the NFs.
    ///
    /// # Errors
    /// [`SwitchError::Limit`] when the NFs and the uplink do not fit on one switch.
    pub fn set_entry(&self, switch: &Switch, entry: Entry) -> anyhow::Result<()> {
        let to = match (entry, self.switch) {
            (Entry::Classifier, _) => Destination::Classifier,
            (Entry::Port | Entry::Table, Some(switch)) => Destination::Switch(switch),
            (Entry::Port | Entry::Table, None) => {
                let why = format!(
                    "an uplink finds NFs in the table of the switch that it is on, and a switch has at most {MEMBERS_MAX} ports"
                );
                return Err(SwitchError::Limit(why).into());
            }
        };
        Ok(switch.connect(self.uplink.spec().port, to)?)
    }

    /// Returns the end at which the traffic's process sends.
    pub fn source(&self) -> &End {
        self.wire.near()
    }
}

fn rule(flow: u32, to: u32) -> Rule {
    let (_, destination) = numbered(flow);
    Rule {
        dst: Some(Prefix {
            address: IpAddr::V4(*destination.ip()),
            len: 32,
        }),
        to: Some(to),
        ..Rule::default()
    }
}
