//! AF_PACKET: sending where an interface takes no AF_XDP socket, or frames to which something is still to be done, and
//! promiscuous reception.

use crate::error::UplinkError;
use nfluid_ring::Offload;
use nfluid_ring::offload::VNET_BYTES;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// A socket on one interface that only sends.
#[derive(Debug)]
pub struct PacketSocket {
    socket: OwnedFd,
    /// Each frame has a `struct virtio_net_hdr` before it.
    has_headers: bool,
}

/// Frames per system call.
const BATCH: usize = 64;
/// Frames of 64 KiB that may be on their way: more than a TCP window.
const SEND_BUFFER: i32 = 8 << 20;
/// linux/if_packet.h
const PACKET_VNET_HDR: libc::c_int = 15;

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
        Ok(PacketSocket {
            socket,
            has_headers: false,
        })
    }

    /// A socket that takes frames to which something is still to be done: the kernel, or the interface, does it. Such frames
    /// go through the queueing discipline: the path around it refuses each super-frame where the interface does not cut it.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn open_for_offloads(index: u32) -> Result<Self, UplinkError> {
        let mut packet = Self::open(index)?;
        let refused = || UplinkError::system("sending frames with offloads by AF_PACKET");
        packet
            .set(libc::SOL_PACKET, PACKET_VNET_HDR, &1i32)
            .map_err(refused())?;
        packet
            .set(libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &SEND_BUFFER)
            .map_err(refused())?;
        packet.has_headers = true;
        Ok(packet)
    }

    /// Returns true if the socket takes frames to which something is still to be done.
    pub fn takes_offloads(&self) -> bool {
        self.has_headers
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
        self.set(libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &request)
            .map_err(UplinkError::system(
                "making the interface receive frames for any address",
            ))
    }

    /// Sends without a queueing discipline in between.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn bypass_queueing(&self) -> Result<(), UplinkError> {
        self.set(libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, &1i32)
            .map_err(UplinkError::system("bypassing the queueing discipline"))
    }

    fn set<T>(&self, level: libc::c_int, option: libc::c_int, value: &T) -> io::Result<()> {
        // SAFETY: the option value is live and of the length that is passed.
        let status = unsafe {
            libc::setsockopt(
                self.socket.as_raw_fd(),
                level,
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

    /// Sends `frames`, at most 64 at once, with what is still to be done to each; returns how many the interface took. Less
    /// than all: the next one was refused. A socket that takes no such frames sends them as they are.
    ///
    /// # Errors
    /// When not even the first was taken.
    pub fn send(&self, frames: &[(&[u8], Offload)]) -> io::Result<usize> {
        let frames = &frames[..frames.len().min(BATCH)];
        let headers: Vec<[u8; VNET_BYTES]> = frames
            .iter()
            .map(|(_, offload)| offload.to_kernel())
            .collect();
        let part = |bytes: &[u8]| libc::iovec {
            iov_base: bytes.as_ptr().cast_mut().cast(),
            iov_len: bytes.len(),
        };
        let mut parts: Vec<[libc::iovec; 2]> = frames
            .iter()
            .zip(&headers)
            .map(|((frame, _), header)| [part(header), part(frame)])
            .collect();
        let skipped = usize::from(!self.has_headers);
        let mut messages: Vec<libc::mmsghdr> = parts
            .iter_mut()
            .map(|parts| {
                // SAFETY: zeroes are a valid msghdr: no address, no control data.
                let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
                message.msg_hdr.msg_iov = parts[skipped..].as_mut_ptr();
                message.msg_hdr.msg_iovlen = 2 - skipped;
                message
            })
            .collect();
        // SAFETY: the messages and the parts that they point to are live; each part is a borrowed
        // frame or its header, which the kernel only reads.
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
