//! Programs called by libxdp's dispatcher: on an interface that other tools have programs on too.
//!
//! The dispatcher calls a program of a few instructions (`bpf/evnf/component.bpf.c`) that goes on to the program in
//! its map. So the program in the map can be replaced without a new dispatcher. A process with the privilege can take
//! the component out of the dispatcher, or the dispatcher away: [`DispatchedProgram::is_attached`] shows that, but
//! nothing prevents it.

use crate::error::NetdevError;
use crate::hook::{AttachedProgram, Mode, XdpHook, busy, first_hook};
use crate::libxdp::{Libxdp, Occupant};
use crate::netlink::{Link, Netlink};
use crate::netns::NetNs;
use crate::place::Place;
use crate::program::{program_by_id, program_info};
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType, libbpf_sys};
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// The component.
const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/component.bpf.o"));
/// The map of a component, by which a component is recognised.
const MAP: &CStr = c"evnf_first";
/// Most maps of a program in a dispatcher that are looked at.
const MAPS_MAX: usize = 64;
const IN_DISPATCHER: &str = "in libxdp's dispatcher";

/// A program's hold on an interface by libxdp's dispatcher.
#[derive(Debug)]
pub struct DispatchedProgram {
    place: Place,
    interface: u32,
    map: MapHandle,
    pin: PathBuf,
    /// Number of the dispatcher that called the component when it was last looked for; 0: none did.
    dispatcher: AtomicU32,
}

impl DispatchedProgram {
    /// Puts a program into the dispatcher on an interface, before programs whose `priority` is a higher number. A
    /// missing dispatcher is made: natively where the driver can, else generically, as far as `mode` allows. `pin` is
    /// a path on a BPF file system: the objects there stay when the process ends.
    ///
    /// # Errors
    /// [`NetdevError::Busy`] when a program is there that is no dispatcher, [`NetdevError::Refused`] when the kernel or the dispatcher
    /// does not take it, [`NetdevError::Dispatcher`] when libxdp cannot be used; nothing has changed then.
    pub fn attach(
        place: &Place,
        program: BorrowedFd<'_>,
        mode: Mode,
        priority: u32,
        pin: &Path,
    ) -> Result<(Self, AttachedProgram), NetdevError> {
        let netns = NetNs::open(place.netns.as_deref())?;
        let map = new_map(pin, program)?;
        let entered = netns.within(|| {
            let netlink = Netlink::open()?;
            let interface = place.find(&netlink, &netns)?;
            enter((&netlink, &interface), map.as_fd(), mode, priority)
        });
        let (interface, attached) = match entered {
            Ok(entered) => entered,
            Err(why) => {
                // The pinned map holds nothing yet.
                let _left = std::fs::remove_file(pin);
                return Err(why);
            }
        };
        let own = DispatchedProgram {
            place: place.clone(),
            interface,
            map,
            pin: pin.to_owned(),
            dispatcher: AtomicU32::new(0),
        };
        Ok((own, attached))
    }

    /// The hold that was pinned there by an earlier process, for the interface of this number.
    ///
    /// # Errors
    /// When nothing is there.
    pub fn open(place: &Place, interface: u32, pin: &Path) -> Result<Self, NetdevError> {
        let what = || format!("opening {}", pin.display());
        let map = MapHandle::from_pinned_path(pin).map_err(|error| system(what(), &error))?;
        Ok(DispatchedProgram {
            place: place.clone(),
            interface,
            map,
            pin: pin.to_owned(),
            dispatcher: AtomicU32::new(0),
        })
    }

    /// The number of the interface; `None`: it is gone, or the component is no longer in a dispatcher on it.
    pub fn interface(&self) -> Option<u32> {
        self.is_attached().then_some(self.interface)
    }

    /// Returns true if the interface is there still, whatever its name is by now, and the component is in the
    /// dispatcher on it.
    pub fn is_attached(&self) -> bool {
        let asked = NetNs::open(self.place.netns.as_deref()).and_then(|netns| {
            netns.within(|| {
                let found = Netlink::open()?.link_by_index(self.interface)?;
                let Some(now) = found.and_then(|link| link.xdp) else {
                    return Ok(false);
                };
                // Whenever a program comes or goes, there is another dispatcher.
                if now == self.dispatcher.load(Ordering::Relaxed) {
                    return Ok(true);
                }
                let is_there = self.component().is_some();
                if is_there {
                    self.dispatcher.store(now, Ordering::Relaxed);
                }
                Ok(is_there)
            })
        });
        asked.unwrap_or(false)
    }

    /// The number of the component, if it is in the dispatcher on the interface, in the calling thread's namespace.
    fn component(&self) -> Option<u32> {
        let library = Libxdp::open().ok()?;
        let Occupant::Dispatcher(_, programs) = library.occupant(self.interface) else {
            return None;
        };
        let map = self.map.info().ok()?.info.id;
        programs.into_iter().find(|program| uses(*program, map))
    }

    /// Puts another program in the place of this one, between two packets.
    ///
    /// # Errors
    /// When the kernel refuses; the first one is there still.
    pub fn replace(&self, program: BorrowedFd<'_>) -> Result<(), NetdevError> {
        enter_program(&self.map, program)
    }

    /// Takes the program off the interface, and the component out of the dispatcher; the last one takes that away.
    ///
    /// # Errors
    /// When the pin cannot be removed.
    pub fn remove(self) -> Result<(), NetdevError> {
        // From here on the component passes everything. An entry that is absent already is as good.
        let _empty = self.map.delete(&0u32.to_ne_bytes());
        let removed = NetNs::open(self.place.netns.as_deref()).and_then(|netns| {
            netns.within(|| match self.component() {
                Some(program) => Libxdp::open()
                    .map_err(io::Error::other)
                    .and_then(|library| library.detach(self.interface, program))
                    .map_err(NetdevError::system("leaving libxdp's dispatcher")),
                None => Ok(()),
            })
        });
        if let Err(error) = removed {
            tracing::warn!(
                interface = self.place.interface, %error,
                "a program without effect stays in libxdp's dispatcher ('xdp-loader status')"
            );
        }
        std::fs::remove_file(&self.pin).map_err(NetdevError::system(format!(
            "removing {}",
            self.pin.display()
        )))
    }
}

/// Puts the component on an interface of the calling thread's namespace. Returns the interface's number.
fn enter(
    (netlink, interface): (&Netlink, &Link),
    map: BorrowedFd<'_>,
    mode: Mode,
    priority: u32,
) -> Result<(u32, AttachedProgram), NetdevError> {
    let library = Libxdp::open().map_err(|why| NetdevError::Dispatcher {
        interface: interface.name.clone(),
        why,
    })?;
    let there = match library.occupant(interface.index) {
        Occupant::Other => return Err(busy(netlink, interface)),
        Occupant::None if interface.xdp_attached => return Err(busy(netlink, interface)),
        Occupant::None => None,
        Occupant::Dispatcher(hook, _) => Some(hook),
    };
    let attempt = |hook: XdpHook| match there {
        Some(other) if other != hook => Err(io::Error::other(
            "the dispatcher is there in the other mode",
        )),
        _ => library.attach(OBJECT, (MAP, map), interface.index, hook, priority),
    };
    // A program that is there already belongs to nfluid.
    let may_be_taken = |_: &io::Error| there.is_none();
    let (_, hooked) = first_hook((netlink, interface), mode, may_be_taken, attempt)?;
    let mut why = IN_DISPATCHER.to_owned();
    if !hooked.why.is_empty() {
        why += "; ";
        why += &hooked.why;
    }
    let path = hooked.hook.path();
    Ok((interface.index, AttachedProgram { path, why }))
}

/// Makes a component's map with a program in it, pinned: the map forgets the program when no process holds it.
fn new_map(pin: &Path, program: BorrowedFd<'_>) -> Result<MapHandle, NetdevError> {
    let options = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
        ..Default::default()
    };
    let name = MAP.to_str().ok();
    let made = MapHandle::create(MapType::ProgArray, name, 4, 4, 1, &options);
    let mut map = made.map_err(|error| system("making a map of programs".to_owned(), &error))?;
    enter_program(&map, program)?;
    // A leftover of a process that ended before its program was on the interface.
    let _left = std::fs::remove_file(pin);
    let pinned = map.pin(pin);
    pinned.map_err(|error| system(format!("pinning {}", pin.display()), &error))?;
    Ok(map)
}

fn enter_program(map: &MapHandle, program: BorrowedFd<'_>) -> Result<(), NetdevError> {
    let program = program.as_raw_fd().to_ne_bytes();
    let entered = map.update(&0u32.to_ne_bytes(), &program, MapFlags::ANY);
    entered.map_err(|error| system("entering a program".to_owned(), &error))
}

/// Returns true if a program uses a map, by their numbers.
fn uses(program: u32, map: u32) -> bool {
    let Some(program) = program_by_id(program) else {
        return false;
    };
    let mut maps = [0u32; MAPS_MAX];
    let Some(info) = program_info(&program, &mut maps) else {
        return false;
    };
    maps.iter()
        .take(info.nr_map_ids as usize)
        .any(|used| *used == map)
}

fn system(what: String, error: &libbpf_rs::Error) -> NetdevError {
    NetdevError::System {
        what,
        source: io::Error::other(error.to_string()),
    }
}
