//! Memory that a process has freed is the kernel's again.

/// Free memory that the C library may keep at the end of each of its arenas, in bytes: its own default, which it
/// would raise by itself.
#[cfg(target_env = "gnu")]
const KEPT_MAX: libc::c_int = 128 << 10;

/// Gives large pieces of memory back to the kernel whenever they are freed, for the rest of this process. A daemon that reads
/// a long file once in a while would else keep as much free memory in the arena of each thread that ever did: the C library
/// takes the largest piece that was freed for the usual size, and keeps twice as much (mallopt(3), `M_TRIM_THRESHOLD`).
///
/// To be called before there are threads. Other C libraries than glibc have no such habit.
pub fn return_freed_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes two numbers, and changes nothing but what happens when memory is freed.
    let _is_known = unsafe { libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT_MAX) };
}
