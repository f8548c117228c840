//! eLB's fast path by `BPF_PROG_TEST_RUN`: a packet of a known connection, its reply, and the first packet of a
//! connection, each with its checksums and the route look-up.
//!
//! A run changes the packet, and the next run gets the changed packet. So the only server has the service's own
//! address: all work is done, and the packet stays the same except for its hop count, which is large enough.
//!
//! Then the connections that keep their servers while servers come and go, and over a restart.

mod kept;

use crate::report::Report;
use crate::sweep::{Quantity, Shown, Side, Sweep};
use nfluid_evnf::balancer::{Balancer, Mode, Server, Service, State, Transport};
use nfluid_evnf::load::Action;
use nfluid_testbed::namespace::Namespace;
use nfluid_wire::TcpFlags;
use nfluid_wire::build::Frame;
use std::net::{Ipv4Addr, SocketAddr};

const CONNECTIONS: u32 = 1 << 20;
/// Largest number of existing connections during the measurement.
const KNOWN: u16 = 10_000;
/// Numbers of runs on one packet, fewer than its hops. The second run of each takes microseconds, whatever it does: the
/// difference of the two numbers excludes that.
const RUNS: [u32; 2] = [50, 250];

const MODES: [(&str, Mode); 2] = [("translate", Mode::Translate), ("direct", Mode::Direct)];

/// Nanoseconds per packet, in the order of [`UnderTest::measure`].
const QUANTITIES: [Quantity; 3] = [
    Quantity::new(
        "established.ns",
        "ns/packet",
        &[("of a known connection", Shown::Median)],
    ),
    Quantity::new("new.ns", "ns/packet", &[("first of one", Shown::Median)]),
    Quantity::new("answer.ns", "ns/packet", &[("answer", Shown::Median)]),
];

fn service() -> SocketAddr {
    (Ipv4Addr::new(203, 0, 113, 1), 80).into()
}

fn client(port: u16) -> SocketAddr {
    (Ipv4Addr::new(10, 0, 0, 2), port).into()
}

/// A balancer, and the number of its measured rounds.
struct UnderTest {
    balancer: Balancer,
    rounds: u16,
}

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    let rounds = report.effort(2001, 101);
    let topology = topology()?;
    topology.within(|| measure(report, rounds))?;
    let kept = topology.within(kept::percent)?;
    let how =
        "10,000 connections of which each has the server that it had, after each of six changes";
    report.derived("elb.kept_percent", kept, "%", how);
    Ok(())
}

fn measure(report: &mut Report, rounds: usize) -> anyhow::Result<()> {
    let mut sides = Vec::new();
    for (name, mode) in MODES {
        let under_test = UnderTest {
            balancer: balancer(mode)?,
            rounds: 0,
        };
        let id = match mode {
            Mode::Translate => "elb.",
            Mode::Direct => "elb.direct.",
        };
        let how = "one core, BPF_PROG_TEST_RUN, TCP over IPv4";
        sides.push(Side::new([name.to_owned()], id, under_test).under(how));
    }
    let mut sweep = Sweep::plain(&["mode"], QUANTITIES);
    let rows = sweep.run(report, rounds, &mut sides, |under_test, _| {
        under_test.measure()
    })?;
    sweep.report(report, rows);
    sweep.print("eLB, ns per packet");
    Ok(())
}

impl UnderTest {
    fn measure(&mut self) -> anyhow::Result<[f64; 3]> {
        let port = self.rounds % KNOWN;
        self.rounds += 1;
        let balancer = &mut self.balancer;
        let to = packet(client(port), service());
        let new = timed(balancer, &to, 1)?;
        let established = steady(balancer, &to)?;
        let back = packet(service(), client(port));
        // With direct servers, replies do not pass the balancer.
        let answer = match balancer.fast().test_run(&back, 1)?.action {
            Action::Send => steady(balancer, &back)?,
            _ => f64::NAN,
        };
        Ok([established, new, answer])
    }
}

/// Returns the nanoseconds of one run among many.
fn steady(balancer: &mut Balancer, packet: &[u8]) -> anyhow::Result<f64> {
    let [few, many] = RUNS;
    let of = |runs: u32, ns: f64| f64::from(runs) * ns;
    let took_few = of(few, timed(balancer, packet, few)?);
    let took_many = of(many, timed(balancer, packet, many)?);
    Ok((took_many - took_few) / f64::from(many - few))
}

fn timed(balancer: &mut Balancer, packet: &[u8], runs: u32) -> anyhow::Result<f64> {
    let run = balancer.fast().test_run(packet, runs)?;
    anyhow::ensure!(
        run.action == Action::Send,
        "a packet was not sent on: {:?}",
        balancer.exits()
    );
    Ok(f64::from(run.ns))
}

fn packet(from: SocketAddr, to: SocketAddr) -> Vec<u8> {
    let mut buffer = [0; 128];
    let frame = Frame::tcp(from, to, TcpFlags::ACK).ttl(255);
    let written = frame.write(&mut buffer, &[0; 10]);
    buffer[..written.expect("it fits")].to_vec()
}

fn balancer(mode: Mode) -> anyhow::Result<Balancer> {
    let mut balancer = Balancer::load(CONNECTIONS)?;
    let server = Server {
        at: service(),
        state: State::Up,
    };
    balancer.set_server(0, server)?;
    let service = Service {
        at: service(),
        transport: Transport::Tcp,
        mode,
        servers: vec![(0, 1)],
    };
    balancer.set_service(0, &service)?;
    Ok(balancer)
}

/// Makes a namespace with routes to the client and to the server.
fn topology() -> anyhow::Result<Namespace> {
    let topology = Namespace::new()?;
    Namespace::join((&topology, "clients"), (&topology, "client"))?;
    Namespace::join((&topology, "servers"), (&topology, "server"))?;
    topology.run("sysctl -qw net.ipv4.ip_forward=1")?;
    for line in [
        "addr add 10.0.0.1/24 dev clients",
        "addr add 203.0.113.254/24 dev servers",
        "neigh add 10.0.0.2 lladdr 02:00:00:00:00:01 dev clients nud permanent",
    ] {
        topology.ip(line)?;
    }
    for host in 1..=kept::SERVERS {
        let to = format!("203.0.113.{host} lladdr 02:00:00:00:00:02");
        topology.ip(&format!("neigh add {to} dev servers nud permanent"))?;
    }
    Ok(topology)
}
