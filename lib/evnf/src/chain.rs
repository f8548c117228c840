//! Fast paths in a row on one interface.
//!
//! The first member is attached; each member calls the one behind it by a tail call. A packet that passes a member by
//! the fast path (the firewall: accepted by all rules; the balancer: of no service) goes on to the next member; a
//! packet that a member hands up goes to the kernel at once, and no member behind it sees the packet. Behind the last
//! member the packet is the kernel's.
//!
//! **Order within a flow.** The path of a packet follows from its headers and the tables, never from its content: so
//! packets of a flow take the same path, in the order in which they came, until a table or a member changes. Packets
//! that were handed up before that are not overtaken as long as the kernel handles handed-up packets at once
//! (`docs/adr/0018-evnf-chains.md`).

use crate::hook::Hook;
use crate::load::{Fast, LoadError, Run, because};
use libbpf_rs::Link;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

const NAME: &str = "chain";
/// Most members: the kernel follows 33 tail calls.
pub const MEMBERS_MAX: usize = 32;
/// The name of successors' pins, before their number.
const PIN: &str = "next";

/// A fast path as a part of a chain. The part shares its tables with the fast path, which may have more such parts,
/// in other chains.
#[derive(Debug)]
pub struct Member {
    fast: Fast,
    /// The pin of the map of its successor.
    pin: Option<PathBuf>,
}

impl Member {
    pub(crate) fn of(fast: &Fast, hook: Hook) -> Result<Self, LoadError> {
        Ok(Member {
            fast: fast.again(hook)?,
            pin: None,
        })
    }

    /// Returns a descriptor of its program, for attaching it.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub fn descriptor(&self) -> Result<OwnedFd, LoadError> {
        self.fast.descriptor()
    }

    fn set_next(&self, next: Option<&mut Member>) -> Result<(), LoadError> {
        self.fast.set_next(next.map(|next| &mut next.fast))
    }

    fn keep(&mut self, folder: &Path) -> Result<(), LoadError> {
        let paths = (0..u32::MAX).map(|number| folder.join(format!("{PIN}{number}")));
        let free = paths.into_iter().find(|path| !path.exists());
        let none = || because(NAME, "pinning a member")("no name is free");
        let free = free.ok_or_else(none)?;
        self.fast.pin_next(&free)?;
        self.pin = Some(free);
        Ok(())
    }

    fn unpin(&mut self) {
        if let Some(pin) = self.pin.take() {
            // A pin that stays is removed by the process that comes after this one.
            let _left = std::fs::remove_file(pin);
        }
    }
}

/// Members in their order, as one program. Detached when dropped, unless another owner has attached it.
#[derive(Debug)]
pub struct Chain {
    /// Before the members: it goes first.
    link: Option<Link>,
    members: Vec<Member>,
    /// A packet may still be in them: they stay until the next change.
    replaced: Vec<Member>,
    /// The folder of the pinned successors; absent: they end with the process.
    folder: Option<PathBuf>,
}

impl Chain {
    /// Makes a chain of members, in order, without attaching it.
    ///
    /// # Errors
    /// When there is no member, or more than [`MEMBERS_MAX`], or they are for several hooks, or the kernel refuses.
    pub fn new(members: Vec<Member>) -> Result<Self, LoadError> {
        Self::within(members, None)
    }

    /// Makes a chain that outlives the process if its first member is held on the interface: the members'
    /// successors are kept in a folder of a BPF file system. Pins of an earlier chain there stay, see
    /// [`Chain::take_over`].
    ///
    /// # Errors
    /// As [`Chain::new`]; then no pin is left.
    pub fn kept(members: Vec<Member>, folder: &Path) -> Result<Self, LoadError> {
        Self::within(members, Some(folder))
    }

    fn within(mut members: Vec<Member>, folder: Option<&Path>) -> Result<Self, LoadError> {
        join(&mut members, folder)?;
        Ok(Chain {
            link: None,
            members,
            replaced: Vec::new(),
            folder: folder.map(Path::to_owned),
        })
    }

    /// Returns the number of members.
    pub fn length(&self) -> usize {
        self.members.len()
    }

    /// Returns a descriptor of its first member's program, for attaching it.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub fn head(&self) -> Result<OwnedFd, LoadError> {
        self.members[0].descriptor()
    }

    /// Attaches the chain to an interface of the calling thread's network namespace, at XDP natively where the driver
    /// supports it, and detaches it from the former interface.
    ///
    /// # Errors
    /// When the interface does not exist, or, at XDP, another program is attached; the error names it.
    pub fn attach(&mut self, interface: &str) -> Result<(), LoadError> {
        self.link = None;
        self.link = Some(self.members[0].fast.attach(interface)?);
        Ok(())
    }

    /// Takes it away from its interface.
    pub fn detach(&mut self) {
        self.link = None;
    }

    /// Replaces member `at`, counted from 0, in one step: each packet passes the old member or the new one.
    ///
    /// # Errors
    /// When the member does not exist, or the kernel refuses; then the chain is unchanged.
    pub fn replace(&mut self, at: usize, member: Member) -> Result<(), LoadError> {
        let mut link = self.link.take();
        let replaced = self.replace_under(at, member, |first| first_of(first, &mut link));
        self.link = link;
        replaced
    }

    /// Replaces a member of a chain whose first member another owner has attached: `hold` replaces the attached
    /// program.
    ///
    /// # Errors
    /// As [`Chain::replace`], and those of `hold`.
    pub fn replace_under<E: From<LoadError>>(
        &mut self,
        at: usize,
        mut member: Member,
        hold: impl FnOnce(&mut Member) -> Result<(), E>,
    ) -> Result<(), E> {
        if at >= self.members.len() {
            let why = format!("there is no member {at}, but {}", self.members.len());
            return Err(because(NAME, "replacing a member")(why).into());
        }
        let folder = self.folder.clone();
        let (before, rest) = self.members.split_at_mut(at);
        let enter = || -> Result<(), E> {
            member.set_next(rest.get_mut(1))?;
            if let Some(folder) = &folder {
                member.keep(folder)?;
            }
            match before.last() {
                Some(before) => Ok(before.set_next(Some(&mut member))?),
                None => hold(&mut member),
            }
        };
        if let Err(why) = enter() {
            member.unpin();
            return Err(why);
        }
        let mut gone = std::mem::replace(&mut self.members[at], member);
        gone.unpin();
        self.replaced = vec![gone];
        Ok(())
    }

    /// Replaces all members in one step: each packet passes the old members or the new ones.
    ///
    /// # Errors
    /// As [`Chain::new`]; then the chain is unchanged.
    pub fn replace_all(&mut self, members: Vec<Member>) -> Result<(), LoadError> {
        let mut link = self.link.take();
        let replaced = self.replace_all_under(members, |first| first_of(first, &mut link));
        self.link = link;
        replaced
    }

    /// Replaces all members of a chain whose first member another owner has attached: `hold` replaces the attached
    /// program.
    ///
    /// # Errors
    /// As [`Chain::replace_all`], and those of `hold`.
    pub fn replace_all_under<E: From<LoadError>>(
        &mut self,
        mut members: Vec<Member>,
        hold: impl FnOnce(&mut Member) -> Result<(), E>,
    ) -> Result<(), E> {
        join(&mut members, self.folder.as_deref())?;
        if let Err(why) = hold(&mut members[0]) {
            members.iter_mut().for_each(Member::unpin);
            return Err(why);
        }
        self.replaced = std::mem::replace(&mut self.members, members);
        self.replaced.iter_mut().for_each(Member::unpin);
        Ok(())
    }

    /// Enters the interfaces of the namespace whose peer can receive packets directly: all of kind veth whose other end
    /// is in another namespace, by their numbers. An XDP program or a queueing discipline for incoming packets there
    /// does not see these packets; programs at tc there do. Interfaces that are not entered get packets in the usual
    /// way. XDP needs no such entry.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn set_peers(&self, interfaces: &[u32]) -> Result<(), LoadError> {
        let mut members = self.members.iter();
        members.try_for_each(|member| member.fast.set_peers(interfaces))
    }

    /// Takes away what earlier chains have left where this one is kept, when it has their place: they go no further
    /// than their first member from then on.
    pub fn take_over(&self) {
        let pins: Vec<&PathBuf> = self.members.iter().flat_map(|one| &one.pin).collect();
        let folder = self.folder.iter().flat_map(std::fs::read_dir);
        for entry in folder.flatten().flatten() {
            let is_one = entry.file_name().to_string_lossy().starts_with(PIN);
            if is_one && !pins.contains(&&entry.path()) {
                // The next to come tries again.
                let _left = std::fs::remove_file(entry.path());
            }
        }
    }

    /// Runs the chain on one packet `repeat` times.
    ///
    /// # Errors
    /// When the kernel does not run the chain.
    pub fn test_run(&mut self, packet: &[u8], repeat: u32) -> Result<Run, LoadError> {
        self.members[0].fast.test_run(packet, repeat)
    }

    /// Runs the chain on a packet that will be cut into segments of this many bytes each.
    ///
    /// # Errors
    /// When the chain is for XDP, which has no such packets, or the kernel does not run it.
    pub fn test_run_segments(
        &mut self,
        packet: &[u8],
        segment_bytes: u32,
    ) -> Result<Run, LoadError> {
        self.members[0]
            .fast
            .test_run_segments(packet, segment_bytes)
    }
}

/// Puts a member in the place of the one that a link has attached.
fn first_of(member: &mut Member, link: &mut Option<Link>) -> Result<(), LoadError> {
    match link {
        Some(link) => member.fast.take_place(link),
        None => Ok(()),
    }
}

/// Enters each member's successor, and keeps it.
fn join(members: &mut [Member], folder: Option<&Path>) -> Result<(), LoadError> {
    if members.is_empty() || members.len() > MEMBERS_MAX {
        let why = format!("{} members; it takes 1 to {MEMBERS_MAX}", members.len());
        return Err(because(NAME, "joining its members")(why));
    }
    let hook = members[0].fast.hook();
    if members.iter().any(|member| member.fast.hook() != hook) {
        let why = "some are for XDP and some for tc, or for both ways";
        return Err(because(NAME, "joining its members")(why));
    }
    let joined = enter_successors(members).and_then(|()| {
        let mut kept = members.iter_mut().zip(folder.iter().cycle());
        kept.try_for_each(|(member, folder)| member.keep(folder))
    });
    if joined.is_err() {
        members.iter_mut().for_each(Member::unpin);
    }
    joined
}

fn enter_successors(members: &mut [Member]) -> Result<(), LoadError> {
    let mut next: Option<&mut Member> = None;
    for member in members.iter_mut().rev() {
        member.set_next(next)?;
        next = Some(member);
    }
    Ok(())
}
