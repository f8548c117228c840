//! The receive side: the XDP program of an uplink, loaded, attached, replaced, detached.

use crate::error::UplinkError;
use nfluid_netdev::hook::{self, Hooked};
use nfluid_netdev::{Link, Mode, Netlink, program_by_id, program_id, program_name};
use nfluid_switch::{Queues, Switch, SwitchError};
use std::os::fd::{AsFd, OwnedFd};

/// Names under which the kernel lists our programs.
const NAMES: [&str; 2] = ["uplink_goto", "uplink_call"];

/// The program of one uplink.
#[derive(Debug)]
pub struct Receiver {
    program: OwnedFd,
    id: u32,
    queues: Queues,
}

impl Receiver {
    /// Loads the program for the uplink whose port is `port`, on the maps of `switch`.
    ///
    /// # Errors
    /// When the kernel refuses the program.
    pub fn load(switch: &Switch, port: u32) -> Result<Self, SwitchError> {
        let program = switch.load_uplink(port)?;
        let id = program_id(&program);
        let queues = Queues::of(switch, port)?;
        Ok(Receiver {
            program,
            id,
            queues,
        })
    }

    /// Returns the owners of the receive queues.
    pub fn queues(&self) -> &Queues {
        &self.queues
    }

    /// The kernel's number of the program.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Attaches the program to `link`: natively where the driver can, else generically, as far as
    /// `mode` allows. `previous` is the program of our own, if any, that may be replaced.
    ///
    /// # Errors
    /// The errors of [`hook::attach`]: another owner's program is there, or the kernel takes our program in no mode.
    pub fn attach(
        &self,
        netlink: &Netlink,
        link: &Link,
        mode: Mode,
        previous: Option<u32>,
    ) -> Result<Hooked, UplinkError> {
        let previous = self.previous(link, previous)?;
        let previous = previous.as_ref().map(AsFd::as_fd);
        Ok(hook::attach(
            netlink,
            link,
            self.program.as_fd(),
            mode,
            previous,
        )?)
    }

    /// Is the interface without a program, or with one of our own, `ours`?
    ///
    /// # Errors
    /// [`NetdevError::Busy`](nfluid_netdev::NetdevError::Busy) when another owner's program is there.
    pub fn check_free(&self, link: &Link, ours: Option<u32>) -> Result<(), UplinkError> {
        self.previous(link, ours).map(drop)
    }

    /// Returns our own program on the interface, to be replaced; an error if the program has another owner.
    fn previous(&self, link: &Link, ours: Option<u32>) -> Result<Option<OwnedFd>, UplinkError> {
        if !link.xdp_attached {
            return Ok(None);
        }
        let id = link.xdp.unwrap_or(0);
        let found = program_by_id(id);
        let name = found.as_ref().and_then(program_name);
        if ours == Some(id) && name.as_deref().is_some_and(|n| NAMES.contains(&n)) {
            return Ok(found);
        }
        Err(hook::occupied(&link.name, id).into())
    }
}

/// Detaches program `id` from `link`, if the program is there and one of ours. Returns true if it was.
///
/// # Errors
/// When the kernel refuses.
pub fn detach_leftover(netlink: &Netlink, link: &Link, id: u32) -> Result<bool, UplinkError> {
    if link.xdp != Some(id) {
        return Ok(false);
    }
    let Some(program) = program_by_id(id) else {
        return Ok(false);
    };
    if !program_name(&program).is_some_and(|name| NAMES.contains(&name.as_str())) {
        return Ok(false);
    }
    hook::detach(netlink, link, program.as_fd()).map_err(UplinkError::system(format!(
        "detaching the XDP program that was left on {}",
        link.name
    )))?;
    Ok(true)
}
