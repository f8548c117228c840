//! The guard's fast path by `BPF_PROG_TEST_RUN`: a packet within its limits, a packet beyond them, a packet of a
//! connection with a protected destination, and a SYN that is answered by a cookie.
//!
//! An answered SYN is no SYN any more, so each run has one packet: its time includes cold caches and the reading of the
//! clock, as does the time of a packet without any check (`guard.nothing.ns`).
//!
//! Then the number of connections that succeed while a listening socket is flooded, with and without the guard.

mod flooded;

use crate::report::Report;
use crate::sweep::{Quantity, Shown, Side, Sweep};
use anyhow::{Context, ensure};
use nfluid_evnf::guard::{Guard, Limit, PACKETS_MAX, Settings};
use nfluid_evnf::load::Action;
use nfluid_figures::statistics::Samples;
use nfluid_wire::TcpFlags;
use nfluid_wire::build::Frame;
use nfluid_wire::ether::EthernetFrame;
use nfluid_wire::ipv4::Ipv4Packet;
use nfluid_wire::tcp::TcpPacket;
use std::net::{Ipv4Addr, SocketAddr};

const PLENTY: Limit = Limit {
    packets: PACKETS_MAX,
    burst: PACKETS_MAX,
};
const RARE: Limit = Limit {
    packets: 1,
    burst: 1,
};
/// SYNs, each run alone, whose median is one sample.
const ALONE: u16 = 500;

const QUANTITIES: [Quantity; 1] = [Quantity::new(".ns", "ns/packet", &[("ns", Shown::Median)])];

fn end() -> SocketAddr {
    (Ipv4Addr::new(203, 0, 113, 1), 80).into()
}

fn client(host: u16, port: u16) -> SocketAddr {
    let address = Ipv4Addr::from_bits(0x0a00_0000 + u32::from(host));
    (address, port).into()
}

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    let (rounds, repeat) = report.effort((101, 1_000_000), (11, 200_000));
    let mut limiting = Guard::load(&Settings {
        source: Some(PLENTY),
        destination: Some(PLENTY),
        ..Settings::default()
    })?;
    let mut strict = Guard::load(&Settings {
        source: Some(RARE),
        ..Settings::default()
    })?;
    let mut protecting = Guard::load(&Settings {
        source: Some(PLENTY),
        ends: vec![end()],
        syns: RARE,
        ..Settings::default()
    })?;
    let variants = ["limit", "over", "connection", "syn", "nothing"];
    let mut samples = variants.map(|_| Samples::default());
    for round in 0..rounds {
        let round = round as u16;
        let plain = datagram(client(round, 1000), round);
        let known = connection(&mut protecting, client(round, 2000))?;
        samples[0].push(timed(&mut limiting, &plain, repeat, Action::Pass)?);
        strict.fast().test_run(&plain, 2)?;
        samples[1].push(timed(&mut strict, &plain, repeat, Action::Drop)?);
        samples[2].push(timed(&mut protecting, &known, repeat, Action::Pass)?);
        let (mut syns, mut nothings) = (Samples::default(), Samples::default());
        let nothing = [&[2; 12][..], &[8, 6], &[0; 46]].concat();
        for port in 0..ALONE {
            let syn = segment(client(round, 3000 + port), TcpFlags::SYN, (1, 0));
            let run = protecting.fast().test_run(&syn, 1)?;
            // Other results leave the packet to the kernel.
            if run.action == Action::Send {
                syns.push(f64::from(run.ns));
            }
            nothings.push(timed(&mut protecting, &nothing, 1, Action::Pass)?);
        }
        samples[3].push(syns.median());
        samples[4].push(nothings.median());
    }
    let mut sweep = Sweep::plain(&["packet"], QUANTITIES);
    for (variant, samples) in variants.into_iter().zip(samples) {
        let side = Side::new([variant.to_owned()], format!("guard.{variant}"), ())
            .under("one core, BPF_PROG_TEST_RUN, IPv4");
        sweep.add(&side, [samples]);
    }
    sweep.report_all(report);
    sweep.print("guard, ns per packet");
    flooded::run(report)
}

fn timed(guard: &mut Guard, packet: &[u8], repeat: u32, expected: Action) -> anyhow::Result<f64> {
    let run = guard.fast().test_run(packet, repeat)?;
    ensure!(
        run.action == expected,
        "a packet met {:?}: {:?}",
        run.action,
        guard.exits()
    );
    Ok(f64::from(run.ns))
}

fn datagram(from: SocketAddr, to: u16) -> Vec<u8> {
    let to = SocketAddr::from((Ipv4Addr::from_bits(0xcb00_7200 + u32::from(to)), 53));
    bytes(&Frame::udp(from, to), &[0; 22])
}

fn segment(from: SocketAddr, flags: TcpFlags, numbers: (u32, u32)) -> Vec<u8> {
    let frame = Frame::tcp(from, end(), flags).sequence(numbers.0, numbers.1);
    bytes(&frame, &[])
}

fn bytes(frame: &Frame<'_>, payload: &[u8]) -> Vec<u8> {
    let mut buffer = [0; 128];
    let length = frame.write(&mut buffer, payload).expect("it fits");
    buffer[..length].to_vec()
}

/// Returns a segment of a connection that was established by a cookie.
fn connection(guard: &mut Guard, client: SocketAddr) -> anyhow::Result<Vec<u8>> {
    let syn = segment(client, TcpFlags::SYN, (1, 0));
    // The first SYNs may be left to the kernel.
    for _ in 0..1000 {
        let run = guard.fast().test_run(&syn, 1)?;
        if run.action == Action::Send {
            let frame = EthernetFrame::new_checked(&run.packet[..])?;
            let packet = Ipv4Packet::new_checked(frame.payload())?;
            let cookie = TcpPacket::new_checked(packet.payload())?.seq();
            let numbers = (2, cookie.wrapping_add(1));
            let acknowledged = segment(client, TcpFlags::ACK, numbers);
            timed(guard, &acknowledged, 1, Action::Pass)?;
            return Ok(acknowledged);
        }
    }
    None.context("no SYN was answered")
}
