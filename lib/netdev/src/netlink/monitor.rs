//! Announcements of the kernel.

use crate::error::NetdevError;
use netlink_sys::protocols::{NETLINK_NETFILTER, NETLINK_ROUTE};
use netlink_sys::{Socket, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

const GROUP_LINK: u32 = libc::RTMGRP_LINK as u32;
const GROUPS_ADDRESS: u32 = (libc::RTMGRP_IPV4_IFADDR | libc::RTMGRP_IPV6_IFADDR) as u32;
/// Groups of netfilter are numbers, from 1 on.
const GROUP_RULES: u32 = 1 << (libc::NFNLGRP_NFTABLES - 1);

/// Announcements of the kernel about a namespace: something was added, removed or changed.
#[derive(Debug)]
pub struct Monitor(Socket);

impl Monitor {
    /// Watches the interfaces in the calling thread's namespace.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn of_links() -> Result<Self, NetdevError> {
        let what = "listening for changes of interfaces";
        Self::open(NETLINK_ROUTE, GROUP_LINK, what)
    }

    /// Watches the namespace's interfaces and their addresses.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn of_addresses() -> Result<Self, NetdevError> {
        let what = "listening for changes of addresses";
        Self::open(NETLINK_ROUTE, GROUP_LINK | GROUPS_ADDRESS, what)
    }

    /// Watches the namespace's rule set (nftables, and the rules of iptables-nft).
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn of_rules() -> Result<Self, NetdevError> {
        let what = "listening for changes of the rule set";
        Self::open(NETLINK_NETFILTER, GROUP_RULES, what)
    }

    fn open(protocol: isize, groups: u32, what: &str) -> Result<Self, NetdevError> {
        let open = || {
            let mut socket = Socket::new(protocol)?;
            socket.set_non_blocking(true)?;
            socket.bind(&SocketAddr::new(0, groups))?;
            Ok(socket)
        };
        let opened: std::io::Result<Socket> = open();
        opened.map(Monitor).map_err(NetdevError::system(what))
    }

    /// Takes the announcements. Their content does not matter: the caller looks at the interface.
    pub fn drain(&self) -> bool {
        let mut buffer = [0u8; 8192];
        let mut any = false;
        // An overrun (ENOBUFS) is news as well; bounded, as announcements may come without end.
        for _ in 0..64 {
            match self.0.recv(&mut &mut buffer[..], libc::MSG_TRUNC) {
                Ok(_) => any = true,
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => any = true,
                Err(_) => break,
            }
        }
        any
    }
}

impl AsFd for Monitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
