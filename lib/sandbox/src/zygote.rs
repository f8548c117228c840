//! A small process that forks shells in the daemon's stead.
//!
//! A fork copies the page tables and the descriptor table of the process that makes it, and the copy is torn down again
//! at the exec: with 100 MB of memory in use, both preparing and launching a shell take 2 ms longer, and so a daemon that
//! grew with its instances would start each of them more slowly than the last. The zygote is forked when the daemon
//! starts and stays as small as the daemon was then. The shells that it makes are the daemon's children all the same
//! (CLONE_PARENT), so that the daemon learns how they end.
//!
//! The zygote ends when its [`Zygote`] is dropped or the daemon dies. After the death of the zygote, preparing a
//! shell fails with [`ZygoteError::Gone`]; start another zygote.

use crate::affinity::REMEDY;
use crate::child::plan::{self, FDS_MAX, Plan};
use crate::child::{self, Scratch};
use crate::error::{Errno, OsError};
use crate::sys::{self, Fork, Kind, SignalsBlocked};
use rustix::io::{IoSlice, IoSliceMut};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, pidfd_send_signal};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::{Mutex, PoisonError};

/// A process that forks shells. The zygote serves all threads of a daemon, one after the other.
#[derive(Debug)]
pub struct Zygote {
    /// The socket carries a single request and its answer at a time.
    socket: Mutex<OwnedFd>,
    pidfd: OwnedFd,
}

/// Reason for which there is no zygote, or no answer from it.
#[derive(Debug, thiserror::Error)]
pub enum ZygoteError {
    /// The kernel refused.
    #[error(transparent)]
    Os(#[from] OsError),
    /// The zygote was killed.
    #[error("the process that forks shells is gone; start another one")]
    Gone,
}

/// The zygote's answer: a pid with a pidfd attached, or an error number as a negative value.
type Answer = [u8; 4];

impl Zygote {
    /// Forks the zygote. Best done first of all, while the caller is small; other threads do no harm.
    ///
    /// # Errors
    /// [`ZygoteError::Os`]: no memory, or the limit of processes is reached.
    pub fn start() -> Result<Self, ZygoteError> {
        let flags = SocketFlags::CLOEXEC;
        let (ours, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
                .map_err(|errno| OsError::new("create a socket pair", "", errno))?;
        let mut memory = Memory {
            request: vec![0; plan::BYTES_MAX],
            scratch: Scratch::new(),
        };
        let socket = theirs.as_raw_fd();
        let blocked = SignalsBlocked::new();
        // SAFETY: the child goes straight into `serve`, which keeps to what is allowed and never returns.
        let forked = unsafe { sys::fork(Kind::Child, None) };
        match forked {
            Ok(Fork::Child) => serve(socket, &mut memory),
            Ok(Fork::Parent { pidfd, .. }) => {
                drop(blocked);
                Ok(Self {
                    socket: Mutex::new(ours),
                    pidfd,
                })
            }
            Err(errno) => Err(OsError::new("fork the zygote", "", errno).into()),
        }
    }

    /// Ends the zygote before it is dropped: a daemon that is about to exit leaves its cgroup empty. No process can
    /// be forked afterwards.
    pub fn end(&self) {
        let _may_be_dead = pidfd_send_signal(&self.pidfd, Signal::KILL);
        while let Err(Errno::INTR) =
            rustix::process::waitid(WaitId::PidFd(self.pidfd.as_fd()), WaitIdOptions::EXITED)
        {
        }
    }

    /// Has a shell forked.
    pub(crate) fn fork(
        &self,
        message: &[u8],
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(Pid, OwnedFd), ZygoteError> {
        let socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        match ask(&socket, message, descriptors) {
            Ok((pid, Some(pidfd))) => Ok((pid, pidfd)),
            Ok((_, None)) | Err(Errno::PIPE | Errno::CONNRESET) => Err(ZygoteError::Gone),
            Err(errno) => Err(OsError::new("fork into the cgroup", "", errno)
                .remedy(fork_remedy(errno))
                .into()),
        }
    }
}

/// Returns the remedy for a failed fork.
pub(crate) fn fork_remedy(errno: Errno) -> &'static str {
    match errno {
        Errno::AGAIN => {
            "the daemon's or the cgroup's limit of tasks is reached (pids.max, LimitNPROC)"
        }
        Errno::PERM => "nfluid needs root",
        Errno::OPNOTSUPP => "the cgroup is threaded or hands controllers down: see its cgroup.type",
        Errno::NOSPC => {
            "the limit of pid namespaces is reached: raise sysctl user.max_pid_namespaces"
        }
        Errno::NOSYS => "the kernel is older than 5.7",
        Errno::INVAL => REMEDY,
        _ => "",
    }
}

/// The pidfd: readable once it is gone.
impl AsFd for Zygote {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

impl Drop for Zygote {
    fn drop(&mut self) {
        self.end();
    }
}

fn ask(
    socket: &OwnedFd,
    message: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> Result<(Pid, Option<OwnedFd>), Errno> {
    let mut space = [MaybeUninit::<u8>::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(Errno::TOOBIG);
    }
    let parts = [IoSlice::new(message)];
    rustix::net::sendmsg(socket, &parts, &mut ancillary, SendFlags::NOSIGNAL)?;

    let mut answer = Answer::default();
    let mut pidfd = [-1; 1];
    let (length, count) = receive(socket, &mut answer, &mut pidfd)?;
    if length == 0 {
        return Err(Errno::PIPE);
    }
    // SAFETY: the kernel has just made this descriptor for us, and no other code knows of it.
    let pidfd = (count == 1).then(|| unsafe { OwnedFd::from_raw_fd(pidfd[0]) });
    let value = i32::from_ne_bytes(answer);
    // A negative number is no process id, and asking for one is a bug.
    match Pid::from_raw(value.max(0)) {
        Some(pid) => Ok((pid, pidfd)),
        None => Err(Errno::from_raw_os_error(value.saturating_neg())),
    }
}

/// Receives a message's bytes and its descriptors, and returns the number of each. The function neither allocates nor
/// panics.
fn receive(
    socket: impl AsFd,
    bytes: &mut [u8],
    descriptors: &mut [RawFd],
) -> Result<(usize, usize), Errno> {
    let mut space = [MaybeUninit::<u8>::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(bytes)];
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received = loop {
        match rustix::net::recvmsg(&socket, &mut parts, &mut ancillary, flags) {
            Err(Errno::INTR) => {}
            other => break other?,
        }
    };
    let mut count = 0;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            for (slot, fd) in descriptors.iter_mut().skip(count).zip(received) {
                *slot = fd.into_raw_fd();
                count += 1;
            }
        }
    }
    if received
        .flags
        .intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC)
    {
        return Err(Errno::MSGSIZE);
    }
    Ok((received.bytes, count))
}

/// Memory for the zygote and its children, made before the fork.
struct Memory {
    request: Vec<u8>,
    scratch: Scratch,
}

/// The main loop of the zygote. The zygote may be a copy of one thread among many, and keeps to the rules that its
/// children keep to.
fn serve(socket: RawFd, memory: &mut Memory) -> ! {
    let mut keep = [socket];
    if sys::close_all_but(&mut keep).is_err() {
        sys::exit_now(127);
    }
    // The name is shown in process lists.
    let _named = rustix::thread::set_name(c"nfluid-zygote");
    // SAFETY: the descriptor was kept open, and stays open until this process ends.
    let socket = unsafe { BorrowedFd::borrow_raw(socket) };
    loop {
        let mut descriptors = [-1; FDS_MAX];
        let (length, count) = match receive(socket, &mut memory.request, &mut descriptors) {
            Ok((0, _)) | Err(_) => sys::exit_now(0),
            Ok(received) => received,
        };
        let request = memory.request.get(..length).unwrap_or_default();
        let descriptors = descriptors.get(..count).unwrap_or_default();
        let forked = Plan::parse(request, descriptors)
            .and_then(|plan| fork_shell(plan, &mut memory.scratch));
        let answered = answer(socket, forked);
        for fd in descriptors {
            // SAFETY: it came with the request, and the child has its own.
            drop(unsafe { OwnedFd::from_raw_fd(*fd) });
        }
        if answered.is_err() {
            sys::exit_now(0);
        }
    }
}

fn fork_shell(plan: Plan<'_>, scratch: &mut Scratch) -> Result<(Pid, OwnedFd), Errno> {
    // SAFETY: it is among the descriptors of the request, which stay open until it is answered.
    let cgroup = plan.cgroup.map(|fd| unsafe { BorrowedFd::borrow_raw(fd) });
    let there = plan.enter_cpus()?;
    // SAFETY: the child goes straight into `child::run`, which keeps to what is allowed and never returns.
    match unsafe { sys::fork(Kind::SiblingInstance, cgroup) }? {
        Fork::Child => child::run(plan, scratch),
        Fork::Parent { pid, pidfd } => {
            drop(there);
            Ok((pid, pidfd))
        }
    }
}

fn answer(socket: BorrowedFd<'_>, forked: Result<(Pid, OwnedFd), Errno>) -> Result<(), Errno> {
    let value = match &forked {
        Ok((pid, _)) => pid.as_raw_nonzero().get(),
        Err(errno) => errno.raw_os_error().saturating_neg(),
    };
    let bytes: Answer = value.to_ne_bytes();
    let mut space = [MaybeUninit::<u8>::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let attached = forked.as_ref().map(|(_, pidfd)| [pidfd.as_fd()]);
    if let Ok(pidfd) = &attached {
        ancillary.push(SendAncillaryMessage::ScmRights(pidfd));
    }
    let parts = [IoSlice::new(&bytes)];
    rustix::net::sendmsg(socket, &parts, &mut ancillary, SendFlags::NOSIGNAL).map(|_| ())
}
