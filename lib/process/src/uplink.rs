//! The process of an uplink: `nfluidd uplink NAME`.
//!
//! The receive direction of an interface needs no process: an XDP program writes the frames into the rings of their
//! receivers. The send direction needs one. So that sending goes on while the daemon is down, each uplink has a small
//! process of its own, in the daemon's cgroup. See `docs/adr/0007-a-process-per-uplink.md`.

use crate::{End, Job, Process, Service};
use nfluid_switch::Switch;
use nfluid_switch::classifier::Rule;
use nfluid_uplink::{
    Levels, NICE, ReportedError, Steered, Uplink, UplinkError, UplinkSpec, UplinkStatus,
};
use rustix::thread::CapabilitySet;
use serde::{Deserialize, Serialize};
use std::ffi::CStr;
use std::os::fd::{BorrowedFd, OwnedFd};

/// The daemon's side of it.
pub type UplinkProcess = Process<UplinkService>;

/// An uplink and the switch that its port is in.
#[derive(Debug)]
pub struct UplinkService {
    switch: Switch,
    uplink: Uplink,
}

/// An order to an uplink.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UplinkOrder {
    /// To have its NIC classify what these rules match; none: nothing.
    Steer(Vec<Rule>),
    /// To have these levels.
    Levels(Levels),
}

/// The result of an order.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UplinkAnswer {
    /// The rules that the NIC classifies by.
    Steered(Steered),
    /// The levels.
    Levels {
        /// The present ones.
        levels: Levels,
        /// The reason for which they are lower than they were asked for; empty if they are not.
        why: String,
    },
}

impl Service for UplinkService {
    type Task = UplinkSpec;
    type Status = UplinkStatus;
    type Order = UplinkOrder;
    type Answer = UplinkAnswer;

    const ROLE: &'static str = "uplink";
    const TITLE: &'static CStr = c"nfluidd-uplink";
    /// The interface may vanish and return at any time, and everything is done to it again then.
    ///
    /// | capability | for |
    /// |---|---|
    /// | `NET_ADMIN` | attach XDP, change offloads, address, state, flow rules; taps |
    /// | `NET_RAW` | AF_PACKET and AF_XDP sockets |
    /// | `BPF`, `PERFMON` | load the XDP program |
    /// | `SYS_ADMIN` | enter the interface's namespace; find a program by its number |
    /// | `SYS_PTRACE` | find the namespace of a veth's other end among those of processes |
    /// | `SYS_NICE` | the thread's priority |
    /// | `IPC_LOCK`, `SYS_RESOURCE` | locked memory of sockets |
    const NEEDED: CapabilitySet = CapabilitySet::NET_ADMIN
        .union(CapabilitySet::NET_RAW)
        .union(CapabilitySet::BPF)
        .union(CapabilitySet::PERFMON)
        .union(CapabilitySet::SYS_ADMIN)
        .union(CapabilitySet::SYS_PTRACE)
        .union(CapabilitySet::SYS_NICE)
        .union(CapabilitySet::IPC_LOCK)
        .union(CapabilitySet::SYS_RESOURCE);

    fn open(job: &Job<UplinkSpec>) -> Result<Self, ReportedError> {
        let told = |error: UplinkError| ReportedError::from(&error);
        // Where the kernel groups by session, the uplink's priority would count only within its own.
        // Elsewhere there is no such file.
        let _absent = std::fs::write("/proc/self/autogroup", NICE.to_string());
        let switch = Switch::open(&job.pin, job.form, job.task.port)
            .map_err(|error| told(UplinkError::Switch(error)))?;
        let uplink = Uplink::open(&switch, job.task.clone()).map_err(told)?;
        Ok(UplinkService { switch, uplink })
    }

    fn status(&self) -> UplinkStatus {
        self.uplink.status()
    }

    fn changes(&self) -> Option<BorrowedFd<'_>> {
        Some(self.uplink.changes())
    }

    fn has_changed(&self) -> bool {
        self.uplink.has_changed()
    }

    fn obey(&mut self, order: UplinkOrder, _fds: Vec<OwnedFd>) -> Result<UplinkAnswer, String> {
        let told = |error: UplinkError| error.to_string();
        match order {
            UplinkOrder::Steer(rules) => {
                let steered = self.uplink.steer(rules);
                steered.map(UplinkAnswer::Steered).map_err(told)
            }
            UplinkOrder::Levels(levels) => {
                self.uplink.set_levels(levels).map_err(told)?;
                let path = self.uplink.status().path;
                // An interface that is away gets them when it returns.
                let (levels, why) = path.map_or((levels, String::new()), |path| {
                    (path.levels, path.levels_why)
                });
                Ok(UplinkAnswer::Levels { levels, why })
            }
        }
    }

    fn end(self, how: End) -> anyhow::Result<()> {
        match how {
            End::Leave => self.uplink.leave(),
            End::Close => self.uplink.close(&self.switch)?,
        }
        Ok(())
    }
}
