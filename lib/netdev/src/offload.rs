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
//! A program at tc sees these values. There, as much may be left undone as the frame's receivers can take
//! ([`Undone`]): what stays off is what has no words in a `virtio_net_hdr`, such as segments within tunnels, and what cannot
//! be undone, such as LRO. Frames stay short enough that their receivers can push tags.
//!
//! What is changed is noted before ([`Plan`]), and put back in the end.

use crate::error::NetdevError;
use crate::features::Features;
use crate::kernel::kernel_is_at_least;
use crate::netlink::{Link, MaxSizes, Netlink};
use crate::peer::{self, Peer};

/// Work on frames that may be left undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undone {
    /// None: a frame is as on a wire.
    Nothing,
    /// Its transport checksum.
    Checksums,
    /// Also cutting it into segments: of TCP, and where the kernel has words for that, of UDP.
    Segments {
        /// Of UDP too.
        udp: bool,
    },
}

/// Returns true if the kernel has words for UDP super-frames in a `virtio_net_hdr`.
pub fn has_uso() -> bool {
    kernel_is_at_least(6, 2)
}

/// Longest frame that the kernel makes of several, in bytes without Ethernet header: with two tags, and what its receivers
/// may add, it is within the 65,520 bytes of a long frame.
const MERGED_MAX: u32 = 65_472;

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

/// Off on the interface itself, where only segmentation may be left undone: LRO cannot be undone, and fragment lists have
/// no words.
const OWN_MERGING: [&str; 2] = ["rx-lro", "rx-gro-list"];
const OWN_MERGED: [&str; 1] = ["rx-gro"];
const OWN_MERGED_UDP: [&str; 1] = ["rx-udp-gro-forwarding"];

/// Off at the other end of a veth, where checksums may be left undone: those for which there are no words.
const PEER_CHECKSUMS: [&str; 2] = ["tx-checksum-fcoe-crc", "tx-checksum-sctp"];
const PEER_UDP: [&str; 1] = ["tx-udp-segmentation"];
const PEER_TCP: [&str; 3] = [
    "tx-tcp-segmentation",
    "tx-tcp-ecn-segmentation",
    "tx-tcp6-segmentation",
];
/// Off at the other end of a veth, where segmentation may be left undone: kinds for which there are no words.
const PEER_WORDLESS: [&str; 13] = [
    "tx-tcp-mangleid-segmentation",
    "tx-tcp-accecn-segmentation",
    "tx-sctp-segmentation",
    "tx-fcoe-segmentation",
    "tx-gso-list",
    "tx-gso-partial",
    "tx-gre-segmentation",
    "tx-gre-csum-segmentation",
    "tx-ipxip4-segmentation",
    "tx-ipxip6-segmentation",
    "tx-udp_tnl-segmentation",
    "tx-udp_tnl-csum-segmentation",
    "tx-esp-segmentation",
];

/// Offloads that must be off so that a program sees VLAN tags: on the interface itself, and at the other end of a
/// veth.
const OWN_TAGS: [&str; 2] = ["rx-vlan-hw-parse", "rx-vlan-stag-hw-parse"];
const PEER_TAGS: [&str; 2] = ["tx-vlan-hw-insert", "tx-vlan-stag-hw-insert"];

/// On at the other end of a veth, which takes redirected frames only then.
const PEER_ON: [&str; 1] = ["rx-gro"];

/// The features that were switched off or on, and the sizes that were lowered.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ChangedFeatures {
    /// Switched off on the interface.
    pub own: Vec<String>,
    /// Switched off at the other end of a veth.
    pub peer: Vec<String>,
    /// Switched on on the interface.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub own_on: Vec<String>,
    /// Switched on at the peer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub peer_on: Vec<String>,
    /// Sizes of the interface before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_sizes: Option<MaxSizes>,
    /// Sizes of the peer before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer_sizes: Option<MaxSizes>,
}

/// What is to be off and on at an end.
#[derive(Clone, Debug, Default)]
struct Wanted {
    off: Vec<&'static str>,
    on: Vec<&'static str>,
    /// Sizes are limited.
    short: bool,
}

impl Wanted {
    fn off(lists: &[&[&'static str]]) -> Self {
        Wanted {
            off: lists.concat(),
            ..Wanted::default()
        }
    }
}

impl Undone {
    /// Of the interface itself, and of the other end of a veth.
    fn wanted(self) -> (Wanted, Wanted) {
        match self {
            Undone::Nothing => (Wanted::off(&[&OWN]), Wanted::off(&[&PEER])),
            Undone::Checksums => (
                Wanted::off(&[&OWN]),
                Wanted::off(&[&PEER_CHECKSUMS, &PEER_TCP, &PEER_UDP, &PEER_WORDLESS]),
            ),
            Undone::Segments { udp } => {
                let udp_own = if udp { &OWN_MERGED_UDP[..] } else { &[] };
                let udp_peer = if udp { &[][..] } else { &PEER_UDP };
                let own = Wanted {
                    on: [&OWN_MERGED[..], udp_own].concat(),
                    short: true,
                    ..Wanted::off(&[&OWN_MERGING])
                };
                let peer = Wanted {
                    short: true,
                    ..Wanted::off(&[&PEER_CHECKSUMS, &PEER_WORDLESS, udp_peer])
                };
                (own, peer)
            }
        }
    }
}

/// The changes of one end.
#[derive(Debug, Default, PartialEq, Eq)]
struct Step {
    off: Vec<String>,
    on: Vec<String>,
    sizes: Option<MaxSizes>,
}

/// An end as it was before the changes that are noted.
#[derive(Debug, Default, PartialEq, Eq)]
struct Before {
    off: Vec<String>,
    on: Vec<String>,
    sizes: Option<MaxSizes>,
}

/// Changes that are about to be made. [`Plan::changed`] is to be noted first: who comes after a crash puts that back.
#[derive(Debug)]
pub struct Plan {
    link: Link,
    own: Step,
    peer: Option<(Peer, Link, Step)>,
    changed: ChangedFeatures,
}

impl Plan {
    /// All changes once this plan is carried out, with those of before that stay.
    pub fn changed(&self) -> &ChangedFeatures {
        &self.changed
    }

    /// Makes the changes.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn carry_out(&self, netlink: &Netlink) -> Result<(), NetdevError> {
        if let Some((peer, link, step)) = &self.peer {
            peer.netns
                .within(|| step.carry_out(&Netlink::open()?, link))?;
        }
        self.own.carry_out(netlink, &self.link)
    }
}

impl Step {
    fn carry_out(&self, netlink: &Netlink, link: &Link) -> Result<(), NetdevError> {
        let features = Features::of(&link.name)?;
        for (names, on) in [(&self.off, false), (&self.on, true)] {
            if !names.is_empty() {
                features.set(names, on)?;
            }
        }
        match &self.sizes {
            Some(sizes) => netlink.set_max_sizes(link.index, sizes),
            None => Ok(()),
        }
    }

    /// What is to be changed at an end where the first features of `enabled` are asked for or active, those of `inactive`
    /// could be and are not, and `before` was changed already. Returns the step, and the end before all changes.
    fn of(wanted: &Wanted, end: &End, before: Before) -> (Self, Before) {
        let is_in = |list: &[String], name: &str| list.iter().any(|other| other == name);
        let is_off = |name: &String| wanted.off.contains(&name.as_str());
        let is_on = |name: &String| wanted.on.contains(&name.as_str());
        let off = end.enabled.iter().filter(|name| is_off(name));
        let on = end.inactive.iter().filter(|name| is_on(name));
        let (off, on): (Vec<_>, Vec<_>) = (off.cloned().collect(), on.cloned().collect());
        let (stay_off, again_on): (Vec<_>, Vec<_>) = before.off.into_iter().partition(is_off);
        let (stay_on, again_off): (Vec<_>, Vec<_>) = before.on.into_iter().partition(is_on);
        let new = |names: &[String], undone: &[String], kept: &[String]| -> Vec<String> {
            let is_new = |name: &&String| !is_in(undone, name) && !is_in(kept, name);
            names.iter().filter(is_new).cloned().collect()
        };
        let after = Before {
            off: [stay_off.clone(), new(&off, &again_off, &stay_off)].concat(),
            on: [stay_on.clone(), new(&on, &again_on, &stay_on)].concat(),
            sizes: wanted.short.then(|| before.sizes.unwrap_or(end.sizes)),
        };
        let sizes = match wanted.short {
            true => Some(end.sizes.limited(MERGED_MAX)),
            false => before.sizes,
        };
        let step = Step {
            off: [new(&again_off, &[], &off), off].concat(),
            on: [new(&again_on, &[], &on), on].concat(),
            sizes: sizes.filter(|sizes| *sizes != end.sizes),
        };
        (step, after)
    }
}

/// An end as it is.
#[derive(Debug, Default)]
struct End {
    /// Features that are asked for or active.
    enabled: Vec<String>,
    /// Features that could be active and are not.
    inactive: Vec<String>,
    sizes: MaxSizes,
}

impl End {
    fn look(wanted: &Wanted, link: &Link) -> Result<Self, NetdevError> {
        let features = Features::of(&link.name)?;
        Ok(End {
            enabled: features.enabled(&wanted.off)?,
            inactive: features.inactive(&wanted.on)?,
            sizes: link.sizes,
        })
    }
}

/// Plans that so much is left undone of frames that come in on `link`, an interface in the calling thread's namespace.
/// `changed`: what an earlier plan has changed.
///
/// # Errors
/// When the kernel refuses to say how things are. The other end of a veth in a namespace that cannot be found is only
/// warned about.
pub fn plan(
    netlink: &Netlink,
    link: &Link,
    undone: Undone,
    changed: &ChangedFeatures,
) -> Result<Plan, NetdevError> {
    plan_for(netlink, link, undone.wanted(), changed)
}

fn plan_for(
    netlink: &Netlink,
    link: &Link,
    (own, peer): (Wanted, Wanted),
    changed: &ChangedFeatures,
) -> Result<Plan, NetdevError> {
    let mut after = changed.clone();
    let before = Before {
        off: changed.own.clone(),
        on: changed.own_on.clone(),
        sizes: changed.own_sizes,
    };
    let (own, all) = Step::of(&own, &End::look(&own, link)?, before);
    (after.own, after.own_on, after.own_sizes) = (all.off, all.on, all.sizes);
    let found = peer::find(netlink, link)?;
    if found.is_none() && link.kind.as_deref() == Some("veth") {
        tracing::warn!(
            interface = link.name,
            "the other end of this veth is in a namespace that cannot be found; switch \
             its offloads off by hand: ethtool -K INTERFACE tx off txvlan off"
        );
    }
    let peer = match found {
        None => None,
        Some(end) => {
            let before = Before {
                off: changed.peer.clone(),
                on: changed.peer_on.clone(),
                sizes: changed.peer_sizes,
            };
            let (link, look) = end.netns.within(|| {
                let link = end.link(&Netlink::open()?)?;
                let look = End::look(&peer, &link)?;
                Ok((link, look))
            })?;
            let (step, all) = Step::of(&peer, &look, before);
            (after.peer, after.peer_on, after.peer_sizes) = (all.off, all.on, all.sizes);
            Some((end, link, step))
        }
    };
    Ok(Plan {
        link: link.clone(),
        own,
        peer,
        changed: after,
    })
}

/// Sets what the stack at the interface `link` leaves undone of the frames that it sends. Nobody else sets the features of this
/// interface, an end of a veth.
///
/// # Errors
/// When the kernel refuses.
pub fn leave_undone(netlink: &Netlink, link: &Link, undone: Undone) -> Result<(), NetdevError> {
    let (_, wanted) = undone.wanted();
    let owned = |name: &&str| (*name).to_owned();
    let on = PEER.iter().filter(|name| !wanted.off.contains(name));
    let sizes = link.sizes.limited(MERGED_MAX);
    let step = Step {
        on: on.map(owned).collect(),
        off: wanted.off.iter().map(owned).collect(),
        sizes: Some(sizes).filter(|sizes| *sizes != link.sizes),
    };
    step.carry_out(netlink, link)
}

/// Switches off what hides VLAN tags from a program that only looks at packets.
///
/// # Errors
/// As [`plan`], and when the kernel refuses the change.
pub fn show_tags(netlink: &Netlink, link: &Link) -> Result<ChangedFeatures, NetdevError> {
    let wanted = (Wanted::off(&[&OWN_TAGS]), Wanted::off(&[&PEER_TAGS]));
    at_once(netlink, link, wanted)
}

/// Prepares for a program that changes packets and sends them out of interfaces such as `link`.
///
/// # Errors
/// As [`show_tags`].
pub fn prepare_rewriting(netlink: &Netlink, link: &Link) -> Result<ChangedFeatures, NetdevError> {
    let peer = Wanted {
        on: PEER_ON.to_vec(),
        ..Wanted::off(&[&PEER])
    };
    at_once(netlink, link, (Wanted::off(&[&OWN]), peer))
}

fn at_once(
    netlink: &Netlink,
    link: &Link,
    wanted: (Wanted, Wanted),
) -> Result<ChangedFeatures, NetdevError> {
    let plan = plan_for(netlink, link, wanted, &ChangedFeatures::default())?;
    plan.carry_out(netlink)?;
    Ok(plan.changed)
}

/// Switches what [`prepare_rewriting`] has switched on at the other end of a veth off and on again. The kernel takes note that frames can be
/// redirected into a pair when that is switched on at an end that is up, or when this end is put up afterwards; if the other end
/// comes up as the last, it does not (`veth_set_features`, `veth_open`), and drops all that is redirected.
///
/// # Errors
/// As [`show_tags`].
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

impl ChangedFeatures {
    /// Adds features that are on again: another process switched them on, or the interface is a new one.
    pub fn merge(&mut self, more: ChangedFeatures) {
        let lists = [
            (&mut self.own, more.own),
            (&mut self.peer, more.peer),
            (&mut self.own_on, more.own_on),
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

/// Puts back what is noted, as far as the interfaces are still there.
///
/// # Errors
/// When the kernel refuses.
pub fn restore(
    netlink: &Netlink,
    link: &Link,
    changed: &ChangedFeatures,
) -> Result<(), NetdevError> {
    let step = |off: &[String], on: &[String], sizes: &Option<MaxSizes>| Step {
        off: on.to_vec(),
        on: off.to_vec(),
        sizes: *sizes,
    };
    step(&changed.own, &changed.own_on, &changed.own_sizes).carry_out(netlink, link)?;
    let peer_step = step(&changed.peer, &changed.peer_on, &changed.peer_sizes);
    if peer_step == Step::default() {
        return Ok(());
    }
    if let Some(peer) = peer::find(netlink, link)? {
        peer.netns.within(|| {
            let netlink = Netlink::open()?;
            let link = peer.link(&netlink)?;
            peer_step.carry_out(&netlink, &link)
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    /// An end that has these features, some of which are on.
    struct Device {
        on: Vec<String>,
        all: Vec<String>,
        sizes: MaxSizes,
    }

    impl Device {
        fn look(&self, wanted: &Wanted) -> End {
            let is_on = |name: &&&str| self.on.iter().any(|on| on == **name);
            let is_known = |name: &&&str| self.all.iter().any(|all| all == **name);
            let pick = |list: &[&'static str], enabled| {
                let picked = list.iter().filter(is_known);
                let picked = picked.filter(|name| is_on(name) == enabled);
                picked.map(|name| (*name).to_owned()).collect()
            };
            End {
                enabled: pick(&wanted.off, true),
                inactive: pick(&wanted.on, false),
                sizes: self.sizes,
            }
        }

        fn carry_out(&mut self, step: &Step) {
            self.on.retain(|name| !step.off.contains(name));
            self.on.extend(step.on.iter().cloned());
            self.on.sort();
            self.on.dedup();
            self.sizes = step.sizes.unwrap_or(self.sizes);
        }
    }

    // promise: 2.33
    #[test]
    fn whatever_is_left_undone_in_turn_the_end_is_as_before_when_it_is_put_back() {
        let all = [
            &OWN[..],
            &PEER,
            &OWN_MERGED_UDP,
            &PEER_WORDLESS,
            &["tx-scatter-gather"],
        ];
        let mut all = names(&all.concat());
        all.sort();
        all.dedup();
        let udp = |udp| Undone::Segments { udp };
        let all_undone = [Undone::Nothing, Undone::Checksums, udp(false), udp(true)];
        for seed in 0..200_usize {
            let on: Vec<String> = all
                .iter()
                .enumerate()
                .filter(|(at, _)| (seed * 7 + at * 13 + seed * at).is_multiple_of(3))
                .map(|(_, name)| name.clone())
                .collect();
            let sizes = MaxSizes {
                gso: Some(65_536),
                gro: Some(if seed % 2 == 0 { 65_536 } else { 20_000 }),
                gso_ipv4: None,
                gro_ipv4: Some(100_000),
            };
            let mut device = Device {
                on: on.clone(),
                all: all.clone(),
                sizes,
            };
            device.on.sort();
            let begun = device.on.clone();
            let mut before = Before::default();
            for turn in 0..6 {
                let undone = all_undone[(seed + turn * (seed + 1)) % 4];
                let wanted = match seed % 2 {
                    0 => undone.wanted().0,
                    _ => undone.wanted().1,
                };
                let (step, after) = Step::of(&wanted, &device.look(&wanted), before);
                device.carry_out(&step);
                before = after;
                let is_on = |name: &&str| device.on.iter().any(|on| on == *name);
                assert!(!wanted.off.iter().any(&is_on), "{undone:?}");
                assert!(wanted.on.iter().all(is_on), "{undone:?}");
                let limited = sizes.limited(MERGED_MAX);
                assert_eq!(device.sizes, if wanted.short { limited } else { sizes });
            }
            device.carry_out(&Step {
                off: before.on,
                on: before.off,
                sizes: before.sizes,
            });
            assert_eq!((device.on, device.sizes), (begun, sizes), "seed {seed}");
        }
    }
}
