//! The receive side: the XDP program of an uplink, loaded, attached, replaced, detached.

use super::error::UplinkError;
use super::netlink::{Link, Netlink, XdpHook, errno};
use super::spec::Mode;
use super::steering::Queues;
use crate::SwitchError;
use crate::program::{Switch, find_program, program_info};
use libbpf_rs::Program;
use std::io;
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

/// Where the program came to be attached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hooked {
    /// Where.
    pub hook: XdpHook,
    /// Why there and not natively: the kernel's words, or the user's wish.
    pub why: String,
}

impl Receiver {
    /// Loads the program for the uplink whose port is `port`, on the maps of `switch`.
    ///
    /// # Errors
    /// When the kernel refuses the program.
    pub fn load(switch: &Switch, port: u32) -> Result<Self, SwitchError> {
        let name = format!("uplink_{}", switch.form().suffix());
        let object = switch.load_beside(&name, |map, open| {
            if map != ".rodata.uplink" {
                return Ok(false);
            }
            let bytes = open.initial_value_mut();
            let constant = bytes.and_then(|bytes| bytes.get_mut(..4));
            let missing = || SwitchError::Limit("the object has no uplink constant".to_owned());
            constant
                .ok_or_else(missing)?
                .copy_from_slice(&port.to_ne_bytes());
            Ok(true)
        })?;
        let fd = find_program(&object, &name)?
            .as_fd()
            .try_clone_to_owned()
            .map_err(SwitchError::system("duplicating a descriptor"))?;
        let id = program_info(&fd, &mut []).map_or(0, |info| info.id);
        let queues = Queues::of(switch, port)?;
        Ok(Receiver {
            program: fd,
            id,
            queues,
        })
    }

    /// Whose the receive queues are.
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
    /// [`UplinkError::Busy`] when somebody else's program is there, [`UplinkError::Refused`] when
    /// the kernel takes it nowhere.
    pub fn attach(
        &self,
        netlink: &Netlink,
        link: &Link,
        mode: Mode,
        previous: Option<u32>,
    ) -> Result<Hooked, UplinkError> {
        let previous = self.previous(link, previous)?;
        let attempt = |hook| self.hook(netlink, link, hook, previous.as_ref());
        let ((), hooked) = first_hook((netlink, link), mode, taken, attempt)?;
        Ok(hooked)
    }

    /// Is the interface without a program, or with one of our own, `ours`?
    ///
    /// # Errors
    /// [`UplinkError::Busy`] when somebody else's program is there.
    pub fn check_free(&self, link: &Link, ours: Option<u32>) -> Result<(), UplinkError> {
        self.previous(link, ours).map(drop)
    }

    /// Our own program on the interface, to be replaced; an error if it is somebody else's.
    fn previous(&self, link: &Link, ours: Option<u32>) -> Result<Option<OwnedFd>, UplinkError> {
        if !link.xdp_attached {
            return Ok(None);
        }
        let id = link.xdp.unwrap_or(0);
        let found = Program::fd_from_id(id).ok();
        let name = found.as_ref().and_then(program_name);
        if ours == Some(id) && name.as_deref().is_some_and(|n| NAMES.contains(&n)) {
            return Ok(found);
        }
        Err(UplinkError::Busy {
            interface: link.name.clone(),
            program: name.unwrap_or_else(|| "unknown".to_owned()),
            id,
        })
    }

    fn hook(
        &self,
        netlink: &Netlink,
        link: &Link,
        hook: XdpHook,
        previous: Option<&OwnedFd>,
    ) -> io::Result<()> {
        let program = self.program.as_fd();
        let Some(previous) = previous else {
            return netlink.attach_xdp(link.index, hook, program, None);
        };
        // In the mode in which it is: no frame is missed. In another mode the kernel would refuse
        // a second one, so the first goes before.
        let replaced = netlink.attach_xdp(link.index, hook, program, Some(previous.as_fd()));
        if replaced.is_ok() {
            return Ok(());
        }
        for hook in [XdpHook::Native, XdpHook::Generic] {
            let _ = netlink.detach_xdp(link.index, hook, previous.as_fd());
        }
        netlink.attach_xdp(link.index, hook, program, None)
    }
}

/// Tries the hooks that `mode` allows, the driver's first: what the first one that the kernel takes has given, and where that is.
/// An error that `may_be_taken` may come of another program that is there.
///
/// # Errors
/// [`UplinkError::Busy`] when another program is there, [`UplinkError::Refused`] when the kernel takes none.
pub(super) fn first_hook<T>(
    (netlink, link): (&Netlink, &Link),
    mode: Mode,
    may_be_taken: impl Fn(&io::Error) -> bool,
    attempt: impl Fn(XdpHook) -> io::Result<T>,
) -> Result<(T, Hooked), UplinkError> {
    let mut errors = [(); 2].map(|()| "not tried: the other mode was asked for".to_owned());
    for (index, hook) in [XdpHook::Native, XdpHook::Generic].into_iter().enumerate() {
        if !mode.allows(hook) {
            continue;
        }
        match attempt(hook) {
            Ok(given) => {
                let why = match hook {
                    XdpHook::Native => String::new(),
                    XdpHook::Generic => std::mem::take(&mut errors[0]),
                };
                return Ok((given, Hooked { hook, why }));
            }
            Err(error) if may_be_taken(&error) && is_occupied(netlink, link) => {
                return Err(busy(netlink, link));
            }
            Err(error) => errors[index] = error.to_string(),
        }
    }
    let [native, generic] = errors;
    Err(UplinkError::Refused {
        interface: link.name.clone(),
        native,
        generic,
    })
}

/// Detaches program `id` from `link`, if it is there and one of ours. Returns whether it was.
///
/// # Errors
/// When the kernel refuses.
pub fn detach_leftover(netlink: &Netlink, link: &Link, id: u32) -> Result<bool, UplinkError> {
    if link.xdp != Some(id) {
        return Ok(false);
    }
    let Ok(program) = Program::fd_from_id(id) else {
        return Ok(false);
    };
    if !program_name(&program).is_some_and(|name| NAMES.contains(&name.as_str())) {
        return Ok(false);
    }
    let native = netlink.detach_xdp(link.index, XdpHook::Native, program.as_fd());
    native
        .or_else(|_| netlink.detach_xdp(link.index, XdpHook::Generic, program.as_fd()))
        .map_err(UplinkError::system(format!(
            "detaching the XDP program that was left on {}",
            link.name
        )))?;
    Ok(true)
}

/// Is a program attached by now? Drivers say "busy" for other reasons, too.
fn is_occupied(netlink: &Netlink, link: &Link) -> bool {
    let now = netlink.link_by_index(link.index).ok().flatten();
    now.is_some_and(|now| now.xdp_attached)
}

/// The error for an interface that was taken while we looked.
pub(super) fn busy(netlink: &Netlink, link: &Link) -> UplinkError {
    let now = netlink.link_by_index(link.index).ok().flatten();
    let id = now.and_then(|now| now.xdp).unwrap_or(0);
    let found = Program::fd_from_id(id).ok();
    let name = found.as_ref().and_then(program_name);
    UplinkError::Busy {
        interface: link.name.clone(),
        program: name.unwrap_or_else(|| "unknown".to_owned()),
        id,
    }
}

/// "Somebody else's program is attached", in the kernel's numbers.
fn taken(error: &io::Error) -> bool {
    matches!(errno(error), Some(libc::EBUSY | libc::EEXIST))
}

/// The name of a program.
fn program_name(program: &OwnedFd) -> Option<String> {
    let info = program_info(program, &mut [])?;
    let name = info.name.iter().map(|&c| c as u8);
    let name: Vec<u8> = name.take_while(|&c| c != 0).collect();
    Some(String::from_utf8_lossy(&name).into_owned())
}
