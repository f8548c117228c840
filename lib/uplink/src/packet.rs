//! AF_PACKET: sending where an interface takes no AF_XDP socket, and promiscuous reception.

use crate::error::UplinkError;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// A socket on one interface that only sends.
#[derive(Debug)]
pub struct PacketSocket {
    socket: OwnedFd,
}

/// Frames per system call.
const BATCH: usize = 64;

impl PacketSocket {
    /// A socket on the interface with `index` in the calling thread's namespace.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn open(index: u32) -> Result<Self, UplinkError> {
        let socket = socket_with(
            AddressFamily::PACKET,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            None,
        )
        .map_err(UplinkError::system("opening an AF_PACKET socket"))?;
        let address = libc::sockaddr_ll {
            sll_family: libc::AF_PACKET as u16,
            sll_protocol: 0,
            sll_ifindex: index as i32,
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 0,
            sll_addr: [0; 8],
        };
        // SAFETY: the address is a live sockaddr_ll of the length that is passed.
        let status = unsafe {
            libc::bind(
                socket.as_raw_fd(),
                (&raw const address).cast(),
                size_of::<libc::sockaddr_ll>() as libc::socklen_t,
            )
        };
        if status != 0 {
            return Err(UplinkError::system("binding an AF_PACKET socket")(
                io::Error::last_os_error(),
            ));
        }
        Ok(PacketSocket { socket })
    }

    /// Makes the interface receive frames for any address, as long as this socket is open: an
    /// uplink's NFs have addresses of their own.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn promiscuous(&self, index: u32) -> Result<(), UplinkError> {
        let request = libc::packet_mreq {
            mr_ifindex: index as i32,
            mr_type: libc::PACKET_MR_PROMISC as u16,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        self.set(libc::PACKET_ADD_MEMBERSHIP, &request)
            .map_err(UplinkError::system(
                "making the interface receive frames for any address",
            ))
    }

    /// Sends without a queueing discipline in between.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn bypass_queueing(&self) -> Result<(), UplinkError> {
        self.set(libc::PACKET_QDISC_BYPASS, &1i32)
            .map_err(UplinkError::system("bypassing the queueing discipline"))
    }

    fn set<T>(&self, option: libc::c_int, value: &T) -> io::Result<()> {
        // SAFETY: the option value is live and of the length that is passed.
        let status = unsafe {
            libc::setsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_PACKET,
                option,
                (&raw const *value).cast(),
                size_of::<T>() as libc::socklen_t,
            )
        };
        if status == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }

    /// Sends `frames`, at most 64 at once; returns how many the interface took. Less than all: the
    /// next one was refused.
    ///
    /// # Errors
    /// When not even the first was taken.
    pub fn send(&self, frames: &[&[u8]]) -> io::Result<usize> {
        let mut parts: Vec<libc::iovec> = frames
            .iter()
            .take(BATCH)
            .map(|frame| libc::iovec {
                iov_base: frame.as_ptr().cast_mut().cast(),
                iov_len: frame.len(),
            })
            .collect();
        let mut messages: Vec<libc::mmsghdr> = parts
            .iter_mut()
            .map(|part| {
                // SAFETY: zeroes are a valid msghdr: no address, no control data.
                let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
                message.msg_hdr.msg_iov = part;
                message.msg_hdr.msg_iovlen = 1;
                message
            })
            .collect();
        // SAFETY: the messages and the parts that they point to are live; each part is a borrowed
        // frame, which the kernel only reads.
        let sent = unsafe {
            libc::sendmmsg(
                self.socket.as_raw_fd(),
                messages.as_mut_ptr(),
                messages.len() as u32,
                libc::MSG_DONTWAIT,
            )
        };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }
}
