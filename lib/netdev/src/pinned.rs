//! Programs put on an interface at XDP or at tc by a pinned BPF link. The programs stay when the process that put
//! them there is gone, until the link is taken away, and no other process can replace them.

use crate::error::NetdevError;
use crate::hook::{AttachedProgram, Mode, XdpHook, busy, first_hook};
use crate::netlink::tc::Side;
use crate::netlink::{Netlink, errno};
use crate::netns::NetNs;
use crate::place::Place;
use libbpf_rs::Link;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A program's hold on an interface.
#[derive(Debug)]
pub struct PinnedProgram {
    link: Link,
    pin: PathBuf,
}

impl PinnedProgram {
    /// Puts a program on an interface that has none: natively where the driver can, else generically, as far as `mode` allows.
    /// `pin` is a path on a BPF file system where nothing is.
    ///
    /// # Errors
    /// [`NetdevError::Busy`] when another program is there, [`NetdevError::Refused`] when the kernel takes it nowhere; nothing
    /// has changed then.
    pub fn attach(
        place: &Place,
        program: BorrowedFd<'_>,
        mode: Mode,
        pin: &Path,
    ) -> Result<(Self, AttachedProgram), NetdevError> {
        let netns = NetNs::open(place.netns.as_deref())?;
        let (link, hooked) = netns.within(|| {
            let netlink = Netlink::open()?;
            let interface = place.find(&netlink, &netns)?;
            if interface.xdp_attached {
                return Err(busy(&netlink, &interface));
            }
            let attempt = |hook: XdpHook| {
                make_link(interface.index, program, libbpf_sys::BPF_XDP, hook.flag())
            };
            // A link says in other words too that the place is taken.
            first_hook((&netlink, &interface), mode, |_| true, attempt)
        })?;
        let attached = AttachedProgram {
            path: hooked.hook.path(),
            why: hooked.why,
        };
        Ok((Self::pin(link, pin)?, attached))
    }

    /// Puts a program at tc on an interface, behind those that are there. `pin` as for [`PinnedProgram::attach`]. `None`: the kernel
    /// has no links for tc (before Linux 6.6); see [`crate::FilteredProgram`].
    ///
    /// # Errors
    /// When the interface is not there, or the kernel refuses; nothing has changed then.
    pub fn attach_tc(
        place: &Place,
        program: BorrowedFd<'_>,
        side: Side,
        pin: &Path,
    ) -> Result<Option<Self>, NetdevError> {
        let hook = match side {
            Side::Ingress => libbpf_sys::BPF_TCX_INGRESS,
            Side::Egress => libbpf_sys::BPF_TCX_EGRESS,
        };
        let link = place.on_interface(|_, interface| {
            match make_link(interface.index, program, hook, 0) {
                Ok(link) => Ok(Some(link)),
                // The kernel's answer for a kind of link that it does not know.
                Err(error) if errno(&error) == Some(libc::EINVAL) => Ok(None),
                Err(error) => {
                    let what = format!("attaching at tc on {}", place.interface);
                    Err(NetdevError::system(what)(error))
                }
            }
        })?;
        link.map(|link| Self::pin(link, pin)).transpose()
    }

    fn pin(link: OwnedFd, pin: &Path) -> Result<Self, NetdevError> {
        pin_link(&link, pin).map_err(NetdevError::system(format!("pinning {}", pin.display())))?;
        // From here on the pin holds it.
        drop(link);
        Self::open(pin)
    }

    /// The hold that was pinned there.
    ///
    /// # Errors
    /// When nothing, or something else, is there.
    pub fn open(pin: &Path) -> Result<Self, NetdevError> {
        let link = Link::open(pin).map_err(|error| NetdevError::System {
            what: format!("opening {}", pin.display()),
            source: io::Error::other(error.to_string()),
        })?;
        Ok(PinnedProgram {
            link,
            pin: pin.to_owned(),
        })
    }

    /// Returns true if the interface is there still, whatever its name is by now.
    pub fn is_attached(&self) -> bool {
        self.interface().is_some()
    }

    /// The number of the interface; `None`: it is gone.
    pub fn interface(&self) -> Option<u32> {
        let interface = |info: libbpf_sys::bpf_link_info| {
            if info.type_ == libbpf_sys::BPF_LINK_TYPE_TCX {
                // SAFETY: of a link of this kind that part of the union was written, which is of numbers.
                unsafe { info.__bindgen_anon_1.tcx.ifindex }
            } else {
                // SAFETY: the same of those of XDP, the only others.
                unsafe { info.__bindgen_anon_1.xdp.ifindex }
            }
        };
        self.info().map(interface).filter(|number| *number != 0)
    }

    /// The number of the program.
    pub fn program(&self) -> Option<u32> {
        self.info().map(|info| info.prog_id)
    }

    /// Returns the kernel's description of the link, if the link is one of XDP or tc.
    fn info(&self) -> Option<libbpf_sys::bpf_link_info> {
        let mut info = libbpf_sys::bpf_link_info::default();
        let mut len = size_of::<libbpf_sys::bpf_link_info>() as u32;
        // SAFETY: `info` is a live, zeroed structure of the length that is passed; zeroed pointers in it ask for nothing to be
        // written elsewhere.
        let status = unsafe {
            libbpf_sys::bpf_obj_get_info_by_fd(
                self.link.as_fd().as_raw_fd(),
                (&raw mut info).cast(),
                &raw mut len,
            )
        };
        let kinds = [libbpf_sys::BPF_LINK_TYPE_XDP, libbpf_sys::BPF_LINK_TYPE_TCX];
        (status == 0 && kinds.contains(&info.type_)).then_some(info)
    }

    /// Puts another program in the place of this one, between two packets.
    ///
    /// # Errors
    /// When the kernel refuses; the first one is there still.
    pub fn replace(&self, program: BorrowedFd<'_>) -> Result<(), NetdevError> {
        // SAFETY: both descriptors are open; no options are passed.
        let status = unsafe {
            libbpf_sys::bpf_link_update(
                self.link.as_fd().as_raw_fd(),
                program.as_raw_fd(),
                std::ptr::null(),
            )
        };
        if status == 0 {
            return Ok(());
        }
        let error = io::Error::from_raw_os_error(-status);
        Err(NetdevError::system("replacing a program")(error))
    }

    /// Takes the program off the interface.
    ///
    /// # Errors
    /// When the pin cannot be removed.
    pub fn remove(self) -> Result<(), NetdevError> {
        // Detaches the program at once, and not when the kernel comes to it: another program may be put there next.
        // The interface may be gone.
        let _gone = self.link.detach();
        std::fs::remove_file(&self.pin).map_err(NetdevError::system(format!(
            "removing {}",
            self.pin.display()
        )))
    }
}

/// BPF_MPROG_MAX (linux/bpf_mprog.h): more programs no hook takes.
const PROGRAMS_MAX: usize = 64;

/// The numbers of the programs that links hold at tc on an interface; none before Linux 6.6.
pub fn programs_at_tc(interface: u32) -> Vec<u32> {
    let mut programs = [0u32; PROGRAMS_MAX];
    let mut query = libbpf_sys::bpf_prog_query_opts {
        sz: size_of::<libbpf_sys::bpf_prog_query_opts>() as libbpf_sys::size_t,
        prog_ids: programs.as_mut_ptr(),
        ..Default::default()
    };
    query.__bindgen_anon_1.prog_cnt = programs.len() as u32;
    // SAFETY: `query` is a live structure that says its own size, and the array that it points to has as many elements as
    // it says.
    let status = unsafe {
        libbpf_sys::bpf_prog_query_opts(
            interface as i32,
            libbpf_sys::BPF_TCX_INGRESS,
            &raw mut query,
        )
    };
    // SAFETY: both fields of the union are numbers.
    let count = unsafe { query.__bindgen_anon_1.prog_cnt } as usize;
    if status == 0 {
        programs[..count.min(programs.len())].to_vec()
    } else {
        Vec::new()
    }
}

fn make_link(
    interface: u32,
    program: BorrowedFd<'_>,
    hook: libbpf_sys::bpf_attach_type,
    flags: u32,
) -> io::Result<OwnedFd> {
    let options = libbpf_sys::bpf_link_create_opts {
        sz: size_of::<libbpf_sys::bpf_link_create_opts>() as libbpf_sys::size_t,
        flags,
        ..Default::default()
    };
    // SAFETY: `options` is a live structure that says its own size; the program's descriptor is open.
    let fd = unsafe {
        libbpf_sys::bpf_link_create(
            program.as_raw_fd(),
            interface as i32,
            hook,
            &raw const options,
        )
    };
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: the kernel has just made this descriptor, and no other code has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn pin_link(link: &OwnedFd, pin: &Path) -> io::Result<()> {
    let path = CString::new(pin.as_os_str().as_bytes())?;
    // SAFETY: the descriptor is open, `path` is a live string that ends with a zero.
    let status = unsafe { libbpf_sys::bpf_obj_pin(link.as_raw_fd(), path.as_ptr()) };
    if status == 0 {
        return Ok(());
    }
    Err(io::Error::from_raw_os_error(-status))
}
