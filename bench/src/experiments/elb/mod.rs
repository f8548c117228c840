//! eLB's fast path by `BPF_PROG_TEST_RUN`: a packet of a connection that it knows, the answer to it, and the first packet of one,
//! each with its checksums and the look-up of its way.
//!
//! A run changes the packet, and the next one gets what it has made of it. So the only server has the service's own address: all is
//! done that has to be done, and the packet stays as it is, but for its hops, of which it has enough.
//!
//! Then whether connections stay where they are while servers come and go, and over a restart.

mod kept;

use crate::report::{Report, significant, table};
use crate::statistics::Samples;
use nfluid_evnf::balancer::{Balancer, Mode, Server, Service, State, Transport};
use nfluid_evnf::load::Action;
use nfluid_testbed::namespace::Namespace;
use nfluid_wire::TcpFlags;
use nfluid_wire::build::Frame;
use std::net::{Ipv4Addr, SocketAddr};

const CONNECTIONS: u32 = 1 << 20;
/// Connections that are there when it is measured, at most.
const KNOWN: u16 = 10_000;
/// Runs on one packet, few and many, fewer than it has hops. The second run of each takes microseconds, whatever it does: the
/// difference of the two leaves that out.
const RUNS: [u32; 2] = [50, 250];

const VARIANTS: [(&str, Mode); 2] = [("translate", Mode::Translate), ("direct", Mode::Direct)];

fn service() -> SocketAddr {
    (Ipv4Addr::new(203, 0, 113, 1), 80).into()
}

fn client(port: u16) -> SocketAddr {
    (Ipv4Addr::new(10, 0, 0, 2), port).into()
}

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    let rounds = report.effort(2001, 101);
    let topology = topology()?;
    let measured = topology.within(|| {
        let mut measured = VARIANTS.map(|_| Measured::default());
        let mut balancers = Vec::new();
        for (_, mode) in VARIANTS {
            balancers.push(balancer(mode)?);
        }
        for round in 0..rounds {
            for (balancer, measured) in balancers.iter_mut().zip(&mut measured) {
                measured.round(balancer, round as u16 % KNOWN)?;
            }
        }
        Ok(measured)
    })?;
    let mut rows = Vec::new();
    for ((name, mode), measured) in VARIANTS.into_iter().zip(measured) {
        let how = "one core, BPF_PROG_TEST_RUN, TCP over IPv4";
        let id = |what: &str| match mode {
            Mode::Translate => format!("elb.{what}.ns"),
            Mode::Direct => format!("elb.direct.{what}.ns"),
        };
        report.figure(id("established"), &measured.established, "ns/packet", how);
        report.figure(id("new"), &measured.new, "ns/packet", how);
        let mut row = vec![
            name.to_owned(),
            significant(measured.established.median()),
            significant(measured.new.median()),
        ];
        if mode == Mode::Translate {
            report.figure(id("answer"), &measured.answer, "ns/packet", how);
            row.push(significant(measured.answer.median()));
        }
        rows.push(row);
    }
    table(
        "eLB, ns per packet",
        &["mode", "of a known connection", "first of one", "answer"],
        &rows,
    );
    let kept = topology.within(kept::percent)?;
    let how =
        "10,000 connections of which each has the server that it had, after each of six changes";
    report.derived("elb.kept_percent", kept, "%", how);
    Ok(())
}

/// Nanoseconds per packet.
#[derive(Default)]
struct Measured {
    established: Samples,
    new: Samples,
    answer: Samples,
}

impl Measured {
    fn round(&mut self, balancer: &mut Balancer, port: u16) -> anyhow::Result<()> {
        let to = packet(client(port), service());
        self.new.push(timed(balancer, &to, 1)?);
        self.established.push(steady(balancer, &to)?);
        let back = packet(service(), client(port));
        if balancer.fast().test_run(&back, 1)?.action == Action::Send {
            self.answer.push(steady(balancer, &back)?);
        }
        Ok(())
    }
}

/// Nanoseconds of a run among many.
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

/// A namespace with ways to the client and to the server.
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
