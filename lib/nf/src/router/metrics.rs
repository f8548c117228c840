//! Counters of the router, of packets on a wire: see [`crate::traffic`]. Every packet that arrives ends in exactly one
//! of: forwarded, consumed (ARP, neighbour discovery, echo: meant for the router), waiting (for a neighbour's address),
//! or dropped for a reason.

use super::config::PORTS_MAX;
use crate::stateful::{Reader, StateError, Writer};
use crate::traffic::OnWire;

/// Declares [`DropReason`] with its names.
macro_rules! drop_reasons {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// The reason why a frame was dropped.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum DropReason {
            $($(#[$doc])* $variant,)*
        }

        impl DropReason {
            /// All reasons, in the order of their values.
            pub(super) const ALL: &[DropReason] = &[$(DropReason::$variant,)*];

            /// As written in metrics.
            pub(super) const fn name(self) -> &'static str {
                match self {
                    $(DropReason::$variant => $name,)*
                }
            }
        }
    };
}

drop_reasons! {
    /// Ethernet destination is another station.
    NotForUs = "not_for_us",
    /// 802.1Q or 802.1ad tag: the router has no VLAN interfaces.
    VlanTagged = "vlan_tagged",
    /// Neither ARP nor IP.
    UnknownEthertype = "unknown_ethertype",
    /// Shorter than its header or its length fields say.
    BadLength = "bad_length",
    /// The version field is neither 4 nor 6 as the ethertype says.
    BadVersion = "bad_version",
    /// IPv4 header length below 20 or beyond the packet.
    BadHeaderLength = "bad_header_length",
    /// IPv4 header checksum.
    BadChecksum = "bad_checksum",
    /// An option that cannot be read.
    BadOptions = "bad_options",
    /// A malformed or implausible ARP packet.
    BadArp = "bad_arp",
    /// A neighbour discovery message that RFC 4861 section 7.1 refuses.
    BadNeighbourMessage = "bad_neighbour_message",
    /// An address that is never a source: zero, loopback, multicast, class E, one of our own.
    MartianSource = "martian_source",
    /// An address that is never a destination: zero, loopback, class E.
    MartianDestination = "martian_destination",
    /// Link-local source or destination of a packet to be forwarded.
    LinkLocal = "link_local",
    /// A unicast packet in a broadcast or multicast frame.
    LinkBroadcast = "link_broadcast",
    /// Multicast is not forwarded.
    Multicast = "multicast",
    /// A broadcast to a connected network (RFC 2644).
    Broadcast = "broadcast",
    /// Source route option (RFC 7126).
    SourceRouted = "source_routed",
    /// Time to live or hop limit used up.
    TtlExceeded = "ttl_exceeded",
    /// No route holds the destination.
    NoRoute = "no_route",
    /// Blackhole route.
    Blackhole = "blackhole",
    /// Unreachable route.
    Unreachable = "unreachable",
    /// Larger than the next link's MTU, and not to be fragmented.
    TooBig = "too_big",
    /// The neighbour table is full of neighbours that are in use.
    NeighbourTableFull = "neighbour_table_full",
    /// Too many neighbours asked for at once.
    NeighbourRate = "neighbour_rate",
    /// Too many packets wait for neighbours' addresses.
    WaitingFull = "waiting_full",
    /// A fragment for the router itself, which does not reassemble.
    LocalFragment = "local_fragment",
    /// Malformed, and for the router itself.
    LocalMalformed = "local_malformed",
    /// For the router itself, which has no use for it.
    LocalUnused = "local_unused",
    /// The host had no room for the frames made from it.
    NoRoom = "no_room",
    /// A super-frame with metadata that are not about its headers.
    BadOffload = "bad_offload",
}

/// Declares [`Made`] with its names.
macro_rules! made {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// Kinds of frames that the router makes.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Made {
            $($(#[$doc])* $variant,)*
        }

        impl Made {
            const ALL: &[(Made, &str)] = &[$((Made::$variant, $name),)*];
        }
    };
}

made! {
    /// ICMP destination unreachable, either version.
    Unreachable = "unreachable",
    /// Fragmentation needed, packet too big.
    TooBig = "too_big",
    /// Time exceeded, either version.
    TimeExceeded = "time_exceeded",
    /// Parameter problem, either version.
    ParameterProblem = "parameter_problem",
    /// Echo reply.
    EchoReply = "echo_reply",
    /// TCP reset.
    Reset = "tcp_reset",
    /// ARP request, neighbour solicitation.
    Solicitation = "solicitation",
    /// ARP reply, neighbour advertisement.
    Advertisement = "advertisement",
    /// Multicast listener report.
    Report = "listener_report",
    /// Fragments beyond the first.
    Fragment = "fragment",
    /// A packet that waited for a neighbour's address.
    Released = "released",
    /// ICMP redirect.
    Redirect = "redirect",
}

#[derive(Clone, Copy, Debug, Default)]
struct Forwarded {
    packets: u64,
    bytes: u64,
}

/// All counters.
#[derive(Clone, Debug)]
pub(super) struct Counters {
    pub received: u64,
    forwarded: [Forwarded; PORTS_MAX],
    pub consumed: u64,
    pub waited: u64,
    drops: [u64; DropReason::ALL.len()],
    made: [u64; Made::ALL.len()],
    /// Frames made for which the host had no room.
    pub no_room: u64,
    /// ICMP errors not sent for their rate.
    pub icmp_limited: u64,
    /// Waiting packets given up: the address was not found in time, or newer ones took the place.
    pub waiting_lost: u64,
    /// ARP or neighbour discovery from another host that claims one of our addresses.
    pub address_conflicts: u64,
    /// Routes added, removed or led elsewhere by configurations.
    pub routes_changed: u64,
}

impl Counters {
    pub(super) fn new() -> Self {
        Counters {
            received: 0,
            forwarded: [Forwarded::default(); PORTS_MAX],
            consumed: 0,
            waited: 0,
            drops: [0; DropReason::ALL.len()],
            made: [0; Made::ALL.len()],
            no_room: 0,
            icmp_limited: 0,
            waiting_lost: 0,
            address_conflicts: 0,
            routes_changed: 0,
        }
    }

    /// Counts a frame that arrived on port `from` and is sent on.
    #[inline]
    pub(super) fn forward(&mut self, from: u8, frame: OnWire) {
        let counters = &mut self.forwarded[usize::from(from) % PORTS_MAX];
        counters.packets += frame.packets();
        counters.bytes += frame.bytes();
    }

    pub(super) fn drop(&mut self, reason: DropReason, packets: u64) {
        self.drops[reason as usize] += packets;
    }

    pub(super) fn dropped(&self, reason: DropReason) -> u64 {
        self.drops[reason as usize]
    }

    pub(super) fn made(&mut self, kind: Made) {
        self.made_many(kind, 1);
    }

    pub(super) fn made_many(&mut self, kind: Made, packets: u64) {
        self.made[kind as usize] += packets;
    }

    /// Writes all of them into an image.
    pub(super) fn export(&self, writer: &mut Writer) {
        writer.list(self.forwarded.iter().map(|from| (from.packets, from.bytes)));
        writer.counters(&self.drops);
        writer.counters(&self.made);
        writer.counters(&[
            self.received,
            self.consumed,
            self.waited,
            self.no_room,
            self.icmp_limited,
            self.waiting_lost,
            self.address_conflicts,
            self.routes_changed,
        ]);
    }

    /// Adds those of an image.
    pub(super) fn import(&mut self, reader: &mut Reader<'_>) -> Result<(), StateError> {
        let mut ports = self.forwarded.iter_mut();
        reader.list(|(packets, bytes): (u64, u64)| {
            let from = ports.next().ok_or("counts of more ports")?;
            from.packets = from.packets.saturating_add(packets);
            from.bytes = from.bytes.saturating_add(bytes);
            Ok(())
        })?;
        let known = match reader.version() {
            ..=3 => DropReason::BadOffload as usize,
            _ => self.drops.len(),
        };
        reader.counters(&mut self.drops[..known])?;
        self.import_made(reader)?;
        reader.counters([
            &mut self.received,
            &mut self.consumed,
            &mut self.waited,
            &mut self.no_room,
            &mut self.icmp_limited,
            &mut self.waiting_lost,
            &mut self.address_conflicts,
            &mut self.routes_changed,
        ])
    }

    /// Version 1 has no listener reports, but for images of the last builds that wrote version 1.
    fn import_made(&mut self, reader: &mut Reader<'_>) -> Result<(), StateError> {
        let mut made = [0; Made::ALL.len()];
        let mut count = 0;
        reader.list(|value: u64| {
            *made.get_mut(count).ok_or("more counters than there are")? = value;
            count += 1;
            Ok(())
        })?;
        let known = match reader.version() {
            1 | 2 => Made::Redirect as usize,
            _ => made.len(),
        };
        if reader.version() == 1 && count == known - 1 {
            made[Made::Report as usize..known].rotate_right(1);
        } else if count != known {
            return Err(reader.nonsense("fewer counters than there are"));
        }
        for (counter, value) in self.made.iter_mut().zip(made) {
            *counter = counter.saturating_add(value);
        }
        Ok(())
    }

    /// All counters as (metric, label and its value, value). `ports` are the ports' names.
    pub(super) fn each<'a>(
        &self,
        ports: impl Iterator<Item = &'a str>,
        mut sink: impl FnMut(&'static str, Option<(&'static str, &str)>, u64),
    ) {
        for (port, forwarded) in ports.zip(&self.forwarded) {
            let label = Some(("from", port));
            sink("packets_forwarded_total", label, forwarded.packets);
            sink("bytes_forwarded_total", label, forwarded.bytes);
        }
        for reason in DropReason::ALL {
            let label = Some(("reason", reason.name()));
            sink("packets_dropped_total", label, self.dropped(*reason));
        }
        for (kind, name) in Made::ALL {
            let made = self.made[*kind as usize];
            sink("packets_made_total", Some(("kind", name)), made);
        }
        for (name, value) in [
            ("packets_received_total", self.received),
            ("packets_consumed_total", self.consumed),
            ("packets_waited_total", self.waited),
            ("packets_made_no_room_total", self.no_room),
            ("icmp_errors_limited_total", self.icmp_limited),
            ("waiting_lost_total", self.waiting_lost),
            ("address_conflicts_total", self.address_conflicts),
            ("routes_changed_total", self.routes_changed),
        ] {
            sink(name, None, value);
        }
    }
}
