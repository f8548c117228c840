//! The allowed system calls, each with its reason. An entry without a reason has no place here.

use super::rule::{Allowed, Test, When, bits, is, long_bits, null};

macro_rules! table {
    ($($call:ident $(if $when:expr)? => $why:literal,)*) => {
        &[$(Allowed {
            number: libc::$call,
            when: table!(@when $($when)?),
            why: $why,
        }),*]
    };
    (@when) => { When::Always };
    (@when $when:expr) => { When::AnyOf($when) };
}

const PROT_WRITE: u64 = libc::PROT_WRITE as u64;
const PROT_EXEC: u64 = libc::PROT_EXEC as u64;

/// Every namespace flag of clone(2). CLONE_NEWTIME is missing on purpose: clone(2) takes it for part of the signal.
const CLONE_NEW: u64 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET) as u64;
const CLONE_THREAD: u64 = (libc::CLONE_VM | libc::CLONE_SIGHAND | libc::CLONE_THREAD) as u64;

const NOT_EXECUTABLE: &[&[Test]] = &[&[bits(2, PROT_EXEC, 0)]];
const NOT_WRITABLE_AND_EXECUTABLE: &[&[Test]] =
    &[&[bits(2, PROT_EXEC, 0)], &[bits(2, PROT_WRITE, 0)]];

/// As loaders map code. A shared mapping is never executable: of a port's memory there may be a writable view beside it,
/// and before 6.16 the kernel maps what has no path executable, BPF maps included. An mprotect cannot make one executable
/// later (bpf_map_mmap clears VM_MAYEXEC).
const CODE_IS_PRIVATE: &[&[Test]] = &[
    &[bits(2, PROT_EXEC, 0)],
    &[
        bits(2, PROT_WRITE, 0),
        bits(3, libc::MAP_TYPE as u64, libc::MAP_PRIVATE as u64),
    ],
];

/// Options that show the type of inherited sockets and their errors: getsockopt(2). Other levels and options reach
/// rarer code of the kernel, and SO_PEERPIDFD would hand out a descriptor of the daemon's process.
const SOCKET_FACTS: &[&[Test]] = &[
    &[is(1, SOL_SOCKET), is(2, libc::SO_ERROR as u64)],
    &[is(1, SOL_SOCKET), is(2, libc::SO_TYPE as u64)],
    &[is(1, SOL_SOCKET), is(2, libc::SO_DOMAIN as u64)],
    &[is(1, SOL_SOCKET), is(2, libc::SO_PROTOCOL as u64)],
    &[is(1, SOL_SOCKET), is(2, libc::SO_ACCEPTCONN as u64)],
    &[is(1, SOL_SOCKET), is(2, libc::SO_SNDBUF as u64)],
    &[is(1, SOL_SOCKET), is(2, libc::SO_RCVBUF as u64)],
];
const SOL_SOCKET: u64 = libc::SOL_SOCKET as u64;

/// Bits of open(2)'s flags that could create, truncate or lengthen.
const OPEN_CREATES: u64 = (libc::O_CREAT | libc::O_TRUNC | libc::O_APPEND) as u64
    | (libc::O_TMPFILE & !libc::O_DIRECTORY) as u64;
/// As well as those that could write.
const OPEN_WRITES: u64 = OPEN_CREATES | libc::O_ACCMODE as u64;

/// fcntl(2) commands about the descriptor itself, and `more`. F_SETSIG would make the kernel send any signal.
macro_rules! descriptor_commands {
    ($($more:expr,)*) => {
        &[
            &[is(1, libc::F_DUPFD as u64)],
            &[is(1, libc::F_DUPFD_CLOEXEC as u64)],
            &[is(1, libc::F_GETFD as u64)],
            &[is(1, libc::F_SETFD as u64)],
            &[is(1, libc::F_GETFL as u64)],
            &[is(1, libc::F_SETFL as u64)],
            $(&[is(1, $more as u64)],)*
        ]
    };
}

const FCNTL: &[&[Test]] = descriptor_commands! {};

/// ioctl(2) requests that any descriptor takes, and `more`. TIOCSTI would type into a terminal.
macro_rules! requests {
    ($($more:expr,)*) => {
        &[
            &[is(1, libc::TCGETS)],
            &[is(1, libc::FIONREAD)],
            &[is(1, libc::FIONBIO)],
            &[is(1, libc::FIOCLEX)],
            &[is(1, libc::FIONCLEX)],
            &[is(1, libc::TIOCGWINSZ)],
            $(&[$more],)*
        ]
    };
}

const IOCTL: &[&[Test]] = requests! {};

/// prctl(2) on the caller's own name, dumpability (downwards), timer slack and names of mappings, and `more`.
macro_rules! process_options {
    ($($more:expr,)*) => {
        &[
            &[is(0, libc::PR_SET_NAME as u64)],
            &[is(0, libc::PR_GET_NAME as u64)],
            &[is(0, libc::PR_GET_DUMPABLE as u64)],
            &[
                is(0, libc::PR_SET_DUMPABLE as u64),
                long_bits(1, u64::MAX, 0),
            ],
            &[is(0, libc::PR_SET_TIMERSLACK as u64)],
            &[is(0, libc::PR_GET_TIMERSLACK as u64)],
            &[is(0, libc::PR_SET_VMA as u64)],
            $(&[is(0, $more as u64)],)*
        ]
    };
}

const PRCTL: &[&[Test]] = process_options! {};

/// For every instance.
pub(super) const ALWAYS: &[Allowed] = table! {
    SYS_read => "inherited pipes, sockets and eventfds",
    SYS_write => "doorbells, logs, the daemon's control socket",
    SYS_readv => "as read",
    SYS_writev => "as write; the C library's standard output",
    SYS_pread64 => "as read, at a position",
    SYS_pwrite64 => "as write, at a position",
    SYS_preadv => "as read, at a position",
    SYS_pwritev => "as write, at a position",
    SYS_lseek => "standard streams look where they are",
    SYS_close => "gives up descriptors only",
    SYS_close_range => "gives up descriptors only",
    SYS_dup => "own descriptors",
    SYS_dup2 => "own descriptors",
    SYS_dup3 => "own descriptors",
    SYS_fcntl if FCNTL => "non-blocking mode and close-on-exec of own descriptors",
    SYS_ioctl if IOCTL => "is it a terminal, how many bytes wait, non-blocking mode",
    SYS_fstat => "the C library looks at what it inherited",
    SYS_newfstatat => "how newer C libraries do fstat; there is no file system to look into",
    SYS_statx => "how Rust does fstat",

    SYS_poll => "blocking on doorbells",
    SYS_ppoll => "blocking on doorbells",
    SYS_select => "blocking on doorbells",
    SYS_pselect6 => "blocking on doorbells",
    SYS_epoll_create1 => "blocking on doorbells",
    SYS_epoll_create => "blocking on doorbells",
    SYS_epoll_ctl => "blocking on doorbells",
    SYS_epoll_wait => "blocking on doorbells",
    SYS_epoll_pwait => "blocking on doorbells",
    SYS_epoll_pwait2 => "blocking on doorbells, in nanoseconds",
    SYS_eventfd2 => "waking own threads",
    SYS_pipe2 => "waking own threads",
    SYS_pipe => "waking own threads",
    SYS_timerfd_create => "ageing timeouts in an event loop",
    SYS_timerfd_settime => "ageing timeouts in an event loop",
    SYS_timerfd_gettime => "ageing timeouts in an event loop",

    SYS_futex => "locks, and doorbells in shared memory",
    SYS_futex_waitv => "waiting for several doorbells",
    SYS_set_robust_list => "every thread's start in the C library",
    SYS_get_robust_list => "own threads",
    SYS_rseq => "every thread's start in the C library",
    SYS_membarrier => "own threads",
    SYS_sched_yield => "spinning politely",
    SYS_sched_getaffinity => "how many threads are worth starting",
    SYS_sched_getparam => "the C library's thread attributes",
    SYS_sched_getscheduler => "the C library's thread attributes",
    SYS_sched_getattr if &[&[is(0, 0)]] => "the calling thread's time slice",
    SYS_sched_setattr if &[&[is(0, 0), is(2, 0)]] =>
        "the calling thread's time slice; what would take time from others needs CAP_SYS_NICE",
    SYS_sched_get_priority_max => "the C library's thread attributes",
    SYS_sched_get_priority_min => "the C library's thread attributes",
    SYS_getcpu => "statistics per core",
    SYS_nanosleep => "waiting",
    SYS_clock_nanosleep => "waiting",
    SYS_clock_gettime => "time, where the vDSO cannot tell it",
    SYS_clock_getres => "time",
    SYS_gettimeofday => "time",
    SYS_time => "time",
    SYS_times => "own CPU time",
    SYS_getrusage => "own CPU time",
    SYS_getrandom => "seeds of hash tables",

    SYS_setsockopt if &[] => "the hyperio call; its one level is filled in by the policy",
    SYS_getsockopt if SOCKET_FACTS => "kind, buffers and errors of inherited sockets",
    SYS_getsockname => "what an inherited socket is",
    SYS_getpeername => "what an inherited socket is",
    SYS_recvfrom => "the daemon's control socket",
    SYS_recvmsg => "the daemon's control socket, which hands over descriptors",
    SYS_recvmmsg => "as recvmsg",
    SYS_sendto if &[&[null(4)]] => "send(): to the connected peer, never to an address",
    SYS_accept4 => "an inherited listening socket, such as a metrics end point",
    SYS_accept => "as accept4",
    SYS_shutdown => "gives up a direction only",

    SYS_brk => "own memory",
    SYS_munmap => "own memory",
    SYS_mremap => "own memory",
    SYS_madvise => "own memory",
    SYS_mincore => "own memory",
    SYS_mlock => "ring memory that must not be paged out, within RLIMIT_MEMLOCK",
    SYS_mlock2 => "as mlock",
    SYS_munlock => "as mlock",

    SYS_rt_sigaction => "own signal handlers",
    SYS_rt_sigprocmask => "own signal handlers",
    SYS_rt_sigreturn => "own signal handlers",
    SYS_rt_sigpending => "own signal handlers",
    SYS_rt_sigsuspend => "own signal handlers",
    SYS_rt_sigtimedwait => "waiting for SIGTERM",
    SYS_sigaltstack => "stack overflow handlers",
    SYS_restart_syscall => "the kernel's own way to resume a wait after a stop",
    SYS_pause => "waiting for a signal",

    SYS_getpid => "identity",
    SYS_gettid => "identity",
    SYS_getppid => "identity",
    SYS_getuid => "identity",
    SYS_geteuid => "identity",
    SYS_getgid => "identity",
    SYS_getegid => "identity",
    SYS_getpgrp => "identity",
    SYS_uname => "run-times look for the kernel's version",
    SYS_sysinfo => "run-times look for the memory size",
    SYS_getrlimit => "own limits",
    SYS_prlimit64 if &[&[is(0, 0), null(2)]] => "own limits, reading only",
    SYS_prctl if PRCTL => "thread names, being undumpable, timer slack",
    SYS_arch_prctl => "thread-local storage at the program's start",
    SYS_set_tid_address => "every thread's start in the C library",
    SYS_exit => "the end of a thread",
    SYS_exit_group => "the end of the program",
    SYS_execveat if &[&[null(1), is(4, libc::AT_EMPTY_PATH as u64)]] =>
        "how the sandbox starts the program, by a path at address 0, where an instance cannot map any",
};

/// For instances that may not fork.
pub(super) const THREADS_ONLY: &[Allowed] = table! {
    SYS_clone if &[&[long_bits(0, CLONE_THREAD | CLONE_NEW, CLONE_THREAD)]] =>
        "threads, and neither processes nor namespaces",
    SYS_tgkill if &[&[is(0, 1)]] => "abort() and raise(): an instance is process 1 of its own namespace",
    SYS_tkill => "as tgkill, in musl: no other process has a number here",
};

/// For instances that may fork.
pub(super) const PROCESSES: &[Allowed] = table! {
    SYS_clone if &[&[long_bits(0, CLONE_NEW, 0)]] => "processes and threads, no namespaces",
    SYS_fork => "processes",
    SYS_vfork => "processes",
    SYS_wait4 => "own children",
    SYS_waitid => "own children",
    SYS_kill => "own children: no other process has a number here",
    SYS_tgkill => "own children",
    SYS_tkill => "as tgkill, in musl",
};

const SECCOMP_SET_MODE_FILTER: u64 = 1;

/// For instances whose processes take calls away from themselves.
pub(super) const COMPONENTS: &[Allowed] = table! {
    SYS_seccomp if &[&[is(0, SECCOMP_SET_MODE_FILTER), is(1, 0)]] =>
        "a further filter of the calling thread, which can only take away",
    SYS_prctl if process_options! { libc::PR_SET_NO_NEW_PRIVS, } =>
        "asked for before a further filter; the sandbox has set it, and nothing takes it back",
};

/// For statically linked programs.
pub(super) const STRICT: &[Allowed] = table! {
    SYS_mmap if NOT_EXECUTABLE => "port memory and the heap",
    SYS_mprotect if NOT_EXECUTABLE => "guard pages, read-only relocations",
};

/// For dynamically linked programs.
pub(super) const LOADER: &[Allowed] = table! {
    SYS_mmap if CODE_IS_PRIVATE => "libraries, port memory and the heap",
    SYS_mprotect if NOT_WRITABLE_AND_EXECUTABLE => "guard pages, read-only relocations",
    SYS_open if &[&[bits(1, OPEN_WRITES, 0)]] => "libraries, for reading",
    SYS_openat if &[&[bits(2, OPEN_WRITES, 0)]] => "libraries, for reading",
    SYS_access => "the loader looks for /etc/ld.so.preload",
    SYS_faccessat => "as access",
    SYS_faccessat2 => "as access",
    SYS_stat => "the loader compares libraries",
    SYS_lstat => "the loader compares libraries",
    SYS_readlink => "run-times look for their own path",
    SYS_readlinkat => "run-times look for their own path",
    SYS_getcwd => "run-times look for their own path",
    SYS_getdents64 => "language run-times list their modules",
};

/// The low bits of a socket's type; those above them are flags (socket(2)).
const SOCKET_TYPE: u64 = 0xf;
const STREAM: u64 = libc::SOCK_STREAM as u64;

/// For what makes connections for instances.
pub(super) const CONNECTIONS: &[Allowed] = table! {
    SYS_socket if &[
        &[is(0, libc::AF_INET as u64), bits(1, SOCKET_TYPE, STREAM), is(2, 0)],
        &[is(0, libc::AF_INET6 as u64), bits(1, SOCKET_TYPE, STREAM), is(2, 0)],
    ] => "TCP, and no other protocol",
    SYS_connect => "the server; Landlock has its port",
    SYS_sendmsg => "hands a connection to the instance",
};

/// For instances that talk over datagram or descriptor-passing sockets.
pub(super) const MESSAGE_SOCKETS: &[Allowed] = table! {
    SYS_sendmsg => "asked for by the policy",
    SYS_sendmmsg => "asked for by the policy",
    SYS_sendto => "asked for by the policy",
};

/// bpf(2) commands about maps that the caller has a descriptor of: a value, the next key, what kind of map it is. No number or
/// path finds another.
const BPF_MAPS: &[&[Test]] = &[
    &[is(0, 1)],  // BPF_MAP_LOOKUP_ELEM
    &[is(0, 2)],  // BPF_MAP_UPDATE_ELEM
    &[is(0, 3)],  // BPF_MAP_DELETE_ELEM
    &[is(0, 4)],  // BPF_MAP_GET_NEXT_KEY
    &[is(0, 15)], // BPF_OBJ_GET_INFO_BY_FD
];

/// Requests of KVM (linux/kvm.h) that make and run a virtual machine with memory of the caller. What would give a guest
/// devices, interrupts, or another process' descriptors is missing.
const KVM_REQUESTS: &[&[Test]] = requests! {
    is(1, 0xae00),      // KVM_GET_API_VERSION
    is(1, 0xae01),      // KVM_CREATE_VM
    is(1, 0xae03),      // KVM_CHECK_EXTENSION
    is(1, 0xae04),      // KVM_GET_VCPU_MMAP_SIZE
    is(1, 0xae41),      // KVM_CREATE_VCPU
    is(1, 0x4020_ae46), // KVM_SET_USER_MEMORY_REGION
    is(1, 0xae80),      // KVM_RUN
    is(1, 0x8090_ae81), // KVM_GET_REGS
    is(1, 0x4090_ae82), // KVM_SET_REGS
    is(1, 0x8138_ae83), // KVM_GET_SREGS
    is(1, 0x4138_ae84), // KVM_SET_SREGS
};

/// Calls for the monitor of a virtual machine, beside those of every instance.
pub(super) const VIRTUAL_MACHINES: &[Allowed] = table! {
    SYS_ioctl if KVM_REQUESTS => "the virtual machine",
    SYS_setitimer => "the watchdog of the virtual CPU",
};

/// Calls for an emulator, beside those of dynamically linked programs.
pub(super) const EMULATOR: &[Allowed] = table! {
    SYS_memfd_create => "memory",
    SYS_signalfd4 => "signals in its event loop",
    SYS_statfs => "the size of pages behind the machine's memory",
    SYS_fchdir => "looks into directories of firmware",
    SYS_get_mempolicy => "libnuma looks what there is",
};

/// For an emulator that translates the machine's code.
pub(super) const TRANSLATOR: &[Allowed] = table! {
    SYS_mmap => "code that it translates, and the machine's memory",
    SYS_mprotect => "code that it translates",
};

/// Every request of KVM (linux/kvm.h: type 0xae): a machine with interrupts and devices takes dozens of them.
const EMULATOR_REQUESTS: &[&[Test]] = requests! {
    bits(1, 0xff00, 0xae00),
};

/// For an emulator whose machine KVM runs.
pub(super) const EMULATOR_WITH_KVM: &[Allowed] = table! {
    SYS_ioctl if EMULATOR_REQUESTS => "the virtual machine",
    SYS_openat if &[&[bits(2, OPEN_CREATES, 0)]] => "opens /dev/kvm; Landlock lets it write to nothing else",
    SYS_open if &[&[bits(1, OPEN_CREATES, 0)]] => "as openat",
};

/// Families of sockets that a namespace of networks divides, without those whose code few have read (VSOCK, ALG, XDP).
const SOCKETS: &[&[Test]] = &[
    &[is(0, libc::AF_UNIX as u64)],
    &[is(0, libc::AF_INET as u64)],
    &[is(0, libc::AF_INET6 as u64)],
    &[is(0, libc::AF_NETLINK as u64)],
    &[is(0, libc::AF_PACKET as u64)],
];

/// Requests about interfaces and routes of the instance's namespace (ioctl_list(2), 0x8900 to 0x89ff), and signals on input.
const NETWORK_REQUESTS: &[&[Test]] = requests! {
    bits(1, 0xffff_ff00, 0x8900),
    is(1, libc::FIOASYNC),
};

/// Bits of a file's mode by which whoever executes it becomes its owner: a volume is a directory of the host, where a file that
/// an instance makes there belongs to the directory's owner.
const SETUID: u64 = (libc::S_ISUID | libc::S_ISGID) as u64;
/// Bits of open(2)'s flags that make a file, whose mode is then an argument.
const OPEN_MAKES: u64 = (libc::O_CREAT | (libc::O_TMPFILE & !libc::O_DIRECTORY)) as u64;
const PLAIN_1: &[&[Test]] = &[&[bits(1, SETUID, 0)]];
const PLAIN_2: &[&[Test]] = &[&[bits(2, SETUID, 0)]];
const OPENS_PLAIN: &[&[Test]] = &[&[bits(1, OPEN_MAKES, 0)], &[bits(2, SETUID, 0)]];
const OPENS_PLAIN_AT: &[&[Test]] = &[&[bits(2, OPEN_MAKES, 0)], &[bits(3, SETUID, 0)]];

/// For servers on the kernel's network stack, in a network namespace of their own. Files are what Landlock leaves of them.
pub(super) const OWN_NETWORK: &[Allowed] = table! {
    SYS_socket if SOCKETS => "the stack of its namespace",
    SYS_socketpair if &[&[is(0, libc::AF_UNIX as u64)]] => "its own processes",
    SYS_bind => "the stack of its namespace",
    SYS_listen => "the stack of its namespace",
    SYS_connect => "the stack of its namespace",
    SYS_getsockopt => "its sockets",
    SYS_ioctl if NETWORK_REQUESTS => "names and addresses of its interfaces",
    SYS_sendfile => "files to sockets",
    SYS_splice => "bytes between its sockets",
    SYS_tee => "as splice",
    SYS_copy_file_range => "its files",
    SYS_open if OPENS_PLAIN => "its files",
    SYS_openat if OPENS_PLAIN_AT => "its files",
    SYS_creat if PLAIN_1 => "its files",
    SYS_mkdir => "its files",
    SYS_mkdirat => "its files",
    SYS_rmdir => "its files",
    SYS_unlink => "its files",
    SYS_unlinkat => "its files",
    SYS_rename => "its files",
    SYS_renameat => "its files",
    SYS_renameat2 => "its files",
    SYS_link => "its files",
    SYS_linkat => "its files",
    SYS_symlink => "its files",
    SYS_symlinkat => "its files",
    SYS_truncate => "its files",
    SYS_ftruncate => "its files",
    SYS_fallocate => "its files",
    SYS_fsync => "its files",
    SYS_fdatasync => "its files",
    SYS_sync_file_range => "its files",
    SYS_fadvise64 => "its files",
    SYS_flock => "its files",
    SYS_chmod if PLAIN_1 => "its files, of which none becomes setuid",
    SYS_fchmod if PLAIN_1 => "its files",
    SYS_fchmodat if PLAIN_2 => "its files",
    SYS_chown => "its files, to itself",
    SYS_fchown => "its files, to itself",
    SYS_lchown => "its files, to itself",
    SYS_fchownat => "its files, to itself",
    SYS_utimensat => "its files",
    SYS_umask => "its files",
    SYS_statfs => "how full it is",
    SYS_fstatfs => "how full it is",
    SYS_getdents => "its directories",
    SYS_chdir => "its directories",
    SYS_fchdir => "its directories",
    SYS_inotify_init => "its files",
    SYS_inotify_init1 => "its files",
    SYS_inotify_add_watch => "its files",
    SYS_inotify_rm_watch => "its files",
    SYS_memfd_create => "memory of several of its processes",
    SYS_msync => "memory of several of its processes",
    SYS_shmget if &[&[bits(2, libc::SHM_HUGETLB as u64, 0)]] => "memory of several of its processes",
    SYS_shmat => "memory of several of its processes",
    SYS_shmdt => "memory of several of its processes",
    SYS_shmctl => "memory of several of its processes",
    SYS_fcntl if OWN_FCNTL => "as in other instances; locks, pipes, and signals of its own processes",
    SYS_signalfd => "signals in an event loop",
    SYS_signalfd4 => "signals in an event loop",
    SYS_eventfd => "waking own threads",
    SYS_rt_sigqueueinfo => "its own processes",
    SYS_alarm => "its timers",
    SYS_setitimer => "its timers",
    SYS_getitimer => "its timers",
    SYS_timer_create => "its timers",
    SYS_timer_settime => "its timers",
    SYS_timer_gettime => "its timers",
    SYS_timer_delete => "its timers",
    SYS_setsid => "servers leave their session",
    SYS_getsid => "servers leave their session",
    SYS_setpgid => "its own processes",
    SYS_getpgid => "its own processes",
    SYS_getpriority => "its own processes",
    SYS_setpriority => "its own processes, downwards",
    SYS_setrlimit => "its own limits, downwards",
    SYS_prlimit64 if &[&[is(0, 0)]] => "its own limits, downwards",
    SYS_getresuid => "identity",
    SYS_getresgid => "identity",
    SYS_getgroups => "identity",
    SYS_setuid => "to itself: its namespace has no other user",
    SYS_setgid => "to itself: its namespace has no other group",
    SYS_setresuid => "to itself: its namespace has no other user",
    SYS_setresgid => "to itself: its namespace has no other group",
    SYS_capget => "which capabilities it has",
    SYS_capset => "fewer capabilities",
    SYS_prctl if OWN_PRCTL => "as in other instances; which capabilities it keeps; its end with its parent",
};

/// For instances with an image, in which they execute what they like: code that a program makes is no more than code that it
/// writes to a file and executes.
pub(super) const PROGRAMS: &[Allowed] = table! {
    SYS_execve => "programs of its image",
    SYS_execveat => "programs of its image",
    SYS_mmap => "code of translators and just-in-time compilers",
    SYS_mprotect => "code of translators and just-in-time compilers",
    SYS_setreuid => "to itself: its namespace has no other user",
    SYS_setregid => "to itself: its namespace has no other group",
    SYS_setfsuid => "to itself: its namespace has no other user",
    SYS_setfsgid => "to itself: its namespace has no other group",
};

/// For programs on DPDK: what rte_eal_init() does, without huge pages.
pub(super) const DPDK: &[Allowed] = table! {
    SYS_memfd_create => "its heap",
    SYS_ftruncate => "the size of its heap; Landlock leaves it no file to write",
};

/// fcntl(2) commands of servers. The kernel signals only processes that the caller may signal.
const OWN_FCNTL: &[&[Test]] = descriptor_commands! {
    libc::F_GETLK,
    libc::F_SETLK,
    libc::F_SETLKW,
    libc::F_SETOWN,
    libc::F_SETPIPE_SZ,
    libc::F_GETPIPE_SZ,
};

/// prctl(2) of servers. Being dumpable shows them to processes of the same user, and they have a user each.
const OWN_PRCTL: &[&[Test]] = process_options! {
    libc::PR_SET_DUMPABLE,
    libc::PR_SET_KEEPCAPS,
    libc::PR_CAPBSET_READ,
    libc::PR_SET_PDEATHSIG,
    libc::PR_SET_THP_DISABLE,
};

/// Calls for the slow path of a program in the kernel, with which the instance shares maps. Other instances are
/// killed for these calls.
pub(super) const HANDED_MAPS: &[Allowed] = table! {
    SYS_bpf if BPF_MAPS => "values of maps that were handed over",
};
