//! Uplinks: ports backed by real interfaces.

use super::Host;
use nfluid_api::types::{EventKind, Kind};
use nfluid_control::apply::{PlatformError, PlatformErrorKind};
use nfluid_control::host::InterfaceFact;
use nfluid_control::matching::MatchRule;
use nfluid_control::model::{PortRef, UplinkKind, XdpMode};
use nfluid_control::spec::UplinkSpec as UplinkModel;
use nfluid_control::wiring::Classified;
use nfluid_switch::Switch;
use nfluid_switch::uplink::{
    self, Mode, Prefix, ReceivePath, Rule, Uplink, UplinkError, UplinkSpec, VlanMatch,
};
use std::path::{Path, PathBuf};

/// An uplink of the platform.
pub struct RunningUplink {
    /// What it was made from.
    pub spec: UplinkModel,
    uplink: Uplink,
    port: u32,
    pool: u32,
    /// Times that the interface vanished and came back, as last reported in an event.
    seen: (u64, u64),
}

impl RunningUplink {
    /// Platform-wide number of its port.
    pub fn port_id(&self) -> u32 {
        self.port
    }

    /// `xdp` or `tap`.
    pub fn kind(&self) -> &'static str {
        match self.spec.kind {
            UplinkKind::Xdp => "xdp",
            UplinkKind::Tap => "tap",
        }
    }

    /// The receive mode in use, and why this one and how it transmits.
    pub fn mode(&self) -> (Option<String>, Option<String>) {
        let Some(path) = self.uplink.status().path else {
            return (None, None);
        };
        let mode = match path.receive {
            ReceivePath::Native => "native",
            ReceivePath::Generic => "generic",
            ReceivePath::Tap => "tap",
        };
        let why = [
            path.receive_why.clone(),
            format!("transmits by {}", path.transmit),
            path.transmit_why.clone(),
        ];
        let why: Vec<String> = why.into_iter().filter(|part| !part.is_empty()).collect();
        (Some(mode.to_owned()), Some(why.join("; ")))
    }

    /// Why it does not work at the moment.
    pub fn problem(&self) -> Option<String> {
        let gone = self.uplink.status().path.is_none();
        gone.then(|| {
            format!(
                "interface {} is gone; the uplink goes on when it returns",
                self.spec.interface
            )
        })
    }

    /// The interface's address.
    pub fn mac(&self) -> [u8; 6] {
        self.uplink
            .status()
            .path
            .and_then(|path| path.mac)
            .unwrap_or_default()
    }

    /// Takes everything off the interface.
    pub fn close(self, switch: &Switch) -> Result<(), UplinkError> {
        self.uplink.close(switch)
    }
}

impl Host {
    pub(super) fn create_uplink(
        &mut self,
        name: &str,
        model: &UplinkModel,
    ) -> Result<(), PlatformError> {
        let full = || {
            PlatformError::new(
                PlatformErrorKind::Exhausted,
                "the platform has no room for more ports",
            )
        };
        let port = self.port_ids.take(1).ok_or_else(full)?;
        let pool = self.pool_ids.take(1).ok_or_else(full)?;
        let mut spec = UplinkSpec::new(name, &model.interface, port, pool);
        spec.netns = model.netns.as_deref().map(namespace_path);
        spec.kind = match model.kind {
            UplinkKind::Xdp => uplink::Kind::Xdp,
            UplinkKind::Tap => uplink::Kind::Tap,
        };
        spec.mode = match model.mode {
            XdpMode::Auto => Mode::Auto,
            XdpMode::Native => Mode::Native,
            XdpMode::Generic => Mode::Generic,
        };
        spec.mac = model.mac.map(|mac| mac.0);
        spec.ring_slots = model.ring;
        spec.state_dir = Some(self.settings.paths.uplinks());
        match Uplink::open(&self.switch, spec) {
            Ok(uplink) => {
                let running = RunningUplink {
                    spec: model.clone(),
                    uplink,
                    port,
                    pool,
                    seen: (0, 0),
                };
                let (mode, why) = running.mode();
                let message = format!(
                    "on interface {}: {}; {}",
                    model.interface,
                    mode.unwrap_or_default(),
                    why.unwrap_or_default()
                );
                self.uplinks.insert(name.to_owned(), running);
                self.event(EventKind::UplinkUp, Some((Kind::Uplink, name)), message);
                Ok(())
            }
            Err(error) => {
                self.port_ids.free(port);
                self.pool_ids.free(pool);
                Err(uplink_failed(&error))
            }
        }
    }

    pub(super) fn remove_uplink(&mut self, name: &str) -> Result<(), PlatformError> {
        let Some(running) = self.uplinks.remove(name) else {
            return Ok(());
        };
        self.port_ids.free(running.port);
        self.pool_ids.free(running.pool);
        running
            .close(&self.switch)
            .map_err(|error| uplink_failed(&error))
    }

    /// Tells of interfaces that have vanished or come back since the last look.
    pub(super) fn watch_uplinks(&mut self) {
        let mut news = Vec::new();
        for (name, running) in &mut self.uplinks {
            let status = running.uplink.status();
            let now = (status.vanished, status.returned);
            if now.0 > running.seen.0 {
                news.push((
                    name.clone(),
                    EventKind::UplinkDown,
                    "its interface has vanished",
                ));
            }
            if now.1 > running.seen.1 {
                news.push((name.clone(), EventKind::UplinkUp, "its interface is back"));
            }
            running.seen = now;
        }
        for (name, kind, message) in news {
            self.event(kind, Some((Kind::Uplink, &name)), message);
        }
    }
}

fn uplink_failed(error: &UplinkError) -> PlatformError {
    let kind = match error {
        UplinkError::NoNamespace { .. }
        | UplinkError::NoInterface { .. }
        | UplinkError::Elsewhere { .. } => PlatformErrorKind::NotFound,
        UplinkError::Busy { .. } => PlatformErrorKind::Busy,
        UplinkError::Refused { .. } => PlatformErrorKind::Unsupported,
        _ => PlatformErrorKind::Failed,
    };
    PlatformError::new(kind, error.to_string())
}

/// `netns: NAME` is what `ip netns` calls so; anything with a slash is a path.
fn namespace_path(name: &str) -> PathBuf {
    if name.contains('/') {
        PathBuf::from(name)
    } else {
        Path::new("/run/netns").join(name)
    }
}

/// How an interface is, for validation.
pub fn interface_fact(name: &str, netns: Option<&str>) -> InterfaceFact {
    let mut spec = UplinkSpec::new(name, name, 0, 0);
    spec.netns = netns.map(namespace_path);
    match uplink::look(&spec) {
        Ok(()) => InterfaceFact::Present,
        Err(UplinkError::NoNamespace { .. }) => InterfaceFact::NoNamespace,
        Err(UplinkError::NoInterface { names, .. }) => {
            InterfaceFact::Missing(names.split(", ").map(str::to_owned).collect())
        }
        Err(UplinkError::Elsewhere { found, .. }) => InterfaceFact::Elsewhere(found),
        // What validation cannot see is found out, and undone, when the plan is carried out.
        Err(_) => InterfaceFact::Present,
    }
}

/// The classifier's table: every rule of every entry, in order.
pub fn rules(entries: &[Classified], port_id: impl Fn(&PortRef) -> Option<u32>) -> Vec<Rule> {
    let mut table = Vec::new();
    for entry in entries {
        let to = entry.to.as_ref().and_then(&port_id);
        if entry.rules.is_empty() {
            table.push(rule(&MatchRule::default(), to));
        }
        table.extend(entry.rules.iter().map(|one| rule(one, to)));
    }
    table
}

fn rule(one: &MatchRule, to: Option<u32>) -> Rule {
    let prefix = |net: ipnet::IpNet| Prefix {
        address: net.addr(),
        len: net.prefix_len(),
    };
    Rule {
        ether: one.ether.map(|ether| ether.0),
        vlan: one.vlan.map_or(VlanMatch::Any, VlanMatch::Id),
        src: one.src.map(prefix),
        dst: one.dst.map(prefix),
        proto: one.proto.map(|proto| proto.0),
        sport: one.sport.map(|range| range.first..=range.last),
        dport: one.dport.map(|range| range.first..=range.last),
        to,
    }
}
