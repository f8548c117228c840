//! The place where an XDP program is attached: in the driver, or in the kernel's stack on socket buffers.

use crate::error::NetdevError;
use crate::netlink::{Link, Netlink, errno};
use crate::program::{program_by_id, program_name};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;

/// In which hook an XDP program may be attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Natively if the driver can, else generically.
    #[default]
    Auto,
    /// Natively only.
    Native,
    /// Generically only: for drivers whose native XDP is broken.
    Generic,
}

impl Mode {
    fn allows(self, hook: XdpHook) -> bool {
        match self {
            Mode::Auto => true,
            Mode::Native => hook == XdpHook::Native,
            Mode::Generic => hook == XdpHook::Generic,
        }
    }
}

/// The hook of an XDP program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XdpHook {
    /// In the driver.
    Native,
    /// In the kernel's stack, on socket buffers.
    Generic,
}

impl XdpHook {
    /// XDP_FLAGS_SKB_MODE, XDP_FLAGS_DRV_MODE
    pub(crate) fn flag(self) -> u32 {
        match self {
            XdpHook::Generic => 1 << 1,
            XdpHook::Native => 1 << 2,
        }
    }

    /// Returns the path by which packets come in.
    pub fn path(self) -> ReceivePath {
        match self {
            XdpHook::Native => ReceivePath::Native,
            XdpHook::Generic => ReceivePath::Generic,
        }
    }
}

/// The path by which frames come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReceivePath {
    /// XDP in the driver, before the kernel makes a socket buffer: the fast one.
    Native,
    /// XDP on socket buffers: any interface, several times slower.
    Generic,
    /// Ingress of tc: frames are socket buffers, and may have work left to be done.
    Tc,
    /// Read from a tap by a thread.
    Tap,
}

impl fmt::Display for ReceivePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ReceivePath::Native => "xdp-native",
            ReceivePath::Generic => "xdp-generic",
            ReceivePath::Tc => "tc",
            ReceivePath::Tap => "tap",
        })
    }
}

/// The place of an attached program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachedProgram {
    /// In the driver, or in the kernel's stack.
    pub path: ReceivePath,
    /// The reason against the driver; empty: the program is in the driver.
    pub why: String,
}

/// The hook of an attached program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hooked {
    /// The hook.
    pub hook: XdpHook,
    /// The reason against the native mode: the kernel's words, or the user's wish.
    pub why: String,
}

/// Attaches a program to `link` by netlink: natively where the driver can, else generically, as far as `mode` allows.
/// The program `previous`, if any, is replaced. No link holds the program: it stays until [`detach`], or until
/// another process removes or replaces it.
///
/// # Errors
/// [`NetdevError::Busy`] when another program is there, [`NetdevError::Refused`] when the kernel takes the program nowhere.
pub fn attach(
    netlink: &Netlink,
    link: &Link,
    program: BorrowedFd<'_>,
    mode: Mode,
    previous: Option<BorrowedFd<'_>>,
) -> Result<Hooked, NetdevError> {
    let attempt = |hook| attach_to(netlink, link, hook, program, previous);
    let ((), hooked) = first_hook((netlink, link), mode, taken, attempt)?;
    Ok(hooked)
}

fn attach_to(
    netlink: &Netlink,
    link: &Link,
    hook: XdpHook,
    program: BorrowedFd<'_>,
    previous: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let Some(previous) = previous else {
        return netlink.attach_xdp(link.index, hook, program, None);
    };
    // In the mode in which it is: no frame is missed. In another mode the kernel would refuse
    // a second one, so the first goes before.
    let replaced = netlink.attach_xdp(link.index, hook, program, Some(previous));
    if replaced.is_ok() {
        return Ok(());
    }
    for hook in [XdpHook::Native, XdpHook::Generic] {
        let _ = netlink.detach_xdp(link.index, hook, previous);
    }
    netlink.attach_xdp(link.index, hook, program, None)
}

/// Detaches a program that [`attach`] has put on `link`, whichever its hook is.
///
/// # Errors
/// When the kernel refuses: another program is there, for instance.
pub fn detach(netlink: &Netlink, link: &Link, program: BorrowedFd<'_>) -> io::Result<()> {
    let native = netlink.detach_xdp(link.index, XdpHook::Native, program);
    native.or_else(|_| netlink.detach_xdp(link.index, XdpHook::Generic, program))
}

/// Tries the hooks that `mode` allows, the driver's first. Returns the result of the first hook that the kernel
/// takes, with the hook. An error for which `may_be_taken` returns true may come of another program that is there.
///
/// # Errors
/// [`NetdevError::Busy`] when another program is there, [`NetdevError::Refused`] when the kernel takes none.
pub(crate) fn first_hook<T>(
    (netlink, link): (&Netlink, &Link),
    mode: Mode,
    may_be_taken: impl Fn(&io::Error) -> bool,
    attempt: impl Fn(XdpHook) -> io::Result<T>,
) -> Result<(T, Hooked), NetdevError> {
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
    Err(NetdevError::Refused {
        interface: link.name.clone(),
        native,
        generic,
    })
}

/// Is a program attached by now? Drivers say "busy" for other reasons, too.
fn is_occupied(netlink: &Netlink, link: &Link) -> bool {
    let now = netlink.link_by_index(link.index).ok().flatten();
    now.is_some_and(|now| now.xdp_attached)
}

/// The error for an interface that was taken while we looked.
pub(crate) fn busy(netlink: &Netlink, link: &Link) -> NetdevError {
    let now = netlink.link_by_index(link.index).ok().flatten();
    let id = now.and_then(|now| now.xdp).unwrap_or(0);
    occupied(&link.name, id)
}

/// Returns the error for an interface that has the program `id` of another owner.
pub fn occupied(interface: &str, id: u32) -> NetdevError {
    let found = program_by_id(id);
    let name = found.as_ref().and_then(program_name);
    NetdevError::Busy {
        interface: interface.to_owned(),
        program: name.unwrap_or_else(|| "unknown".to_owned()),
        id,
    }
}

/// Returns true if the kernel's error means that another owner's program is attached.
fn taken(error: &io::Error) -> bool {
    matches!(errno(error), Some(libc::EBUSY | libc::EEXIST))
}
