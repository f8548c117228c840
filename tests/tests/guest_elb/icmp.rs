//! ICMP: errors about connections, packet in, packet out, and pings to services.

use super::*;
use nfluid_testbed::random::Random;
use nfluid_wire::checksum::sum;
use nfluid_wire::ip::IpProtocol;
use std::net::IpAddr;

const CLIENT: &str = "10.0.0.2:1000";
/// Routers that report errors: on the way to clients, and to servers.
const ROUTERS: [&str; 2] = ["198.51.100.7", "192.0.2.5"];
const MTU: [u8; 4] = [0, 0, 5, 120];
/// Behind Ethernet and IPv4.
const L4: usize = 34;

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// An ICMP error with so many bytes of what it quotes behind its IP header, and all of that if there are fewer.
#[derive(Clone, Copy)]
struct IcmpError<'a> {
    from: IpAddr,
    to: IpAddr,
    kind: (u8, u8),
    quoted: Frame<'a>,
    bytes: usize,
}

impl IcmpError<'_> {
    fn frame(&self, macs: [MacAddr; 2], hops: u8) -> Vec<u8> {
        let quoted = bytes(self.quoted);
        let l3 = if self.to.is_ipv4() { 20 } else { 40 };
        let quoted = &quoted[14..quoted.len().min(14 + l3 + self.bytes)];
        let error = Frame::icmp(self.from, self.to, self.kind.0, self.kind.1, MTU);
        written(error.macs(macs[0], macs[1]).ttl(hops), quoted)
    }

    fn arriving(&self, side: usize) -> Vec<u8> {
        self.frame([HOSTS[side], OWN[side]], 64)
    }

    fn leaving(&self, side: usize) -> Vec<u8> {
        self.frame([OWN[side], HOSTS[side]], 63)
    }
}

fn written(frame: Frame<'_>, payload: &[u8]) -> Vec<u8> {
    let mut buffer = [0; 256];
    let len = frame.write(&mut buffer, payload).expect("it fits");
    buffer[..len].to_vec()
}

/// An error of a router on the way to the client, about a packet of the service, or of the server itself.
fn about_answer(of: &str) -> IcmpError<'static> {
    IcmpError {
        from: ip(ROUTERS[0]),
        to: at(of).ip(),
        kind: (3, 4),
        quoted: segment(of, CLIENT).ttl(7).dont_fragment(),
        bytes: 8,
    }
}

// promise: 15.68
#[test]
fn an_icmp_error_goes_with_the_connection_that_it_is_about() {
    if !is_root("an_icmp_error_goes_with_the_connection_that_it_is_about") {
        return;
    }
    // To load one takes its time in an emulated kernel: all of it with one for each hook.
    for hook in HOOKS {
        let mut fixture = Fixture::new("icmp", Mode::Translate, hook);
        begins_no_connection(&mut fixture, hook);
        is_about_no_connection(&mut fixture);
        is_damaged(&mut fixture, hook);
        goes_with_its_connection(&mut fixture, hook);
    }
}

fn goes_with_its_connection(fixture: &mut Fixture, hook: Hook) {
    let server = fixture.server_of(CLIENT);
    let before = [Exit::IcmpError, Exit::Sent].map(|exit| fixture.count(exit));
    let mut passed = 0;
    // Fragmentation needed, port unreachable, time exceeded, a parameter problem; as much as is quoted at least, with
    // TCP's checksum, whole.
    for kind in [(3, 4), (3, 3), (11, 0), (12, 0)] {
        for bytes in [8, 16, 18, 20, 100] {
            let of = |of| IcmpError {
                kind,
                bytes,
                ..about_answer(of)
            };
            let (action, packet) = fixture.pass(&of(SERVICE).arriving(0));
            assert_eq!(action, Action::Send, "{hook:?} {kind:?} {bytes}");
            assert_eq!(packet, of(server).leaving(1), "{hook:?} {kind:?} {bytes}");
            // The other direction: the reporting router is as hidden as the server is.
            let back = |from, to| IcmpError {
                from: ip(from),
                to: at(CLIENT).ip(),
                quoted: segment(CLIENT, to),
                ..of(to)
            };
            for from in [ROUTERS[1], "192.0.2.2"] {
                let (action, packet) = fixture.pass(&back(from, server).arriving(1));
                assert_eq!(action, Action::Send, "{hook:?} {kind:?} {bytes}");
                let expected = back("203.0.113.1", SERVICE).leaving(0);
                assert_eq!(packet, expected, "{hook:?} {kind:?} {bytes}");
            }
            passed += 3;
        }
    }
    let counted = [Exit::IcmpError, Exit::Sent].map(|exit| fixture.count(exit));
    assert_eq!(counted, [before[0] + passed, before[1]], "counted apart");
    // A server that is down: where its connections go to.
    let number = SERVERS.iter().position(|own| *own == server);
    let down = self::server(server, State::Down);
    let number = number.expect("it is one") as u32;
    fixture.balancer.set_server(number, down).expect("entered");
    let (action, packet) = fixture.pass(&about_answer(SERVICE).arriving(0));
    assert_eq!(action, Action::Send, "{hook:?}");
    assert_eq!(packet, about_answer(fixture.server_of(CLIENT)).leaving(1));
}

fn begins_no_connection(fixture: &mut Fixture, hook: Hook) {
    let (action, packet) = fixture.pass(&about_answer(SERVICE).arriving(0));
    assert_eq!(action, Action::Send, "{hook:?}");
    // The packet has gone to the server that the connection would have, and has a connection afterwards.
    let server = fixture.server_of(CLIENT);
    assert_eq!(packet, about_answer(server).leaving(1), "{hook:?}");
    let begun = fixture.balancer.begun_midway().expect("it counts");
    assert_eq!(begun, 1, "{hook:?}: with the first packet of its own");
}

// promise: 15.68
#[test]
fn a_direct_server_gets_icmp_errors_as_they_are() {
    if !is_root("a_direct_server_gets_icmp_errors_as_they_are") {
        return;
    }
    for hook in HOOKS {
        let mut fixture = Fixture::new("icmpdr", Mode::Direct, hook);
        let error = about_answer(SERVICE);
        let (action, packet) = fixture.pass(&error.arriving(0));
        assert_eq!(action, Action::Send, "{hook:?}");
        assert_eq!(packet, error.frame([OWN[1], HOSTS[1]], 64), "{hook:?}");
    }
}

// promise: 15.68
#[test]
fn icmp_errors_over_ipv6_go_with_their_connection() {
    if !is_root("icmp_errors_over_ipv6_go_with_their_connection") {
        return;
    }
    for hook in HOOKS {
        let mut fixture = over_ipv6("icmp6", hook);
        let datagram = |from: &str, to: &str| Frame::udp(at(from), at(to));
        let first = datagram(CLIENT_6, SERVICE_6).macs(HOSTS[0], OWN[0]);
        assert_eq!(fixture.pass(&bytes(first)).0, Action::Send, "{hook:?}");
        // Packet too big, port unreachable, time exceeded, a parameter problem.
        for kind in [(2, 0), (1, 4), (3, 0), (4, 0)] {
            for bytes in [8, 100] {
                let router = ip("2001:db8::7");
                let about = |from: &str, to: &str, quoted: (IpAddr, IpAddr)| IcmpError {
                    from: quoted.0,
                    to: quoted.1,
                    kind,
                    quoted: datagram(from, to),
                    bytes,
                };
                let [client, own, server] = [CLIENT_6, SERVICE_6, SERVER_6].map(|end| at(end).ip());
                let to_server = about(SERVICE_6, CLIENT_6, (router, own)).arriving(0);
                let (action, packet) = fixture.pass(&to_server);
                assert_eq!(action, Action::Send, "{hook:?} {kind:?} {bytes}");
                let expected = about(SERVER_6, CLIENT_6, (router, server)).leaving(1);
                assert_eq!(packet, expected, "{hook:?} {kind:?} {bytes}");
                let to_client = about(CLIENT_6, SERVER_6, (server, client)).arriving(1);
                let (action, packet) = fixture.pass(&to_client);
                assert_eq!(action, Action::Send, "{hook:?} {kind:?} {bytes}");
                let expected = about(CLIENT_6, SERVICE_6, (own, client)).leaving(0);
                assert_eq!(packet, expected, "{hook:?} {kind:?} {bytes}");
            }
        }
    }
}

fn is_about_no_connection(fixture: &mut Fixture) {
    fixture.server_of(CLIENT);
    let good = about_answer(SERVICE);
    let ping = Frame::echo_reply(at(SERVICE).ip(), at(CLIENT).ip(), 1, 1);
    let sctp = Frame::ip(at(SERVICE).ip(), at(CLIENT).ip(), IpProtocol(132));
    let mut options = good.arriving(0);
    options[L4 + 8] = 0x46;
    let mut fragment = good.arriving(0);
    fragment[L4 + 8 + 6] = 0x20;
    let mut short = good.arriving(0);
    short.truncate(L4 + 8 + 20 + 7);
    // The frame has its correct length, the packet in it does not.
    let mut said_short = good.arriving(0);
    said_short[17] -= 1;
    for (packet, exit) in [
        (
            IcmpError {
                quoted: ping,
                ..good
            }
            .arriving(0),
            Exit::Other,
        ),
        (
            IcmpError {
                quoted: sctp,
                ..good
            }
            .arriving(0),
            Exit::Other,
        ),
        (
            IcmpError {
                kind: (5, 1),
                ..good
            }
            .arriving(0),
            Exit::Other,
        ),
        (
            IcmpError {
                to: ip("203.0.113.9"),
                ..good
            }
            .arriving(0),
            Exit::Other,
        ),
        (about_answer("203.0.113.1:81").arriving(0), Exit::Other),
        (good.arriving(0)[..L4 + 7].to_vec(), Exit::Other),
        (options, Exit::Unreadable),
        (fragment, Exit::Unreadable),
        (short, Exit::Unreadable),
        (said_short, Exit::Unreadable),
    ] {
        let before = fixture.count(exit);
        let (action, after) = fixture.pass(&packet);
        let counted = fixture.count(exit) - before;
        assert_eq!(
            (action, counted),
            (Action::Pass, 1),
            "{exit:?} {packet:02x?}"
        );
        assert_eq!(after, packet, "unchanged");
    }
}

/// Packets that have left, and errors among them that were sent on.
fn of_all(fixture: &Fixture) -> [u64; 2] {
    let exits = fixture.balancer.exits().expect("it counts");
    let errors = exits.iter().filter(|(exit, _)| *exit == Exit::IcmpError);
    let packets = |(_, counts): &(_, nfluid_evnf::load::Counts)| counts.packets;
    [exits.iter().map(packets).sum(), errors.map(packets).sum()]
}

/// Every error leaves by one exit. A packet to the kernel is as it came; a sent packet is as right or as wrong.
fn is_damaged(fixture: &mut Fixture, hook: Hook) {
    fixture.server_of(CLIENT);
    let mut random = Random(3);
    let mut sent = 0;
    let mut before = of_all(fixture);
    for _ in 0..600 {
        let kind = random.pick(&[(3, 4), (3, 1), (11, 0), (12, 0), (8, 0), (4, 0)]);
        let bytes = random.below(40) as usize;
        let good = about_answer(SERVICE);
        let mut packet = IcmpError {
            kind,
            bytes,
            ..good
        }
        .arriving(0);
        for _ in 0..random.below(3) {
            let at = 14 + random.below(packet.len() as u32 - 14) as usize;
            packet[at] = random.below(256) as u8;
        }
        if random.one_in(4) {
            // At tc no shorter ones can be run.
            packet.truncate(L4 + random.below((packet.len() - L4) as u32) as usize);
        }
        let (action, after) = fixture.pass(&packet);
        let counted = of_all(fixture);
        let [all, errors] = [0, 1].map(|at| counted[at] - before[at]);
        before = counted;
        assert_eq!(all, 1, "{hook:?} {packet:02x?}");
        if action == Action::Pass {
            assert_eq!(after, packet, "{hook:?} unchanged");
        }
        if errors == 1 {
            sent += 1;
            assert_eq!(after.len(), packet.len());
            // The network header, the message, the quoted network header. Zero has two forms.
            for part in [14..34, 34..after.len(), 42..62] {
                let [was, is] = [&packet, &after].map(|all| sum(&all[part.clone()]) % 0xffff);
                assert_eq!(was, is, "{hook:?} {part:?} {packet:02x?} {after:02x?}");
            }
        }
    }
    assert!(sent > 100, "{sent} of them were sent on");
}

// promise: 15.68
#[test]
fn a_ping_to_a_service_is_answered_while_there_is_one() {
    if !is_root("a_ping_to_a_service_is_answered_while_there_is_one") {
        return;
    }
    for hook in HOOKS {
        let mut fixture = over_ipv6("ping", hook);
        let second = Service {
            at: at("203.0.113.1:443"),
            servers: vec![(1, 1)],
            ..service(Mode::Translate, [1, 1, 1])
        };
        let first = Service {
            at: at(SERVICE),
            ..second.clone()
        };
        fixture.balancer.set_service(1, &first).expect("entered");
        fixture.balancer.set_service(2, &second).expect("entered");
        let asked = |from: &str, to: &str| {
            let request = Frame::echo_request(ip(from), ip(to), 7, 9);
            written(request.macs(HOSTS[0], OWN[0]).ttl(3), b"are you there?")
        };
        let answered = |from: &str, to: &str| {
            let reply = Frame::echo_reply(ip(from), ip(to), 7, 9);
            written(reply.macs(OWN[0], HOSTS[0]).ttl(64), b"are you there?")
        };
        for (client, service) in [
            ("10.0.0.2", "203.0.113.1"),
            ("2001:db8::2", "2001:db8:f::1"),
        ] {
            let (action, packet) = fixture.pass(&asked(client, service));
            assert_eq!(action, Action::Send, "{hook:?}");
            assert_eq!(packet, answered(service, client), "{hook:?}");
        }
        for (client, service) in [
            ("10.0.0.2", "203.0.113.2"),
            ("255.255.255.255", "203.0.113.1"),
            ("224.0.0.1", "203.0.113.1"),
            ("127.0.0.1", "203.0.113.1"),
            ("ff02::1", "2001:db8:f::1"),
            ("::1", "2001:db8:f::1"),
        ] {
            let packet = asked(client, service);
            assert_eq!(fixture.pass(&packet), (Action::Pass, packet), "{hook:?}");
        }
        assert_eq!(
            (fixture.count(Exit::Echo), fixture.count(Exit::Other)),
            (2, 6)
        );
        // The address is answered for as long as one of its services is there.
        for (id, at, expected) in [(1, first.at, Action::Send), (2, second.at, Action::Pass)] {
            let removed = fixture.balancer.remove_service(id, at, Transport::Tcp);
            removed.expect("it was there");
            let ping = asked("10.0.0.2", "203.0.113.1");
            assert_eq!(fixture.pass(&ping).0, expected, "{hook:?}");
        }
    }
}
