//! Round trips of small UDP datagrams, for the delay on a path that other traffic fills. Datagrams leave at fixed times,
//! whatever has come back, so that a slow path delays no measurement.

use super::work::{Outcome, Span, Times, cpu_seconds, print_ready, serve};
use anyhow::Context;
use nfluid_ring::clock::monotonic_ns;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::time::Duration;

/// Bytes of a datagram: a time stamp, and nothing else of interest.
const LEN: usize = 64;
/// Interval at which datagrams leave.
const EVERY: Duration = Duration::from_millis(2);
/// Time after which a datagram counts as lost, and as having taken this time.
const GIVE_UP: Duration = Duration::from_secs(1);

/// Returns each datagram to its sender, until the process is killed.
pub fn echo(port: u16) -> anyhow::Result<()> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port)).context("a socket")?;
    print_ready()?;
    let mut datagram = [0; LEN];
    loop {
        let (len, from) = socket.recv_from(&mut datagram).context("receiving")?;
        // A datagram that cannot be sent is lost, and the sender counts it.
        let _ = socket.send_to(&datagram[..len], from);
    }
}

/// Sends to such a port; the outcome has the times of round trips.
pub fn probe(to: SocketAddrV4) -> anyhow::Result<()> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).context("a socket")?;
    socket
        .connect(to)
        .with_context(|| format!("a way to {to}"))?;
    socket.set_nonblocking(true)?;
    print_ready()?;
    serve(|span| round_trips(&socket, span))
}

fn round_trips(socket: &UdpSocket, span: Span) -> anyhow::Result<Outcome> {
    let (start, cpu) = (monotonic_ns().max(span.from_ns), cpu_seconds());
    let end = start + ns(span.time);
    let (mut next, mut sent, mut received) = (start, 0, 0);
    let mut times = Times::default();
    loop {
        let now = monotonic_ns();
        received += take_all(socket, start, now, &mut times)?;
        if now >= next && next < end {
            let mut datagram = [0; LEN];
            datagram[..8].copy_from_slice(&now.to_ne_bytes());
            // A datagram that is refused is lost.
            let _ = socket.send(&datagram);
            sent += 1;
            next += ns(EVERY);
            continue;
        }
        if now >= end && (received == sent || now >= end + ns(GIVE_UP)) {
            break;
        }
        let wake = if next < end { next } else { end + ns(GIVE_UP) };
        await_input(socket, Duration::from_nanos(wake.saturating_sub(now)))?;
    }
    let lost = sent - received;
    (0..lost).for_each(|_| times.push_ns(ns(GIVE_UP)));
    let mut outcome = Outcome {
        frames: received,
        seconds: span.time.as_secs_f64(),
        cpu_seconds: cpu_seconds() - cpu,
        lost,
        ..Outcome::default()
    };
    times.report(&mut outcome);
    Ok(outcome)
}

/// Takes what has come back and left after `start`; returns the number.
fn take_all(socket: &UdpSocket, start: u64, now: u64, times: &mut Times) -> anyhow::Result<u64> {
    let mut datagram = [0; LEN];
    let mut count = 0;
    loop {
        match socket.recv(&mut datagram) {
            Ok(LEN) => {}
            Ok(_) => continue,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(count),
            // An earlier datagram was refused: it is lost.
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => continue,
            Err(error) => return Err(error).context("receiving"),
        }
        let left = datagram
            .first_chunk()
            .map_or(0, |it| u64::from_ne_bytes(*it));
        if left >= start {
            times.push_ns(now.saturating_sub(left));
            count += 1;
        }
    }
}

fn await_input(socket: &UdpSocket, time: Duration) -> anyhow::Result<()> {
    let time = Timespec::try_from(time).context("a time to wait")?;
    let mut fds = [PollFd::new(socket, PollFlags::IN)];
    match poll(&mut fds, Some(&time)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error).context("waiting for a datagram"),
    }
}

fn ns(time: Duration) -> u64 {
    time.as_nanos() as u64
}

#[cfg(test)]
mod tests {
    use super::{GIVE_UP, LEN, Span, round_trips};
    use std::net::{SocketAddr, UdpSocket};
    use std::thread;
    use std::time::Duration;

    fn pair() -> (UdpSocket, UdpSocket, SocketAddr) {
        let [one, other] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").expect("a socket"));
        let (to, back) = (other.local_addr(), one.local_addr());
        one.connect(to.expect("an address")).expect("connect");
        one.set_nonblocking(true).expect("non-blocking");
        (one, other, back.expect("an address"))
    }

    #[test]
    fn each_datagram_counts_once_and_a_lost_one_with_the_longest_time() {
        let (probe, echo, back) = pair();
        let answers = thread::spawn(move || {
            let mut datagram = [0; LEN];
            for number in 0..10 {
                echo.recv(&mut datagram).expect("a datagram");
                if number != 4 {
                    echo.send_to(&datagram, back).expect("an answer");
                }
            }
        });
        let outcome = round_trips(&probe, Span::of(Duration::from_millis(20))).expect("a run");
        answers.join().expect("the echo");
        assert_eq!((outcome.frames, outcome.lost), (9, 1));
        assert!(outcome.median_us < GIVE_UP.as_micros() as f64);
        assert!(
            outcome.p99_us > 0.8 * GIVE_UP.as_micros() as f64,
            "{outcome:?}"
        );
    }
}
