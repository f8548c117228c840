//! An uplink of the platform.

use crate::record::UplinkRecord;
use crate::steering::Left;
use nfluid_control::apply::{PlatformError, PlatformErrorKind};
use nfluid_control::model::{Steering, SuperFrames, UplinkKind, XdpMode};
use nfluid_control::netns;
use nfluid_control::spec::UplinkSpec as UplinkModel;
use nfluid_control::supervise::Supervisor;
use nfluid_netdev::tunnel::Tunnel;
use nfluid_netdev::{Mode, ReceivePath};
use nfluid_process::uplink::UplinkProcess;
use nfluid_uplink::{ErrorKind, Kind, Levels, ReportedError, UplinkPath, UplinkSpec};
use std::time::{Duration, Instant};

/// An uplink of the platform.
pub struct RunningUplink {
    /// The specification from which the uplink was made.
    pub spec: UplinkModel,
    /// The record on disk.
    pub record: UplinkRecord,
    /// The process; absent between an end and a restart.
    pub process: Option<UplinkProcess>,
    /// The supervisor of the process, with the time of its next start.
    pub supervisor: Supervisor,
    /// The end of the last process, or the reason why no process could be started.
    pub last_exit: Option<String>,
    /// Number of times that the interface had vanished and returned at the last event about it.
    pub reported: (u64, u64),
    /// True if the last request to the process asked the NIC to classify frames.
    pub has_steered: bool,
    /// The result of the last order about levels, with the reason if they are lower than asked for.
    pub levels: Option<(Levels, String)>,
    /// The time at which it refused the last order about levels, if it did.
    pub levels_refused: Option<Instant>,
    /// Number of rules that no NIC can classify, and the reason.
    pub left: Left,
}

impl RunningUplink {
    /// Returns the platform-wide number of the port.
    pub fn port_id(&self) -> u32 {
        self.record.port
    }

    /// Returns true if the NIC is to classify frames.
    pub fn steers(&self) -> bool {
        self.spec.steering != Steering::Xdp
    }

    /// Returns `xdp`, `tunnel` or `tap`.
    pub fn kind(&self) -> &'static str {
        match self.spec.kind {
            UplinkKind::Xdp if self.spec.tunnel.is_some() => "tunnel",
            UplinkKind::Xdp => "xdp",
            UplinkKind::Tap => "tap",
        }
    }

    /// Returns the paths of frames; `None`: the process or its interface is away.
    pub fn path(&self) -> Option<UplinkPath> {
        self.process.as_ref()?.status().path
    }

    /// Returns the receive mode in use, and the reason for it with the transmit mode.
    pub fn mode(&self) -> (Option<String>, Option<String>) {
        let Some(path) = self.path() else {
            return (None, None);
        };
        let mode = match path.receive {
            ReceivePath::Native => "native",
            ReceivePath::Generic => "generic",
            ReceivePath::Tc => "tc",
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

    /// Returns the reason why the uplink does not work at the moment.
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

    /// Returns the interface's address.
    pub fn mac(&self) -> [u8; 6] {
        self.path().and_then(|path| path.mac).unwrap_or_default()
    }

    /// Returns the process and the CPU time that it has used.
    pub fn process_use(&self) -> (Option<u32>, Option<Duration>) {
        let process = self.process.as_ref();
        (
            process.map(UplinkProcess::pid),
            process.and_then(UplinkProcess::cpu_time),
        )
    }
}

/// Returns the specification of the uplink `model` on this host. The caller fills in port and pool.
pub fn uplink_spec(name: &str, model: &UplinkModel) -> UplinkSpec {
    let mut spec = UplinkSpec::new(name, &model.interface, 0, 0);
    spec.netns = model.netns.as_deref().map(netns::path);
    spec.kind = match model.kind {
        UplinkKind::Xdp => Kind::Xdp,
        UplinkKind::Tap => Kind::Tap,
    };
    spec.tunnel = model.tunnel.as_ref().map(|tunnel| Tunnel {
        remote: tunnel.remote,
        local: tunnel.local,
        vni: tunnel.vni,
        port: tunnel.port,
        mtu: tunnel.mtu.map(u32::from),
    });
    spec.mode = match model.mode {
        // Only fast paths run at tc: no document asks for it on an uplink.
        XdpMode::Auto | XdpMode::Tc => Mode::Auto,
        XdpMode::Native => Mode::Native,
        XdpMode::Generic => Mode::Generic,
    };
    spec.mac = model.mac.map(|mac| mac.0);
    spec.ring_slots = model.ring;
    spec.long_slots = model.long;
    spec.offloads = model.super_frames == SuperFrames::Auto && model.long > 0;
    spec
}

/// The error of an uplink's process, for the operator.
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
