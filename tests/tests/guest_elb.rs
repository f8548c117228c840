//! eLB's fast path, packet in, packet out: a kernel's namespace with clients on one side and servers on the other.

use nfluid_evnf::balancer::{Balancer, Exit, Mode, Server, Service, State, Transport};
use nfluid_evnf::chain::Chain;
use nfluid_evnf::hook::Hook;
use nfluid_evnf::load::{Action, Counts, Run};
use nfluid_tests::harness::oracle::Namespaces;
use nfluid_tests::harness::skip::is_root;
use nfluid_wire::build::Frame;
use nfluid_wire::{MacAddr, TcpFlags};
use std::net::SocketAddr;
use std::ops::Range;

#[path = "guest_elb/icmp.rs"]
mod icmp;
#[path = "guest_elb/kept.rs"]
mod kept;

const SERVICE: &str = "203.0.113.1:80";
const SERVERS: [&str; 3] = ["192.0.2.2:8080", "192.0.2.3:8080", "192.0.2.4:8080"];
const OWN: [MacAddr; 2] = [MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2])];
const HOSTS: [MacAddr; 2] = [MacAddr([2, 0, 0, 0, 1, 1]), MacAddr([2, 0, 0, 0, 1, 2])];

const HOOKS: [Hook; 2] = [Hook::Xdp, Hook::Tc];

struct Fixture {
    balancer: Balancer,
    /// The balancer, at the hook.
    chain: Chain,
    namespaces: Namespaces,
}

fn at(text: &str) -> SocketAddr {
    text.parse().expect("an address and a port")
}

fn server(at: &str, state: State) -> Server {
    Server {
        at: self::at(at),
        state,
    }
}

fn service(mode: Mode, weights: [u32; 3]) -> Service {
    Service {
        at: at(SERVICE),
        transport: Transport::Tcp,
        mode,
        servers: (0..).zip(weights).collect(),
    }
}

impl Fixture {
    /// Moves the calling thread to where the kernel forwards.
    fn new(name: &str, mode: Mode, hook: Hook) -> Self {
        let namespaces = Namespaces::new(&format!("{name}{hook:?}"));
        namespaces.set("net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1");
        for (port, own) in OWN.into_iter().enumerate() {
            namespaces.join(port, own);
        }
        let mut batch = String::from("addr add 10.0.0.1/24 dev n0\naddr add 192.0.2.1/24 dev n1\n");
        for host in 2..6 {
            batch += &format!(
                "neigh add 10.0.0.{host} lladdr {} dev n0 nud permanent\n\
                 neigh add 192.0.2.{host} lladdr {} dev n1 nud permanent\n",
                HOSTS[0], HOSTS[1]
            );
        }
        namespaces.kernel.ip_batch(&batch).expect("addresses");
        namespaces.kernel.enter().expect("root may");
        let mut balancer = Balancer::load(1000).expect("the kernel takes it");
        for (number, at) in (0..).zip(SERVERS) {
            balancer
                .set_server(number, server(at, State::Up))
                .expect("it is entered");
        }
        balancer
            .set_service(0, &service(mode, [1, 1, 1]))
            .expect("it is entered");
        Fixture {
            chain: at_hook(&balancer, hook),
            balancer,
            namespaces,
        }
    }

    fn pass(&mut self, packet: &[u8]) -> (Action, Vec<u8>) {
        outcome(self.chain.test_run(packet, 1).expect("it runs"))
    }

    /// The server that a client's packet goes to, as it has to look then.
    fn server_of(&mut self, client: &str) -> &'static str {
        let (action, packet) = self.pass(&arriving(client, SERVICE, 0));
        assert_eq!(
            action,
            Action::Send,
            "{client}: {:?}",
            self.balancer.exits()
        );
        let found = SERVERS
            .into_iter()
            .find(|server| packet == leaving(client, server, 1));
        found.unwrap_or_else(|| panic!("what {client} sent became {packet:02x?}"))
    }

    /// Returns the servers of several clients.
    fn servers_of(&mut self, clients: &[String]) -> Vec<&'static str> {
        clients
            .iter()
            .map(|client| self.server_of(client))
            .collect()
    }

    fn count(&self, exit: Exit) -> u64 {
        self.counts(exit).packets
    }

    fn counts(&self, exit: Exit) -> Counts {
        let exits = self.balancer.exits().expect("it counts");
        let own = exits.iter().find(|(own, _)| *own == exit);
        own.expect("it is one").1
    }
}

/// A client's ports.
fn clients(ports: Range<u16>) -> Vec<String> {
    ports.map(|port| format!("10.0.0.2:{port}")).collect()
}

fn at_hook(balancer: &Balancer, hook: Hook) -> Chain {
    let member = balancer.member_at(hook).expect("the kernel takes it");
    Chain::new(vec![member]).expect("one member")
}

fn outcome(run: Run) -> (Action, Vec<u8>) {
    (run.action, run.packet)
}

/// A TCP segment as it comes in from a side.
fn arriving(from: &str, to: &str, side: usize) -> Vec<u8> {
    bytes(segment(from, to).macs(HOSTS[side], OWN[side]))
}

/// Returns the packet as it goes out to a side.
fn leaving(from: &str, to: &str, side: usize) -> Vec<u8> {
    bytes(segment(from, to).macs(OWN[side], HOSTS[side]).ttl(63))
}

fn segment(from: &str, to: &str) -> Frame<'static> {
    Frame::tcp(at(from), at(to), TcpFlags::ACK)
}

fn bytes(frame: Frame<'_>) -> Vec<u8> {
    let mut buffer = [0; 256];
    let len = frame.write(&mut buffer, b"what is said").expect("it fits");
    buffer[..len].to_vec()
}

// promise: 15.5
#[test]
fn a_connection_is_translated_both_ways_and_stays_where_it_is() {
    if !is_root("a_connection_is_translated_both_ways_and_stays_where_it_is") {
        return;
    }
    HOOKS.into_iter().for_each(stays_where_it_is);
}

fn stays_where_it_is(hook: Hook) {
    let mut fixture = Fixture::new("lb", Mode::Translate, hook);
    let clients = clients(1000..1200);
    let servers = fixture.servers_of(&clients);
    for server in SERVERS {
        let own = servers.iter().filter(|own| **own == server).count();
        assert!((40..95).contains(&own), "{server} has {own} of 200");
    }
    for (client, server) in clients.iter().zip(&servers) {
        let (action, packet) = fixture.pass(&arriving(server, client, 1));
        assert_eq!(action, Action::Send);
        assert_eq!(packet, leaving(SERVICE, client, 0));
    }
    // Weights, a server that drains, one that comes back: those that are connected stay.
    for weights in [[5, 1, 1], [0, 1, 1], [1, 1, 1]] {
        fixture
            .balancer
            .set_service(0, &service(Mode::Translate, weights))
            .expect("entered");
        for (client, server) in clients.iter().zip(&servers) {
            assert_eq!(fixture.server_of(client), *server, "{weights:?}");
        }
    }
    fixture
        .balancer
        .set_server(0, server(SERVERS[0], State::Draining))
        .expect("entered");
    fixture
        .balancer
        .set_service(0, &service(Mode::Translate, [1, 1, 1]))
        .expect("entered");
    for (client, server) in clients.iter().zip(&servers) {
        assert_eq!(fixture.server_of(client), *server, "draining");
    }
    for port in 3000..3050 {
        assert_ne!(fixture.server_of(&format!("10.0.0.3:{port}")), SERVERS[0]);
    }
    // A server that is down loses its connections, the others keep theirs.
    fixture
        .balancer
        .set_server(0, server(SERVERS[0], State::Down))
        .expect("entered");
    for (client, server) in clients.iter().zip(&servers) {
        let now = fixture.server_of(client);
        assert_ne!(now, SERVERS[0]);
        assert!(*server == SERVERS[0] || now == *server);
    }
    let sent: u64 = (0..3)
        .map(|n| fixture.balancer.sent_to(n).expect("counted").packets)
        .sum();
    assert_eq!(sent, fixture.count(Exit::Sent));
    assert_eq!(fixture.count(Exit::Returned), 200);
}

// promise: 15.5
#[test]
fn a_direct_server_gets_the_packet_as_it_is() {
    if !is_root("a_direct_server_gets_the_packet_as_it_is") {
        return;
    }
    for hook in HOOKS {
        let mut fixture = Fixture::new("dr", Mode::Direct, hook);
        let (action, packet) = fixture.pass(&arriving("10.0.0.2:1000", SERVICE, 0));
        assert_eq!(action, Action::Send, "{hook:?}");
        let expected = segment("10.0.0.2:1000", SERVICE).macs(OWN[1], HOSTS[1]);
        assert_eq!(packet, bytes(expected), "{hook:?}");
    }
}

// promise: 15.6, 15.61
#[test]
fn what_is_not_sent_on_leaves_by_a_name() {
    if !is_root("what_is_not_sent_on_leaves_by_a_name") {
        return;
    }
    HOOKS.into_iter().for_each(leaves_by_a_name);
}

fn leaves_by_a_name(hook: Hook) {
    let mut fixture = Fixture::new("ex", Mode::Translate, hook);
    let other = arriving("10.0.0.2:1000", "203.0.113.1:81", 0);
    let mut tagged = arriving("10.0.0.2:1000", SERVICE, 0);
    tagged[12..14].copy_from_slice(&[0x81, 0]);
    let mut short = arriving("10.0.0.2:1000", SERVICE, 0);
    short.truncate(40);
    let long = [arriving("10.0.0.2:1001", SERVICE, 0), vec![0; 1600]].concat();
    for (packet, exit, expected) in [
        (&other, Exit::Other, Action::Pass),
        (&tagged, Exit::Unreadable, Action::Pass),
        (&short, Exit::Malformed, Action::Drop),
        (&long, Exit::TooLong, Action::Drop),
    ] {
        let (action, after) = fixture.pass(packet);
        assert_eq!((action, fixture.count(exit)), (expected, 1), "{exit:?}");
        assert_eq!(after, *packet, "unchanged");
    }
    // The client's port is in use with another service on the only server that is left.
    for number in [1, 2] {
        let down = server(SERVERS[number], State::Down);
        fixture
            .balancer
            .set_server(number as u32, down)
            .expect("entered");
    }
    let second = Service {
        at: at("203.0.113.2:80"),
        ..service(Mode::Translate, [1, 1, 1])
    };
    fixture
        .balancer
        .set_service(0, &service(Mode::Translate, [1, 1, 1]))
        .expect("entered");
    fixture.balancer.set_service(1, &second).expect("entered");
    assert_eq!(fixture.server_of("10.0.0.2:2000"), SERVERS[0]);
    let clash = arriving("10.0.0.2:2000", "203.0.113.2:80", 0);
    assert_eq!(fixture.pass(&clash).0, Action::Drop);
    assert_eq!(fixture.count(Exit::Conflict), 1);
    fixture
        .balancer
        .set_server(0, server(SERVERS[0], State::Down))
        .expect("entered");
    fixture
        .balancer
        .set_service(0, &service(Mode::Translate, [1, 1, 1]))
        .expect("entered");
    assert_eq!(
        fixture.pass(&arriving("10.0.0.2:2001", SERVICE, 0)).0,
        Action::Drop
    );
    assert_eq!(fixture.count(Exit::NoServer), 1);
}

// promise: 15.6
#[test]
fn a_connection_that_does_not_begin_with_its_first_packet_is_counted() {
    if !is_root("a_connection_that_does_not_begin_with_its_first_packet_is_counted") {
        return;
    }
    for hook in HOOKS {
        let mut fixture = Fixture::new("mid", Mode::Translate, hook);
        let first = |client| Frame::tcp(at(client), at(SERVICE), TcpFlags::SYN);
        let begun = bytes(first("10.0.0.2:1000").macs(HOSTS[0], OWN[0]));
        for (packet, midway) in [
            (begun, 0),
            (arriving("10.0.0.2:1000", SERVICE, 0), 0),
            (arriving("10.0.0.2:1001", SERVICE, 0), 1),
            (arriving("10.0.0.2:1001", SERVICE, 0), 1),
        ] {
            assert_eq!(fixture.pass(&packet).0, Action::Send, "{hook:?}");
            let counted = fixture.balancer.begun_midway().expect("it counts");
            assert_eq!(counted, midway, "{hook:?}");
        }
    }
}

const CLIENT_6: &str = "[2001:db8::2]:1000";
const SERVICE_6: &str = "[2001:db8:f::1]:53";
const SERVER_6: &str = "[2001:db8:1::2]:5353";

/// Where a service of UDP over IPv6 has one server.
fn over_ipv6(name: &str, hook: Hook) -> Fixture {
    let mut fixture = Fixture::new(name, Mode::Translate, hook);
    let mut batch = String::new();
    for (port, network) in [(0, "2001:db8:"), (1, "2001:db8:1:")] {
        batch += &format!(
            "addr add {network}:1/64 dev n{port} nodad\n\
             neigh add {network}:2 lladdr {} dev n{port} nud permanent\n",
            HOSTS[port]
        );
    }
    let kernel = &fixture.namespaces.kernel;
    kernel.ip_batch(&batch).expect("addresses");
    let up = server(SERVER_6, State::Up);
    fixture.balancer.set_server(0, up).expect("entered");
    let service = Service {
        at: at(SERVICE_6),
        transport: Transport::Udp,
        mode: Mode::Translate,
        servers: vec![(0, 1)],
    };
    fixture.balancer.set_service(0, &service).expect("entered");
    fixture
}

// promise: 15.61
#[test]
fn datagrams_over_ipv6_are_translated_both_ways() {
    if !is_root("datagrams_over_ipv6_are_translated_both_ways") {
        return;
    }
    for hook in HOOKS {
        let mut fixture = over_ipv6("v6", hook);
        let datagram = |from: &str, to: &str| Frame::udp(at(from), at(to));
        for (came, left, side) in [
            (
                datagram(CLIENT_6, SERVICE_6),
                datagram(CLIENT_6, SERVER_6),
                0,
            ),
            (
                datagram(SERVER_6, CLIENT_6),
                datagram(SERVICE_6, CLIENT_6),
                1,
            ),
        ] {
            let (action, packet) = fixture.pass(&bytes(came.macs(HOSTS[side], OWN[side])));
            assert_eq!(
                action,
                Action::Send,
                "{hook:?} {:?}",
                fixture.balancer.exits()
            );
            let left = left.macs(OWN[1 - side], HOSTS[1 - side]).ttl(63);
            assert_eq!(packet, bytes(left), "{hook:?}");
        }
    }
}

// promise: 15.61
#[test]
fn what_is_going_to_be_cut_is_as_long_as_its_segments() {
    if !is_root("what_is_going_to_be_cut_is_as_long_as_its_segments") {
        return;
    }
    let mut fixture = Fixture::new("cut", Mode::Translate, Hook::Tc);
    let long = |frame: Frame<'_>| {
        let mut buffer = [0; 3000];
        let len = frame.write(&mut buffer, &[7; 2800]).expect("it fits");
        buffer[..len].to_vec()
    };
    let came = long(segment("10.0.0.2:1000", SERVICE).macs(HOSTS[0], OWN[0]));
    // 40 bytes of headers before each.
    for (segment_bytes, exit, expected) in [
        (1460, Exit::Sent, Action::Send),
        (1461, Exit::TooLong, Action::Drop),
    ] {
        let run = fixture.chain.test_run_segments(&came, segment_bytes);
        let (action, packet) = outcome(run.expect("it runs"));
        let whole = Counts {
            packets: 1,
            bytes: came.len() as u64,
        };
        assert_eq!(
            (action, fixture.counts(exit)),
            (expected, whole),
            "{exit:?}"
        );
        if action == Action::Send {
            let sent = SERVERS.into_iter().find(|server| {
                let left = segment("10.0.0.2:1000", server).macs(OWN[1], HOSTS[1]);
                packet == long(left.ttl(63))
            });
            assert!(sent.is_some(), "{packet:02x?}");
        }
    }
    assert_eq!(
        fixture.pass(&came).0,
        Action::Drop,
        "of one that is not cut"
    );
    let mut xdp = at_hook(&fixture.balancer, Hook::Xdp);
    assert!(xdp.test_run_segments(&came, 1460).is_err(), "not there");
}

// promise: 15.6
#[test]
fn what_cannot_be_is_refused_by_name() {
    if !is_root("what_cannot_be_is_refused_by_name") {
        return;
    }
    let mut balancer = Balancer::load(10).expect("the kernel takes it");
    let why = balancer.set_service(0, &service(Mode::Direct, [1, 1, 1]));
    assert!(
        why.expect_err("no servers")
            .to_string()
            .contains("no server 0")
    );
    let v6 = server("[2001:db8::1]:80", State::Up);
    balancer.set_server(0, v6).expect("entered");
    let why = balancer.set_service(0, &service(Mode::Direct, [1, 1, 1]));
    assert!(
        why.expect_err("two versions")
            .to_string()
            .contains("cannot serve")
    );
    assert!(balancer.set_server(1 << 20, v6).is_err());
}
