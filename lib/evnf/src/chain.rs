//! Fast paths in a row on one interface.
//!
//! The first is attached; each calls the one behind it by a tail call. What a member lets pass by the fast path (the firewall:
//! accepted by all rules; the balancer: of no service) goes on to the next; what it hands up goes to the kernel at once, and no
//! member behind it sees it. Behind the last one it is the kernel's.
//!
//! **Order within a flow.** Which path a packet takes follows from its headers and the tables, never from its content: so packets
//! of a flow take the same one, in the order in which they came, until a table or a member changes. What was handed up before
//! that is not overtaken as long as the kernel handles at once what it is handed (`docs/adr/0018-evnf-chains.md`).

use crate::hook::Hook;
use crate::load::{Fast, LoadError, Run, because};
use libbpf_rs::Link;

const NAME: &str = "chain";
/// Most members: the kernel follows 33 tail calls.
pub const MEMBERS_MAX: usize = 32;

/// A fast path as a part of one chain. It shares its tables with what it is of; it may have more such parts, in other chains.
#[derive(Debug)]
pub struct Member(Fast);

impl Member {
    pub(crate) fn of(fast: &Fast, hook: Hook) -> Result<Self, LoadError> {
        Ok(Member(fast.again(hook)?))
    }
}

/// Members in their order, as one program. Detached when dropped.
#[derive(Debug)]
pub struct Chain {
    /// Before the members: it goes first.
    link: Option<Link>,
    members: Vec<Member>,
    /// A packet may still be in them: they stay until the next change.
    replaced: Vec<Member>,
}

impl Chain {
    /// Of members, the first one first; not yet attached.
    ///
    /// # Errors
    /// When there is none, or more than [`MEMBERS_MAX`], or they are for several hooks, or the kernel refuses.
    pub fn new(mut members: Vec<Member>) -> Result<Self, LoadError> {
        join(&mut members)?;
        Ok(Chain {
            link: None,
            members,
            replaced: Vec::new(),
        })
    }

    /// Attaches it to an interface of the calling thread's network namespace, at XDP natively where the driver can; it leaves the
    /// one that it was attached to before.
    ///
    /// # Errors
    /// When there is no such interface, or, at XDP, another program is there; it is named.
    pub fn attach(&mut self, interface: &str) -> Result<(), LoadError> {
        self.link = None;
        self.link = Some(self.members[0].0.attach(interface)?);
        Ok(())
    }

    /// Takes it away from its interface.
    pub fn detach(&mut self) {
        self.link = None;
    }

    /// Puts another in the place of member `at`, counted from 0, in one step: each packet meets the old one or the new one.
    ///
    /// # Errors
    /// When there is no such member, or the kernel refuses; then all is as before.
    pub fn replace(&mut self, at: usize, mut member: Member) -> Result<(), LoadError> {
        if at >= self.members.len() {
            let why = format!("there is no member {at}, but {}", self.members.len());
            return Err(because(NAME, "replacing a member")(why));
        }
        let (before, rest) = self.members.split_at_mut(at);
        member.0.set_next(rest.get_mut(1).map(|next| &mut next.0))?;
        match (before.last(), &mut self.link) {
            (Some(before), _) => before.0.set_next(Some(&mut member.0))?,
            (None, Some(link)) => member.0.take_place(link)?,
            (None, None) => {}
        }
        self.replaced = vec![std::mem::replace(&mut self.members[at], member)];
        Ok(())
    }

    /// Puts other members in the place of all of them, in one step: each packet meets the old ones or the new ones.
    ///
    /// # Errors
    /// As [`Chain::new`]; then all is as before.
    pub fn replace_all(&mut self, mut members: Vec<Member>) -> Result<(), LoadError> {
        join(&mut members)?;
        if let Some(link) = &mut self.link {
            members[0].0.take_place(link)?;
        }
        self.replaced = std::mem::replace(&mut self.members, members);
        Ok(())
    }

    /// Says which interfaces of its namespace have an other end that can be given packets directly: all of kind veth whose other
    /// end is in another namespace, by their numbers. An XDP program or a queueing discipline for what comes in there
    /// does not see these packets, programs at tc there do. Who is not named gets packets in the usual way. XDP needs not know.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn set_peers(&self, interfaces: &[u32]) -> Result<(), LoadError> {
        let mut members = self.members.iter();
        members.try_for_each(|member| member.0.set_peers(interfaces))
    }

    /// Runs it on one packet `repeat` times.
    ///
    /// # Errors
    /// When the kernel does not run it.
    pub fn test_run(&mut self, packet: &[u8], repeat: u32) -> Result<Run, LoadError> {
        self.members[0].0.test_run(packet, repeat)
    }

    /// Runs it on a packet that is going to be cut into segments with so many bytes each.
    ///
    /// # Errors
    /// When it is for XDP, where there are no such packets, or the kernel does not run it.
    pub fn test_run_segments(
        &mut self,
        packet: &[u8],
        segment_bytes: u32,
    ) -> Result<Run, LoadError> {
        self.members[0].0.test_run_segments(packet, segment_bytes)
    }
}

/// Says to each who is behind it.
fn join(members: &mut [Member]) -> Result<(), LoadError> {
    if members.is_empty() || members.len() > MEMBERS_MAX {
        let why = format!("{} members; it takes 1 to {MEMBERS_MAX}", members.len());
        return Err(because(NAME, "joining its members")(why));
    }
    let hook = members[0].0.hook();
    if members.iter().any(|member| member.0.hook() != hook) {
        let why = "some are for XDP and some for tc";
        return Err(because(NAME, "joining its members")(why));
    }
    let mut next: Option<&mut Member> = None;
    for member in members.iter_mut().rev() {
        member.0.set_next(next.map(|next| &mut next.0))?;
        next = Some(member);
    }
    Ok(())
}
