//! What no network function has a reason to try: one attempt and the process is killed, so that nobody can probe the
//! kernel for as long as they like. Calls that common run-times try in good faith (io_uring, perf counters, memfd) are
//! not here; they fail with EPERM.

macro_rules! table {
    ($($call:ident => $why:literal,)*) => { &[$((libc::$call, $why)),*] };
}

/// System call and what it would be for.
pub(super) const HOSTILE: &[(i64, &str)] = table! {
    SYS_ptrace => "reads and changes other processes",
    SYS_process_vm_readv => "reads other processes' memory",
    SYS_process_vm_writev => "writes other processes' memory",
    SYS_process_madvise => "changes other processes' memory",
    SYS_pidfd_getfd => "takes other processes' descriptors",
    SYS_kcmp => "compares other processes' kernel objects",
    SYS_bpf => "loads programs into the kernel; a leaked map is a leaked port",
    SYS_mount => "changes the file system tree",
    SYS_umount2 => "uncovers what a mount hides",
    SYS_move_mount => "changes the file system tree",
    SYS_open_tree => "copies mounts",
    SYS_fsopen => "makes file systems",
    SYS_fsmount => "makes file systems",
    SYS_mount_setattr => "makes read-only mounts writable",
    SYS_pivot_root => "leaves the root directory",
    SYS_chroot => "leaves the root directory",
    SYS_open_by_handle_at => "opens files that no path reaches",
    SYS_name_to_handle_at => "prepares open_by_handle_at",
    SYS_setns => "enters other namespaces",
    SYS_unshare => "makes namespaces, and with them the kernel's privileged code reachable",
    SYS_init_module => "loads kernel code",
    SYS_finit_module => "loads kernel code",
    SYS_delete_module => "unloads kernel code",
    SYS_kexec_load => "replaces the kernel",
    SYS_kexec_file_load => "replaces the kernel",
    SYS_reboot => "stops the host",
    SYS_swapon => "changes the host's memory",
    SYS_swapoff => "changes the host's memory",
    SYS_iopl => "reaches hardware ports",
    SYS_ioperm => "reaches hardware ports",
    SYS_acct => "records the host's processes",
    SYS_quotactl => "changes the host's quotas",
    SYS_settimeofday => "changes the host's clock",
    SYS_clock_settime => "changes the host's clock",
    SYS_adjtimex => "changes the host's clock",
    SYS_clock_adjtime => "changes the host's clock",
    SYS_syslog => "reads the kernel's log, with its addresses",
    SYS_add_key => "reaches kernel key rings, which are not bound to a namespace of processes",
    SYS_request_key => "as add_key",
    SYS_keyctl => "as add_key",
    SYS_userfaultfd => "stops the kernel in the middle of a copy: a tool of exploits",
    SYS_move_pages => "moves other processes' memory",
    SYS_migrate_pages => "moves other processes' memory",
    SYS_vhangup => "closes terminals of others",
    SYS_personality => "switches address randomisation off",
};
