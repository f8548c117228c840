//! The system calls that no crate wraps in a form that is safe between fork and exec: none of these allocates, locks or
//! panics.

use crate::error::Errno;
use rustix::process::Pid;
use std::ffi::{CStr, c_char};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// Read-only, and no setuid programs, no devices (mount_setattr(2)).
pub(crate) const MOUNT_READ_ONLY: u64 = 0x1 | 0x2 | 0x4;
/// Read-only, and no setuid programs, no programs at all. Devices stay devices: writing to one changes no file.
pub(crate) const MOUNT_UNCHANGEABLE: u64 = 0x1 | 0x2 | 0x8;
const AT_RECURSIVE: libc::c_int = 0x8000;
const MOUNT_ATTR_IDMAP: u64 = 0x0010_0000;
/// No setuid programs, no devices, no programs at all.
pub(crate) const MOUNT_DATA: u64 = 0x2 | 0x4 | 0x8;

/// The argument of mount_setattr(2) (linux/mount.h).
#[repr(C)]
struct MountAttributes {
    set: u64,
    clear: u64,
    propagation: u64,
    userns_fd: u64,
}

/// The argument of clone3(2) (linux/sched.h), as of its cgroup field.
#[repr(C)]
#[derive(Default)]
struct CloneArguments {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

/// The kernel's set of signals, 64 bits.
const SIGNAL_SET_BYTES: usize = 8;

/// An instruction of a filter as the kernel wants it (linux/filter.h).
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct FilterInstruction {
    pub code: u16,
    pub jt: u8,
    pub jf: u8,
    pub k: u32,
}

fn check(result: libc::c_long) -> Result<libc::c_long, Errno> {
    if result < 0 {
        let errno = std::io::Error::last_os_error().raw_os_error();
        Err(Errno::from_raw_os_error(errno.unwrap_or(libc::EIO)))
    } else {
        Ok(result)
    }
}

/// Both sides of [`fork`].
pub(crate) enum Fork {
    Parent { pid: Pid, pidfd: OwnedFd },
    Child,
}

/// The kind of process that a fork makes.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    /// A plain child.
    Child,
    /// A child in a new user namespace.
    UserNamespace,
    /// A child in a new pid namespace.
    Instance,
    /// An instance that is a child of this process's parent.
    SiblingInstance,
}

/// Forks with clone3(2): default signal handlers, a pidfd, and straight into a v2 cgroup.
///
/// # Safety
/// The child has a copy of one thread of a process whose locks other threads may hold: until it executes a program or
/// exits it may make system calls, and must not allocate, lock, panic or return from the function that called this.
pub(crate) unsafe fn fork(kind: Kind, cgroup: Option<BorrowedFd<'_>>) -> Result<Fork, Errno> {
    let mut pidfd: RawFd = -1;
    let mut arguments = CloneArguments {
        flags: libc::CLONE_PIDFD as u64 | CLONE_CLEAR_SIGHAND,
        pidfd: (&raw mut pidfd) as u64,
        ..CloneArguments::default()
    };
    match kind {
        Kind::Child => {}
        Kind::UserNamespace => arguments.flags |= libc::CLONE_NEWUSER as u64,
        Kind::Instance => arguments.flags |= libc::CLONE_NEWPID as u64,
        Kind::SiblingInstance => {
            arguments.flags |= (libc::CLONE_NEWPID | libc::CLONE_PARENT) as u64
        }
    }
    if !matches!(kind, Kind::SiblingInstance) {
        // The kernel reports the end of a sibling with the signal of this process.
        arguments.exit_signal = libc::SIGCHLD as u64;
    }
    if let Some(cgroup) = cgroup {
        arguments.flags |= CLONE_INTO_CGROUP;
        arguments.cgroup = cgroup.as_raw_fd() as u64;
    }
    // SAFETY: the arguments live across the call; without CLONE_VM the child runs on a copy of this stack.
    let pid = check(unsafe {
        libc::syscall(
            libc::SYS_clone3,
            &raw const arguments,
            size_of::<CloneArguments>(),
        )
    })?;
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else {
        return Ok(Fork::Child);
    };
    // SAFETY: with CLONE_PIDFD the kernel has stored a new descriptor that no other code owns.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    Ok(Fork::Parent { pid, pidfd })
}

const CLONE_CLEAR_SIGHAND: u64 = 0x1_0000_0000;
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// Ends the process without running anything of it.
pub(crate) fn exit_now(code: i32) -> ! {
    // SAFETY: _exit takes any code, runs no handlers and does not return.
    unsafe { libc::_exit(code) }
}

/// Waits for the signal that ends the process, or for the end of its parent.
pub(crate) fn wait_to_be_killed() -> ! {
    let parent = rustix::process::getppid();
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    // A parent that has ended before tells nothing.
    while rustix::process::getppid() == parent {
        // SAFETY: pause takes nothing and changes nothing.
        unsafe { libc::pause() };
    }
    exit_now(0)
}

/// Shows the files of a detached mount as a user namespace maps their owners.
pub(crate) fn mount_map_owners(mount: BorrowedFd<'_>, users: BorrowedFd<'_>) -> Result<(), Errno> {
    let attributes = MountAttributes {
        set: MOUNT_ATTR_IDMAP,
        clear: 0,
        propagation: 0,
        userns_fd: u64::from(users.as_raw_fd().unsigned_abs()),
    };
    change_mount(mount, c"", 0, &attributes)
}

/// Changes the attributes of a mount, and of those below it.
pub(crate) fn mount_setattr(
    at: BorrowedFd<'_>,
    path: &CStr,
    set: u64,
    recursive: bool,
) -> Result<(), Errno> {
    let attributes = MountAttributes {
        set,
        clear: 0,
        propagation: 0,
        userns_fd: 0,
    };
    change_mount(
        at,
        path,
        if recursive { AT_RECURSIVE } else { 0 },
        &attributes,
    )
}

fn change_mount(
    at: BorrowedFd<'_>,
    path: &CStr,
    flags: libc::c_int,
    attributes: &MountAttributes,
) -> Result<(), Errno> {
    // SAFETY: the path is NUL-terminated and the structure lives across the call, with its size.
    check(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            at.as_raw_fd(),
            path.as_ptr(),
            libc::AT_EMPTY_PATH | flags,
            attributes as *const MountAttributes,
            size_of::<MountAttributes>(),
        )
    })?;
    Ok(())
}

/// Closes all descriptors from `first` to `last`, both included.
pub(crate) fn close_range(first: RawFd, last: RawFd) -> Result<(), Errno> {
    if first > last {
        return Ok(());
    }
    // SAFETY: closing descriptors touches no memory. The caller guarantees that nothing uses them any more: it is about
    // to execute another program.
    check(unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) })?;
    Ok(())
}

/// Closes all descriptors but those in `keep`, which it sorts.
pub(crate) fn close_all_but(keep: &mut [RawFd]) -> Result<(), Errno> {
    keep.sort_unstable();
    let mut next = 0;
    for fd in keep {
        close_range(next, fd.saturating_sub(1))?;
        next = fd.saturating_add(1);
    }
    close_range(next, RawFd::MAX)
}

/// Makes `target` another name of `source` that survives exec.
pub(crate) fn duplicate_to(source: RawFd, target: RawFd) -> Result<(), Errno> {
    // SAFETY: dup3 touches no memory.
    check(unsafe { libc::syscall(libc::SYS_dup3, source, target, 0) })?;
    Ok(())
}

/// Makes another name of `source`, at `at_least` or above, that does not survive exec.
pub(crate) fn duplicate_above(source: RawFd, at_least: RawFd) -> Result<RawFd, Errno> {
    // SAFETY: F_DUPFD_CLOEXEC touches no memory.
    let fd =
        check(unsafe { libc::syscall(libc::SYS_fcntl, source, libc::F_DUPFD_CLOEXEC, at_least) })?;
    RawFd::try_from(fd).map_err(|_| Errno::BADF)
}

/// Drops every capability but these from the bounding set, which decides what a later exec could gain.
pub(crate) fn drop_bounding_set(kept: u64) -> Result<(), Errno> {
    for capability in (0..64).filter(|capability| kept >> capability & 1 == 0) {
        // SAFETY: these prctl operations take integers.
        match check(unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) }.into()) {
            Ok(_) => {}
            // Past the kernel's last capability.
            Err(Errno::INVAL) if capability > 0 => return Ok(()),
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Gives every signal its default action (an ignored one stays ignored across exec) and unblocks all. By bare system
/// calls: the C library's own functions take locks.
pub(crate) fn reset_signals() {
    // The kernel's struct sigaction, all zero: SIG_DFL, no flags, empty mask. The structure has four words on every
    // architecture.
    let default_action = [0u64; 4];
    for signal in 1..=64 {
        // SAFETY: the action is of the kernel's size and only read; those that cannot be changed are refused, harmlessly.
        unsafe {
            libc::syscall(
                libc::SYS_rt_sigaction,
                signal,
                default_action.as_ptr(),
                std::ptr::null::<u64>(),
                SIGNAL_SET_BYTES,
            )
        };
    }
    let none = 0u64;
    // SAFETY: the set is of the size given and only read.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            libc::SIG_SETMASK,
            &raw const none,
            std::ptr::null::<u64>(),
            SIGNAL_SET_BYTES,
        )
    };
}

/// All signals of this thread, blocked until dropped: a handler of the parent must not run in a child that shares its
/// pipes.
pub(crate) struct SignalsBlocked {
    before: libc::sigset_t,
}

impl SignalsBlocked {
    pub fn new() -> Self {
        // SAFETY: both sets are plain memory that the calls fill in.
        unsafe {
            let mut all: libc::sigset_t = std::mem::zeroed();
            let mut before: libc::sigset_t = std::mem::zeroed();
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
            Self { before }
        }
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        // SAFETY: `before` was filled in by the kernel.
        unsafe {
            libc::pthread_sigmask(
                libc::SIG_SETMASK,
                &raw const self.before,
                std::ptr::null_mut(),
            );
        }
    }
}

/// The argument of sched_setattr(2) (linux/sched/types.h).
#[repr(C)]
#[derive(Default)]
struct SchedulingAttributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    /// The slice of an ordinary task, in nanoseconds; 0: the kernel's own.
    runtime: u64,
    deadline: u64,
    period: u64,
    util_min: u32,
    util_max: u32,
}

fn scheduling_attributes(thread: Pid) -> Result<SchedulingAttributes, Errno> {
    let mut attributes = SchedulingAttributes::default();
    let size = size_of::<SchedulingAttributes>() as u32;
    // SAFETY: the kernel writes at most `size` bytes to `attributes`, which are so long.
    check(unsafe {
        libc::syscall(
            libc::SYS_sched_getattr,
            thread.as_raw_nonzero().get(),
            &raw mut attributes,
            size,
            0u32,
        )
    })?;
    Ok(attributes)
}

/// Returns the time slice of a thread in nanoseconds; 0 where the kernel does not report slices.
pub(crate) fn slice_ns(thread: Pid) -> Result<u64, Errno> {
    Ok(scheduling_attributes(thread)?.runtime)
}

/// Gives a thread a time slice in nanoseconds; 0: the kernel's own. All else of its scheduling stays.
pub(crate) fn set_slice_ns(thread: Pid, slice: u64) -> Result<(), Errno> {
    let mut attributes = scheduling_attributes(thread)?;
    attributes.runtime = slice;
    // SAFETY: the kernel only reads `attributes`, whose length they say.
    check(unsafe {
        libc::syscall(
            libc::SYS_sched_setattr,
            thread.as_raw_nonzero().get(),
            &raw const attributes,
            0u32,
        )
    })?;
    Ok(())
}

/// The version of Landlock that the kernel has.
pub(crate) fn landlock_abi() -> Result<u32, Errno> {
    const VERSION: u32 = 1;
    // SAFETY: with this flag, the call takes no memory.
    let abi = check(unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::null::<u64>(),
            0usize,
            VERSION,
        )
    })?;
    u32::try_from(abi).map_err(|_| Errno::INVAL)
}

/// Checks whether this process may make a BPF map: makes the smallest map, an array of one number, which is gone at
/// once.
pub(crate) fn try_bpf_map() -> Result<(), Errno> {
    const MAP_CREATE: libc::c_int = 0;
    const ARRAY: u32 = 2;
    // Type, bytes of a key, bytes of a value, entries (linux/bpf.h); the kernel takes the rest as zero.
    let attributes: [u32; 4] = [ARRAY, 4, 4, 1];
    // SAFETY: the attributes are of the length that is passed, and the kernel only reads them.
    let map = check(unsafe {
        libc::syscall(
            libc::SYS_bpf,
            MAP_CREATE,
            attributes.as_ptr(),
            size_of_val(&attributes),
        )
    })?;
    let map = RawFd::try_from(map).map_err(|_| Errno::BADF)?;
    // SAFETY: the kernel has just made this descriptor, and no other code has it.
    drop(unsafe { OwnedFd::from_raw_fd(map) });
    Ok(())
}

/// KVM_GET_API_VERSION and KVM_CHECK_EXTENSION (linux/kvm.h).
const KVM_VERSION: u64 = 0xae00;
const KVM_EXTENSION: u64 = 0xae03;

/// Returns the version of KVM's interface.
pub(crate) fn kvm_version(device: &OwnedFd) -> Result<i32, Errno> {
    kvm_request(device, KVM_VERSION, 0)
}

/// Returns what KVM says about a capability; 0: it has none of it.
pub(crate) fn kvm_extension(device: &OwnedFd, capability: u64) -> Result<i32, Errno> {
    kvm_request(device, KVM_EXTENSION, capability)
}

fn kvm_request(device: &OwnedFd, request: u64, argument: u64) -> Result<i32, Errno> {
    // SAFETY: both requests take a number and change nothing.
    let answer =
        check(unsafe { libc::syscall(libc::SYS_ioctl, device.as_raw_fd(), request, argument) })?;
    Ok(answer as i32)
}

/// Applies a Landlock ruleset to this process for good.
pub(crate) fn landlock_restrict_self(ruleset: RawFd) -> Result<(), Errno> {
    // SAFETY: the call takes integers.
    check(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset, 0) })?;
    Ok(())
}

/// Applies a system call filter to this process for good.
pub(crate) fn load_filter(instructions: &[FilterInstruction]) -> Result<(), Errno> {
    let program = libc::sock_fprog {
        len: u16::try_from(instructions.len()).map_err(|_| Errno::INVAL)?,
        filter: instructions.as_ptr().cast_mut().cast(),
    };
    // SAFETY: the program points to `len` instructions of the kernel's layout, which the kernel copies and only reads.
    check(unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            0,
            &raw const program,
        )
    })?;
    Ok(())
}

/// Makes the empty path at address 0 that [`execute`] needs. The mapping takes the host's CAP_SYS_RAWIO.
pub(crate) fn map_empty_path() -> Result<(), Errno> {
    let flags = rustix::mm::MapFlags::PRIVATE | rustix::mm::MapFlags::FIXED;
    let page = rustix::param::page_size();
    // SAFETY: nothing is mapped at 0 before, so nothing is replaced; no Rust code reads or writes there.
    unsafe {
        rustix::mm::mmap_anonymous(
            std::ptr::null_mut(),
            page,
            rustix::mm::ProtFlags::READ,
            flags,
        )
    }?;
    Ok(())
}

/// Executes an open program. Returns only if that failed.
///
/// The path is at address 0, where [`map_empty_path`] has put an empty path. The filter of system calls allows
/// execveat with that address only, as the filter sees no text. A program has nothing there: mapping memory below
/// vm.mmap_min_addr takes CAP_SYS_RAWIO, which an instance never has. So the kernel executes this program and no
/// other.
///
/// # Safety
/// Both arrays end with NULL, and their other pointers point to NUL-terminated strings.
pub(crate) unsafe fn execute(
    program: RawFd,
    argv: &[*const c_char],
    envp: &[*const c_char],
) -> Errno {
    // SAFETY: as the caller promises; the kernel checks the path's address itself.
    let result = check(unsafe {
        libc::syscall(
            libc::SYS_execveat,
            program,
            std::ptr::null::<c_char>(),
            argv.as_ptr(),
            envp.as_ptr(),
            libc::AT_EMPTY_PATH,
        )
    });
    result.err().unwrap_or(Errno::IO)
}
