//! Programs on DPDK: they see which CPUs there are, and reach nothing more by that.

use super::*;

const CPUS: &str = "open:/sys/devices/system/cpu/online";

fn setup() -> Setup<'static> {
    Setup {
        dpdk: true,
        ..Setup::default()
    }
}

// promise: 21.5
#[test]
fn a_hostile_program_on_dpdk_reads_which_cpus_there_are_and_changes_nothing() {
    let test = "a_hostile_program_on_dpdk";
    let Some(sandboxes) = Sandboxes::new(test) else {
        return;
    };
    let missing = [
        "open:/sys/kernel",
        "open:/sys/devices/system/cpu/../../../kernel",
        "open:/etc/passwd",
        "open:/proc/self/mem",
    ];
    let changes = [
        "create:/x",
        "create:/usr/lib/x",
        "create:/sys/module/x",
        "mkdir:/sys/module/x",
        "create:/sys/devices/system/cpu/cpu1/online",
        "create:/sys/devices/system/node/x",
        "socket:2:1",
        "execute:/usr/bin/true",
    ];
    let attempts: Vec<&str> = [CPUS].into_iter().chain(missing).chain(changes).collect();
    let (report, ended) = sandboxes.run(&attempts, setup());
    assert!(matches!(report.of(CPUS), Done(_)), "{report:?}");
    for attempt in missing {
        assert_eq!(report.of(attempt), Refused(libc::ENOENT), "{attempt}");
    }
    for attempt in changes {
        assert_eq!(report.of(attempt), Refused(libc::EPERM), "{attempt}");
    }
    assert_eq!(ended, Ended::Exited(0));
    // It is told that it was pinned.
    let (report, _) = sandboxes.run(&["set-affinity"], setup());
    assert_eq!(report.of("set-affinity"), Done(0));
    for attempt in ["bpf", "trace:1", "mount:/tmp", "unshare:1073741824"] {
        let (report, ended) = sandboxes.run(&[attempt], setup());
        assert_eq!(report.of(attempt), Fatal, "{attempt}");
        assert_eq!(ended, KILLED_BY_FILTER, "{attempt}");
    }
    // Without the filter, Landlock; without both, views that are read-only.
    let host = [
        "create:/x",
        "create:/usr/lib/x",
        "create:/sys/devices/system/cpu/cpu1/online",
        "create:/sys/devices/system/node/x",
    ];
    for landlock in [true, false] {
        let setup = Setup {
            filter: false,
            landlock,
            ..setup()
        };
        let (report, _) = sandboxes.run(&host, setup);
        for attempt in host {
            let answer = report.of(attempt);
            let expected = matches!(answer, Refused(libc::EACCES | libc::EROFS | libc::EPERM));
            assert!(expected, "{attempt}: {answer:?}, Landlock: {landlock}");
        }
    }
}
