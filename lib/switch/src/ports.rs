//! Connecting ports, reading their counters, reclaiming them.

use crate::SwitchError;
use crate::abi::{DROPS, DropReason, MEMBERS_MAX, PORT_UP, PortState, SWITCHES_MAX};
use crate::program::Switch;
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use nfluid_ring::layout::Released;
use nfluid_ring::memory::ReceiverWords;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// The destination of the frames that a port sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// Nowhere: they are dropped as `no_route`.
    None,
    /// To this port.
    Link(u32),
    /// Into this switch.
    Switch(u32),
    /// The destination by the port's rules (uplinks).
    Classifier,
}

/// The counters of a port, all since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortCounters {
    /// Frames that the port's owner handed to the switch, each copy of a flooded one counted.
    pub tx_frames: u64,
    /// Bytes of those that were not refused at once.
    pub tx_bytes: u64,
    /// hyperio calls.
    pub tx_calls: u64,
    /// Calls whose head position was nonsense.
    pub tx_bad_heads: u64,
    /// Frames delivered to the port: into its ring, or out of the interface behind it.
    pub rx_frames: u64,
    /// Bytes delivered.
    pub rx_bytes: u64,
    /// Packets that sent super-frames will be, beyond one for each frame.
    pub tx_more_segments: u64,
    /// Bytes that these packets have beyond those of their frames: the headers of all segments but the first.
    pub tx_more_bytes: u64,
    /// As `tx_more_segments`, of delivered frames.
    pub rx_more_segments: u64,
    /// As `tx_more_bytes`, of delivered frames.
    pub rx_more_bytes: u64,
    /// For an uplink: received frames that were left to the host's own stack; not in `tx_frames`.
    pub passed: u64,
    /// Frames that came with a congestion signal: marked on their way into the ring, or before.
    pub marked: u64,
    /// Delivered frames that went out of the interface behind the port at once.
    pub forwarded: u64,
    /// Rings of the kernel doorbell.
    pub doorbells: u64,
    /// Addresses learned on the port.
    pub fdb_used: u32,
    /// Addresses that were not learned for want of room.
    pub fdb_refused: u32,
    /// Dropped frames by [`DropReason`].
    pub drops: [u64; DROPS],
}

impl PortCounters {
    /// Frames dropped for `reason`.
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.drops[reason as usize]
    }

    fn add(&mut self, other: &PortCounters) {
        self.tx_frames += other.tx_frames;
        self.tx_bytes += other.tx_bytes;
        self.tx_calls += other.tx_calls;
        self.tx_bad_heads += other.tx_bad_heads;
        self.rx_frames += other.rx_frames;
        self.rx_bytes += other.rx_bytes;
        self.tx_more_segments += other.tx_more_segments;
        self.tx_more_bytes += other.tx_more_bytes;
        self.rx_more_segments += other.rx_more_segments;
        self.rx_more_bytes += other.rx_more_bytes;
        self.passed += other.passed;
        self.marked += other.marked;
        self.forwarded += other.forwarded;
        self.doorbells += other.doorbells;
        self.fdb_used += other.fdb_used;
        self.fdb_refused += other.fdb_refused;
        for (sum, more) in self.drops.iter_mut().zip(other.drops) {
            *sum += more;
        }
    }

    /// Frames dropped for any reason.
    pub fn dropped_total(&self) -> u64 {
        self.drops.iter().sum()
    }
}

/// A ring whose fill level is read often. The owner of the port writes its read position: the word is read once, and
/// limited to the size of the ring.
#[derive(Debug)]
pub struct WatchedRing {
    port: u32,
    words: ReceiverWords,
}

impl WatchedRing {
    /// Returns the number of the port.
    pub fn port(&self) -> u32 {
        self.port
    }
}

/// The state of a ring at one reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingSample {
    /// Frames that wait, or are being copied into it: at most its slots. Of a port with slots for long frames, the same
    /// part of the ring as of those, if that is more.
    pub waiting: u32,
    /// The number of slots.
    pub slots: u32,
    /// Position up to which the owner has read, as it says: any number.
    pub read_to: u32,
    /// Frames of the owner's own wait for the switch, as it says.
    pub sends: bool,
}

impl Switch {
    pub(crate) fn state(&self, port: u32) -> &PortState {
        self.states.port(port)
    }

    /// Is the port up?
    pub fn is_up(&self, port: u32) -> bool {
        self.state(port).flags.load(Acquire) & PORT_UP != 0
    }

    /// Takes the port out of service or puts it back: frames to a port that is down are dropped as
    /// `port_down`, and its own calls fail with `ENETDOWN`.
    pub fn set_up(&self, port: u32, up: bool) {
        let flags = &self.state(port).flags;
        if up {
            flags.fetch_or(PORT_UP, Release);
        } else {
            flags.fetch_and(!PORT_UP, Release);
        }
    }

    /// Connects the port. A port that is on a switch is first taken off it; one that is connected so
    /// already is not touched, and loses nothing: a restarted daemon connects all ports again. A port that changes its
    /// switch is on none for a grace period, some 10 ms, until no frame of the old one is on its way.
    ///
    /// # Errors
    /// When the switch has no room for another port or the kernel refuses the update.
    pub fn connect(&self, port: u32, to: Destination) -> Result<(), SwitchError> {
        let before = self.destination_word(port).destination();
        if before != to {
            if let Destination::Switch(switch) = before {
                self.leave_switch(switch, port)?;
            }
            if to != Destination::None {
                self.await_what_was_left(port)?;
            }
            self.set_destination(port, to);
        }
        match to {
            Destination::Switch(switch) => self.join_switch(switch, port),
            _ => Ok(()),
        }
    }

    fn join_switch(&self, switch: u32, port: u32) -> Result<(), SwitchError> {
        self.change_members(switch, |members| {
            if members.contains(&port) {
                return Ok(());
            }
            if members.len() == MEMBERS_MAX {
                return Err(SwitchError::Limit(format!(
                    "a switch has at most {MEMBERS_MAX} ports"
                )));
            }
            members.push(port);
            Ok(())
        })
    }

    /// Takes a port off a switch. The switch stays the port's destination until all other references to the port are
    /// removed: a daemon that is killed in between is followed by a daemon that takes the port off the switch from the
    /// beginning. Addresses that are learned meanwhile are removed last.
    fn leave_switch(&self, switch: u32, port: u32) -> Result<(), SwitchError> {
        let off = self.change_members(switch, |members| {
            members.retain(|member| *member != port);
            Ok(())
        });
        let off = off.and_then(|()| self.forget_ports(|gone| gone == port));
        self.set_destination(port, Destination::None);
        self.note_left(port);
        off?;
        self.forget_ports(|gone| gone == port)
    }

    /// The ports of a switch.
    ///
    /// # Errors
    /// When there is no such switch.
    pub fn members(&self, switch: u32) -> Result<Vec<u32>, SwitchError> {
        if switch >= SWITCHES_MAX {
            return Err(SwitchError::Limit(format!(
                "a platform has at most {SWITCHES_MAX} switches"
            )));
        }
        let value = self
            .switches
            .lookup(&switch.to_ne_bytes(), MapFlags::ANY)
            .map_err(SwitchError::bpf(format!(
                "reading the ports of switch {switch}"
            )))?
            .unwrap_or_default();
        let words: Vec<u32> = value
            .chunks_exact(4)
            .map(|w| u32::from_ne_bytes(w.try_into().expect("four bytes")))
            .collect();
        let count = words.first().copied().unwrap_or(0) as usize;
        Ok(words
            .into_iter()
            .skip(4)
            .take(count.min(MEMBERS_MAX))
            .collect())
    }

    pub(crate) fn change_members(
        &self,
        switch: u32,
        change: impl FnOnce(&mut Vec<u32>) -> Result<(), SwitchError>,
    ) -> Result<(), SwitchError> {
        let before = self.members(switch)?;
        let mut members = before.clone();
        change(&mut members)?;
        if members == before {
            return Ok(());
        }
        let mut words = vec![members.len() as u32, 0, 0, 0];
        words.extend(&members);
        words.resize(4 + MEMBERS_MAX, 0);
        let value: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        self.switches
            .update(&switch.to_ne_bytes(), &value, MapFlags::ANY)
            .map_err(SwitchError::bpf(format!(
                "changing the ports of switch {switch}"
            )))
    }

    /// The port's counters.
    pub fn counters(&self, port: u32) -> PortCounters {
        let state = self.state(port);
        let mut drops = [0; DROPS];
        for (copy, counter) in drops.iter_mut().zip(&state.drops) {
            *copy = counter.load(Relaxed);
        }
        PortCounters {
            tx_frames: state.tx_frames.load(Relaxed),
            tx_bytes: state.tx_bytes.load(Relaxed),
            tx_calls: state.tx_calls.load(Relaxed),
            tx_bad_heads: state.tx_bad_heads.load(Relaxed),
            rx_frames: state.rx_frames.load(Relaxed),
            rx_bytes: state.rx_bytes.load(Relaxed),
            tx_more_segments: state.tx_more_segments.load(Relaxed),
            tx_more_bytes: state.tx_more_bytes.load(Relaxed),
            rx_more_segments: state.rx_more_segments.load(Relaxed),
            rx_more_bytes: state.rx_more_bytes.load(Relaxed),
            passed: state.passed.load(Relaxed),
            marked: state.marked.load(Relaxed),
            forwarded: state.forwarded.load(Relaxed),
            doorbells: state.doorbells.load(Relaxed),
            fdb_used: state.fdb_used.load(Relaxed),
            fdb_refused: state.fdb_refused.load(Relaxed),
            drops,
        }
    }

    /// The counters of several queues of a port, together.
    pub fn counters_of(&self, queues: impl IntoIterator<Item = u32>) -> PortCounters {
        let mut sum = PortCounters::default();
        for queue in queues {
            sum.add(&self.counters(queue));
        }
        sum
    }

    /// Frames that wait in the port's RX ring, or are being copied into it; see [`WatchedRing`]. `None`: the
    /// port has no ring.
    pub fn rx_ring_used(&self, port: u32) -> Option<u32> {
        let ring = self.watch_ring(port)?;
        Some(self.look_at(&ring).waiting)
    }

    /// Maps the words by which the owner of a port says how far it has read, to look at them often. `None`:
    /// the port has no ring.
    pub fn watch_ring(&self, port: u32) -> Option<WatchedRing> {
        let words = ReceiverWords::map(self.ring_map(port)?.as_fd()).ok()?;
        Some(WatchedRing { port, words })
    }

    /// The map of the port's ring, if it has one.
    pub(crate) fn ring_map(&self, port: u32) -> Option<MapHandle> {
        let id = self
            .rings
            .lookup(&port.to_ne_bytes(), MapFlags::ANY)
            .ok()??;
        MapHandle::from_map_id(u32::from_ne_bytes(id.try_into().ok()?)).ok()
    }

    /// Looks at a ring once.
    pub fn look_at(&self, ring: &WatchedRing) -> RingSample {
        let state = self.state(ring.port);
        let slots = state.mask.load(Relaxed).wrapping_add(1);
        // The word of the receiver is read first: slots reserved in between make the ring look fuller, never negative.
        let released = ring.words.released();
        let reserved = Released::of(state.rx_reserved.load(Acquire));
        let frames = used(reserved.head, released.head, slots);
        let waiting = match state.long_slots.load(Relaxed) {
            0 => frames,
            area => {
                let long = u64::from(used(reserved.long, released.long, area));
                frames.max((long * u64::from(slots) / u64::from(area)) as u32)
            }
        };
        RingSample {
            waiting,
            slots,
            read_to: released.head,
            sends: ring.words.sends(),
        }
    }

    /// Frames ever delivered to the port: one word, to be read often.
    pub fn delivered(&self, port: u32) -> u64 {
        self.state(port).rx_frames.load(Relaxed)
    }

    /// Counts frames that the daemon itself had to drop on a port.
    pub fn count_drop(&self, port: u32, reason: DropReason, frames: u64) {
        self.state(port).drops[reason as usize].fetch_add(frames, Relaxed);
    }
}

/// Slots in use, by the switch's position and the one that the receiver claims.
pub(crate) fn used(reserved: u32, head: u32, slots: u32) -> u32 {
    reserved.wrapping_sub(head).min(slots)
}

#[cfg(test)]
mod tests {
    use super::used;

    // promise: 7.22
    #[test]
    fn no_claim_makes_a_ring_fuller_than_full() {
        assert_eq!(used(5, 5, 64), 0);
        assert_eq!(used(3, u32::MAX - 1, 64), 5);
        for claim in [6, 1000, 1 << 31, 5u32.wrapping_sub(65)] {
            assert_eq!(used(5, claim, 64), 64, "{claim}");
        }
    }
}
