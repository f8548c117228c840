//! What a PE's process may still do: compute, and sleep until it is woken.
//!
//! The instance's filter lets the core manager fork, and signal its children. A kernel that has got loose must not signal the
//! processes of other slices, nor fork until there is no room for them.

use seccompiler::{SeccompAction, SeccompFilter, apply_filter};
use std::io;

/// The calls that a PE makes. All others fail with EPERM.
const ALLOWED: [i64; 20] = [
    // Its memory.
    libc::SYS_brk,
    libc::SYS_madvise,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_munmap,
    // Waiting for a command.
    libc::SYS_futex,
    libc::SYS_sched_yield,
    libc::SYS_restart_syscall,
    // The time, where the vDSO cannot tell it.
    libc::SYS_clock_gettime,
    // Seeds of hash tables.
    libc::SYS_getrandom,
    // A panic's and an overflow's last words, and the way out.
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// Takes all other calls away from the calling process, for good.
///
/// # Errors
/// The kernel's.
pub fn confine() -> io::Result<()> {
    let rules = ALLOWED.iter().map(|&call| (call, Vec::new())).collect();
    let arch = std::env::consts::ARCH.try_into();
    let arch = arch.map_err(io::Error::other)?;
    let refused = SeccompAction::Errno(libc::EPERM as u32);
    let filter = SeccompFilter::new(rules, refused, SeccompAction::Allow, arch);
    let program = filter.and_then(TryInto::<seccompiler::BpfProgram>::try_into);
    apply_filter(&program.map_err(io::Error::other)?).map_err(io::Error::other)
}
