//! Attempts to access what does not belong to the process.

use crate::kernel::{Answer, Errno, at, at_mut, call, number, path};

type Attempt = fn(&[&str]) -> Answer;

/// All attempts by name.
pub const TABLE: &[(&str, Attempt)] = &[
    ("secret", secret),
    ("read-memory", read_memory),
    ("trace", trace),
    ("open", open),
    ("create", create),
    ("mkdir", mkdir),
    ("list-root", list_root),
    ("execute", execute),
    ("execute-at", execute_at),
    ("map-zero", map_zero),
    ("shared-code", shared_code),
    ("getsockopt", getsockopt),
    ("socket", socket),
    ("connect-abstract", connect_abstract),
    ("send-abstract", send_abstract),
    ("connect-tcp", connect_tcp),
    ("setsockopt", setsockopt),
    ("signal", signal),
    ("count-processes", count_processes),
    ("pid", |_| call(libc::SYS_getpid, [0; 6])),
    ("uid", |_| call(libc::SYS_getuid, [0; 6])),
    ("become-root", |_| call(libc::SYS_setresuid, [0; 6])),
    ("capabilities", capabilities),
    ("bounding", bounding),
    ("no-new-privileges", |_| {
        call(
            libc::SYS_prctl,
            [libc::PR_GET_NO_NEW_PRIVS as usize, 0, 0, 0, 0, 0],
        )
    }),
    ("dumpable", |_| {
        call(
            libc::SYS_prctl,
            [libc::PR_GET_DUMPABLE as usize, 0, 0, 0, 0, 0],
        )
    }),
    ("raise-capability", raise_capability),
    ("unshare", |arguments| {
        call(libc::SYS_unshare, [number(arguments, 0), 0, 0, 0, 0, 0])
    }),
    ("clone", clone),
    ("mount", mount),
    // First step of a control run in its own mount namespace: systemd makes the host's root shared, so mounts would
    // otherwise appear on the host.
    ("private-mounts", |_| {
        let flags = (libc::MS_REC | libc::MS_PRIVATE) as usize;
        call(libc::SYS_mount, [0, at("/\0"), 0, flags, 0, 0])
    }),
    ("unmount", |_| {
        call(
            libc::SYS_umount2,
            [at("/\0"), libc::MNT_DETACH as usize, 0, 0, 0, 0],
        )
    }),
    ("chroot", |_| {
        call(libc::SYS_chroot, [at("/\0"), 0, 0, 0, 0, 0])
    }),
    ("bpf", bpf),
    ("io-uring", io_uring),
    ("perf", perf),
    ("keyctl", keyctl),
    ("userfaultfd", |_| {
        call(
            libc::SYS_userfaultfd,
            [libc::O_CLOEXEC as usize, 0, 0, 0, 0, 0],
        )
    }),
    ("memfd", |_| {
        call(libc::SYS_memfd_create, [at("x\0"), 0, 0, 0, 0, 0])
    }),
    ("kernel-log", |_| {
        call(libc::SYS_syslog, [10, 0, 0, 0, 0, 0])
    }),
    ("host-name", host_name),
    ("set-host-name", |_| {
        call(libc::SYS_sethostname, [at("x"), 1, 0, 0, 0, 0])
    }),
    ("shared-memory", shared_memory),
    ("remove-shared-memory", remove_shared_memory),
    ("message-queue", |arguments| {
        let [key, flags] = [0, 1].map(|index| number(arguments, index));
        call(libc::SYS_msgget, [key, flags | 0o666, 0, 0, 0, 0])
    }),
    ("semaphores", |arguments| {
        let [key, flags] = [0, 1].map(|index| number(arguments, index));
        call(libc::SYS_semget, [key, 1, flags | 0o666, 0, 0, 0])
    }),
    ("posix-queue", |arguments| {
        let name = path(arguments.first().unwrap_or(&"x"));
        let flags = (libc::O_CREAT | libc::O_RDWR) as usize;
        call(libc::SYS_mq_open, [at(&name[..]), flags, 0o666, 0, 0, 0])
    }),
    ("writable-code", writable_code),
    ("set-affinity", set_affinity),
    ("count-cpus", count_cpus),
    ("raise-limit", raise_limit),
    ("own-slice", |_| schedule(0, libc::SCHED_OTHER, 0, 0)),
    ("slice-of-another", |_| schedule(1, libc::SCHED_OTHER, 0, 0)),
    ("less-nice", |_| schedule(0, libc::SCHED_OTHER, 1, 0)),
    ("real-time", |_| schedule(0, libc::SCHED_FIFO, 0, 1)),
    ("thirty-two-bit", thirty_two_bit),
];

/// Stores a secret in memory; returns its address.
fn secret(_: &[&str]) -> Answer {
    let secret = Box::leak(Box::new(*b"the secret of another instance.."));
    Ok(at(secret) as i64)
}

fn read_memory(arguments: &[&str]) -> Answer {
    let mut found = [0u8; 32];
    let local = [at_mut(&mut found), found.len()];
    let remote = [number(arguments, 1), found.len()];
    let pid = number(arguments, 0);
    call(
        libc::SYS_process_vm_readv,
        [pid, at(&local), 1, at(&remote), 1, 0],
    )?;
    Ok(i64::from(
        std::hint::black_box(&found).starts_with(b"the secret"),
    ))
}

fn trace(arguments: &[&str]) -> Answer {
    const SEIZE: usize = 0x4206;
    call(libc::SYS_ptrace, [SEIZE, number(arguments, 0), 0, 0, 0, 0])
}

fn open_with(file: &str, flags: i32) -> Answer {
    let file = path(file);
    call(
        libc::SYS_openat,
        [
            libc::AT_FDCWD as usize,
            at(&file[..]),
            flags as usize,
            0o600,
            0,
            0,
        ],
    )
}

fn open(arguments: &[&str]) -> Answer {
    open_with(arguments[0], libc::O_RDONLY)
}

fn create(arguments: &[&str]) -> Answer {
    open_with(arguments[0], libc::O_WRONLY | libc::O_CREAT)
}

fn mkdir(arguments: &[&str]) -> Answer {
    let file = path(arguments[0]);
    call(libc::SYS_mkdir, [at(&file[..]), 0o700, 0, 0, 0, 0])
}

/// Returns the number of entries of the root directory.
fn list_root(_: &[&str]) -> Answer {
    let root = open_with("/", libc::O_RDONLY | libc::O_DIRECTORY)?;
    let mut entries = [0u64; 4096];
    let buffer = [
        root as usize,
        at_mut(&mut entries),
        size_of_val(&entries),
        0,
        0,
        0,
    ];
    let bytes = call(libc::SYS_getdents64, buffer)? as usize;
    let (mut at, mut count) = (0, 0);
    let entries = std::hint::black_box(&entries);
    while at < bytes {
        // struct linux_dirent64: 8 bytes inode, 8 offset, 2 length.
        at += usize::from((entries[at / 8 + 2] & 0xffff) as u16);
        count += 1;
    }
    Ok(count - 2)
}

fn execute(arguments: &[&str]) -> Answer {
    let file = path(arguments[0]);
    let argv = [at(&file[..]), 0];
    call(
        libc::SYS_execve,
        [at(&file[..]), at(&argv), at(&argv[1]), 0, 0, 0],
    )
}

/// Executes a path by execveat with AT_EMPTY_PATH: the flag permits an empty path, a given path still counts.
fn execute_at(arguments: &[&str]) -> Answer {
    let file = path(arguments[0]);
    let argv = [at(&file[..]), 0];
    let here = libc::AT_FDCWD as usize;
    let empty = libc::AT_EMPTY_PATH as usize;
    call(
        libc::SYS_execveat,
        [here, at(&file[..]), at(&argv), at(&argv[1]), empty, 0],
    )
}

/// Maps the page at address 0, the path address that the filter allows for execveat.
fn map_zero(_: &[&str]) -> Answer {
    let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED) as usize;
    let protection = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    call(libc::SYS_mmap, [0, 4096, protection, flags, usize::MAX, 0])
}

/// Maps the file of a descriptor as shared executable memory.
fn shared_code(arguments: &[&str]) -> Answer {
    let protection = (libc::PROT_READ | libc::PROT_EXEC) as usize;
    let fd = number(arguments, 0);
    let flags = libc::MAP_SHARED as usize;
    call(libc::SYS_mmap, [0, 4096, protection, flags, fd, 0]).map(|_| 0)
}

/// `descriptor:level:option`
fn getsockopt(arguments: &[&str]) -> Answer {
    let [fd, level, option] = [0, 1, 2].map(|index| number(arguments, index));
    let (mut value, mut length) = ([0u32; 8], [32u32]);
    let value = at_mut(&mut value);
    call(
        libc::SYS_getsockopt,
        [fd, level, option, value, at_mut(&mut length), 0],
    )
}

/// `family:type:protocol`
fn socket(arguments: &[&str]) -> Answer {
    let [family, kind, protocol] = [0, 1, 2].map(|index| number(arguments, index));
    call(libc::SYS_socket, [family, kind, protocol, 0, 0, 0])
}

/// An abstract address and its length.
fn abstract_address(name: &str) -> (libc::sockaddr_un, usize) {
    let mut path = [0; 108];
    for (to, from) in path[1..].iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    let address = libc::sockaddr_un {
        sun_family: libc::AF_UNIX as u16,
        sun_path: path,
    };
    (address, 3 + name.len())
}

fn connect_abstract(arguments: &[&str]) -> Answer {
    let socket = socket(&["1", "2"])?;
    let (address, length) = abstract_address(arguments[0]);
    call(
        libc::SYS_connect,
        [socket as usize, at(&address), length, 0, 0, 0],
    )
}

/// Sends to an abstract address over an inherited datagram socket: `descriptor:name`.
fn send_abstract(arguments: &[&str]) -> Answer {
    let (address, length) = abstract_address(arguments[1]);
    call(
        libc::SYS_sendto,
        [number(arguments, 0), at("x"), 1, 0, at(&address), length],
    )
}

/// Connects an inherited socket to a loopback port: `descriptor:port`.
fn connect_tcp(arguments: &[&str]) -> Answer {
    let port = (number(arguments, 1) as u16).to_be_bytes();
    let address: [u8; 16] = [2, 0, port[0], port[1], 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
    call(
        libc::SYS_connect,
        [number(arguments, 0), at(&address), 16, 0, 0, 0],
    )
}

/// `descriptor:level:option`
fn setsockopt(arguments: &[&str]) -> Answer {
    let value = 1i32;
    let [fd, level, option] = [0, 1, 2].map(|index| number(arguments, index));
    call(libc::SYS_setsockopt, [fd, level, option, at(&value), 4, 0])
}

fn signal(arguments: &[&str]) -> Answer {
    call(
        libc::SYS_kill,
        [number(arguments, 0), number(arguments, 1), 0, 0, 0, 0],
    )
}

/// Returns how many of the first process ids exist. EPERM from the filter says nothing about the process.
fn count_processes(_: &[&str]) -> Answer {
    let is_process =
        |pid: &usize| call(libc::SYS_kill, [*pid, 0, 0, 0, 0, 0]) != Err(Errno(libc::ESRCH));
    Ok((1..100_000).filter(is_process).count() as i64)
}

/// All capabilities of all three sets, or-ed.
fn capabilities(_: &[&str]) -> Answer {
    let header = [0x2008_0522u32, 0];
    let mut sets = [0u32; 6];
    call(
        libc::SYS_capget,
        [at(&header), at_mut(&mut sets), 0, 0, 0, 0],
    )?;
    let sets = std::hint::black_box(&sets);
    Ok(i64::from(sets.iter().fold(0, |all, set| all | set)))
}

/// Returns the number of capabilities in the bounding set.
fn bounding(_: &[&str]) -> Answer {
    let read = libc::PR_CAPBSET_READ as usize;
    let has = |capability: &usize| call(libc::SYS_prctl, [read, *capability, 0, 0, 0, 0]) == Ok(1);
    // Fails here if the bounding set cannot be read.
    call(libc::SYS_prctl, [read, 0, 0, 0, 0, 0])?;
    Ok((0..64).filter(has).count() as i64)
}

/// Asks for CAP_NET_RAW.
fn raise_capability(_: &[&str]) -> Answer {
    let header = [0x2008_0522u32, 0];
    let wanted = [1u32 << 13, 1 << 13, 1 << 13, 0, 0, 0];
    call(libc::SYS_capset, [at(&header), at(&wanted), 0, 0, 0, 0])
}

/// Forks with these flags; the child exits at once.
fn clone(arguments: &[&str]) -> Answer {
    let flags = number(arguments, 0) | libc::SIGCHLD as usize;
    let pid = call(libc::SYS_clone, [flags, 0, 0, 0, 0, 0])?;
    if pid == 0 {
        call(libc::SYS_exit_group, [0; 6])?;
    }
    call(libc::SYS_wait4, [pid as usize, 0, 0, 0, 0, 0])
}

fn mount(arguments: &[&str]) -> Answer {
    let place = path(arguments[0]);
    let kind = at("tmpfs\0");
    call(libc::SYS_mount, [kind, at(&place[..]), kind, 0, 0, 0])
}

/// BPF_MAP_CREATE of an array of one.
fn bpf(_: &[&str]) -> Answer {
    let attributes = [2u32, 4, 4, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    call(
        libc::SYS_bpf,
        [0, at(&attributes), size_of_val(&attributes), 0, 0, 0],
    )
}

fn io_uring(_: &[&str]) -> Answer {
    let mut parameters = [0u8; 120];
    call(
        libc::SYS_io_uring_setup,
        [1, at_mut(&mut parameters), 0, 0, 0, 0],
    )
}

/// Counts all page faults of CPU 0: PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS.
fn perf(_: &[&str]) -> Answer {
    let mut attributes = [0u32; 28];
    attributes[0] = 1;
    attributes[1] = 112;
    attributes[2] = 2;
    call(
        libc::SYS_perf_event_open,
        [at(&attributes), usize::MAX, 0, usize::MAX, 0, 0],
    )
}

/// KEYCTL_JOIN_SESSION_KEYRING.
fn keyctl(_: &[&str]) -> Answer {
    call(libc::SYS_keyctl, [1, 0, 0, 0, 0, 0])
}

/// Returns 1 if the argument is the host name.
fn host_name(arguments: &[&str]) -> Answer {
    let mut names = [0u8; 6 * 65];
    call(libc::SYS_uname, [at_mut(&mut names), 0, 0, 0, 0, 0])?;
    let names = std::hint::black_box(&names);
    let wanted = path(arguments[0]);
    Ok(i64::from(names[65..].starts_with(&wanted)))
}

/// Opens the segment of this key, with these flags.
fn shared_memory(arguments: &[&str]) -> Answer {
    let [key, flags] = [0, 1].map(|index| number(arguments, index));
    call(libc::SYS_shmget, [key, 4096, flags | 0o666, 0, 0, 0])
}

fn remove_shared_memory(arguments: &[&str]) -> Answer {
    let segment = shared_memory(arguments)?;
    call(
        libc::SYS_shmctl,
        [segment as usize, libc::IPC_RMID as usize, 0, 0, 0, 0],
    )
}

/// A mapping that is writable and executable.
fn writable_code(_: &[&str]) -> Answer {
    let protection = (libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC) as usize;
    let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as usize;
    call(libc::SYS_mmap, [0, 4096, protection, flags, usize::MAX, 0]).map(|_| 0)
}

/// Asks for every CPU.
fn set_affinity(_: &[&str]) -> Answer {
    let all = [u64::MAX; 16];
    call(
        libc::SYS_sched_setaffinity,
        [0, size_of_val(&all), at(&all), 0, 0, 0],
    )
}

/// Sets the scheduling of a thread: slice 1 ms, this policy, niceness lowered by `less_nice`, and this priority.
fn schedule(thread: usize, policy: i32, less_nice: i32, priority: u32) -> Answer {
    // As struct sched_attr (linux/sched/types.h): size and policy, flags, niceness and priority, slice, and more.
    let mut attributes = [0u64; 6];
    let size = size_of_val(&attributes);
    call(
        libc::SYS_sched_getattr,
        [0, at_mut(&mut attributes), size, 0, 0, 0],
    )?;
    let words = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
    let nice = (std::hint::black_box(&attributes)[2] as u32).cast_signed() - less_nice;
    let wanted = [
        words(size as u32, policy.cast_unsigned()),
        0,
        words(nice.cast_unsigned(), priority),
        u64::from(policy == libc::SCHED_OTHER) * 1_000_000,
        0,
        0,
    ];
    call(libc::SYS_sched_setattr, [thread, at(&wanted), 0, 0, 0, 0])
}

fn count_cpus(_: &[&str]) -> Answer {
    let mut mask = [0u64; 16];
    call(
        libc::SYS_sched_getaffinity,
        [0, size_of_val(&mask), at_mut(&mut mask), 0, 0, 0],
    )?;
    let mask = std::hint::black_box(&mask);
    Ok(mask.iter().map(|word| i64::from(word.count_ones())).sum())
}

/// Doubles the hard limit of descriptors.
fn raise_limit(_: &[&str]) -> Answer {
    let mut limit = [0u64; 2];
    let resource = libc::RLIMIT_NOFILE as usize;
    call(
        libc::SYS_prlimit64,
        [0, resource, 0, at_mut(&mut limit), 0, 0],
    )?;
    let doubled = std::hint::black_box(&limit).map(|value| value * 2);
    call(libc::SYS_prlimit64, [0, resource, at(&doubled), 0, 0, 0])
}

/// Calls getpid by the 32-bit system call entry (int 0x80), where the numbers mean other calls.
#[cfg(target_arch = "x86_64")]
fn thirty_two_bit(_: &[&str]) -> Answer {
    crate::kernel::call_32_bit(20).map(i64::from)
}

#[cfg(not(target_arch = "x86_64"))]
fn thirty_two_bit(_: &[&str]) -> Answer {
    Err(Errno(libc::ENOSYS))
}
