//! Programs on a network stack of their own: they have sockets, and reach nothing more by them.

use super::*;
use nfluid_sandbox::Capabilities;

/// All capabilities that can be had.
fn all() -> Capabilities {
    let mut all = Capabilities::default();
    assert!(Capabilities::names().all(|name| all.add(name)));
    all
}

fn with(capabilities: Capabilities) -> Setup<'static> {
    Setup {
        own_stack: Some(capabilities),
        ..Setup::default()
    }
}

// promise: 19.2
#[test]
fn sockets_reach_no_other_network_and_no_switch() {
    let Some(sandboxes) = Sandboxes::new("sockets_reach_no_other_network_and_no_switch") else {
        return;
    };
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let name = format!("nfluid-test-own-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let _host = UnixDatagram::bind_addr(&address).unwrap();
    let connect = format!("connect-tcp:4:{port}");
    let abstract_socket = format!("connect-abstract:{name}");
    let hyperio = format!("setsockopt:4:{LEVEL}:1");
    let buffer = format!("setsockopt:4:{}:{}", libc::SOL_SOCKET, libc::SO_SNDBUF);
    let attempts = [
        "socket:2:1",
        &connect,
        &hyperio,
        &buffer,
        &abstract_socket,
        "socket:40:1",
        "socket:38:5",
        "socket:17:3",
    ];
    for capabilities in [Capabilities::default(), all()] {
        let (report, ended) = sandboxes.run(&attempts, with(capabilities));
        assert_eq!(report.of("socket:2:1"), Done(4));
        let answer = report.of(&connect);
        assert!(
            matches!(answer, Refused(libc::ENETUNREACH | libc::ECONNREFUSED)),
            "{answer:?}"
        );
        assert_eq!(report.of(&hyperio), Refused(libc::EPERM));
        assert_eq!(report.of(&buffer), Done(0));
        assert_eq!(report.of(&abstract_socket), Refused(libc::ECONNREFUSED));
        for kind in ["socket:40:1", "socket:38:5"] {
            assert_eq!(report.of(kind), Refused(libc::EPERM), "{kind}");
        }
        let raw = report.of("socket:17:3");
        match capabilities == all() {
            true => assert!(matches!(raw, Done(_)), "{raw:?}"),
            false => assert_eq!(raw, Refused(libc::EPERM)),
        }
        assert_eq!(ended, Ended::Exited(0));
    }
}

// promise: 19.3
#[test]
fn it_has_what_was_asked_for_and_cannot_get_more() {
    let test = "it_has_what_was_asked_for_and_cannot_get_more";
    let Some(sandboxes) = Sandboxes::new(test) else {
        return;
    };
    let mut one = Capabilities::default();
    assert!(one.add("NET_BIND_SERVICE"));
    let attempts = [
        "capabilities",
        "bounding",
        "raise-capability",
        "become-root",
    ];
    // NET_BIND_SERVICE, NET_ADMIN and NET_RAW are 10, 12 and 13.
    for (capabilities, sets, bounding) in [
        (Capabilities::default(), 0, 0),
        (one, 1 << 10, 1),
        (all(), 0b1101 << 10, 3),
    ] {
        let (report, _) = sandboxes.run(&attempts, with(capabilities));
        assert_eq!(report.of("capabilities"), Done(sets), "{capabilities}");
        assert_eq!(report.of("bounding"), Done(bounding), "{capabilities}");
        if capabilities != all() {
            assert_eq!(report.of("raise-capability"), Refused(libc::EPERM));
        }
        let root = report.of("become-root");
        assert!(
            matches!(root, Refused(libc::EINVAL | libc::EPERM)),
            "{root:?}"
        );
    }
    // Not even with all of them.
    for attempt in [
        "mount:/tmp",
        "unmount",
        "chroot",
        "bpf",
        "trace:1",
        "unshare:1073741824",
    ] {
        let (report, ended) = sandboxes.run(&[attempt], with(all()));
        assert_eq!(report.of(attempt), Fatal, "{attempt}");
        assert_eq!(ended, KILLED_BY_FILTER, "{attempt}");
    }
    let refused = ["set-affinity", "perf", "io-uring", "execute:/usr/bin/true"];
    let (report, _) = sandboxes.run(&refused, with(all()));
    for attempt in refused {
        assert_eq!(report.of(attempt), Refused(libc::EPERM), "{attempt}");
    }
}

// promise: 19.2
#[test]
fn it_writes_in_its_own_directories_alone() {
    let Some(sandboxes) = Sandboxes::new("it_writes_in_its_own_directories_alone") else {
        return;
    };
    let own = [
        "create:/tmp/x",
        "mkdir:/run/x",
        "create:/run/x/y",
        "open:/dev/null",
    ];
    let others = [
        "create:/x",
        "create:/usr/lib/x",
        "create:/dev/x",
        "mkdir:/dev/x",
        "open:/etc/passwd",
        "open:/proc/self/mem",
        "open:/dev/kvm",
        "open:/dev/sda",
        "open:/sys/kernel",
    ];
    for setup in [
        with(all()),
        Setup {
            filter: false,
            ..with(all())
        },
        Setup {
            landlock: false,
            ..with(all())
        },
    ] {
        let attempts: Vec<&str> = own.iter().chain(&others).copied().collect();
        let (report, ended) = sandboxes.run(&attempts, setup);
        for attempt in own {
            let answer = report.of(attempt);
            assert!(matches!(answer, Done(_)), "{attempt}: {answer:?}");
        }
        for attempt in others {
            let answer = report.of(attempt);
            let expected = [libc::EROFS, libc::EACCES, libc::ENOENT, libc::EPERM].map(Refused);
            assert!(expected.contains(&answer), "{attempt}: {answer:?}");
        }
        assert_eq!(ended, Ended::Exited(0));
    }
}
