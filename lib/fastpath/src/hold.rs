//! The hold on an interface: the kernel object that keeps the first program of a chain attached while no daemon runs.

use super::error::failed;
use nfluid_control::apply::PlatformError;
use nfluid_evnf::chain::Member;
use nfluid_netdev::{
    AttachedProgram, DispatchedProgram, FilterSeat, FilteredProgram, Mode,
    NetdevError as UplinkError, PinnedProgram, Place, ReceivePath, Side,
};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

/// The pin of a link, in the folder of a chain.
pub const LINK: &str = "link";
/// The pin of the map of a component in libxdp's dispatcher.
const FIRST: &str = "first";
/// The remedy where libxdp's dispatcher is on the interface.
const IN_DISPATCHER: &str = "or write 'beside: libxdp' in all instances on it: they are in the dispatcher then, beside the programs of others";
/// The name of the mode at tc.
pub const AT_TC: &str = "tc";
/// The reason for a filter at tc.
const BY_FILTER: &str = "by a filter of clsact: this kernel has no links at tc (Linux 6.6 has)";

/// A hold, and the mode with the reason why there is no better mode.
pub type Held = (Hold, (String, String));

/// A hold on an interface.
pub enum Hold {
    /// A link that is pinned in the folder of the chain.
    Link(PinnedProgram),
    /// A filter of the interface, at the position in the chain's record.
    Filter(FilteredProgram),
    /// A component in libxdp's dispatcher.
    Dispatched(DispatchedProgram),
}

impl Hold {
    /// Returns the hold that an earlier daemon has left: this filter, a component in the dispatcher on the interface of
    /// this number, or a link.
    pub fn left(
        place: &Place,
        pins: &Path,
        filter: Option<&FilterSeat>,
        component: Option<u32>,
    ) -> Option<Self> {
        let of = |interface| DispatchedProgram::open(place, interface, &pins.join(FIRST)).ok();
        if let Some(own) = component.and_then(of) {
            return Some(Hold::Dispatched(own));
        }
        if let Some(seat) = filter {
            return Some(Hold::Filter(FilteredProgram::left(place, seat.clone())));
        }
        let link = pins.join(LINK);
        let found = link.exists().then(|| PinnedProgram::open(&link));
        found.and_then(Result::ok).map(Hold::Link)
    }

    /// Returns the number of the interface. `None`: the interface or the program on it is gone.
    pub fn interface(&self) -> Option<u32> {
        match self {
            Hold::Link(link) => link.interface(),
            Hold::Filter(filter) => filter.is_attached().then(|| filter.seat().interface()),
            Hold::Dispatched(program) => program.interface(),
        }
    }

    /// Returns true if the interface and the program on it are still there.
    pub fn is_attached(&self) -> bool {
        match self {
            Hold::Link(link) => link.is_attached(),
            Hold::Filter(filter) => filter.is_attached(),
            Hold::Dispatched(program) => program.is_attached(),
        }
    }

    /// Replaces the program by another one, between two packets.
    ///
    /// # Errors
    /// When the kernel refuses. Then the former program is in place.
    pub fn replace(&self, program: BorrowedFd<'_>) -> Result<(), UplinkError> {
        match self {
            Hold::Link(link) => link.replace(program),
            Hold::Filter(filter) => filter.replace(program),
            Hold::Dispatched(own) => own.replace(program),
        }
    }

    /// Replaces the program by that of a member of a chain.
    ///
    /// # Errors
    /// As [`Hold::replace`].
    pub fn put(&self, first: &Member) -> anyhow::Result<()> {
        Ok(self.replace(first.descriptor()?.as_fd())?)
    }

    /// Removes the program from the interface.
    ///
    /// # Errors
    /// When the program or its pin cannot be removed.
    pub fn remove(self) -> Result<(), UplinkError> {
        match self {
            Hold::Link(link) => link.remove(),
            Hold::Filter(filter) => filter.remove(),
            Hold::Dispatched(program) => program.remove(),
        }
    }
}

/// Attaches a program to an interface at XDP.
pub fn at_xdp(
    place: &Place,
    program: BorrowedFd<'_>,
    mode: Mode,
    pin: &Path,
) -> Result<Held, PlatformError> {
    let attached = PinnedProgram::attach(place, program, mode, pin);
    let (hold, attached) = attached.map_err(|error| match error.is_dispatcher() {
        true => failed(&error).with_remedy(IN_DISPATCHER),
        false => failed(&error),
    })?;
    Ok((Hold::Link(hold), mode_of(attached)))
}

/// Attaches a program in libxdp's dispatcher, with its priority there.
pub fn in_dispatcher(
    place: &Place,
    program: BorrowedFd<'_>,
    mode: Mode,
    priority: u32,
    pins: &Path,
) -> Result<Held, PlatformError> {
    let pin = pins.join(FIRST);
    let attached = DispatchedProgram::attach(place, program, mode, priority, &pin);
    let (hold, attached) = attached.map_err(|error| failed(&error))?;
    Ok((Hold::Dispatched(hold), mode_of(attached)))
}

fn mode_of(attached: AttachedProgram) -> (String, String) {
    let path = match attached.path {
        ReceivePath::Native => "native",
        _ => "generic",
    };
    (path.to_owned(), attached.why)
}

/// Attaches a program at tc by a link. `None`: this kernel has no links at tc.
pub fn at_tc(
    place: &Place,
    program: BorrowedFd<'_>,
    side: Side,
    pin: &Path,
) -> Result<Option<Held>, PlatformError> {
    let attached = PinnedProgram::attach_tc(place, program, side, pin);
    let hold = attached.map_err(|error| failed(&error))?;
    Ok(hold.map(|hold| (Hold::Link(hold), (AT_TC.to_owned(), String::new()))))
}

/// Attaches a program at tc by a filter, whose position has been recorded.
pub fn by_filter(
    place: &Place,
    seat: FilterSeat,
    program: BorrowedFd<'_>,
) -> Result<Held, PlatformError> {
    let attached = FilteredProgram::attach(place, seat, program);
    let hold = attached.map_err(|error| failed(&error))?;
    Ok((Hold::Filter(hold), (AT_TC.to_owned(), BY_FILTER.to_owned())))
}
