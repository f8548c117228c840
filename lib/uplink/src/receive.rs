//! The receive side: the programs of an uplink, loaded, attached, replaced, detached.

use crate::error::UplinkError;
use nfluid_netdev::hook::{self, Hooked};
use nfluid_netdev::{
    FilterSeat, FilteredProgram, Link, Mode, NetdevError, Netlink, PinnedProgram, Place, Side,
    program_by_id, program_id, program_name, programs_at_tc,
};
use nfluid_switch::{Queues, Switch, SwitchError, UplinkHook};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Names under which the kernel lists our programs at XDP.
const NAMES: [&str; 2] = ["uplink_goto", "uplink_call"];
/// The same at tc. The kernel lists the first 15 bytes, which is all of them.
const TC_NAMES: [&str; 2] = ["uplink_tc_goto", "uplink_tc_call"];
/// File of the link of the program at tc, among the pins of the uplink's port.
const TC_PIN: &str = "receive";

/// The programs of one uplink.
#[derive(Debug)]
pub struct Receiver {
    program: OwnedFd,
    id: u32,
    /// At tc, with its number; or why it could not be loaded.
    tc: Result<(OwnedFd, u32), String>,
    queues: Queues,
}

/// A program's place at tc: enough to find it again.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TcSeat {
    /// A link of the kernel, which is pinned.
    Link(PathBuf),
    /// A filter: before Linux 6.6, or without a place for pins.
    Filter(FilterSeat),
}

/// The hold of a program at tc.
#[derive(Debug)]
enum TcHold {
    Link(PinnedProgram),
    Filter(FilteredProgram),
}

impl Receiver {
    /// Loads the programs for the uplink whose port is `port`, on the maps of `switch`. `offloads`: the one for tc too.
    /// `netns`: the inode of the namespace in which they receive; 0: it may change, so that no frame goes from one interface
    /// of it to another without a copy.
    ///
    /// # Errors
    /// When the kernel refuses the program for XDP.
    pub fn load(
        switch: &Switch,
        port: u32,
        offloads: bool,
        netns: u32,
    ) -> Result<Self, SwitchError> {
        let program = switch.load_uplink(port, UplinkHook::Xdp, netns)?;
        let id = program_id(&program);
        let tc = if offloads {
            let loaded = switch.load_uplink(port, UplinkHook::Tc, netns);
            loaded
                .map(|program| {
                    let id = program_id(&program);
                    (program, id)
                })
                .map_err(|error| error.to_string())
        } else {
            Err("super: off".to_owned())
        };
        let queues = Queues::of(switch, port)?;
        Ok(Receiver {
            program,
            id,
            tc,
            queues,
        })
    }

    /// Returns the owners of the receive queues.
    pub fn queues(&self) -> &Queues {
        &self.queues
    }

    /// The kernel's number of the program at XDP.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// The kernel's number of the program at tc.
    ///
    /// # Errors
    /// The reason for which there is none.
    pub fn tc_id(&self) -> Result<u32, &str> {
        match &self.tc {
            Ok((_, id)) => Ok(*id),
            Err(why) => Err(why),
        }
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

    /// Prepares the place of the program at tc, to be noted before [`Receiver::attach_tc`]. `pins`: where the uplink's port is
    /// pinned; `before`: the place that it had.
    ///
    /// # Errors
    /// When the interface is not there, or takes no filters.
    pub fn tc_seat(
        &self,
        place: &Place,
        pins: Option<&Path>,
        before: Option<&TcSeat>,
    ) -> Result<TcSeat, UplinkError> {
        let before = match before {
            Some(TcSeat::Filter(seat)) => Some(seat),
            _ => None,
        };
        match pins {
            Some(pins) if has_links() => Ok(TcSeat::Link(pins.join(TC_PIN))),
            _ => Ok(TcSeat::Filter(FilterSeat::prepare_for_uplink(
                place, before,
            )?)),
        }
    }

    /// Puts the program at tc on the interface with the number `index`, in the place of one of our own that is in this seat.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn attach_tc(&self, place: &Place, seat: &TcSeat, index: u32) -> Result<(), UplinkError> {
        let (program, _) = self.tc.as_ref().map_err(|why| {
            UplinkError::system("attaching at tc")(std::io::Error::other(why.clone()))
        })?;
        match TcHold::of(place, seat) {
            Some(TcHold::Link(link)) if link.interface() == Some(index) => {
                return Ok(link.replace(program.as_fd())?);
            }
            // Of an interface that has another name by now, or has gone.
            Some(TcHold::Link(link)) => link.remove()?,
            Some(TcHold::Filter(filter)) if filter.is_attached() => {
                return Ok(filter.replace(program.as_fd())?);
            }
            _ => {}
        }
        match seat {
            TcSeat::Link(pin) => {
                // A file that cannot be opened is no link.
                let _absent = std::fs::remove_file(pin);
                let attached =
                    PinnedProgram::attach_tc(place, program.as_fd(), Side::Ingress, pin)?;
                let none = || std::io::Error::other("the kernel has no links at tc");
                attached
                    .map(drop)
                    .ok_or_else(|| UplinkError::system("attaching at tc")(none()))
            }
            TcSeat::Filter(seat) => {
                FilteredProgram::attach(place, seat.clone(), program.as_fd())?;
                Ok(())
            }
        }
    }

    /// Is the interface without a program at XDP and without another uplink's at tc, or are the programs there our own:
    /// `ours` at XDP, and the one in `seat`?
    ///
    /// # Errors
    /// [`NetdevError::Busy`] or [`NetdevError::BusyAtTc`] when another owner's program is there.
    pub fn check_free(
        &self,
        netlink: &Netlink,
        link: &Link,
        ours: Option<u32>,
        seat: Option<&(u32, TcSeat)>,
    ) -> Result<(), UplinkError> {
        self.previous(link, ours)?;
        let is_an_uplinks = |id: &u32| {
            let name = program_by_id(*id).and_then(|program| program_name(&program));
            name.is_some_and(|name| TC_NAMES.contains(&name.as_str()))
        };
        // A process that was killed may have left the program before the one that its record names.
        let pinned = seat.and_then(|(_, seat)| seat.program_on(link.index));
        let is_ours = |id: &u32| seat.is_some_and(|(own, _)| own == id) || pinned == Some(*id);
        let mut linked = programs_at_tc(link.index).into_iter();
        let has_filter = matches!(seat, Some((_, TcSeat::Filter(_))));
        if linked.any(|id| is_an_uplinks(&id) && !is_ours(&id))
            || (!has_filter && FilteredProgram::is_uplinks(netlink, link.index))
        {
            let interface = link.name.clone();
            return Err(NetdevError::BusyAtTc { interface }.into());
        }
        Ok(())
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

impl TcSeat {
    /// Is the program on the interface with this number?
    pub fn is_attached(&self, place: &Place, index: u32) -> bool {
        match TcHold::of(place, self) {
            Some(TcHold::Link(link)) => link.interface() == Some(index),
            Some(TcHold::Filter(filter)) => filter.is_attached(),
            None => false,
        }
    }

    /// Returns the program that a link of this seat has put on the interface with this number.
    fn program_on(&self, index: u32) -> Option<u32> {
        let TcSeat::Link(pin) = self else {
            return None;
        };
        let link = PinnedProgram::open(pin).ok()?;
        (link.interface() == Some(index)).then(|| link.program())?
    }

    /// Takes the program off the interface, if it is there.
    ///
    /// # Errors
    /// When it is there still.
    pub fn remove(&self, place: &Place) -> Result<(), UplinkError> {
        match TcHold::of(place, self) {
            None => Ok(()),
            Some(TcHold::Link(link)) => Ok(link.remove()?),
            Some(TcHold::Filter(filter)) => Ok(filter.remove()?),
        }
    }
}

impl TcHold {
    fn of(place: &Place, seat: &TcSeat) -> Option<Self> {
        match seat {
            TcSeat::Link(pin) => PinnedProgram::open(pin).ok().map(TcHold::Link),
            TcSeat::Filter(seat) => {
                Some(TcHold::Filter(FilteredProgram::left(place, seat.clone())))
            }
        }
    }
}

/// Links at tc came with Linux 6.6.
fn has_links() -> bool {
    nfluid_netdev::kernel_is_at_least(6, 6)
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
