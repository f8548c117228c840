//! Uplinks: ports backed by real interfaces.

use super::uplink_record::UplinkRecord;
use nfluid_control::apply::{PlatformError, PlatformErrorKind};
use nfluid_control::matching::MatchRule;
use nfluid_control::model::{Steering, UplinkKind, XdpMode};
use nfluid_control::netns;
use nfluid_control::spec::UplinkSpec as UplinkModel;
use nfluid_control::supervise::Supervisor;
use nfluid_control::template::ClientBy;
use nfluid_netdev::{Mode, ReceivePath};
use nfluid_process::uplink::UplinkProcess;
use nfluid_switch::classifier::{Prefix, Rule, VlanMatch};
use nfluid_switch::client::{self, ClientRule};
use nfluid_uplink::{ErrorKind, Kind, ReportedError, UplinkPath, UplinkSpec};
use nfluid_wiring::Entry;
use std::time::Duration;

/// An uplink of the platform.
pub struct RunningUplink {
    /// What it was made from.
    pub spec: UplinkModel,
    /// What is kept on disk about it.
    pub record: UplinkRecord,
    /// Its process; absent between an end and a restart.
    pub process: Option<UplinkProcess>,
    /// When it is started again.
    pub supervisor: Supervisor,
    /// How it ended, or why it could not be started again.
    pub last_exit: Option<String>,
    /// Times that the interface vanished and came back, as last reported in an event.
    pub seen: (u64, u64),
    /// Its process was told last to have the NIC classify something.
    pub steers: bool,
    /// Rules that no NIC could be told, and why.
    pub left: (u32, String),
}

impl RunningUplink {
    /// Platform-wide number of its port.
    pub fn port_id(&self) -> u32 {
        self.record.port
    }

    /// Returns true if its NIC is to classify.
    pub fn steers(&self) -> bool {
        self.spec.steering != Steering::Xdp
    }

    /// `xdp` or `tap`.
    pub fn kind(&self) -> &'static str {
        match self.spec.kind {
            UplinkKind::Xdp => "xdp",
            UplinkKind::Tap => "tap",
        }
    }

    fn path(&self) -> Option<UplinkPath> {
        self.process.as_ref()?.status().path
    }

    /// The receive mode in use, and why this one and how it transmits.
    pub fn mode(&self) -> (Option<String>, Option<String>) {
        let Some(path) = self.path() else {
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
        if self.process.is_none() {
            let how = self.last_exit.as_deref().unwrap_or("it does not run");
            return Some(format!("its process: {how}; it is started again"));
        }
        self.path().is_none().then(|| {
            format!(
                "interface {} is gone; the uplink goes on when it returns",
                self.spec.interface
            )
        })
    }

    /// The interface's address.
    pub fn mac(&self) -> [u8; 6] {
        self.path().and_then(|path| path.mac).unwrap_or_default()
    }

    /// Its process and the CPU time that this has used.
    pub fn process_use(&self) -> (Option<u32>, Option<Duration>) {
        let process = self.process.as_ref();
        (
            process.map(UplinkProcess::pid),
            process.and_then(UplinkProcess::cpu_time),
        )
    }
}

/// What the uplink of a model is on this host; port and pool are still to be filled in.
pub fn uplink_spec(name: &str, model: &UplinkModel) -> UplinkSpec {
    let mut spec = UplinkSpec::new(name, &model.interface, 0, 0);
    spec.netns = model.netns.as_deref().map(netns::path);
    spec.kind = match model.kind {
        UplinkKind::Xdp => Kind::Xdp,
        UplinkKind::Tap => Kind::Tap,
    };
    spec.mode = match model.mode {
        // At tc are fast paths only; no document says it of an uplink.
        XdpMode::Auto | XdpMode::Tc => Mode::Auto,
        XdpMode::Native => Mode::Native,
        XdpMode::Generic => Mode::Generic,
    };
    spec.mac = model.mac.map(|mac| mac.0);
    spec.ring_slots = model.ring;
    spec
}

/// An uplink's error, for the operator.
pub fn uplink_failed(error: &ReportedError) -> PlatformError {
    let kind = match error.kind {
        ErrorKind::NoNamespace | ErrorKind::NoInterface | ErrorKind::Elsewhere => {
            PlatformErrorKind::NotFound
        }
        ErrorKind::Busy => PlatformErrorKind::Busy,
        ErrorKind::Refused | ErrorKind::NoSteering | ErrorKind::Dispatcher => {
            PlatformErrorKind::Unsupported
        }
        _ => PlatformErrorKind::Failed,
    };
    PlatformError::new(kind, error.text.clone())
}

/// The field that tells clients apart, for the switch.
pub fn client_by(by: ClientBy) -> client::ClientBy {
    match by {
        ClientBy::Address => client::ClientBy::Address,
        ClientBy::Vlan => client::ClientBy::Vlan,
        ClientBy::Mac => client::ClientBy::Mac,
    }
}

/// The classifier's table: every rule of every entry, in order.
pub fn rules(entries: &[Entry]) -> Vec<Rule> {
    let mut table = Vec::new();
    for entry in entries {
        let clients = entry.clients.map(|clients| ClientRule {
            template: clients.template,
            by: client_by(clients.by),
            back: clients.back,
        });
        let with_place = |one: &MatchRule| Rule {
            clients,
            ..rule(one, entry.to)
        };
        if entry.rules.is_empty() {
            table.push(with_place(&MatchRule::default()));
        }
        table.extend(entry.rules.iter().map(with_place));
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
        clients: None,
    }
}
