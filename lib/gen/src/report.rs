//! Reports: a line per second and the final figures, to read and as JSON.
//!
//! Bits per second are given twice: `bps_l2` counts the frames as they are in their slots, and
//! `bps_l1` adds the 24 bytes that preamble, FCS and gap take per frame on an Ethernet wire.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::check::CheckReport;
use crate::clock::NS_PER_S;
use crate::latency::LatencySummary;
use crate::spec::LAYER1_OVERHEAD;

/// Frames over a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Volume {
    /// Frames.
    pub packets: u64,
    /// Bytes of the frames in their slots.
    pub bytes: u64,
    /// Length of the time in seconds.
    pub seconds: f64,
    /// Packets per second.
    pub pps: f64,
    /// Bits per second without preamble, FCS and gap.
    pub bps_l2: f64,
    /// Bits per second with preamble, FCS and gap.
    pub bps_l1: f64,
}

impl Volume {
    /// The rates of `packets` frames with `bytes` bytes in `elapsed_ns` nanoseconds.
    pub fn new(packets: u64, bytes: u64, elapsed_ns: u64) -> Self {
        let seconds = elapsed_ns as f64 / NS_PER_S as f64;
        let per_second = |count: f64| if seconds > 0.0 { count / seconds } else { 0.0 };
        let layer1_bytes = bytes as f64 + packets as f64 * LAYER1_OVERHEAD as f64;
        Volume {
            packets,
            bytes,
            seconds,
            pps: per_second(packets as f64),
            bps_l2: per_second(bytes as f64 * 8.0),
            bps_l1: per_second(layer1_bytes * 8.0),
        }
    }
}

impl fmt::Display for Volume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} packets, {}pps, {}bit/s ({}bit/s with preamble, FCS and gap)",
            self.packets,
            scaled(self.pps),
            scaled(self.bps_l2),
            scaled(self.bps_l1),
        )
    }
}

/// A figure with three digits and a prefix: `1.49 M`.
fn scaled(value: f64) -> String {
    match value {
        1e9.. => format!("{:.3} G", value / 1e9),
        1e6.. => format!("{:.3} M", value / 1e6),
        1e3.. => format!("{:.3} k", value / 1e3),
        _ => format!("{value:.1} "),
    }
}

/// Frames and bytes counted while a loop runs, and where the last second's line left off.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tally {
    start_ns: u64,
    packets: u64,
    bytes: u64,
    line_start_ns: u64,
    line_packets: u64,
    line_bytes: u64,
}

impl Tally {
    pub(crate) fn new(now_ns: u64) -> Self {
        Tally {
            start_ns: now_ns,
            packets: 0,
            bytes: 0,
            line_start_ns: now_ns,
            line_packets: 0,
            line_bytes: 0,
        }
    }

    #[inline]
    pub(crate) fn add(&mut self, packets: u64, bytes: u64) {
        self.packets += packets;
        self.bytes += bytes;
    }

    pub(crate) fn packets(&self) -> u64 {
        self.packets
    }

    /// Returns the time at which the current line is complete.
    pub(crate) fn line_end_ns(&self) -> u64 {
        self.line_start_ns + NS_PER_S
    }

    /// Completes a line: its number, from 0, and its volume.
    pub(crate) fn end_line(&mut self) -> (u64, Volume) {
        let second = (self.line_start_ns - self.start_ns) / NS_PER_S;
        let volume = Volume::new(
            self.packets - self.line_packets,
            self.bytes - self.line_bytes,
            NS_PER_S,
        );
        self.line_start_ns += NS_PER_S;
        self.line_packets = self.packets;
        self.line_bytes = self.bytes;
        (second, volume)
    }

    /// Everything counted, from the start to `now_ns`.
    pub(crate) fn total(&self, now_ns: u64) -> Volume {
        self.between(self.start_ns, now_ns)
    }

    /// Everything counted, as what happened between two points in time.
    pub(crate) fn between(&self, start_ns: u64, end_ns: u64) -> Volume {
        Volume::new(self.packets, self.bytes, end_ns - start_ns)
    }
}

/// A second of sending.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SendLine {
    /// Seconds since the start.
    pub second: u64,
    /// The sent frames.
    #[serde(flatten)]
    pub sent: Volume,
    /// Requested packets per second; `None` if as many as possible.
    pub asked_pps: Option<f64>,
    /// Frames given up because the port or the CPU could not keep up.
    pub missed: u64,
}

impl fmt::Display for SendLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>4} s  sent {}", self.second, self.sent)?;
        if let Some(asked_pps) = self.asked_pps {
            write!(
                f,
                ", asked {}pps, missed {}",
                scaled(asked_pps),
                self.missed
            )?;
        }
        Ok(())
    }
}

/// The total of sending.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SendReport {
    /// The sent frames.
    #[serde(flatten)]
    pub sent: Volume,
    /// Scheduled frames: sent and missed; `None` if as many as possible.
    pub asked_packets: Option<u64>,
    /// Frames given up because the port or the CPU could not keep up.
    pub missed: u64,
    /// Number of times at which the port had no free slot.
    pub port_full: u64,
    /// Sent packets that the port itself could not pass on.
    pub dropped: u64,
}

impl fmt::Display for SendReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sent {} in {:.3} s", self.sent, self.sent.seconds)?;
        if let Some(asked) = self.asked_packets {
            let share = 100.0 * self.sent.packets as f64 / asked.max(1) as f64;
            write!(
                f,
                "\nasked {asked} packets, missed {} ({share:.3} % sent)",
                self.missed
            )?;
        }
        Ok(())
    }
}

/// A second of receiving.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReceiveLine {
    /// Seconds since the start.
    pub second: u64,
    /// The received frames.
    #[serde(flatten)]
    pub received: Volume,
    /// Change of the number of lost frames; late arrivals make it negative.
    pub lost: i64,
    /// Duplicates.
    pub duplicates: u64,
    /// Reordered frames.
    pub reordered: u64,
    /// Corrupted frames.
    pub corrupt: u64,
    /// One-way delay in this second.
    pub latency: Option<LatencySummary>,
}

impl ReceiveLine {
    pub(crate) fn new(
        (second, received): (u64, Volume),
        check: &CheckReport,
        before: &CheckReport,
        latency: Option<LatencySummary>,
    ) -> Self {
        ReceiveLine {
            second,
            received,
            lost: check.lost as i64 - before.lost as i64,
            duplicates: check.duplicates - before.duplicates,
            reordered: check.reordered - before.reordered,
            corrupt: check.corrupt - before.corrupt,
            latency,
        }
    }
}

impl fmt::Display for ReceiveLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:>4} s  received {}, lost {}",
            self.second, self.received, self.lost
        )?;
        for (count, what) in [
            (self.duplicates, "duplicates"),
            (self.reordered, "reordered"),
            (self.corrupt, "corrupt"),
        ] {
            if count > 0 {
                write!(f, ", {what} {count}")?;
            }
        }
        if let Some(latency) = &self.latency {
            write!(f, "; {latency}")?;
        }
        Ok(())
    }
}

/// The total of receiving. The time runs from the first frame to the last.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReceiveReport {
    /// The received frames.
    #[serde(flatten)]
    pub received: Volume,
    /// Loss, duplication, order, corruption; none when frames were only counted.
    pub check: Option<CheckReport>,
    /// Expected frames, if the user has given a number.
    pub expected: Option<u64>,
    /// One-way delay.
    pub latency: Option<LatencySummary>,
    /// Frames from the future: the two sides do not share a clock, and there is no latency.
    pub clock_skewed: u64,
}

impl ReceiveReport {
    /// Frames lost: those of the number expected that have not come, where one was given, else the
    /// gaps in the streams.
    pub fn lost(&self) -> u64 {
        let unique = self
            .check
            .map_or(self.received.packets, |check| check.unique);
        match self.expected {
            Some(expected) => expected.saturating_sub(unique),
            None => self.check.map_or(0, |check| check.lost),
        }
    }
}

impl fmt::Display for ReceiveReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "received {} in {:.3} s",
            self.received, self.received.seconds
        )?;
        write!(f, "\nlost {}", self.lost())?;
        if let Some(expected) = self.expected {
            write!(f, " of {expected}")?;
        }
        if let Some(check) = &self.check {
            write!(
                f,
                ", duplicates {}, reordered {} (by up to {}), stale {}, corrupt {}, foreign {}; \
                 {} streams",
                check.duplicates,
                check.reordered,
                check.reorder_extent_max,
                check.stale,
                check.corrupt,
                check.foreign,
                check.streams,
            )?;
            for (count, what) in [
                (check.untracked, "frames of further streams only counted"),
                (check.joined, "streams joined while running"),
                (check.restarts, "streams began anew"),
            ] {
                if count > 0 {
                    write!(f, "\n{count} {what}")?;
                }
            }
        }
        if let Some(latency) = &self.latency {
            write!(f, "\none-way latency: {latency}")?;
        }
        if self.clock_skewed > 0 {
            write!(
                f,
                "\n{} frames from the future: clocks not shared",
                self.clock_skewed
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_states_both_layers() {
        // Ten-gigabit line rate of the smallest frames.
        let volume = Volume::new(14_880_952, 14_880_952 * 60, NS_PER_S);
        assert!((volume.bps_l1 - 10e9).abs() < 1e3);
        assert!((volume.bps_l2 - 7.142_856_96e9).abs() < 1e3);
        let text = volume.to_string();
        assert!(
            text.contains("14.881 Mpps") && text.contains("10.000 Gbit/s with"),
            "{text}"
        );
        assert_eq!(Volume::new(5, 300, 0).pps, 0.0);
    }

    #[test]
    fn lines_are_differences() {
        let mut tally = Tally::new(100);
        tally.add(10, 640);
        assert_eq!(tally.end_line().1.packets, 10);
        tally.add(1, 64);
        let (second, volume) = tally.end_line();
        assert_eq!((second, volume.packets, volume.bytes), (1, 1, 64));
        assert_eq!(tally.total(100 + 2 * NS_PER_S).packets, 11);
    }

    #[test]
    fn loss_against_an_expected_number_includes_the_end() {
        let check = CheckReport {
            unique: 90,
            lost: 3,
            ..CheckReport::default()
        };
        let report = ReceiveReport {
            received: Volume::new(95, 0, 1),
            check: Some(check),
            expected: Some(100),
            latency: None,
            clock_skewed: 0,
        };
        assert_eq!(report.lost(), 10);
        assert_eq!(
            ReceiveReport {
                expected: None,
                ..report.clone()
            }
            .lost(),
            3
        );
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(
            (&json["packets"], &json["check"]["lost"]),
            (&95.into(), &3.into())
        );
    }
}
