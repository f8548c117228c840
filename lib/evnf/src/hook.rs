//! Hooks of the kernel for fast paths.
//!
//! A single source serves both hooks (`bpf/evnf/hook.h`), with the same tables: a balancer can be in the driver of a
//! network card and at the ingress of tc on containers' interfaces at once, and knows its connections in both places.

use libbpf_rs::{AsRawLibbpf, Link, ProgramMut, libbpf_sys};
use std::io;
use std::ptr::{NonNull, null};

/// A hook.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hook {
    /// XDP: in the driver, before the kernel makes a socket buffer of the packet. The fastest where packets come in
    /// from outside.
    #[default]
    Xdp,
    /// XDP, entered by a tail call from a part of libxdp's dispatcher, which others' programs are in too.
    Component,
    /// The ingress of tc: packets are socket buffers. Packets of another namespace on this host already are socket
    /// buffers, and stay unchanged, with several segments in one and checksums that are computed later or never; XDP
    /// would have them copied. Other programs can be there too. Since Linux 6.6.
    Tc,
    /// The egress of tc: packets that an interface sends, whatever their origin, as the last step before its queue.
    /// The kernel's rules, where they apply, come before.
    Egress,
}

/// A program, compiled for its hooks.
#[derive(Clone, Copy)]
pub(crate) struct Objects {
    pub xdp: &'static [u8],
    /// Absent: it is for XDP only.
    pub tc: Option<&'static [u8]>,
    /// Absent: it is for what comes in only.
    pub egress: Option<&'static [u8]>,
}

impl From<&'static [u8]> for Objects {
    fn from(xdp: &'static [u8]) -> Self {
        Objects {
            xdp,
            tc: None,
            egress: None,
        }
    }
}

impl Objects {
    pub(crate) fn of(&self, hook: Hook) -> Option<&'static [u8]> {
        match hook {
            Hook::Xdp | Hook::Component => Some(self.xdp),
            Hook::Tc => self.tc,
            Hook::Egress => self.egress,
        }
    }
}

/// The treatment of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The packet goes to the kernel.
    Pass,
    /// The packet was dropped.
    Drop,
    /// The packet was sent on.
    Send,
}

impl Hook {
    /// Returns true if the hook is in front of the kernel's stack, where packets are not yet socket buffers.
    pub fn is_xdp(self) -> bool {
        matches!(self, Hook::Xdp | Hook::Component)
    }

    /// Returns the meaning of a program's return value at this hook.
    pub(crate) fn action(self, returned: u32) -> Action {
        let (drop, pass) = match self {
            Hook::Xdp | Hook::Component => (XDP_DROP, XDP_PASS),
            Hook::Tc | Hook::Egress => (TC_ACT_SHOT, TC_ACT_UNSPEC),
        };
        match returned {
            value if value == drop => Action::Drop,
            value if value == pass => Action::Pass,
            _ => Action::Send,
        }
    }

    /// Puts a program on an interface of the calling thread's namespace. The program stays until the link is dropped.
    pub(crate) fn attach(self, program: &ProgramMut<'_>, interface: i32) -> io::Result<Link> {
        match self {
            Hook::Xdp => program
                .attach_xdp(interface)
                .map_err(|error| io::Error::other(error.to_string())),
            Hook::Component => Err(io::Error::other("it is called by another program")),
            Hook::Tc | Hook::Egress => attach_tcx(program, interface),
        }
    }
}

const XDP_DROP: u32 = 1;
const XDP_PASS: u32 = 2;
const TC_ACT_SHOT: u32 = 2;
const TC_ACT_UNSPEC: u32 = u32::MAX;

/// Behind those that are there.
fn attach_tcx(program: &ProgramMut<'_>, interface: i32) -> io::Result<Link> {
    let raw = program.as_libbpf_object();
    // SAFETY: the program is alive as long as it is borrowed; no options are passed.
    let link = unsafe { libbpf_sys::bpf_program__attach_tcx(raw.as_ptr(), interface, null()) };
    let Some(link) = NonNull::new(link) else {
        let error = io::Error::last_os_error();
        return Err(match error.raw_os_error() {
            // The answer of an older kernel for a kind of link that it does not know.
            Some(EINVAL) => io::Error::other(format!(
                "{error}: programs at tc are held by links, which takes Linux 6.6; use XDP here"
            )),
            _ => error,
        });
    };
    // SAFETY: libbpf has just made the link for us; no other code frees it.
    Ok(unsafe { Link::from_ptr(link) })
}

const EINVAL: i32 = 22;

/// Bytes of the context that a program gets at tc (`struct __sk_buff`).
const CONTEXT_BYTES: usize = 192;
/// Offset of `gso_size` in it.
const SEGMENT_BYTES_AT: usize = 176;

/// A context of a packet that will be cut into segments with so many bytes each.
pub(crate) fn context_of_segments(bytes: u32) -> [u8; CONTEXT_BYTES] {
    let mut context = [0; CONTEXT_BYTES];
    context[SEGMENT_BYTES_AT..SEGMENT_BYTES_AT + 4].copy_from_slice(&bytes.to_ne_bytes());
    context
}

#[cfg(test)]
mod tests {
    use super::{Action, Hook};

    // promise: 15.61
    #[test]
    fn the_same_number_means_another_thing_at_another_hook() {
        assert_eq!(Hook::Xdp.action(2), Action::Pass);
        assert_eq!(Hook::Tc.action(2), Action::Drop);
        assert_eq!(Hook::Tc.action(u32::MAX), Action::Pass);
        assert_eq!(Hook::Egress.action(2), Action::Drop);
        for redirected in [(Hook::Xdp, 4), (Hook::Tc, 7)] {
            assert_eq!(redirected.0.action(redirected.1), Action::Send);
        }
    }
}
