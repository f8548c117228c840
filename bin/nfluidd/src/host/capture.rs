//! Live captures: pcap streams of a port's frames, for any number of operators at once.

use super::{Host, Shared, lock};
use nfluid_api::types::Problem;
use nfluid_control::model::PortRef;
use nfluid_switch::capture::Captured;
use rustix::time::{ClockId, clock_gettime};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;

/// Records that may wait for one reader. Records beyond that are left out.
const WAITING_MAX: usize = 1024;
/// Interval at which the thread checks whether a capture still has a reader.
const LOOK: Duration = Duration::from_millis(200);
/// pcap file header: microseconds, version 2.4, at most 2032 bytes of each frame (a longer frame is cut), Ethernet (1).
const PCAP_HEADER: [u32; 6] = [0xa1b2_c3d4, 2 | 4 << 16, 0, 0, 2032, 1];

struct Listener {
    /// The queues of the port.
    port: Range<u32>,
    frames: mpsc::Sender<Vec<u8>>,
}

/// The running captures, and the port of each.
#[derive(Clone, Default)]
pub struct Listeners(Arc<Mutex<Vec<Listener>>>);

/// Starts a capture of `port`.
pub fn capture(host: &Shared, port: &PortRef) -> Result<mpsc::Receiver<Vec<u8>>, Problem> {
    let mut locked = lock(host);
    let ids = locked.queue_ids(port).ok_or_else(|| {
        Problem::not_found(format!("there is no port '{port}'"))
            .with_remedy("'nfluid get ports' and 'nfluid get uplinks' list them")
    })?;
    let (sender, receiver) = mpsc::channel(WAITING_MAX);
    let header: Vec<u8> = PCAP_HEADER
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .collect();
    // The channel is empty, so the header has room.
    let _ = sender.try_send(header);
    locked
        .listen(ids, sender)
        .map_err(|error| Problem::failed(format!("capturing: {error:#}")))?;
    Ok(receiver)
}

impl Host {
    fn listen(&mut self, port: Range<u32>, frames: mpsc::Sender<Vec<u8>>) -> anyhow::Result<()> {
        let listeners = self.listeners.clone();
        let mut list = listeners.0.lock().unwrap_or_else(PoisonError::into_inner);
        let first = list.is_empty();
        port.clone()
            .for_each(|id| self.switch.set_capture(id, true));
        list.push(Listener { port, frames });
        drop(list);
        if first {
            let reader = self.switch.capture_reader()?;
            let switch = Arc::clone(&self.switch);
            std::thread::Builder::new()
                .name("capture".to_owned())
                .spawn(move || {
                    let offset_ns = realtime_offset_ns();
                    let read = reader.run(LOOK, |captured| {
                        match captured {
                            Some(captured) => listeners.hand_out(&captured, offset_ns),
                            None => return listeners.end_unread(&switch),
                        }
                        true
                    });
                    if let Err(error) = read {
                        tracing::warn!(%error, "capture");
                    }
                })?;
        }
        Ok(())
    }
}

impl Listeners {
    fn hand_out(&self, captured: &Captured<'_>, offset_ns: u64) {
        let list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for listener in list
            .iter()
            .filter(|l| l.port.contains(&captured.from) || l.port.contains(&captured.to))
        {
            let _ = listener.frames.try_send(pcap_record(captured, offset_ns));
        }
    }

    /// Ends the captures without a reader. Returns false if no capture is left.
    fn end_unread(&self, switch: &nfluid_switch::Switch) -> bool {
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (gone, here): (Vec<Listener>, Vec<Listener>) = std::mem::take(&mut *list)
            .into_iter()
            .partition(|listener| listener.frames.is_closed());
        for listener in gone {
            if here.iter().all(|other| other.port != listener.port) {
                listener.port.for_each(|id| switch.set_capture(id, false));
            }
        }
        *list = here;
        !list.is_empty()
    }
}

fn pcap_record(captured: &Captured<'_>, offset_ns: u64) -> Vec<u8> {
    let time_us = captured.time_ns.saturating_add(offset_ns) / 1000;
    let head = [
        (time_us / 1_000_000) as u32,
        (time_us % 1_000_000) as u32,
        captured.frame.len() as u32,
        captured.len,
    ];
    let mut record: Vec<u8> = head.iter().flat_map(|word| word.to_le_bytes()).collect();
    record.extend_from_slice(captured.frame);
    record
}

/// Returns the offset of the time since 1970 from the monotonic clock.
fn realtime_offset_ns() -> u64 {
    let ns = |clock| {
        let time = clock_gettime(clock);
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    };
    ns(ClockId::Realtime).saturating_sub(ns(ClockId::Monotonic))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_written_whatever_its_time() {
        let frame = [7; 60];
        for time_ns in [0, 1_500_000_000, u64::MAX] {
            let captured = Captured {
                from: 1,
                to: 2,
                time_ns,
                frame: &frame,
                len: 9014,
            };
            let record = pcap_record(&captured, 1_000_000_000);
            assert_eq!(record.len(), 16 + frame.len());
            assert_eq!(record[8..12], 60u32.to_le_bytes());
            assert_eq!(record[12..16], 9014u32.to_le_bytes());
        }
    }
}
