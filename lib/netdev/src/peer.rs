//! The other end of a veth pair, in whichever namespace it is.

use crate::error::NetdevError;
use crate::netlink::{Link, Netlink};
use crate::netns::{NetNs, named, of_processes};
use std::collections::HashSet;
use std::os::fd::AsFd;

/// The other end: its namespace and its name there.
#[derive(Debug)]
pub struct Peer {
    /// The namespace.
    pub netns: NetNs,
    /// The interface.
    pub interface: String,
}

impl Peer {
    /// The interface, by `netlink` of the peer's namespace.
    ///
    /// # Errors
    /// When the interface has gone meanwhile.
    pub fn link(&self, netlink: &Netlink) -> Result<Link, NetdevError> {
        let found = netlink.link(&self.interface)?;
        found.ok_or_else(|| NetdevError::NoInterface {
            interface: self.interface.clone(),
            namespace: self.netns.to_string(),
            names: String::new(),
        })
    }
}

/// Finds the other end of `link`, an interface in the calling thread's namespace. `None`: it is no
/// veth, or the other end is in a namespace that has no name and no process.
///
/// # Errors
/// When the kernel refuses to answer.
pub fn find(netlink: &Netlink, link: &Link) -> Result<Option<Peer>, NetdevError> {
    if link.kind.as_deref() != Some("veth") {
        return Ok(None);
    }
    let Some(index) = link.peer else {
        return Ok(None);
    };
    let netns = match link.peer_netns {
        None => Some(NetNs::open(None)?),
        Some(id) => find_netns(netlink, id),
    };
    let Some(netns) = netns else {
        return Ok(None);
    };
    let peer = netns.within(|| Netlink::open()?.link_by_index(index))?;
    Ok(peer.map(|peer| Peer {
        netns,
        interface: peer.name,
    }))
}

/// The namespace to which the calling thread's has given the number `id`.
fn find_netns(netlink: &Netlink, id: i32) -> Option<NetNs> {
    let mut seen = HashSet::new();
    named()
        .into_iter()
        .chain(of_processes())
        .filter_map(|path| NetNs::open(Some(&path)).ok())
        .filter(|netns| seen.insert(netns.id()))
        .find(|netns| {
            netlink
                .netns_id(netns.fd().as_fd())
                .is_ok_and(|found| found == id)
        })
}
