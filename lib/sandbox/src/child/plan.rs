//! The orders for the set-up of an instance: a message and some descriptors, made by the parent before it forks, or
//! sent to the zygote, and read front to back by the child as it goes.

use crate::affinity::OnCpus;
use crate::capability::Capabilities;
use crate::error::Errno;
use crate::root::RootPlan;
use crate::shell::message::{Cursor, push_strings};
use rustix::thread::CpuSet;
use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

/// Most descriptors that a set-up needs: its end of the socket, a cgroup, shared namespaces, and library directories.
pub(crate) const FDS_MAX: usize = 32;
/// The longest message: paths of cgroups and library directories.
pub(crate) const BYTES_MAX: usize = 64 * 1024;

/// The parent's description of a set-up.
pub(crate) struct PlanBuilder<'a> {
    pub host_name: &'a CStr,
    /// The `tasks` files of the v1 cgroups to enter.
    pub v1_tasks: &'a [CString],
    /// The child's end of the socket.
    pub control: &'a OwnedFd,
    /// The v2 cgroup to fork into.
    pub cgroup: Option<&'a OwnedFd>,
    /// Namespaces to enter instead of making them.
    pub shared: Shared<BorrowedFd<'a>>,
    /// Empty if it enters a mount namespace.
    pub root: &'a RootPlan,
    /// The CPUs that it can use; empty: those of the process that forks it.
    pub cpus: &'a [usize],
    /// The capabilities that the program keeps.
    pub capabilities: Capabilities,
    /// The user and group number that it sees as its own.
    pub inside: (u32, u32),
}

/// Namespaces that an instance shares with others.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shared<T> {
    pub net: Option<T>,
    pub ipc: Option<T>,
    /// The mount namespace, with a root directory in it.
    pub mounts: Option<T>,
}

impl<T: Copy> Shared<T> {
    /// Iterates over the present values.
    pub fn all(&self) -> impl Iterator<Item = T> {
        [self.net, self.ipc, self.mounts].into_iter().flatten()
    }
}

impl<'a> PlanBuilder<'a> {
    /// The message.
    pub fn encode(&self) -> Vec<u8> {
        let count = |length: usize| u32::try_from(length).unwrap_or(u32::MAX).to_ne_bytes();
        let mut message = Vec::new();
        message.extend_from_slice(&count(self.cgroup.is_some().into()));
        let Shared { net, ipc, mounts } = self.shared;
        for shared in [net, ipc, mounts] {
            message.extend_from_slice(&count(shared.is_some().into()));
        }
        message.extend_from_slice(&count(self.cpus.len()));
        for cpu in self.cpus {
            message.extend_from_slice(&count(*cpu));
        }
        message.extend_from_slice(&self.capabilities.bits().to_ne_bytes());
        let (user, group) = self.inside;
        for number in [user, group, self.root.has_processes.into()] {
            message.extend_from_slice(&number.to_ne_bytes());
        }
        let tasks: Vec<&CStr> = self.v1_tasks.iter().map(CString::as_c_str).collect();
        push_strings(&mut message, &tasks);
        push_strings(&mut message, &[self.host_name]);
        message.extend_from_slice(&self.root.encode());
        message
    }

    /// The descriptors, in the order that [`Plan::parse`] expects.
    pub fn descriptors(&self) -> Vec<BorrowedFd<'a>> {
        use std::os::fd::AsFd;
        let mut descriptors = vec![self.control.as_fd()];
        descriptors.extend(self.cgroup.map(AsFd::as_fd));
        descriptors.extend(self.shared.all());
        descriptors.extend(self.root.mounts.iter().map(|(tree, _)| tree.as_fd()));
        descriptors
    }
}

/// The numbers of descriptors in this process.
pub(crate) fn numbers(descriptors: &[BorrowedFd<'_>]) -> Vec<RawFd> {
    descriptors.iter().map(AsRawFd::as_raw_fd).collect()
}

/// The child's view of it.
pub(crate) struct Plan<'a> {
    /// The source of the strings, in the order of their use.
    pub strings: Cursor<'a>,
    pub control: RawFd,
    pub cgroup: Option<RawFd>,
    pub shared: Shared<RawFd>,
    /// The CPUs that it may use.
    cpus: Option<CpuSet>,
    /// The capabilities that the program keeps.
    pub capabilities: Capabilities,
    /// The user and group number that it sees as its own.
    pub inside: (u32, u32),
    /// `/proc` is mounted.
    pub has_processes: bool,
    /// Directories of its root.
    pub mounts: &'a [RawFd],
}

impl<'a> Plan<'a> {
    /// Parses a message and its descriptors. Parsing neither allocates nor panics.
    pub fn parse(message: &'a [u8], descriptors: &'a [RawFd]) -> Result<Self, Errno> {
        let mut strings = Cursor::new(message);
        let mut rest = descriptors;
        let mut take = |wanted: bool| -> Result<Option<RawFd>, Errno> {
            if !wanted {
                return Ok(None);
            }
            let (first, others) = rest.split_first().ok_or(Errno::BADMSG)?;
            rest = others;
            Ok(Some(*first))
        };
        let control = take(true)?.ok_or(Errno::BADMSG)?;
        let cgroup = take(strings.u32().ok_or(Errno::BADMSG)? != 0)?;
        let mut next = || take(strings.u32().ok_or(Errno::BADMSG)? != 0);
        let shared = Shared {
            net: next()?,
            ipc: next()?,
            mounts: next()?,
        };
        let cpus = parse_cpus(&mut strings)?;
        let capabilities = Capabilities::of_bits(strings.u64().ok_or(Errno::BADMSG)?);
        let mut number = || strings.u32().ok_or(Errno::BADMSG);
        let (inside, has_processes) = ((number()?, number()?), number()? != 0);
        Ok(Self {
            strings,
            control,
            cgroup,
            shared,
            cpus,
            capabilities,
            inside,
            has_processes,
            mounts: rest,
        })
    }

    /// Puts the calling thread, which is about to fork, where the child is to begin.
    pub fn enter_cpus(&self) -> Result<Option<OnCpus>, Errno> {
        self.cpus.as_ref().map(OnCpus::enter).transpose()
    }
}

fn parse_cpus(strings: &mut Cursor<'_>) -> Result<Option<CpuSet>, Errno> {
    let count = strings.u32().ok_or(Errno::BADMSG)?;
    let mut cpus = CpuSet::new();
    for _ in 0..count {
        let cpu = strings.u32().ok_or(Errno::BADMSG)? as usize;
        if cpu >= CpuSet::MAX_CPU {
            return Err(Errno::INVAL);
        }
        cpus.set(cpu);
    }
    Ok((count > 0).then_some(cpus))
}

/// Does something with each string of the next list.
pub(super) fn for_each<'a>(
    strings: &mut Cursor<'a>,
    mut act: impl FnMut(&mut Cursor<'a>) -> Result<(), Errno>,
    strings_each: u32,
) -> Result<(), Errno> {
    let count = strings.u32().ok_or(Errno::BADMSG)?;
    for _ in 0..count.checked_div(strings_each).unwrap_or(0) {
        act(strings)?;
    }
    Ok(())
}

/// The next string.
pub(super) fn next<'a>(strings: &mut Cursor<'a>) -> Result<&'a CStr, Errno> {
    strings.c_string().ok_or(Errno::BADMSG)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_plan_survives_the_wire() {
        let control: OwnedFd = std::fs::File::open("/dev/null").unwrap().into();
        let tree: OwnedFd = std::fs::File::open("/").unwrap().into();
        let net: OwnedFd = std::fs::File::open("/dev/zero").unwrap().into();
        let mounts: OwnedFd = std::fs::File::open("/dev/full").unwrap().into();
        let root = RootPlan {
            directories: vec![c"usr".to_owned(), c"usr/lib".to_owned()],
            links: vec![(c"usr/lib".to_owned(), c"lib".to_owned())],
            mounts: vec![(tree, c"usr/lib".to_owned())],
            has_processes: true,
        };
        let mut capabilities = Capabilities::default();
        assert!(capabilities.add("NET_RAW"));
        let builder = PlanBuilder {
            host_name: c"name",
            v1_tasks: &[c"/sys/fs/cgroup/cpu/x/tasks".to_owned()],
            control: &control,
            cgroup: None,
            shared: Shared {
                net: Some(std::os::fd::AsFd::as_fd(&net)),
                ipc: None,
                mounts: Some(std::os::fd::AsFd::as_fd(&mounts)),
            },
            root: &root,
            cpus: &[3, 1],
            capabilities,
            inside: (101, 102),
        };
        let (message, descriptors) = (builder.encode(), numbers(&builder.descriptors()));
        let mut plan = Plan::parse(&message, &descriptors).unwrap();
        assert_eq!(plan.control, control.as_raw_fd());
        assert_eq!(plan.cgroup, None);
        assert_eq!(plan.capabilities, capabilities);
        assert_eq!((plan.inside, plan.has_processes), ((101, 102), true));
        let all: Vec<RawFd> = plan.shared.all().collect();
        assert_eq!(all, [net.as_raw_fd(), mounts.as_raw_fd()]);
        assert_eq!(plan.shared.ipc, None);
        assert_eq!(plan.mounts.len(), 1);
        let cpus = plan.cpus.expect("two were named");
        assert!(cpus.is_set(1) && cpus.is_set(3) && cpus.count() == 2);
        let mut all = Vec::new();
        for _ in 0..5 {
            let collect = |strings: &mut Cursor<'_>| {
                all.push(next(strings)?.to_owned());
                Ok(())
            };
            for_each(&mut plan.strings, collect, 1).unwrap();
        }
        let expected = [
            c"/sys/fs/cgroup/cpu/x/tasks",
            c"name",
            c"usr",
            c"usr/lib",
            c"usr/lib",
            c"lib",
            c"usr/lib",
        ];
        assert_eq!(all, expected.map(CStr::to_owned));
    }

    proptest! {
        #[test]
        fn any_message_is_survived(
            message in proptest::collection::vec(any::<u8>(), 0..100),
            descriptors in proptest::collection::vec(0i32..9, 0..4),
        ) {
            if let Ok(mut plan) = Plan::parse(&message, &descriptors) {
                let _verdict = for_each(&mut plan.strings, |strings| next(strings).map(|_| ()), 1);
            }
        }
    }
}
