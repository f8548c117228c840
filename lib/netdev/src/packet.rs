//! AF_PACKET sockets that only send (`linux/if_packet.h`).

use crate::error::NetdevError;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// Frames of 64 KiB that may be on their way: more than a TCP window.
const SEND_BUFFER: i32 = 8 << 20;
const PACKET_VNET_HDR: libc::c_int = 15;

/// A socket on the interface with `index` in the calling thread's namespace.
///
/// # Errors
/// When the kernel refuses.
pub fn open(index: u32) -> Result<OwnedFd, NetdevError> {
    let socket = socket_with(
        AddressFamily::PACKET,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(NetdevError::system("opening an AF_PACKET socket"))?;
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
        let error = io::Error::last_os_error();
        return Err(NetdevError::system("binding an AF_PACKET socket")(error));
    }
    Ok(socket)
}

/// A socket that takes frames to which something is still to be done: the kernel, or the interface, does it. A `struct
/// virtio_net_hdr` is before each frame. Such frames go through the queueing discipline: the path around it refuses each
/// super-frame where the interface does not cut it.
///
/// # Errors
/// When the kernel refuses.
pub fn open_for_offloads(index: u32) -> Result<OwnedFd, NetdevError> {
    let socket = open(index)?;
    let refused = || NetdevError::system("sending frames with offloads by AF_PACKET");
    set(&socket, (libc::SOL_PACKET, PACKET_VNET_HDR), &1i32).map_err(refused())?;
    let buffer = (libc::SOL_SOCKET, libc::SO_SNDBUFFORCE);
    set(&socket, buffer, &SEND_BUFFER).map_err(refused())?;
    Ok(socket)
}

/// Makes the interface with `index` receive frames for any address, as long as this socket is open.
///
/// # Errors
/// When the kernel refuses.
pub fn receive_all(socket: &OwnedFd, index: u32) -> Result<(), NetdevError> {
    let request = libc::packet_mreq {
        mr_ifindex: index as i32,
        mr_type: libc::PACKET_MR_PROMISC as u16,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    let membership = (libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP);
    set(socket, membership, &request).map_err(NetdevError::system(
        "making the interface receive frames for any address",
    ))
}

/// Has the socket send without a queueing discipline in between.
///
/// # Errors
/// When the kernel refuses.
pub fn bypass_queueing(socket: &OwnedFd) -> Result<(), NetdevError> {
    set(socket, (libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS), &1i32)
        .map_err(NetdevError::system("bypassing the queueing discipline"))
}

/// Sets an option of a socket, of this level, to a value of the kernel's layout.
///
/// # Errors
/// As the kernel reports them.
pub fn set<T>(
    socket: &OwnedFd,
    (level, option): (libc::c_int, libc::c_int),
    value: &T,
) -> io::Result<()> {
    // SAFETY: the option value is live and of the length that is passed; the kernel only reads it.
    let status = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
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
