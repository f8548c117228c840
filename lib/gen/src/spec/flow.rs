//! The headers of the frames: the number of flows, and the fields that distinguish them.

use nfluid_wire::{EtherType, MacAddr, TcpFlags, VlanTag};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{AddressRange, PortRange, SpecError};

/// Most flows of one generator: 4 Mi, about 300 MB of prepared headers for IPv4 and UDP.
pub const FLOWS_MAX: u32 = 1 << 22;

/// Protocol above IP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
pub enum Transport {
    /// UDP.
    #[default]
    Udp,
    /// TCP segments without a connection behind them.
    Tcp,
}

/// The headers of the frames. Flow 0 has the first address and port of every range; the source
/// port changes fastest, then source address, destination port, destination address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FlowSpec {
    /// Number of flows, 1 to [`FLOWS_MAX`].
    pub count: u32,
    /// Number of the first flow in the stream headers, so that a receiver can distinguish generators.
    pub first_stream: u32,
    /// Source hardware address.
    #[serde(serialize_with = "write_mac", deserialize_with = "read_mac")]
    pub src_mac: MacAddr,
    /// Destination hardware address.
    #[serde(serialize_with = "write_mac", deserialize_with = "read_mac")]
    pub dst_mac: MacAddr,
    /// VLAN identifiers, outermost first: none, one (802.1Q), or two (802.1ad and 802.1Q).
    pub vlans: Vec<u16>,
    /// Source addresses. The source addresses decide whether the frames are IPv4 or IPv6.
    pub src: AddressRange,
    /// Destination addresses, of the same family.
    pub dst: AddressRange,
    /// Protocol above IP.
    pub transport: Transport,
    /// Source ports.
    pub src_ports: PortRange,
    /// Destination ports.
    pub dst_ports: PortRange,
    /// TTL or hop limit.
    pub ttl: u8,
    /// TOS or traffic class: DSCP and ECN.
    pub traffic_class: u8,
    /// TCP flags; ACK by default.
    pub tcp_flags: u8,
}

impl Default for FlowSpec {
    /// A flow within the block that RFC 2544 sets aside for benchmarks, to the discard port.
    fn default() -> Self {
        FlowSpec {
            count: 1,
            first_stream: 0,
            src_mac: MacAddr([0x02, 0, 0, 0, 0, 1]),
            dst_mac: MacAddr([0x02, 0, 0, 0, 0, 2]),
            vlans: Vec::new(),
            src: "198.18.0.1-198.18.255.254"
                .parse()
                .expect("a constant range"),
            dst: "198.19.0.1".parse().expect("a constant address"),
            transport: Transport::default(),
            src_ports: PortRange::new(1024, 65535),
            dst_ports: PortRange::new(9, 9),
            ttl: 64,
            traffic_class: 0,
            tcp_flags: TcpFlags::ACK.0,
        }
    }
}

/// Which member of each range a flow has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowIndex {
    /// Place in the source port range.
    pub src_port: u64,
    /// Place in the source address range.
    pub src: u64,
    /// Place in the destination port range.
    pub dst_port: u64,
    /// Place in the destination address range.
    pub dst: u64,
}

impl FlowSpec {
    /// Checks that the parts fit together.
    ///
    /// # Errors
    /// When the ranges do not give as many different flows as are wanted, families are mixed, or a
    /// number is out of its range.
    pub fn check(&self) -> Result<(), SpecError> {
        let count = self.count.to_string();
        if !(1..=FLOWS_MAX).contains(&self.count) {
            let reason = format!("must be 1 to {FLOWS_MAX}");
            return Err(SpecError::new("number of flows", &count, reason));
        }
        let distinct = self
            .src_ports
            .len()
            .saturating_mul(self.src.len())
            .saturating_mul(self.dst_ports.len())
            .saturating_mul(self.dst.len());
        if distinct < u64::from(self.count) {
            let reason = format!("the address and port ranges give only {distinct}; widen one");
            return Err(SpecError::new("number of flows", &count, reason));
        }
        if self
            .first_stream
            .checked_add(self.count)
            .is_none_or(|end| end > 1 << 24)
        {
            let reason = "first stream and number of flows go beyond 2^24";
            return Err(SpecError::new(
                "first stream",
                &self.first_stream.to_string(),
                reason,
            ));
        }
        if self.src.is_ipv4() != self.dst.is_ipv4() {
            let reason = format!("not of the same family as the source {}", self.src);
            return Err(SpecError::new("destination", &self.dst.to_string(), reason));
        }
        if self.vlans.len() > 2 || self.vlans.iter().any(|&vid| vid > 4095) {
            let text = format!("{:?}", self.vlans);
            return Err(SpecError::new(
                "VLANs",
                &text,
                "at most two identifiers of 0 to 4095",
            ));
        }
        Ok(())
    }

    /// Which member of each range flow `index` has.
    pub fn flow(&self, index: u32) -> FlowIndex {
        let mut rest = u64::from(index);
        let mut digit = |base: u64| {
            let value = rest % base;
            rest /= base;
            value
        };
        FlowIndex {
            src_port: digit(self.src_ports.len()),
            src: digit(self.src.len()),
            dst_port: digit(self.dst_ports.len()),
            dst: digit(self.dst.len()),
        }
    }

    /// The VLAN tags, outermost first.
    pub fn tags(&self) -> Vec<VlanTag> {
        let outermost = self.vlans.len().saturating_sub(1);
        self.vlans
            .iter()
            .enumerate()
            .map(|(depth, &vid)| {
                let service = outermost > 0 && depth == 0;
                let tpid = if service {
                    EtherType::QINQ
                } else {
                    EtherType::VLAN
                };
                VlanTag {
                    tpid,
                    ..VlanTag::new(vid)
                }
            })
            .collect()
    }
}

fn write_mac<S: Serializer>(address: &MacAddr, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(address)
}

fn read_mac<'de, D: Deserializer<'de>>(deserializer: D) -> Result<MacAddr, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn small(count: u32) -> FlowSpec {
        FlowSpec {
            count,
            src: "10.0.0.0/30".parse().unwrap(),
            src_ports: "1-3".parse().unwrap(),
            dst_ports: "7-8".parse().unwrap(),
            ..FlowSpec::default()
        }
    }

    #[test]
    fn flows_are_all_different() {
        let spec = small(24);
        spec.check().unwrap();
        let flows: HashSet<_> = (0..24)
            .map(|index| {
                let flow = spec.flow(index);
                (flow.src_port, flow.src, flow.dst_port, flow.dst)
            })
            .collect();
        assert_eq!(flows.len(), 24);
        assert_eq!(spec.flow(1).src_port, 1);
        assert_eq!(spec.flow(3).src, 1);
    }

    #[test]
    fn what_cannot_be_met_is_refused() {
        for (spec, reason) in [
            (small(25), "only 24"),
            (small(0), "must be 1"),
            (
                FlowSpec {
                    dst: "::1".parse().unwrap(),
                    ..FlowSpec::default()
                },
                "family",
            ),
            (
                FlowSpec {
                    vlans: vec![1, 2, 3],
                    ..FlowSpec::default()
                },
                "at most two",
            ),
            (
                FlowSpec {
                    first_stream: u32::MAX,
                    ..FlowSpec::default()
                },
                "2^24",
            ),
        ] {
            let error = spec.check().unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn two_tags_are_a_service_and_a_customer_tag() {
        let tags = FlowSpec {
            vlans: vec![100, 7],
            ..FlowSpec::default()
        }
        .tags();
        assert_eq!(tags[0].tpid, EtherType::QINQ);
        assert_eq!((tags[1].tpid, tags[1].vid), (EtherType::VLAN, 7));
    }
}
