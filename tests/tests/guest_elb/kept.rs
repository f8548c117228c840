//! Connections that are kept, and those that are not: forgotten halves, ports that are used once more, a restart.

use super::*;

/// Half a connection that is forgotten for want of room is entered again while the other half is known.
// promise: 15.70
#[test]
fn answers_are_translated_as_long_as_the_client_is_heard() {
    if !is_root("answers_are_translated_as_long_as_the_client_is_heard") {
        return;
    }
    let mut fixture = Fixture::new("half", Mode::Translate, Hook::Xdp);
    let clients = clients(1000..1020);
    // Others' connections push out unused entries, the return entries among them; 1000 have room.
    let others = (2000..4500).map(|port| format!("10.0.0.3:{port}"));
    let others: Vec<String> = others.collect();
    for some in others.chunks(250) {
        for other in some {
            fixture.server_of(other);
        }
        // The entry that the CPU remembers is void: the table is asked.
        look_again(&mut fixture);
        for client in &clients {
            fixture.server_of(client);
        }
    }
    look_again(&mut fixture);
    for client in &clients {
        let server = fixture.server_of(client);
        let (action, packet) = fixture.pass(&arriving(server, client, 1));
        assert_eq!(action, Action::Send, "{client}");
        assert_eq!(packet, leaving(SERVICE, client, 0));
    }
}

fn look_again(fixture: &mut Fixture) {
    let up = server(SERVERS[0], State::Up);
    fixture.balancer.set_server(0, up).expect("entered");
}

// promise: 15.70
#[test]
fn a_draining_server_gets_no_connection_of_a_port_that_is_used_once_more() {
    if !is_root("a_draining_server_gets_no_connection_of_a_port_that_is_used_once_more") {
        return;
    }
    let mut fixture = Fixture::new("again", Mode::Translate, Hook::Xdp);
    let clients = clients(1000..1030);
    let servers = fixture.servers_of(&clients);
    let draining = server(SERVERS[0], State::Draining);
    fixture.balancer.set_server(0, draining).expect("entered");
    let all = service(Mode::Translate, [1, 1, 1]);
    fixture.balancer.set_service(0, &all).expect("entered");
    for (client, server) in clients.iter().zip(servers) {
        assert_eq!(fixture.server_of(client), server, "{client}");
        // The entry that the CPU remembers is void: the table is asked.
        fixture.balancer.set_server(0, draining).expect("entered");
        let first = Frame::tcp(at(client), at(SERVICE), TcpFlags::SYN);
        let (action, _) = fixture.pass(&bytes(first.macs(HOSTS[0], OWN[0])));
        assert_eq!(action, Action::Send, "{client}");
        let now = fixture.server_of(client);
        assert!(
            now != SERVERS[0] && (server == SERVERS[0] || server == now),
            "{client}"
        );
    }
}

// promise: 15.11
#[test]
fn connections_survive_a_restart() {
    if !is_root("connections_survive_a_restart") {
        return;
    }
    let mut fixture = Fixture::new("kept", Mode::Translate, Hook::Xdp);
    let folder = tempfile::tempdir().expect("a folder");
    let mount_flags = rustix::mount::MountFlags::empty();
    rustix::mount::mount("bpf", folder.path(), "bpf", mount_flags, None).expect("root may");
    let _mounted = Mounted(folder.path());
    let fill = |balancer: &mut Balancer, weights| {
        for (number, at) in (0..).zip(SERVERS) {
            let server = server(at, State::Up);
            balancer.set_server(number, server).expect("entered");
        }
        let service = service(Mode::Translate, weights);
        balancer.set_service(0, &service).expect("entered");
    };
    fixture.balancer = Balancer::load_kept(1000, folder.path()).expect("made");
    fixture.chain = at_hook(&fixture.balancer, Hook::Xdp);
    fill(&mut fixture.balancer, [1, 1, 1]);
    let clients = clients(1000..1100);
    let servers = fixture.servers_of(&clients);
    fixture.balancer = Balancer::load_kept(1000, folder.path()).expect("taken over");
    // A connection is known wherever its packets come in.
    fixture.chain = at_hook(&fixture.balancer, Hook::Tc);
    for (client, server) in clients.iter().zip(&servers) {
        assert_eq!(fixture.server_of(client), *server, "as it was left");
        let (_, back) = fixture.pass(&arriving(server, client, 1));
        assert_eq!(back, leaving(SERVICE, client, 0));
    }
    // The balancer knows its servers, and accepts further changes.
    fixture
        .balancer
        .set_service(0, &service(Mode::Translate, [0, 1, 1]))
        .expect("entered");
    assert_eq!(fixture.server_of(&clients[0]), servers[0]);
    for port in 3000..3050 {
        assert_ne!(fixture.server_of(&format!("10.0.0.3:{port}")), SERVERS[0]);
    }
    // Tables of another size are not taken for these.
    let why = Balancer::load_kept(2000, folder.path()).expect_err("another size");
    assert!(why.to_string().contains("loading"), "{why}");
}

struct Mounted<'a>(&'a std::path::Path);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _gone = rustix::mount::unmount(self.0, rustix::mount::UnmountFlags::DETACH);
    }
}
