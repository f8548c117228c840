//! AF_PACKET: sending where an interface takes no AF_XDP socket, or frames to which something is still to be done, and
//! promiscuous reception.

use crate::error::UplinkError;
use nfluid_netdev::packet;
use nfluid_ring::Offload;
use nfluid_ring::offload::VNET_BYTES;
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

impl PacketSocket {
    /// A socket on the interface with `index` in the calling thread's namespace.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn open(index: u32) -> Result<Self, UplinkError> {
        Ok(PacketSocket {
            socket: packet::open(index)?,
            has_headers: false,
        })
    }

    /// A socket that takes frames to which something is still to be done.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn open_for_offloads(index: u32) -> Result<Self, UplinkError> {
        Ok(PacketSocket {
            socket: packet::open_for_offloads(index)?,
            has_headers: true,
        })
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
        Ok(packet::receive_all(&self.socket, index)?)
    }

    /// Sends without a queueing discipline in between.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn bypass_queueing(&self) -> Result<(), UplinkError> {
        Ok(packet::bypass_queueing(&self.socket)?)
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
