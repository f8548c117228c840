//! Programs put at tc on an interface by a filter: on kernels before 6.6, which have no links there.
//!
//! A filter has one priority and one handle, by which it is found again: the filter stays when the process that made
//! it is gone. The filter stands behind filters of lower priority numbers, and goes on to the filters behind it. A
//! process with the privilege can remove the filter or put another in its place: [`FilteredProgram::is_attached`]
//! shows that, but nothing prevents it, as a link would. No other filter is ever touched; the clsact qdisc, which
//! holds filters, is made if it is not there, and is left where other programs have filters.

use crate::error::NetdevError;
use crate::netlink::tc::{FilterPlace, Side};
use crate::netlink::{Netlink, errno};
use crate::netns::NetNs;
use crate::place::Place;
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::BorrowedFd;

/// Behind those that are there: the kernel gives 49152 and less to those that do not say theirs.
const PRIORITY: u16 = 50_000;
/// Those of fast paths among those of that priority.
const HANDLE: u32 = 0x6e66;
/// An uplink's, which takes what comes to it.
const UPLINK_HANDLE: u32 = 0x6e75;
/// The name of our filters' programs (`tc filter show`).
const NAME: &str = "nfluid";

/// The place of a filter, or of a filter about to be made: enough to find the filter again. The place is recorded
/// before the filter is made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilterSeat {
    /// Number of the interface.
    index: u32,
    /// Which way packets go.
    side: Side,
    /// clsact was not there before this one, or one beside it.
    made_clsact: bool,
    /// The filter's own number.
    #[serde(default = "fast_path")]
    handle: u32,
}

fn fast_path() -> u32 {
    HANDLE
}

/// A program's hold on an interface by a filter.
#[derive(Debug)]
pub struct FilteredProgram {
    place: Place,
    seat: FilterSeat,
}

impl FilterSeat {
    /// Makes room for a filter on an interface. `beside`: our own one there, the other way; whichever leaves as the last takes away the
    /// clsact that either has made.
    ///
    /// # Errors
    /// When the interface is not there, or takes no filters.
    pub fn prepare(
        place: &Place,
        side: Side,
        beside: Option<&FilterSeat>,
    ) -> Result<Self, NetdevError> {
        Self::prepare_as(place, side, beside, HANDLE)
    }

    /// As [`FilterSeat::prepare`], of the filter by which an uplink receives. `before`: the seat that it had.
    ///
    /// # Errors
    /// As for [`FilterSeat::prepare`].
    pub fn prepare_for_uplink(
        place: &Place,
        before: Option<&FilterSeat>,
    ) -> Result<Self, NetdevError> {
        Self::prepare_as(place, Side::Ingress, before, UPLINK_HANDLE)
    }

    fn prepare_as(
        place: &Place,
        side: Side,
        beside: Option<&FilterSeat>,
        handle: u32,
    ) -> Result<Self, NetdevError> {
        place.on_interface(|netlink, link| {
            let made = netlink.make_clsact(link.index);
            let made = made.map_err(NetdevError::system(format!(
                "making room for a filter at tc on {}",
                place.interface
            )))?;
            let was_made =
                beside.is_some_and(|other| other.index == link.index && other.made_clsact);
            Ok(FilterSeat {
                index: link.index,
                side,
                made_clsact: made || was_made,
                handle,
            })
        })
    }

    /// The number of its interface.
    pub fn interface(&self) -> u32 {
        self.index
    }

    fn filter(&self) -> FilterPlace {
        FilterPlace {
            index: self.index,
            side: self.side,
            priority: PRIORITY,
            handle: self.handle,
        }
    }
}

/// The place of the filter by which an uplink receives on an interface.
fn uplinks(index: u32) -> FilterPlace {
    FilterPlace {
        index,
        side: Side::Ingress,
        priority: PRIORITY,
        handle: UPLINK_HANDLE,
    }
}

/// Puts an uplink's program on an interface that was made for it, in the calling thread's namespace. The filter goes with the
/// interface.
///
/// # Errors
/// When the interface takes no filters, or the kernel refuses.
pub(crate) fn put_on_own(
    netlink: &Netlink,
    index: u32,
    program: BorrowedFd<'_>,
) -> Result<(), NetdevError> {
    let made = netlink.make_clsact(index);
    made.and_then(|_| netlink.add_filter(&uplinks(index), program, NAME))
        .map_err(NetdevError::system("attaching at tc on the outer end"))
}

impl FilteredProgram {
    /// Puts a program on an interface, in a seat that was prepared there.
    ///
    /// # Errors
    /// When another program's filter has that place, or the kernel refuses.
    pub fn attach(
        place: &Place,
        seat: FilterSeat,
        program: BorrowedFd<'_>,
    ) -> Result<Self, NetdevError> {
        let own = FilteredProgram {
            place: place.clone(),
            seat,
        };
        let added = own.with(|netlink| netlink.add_filter(&own.seat.filter(), program, NAME));
        match added {
            Ok(()) => Ok(own),
            Err(error) => {
                let why = own.why(&error);
                own.leave();
                Err(why)
            }
        }
    }

    /// The hold in a seat, as an earlier process has left it.
    pub fn left(place: &Place, seat: FilterSeat) -> Self {
        FilteredProgram {
            place: place.clone(),
            seat,
        }
    }

    /// Returns true if an uplink's filter is on the interface of this number.
    pub fn is_uplinks(netlink: &Netlink, interface: u32) -> bool {
        netlink.filter(&uplinks(interface)).is_some()
    }

    /// Returns the place of the filter.
    pub fn seat(&self) -> &FilterSeat {
        &self.seat
    }

    fn why(&self, error: &io::Error) -> NetdevError {
        let taken = errno(error) == Some(libc::EEXIST);
        let hint = if taken {
            format!(
                ": a filter with priority {PRIORITY} and handle {:#x} is there already ('tc filter show dev {} {}')",
                self.seat.handle,
                self.place.interface,
                self.side_name(),
            )
        } else {
            String::new()
        };
        NetdevError::System {
            what: format!(
                "attaching at tc on {}, by a filter{hint}",
                self.place.interface
            ),
            source: io::Error::other(error.to_string()),
        }
    }

    fn side_name(&self) -> &'static str {
        match self.seat.side {
            Side::Ingress => "ingress",
            Side::Egress => "egress",
        }
    }

    /// Does something in the interface's namespace.
    fn with<T: Send>(&self, work: impl FnOnce(&Netlink) -> io::Result<T> + Send) -> io::Result<T> {
        let asked = NetNs::open(self.place.netns.as_deref())
            .and_then(|netns| netns.within(|| Ok(work(&Netlink::open()?))));
        asked.map_err(|error| io::Error::other(error.to_string()))?
    }

    /// Returns true if the interface and the filter are there still.
    pub fn is_attached(&self) -> bool {
        let found = self.with(|netlink| Ok(netlink.filter(&self.seat.filter())));
        found.is_ok_and(|name| name.is_some_and(|name| name == NAME))
    }

    /// Puts another program in the place of this one, between two packets.
    ///
    /// # Errors
    /// When the kernel refuses, or the filter is gone.
    pub fn replace(&self, program: BorrowedFd<'_>) -> Result<(), NetdevError> {
        let changed =
            self.with(|netlink| netlink.change_filter(&self.seat.filter(), program, NAME));
        changed.map_err(NetdevError::system(format!(
            "replacing the program of a filter at tc on {}",
            self.place.interface
        )))
    }

    /// Takes the program off the interface.
    ///
    /// # Errors
    /// When it is there still.
    pub fn remove(self) -> Result<(), NetdevError> {
        if self.is_attached() {
            let removed = self.with(|netlink| netlink.remove_filter(&self.seat.filter()));
            removed.map_err(NetdevError::system(format!(
                "removing a filter at tc on {}",
                self.place.interface
            )))?;
        }
        self.leave();
        Ok(())
    }

    /// Removes the clsact qdisc if no other filter uses it.
    fn leave(&self) {
        if !self.seat.made_clsact {
            return;
        }
        if let Err(error) = self.with(|netlink| netlink.remove_empty_clsact(self.seat.index)) {
            tracing::debug!(interface = self.place.interface, %error, "clsact stays");
        }
    }
}
