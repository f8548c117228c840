//! Numbered datagrams at a fixed rate from one namespace to another, and their losses.

use anyhow::{Context, anyhow, bail};
use nfluid_testbed::interrupt;
use nfluid_testbed::namespace::Namespace;
use rustix::io::retry_on_intr;
use rustix::net::SendFlags;
use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use std::net::{SocketAddrV4, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Payload of frames of 64 bytes with their checksum: 18 bytes after the headers of UDP, IPv4 and Ethernet.
const PAYLOAD: usize = 18;
/// Size of the receiver's socket buffer, which holds datagrams while the receiver does not get a core.
const RECEIVE_BUFFER: usize = 32 << 20;
/// After this time without a datagram, none is in flight any more.
const QUIET: Duration = Duration::from_millis(300);
/// Interval at which the datagrams that are due are sent together.
const GATHER: Duration = Duration::from_micros(100);
/// Number of tries of the first datagrams.
const TRIES: u32 = 10;

/// The sockets of the sender and the receiver.
pub struct Stream {
    sender: UdpSocket,
    receiver: UdpSocket,
    runs: u32,
}

/// Result of a run: sent and lost datagrams.
pub struct Passage {
    /// Sent.
    pub sent: u64,
    /// Sent datagrams that were not received.
    pub lost: u64,
    /// The longest time between two received datagrams; that of the whole run if none was received.
    pub gap: Duration,
    /// Times at which the lost datagrams were due.
    pub lost_at: Vec<Instant>,
}

impl Stream {
    /// Makes the sockets for datagrams from a namespace to an address of another namespace.
    ///
    /// # Errors
    /// When the sockets cannot be made.
    pub fn new(client: &Namespace, server: &Namespace, to: SocketAddrV4) -> anyhow::Result<Self> {
        let receiver = server.udp_socket(&to.to_string())?;
        set_socket_recv_buffer_size_force(&receiver, RECEIVE_BUFFER).context("a large buffer")?;
        receiver.set_read_timeout(Some(QUIET))?;
        let sender = client.udp_socket("0.0.0.0:0")?;
        sender.connect(to).context("choosing where to send to")?;
        Ok(Stream {
            sender,
            receiver,
            runs: 0,
        })
    }

    /// Waits until datagrams arrive: the first ones may find no receiver.
    ///
    /// # Errors
    /// When no datagram arrives.
    pub fn until_it_crosses(&mut self) -> anyhow::Result<()> {
        for _ in 0..TRIES {
            interrupt::check()?;
            let tried = self.run(1000, Duration::from_millis(100), || Ok(()))?;
            if tried.lost < tried.sent {
                return Ok(());
            }
        }
        bail!("datagrams do not cross the platform: nothing arrives")
    }

    /// Sends one datagram back, so that learning devices on the path learn the server's address.
    ///
    /// # Errors
    /// When the socket fails.
    pub fn answer(&self) -> anyhow::Result<()> {
        let to = self.sender.local_addr().context("the sender's address")?;
        self.receiver
            .send_to(&[0; PAYLOAD], to)
            .context("sending back")?;
        Ok(())
    }

    /// Sends `pps` datagrams a second for `time`, does `meanwhile` in the middle, and counts.
    ///
    /// # Errors
    /// The error of `meanwhile`; when the sockets fail.
    pub fn run(
        &mut self,
        pps: u32,
        time: Duration,
        meanwhile: impl FnOnce() -> anyhow::Result<()>,
    ) -> anyhow::Result<Passage> {
        interrupt::check()?;
        self.runs += 1;
        let run = self.runs;
        let over = AtomicBool::new(false);
        let (sent, received) = thread::scope(|scope| {
            let receiving = scope.spawn(|| receive(&self.receiver, run, &over));
            let sending = scope.spawn(|| {
                let sent = send(&self.sender, run, pps, time);
                over.store(true, Ordering::Release);
                sent
            });
            thread::sleep(time / 2);
            let done = meanwhile();
            let sent = sending.join().map_err(|_| anyhow!("the sender failed"))??;
            let received = receiving
                .join()
                .map_err(|_| anyhow!("the receiver failed"))?;
            done.and(Ok((sent, received?)))
        })?;
        let (sent, begun) = sent;
        let planned = |number: u32| begun + Duration::from_secs(1) * number / pps;
        let lost_at: Vec<Instant> = received.missing(sent).map(planned).collect();
        Ok(Passage {
            sent: u64::from(sent),
            lost: lost_at.len() as u64,
            // On a busy machine a process may have had no core for all of a brief run.
            gap: if received.count() > 0 {
                received.gap
            } else {
                time
            },
            lost_at,
        })
    }
}

/// Sends by an absolute schedule; returns the number of sent datagrams, and the start time.
fn send(socket: &UdpSocket, run: u32, pps: u32, time: Duration) -> anyhow::Result<(u32, Instant)> {
    let start = Instant::now();
    let mut sent = 0u32;
    let mut datagram = [0; PAYLOAD];
    datagram[..4].copy_from_slice(&run.to_le_bytes());
    loop {
        let elapsed = start.elapsed().min(time);
        let due = (elapsed.as_secs_f64() * f64::from(pps)) as u32;
        while sent < due {
            datagram[4..8].copy_from_slice(&sent.to_le_bytes());
            retry_on_intr(|| rustix::net::send(socket, &datagram, SendFlags::empty()))
                .context("sending")?;
            sent += 1;
        }
        if elapsed == time {
            return Ok((sent, start));
        }
        thread::sleep(GATHER);
    }
}

/// The received datagrams.
#[derive(Default)]
struct Received {
    /// By number: true if received.
    seen: Vec<bool>,
    last: Option<Instant>,
    gap: Duration,
}

impl Received {
    fn note(&mut self, number: u32, now: Instant) {
        if let Some(last) = self.last.replace(now) {
            self.gap = self.gap.max(now - last);
        }
        let number = number as usize;
        if self.seen.len() <= number {
            self.seen.resize(number + 1, false);
        }
        self.seen[number] = true;
    }

    /// Returns the numbers of the first `sent` datagrams that have not arrived.
    fn missing(&self, sent: u32) -> impl Iterator<Item = u32> {
        (0..sent).filter(|number| self.seen.get(*number as usize) != Some(&true))
    }

    /// Returns the number of different datagrams.
    fn count(&self) -> u64 {
        self.seen.iter().filter(|seen| **seen).count() as u64
    }
}

/// Receives until the sender has finished and no more datagrams arrive.
fn receive(socket: &UdpSocket, run: u32, over: &AtomicBool) -> anyhow::Result<Received> {
    let mut received = Received::default();
    let mut datagram = [0; PAYLOAD];
    loop {
        let was_over = over.load(Ordering::Acquire);
        match socket.recv(&mut datagram) {
            Ok(PAYLOAD) => {}
            Ok(_) => continue,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                if was_over {
                    return Ok(received);
                }
                continue;
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error).context("receiving"),
        }
        let [of_run, number] = [0, 4].map(|at| {
            let bytes = [
                datagram[at],
                datagram[at + 1],
                datagram[at + 2],
                datagram[at + 3],
            ];
            u32::from_le_bytes(bytes)
        });
        if of_run == run {
            received.note(number, Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Received;
    use std::time::{Duration, Instant};

    // promise: 13.5
    #[test]
    fn each_is_counted_once_and_the_longest_gap_is_kept() {
        let start = Instant::now();
        let mut received = Received::default();
        for (number, ms) in [(0, 0), (1, 1), (4, 11), (4, 12), (3, 15)] {
            received.note(number, start + Duration::from_millis(ms));
        }
        assert_eq!(received.count(), 4, "0, 1, 3 and 4");
        assert_eq!(received.missing(7).collect::<Vec<_>>(), [2, 5, 6]);
        assert_eq!(received.gap, Duration::from_millis(10));
    }
}
