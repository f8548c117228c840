//! The compiled filter against the tables: a small interpreter of classic BPF runs it as the kernel does.

use super::allowed::{
    ALWAYS, COMPONENTS, CONNECTIONS, LOADER, MESSAGE_SOCKETS, OWN_NETWORK, PROCESSES, PROGRAMS,
    STRICT, THREADS_ONLY,
};
use super::compile::{is_fatal, tables};
use super::hostile::HOSTILE;
use super::rule::When;
use super::{Filter, Policy};
use crate::accelerator::Accelerator;
use crate::elf::Linkage;
use proptest::prelude::*;

const ALLOW: u32 = 0x7fff_0000;
const KILL: u32 = 0x8000_0000;
const ERRNO: u32 = 0x0005_0000;
const EPERM: u32 = ERRNO | 1;
const ENOSYS: u32 = ERRNO | 38;
const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;
const LEVEL: u32 = 0x4e46;

fn strict() -> Policy {
    Policy::new(&Linkage::Static, LEVEL)
}

fn loader() -> Policy {
    let interpreter = "/lib64/ld-linux-x86-64.so.2".into();
    Policy::new(&Linkage::Dynamic { interpreter }, LEVEL)
}

/// Returns the kernel's answer to a call. Panics on an instruction that the compiler never makes.
fn verdict_on(filter: &Filter, arch: u32, number: i64, arguments: [u64; 6]) -> u32 {
    let mut data = [0u8; 64];
    data[0..4].copy_from_slice(&(number as u32).to_le_bytes());
    data[4..8].copy_from_slice(&arch.to_le_bytes());
    for (bytes, argument) in data[16..].chunks_mut(8).zip(arguments) {
        bytes.copy_from_slice(&argument.to_le_bytes());
    }
    let program: Vec<_> = filter.instructions().collect();
    let (mut at, mut a) = (0usize, 0u32);
    loop {
        let (code, jt, jf, k) = program[at];
        at += 1;
        let jump = |taken: bool| usize::from(if taken { jt } else { jf });
        match code {
            0x20 => a = u32::from_le_bytes(data[k as usize..][..4].try_into().unwrap()),
            0x54 => a &= k,
            0x05 => at += k as usize,
            0x15 => at += jump(a == k),
            0x25 => at += jump(a > k),
            0x35 => at += jump(a >= k),
            0x06 => return k,
            _ => panic!("instruction {code:#x}"),
        }
    }
}

fn verdict(filter: &Filter, number: i64, arguments: [u64; 6]) -> u32 {
    verdict_on(filter, AUDIT_ARCH_X86_64, number, arguments)
}

/// Returns the verdict by the tables, worked out without the compiler.
fn expected(policy: &Policy, number: i64, arguments: [u64; 6]) -> u32 {
    let is_hostile = HOSTILE.iter().any(|(hostile, _)| *hostile == number);
    if is_hostile && is_fatal(policy, number) {
        return KILL;
    }
    if number == libc::SYS_clone3 {
        return ENOSYS;
    }
    if number == libc::SYS_setsockopt {
        return if (arguments[1] as u32 == LEVEL) != policy.own_network {
            ALLOW
        } else {
            EPERM
        };
    }
    let tables = tables(policy);
    let entry = tables
        .iter()
        .flat_map(|table| table.iter())
        .rfind(|entry| entry.number == number);
    let allowed = entry.is_some_and(|entry| match entry.when {
        When::Always => true,
        When::AnyOf(alternatives) => alternatives.iter().any(|tests| {
            tests.iter().all(|test| {
                let width = if test.wide {
                    u64::MAX
                } else {
                    u64::from(u32::MAX)
                };
                let argument = arguments[usize::from(test.argument)] & width;
                argument & test.mask == test.value
            })
        }),
    });
    if allowed { ALLOW } else { EPERM }
}

#[test]
fn every_entry_has_a_reason_and_appears_once() {
    let tables = [
        ALWAYS,
        LOADER,
        STRICT,
        PROCESSES,
        COMPONENTS,
        THREADS_ONLY,
        CONNECTIONS,
        MESSAGE_SOCKETS,
        OWN_NETWORK,
        PROGRAMS,
    ];
    for table in tables {
        let mut seen = std::collections::BTreeSet::new();
        for entry in table {
            assert!(entry.why.len() > 3, "call {} has no reason", entry.number);
            assert!(seen.insert(entry.number), "call {} twice", entry.number);
            assert!(HOSTILE.iter().all(|(number, _)| *number != entry.number));
        }
    }
}

// promise: 3.12
#[test]
fn the_filter_says_what_the_tables_say_for_every_number() {
    for policy in [
        strict(),
        loader(),
        strict().with_processes(),
        strict().with_components(),
        loader().with_processes().with_message_sockets(),
        strict().with_connections(),
        loader().with_handed_maps(),
        strict().with_virtual_machines(),
        loader().with_emulator(Accelerator::Tcg),
        loader().with_emulator(Accelerator::Kvm),
        loader().with_own_network(),
        strict().with_own_network().with_programs(),
    ] {
        let filter = policy.compile().unwrap();
        for number in -1..600 {
            for arguments in [[0; 6], [1; 6], [u64::MAX; 6], [7, 7, 7, 7, 7, 7]] {
                let got = verdict(&filter, number, arguments);
                let want = expected(&policy, number, arguments);
                assert_eq!(got, want, "{policy:?}: call {number} with {arguments:?}");
            }
        }
    }
}

// promise: 15.29
#[test]
fn an_instance_with_handed_maps_can_access_them_and_others_are_killed_for_it() {
    let sharing = loader().with_handed_maps().compile().unwrap();
    let alone = loader().compile().unwrap();
    let of = |filter: &Filter, command| verdict(filter, libc::SYS_bpf, [command, 1, 1, 1, 1, 1]);
    let allowed = [1, 2, 3, 4, 15];
    for command in 0..40 {
        let expected = if allowed.contains(&command) {
            ALLOW
        } else {
            EPERM
        };
        assert_eq!(of(&sharing, command), expected, "command {command}");
        assert_eq!(of(&alone, command), KILL);
    }
    // Loading a program, and getting a map by its number.
    assert_eq!((of(&sharing, 5), of(&sharing, 14)), (EPERM, EPERM));
    assert_eq!(verdict(&sharing, libc::SYS_ptrace, [0; 6]), KILL);
}

// promise: 18.12
#[test]
fn an_emulator_runs_code_that_it_writes_and_starts_nothing() {
    let emulator = loader().with_emulator(Accelerator::Tcg).compile().unwrap();
    let code = (libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC) as u64;
    for (filter, expected) in [(&emulator, ALLOW), (&loader().compile().unwrap(), EPERM)] {
        let got = verdict(filter, libc::SYS_mprotect, [0, 4096, code, 0, 0, 0]);
        assert_eq!(got, expected);
    }
    for (number, expected) in [
        (libc::SYS_fork, EPERM),
        (libc::SYS_socket, EPERM),
        (libc::SYS_io_uring_setup, EPERM),
        (libc::SYS_bpf, KILL),
        (libc::SYS_ptrace, KILL),
    ] {
        assert_eq!(verdict(&emulator, number, [1; 6]), expected, "{number}");
    }
}

// promise: 18.13
#[test]
fn an_emulator_with_kvm_runs_machines_and_no_code_of_its_own() {
    let emulator = loader().with_emulator(Accelerator::Kvm).compile().unwrap();
    let code = (libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC) as u64;
    let open = |flags: i32| [7, 7, flags as u64, 0, 0, 0];
    for (number, arguments, expected) in [
        (libc::SYS_mprotect, [0, 4096, code, 0, 0, 0], EPERM),
        (libc::SYS_ioctl, [3, 0xae80, 0, 0, 0, 0], ALLOW), // KVM_RUN
        (libc::SYS_ioctl, [3, 0x4040_ae79, 1, 0, 0, 0], ALLOW), // KVM_IOEVENTFD
        (libc::SYS_ioctl, [3, 0x4004_af00, 1, 0, 0, 0], EPERM), // vhost
        (libc::SYS_ioctl, [3, libc::TIOCSTI, 1, 0, 0, 0], EPERM),
        (libc::SYS_openat, open(libc::O_RDWR), ALLOW),
        (libc::SYS_openat, open(libc::O_RDWR | libc::O_CREAT), EPERM),
        (
            libc::SYS_openat,
            open(libc::O_WRONLY | libc::O_TRUNC),
            EPERM,
        ),
        (
            libc::SYS_openat,
            open(libc::O_RDWR | libc::O_TMPFILE),
            EPERM,
        ),
        (libc::SYS_bpf, [1; 6], KILL),
        (libc::SYS_fork, [0; 6], EPERM),
    ] {
        let got = verdict(&emulator, number, arguments);
        assert_eq!(got, expected, "{number} {arguments:x?}");
    }
}

// promise: 20.7
#[test]
fn an_image_executes_programs_and_what_they_should_not_do_fails() {
    let policy = loader().with_own_network().with_programs();
    let image = policy.compile().unwrap();
    let of = |number, arguments| verdict(&image, number, arguments);
    let code = (libc::PROT_WRITE | libc::PROT_EXEC) as u64;
    assert_eq!(of(libc::SYS_execve, [1; 6]), ALLOW);
    assert_eq!(of(libc::SYS_mprotect, [0, 4096, code, 0, 0, 0]), ALLOW);
    assert_eq!(
        of(libc::SYS_setsockopt, [3, u64::from(LEVEL), 2, 0, 0, 0]),
        EPERM
    );
    for number in [
        libc::SYS_bpf,
        libc::SYS_mount,
        libc::SYS_setns,
        libc::SYS_unshare,
        libc::SYS_ptrace,
        libc::SYS_chroot,
        libc::SYS_move_mount,
        libc::SYS_userfaultfd,
        libc::SYS_keyctl,
        libc::SYS_io_uring_setup,
        libc::SYS_perf_event_open,
        libc::SYS_sched_setaffinity,
        libc::SYS_open_by_handle_at,
        libc::SYS_init_module,
    ] {
        assert_eq!(of(number, [1; 6]), EPERM, "{number}");
    }
    assert_eq!(of(libc::SYS_clone3, [1; 6]), ENOSYS);
    let namespace = libc::CLONE_NEWUSER as u64;
    assert_eq!(of(libc::SYS_clone, [namespace, 0, 0, 0, 0, 0]), EPERM);
}

// promise: 21.1
#[test]
fn a_program_on_dpdk_starts_and_pins_nothing() {
    for linkage in [loader(), strict()] {
        let filter = linkage.with_dpdk().compile().unwrap();
        let of = |number| verdict(&filter, number, [0; 6]);
        assert_eq!(of(libc::SYS_sched_setaffinity), ERRNO, "it is told: done");
        assert_eq!(of(libc::SYS_iopl), EPERM);
        assert_eq!(of(libc::SYS_ioperm), KILL);
        assert_eq!(of(libc::SYS_memfd_create), ALLOW);
        assert_eq!(of(libc::SYS_openat), ALLOW);
        let makes = [0, 0, libc::O_CREAT as u64, 0, 0, 0];
        assert_eq!(verdict(&filter, libc::SYS_openat, makes), EPERM);
        for number in [libc::SYS_socket, libc::SYS_mkdir, libc::SYS_mlockall] {
            assert_eq!(of(number), EPERM, "{number}");
        }
    }
    let other = loader().compile().unwrap();
    let pins = verdict(&other, libc::SYS_sched_setaffinity, [0; 6]);
    assert_eq!(pins, EPERM, "others are not told so");
}

// promise: 21.7
#[test]
fn a_program_on_dpdk_with_files_keeps_the_switch() {
    let filter = loader().with_dpdk().with_own_network().compile().unwrap();
    let of = |number, arguments| verdict(&filter, number, arguments);
    for level in [1, u64::from(LEVEL)] {
        assert_eq!(of(libc::SYS_setsockopt, [3, level, 2, 0, 0, 0]), ALLOW);
    }
    assert_eq!(of(libc::SYS_sched_setaffinity, [0; 6]), ERRNO);
    let unix = libc::AF_UNIX as u64;
    assert_eq!(of(libc::SYS_socket, [unix, 1, 0, 0, 0, 0]), ALLOW);
    let make = (libc::O_CREAT | libc::O_WRONLY) as u64;
    assert_eq!(of(libc::SYS_openat, [1, 1, make, 0o644, 0, 0]), ALLOW);
    assert_eq!(of(libc::SYS_openat, [1, 1, make, 0o4755, 0, 0]), EPERM);
    assert_eq!(of(libc::SYS_execve, [1, 1, 1, 0, 0, 0]), EPERM);
    assert_eq!(of(libc::SYS_mount, [1; 6]), KILL);
}

// promise: 19.2
#[test]
fn a_server_has_sockets_and_no_way_into_the_switch() {
    let server = loader().with_own_network().compile().unwrap();
    let of = |number, arguments| verdict(&server, number, arguments);
    let socket = |family: i32| of(libc::SYS_socket, [family as u64, 1, 0, 0, 0, 0]);
    for family in [
        libc::AF_INET,
        libc::AF_INET6,
        libc::AF_UNIX,
        libc::AF_NETLINK,
        libc::AF_PACKET,
    ] {
        assert_eq!(socket(family), ALLOW, "{family}");
    }
    for family in [
        libc::AF_VSOCK,
        libc::AF_ALG,
        libc::AF_XDP,
        libc::AF_BLUETOOTH,
        libc::AF_KEY,
    ] {
        assert_eq!(socket(family), EPERM, "{family}");
    }
    assert_eq!(of(libc::SYS_setsockopt, [3, 1, 2, 0, 0, 0]), ALLOW);
    assert_eq!(
        of(libc::SYS_setsockopt, [3, u64::from(LEVEL), 2, 0, 0, 0]),
        EPERM
    );
    // No file of a volume becomes a program that others are its owner by.
    let make = (libc::O_CREAT | libc::O_WRONLY) as u64;
    let temporary = (libc::O_TMPFILE | libc::O_WRONLY) as u64;
    for (mode, want) in [
        (0o755, ALLOW),
        (0o1777, ALLOW),
        (0o4755, EPERM),
        (0o2755, EPERM),
    ] {
        assert_eq!(of(libc::SYS_chmod, [1, mode, 0, 0, 0, 0]), want);
        assert_eq!(of(libc::SYS_fchmod, [1, mode, 0, 0, 0, 0]), want);
        assert_eq!(of(libc::SYS_fchmodat, [1, 1, mode, 0, 0, 0]), want);
        assert_eq!(of(libc::SYS_creat, [1, mode, 0, 0, 0, 0]), want);
        for flags in [make, temporary] {
            assert_eq!(of(libc::SYS_open, [1, flags, mode, 0, 0, 0]), want);
            assert_eq!(of(libc::SYS_openat, [1, 1, flags, mode, 0, 0]), want);
        }
        assert_eq!(
            of(libc::SYS_openat, [1, 1, 0, mode, 0, 0]),
            ALLOW,
            "no file is made"
        );
    }
    for number in [
        libc::SYS_openat2,
        libc::SYS_mknod,
        libc::SYS_mknodat,
        libc::SYS_setxattr,
        452,
    ] {
        assert_eq!(of(number, [1; 6]), EPERM, "{number}");
    }
    for number in [
        libc::SYS_bpf,
        libc::SYS_mount,
        libc::SYS_setns,
        libc::SYS_unshare,
        libc::SYS_ptrace,
    ] {
        assert_eq!(of(number, [1; 6]), KILL, "{number}");
    }
    for number in [
        libc::SYS_execve,
        libc::SYS_io_uring_setup,
        libc::SYS_sched_setaffinity,
    ] {
        assert_eq!(of(number, [1; 6]), EPERM, "{number}");
    }
    let namespaces = [libc::CLONE_NEWNET as u64, 0, 0, 0, 0, 0];
    assert_eq!(of(libc::SYS_clone, namespaces), EPERM);
}

// promise: 18.7
#[test]
fn a_monitor_makes_and_runs_machines_and_gives_them_no_devices() {
    let monitor = strict().with_virtual_machines().compile().unwrap();
    let alone = strict().compile().unwrap();
    let of = |filter: &Filter, request| verdict(filter, libc::SYS_ioctl, [3, request, 1, 1, 1, 1]);
    for (request, expected) in [
        (0xae01, ALLOW),      // KVM_CREATE_VM
        (0xae80, ALLOW),      // KVM_RUN
        (0x4020_ae46, ALLOW), // KVM_SET_USER_MEMORY_REGION
        (0xae60, EPERM),      // KVM_CREATE_IRQCHIP
        (0x4020_aee0, EPERM), // KVM_CREATE_DEVICE, KVM_SET_DEVICE_ATTR and relatives
        (0xc00c_aee0, EPERM),
        (0x4040_ae79, EPERM), // KVM_IOEVENTFD
        (libc::TIOCSTI, EPERM),
    ] {
        assert_eq!(of(&monitor, request), expected, "request {request:#x}");
        if request != libc::TIOCSTI {
            assert_eq!(of(&alone, request), EPERM, "request {request:#x}");
        }
    }
    assert_eq!(
        verdict(&monitor, libc::SYS_setitimer, [2, 1, 0, 0, 0, 0]),
        ALLOW
    );
}

// promise: 3.10
#[test]
fn the_hyperio_call_is_decided_before_the_list() {
    let filter = strict().compile().unwrap();
    let head = Filter {
        instructions: filter.instructions[..9].to_vec(),
    };
    assert_eq!(
        verdict(&head, libc::SYS_setsockopt, [3, LEVEL.into(), 0, 0, 0, 0]),
        ALLOW
    );
    for level in [0, 1, 6, 41, u64::from(LEVEL) + 1] {
        assert_eq!(
            verdict(&filter, libc::SYS_setsockopt, [3, level, 0, 0, 0, 0]),
            EPERM
        );
    }
}

#[test]
fn other_architectures_numbers_are_fatal() {
    let filter = loader().compile().unwrap();
    const AUDIT_ARCH_I386: u32 = 0x4000_0003;
    for number in [0, 54, 366] {
        assert_eq!(
            verdict_on(&filter, AUDIT_ARCH_I386, number, [LEVEL.into(); 6]),
            KILL
        );
    }
    const X32: i64 = 0x4000_0000;
    assert_eq!(verdict(&filter, X32 | libc::SYS_read, [0; 6]), EPERM);
    assert_eq!(
        verdict(&filter, X32 | libc::SYS_setsockopt, [LEVEL.into(); 6]),
        EPERM
    );
}

#[test]
fn memory_is_never_writable_and_executable() {
    let both = (libc::PROT_WRITE | libc::PROT_EXEC) as u64;
    let execute = (libc::PROT_READ | libc::PROT_EXEC) as u64;
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        let (strict, loader) = (strict().compile().unwrap(), loader().compile().unwrap());
        assert_eq!(verdict(&strict, call, [0, 0, both, 0, 0, 0]), EPERM);
        assert_eq!(verdict(&loader, call, [0, 0, both, 0, 0, 0]), EPERM);
        assert_eq!(verdict(&strict, call, [0, 0, execute, 0, 0, 0]), EPERM);
        let private = libc::MAP_PRIVATE as u64;
        let code = [0, 0, execute, private, 0, 0];
        assert_eq!(verdict(&loader, call, code), ALLOW);
        assert_eq!(verdict(&strict, call, [0, 0, 3, 0, 0, 0]), ALLOW);
    }
}

// Catches: mmap with PROT_EXEC is allowed whatever its flags are.
#[test]
fn no_shared_mapping_is_executable() {
    let loader = loader().compile().unwrap();
    let execute = (libc::PROT_READ | libc::PROT_EXEC) as u64;
    for (flags, expected) in [
        (libc::MAP_PRIVATE | libc::MAP_FIXED, ALLOW),
        (libc::MAP_SHARED, EPERM),
        (libc::MAP_SHARED_VALIDATE, EPERM),
        (libc::MAP_SHARED | libc::MAP_FIXED, EPERM),
    ] {
        let arguments = [0, 4096, execute, flags as u64, 5, 0];
        assert_eq!(verdict(&loader, libc::SYS_mmap, arguments), expected);
    }
    // A mapping without code: the memory of ports.
    let memory = [0, 4096, 3, libc::MAP_SHARED as u64, 5, 0];
    assert_eq!(verdict(&loader, libc::SYS_mmap, memory), ALLOW);
}

// Catches: the test of execveat's path is left out, so that any path goes with AT_EMPTY_PATH.
#[test]
fn a_path_at_address_0_alone_is_executed() {
    let empty = libc::AT_EMPTY_PATH as u64;
    for policy in [strict(), loader(), loader().with_processes()] {
        let filter = policy.compile().unwrap();
        let execute = |path, flags| verdict(&filter, libc::SYS_execveat, [3, path, 1, 1, flags, 0]);
        assert_eq!(execute(0, empty), ALLOW);
        assert_eq!(execute(0x7f00_0000_0000, empty), EPERM);
        assert_eq!(execute(1 << 32, empty), EPERM);
        assert_eq!(execute(0, 0), EPERM);
    }
}

// Catches: getsockopt is allowed without a test of level and option.
// promise: 3.19
#[test]
fn of_sockets_only_what_they_are_can_be_asked() {
    const SO_PEERPIDFD: i32 = 77;
    let filter = strict().compile().unwrap();
    let ask = |level: i32, option: i32| {
        let arguments = [4, level as u64, option as u64, 1, 1, 0];
        verdict(&filter, libc::SYS_getsockopt, arguments)
    };
    assert_eq!(ask(libc::SOL_SOCKET, libc::SO_ERROR), ALLOW);
    assert_eq!(ask(libc::SOL_SOCKET, libc::SO_TYPE), ALLOW);
    for (level, option) in [
        (libc::SOL_SOCKET, SO_PEERPIDFD),
        (libc::SOL_SOCKET, libc::SO_PEERSEC),
        (libc::SOL_IP, libc::SO_ERROR),
        (libc::SOL_TCP, libc::TCP_INFO),
        (LEVEL as i32, 1),
    ] {
        assert_eq!(ask(level, option), EPERM, "{level} {option}");
    }
}

#[test]
fn files_are_opened_for_reading_only() {
    let filter = loader().compile().unwrap();
    let open = |flags: i32| verdict(&filter, libc::SYS_openat, [0, 0, flags as u64, 0, 0, 0]);
    assert_eq!(
        open(libc::O_RDONLY | libc::O_CLOEXEC | libc::O_DIRECTORY),
        ALLOW
    );
    for flag in [
        libc::O_WRONLY,
        libc::O_RDWR,
        libc::O_CREAT,
        libc::O_TRUNC,
        libc::O_APPEND,
        libc::O_TMPFILE | libc::O_RDWR,
    ] {
        assert_eq!(open(flag), EPERM, "flag {flag:#o}");
    }
    let strict = strict().compile().unwrap();
    assert_eq!(verdict(&strict, libc::SYS_openat, [0; 6]), EPERM);
}

#[test]
fn threads_yes_processes_and_namespaces_no() {
    let thread = (libc::CLONE_VM
        | libc::CLONE_FS
        | libc::CLONE_FILES
        | libc::CLONE_SIGHAND
        | libc::CLONE_THREAD
        | libc::CLONE_SYSVSEM
        | libc::CLONE_SETTLS) as u64;
    let fork = libc::SIGCHLD as u64;
    let strict_filter = strict().compile().unwrap();
    let forking = strict().with_processes().compile().unwrap();
    let clone =
        |filter: &Filter, flags: u64| verdict(filter, libc::SYS_clone, [flags, 0, 0, 0, 0, 0]);
    assert_eq!(clone(&strict_filter, thread), ALLOW);
    assert_eq!(clone(&strict_filter, fork), EPERM);
    assert_eq!(clone(&forking, fork), ALLOW);
    for namespace in [libc::CLONE_NEWUSER, libc::CLONE_NEWNET, libc::CLONE_NEWNS] {
        assert_eq!(clone(&strict_filter, thread | namespace as u64), EPERM);
        assert_eq!(clone(&forking, fork | namespace as u64), EPERM);
    }
}

// promise: 31.15
#[test]
fn components_may_take_calls_away_from_themselves_and_do_nothing_else_with_filters() {
    let filter = strict().with_components().compile().unwrap();
    let seccomp = |operation: u64, flags: u64| {
        verdict(&filter, libc::SYS_seccomp, [operation, flags, 0, 0, 0, 0])
    };
    let set = u64::from(libc::SECCOMP_SET_MODE_FILTER);
    assert_eq!(seccomp(set, 0), ALLOW);
    // Of all threads, or with a descriptor that answers calls of others.
    for flags in [
        libc::SECCOMP_FILTER_FLAG_TSYNC,
        libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
    ] {
        assert_eq!(seccomp(set, flags), EPERM);
    }
    assert_eq!(seccomp(0, 0), EPERM);
    let prctl = |option: i32| verdict(&filter, libc::SYS_prctl, [option as u64, 1, 0, 0, 0, 0]);
    assert_eq!(prctl(libc::PR_SET_NO_NEW_PRIVS), ALLOW);
    assert_eq!(prctl(libc::PR_SET_SECCOMP), EPERM);
    let others = strict().with_processes().compile().unwrap();
    assert_eq!(
        verdict(&others, libc::SYS_seccomp, [set, 0, 0, 0, 0, 0]),
        EPERM
    );
}

// promise: 17.6
#[test]
fn a_connector_can_make_tcp_sockets_only() {
    let filter = strict().with_connections().compile().unwrap();
    let socket = |domain: i32, kind: i32, protocol: u64| {
        let arguments = [domain as u64, kind as u64, protocol, 0, 0, 0];
        verdict(&filter, libc::SYS_socket, arguments)
    };
    let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    for domain in [libc::AF_INET, libc::AF_INET6] {
        assert_eq!(socket(domain, libc::SOCK_STREAM | flags, 0), ALLOW);
        for (kind, protocol) in [
            (libc::SOCK_DGRAM, 0),
            (libc::SOCK_RAW, 0),
            (libc::SOCK_STREAM, libc::IPPROTO_MPTCP as u64),
        ] {
            assert_eq!(socket(domain, kind, protocol), EPERM, "{kind} {protocol}");
        }
    }
    for domain in [
        libc::AF_UNIX,
        libc::AF_NETLINK,
        libc::AF_PACKET,
        libc::AF_VSOCK,
    ] {
        assert_eq!(socket(domain, libc::SOCK_STREAM, 0), EPERM, "{domain}");
    }
    for call in [libc::SYS_bind, libc::SYS_listen, libc::SYS_sendmmsg] {
        assert_eq!(verdict(&filter, call, [0; 6]), EPERM);
    }
    let others = strict().compile().unwrap();
    assert_eq!(verdict(&others, libc::SYS_connect, [0; 6]), EPERM);
}

proptest! {
    // promise: 3.12
    #[test]
    fn the_filter_says_what_the_tables_say_for_any_arguments(
        number in 0i64..460,
        arguments in proptest::array::uniform6(prop_oneof![any::<u64>(), 0u64..64, Just(1u64 << 32)]),
    ) {
        for policy in [strict(), loader().with_processes()] {
            let filter = policy.compile().unwrap();
            prop_assert_eq!(
                verdict(&filter, number, arguments),
                expected(&policy, number, arguments)
            );
        }
    }
}
