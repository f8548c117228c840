//! Offloads: work on a frame that a driver or the kernel would leave undone, and must not.
//!
//! XDP and AF_XDP see the bytes of a frame and not the values that the kernel keeps beside them: a checksum still to
//! be computed, a segment size, a VLAN tag. So:
//!
//! - on the interface itself, received frames are not merged (LRO, GRO in hardware, and GRO for the
//!   generic hook, which comes behind it) and keep their VLAN tags;
//! - at the other end of a veth, the kernel computes checksums and cuts segments before the frame
//!   leaves, and writes the VLAN tag into it. Generic segmentation stays on: TCP still crosses the
//!   sender's stack in 64 KiB pieces, which is what makes it fast.
//!
//! Offloads that were on are noted and put back in the end.

use crate::error::NetdevError;
use crate::features::Features;
use crate::netlink::{Link, Netlink};
use crate::peer;

/// Off on the interface itself.
const OWN: [&str; 6] = [
    "rx-gro",
    "rx-lro",
    "rx-gro-hw",
    "rx-gro-list",
    "rx-vlan-hw-parse",
    "rx-vlan-stag-hw-parse",
];

/// Off at the other end of a veth.
const PEER: [&str; 16] = [
    "tx-checksum-ipv4",
    "tx-checksum-ip-generic",
    "tx-checksum-ipv6",
    "tx-checksum-fcoe-crc",
    "tx-checksum-sctp",
    "tx-tcp-segmentation",
    "tx-tcp-ecn-segmentation",
    "tx-tcp-mangleid-segmentation",
    "tx-tcp6-segmentation",
    "tx-udp-segmentation",
    "tx-sctp-segmentation",
    "tx-gso-list",
    "tx-tcp-accecn-segmentation",
    "tx-vlan-hw-insert",
    "tx-vlan-stag-hw-insert",
    "tx-fcoe-segmentation",
];

/// Offloads that must be off so that a program sees VLAN tags: on the interface itself, and at the other end of a
/// veth.
const OWN_TAGS: [&str; 2] = ["rx-vlan-hw-parse", "rx-vlan-stag-hw-parse"];
const PEER_TAGS: [&str; 2] = ["tx-vlan-hw-insert", "tx-vlan-stag-hw-insert"];

/// On at the other end of a veth, which takes redirected frames only then.
const PEER_ON: [&str; 1] = ["rx-gro"];

/// The features that were switched off.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ChangedFeatures {
    /// On the interface.
    pub own: Vec<String>,
    /// At the other end of a veth.
    pub peer: Vec<String>,
    /// Features that were switched on at the peer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub peer_on: Vec<String>,
}

/// Switches off what hides VLAN tags from a program that only looks at packets.
///
/// # Errors
/// As [`prepare`].
pub fn show_tags(netlink: &Netlink, link: &Link) -> Result<ChangedFeatures, NetdevError> {
    switch(netlink, link, (&OWN_TAGS, &PEER_TAGS, &[]))
}

/// Prepares for a program that changes packets and sends them out of interfaces such as `link`.
///
/// # Errors
/// As [`prepare`].
pub fn prepare_rewriting(netlink: &Netlink, link: &Link) -> Result<ChangedFeatures, NetdevError> {
    switch(netlink, link, (&OWN, &PEER, &PEER_ON))
}

/// Switches what [`prepare_rewriting`] has switched on at the other end of a veth off and on again. The kernel takes note that frames can be
/// redirected into a pair when that is switched on at an end that is up, or when this end is put up afterwards; if the other end
/// comes up as the last, it does not (`veth_set_features`, `veth_open`), and drops all that is redirected.
///
/// # Errors
/// As [`prepare`].
pub fn renew_peer(netlink: &Netlink, link: &Link) -> Result<(), NetdevError> {
    let Some(peer) = peer::find(netlink, link)? else {
        return Ok(());
    };
    peer.netns.within(|| {
        let features = Features::of(&peer.interface)?;
        features.set(&PEER_ON, false)?;
        features.set(&PEER_ON, true)
    })
}

/// Switches off what must be off for `link`, an interface in the calling thread's namespace.
///
/// # Errors
/// When the kernel refuses. The other end of a veth in a namespace that cannot be found is only
/// warned about.
pub fn prepare(netlink: &Netlink, link: &Link) -> Result<ChangedFeatures, NetdevError> {
    switch(netlink, link, (&OWN, &PEER, &[]))
}

/// Features that are to be off on an interface, and off and on at the other end of a veth.
type Wanted<'a> = (&'a [&'a str], &'a [&'a str], &'a [&'a str]);

fn switch(
    netlink: &Netlink,
    link: &Link,
    (own, off, on): Wanted<'_>,
) -> Result<ChangedFeatures, NetdevError> {
    let own = Features::of(&link.name)?.switch_off(own)?;
    let (peer, peer_on) = match peer::find(netlink, link)? {
        Some(peer) => peer.netns.within(|| {
            let features = Features::of(&peer.interface)?;
            Ok((features.switch_off(off)?, features.switch_on(on)?))
        })?,
        None => {
            if link.kind.as_deref() == Some("veth") {
                tracing::warn!(
                    interface = link.name,
                    "the other end of this veth is in a namespace that cannot be found; switch \
                     its offloads off by hand: ethtool -K INTERFACE tx off txvlan off"
                );
            }
            (Vec::new(), Vec::new())
        }
    };
    Ok(ChangedFeatures { own, peer, peer_on })
}

impl ChangedFeatures {
    /// Adds features that are on again: another process switched them on, or the interface is a new one.
    pub fn merge(&mut self, more: ChangedFeatures) {
        let lists = [
            (&mut self.own, more.own),
            (&mut self.peer, more.peer),
            (&mut self.peer_on, more.peer_on),
        ];
        for (all, names) in lists {
            for name in names {
                if !all.contains(&name) {
                    all.push(name);
                }
            }
        }
    }
}

/// Switches on again what [`prepare`] has switched off, as far as the interfaces are still there.
///
/// # Errors
/// When the kernel refuses.
pub fn restore(
    netlink: &Netlink,
    link: &Link,
    changed: &ChangedFeatures,
) -> Result<(), NetdevError> {
    if !changed.own.is_empty() {
        Features::of(&link.name)?.set(&changed.own, true)?;
    }
    if changed.peer.is_empty() && changed.peer_on.is_empty() {
        return Ok(());
    }
    if let Some(peer) = peer::find(netlink, link)? {
        peer.netns.within(|| {
            let features = Features::of(&peer.interface)?;
            features.set(&changed.peer, true)?;
            features.set(&changed.peer_on, false)
        })?;
    }
    Ok(())
}
