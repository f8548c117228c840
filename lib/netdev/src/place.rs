//! An interface by the names that users write, and questions about it.

use crate::error::NetdevError;
use crate::netlink::{Link, Netlink};
use crate::netns::{self, NetNs};
use crate::nic::Steering;
use crate::offload::{self, ChangedFeatures};
use std::path::PathBuf;

/// An interface, by the names that users write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The interface.
    pub interface: String,
    /// Path of its namespace; `None`: that of the calling thread.
    pub netns: Option<PathBuf>,
}

impl Place {
    /// Does `work` in a thread inside the interface's namespace.
    ///
    /// # Errors
    /// The errors of `work`, and an error when there is no such namespace.
    pub fn within<T: Send>(
        &self,
        work: impl FnOnce() -> Result<T, NetdevError> + Send,
    ) -> Result<T, NetdevError> {
        NetNs::open(self.netns.as_deref())?.within(work)
    }

    /// Checks that the interface is there.
    ///
    /// # Errors
    /// The interface is missing; the error names the place where it might be instead.
    pub fn look(&self) -> Result<(), NetdevError> {
        self.on_interface(|_, _| Ok(()))
    }

    /// Returns the classification features of the interface's NIC.
    ///
    /// # Errors
    /// [`NetdevError::NoSteering`] when it cannot, and those of [`NetNs::open`].
    pub fn steering(&self) -> Result<Steering, NetdevError> {
        self.within(|| Steering::of(&self.interface))
    }

    /// Has whole packets come in on the interface: with VLAN tags, and if `rewrites`, with checksums, one by one, so
    /// that they can be changed and sent out of it. Returns the changes that were made for that.
    ///
    /// # Errors
    /// When the interface is not there, or the kernel refuses.
    pub fn prepare(&self, rewrites: bool) -> Result<ChangedFeatures, NetdevError> {
        self.on_interface(|netlink, link| {
            if rewrites {
                offload::prepare_rewriting(netlink, link)
            } else {
                offload::show_tags(netlink, link)
            }
        })
    }

    /// Returns true if frames can go out of the interface; of a veth: if both ends are up.
    pub fn has_carrier(&self) -> bool {
        let asked = self.on_interface(|_, link| Ok(link.carrier));
        asked.unwrap_or(false)
    }

    /// Returns true if the interface is an end of a veth.
    pub fn is_veth(&self) -> bool {
        let asked = self.on_interface(|_, link| Ok(link.kind.as_deref() == Some("veth")));
        asked.unwrap_or(false)
    }

    /// Returns the name of the bridge, bond or VRF that the interface is a part of, if the interface is there, and
    /// has a master.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn part_of(&self) -> Result<Option<String>, NetdevError> {
        self.with_netlink(|netlink| {
            let link = netlink.link(&self.interface)?;
            let Some(master) = link.and_then(|link| link.master) else {
                return Ok(None);
            };
            let found = netlink.link_by_index(master)?;
            // A master that has gone meanwhile has released the interface.
            Ok(found.map(|master| master.name))
        })
    }

    /// The number of the interface; `None`: there is none of that name.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn number(&self) -> Result<Option<u32>, NetdevError> {
        let found = self.with_netlink(|netlink| netlink.link(&self.interface))?;
        Ok(found.map(|link| link.index))
    }

    /// Returns the name that the interface of this number, which was this one, has now; `None`: the interface is not in this namespace
    /// any more.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn name_of(&self, number: u32) -> Result<Option<String>, NetdevError> {
        let found = self.with_netlink(|netlink| netlink.link_by_index(number))?;
        Ok(found.map(|link| link.name))
    }

    fn with_netlink<T: Send>(
        &self,
        work: impl FnOnce(&Netlink) -> Result<T, NetdevError> + Send,
    ) -> Result<T, NetdevError> {
        NetNs::open(self.netns.as_deref())?.within(|| work(&Netlink::open()?))
    }

    /// Has the other end of a veth take redirected frames, if it was not up when [`Place::prepare`] has asked for that.
    ///
    /// # Errors
    /// When the interface is not there, or the kernel refuses.
    pub fn renew_peer(&self) -> Result<(), NetdevError> {
        self.on_interface(offload::renew_peer)
    }

    /// Undoes what [`Place::prepare`] has changed.
    ///
    /// # Errors
    /// When the interface is not there, or the kernel refuses.
    pub fn restore(&self, changed: &ChangedFeatures) -> Result<(), NetdevError> {
        self.on_interface(|netlink, link| offload::restore(netlink, link, changed))
    }

    pub(crate) fn on_interface<T: Send>(
        &self,
        work: impl FnOnce(&Netlink, &Link) -> Result<T, NetdevError> + Send,
    ) -> Result<T, NetdevError> {
        let netns = NetNs::open(self.netns.as_deref())?;
        netns.within(|| {
            let netlink = Netlink::open()?;
            let link = self.find(&netlink, &netns)?;
            work(&netlink, &link)
        })
    }

    /// The interface, by a socket in its namespace, which is `netns`.
    ///
    /// # Errors
    /// [`NetdevError::NoInterface`], or [`NetdevError::Elsewhere`] if another namespace has one of that name.
    pub fn find(&self, netlink: &Netlink, netns: &NetNs) -> Result<Link, NetdevError> {
        if let Some(link) = netlink.link(&self.interface)? {
            return Ok(link);
        }
        if let Some(found) = elsewhere(&self.interface, netns) {
            return Err(NetdevError::Elsewhere {
                interface: self.interface.clone(),
                namespace: netns.to_string(),
                found,
            });
        }
        Err(NetdevError::NoInterface {
            interface: self.interface.clone(),
            namespace: netns.to_string(),
            names: netns::interface_names().join(", "),
        })
    }
}

/// The name of another namespace that has an interface of this name.
fn elsewhere(interface: &str, here: &NetNs) -> Option<String> {
    let found = netns::named().into_iter().find(|path| {
        let other = NetNs::open(Some(path)).ok();
        other.filter(|n| n.id() != here.id()).is_some_and(|other| {
            let link = other.within(|| Netlink::open()?.link(interface));
            matches!(link, Ok(Some(_)))
        })
    })?;
    Some(found.file_name()?.to_string_lossy().into_owned())
}
