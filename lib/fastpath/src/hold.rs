//! The hold on an interface: what keeps the first program of a row there when no daemon is.

use super::error::failed;
use nfluid_control::apply::PlatformError;
use nfluid_evnf::chain::Member;
use nfluid_netdev::{
    AttachedProgram, DispatchedProgram, FilterSeat, FilteredProgram, Mode,
    NetdevError as UplinkError, PinnedProgram, Place, ReceivePath, Side,
};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

/// The pin of a link, in a row's folder.
pub const LINK: &str = "link";
/// The pin of the map of a component in libxdp's dispatcher.
const FIRST: &str = "first";
/// Where a row is to be that libxdp's dispatcher has to itself by now.
const IN_DISPATCHER: &str = "or write 'beside: libxdp' in all instances on it: they are in the dispatcher then, beside the programs of others";
/// What the mode at tc is called.
pub const AT_TC: &str = "tc";
/// Why the hold at tc is a filter.
const BY_FILTER: &str = "by a filter of clsact: this kernel has no links at tc (Linux 6.6 has)";

/// A hold, and the mode with why it is no better one.
pub type Held = (Hold, (String, String));

/// A hold on an interface.
pub enum Hold {
    /// Pinned in the row's folder.
    Link(PinnedProgram),
    /// The interface's own, in the seat that the row's record says.
    Filter(FilteredProgram),
    /// In libxdp's dispatcher.
    Dispatched(DispatchedProgram),
}

impl Hold {
    /// What an earlier daemon has left: a filter in this seat, a component in the dispatcher on the interface of this number, or a link.
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

    /// The number of the interface; `None`: it is gone, or the program on it.
    pub fn interface(&self) -> Option<u32> {
        match self {
            Hold::Link(link) => link.interface(),
            Hold::Filter(filter) => filter.is_attached().then(|| filter.seat().interface()),
            Hold::Dispatched(program) => program.interface(),
        }
    }

    /// Whether the interface is there still, and the program on it.
    pub fn is_attached(&self) -> bool {
        match self {
            Hold::Link(link) => link.is_attached(),
            Hold::Filter(filter) => filter.is_attached(),
            Hold::Dispatched(program) => program.is_attached(),
        }
    }

    /// Puts another program in the place of the one that is there, between two packets.
    ///
    /// # Errors
    /// When the kernel refuses; the first one is there still.
    pub fn replace(&self, program: BorrowedFd<'_>) -> Result<(), UplinkError> {
        match self {
            Hold::Link(link) => link.replace(program),
            Hold::Filter(filter) => filter.replace(program),
            Hold::Dispatched(own) => own.replace(program),
        }
    }

    /// The same with a member of a chain.
    ///
    /// # Errors
    /// As [`Hold::replace`].
    pub fn put(&self, first: &Member) -> anyhow::Result<()> {
        Ok(self.replace(first.descriptor()?.as_fd())?)
    }

    /// Takes the program off the interface.
    ///
    /// # Errors
    /// When it is there still, or a pin of it.
    pub fn remove(self) -> Result<(), UplinkError> {
        match self {
            Hold::Link(link) => link.remove(),
            Hold::Filter(filter) => filter.remove(),
            Hold::Dispatched(program) => program.remove(),
        }
    }
}

/// Puts a program on an interface at XDP.
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

/// The same in libxdp's dispatcher, with its priority there.
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

/// The same at tc. `None`: this kernel has no links there.
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

/// The same by a filter, in a seat that is written down.
pub fn by_filter(
    place: &Place,
    seat: FilterSeat,
    program: BorrowedFd<'_>,
) -> Result<Held, PlatformError> {
    let attached = FilteredProgram::attach(place, seat, program);
    let hold = attached.map_err(|error| failed(&error))?;
    Ok((Hold::Filter(hold), (AT_TC.to_owned(), BY_FILTER.to_owned())))
}
