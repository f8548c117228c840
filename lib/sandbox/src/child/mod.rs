//! The set-up of an instance, from the inside: what runs between fork and exec.
//!
//! The parent may be a daemon with many threads. The child is a copy of one of them, and of locks that the others may
//! hold at that moment, the allocator's included. So everything here only makes system calls on memory that the parent
//! prepared ([`Plan`]); it does not allocate, lock, panic or unwind, and it ends by executing the program or exiting.

mod launch;
pub(crate) mod plan;
mod privileges;
pub(crate) mod root;

use crate::error::Errno;
use crate::launch::Launch;
use crate::shell::message::{Cursor, GO, LAUNCH_BYTES_MAX, Report};
use crate::shell::step::Step;
use crate::sys::{self, FilterInstruction};
use plan::Plan;
use rustix::fs::{Mode, OFlags};
use rustix::thread::{LinkNameSpaceType, UnshareFlags};
use std::ffi::c_char;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// Which step failed, and how.
pub(crate) type Failure = (Step, Errno);

/// Memory for the launch message and its parsed parts. No page of this memory is touched, and so no page costs
/// memory, before the child writes to it.
pub(crate) struct Scratch {
    pub message: Vec<u8>,
    pub descriptors: Vec<RawFd>,
    pub instructions: Vec<FilterInstruction>,
    pub pointers: Vec<*const c_char>,
}

impl Scratch {
    pub fn new() -> Self {
        Self {
            message: vec![0; LAUNCH_BYTES_MAX],
            descriptors: Vec::with_capacity(Launch::FDS_MAX + 2),
            instructions: Vec::with_capacity(crate::seccomp::Filter::INSTRUCTIONS_MAX),
            pointers: Vec::with_capacity(Launch::STRINGS_MAX + 2),
        }
    }
}

/// Appends only as long as it needs no allocation.
fn push<T>(vector: &mut Vec<T>, value: T) -> Result<(), Errno> {
    if vector.len() == vector.capacity() {
        return Err(Errno::TOOBIG);
    }
    vector.push(value);
    Ok(())
}

/// Sets the instance up, waits for its program, and executes it.
pub(crate) fn run(mut plan: Plan<'_>, scratch: &mut Scratch) -> ! {
    // SAFETY: `control` is open, is not closed before the end of this process, and the owner is never dropped: no path
    // leaves this function.
    let mut control = unsafe { OwnedFd::from_raw_fd(plan.control) };
    let failure = match set_up(&mut plan, &control) {
        Ok(report) => match send(&control, report) {
            Ok(()) => launch::receive_and_execute(scratch, &mut control),
            Err(errno) => (Step::Receive, errno),
        },
        Err(failure) => failure,
    };
    let (step, errno) = failure;
    let report = Report::Failed {
        step: step as u8,
        errno,
    };
    // The report fails if the parent is gone.
    let _sent = send(&control, report);
    sys::exit_now(127)
}

fn send(control: &OwnedFd, report: Report) -> Result<(), Errno> {
    rustix::io::write(control, &report.encode()).map(|_| ())
}

trait At<T> {
    /// Names the step that failed.
    fn at(self, step: Step) -> Result<T, Failure>;
}

impl<T> At<T> for Result<T, Errno> {
    fn at(self, step: Step) -> Result<T, Failure> {
        self.map_err(|errno| (step, errno))
    }
}

fn set_up(plan: &mut Plan<'_>, control: &OwnedFd) -> Result<Report, Failure> {
    close_all_but_needed(plan).at(Step::CloseDescriptors)?;
    // Here it is the host's root still.
    sys::map_empty_path().at(Step::EmptyPath)?;
    rustix::process::setsid().at(Step::Session)?;
    rustix::process::umask(Mode::empty());
    // The last moment at which the user namespace is that of the pid namespace.
    let processes = match plan.has_processes {
        true => Some(root::processes().at(Step::Processes)?),
        false => None,
    };
    plan::for_each(&mut plan.strings, enter_v1_cgroup, 1).at(Step::Cgroup)?;
    make_namespaces(plan, control)?;
    privileges::become_instance_user(plan.inside).at(Step::Identity)?;
    plan::for_each(&mut plan.strings, set_host_name, 1).at(Step::HostName)?;
    let root = match plan.shared.mounts {
        // The process is in the cgroup already.
        Some(_) => None,
        None => Some(root::enter(
            &mut plan.strings,
            plan.mounts,
            processes.as_ref(),
        )?),
    };
    privileges::drop_all_but(plan.capabilities)?;
    Ok(match root {
        Some(root::Entered::Moved) => Report::ReadyMovedRoot,
        Some(root::Entered::Pivoted) | None => Report::Ready,
    })
}

/// Leaves the mount tree of the caller's mount namespace, which it has alone, for a root directory made of the lists in
/// `strings` and of detached trees.
pub(crate) fn enter_root(strings: &[u8], mounts: &[RawFd]) -> Result<root::Entered, Failure> {
    root::enter(&mut Cursor::new(strings), mounts, None)
}

fn close_all_but_needed(plan: &Plan<'_>) -> Result<(), Errno> {
    let mut keep = [0; plan::FDS_MAX];
    let needed = [plan.control].into_iter().chain(plan.shared.all());
    let mut count = 0;
    for fd in needed.chain(plan.mounts.iter().copied()) {
        *keep.get_mut(count).ok_or(Errno::MFILE)? = fd;
        count += 1;
    }
    sys::close_all_but(keep.get_mut(..count).ok_or(Errno::MFILE)?)
}

/// A single-threaded process that writes 0 moves itself, without the lock that moving another process takes.
fn enter_v1_cgroup(strings: &mut Cursor<'_>) -> Result<(), Errno> {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    let file = rustix::fs::open(plan::next(strings)?, flags, Mode::empty())?;
    rustix::io::write(&file, b"0").map(|_| ())
}

fn set_host_name(strings: &mut Cursor<'_>) -> Result<(), Errno> {
    rustix::system::sethostname(plan::next(strings)?.to_bytes())
}

/// Makes the user namespace first: the others then belong to it, and not to the host's. The user map can only be written
/// from outside, which happens while the other namespaces are made.
fn make_namespaces(plan: &Plan<'_>, control: &OwnedFd) -> Result<(), Failure> {
    let shared = &plan.shared;
    let mut others = UnshareFlags::NEWUTS | UnshareFlags::NEWCGROUP;
    // The mounts last: no path of the host leads anywhere from then on.
    for (shared, kind, flag, step) in [
        (
            shared.net,
            LinkNameSpaceType::Network,
            UnshareFlags::NEWNET,
            Step::SharedNetwork,
        ),
        (
            shared.ipc,
            LinkNameSpaceType::InterProcessCommunication,
            UnshareFlags::NEWIPC,
            Step::SharedIpc,
        ),
        (
            shared.mounts,
            LinkNameSpaceType::Mount,
            UnshareFlags::NEWNS,
            Step::SharedMounts,
        ),
    ] {
        match shared {
            Some(fd) => {
                // SAFETY: the parent lists this descriptor among those that stay open.
                let fd = unsafe { BorrowedFd::borrow_raw(fd) };
                rustix::thread::move_into_link_name_space(fd, Some(kind)).at(step)?;
            }
            None => others |= flag,
        }
    }
    // SAFETY: the flags leave the descriptor table alone.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWUSER) }.at(Step::UserNamespace)?;
    send(control, Report::WantsMap).at(Step::UserMap)?;
    // SAFETY: as above.
    unsafe { rustix::thread::unshare_unsafe(others) }.at(Step::Namespaces)?;
    let mut answer = [0u8; GO.len()];
    let length = rustix::io::read(control, &mut answer).at(Step::UserMap)?;
    if length != GO.len() || answer != GO {
        return Err((Step::UserMap, Errno::CONNRESET));
    }
    Ok(())
}
