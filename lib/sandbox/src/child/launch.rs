//! The last part: receive the program with its descriptors, apply the settings that are for this program alone,
//! execute.

use super::{At, Failure, Scratch, push, send};
use crate::error::Errno;
use crate::launch::Launch;
use crate::shell::message::{Counts, Cursor, Report};
use crate::shell::step::Step;
use crate::sys;
use rustix::fs::Mode;
use rustix::io::IoSliceMut;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags};
use rustix::process::{
    Resource, Rlimit, Signal, getrlimit, set_parent_process_death_signal, setrlimit,
};
use std::ffi::c_char;
use std::mem::MaybeUninit;
use std::os::fd::{IntoRawFd, OwnedFd, RawFd};

/// Waits for the launch message and executes the program. Returns only if that failed.
pub(super) fn receive_and_execute(scratch: &mut Scratch, control: &mut OwnedFd) -> Failure {
    match receive(scratch, control) {
        Ok(0) => sys::exit_now(0),
        Ok(length) => execute(scratch, control, length)
            .err()
            .unwrap_or((Step::Execute, Errno::IO)),
        Err(errno) => (Step::Receive, errno),
    }
}

/// Receives the message's bytes, and its descriptors into `scratch.descriptors`. `None` means that the parent is
/// gone.
fn receive(scratch: &mut Scratch, control: &OwnedFd) -> Result<usize, Errno> {
    let mut space =
        [MaybeUninit::<u8>::uninit(); rustix::cmsg_space!(ScmRights(Launch::FDS_MAX + 2))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut scratch.message)];
    let received =
        rustix::net::recvmsg(control, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    if received
        .flags
        .intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC)
    {
        return Err(Errno::MSGSIZE);
    }
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            for fd in descriptors {
                push(&mut scratch.descriptors, fd.into_raw_fd())?;
            }
        }
    }
    Ok(received.bytes)
}

fn execute(scratch: &mut Scratch, control: &mut OwnedFd, length: usize) -> Result<(), Failure> {
    let Scratch {
        message,
        descriptors,
        instructions,
        pointers,
    } = scratch;
    let message = message
        .get(..length)
        .ok_or((Step::Receive, Errno::MSGSIZE))?;
    let mut cursor = Cursor::new(message);
    let short = (Step::Receive, Errno::BADMSG);
    let descriptor_limit = cursor.u64().ok_or(short)?;
    let counts = cursor.counts().ok_or(short)?;

    let placed =
        place_descriptors(&mut cursor, counts, descriptors, control).at(Step::PlaceDescriptors)?;
    for _ in 0..counts.instructions {
        let instruction = cursor.instruction().ok_or(short)?;
        push(instructions, instruction).at(Step::Filter)?;
    }
    collect_strings(&mut cursor, counts, pointers).at(Step::Execute)?;
    // The set-up made what everyone reads; programs expect the usual mask.
    rustix::process::umask(Mode::WGRP | Mode::WOTH);
    rustix::process::chdir(cursor.c_string().ok_or(short)?).at(Step::Directory)?;
    let (argv, envp) = usize::try_from(counts.argv)
        .ok()
        .and_then(|argc| pointers.split_at_checked(argc.checked_add(1)?))
        .ok_or(short)?;

    let possible = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    set_limit(Resource::Nofile, descriptor_limit.min(possible)).at(Step::Limits)?;
    // Not 0: a core dump goes to a pipe whatever the limit is, except for 1, and 1 byte is less than any core file.
    set_limit(Resource::Core, 1).at(Step::Limits)?;
    // The filter lets a thread choose its time slice, and that call takes priorities, too.
    set_limit(Resource::Rtprio, 0).at(Step::Limits)?;
    set_limit(Resource::Nice, 0).at(Step::Limits)?;
    if let Some(ruleset) = placed.ruleset {
        sys::landlock_restrict_self(ruleset).at(Step::Landlock)?;
    }
    sys::reset_signals();
    if counts.ends_with_parent != 0 {
        // The call comes before the report to the parent. If the parent is dead by then, the report fails, and no
        // program is executed.
        set_parent_process_death_signal(Some(Signal::KILL)).at(Step::Limits)?;
    }
    send(control, Report::Executing).at(Step::Execute)?;
    if counts.has_filter != 0 {
        sys::load_filter(instructions).at(Step::Filter)?;
    }
    // SAFETY: collect_strings made the arrays of pointers to strings that end with NUL, in a message that lives on, and
    // ended both with NULL.
    Err((Step::Execute, unsafe {
        sys::execute(placed.program, argv, envp)
    }))
}

fn set_limit(resource: Resource, value: u64) -> Result<(), Errno> {
    let limit = Rlimit {
        current: Some(value),
        maximum: Some(value),
    };
    setrlimit(resource, limit)
}

struct Placed {
    program: RawFd,
    ruleset: Option<RawFd>,
}

/// Gives the inherited descriptors their numbers and closes all others below those numbers. The descriptors first
/// move above the highest number asked for: a number may be wanted for a descriptor and still be held by another.
fn place_descriptors(
    cursor: &mut Cursor<'_>,
    counts: Counts,
    descriptors: &mut [RawFd],
    control: &mut OwnedFd,
) -> Result<Placed, Errno> {
    let mut numbers = [0; Launch::FDS_MAX];
    let wanted = usize::try_from(counts.descriptors).map_err(|_| Errno::BADMSG)?;
    let numbers = numbers.get_mut(..wanted).ok_or(Errno::BADMSG)?;
    for slot in numbers.iter_mut() {
        let number = cursor.u32().ok_or(Errno::BADMSG)?;
        *slot = RawFd::try_from(number).map_err(|_| Errno::BADMSG)?;
    }
    let above = numbers
        .iter()
        .fold(2, |max: RawFd, n| max.max(*n))
        .saturating_add(1);
    for fd in descriptors.iter_mut() {
        *fd = sys::duplicate_above(*fd, above)?;
    }
    *control = rustix::io::fcntl_dupfd_cloexec(&*control, above)?;
    sys::close_range(0, above.saturating_sub(1))?;

    let (program, rest) = descriptors.split_first().ok_or(Errno::BADMSG)?;
    let (ruleset, inherited) = if counts.has_ruleset == 0 {
        (None, rest)
    } else {
        let (ruleset, rest) = rest.split_first().ok_or(Errno::BADMSG)?;
        (Some(*ruleset), rest)
    };
    if inherited.len() != numbers.len() {
        return Err(Errno::BADMSG);
    }
    for (fd, number) in inherited.iter().zip(numbers.iter()) {
        sys::duplicate_to(*fd, *number)?;
    }
    Ok(Placed {
        program: *program,
        ruleset,
    })
}

/// Collects pointers to the strings of argv and of the environment, each list ended by NULL.
fn collect_strings(
    cursor: &mut Cursor<'_>,
    counts: Counts,
    pointers: &mut Vec<*const c_char>,
) -> Result<(), Errno> {
    for count in [counts.argv, counts.env] {
        for _ in 0..count {
            let string = cursor.string().ok_or(Errno::BADMSG)?;
            push(pointers, string.as_ptr().cast())?;
        }
        push(pointers, std::ptr::null())?;
    }
    Ok(())
}
