//! Interfaces, hook, mode and direction of a fast path, from its specification.

use nfluid_control::fast::Direction;
use nfluid_control::host::NfAttachError;
use nfluid_control::model::XdpMode;
use nfluid_control::netns;
use nfluid_control::spec::InstanceSpec;
use nfluid_evnf::hook::Hook;
use nfluid_netdev::{Mode, Place};

/// Returns the interfaces.
pub fn places(spec: &InstanceSpec) -> Vec<Place> {
    let attach = spec.attach.iter();
    let places = attach.flat_map(|attach| {
        let netns = attach.netns.as_deref().map(netns::path);
        let interfaces = attach.interfaces.iter();
        interfaces.map(move |interface| Place {
            interface: interface.clone(),
            netns: netns.clone(),
        })
    });
    places.collect()
}

/// Returns the hook on the interfaces.
pub fn hook(spec: &InstanceSpec) -> Hook {
    match spec.attach.as_ref().map(|attach| attach.mode) {
        _ if direction(spec) == Direction::Egress => Hook::Egress,
        Some(XdpMode::Tc) => Hook::Tc,
        _ if priority(spec).is_some() => Hook::Component,
        _ => Hook::Xdp,
    }
}

/// Returns the priority in libxdp's dispatcher; `None`: directly on the interfaces.
pub fn priority(spec: &InstanceSpec) -> Option<u32> {
    let attach = spec.attach.as_ref()?;
    attach.run_priority()
}

/// Returns the direction of the packets.
pub fn direction(spec: &InstanceSpec) -> Direction {
    let attach = spec.attach.as_ref();
    attach.map_or_else(Direction::default, |attach| attach.direction)
}

/// Returns the XDP mode.
pub fn mode(spec: &InstanceSpec) -> Mode {
    match spec.attach.as_ref().map(|attach| attach.mode) {
        Some(XdpMode::Native) => Mode::Native,
        Some(XdpMode::Generic) => Mode::Generic,
        _ => Mode::Auto,
    }
}

/// Returns true if the specification sets the mode of attachment.
pub fn says_how(spec: &InstanceSpec) -> bool {
    let mode = spec.attach.as_ref().map(|attach| attach.mode);
    mode != Some(XdpMode::Auto) || priority(spec).is_some()
}

/// Error for `direction: egress` of a function for incoming packets.
pub fn ingress_only(nf: &str) -> NfAttachError {
    NfAttachError {
        key: "direction",
        message: format!("'{nf}' is for what comes in: it has no form for what goes out"),
        remedy: "remove 'direction: egress', and name the interfaces by which its packets come in"
            .to_owned(),
    }
}
