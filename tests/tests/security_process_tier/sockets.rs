//! Sockets: an instance makes none, and reaches no network.

use super::*;

// promise: 3.5
#[test]
fn no_socket_of_any_kind_can_be_made() {
    let Some(sandboxes) = Sandboxes::new("no_socket_of_any_kind_can_be_made") else {
        return;
    };
    // inet, inet6, unix, netlink, packet, vsock; stream, datagram, raw.
    let kinds = [
        "socket:2:1",
        "socket:2:2",
        "socket:2:3:1",
        "socket:10:1",
        "socket:1:1",
        "socket:16:3",
        "socket:17:3",
    ];
    assert_refused(&sandboxes, &kinds, libc::EPERM);
    // Without the filter they can, but raw ones not, and no host is reachable: the namespace is empty.
    for raw in ["socket:2:3:1", "socket:17:3"] {
        assert_eq!(
            without_filter(&sandboxes, raw),
            Refused(libc::EPERM),
            "{raw}"
        );
    }
    let control = sandboxes.outside(&kinds[..6]);
    assert!(
        kinds[..6]
            .iter()
            .all(|kind| matches!(control.of(kind), Done(_))),
        "{control:?}"
    );
}

// promise: 3.5
#[test]
fn the_hosts_network_is_out_of_reach() {
    let Some(sandboxes) = Sandboxes::new("the_hosts_network_is_out_of_reach") else {
        return;
    };
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let connect = format!("connect-tcp:4:{port}");
    // Without the filter, an instance that makes a socket is alone in its network namespace.
    let own = ["socket:2:1", connect.as_str()];
    let (report, _) = sandboxes.run(&own, Setup::without_filter());
    assert_eq!(report.of("socket:2:1"), Done(4));
    assert!(matches!(report.of(&connect), Refused(_)));

    // Even with an unconnected socket of the host's network, handed over by mistake.
    let leaked = || rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    let socket = leaked();
    let fds = [(socket.as_fd(), 4)];
    let setup = Setup {
        fds: &fds,
        ..Setup::default()
    };
    assert_eq!(
        sandboxes.run(&[&connect], setup).0.of(&connect),
        Refused(libc::EPERM)
    );
    let sandboxed = sandboxes.start(
        &[&connect],
        Setup {
            filter: false,
            ..setup
        },
    );
    let abi = sandboxed.barriers.landlock_abi.unwrap_or(0);
    let (report, _) = sandboxed.finish();
    if abi >= 4 {
        assert_eq!(
            report.of(&connect),
            Refused(libc::EACCES),
            "Landlock refuses TCP"
        );
    }
    // The control: this socket, without the barriers, does reach the host.
    let socket = leaked();
    let fds = [(socket.as_fd(), 4)];
    let setup = Setup {
        filter: false,
        landlock: false,
        fds: &fds,
        ..Setup::default()
    };
    assert_eq!(sandboxes.run(&[&connect], setup).0.of(&connect), Done(0));
}

// promise: 3.5
#[test]
fn abstract_sockets_of_the_host_are_out_of_reach() {
    let Some(sandboxes) = Sandboxes::new("abstract_sockets_of_the_host_are_out_of_reach") else {
        return;
    };
    let name = format!("nfluid-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let host = UnixDatagram::bind_addr(&address).unwrap();
    let connect = format!("connect-abstract:{name}");
    assert_refused(&sandboxes, &[&connect], libc::EPERM);
    assert_eq!(
        without_filter(&sandboxes, &connect),
        Refused(libc::ECONNREFUSED)
    );

    // A datagram socket of the host's namespace, handed over by mistake: the filter allows no address to send to.
    let socket: OwnedFd = UnixDatagram::unbound().unwrap().into();
    let fds = [(socket.as_fd(), 4)];
    let setup = Setup {
        fds: &fds,
        ..Setup::default()
    };
    let send = format!("send-abstract:4:{name}");
    assert_eq!(
        sandboxes.run(&[&send], setup).0.of(&send),
        Refused(libc::EPERM)
    );
    let sandboxed = sandboxes.start(
        &[&send],
        Setup {
            filter: false,
            ..setup
        },
    );
    let abi = sandboxed.barriers.landlock_abi.unwrap_or(0);
    let (report, _) = sandboxed.finish();
    if abi >= 6 {
        assert_eq!(
            report.of(&send),
            Refused(libc::EPERM),
            "Landlock refuses abstract sockets"
        );
    }
    let open = Setup {
        filter: false,
        landlock: false,
        ..setup
    };
    assert_eq!(
        sandboxes.run(&[&send], open).0.of(&send),
        Done(1),
        "the control"
    );
    assert_eq!(
        sandboxes.outside(&[&connect]).of(&connect),
        Done(0),
        "the control"
    );
    drop(host);
}

// promise: 3.5
#[test]
fn a_shared_network_namespace_is_still_empty_and_still_shut() {
    let test = "a_shared_network_namespace_is_still_empty_and_still_shut";
    let Some(sandboxes) = Sandboxes::new(test) else {
        return;
    };
    let shared = EmptyNetNs::create().unwrap();
    let setup = Setup {
        net: NetNs::Shared(shared.as_fd()),
        ..Setup::default()
    };
    let sandboxed = sandboxes.start(&["socket:1:1", "pid"], setup);
    assert!(!sandboxed.barriers.own_network);
    let (report, ended) = sandboxed.finish();
    assert_eq!(report.of("socket:1:1"), Refused(libc::EPERM));
    assert_eq!(ended, Ended::Exited(0));
    // The file belongs to the host's user namespace: no way to become privileged in it.
    let open = Setup {
        filter: false,
        ..setup
    };
    let (report, _) = sandboxes.run(&["socket:17:3"], open);
    assert_eq!(report.of("socket:17:3"), Refused(libc::EPERM));
}

// promise: 3.10, 3.19
#[test]
fn the_hyperio_call_is_the_only_socket_option() {
    let Some(sandboxes) = Sandboxes::new("the_hyperio_call_is_the_only_socket_option") else {
        return;
    };
    let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
    let fds = [(socket.as_fd(), 4)];
    let setup = Setup {
        fds: &fds,
        ..Setup::default()
    };
    let hyperio = format!("setsockopt:4:{LEVEL}:1");
    let buffer = format!("setsockopt:4:{}:{}", libc::SOL_SOCKET, libc::SO_SNDBUF);
    let kind = format!("getsockopt:4:{}:{}", libc::SOL_SOCKET, libc::SO_TYPE);
    let peer = format!("getsockopt:4:{}:{}", libc::SOL_SOCKET, libc::SO_PEERSEC);
    let (report, _) = sandboxes.run(&[&hyperio, &buffer, &kind, &peer], setup);
    assert_eq!(report.of(&kind), Done(0), "what a socket is can be asked");
    assert_eq!(report.of(&peer), Refused(libc::EPERM));
    // Without the platform's program on it, the kernel knows no such level.
    let answer = report.of(&hyperio);
    assert!(
        matches!(answer, Refused(libc::ENOPROTOOPT | libc::EOPNOTSUPP)),
        "{answer:?}"
    );
    assert_eq!(report.of(&buffer), Refused(libc::EPERM));
    let before = sockopt::socket_send_buffer_size(&socket).unwrap();
    let open = Setup {
        filter: false,
        ..setup
    };
    assert_eq!(
        sandboxes.run(&[&buffer], open).0.of(&buffer),
        Done(0),
        "the control"
    );
    assert_ne!(sockopt::socket_send_buffer_size(&socket).unwrap(), before);
}
