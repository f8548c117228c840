//! State of a flow that is under way, with its end.
//!
//! A state admits the packets of one flow in both directions, each on the port where it belongs:
//! the first packet's direction on the first packet's port, the other on the other port.

use super::config;
use super::flow::FlowId;
use super::packet::Packet;
use super::rule::{ICMP, ICMPV6, TCP, UDP};
use crate::function::Nanos;
use crate::tcp::{Connection, Effect, End, OutOfWindow, Policy, Segment, Stage};
use crate::traffic::OnWire;
use serde::{Deserialize, Serialize};

/// Phase in the life of a flow; the names of [`config::Timeouts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Packets came from one side only.
    Opening,
    /// TCP: both sides have, and the opener has not acknowledged the other's SYN.
    Answered,
    /// Both sides have; TCP: the handshake is over.
    Open,
    /// TCP: one side has sent FIN.
    Closing,
    /// TCP: both have, or one RST.
    Closed,
}

impl Phase {
    /// The name in the answer of `states`.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Opening => "opening",
            Phase::Answered => "answered",
            Phase::Open => "open",
            Phase::Closing => "closing",
            Phase::Closed => "closed",
        }
    }
}

/// Packets on a wire, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// Packets.
    pub packets: u64,
    /// Bytes of their frames, without FCS.
    pub bytes: u64,
}

impl Count {
    /// Adds the packets that another instance has counted.
    pub(super) fn more(&mut self, other: Count) {
        self.packets = self.packets.saturating_add(other.packets);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }

    /// Adds a frame.
    #[inline]
    pub fn add(&mut self, frame: OnWire) {
        self.packets += frame.packets();
        self.bytes += frame.bytes();
    }
}

/// A flow that may pass.
#[derive(Clone, Debug)]
pub struct State {
    pub(super) flow: FlowId,
    /// Expiry unless another packet arrives.
    pub expires: Nanos,
    /// Index of the rule that made it.
    pub rule: u32,
    /// Idle time of the rule in seconds, 0 if it has none of its own.
    pub(super) timeout_s: u32,
    /// True if the other side has answered.
    pub(super) replied: bool,
    /// The connection of a TCP flow.
    pub(super) tcp: Connection,
    /// Port on which the first packet arrived.
    pub in_port: u8,
    /// Packets from the first packet's sender.
    pub forth: Count,
    /// Packets of the other side.
    pub back: Count,
    /// True if the source table counts the state.
    pub(super) counted: bool,
}

impl State {
    /// The flow's first packet, as far as it is remembered.
    pub fn first(&self) -> Packet {
        self.flow.packet_from(self.in_port)
    }

    /// Returns the phase of the flow.
    pub fn phase(&self) -> Phase {
        if self.flow.protocol() != TCP {
            return if self.replied {
                Phase::Open
            } else {
                Phase::Opening
            };
        }
        match self.tcp.stage() {
            Stage::Opening => Phase::Opening,
            Stage::Answered => Phase::Answered,
            Stage::Established => Phase::Open,
            Stage::Closing => Phase::Closing,
            Stage::Closed => Phase::Closed,
        }
    }

    /// Returns true if the state is a TCP connection that was never established, or an unanswered flow of another
    /// protocol: an attacker with forged addresses can make any number of such states.
    #[inline]
    pub(super) fn is_half_open(&self) -> bool {
        match self.flow.protocol() {
            TCP => self.tcp.is_half_open(),
            _ => !self.replied,
        }
    }

    /// Takes one of the flow's packets into account, which has this TCP segment.
    ///
    /// # Errors
    /// The packet must not pass, and changes nothing.
    #[inline(always)]
    pub(super) fn advance(
        &mut self,
        packet: &Packet,
        segment: Option<&Segment<'_>>,
        frame: OnWire,
        now: Nanos,
        settings: &Settings,
    ) -> Result<(), OutOfWindow> {
        let from = if packet.in_port == self.in_port {
            End::Near
        } else {
            End::Far
        };
        let effect = match segment {
            Some(segment) => self.tcp.segment(from, segment, settings.policy)?,
            None => Effect::Restarts,
        };
        match from {
            End::Near => self.forth.add(frame),
            End::Far => {
                self.back.add(frame);
                self.replied = true;
            }
        }
        if effect == Effect::Restarts {
            let idle = Nanos::from_secs(u64::from(self.idle_s(&settings.timeouts)));
            self.expires = Nanos(now.0.saturating_add(idle.0));
        }
        Ok(())
    }

    #[inline(always)]
    pub(super) fn idle_s(&self, timeouts: &config::Timeouts) -> u32 {
        let own = |general: u32| match self.timeout_s {
            0 => general,
            own => own,
        };
        match (self.flow.protocol(), self.phase()) {
            (TCP, Phase::Opening) => timeouts.tcp_opening,
            (TCP, Phase::Answered) => timeouts.tcp_answered,
            (TCP, Phase::Open) => own(timeouts.tcp_established),
            (TCP, Phase::Closing) => timeouts.tcp_closing,
            (TCP, Phase::Closed) => timeouts.tcp_closed,
            (UDP, Phase::Opening) => own(timeouts.udp_opening),
            (UDP, _) => own(timeouts.udp),
            (ICMP | ICMPV6, _) => own(timeouts.icmp),
            _ => own(timeouts.other),
        }
    }

    /// Returns true if the connection has ended and this segment begins a new one.
    pub(super) fn is_reopened_by(&self, segment: Option<&Segment<'_>>) -> bool {
        segment.is_some_and(Segment::opens) && self.phase() == Phase::Closed
    }
}

/// Settings of all states.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) timeouts: config::Timeouts,
    pub(super) policy: Policy,
}
