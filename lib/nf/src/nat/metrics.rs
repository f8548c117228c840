//! Counters of the NAT.

use super::endpoint::Protocol;
use super::state::State;
use crate::function::{Metric, PortInfo};
use crate::icmp_error::{self, Sent};
use crate::stateful::{Reader, StateError, Writer};
use crate::traffic::Forwarded;
use alloc::string::ToString;

/// Declares the drop reasons once: variant, name in the metric, meaning.
macro_rules! drop_reasons {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// The reason why a frame was dropped.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum DropReason {
            $($(#[$doc])* $variant,)*
        }

        const REASONS: &[(DropReason, &str)] = &[$((DropReason::$variant, $name),)*];
    };
}

drop_reasons! {
    /// Truncated or inconsistent headers.
    Malformed = "malformed",
    /// Neither TCP nor UDP nor ICMP.
    OtherProtocol = "other_protocol",
    /// Not IPv4, and not allowed to pass.
    NotIpv4 = "not_ipv4",
    /// IPv4 that is none of the NAT's business, and not allowed to pass.
    Untranslated = "untranslated",
    /// To an external end point without a mapping, or an answer to no query.
    NoMapping = "no_mapping",
    /// From a peer that the inside host has not sent to.
    Filtered = "filtered",
    /// A segment of a connection whose opening was not seen.
    TcpNotSyn = "tcp_not_syn",
    /// No room for another mapping or session.
    SessionsFull = "sessions_full",
    /// No room for another inside host.
    HostsFull = "hosts_full",
    /// The inside host has as many as it may have.
    HostQuota = "host_quota",
    /// The pool address has no free port.
    PortsExhausted = "ports_exhausted",
    /// A fragment whose first fragment was not seen before it.
    FragmentUnknown = "fragment_unknown",
    /// An ICMP message that is neither a query nor an error in use.
    IcmpOther = "icmp_other",
    /// An ICMP error about a packet of no session.
    IcmpUnmatched = "icmp_unmatched",
    /// An ICMP error whose own or quoted checksum is wrong (RFC 5508 REQ-3).
    IcmpBadChecksum = "icmp_bad_checksum",
    /// From inside to an external address, with hairpinning switched off.
    HairpinOff = "hairpin_off",
    /// The inside host's hardware address is not known yet; it is being asked for.
    InsideUnresolved = "inside_unresolved",
    /// The answer to the NAT's own question: the NAT has read it, and it is of no use to other hosts.
    OwnArp = "own_arp",
    /// A TCP segment out of the windows of its connection, or whose flags belong to none.
    TcpOutOfWindow = "tcp_out_of_window",
    /// A fragment that waited, and whose first fragment did not come in time; also what waited when the NAT got another
    /// configuration or went on elsewhere.
    FragmentExpired = "fragment_expired",
    /// A fragment that waited, and gave way to a newer one.
    FragmentDisplaced = "fragment_displaced",
    /// A fragment that waited, and whose first fragment was dropped.
    FragmentRefused = "fragment_refused",
    /// A TCP fragment over the flags of its first one (RFC 3128).
    FragmentOverlap = "fragment_overlap",
    /// The host had no room for a fragment.
    NoRoom = "no_room",
    /// Larger than the other port's MTU, and not to be fragmented.
    TooBig = "too_big",
}

/// The ICMP errors that the NAT makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Made {
    /// "Communication administratively prohibited": a flow is refused.
    Prohibited,
    /// "Fragmentation needed and DF set".
    TooBig,
}

/// Names of the kinds in the metric, in the order of [`Made`].
const MADE: [&str; 2] = ["prohibited", "too_big"];

/// Number of these reasons in versions 1 to 3 of the records.
const REASONS_V1: usize = 18;
const REASONS_V2: usize = 19;
const REASONS_V3: usize = 24;
/// Number of other counters in versions 1 to 3.
const OTHERS_V1: usize = 7;
const OTHERS_V3: usize = 8;

/// All counters that are not in the state.
#[derive(Clone, Debug)]
pub(super) struct Counters {
    pub(super) forwarded: Forwarded<2>,
    drops: [u64; REASONS.len()],
    /// Packets translated on the way out, in, and back to the inside.
    pub(super) out: u64,
    pub(super) inbound: u64,
    pub(super) hairpin: u64,
    /// Frames passed without translation.
    pub(super) untouched: u64,
    pub(super) arp_answered: u64,
    pub(super) arp_asked: u64,
    /// Questions for a hardware address that found no room in the outbox.
    pub(super) arp_unsent: u64,
    /// Echo requests to the NAT itself that were answered.
    pub(super) pings: u64,
    /// Packets that have left in fragments.
    pub(super) fragmented: u64,
    /// ICMP errors by kind and by what became of them.
    errors: [[u64; icmp_error::RESULTS.len()]; MADE.len()],
}

impl Counters {
    pub(super) fn new(ports: &[PortInfo]) -> Counters {
        Counters {
            forwarded: Forwarded::new(ports),
            drops: [0; REASONS.len()],
            out: 0,
            inbound: 0,
            hairpin: 0,
            untouched: 0,
            arp_answered: 0,
            arp_asked: 0,
            arp_unsent: 0,
            pings: 0,
            fragmented: 0,
            errors: Default::default(),
        }
    }

    #[inline]
    pub(super) fn dropped(&mut self, reason: DropReason) {
        self.dropped_many(reason, 1);
    }

    pub(super) fn dropped_many(&mut self, reason: DropReason, count: u64) {
        self.drops[reason as usize] += count;
    }

    pub(super) fn made(&mut self, kind: Made, sent: Sent) {
        self.errors[kind as usize][sent as usize] += 1;
    }

    /// Writes all of them into an image.
    pub(super) fn export(&self, writer: &mut Writer) {
        self.forwarded.export(writer);
        writer.counters(&self.drops);
        writer.counters(&[
            self.out,
            self.inbound,
            self.hairpin,
            self.untouched,
            self.arp_answered,
            self.arp_asked,
            self.arp_unsent,
            self.pings,
            self.fragmented,
        ]);
        writer.counters(self.errors.as_flattened());
    }

    /// Adds those of an image.
    pub(super) fn import(&mut self, reader: &mut Reader<'_>) -> Result<(), StateError> {
        self.forwarded.import(reader)?;
        let known = match reader.version() {
            1 => REASONS_V1,
            2 => REASONS_V2,
            3 => REASONS_V3,
            _ => self.drops.len(),
        };
        reader.counters(&mut self.drops[..known])?;
        let others = [
            &mut self.out,
            &mut self.inbound,
            &mut self.hairpin,
            &mut self.untouched,
            &mut self.arp_answered,
            &mut self.arp_asked,
            &mut self.arp_unsent,
            &mut self.pings,
            &mut self.fragmented,
        ];
        let known = match reader.version() {
            1 => OTHERS_V1,
            2 | 3 => OTHERS_V3,
            _ => others.len(),
        };
        reader.counters(others.into_iter().take(known))?;
        match reader.version() {
            ..=3 => Ok(()),
            _ => reader.counters(self.errors.as_flattened_mut()),
        }
    }

    pub(super) fn report(&self, state: &State, sink: &mut dyn FnMut(Metric)) {
        self.forwarded.report(sink);
        for &(reason, name) in REASONS {
            sink(
                Metric::new("packets_dropped_total", self.drops[reason as usize])
                    .with("reason", name),
            );
        }
        for (direction, count) in [
            ("out", self.out),
            ("in", self.inbound),
            ("hairpin", self.hairpin),
        ] {
            sink(Metric::new("packets_translated_total", count).with("direction", direction));
        }
        sink(Metric::new("packets_untouched_total", self.untouched));
        for (event, count) in [
            ("answered", self.arp_answered),
            ("asked", self.arp_asked),
            ("unsent", self.arp_unsent),
        ] {
            sink(Metric::new("arp_total", count).with("event", event));
        }
        sink(Metric::new("pings_answered_total", self.pings));
        sink(Metric::new("packets_fragmented_total", self.fragmented));
        for (kind, counts) in MADE.into_iter().zip(self.errors) {
            for (result, count) in icmp_error::RESULTS.into_iter().zip(counts) {
                let metric = Metric::new("icmp_errors_total", count);
                sink(metric.with("kind", kind).with("result", result));
            }
        }
        report_tables(state, sink);
    }
}

fn report_tables(state: &State, sink: &mut dyn FnMut(Metric)) {
    sink(Metric::new("mappings", state.mappings.len() as u64));
    sink(Metric::new("sessions", state.sessions.len() as u64));
    sink(Metric::new(
        "sessions_max",
        state.config.sessions_max as u64,
    ));
    sink(Metric::new("hosts", state.hosts.len() as u64));
    sink(Metric::new("sessions_opened_total", state.opened));
    sink(Metric::new("sessions_expired_total", state.expired));
    sink(Metric::new(
        "sessions_half_open",
        state.half_open.len() as u64,
    ));
    sink(Metric::new("sessions_evicted_total", state.evicted));
    for (index, address) in state.config.pool.iter().enumerate() {
        for protocol in Protocol::ALL {
            let taken = u64::from(state.ports_taken(index, protocol));
            sink(
                Metric::new("ports_taken", taken)
                    .with("address", address.to_string())
                    .with("protocol", protocol.name()),
            );
        }
    }
}
