//! Connections to a listening socket under a flood of SYNs with spoofed source addresses: behind the guard, with the
//! kernel's own cookies, and without cookies. The same namespaces and the same flood, one after the other. The flood
//! has its own interface: a veth's ring has room for 256 frames, and connections that share it with a flood or its
//! replies lose frames.

use crate::report::Report;
use crate::sweep::{Quantity, Shown, Side, Sweep};
use anyhow::Context;
use nfluid_evnf::guard::{Exit, Guard, Limit, Settings};
use nfluid_gen::interface::{InterfaceSender, hardware_address};
use nfluid_gen::io::Sender;
use nfluid_testbed::namespace::Namespace;
use nfluid_wire::build::Frame;
use nfluid_wire::{MacAddr, TcpFlags};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
/// A client without an answer gives up after this time.
const PATIENCE: Duration = Duration::from_millis(500);
const BATCH: usize = 64;

/// The protection between the flood and the socket.
#[derive(Clone, Copy)]
struct Variant {
    /// Prefix of the figure ids.
    id: &'static str,
    behind: &'static str,
    /// The setting of `net.ipv4.tcp_syncookies`.
    cookies: u8,
    is_guarded: bool,
}

const VARIANTS: [Variant; 3] = [
    Variant {
        id: "guard",
        behind: "the guard",
        cookies: 2,
        is_guarded: true,
    },
    Variant {
        id: "guard.kernel",
        behind: "the kernel's cookies",
        cookies: 1,
        is_guarded: false,
    },
    Variant {
        id: "guard.without",
        behind: "nothing",
        cookies: 0,
        is_guarded: false,
    },
];

const QUANTITIES: [Quantity; 2] = [
    Quantity::new(
        ".kept_percent",
        "%",
        &[("connections kept, %", Shown::Median)],
    ),
    Quantity::new(".flood_kpps", "kpps", &[("SYNs, kpps", Shown::Median)]),
];

/// Runs this part of the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    let (rounds, attempts) = report.effort((5, 100), (1, 10));
    let topology = Topology::new()?;
    let server = &topology.server;
    let listener = server.within(|| Ok(TcpListener::bind((SERVER, 0))?))?;
    let end = listener.local_addr()?;
    let stop = AtomicBool::new(false);
    let how = format!(
        "{attempts} connections one after the other beside a flood of SYNs from one core, each answered within {} ms or lost",
        PATIENCE.as_millis()
    );
    let side =
        |variant: Variant| Side::new([variant.behind.to_owned()], variant.id, variant).under(&how);
    let mut sides = VARIANTS.map(side);
    let mut sweep = Sweep::plain(&["behind"], QUANTITIES);
    thread::scope(|scope| {
        scope.spawn(|| serve(&listener, &stop));
        let measured = sweep.run(report, rounds, &mut sides, |variant, _| {
            variant.measure(&topology, end, attempts)
        });
        stop.store(true, Ordering::Relaxed);
        measured
    })?;
    sweep.report_all(report);
    sweep.print("connections in a flood of SYNs");
    Ok(())
}

/// Clients, a server, and the sender of the flood.
struct Topology {
    clients: Namespace,
    attackers: Namespace,
    server: Namespace,
}

impl Topology {
    fn new() -> anyhow::Result<Self> {
        let topology = Topology {
            clients: Namespace::new()?,
            attackers: Namespace::new()?,
            server: Namespace::new()?,
        };
        let server = &topology.server;
        for (namespace, theirs, own, net) in [
            (&topology.clients, "c", "s", 0),
            (&topology.attackers, "far", "near", 1),
        ] {
            Namespace::join((namespace, theirs), (server, own))?;
            namespace.ip(&format!("addr add 10.0.{net}.2/24 dev {theirs}"))?;
            server.ip(&format!("addr add 10.0.{net}.1/24 dev {own}"))?;
            namespace.run(&format!("ethtool -K {theirs} tx off gro on"))?;
        }
        // Route of the replies to spoofed addresses.
        server.ip("route add default via 10.0.1.2 dev near")?;
        Ok(topology)
    }
}

impl Variant {
    /// Returns the percentage of connections that succeed, and the flood's SYNs in thousands per second.
    fn measure(
        self,
        topology: &Topology,
        end: SocketAddr,
        attempts: u32,
    ) -> anyhow::Result<[f64; 2]> {
        let server = &topology.server;
        let cookies = self.cookies;
        server.run(&format!("sysctl -qw net.ipv4.tcp_syncookies={cookies}"))?;
        let mut guard = guard(end)?;
        let interfaces = if self.is_guarded {
            &["s", "near"][..]
        } else {
            &[]
        };
        let mut links = Vec::new();
        for interface in interfaces {
            links.push(server.within(|| Ok(guard.fast().attach(interface)?))?);
        }
        let (kept, kpps) = flooded(topology, end, attempts)?;
        if self.is_guarded {
            let exits = guard.exits()?;
            let answered = exits.iter().find(|(exit, _)| *exit == Exit::Answered);
            anyhow::ensure!(answered.is_some_and(|it| it.1.packets > 0), "{exits:?}");
        }
        Ok([kept, kpps])
    }
}

fn guard(end: SocketAddr) -> anyhow::Result<Guard> {
    let settings = Settings {
        ends: vec![end],
        syns: Limit {
            packets: 100,
            burst: 100,
        },
        ..Settings::default()
    };
    Ok(Guard::load(&settings)?)
}

/// Returns the percentage of connections that succeed in a flood, and the flood's SYNs in thousands per second.
fn flooded(topology: &Topology, end: SocketAddr, attempts: u32) -> anyhow::Result<(f64, f64)> {
    let Topology {
        clients,
        attackers,
        server,
    } = topology;
    let to = server.within(|| Ok(hardware_address("near")?))?;
    let (stop, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    let begun = Instant::now();
    let kept = thread::scope(|scope| {
        let flood = scope.spawn(|| attackers.within(|| flood(MacAddr(to), end, &stop, &sent)));
        let kept = clients.within(|| {
            // By now the socket's queue is full.
            thread::sleep(Duration::from_millis(300));
            let kept = (0..attempts).filter(|_| is_answered(end));
            Ok(kept.count())
        });
        stop.store(true, Ordering::Relaxed);
        flood.join().ok().context("the flood has failed")??;
        kept
    })?;
    let kpps = sent.load(Ordering::Relaxed) as f64 / begun.elapsed().as_secs_f64() / 1000.0;
    Ok((kept as f64 * 100.0 / f64::from(attempts), kpps))
}

/// Sends SYNs with spoofed source addresses, as fast as possible.
fn flood(to: MacAddr, end: SocketAddr, stop: &AtomicBool, sent: &AtomicU64) -> anyhow::Result<()> {
    let mut sender = InterfaceSender::open("far")?;
    let mut number = 0u32;
    while !stop.load(Ordering::Relaxed) {
        let count = sender.send(BATCH, |_, buffer| {
            number = number.wrapping_add(0x9e37_79b9);
            // 198.18.0.0/15, reserved for benchmarks.
            let from = Ipv4Addr::from_bits(0xc612_0000 | number >> 15);
            let from = SocketAddr::from((from, number as u16 | 1024));
            let frame = Frame::tcp(from, end, TcpFlags::SYN).macs(MacAddr([2, 0, 0, 0, 0, 9]), to);
            frame.write(buffer, &[]).unwrap_or(0)
        })?;
        sender.flush()?;
        sent.fetch_add(count as u64, Ordering::Relaxed);
    }
    Ok(())
}

fn is_answered(end: SocketAddr) -> bool {
    let Ok(mut stream) = TcpStream::connect_timeout(&end, PATIENCE) else {
        return false;
    };
    let set = stream.set_read_timeout(Some(PATIENCE));
    set.is_ok() && stream.write_all(b"?").is_ok() && stream.read_exact(&mut [0]).is_ok()
}

/// Answers each connection once.
fn serve(listener: &TcpListener, stop: &AtomicBool) {
    // A blocking listener would never end.
    if listener.set_nonblocking(true).is_err() {
        return;
    }
    let mut clients: Vec<TcpStream> = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        while let Ok((client, _)) = listener.accept() {
            if client.set_nonblocking(true).is_ok() {
                clients.push(client);
            }
        }
        clients.retain_mut(|client| match client.read(&mut [0]) {
            Ok(0) => false,
            // The client may have gone meanwhile.
            Ok(_) => {
                let _answered = client.write_all(b"!");
                false
            }
            Err(error) => error.kind() == std::io::ErrorKind::WouldBlock,
        });
        thread::sleep(Duration::from_micros(200));
    }
}
