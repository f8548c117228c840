//! The tables of what went by.

use crate::function::Metric;
use crate::stateful::{Reader, StateError, Writer};
use crate::traffic::OnWire;
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec;
use arrayvec::ArrayVec;
use nfluid_ring::Frame;
use nfluid_wire::flow::Fragment;
use nfluid_wire::{EtherType, IpProtocol, L3, MacAddr, PacketMeta};

/// Ethertypes with a counter of their own; further ones are counted together.
const ETHERTYPES_MAX: usize = 32;
/// Upper bounds of the size classes in bytes, without FCS: those of RFC 2819 (RMON), which count
/// it, less its four bytes.
const SIZE_BOUNDS: [usize; 6] = [60, 123, 251, 507, 1019, 1514];

/// Packets and bytes of one kind.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    packets: u64,
    bytes: u64,
}

impl Count {
    fn add(&mut self, frame: OnWire) {
        self.packets += frame.packets();
        self.bytes += frame.bytes();
    }

    fn more(&mut self, (packets, bytes): (u64, u64)) {
        self.packets = self.packets.saturating_add(packets);
        self.bytes = self.bytes.saturating_add(bytes);
    }

    fn report(
        self,
        names: [&'static str; 2],
        label: (&'static str, String),
        sink: &mut dyn FnMut(Metric),
    ) {
        let (key, value) = label;
        sink(Metric::new(names[0], self.packets).with(key, value.clone()));
        sink(Metric::new(names[1], self.bytes).with(key, value));
    }
}

/// All the counters of a port.
#[derive(Debug)]
pub(super) struct Tally {
    /// By ethertype behind the tags, in order of first appearance.
    ethertypes: ArrayVec<(EtherType, Count), ETHERTYPES_MAX>,
    other_ethertypes: Count,
    /// By protocol number, for IPv4 and IPv6.
    protocols: [Box<[Count]>; 2],
    /// By size class; the last one is beyond all bounds.
    sizes: [u64; SIZE_BOUNDS.len() + 1],
    bytes: u64,
    tagged: u64,
    fragments: u64,
    malformed: u64,
    broadcast: u64,
    multicast: u64,
}

impl Default for Tally {
    fn default() -> Self {
        let protocols = || vec![Count::default(); 256].into_boxed_slice();
        Tally {
            ethertypes: ArrayVec::new(),
            other_ethertypes: Count::default(),
            protocols: [protocols(), protocols()],
            sizes: [0; SIZE_BOUNDS.len() + 1],
            bytes: 0,
            tagged: 0,
            fragments: 0,
            malformed: 0,
            broadcast: 0,
            multicast: 0,
        }
    }
}

impl Tally {
    /// Counts a frame, or all packets of a super-frame.
    pub(super) fn count(&mut self, frame: &Frame<'_>) {
        let on_wire = OnWire::of(frame);
        self.bytes += on_wire.bytes();
        self.count_sizes(frame, on_wire);
        self.count_group(frame.bytes(), on_wire.packets());
        match PacketMeta::parse_l3(frame.bytes()) {
            Ok(meta) => self.count_packet(&meta, on_wire),
            Err(_) => self.malformed += on_wire.packets(),
        }
    }

    /// All packets of a super-frame but the last have the same length.
    fn count_sizes(&mut self, frame: &Frame<'_>, on_wire: OnWire) {
        let class = |len: u64| SIZE_BOUNDS.partition_point(|&bound| (bound as u64) < len);
        let full = frame.offload().packet_len(frame.len()) as u64;
        let others = on_wire.packets().saturating_sub(1);
        let last = on_wire.bytes().saturating_sub(others * full);
        self.sizes[class(full)] += others;
        self.sizes[class(last)] += 1;
    }

    fn count_group(&mut self, frame: &[u8], packets: u64) {
        let Some(&dst) = frame.first_chunk() else {
            return;
        };
        let dst = MacAddr(dst);
        if dst.is_broadcast() {
            self.broadcast += packets;
        } else if dst.is_multicast() {
            self.multicast += packets;
        }
    }

    fn count_packet(&mut self, meta: &PacketMeta, on_wire: OnWire) {
        let packets_if = |is_such: bool| u64::from(is_such) * on_wire.packets();
        self.tagged += packets_if(meta.vlan_count > 0);
        self.fragments += packets_if(meta.fragment != Fragment::None);
        self.ethertype(meta.ethertype).add(on_wire);
        let protocols = match meta.l3 {
            L3::V4 { .. } => &mut self.protocols[0],
            L3::V6 { .. } => &mut self.protocols[1],
            L3::Other => return,
        };
        protocols[usize::from(meta.protocol.0)].add(on_wire);
    }

    fn ethertype(&mut self, ethertype: EtherType) -> &mut Count {
        match self
            .ethertypes
            .iter()
            .position(|(known, _)| *known == ethertype)
        {
            Some(place) => &mut self.ethertypes[place].1,
            None if self.ethertypes.is_full() => &mut self.other_ethertypes,
            None => {
                self.ethertypes.push((ethertype, Count::default()));
                let newest = self.ethertypes.len() - 1;
                &mut self.ethertypes[newest].1
            }
        }
    }

    /// Writes the counters that are not zero into an image.
    pub(super) fn export(&self, writer: &mut Writer) {
        let pairs = |count: &Count| (count.packets, count.bytes);
        let ethertypes = self.ethertypes.iter();
        writer.list(ethertypes.map(|(kind, count)| (kind.0, pairs(count))));
        writer.put(&pairs(&self.other_ethertypes));
        for protocols in &self.protocols {
            let seen = protocols.iter().filter(|count| count.packets > 0).count();
            writer.put(&(seen as u64));
            for (number, count) in (0..=u8::MAX).zip(protocols) {
                if count.packets > 0 {
                    writer.put(&(number, pairs(count)));
                }
            }
        }
        writer.counters(&self.sizes);
        writer.counters(&[
            self.bytes,
            self.tagged,
            self.fragments,
            self.malformed,
            self.broadcast,
            self.multicast,
        ]);
    }

    /// Adds the counters of an image.
    pub(super) fn import(&mut self, reader: &mut Reader<'_>) -> Result<(), StateError> {
        reader.list(|(kind, pair): (u16, (u64, u64))| {
            self.ethertype(EtherType(kind)).more(pair);
            Ok(())
        })?;
        self.other_ethertypes.more(reader.get()?);
        for protocols in &mut self.protocols {
            reader.list(|(number, pair): (u8, (u64, u64))| {
                protocols[usize::from(number)].more(pair);
                Ok(())
            })?;
        }
        reader.counters(&mut self.sizes)?;
        reader.counters([
            &mut self.bytes,
            &mut self.tagged,
            &mut self.fragments,
            &mut self.malformed,
            &mut self.broadcast,
            &mut self.multicast,
        ])
    }

    pub(super) fn report(&self, sink: &mut dyn FnMut(Metric)) {
        const BY_ETHERTYPE: [&str; 2] = ["ethertype_packets_total", "ethertype_bytes_total"];
        for (ethertype, count) in &self.ethertypes {
            let label = ("ethertype", describe(*ethertype));
            count.report(BY_ETHERTYPE, label, sink);
        }
        if self.other_ethertypes.packets > 0 {
            let label = ("ethertype", "other".into());
            self.other_ethertypes.report(BY_ETHERTYPE, label, sink);
        }
        for (version, protocols) in ["ipv4", "ipv6"].into_iter().zip(&self.protocols) {
            report_protocols(version, protocols, sink);
        }
        self.report_sizes(sink);
        for (kind, count) in [
            ("broadcast", self.broadcast),
            ("fragment", self.fragments),
            ("malformed", self.malformed),
            ("multicast", self.multicast),
            ("tagged", self.tagged),
        ] {
            sink(Metric::new("kind_packets_total", count).with("kind", kind));
        }
    }

    /// A Prometheus histogram: each bucket counts the smaller ones too.
    fn report_sizes(&self, sink: &mut dyn FnMut(Metric)) {
        let mut total = 0;
        for (place, count) in self.sizes.iter().enumerate() {
            total += count;
            let bound = SIZE_BOUNDS
                .get(place)
                .map_or("+Inf".into(), ToString::to_string);
            sink(Metric::new("frame_size_bytes_bucket", total).with("le", bound));
        }
        sink(Metric::new("frame_size_bytes_sum", self.bytes));
        sink(Metric::new("frame_size_bytes_count", total));
    }
}

fn report_protocols(version: &'static str, protocols: &[Count], sink: &mut dyn FnMut(Metric)) {
    let seen = (0..=u8::MAX)
        .zip(protocols)
        .filter(|(_, count)| count.packets > 0);
    for (number, count) in seen {
        let names = ["protocol_packets_total", "protocol_bytes_total"];
        let label = ("protocol", IpProtocol(number).to_string());
        count.report(names, label, &mut |metric| sink(metric.with("ip", version)));
    }
}

fn describe(ethertype: EtherType) -> String {
    let name = match ethertype {
        EtherType::IPV4 => "ipv4",
        EtherType::IPV6 => "ipv6",
        EtherType::ARP => "arp",
        EtherType::LLDP => "lldp",
        EtherType::MPLS => "mpls",
        EtherType::PPPOE_SESSION => "pppoe",
        other => return other.to_string(),
    };
    name.into()
}
