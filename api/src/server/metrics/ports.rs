//! Metrics of ports and uplinks.

use super::family::{Family, seconds};
use crate::types::{PortStats, UplinkStats};

pub(super) fn ports(out: &mut String, ports: &[PortStats]) {
    type Read = fn(&PortStats) -> u64;
    let counters: [(&'static str, &str, Read); 10] = [
        (
            "nfluid_port_rx_packets_total",
            "Frames delivered into the port.",
            |p| p.counters.rx_packets,
        ),
        (
            "nfluid_port_rx_bytes_total",
            "Bytes delivered into the port.",
            |p| p.counters.rx_bytes,
        ),
        (
            "nfluid_port_tx_packets_total",
            "Frames that the switch accepted from the port's owner.",
            |p| p.counters.tx_packets,
        ),
        (
            "nfluid_port_tx_bytes_total",
            "Bytes that the switch accepted from the port's owner.",
            |p| p.counters.tx_bytes,
        ),
        (
            "nfluid_port_rx_segments_total",
            "Packets on a wire that the delivered frames are: a super-frame is several.",
            |p| p.counters.rx_segments,
        ),
        (
            "nfluid_port_rx_wire_bytes_total",
            "Bytes of the packets on a wire that the delivered frames are.",
            |p| p.counters.rx_wire_bytes,
        ),
        (
            "nfluid_port_tx_segments_total",
            "Packets on a wire that the accepted frames are.",
            |p| p.counters.tx_segments,
        ),
        (
            "nfluid_port_tx_wire_bytes_total",
            "Bytes of the packets on a wire that the accepted frames are.",
            |p| p.counters.tx_wire_bytes,
        ),
        (
            "nfluid_port_marked_packets_total",
            "Frames delivered into the port with a congestion signal, an ECN mark.",
            |p| p.counters.marked_packets,
        ),
        (
            "nfluid_port_forwarded_packets_total",
            "Delivered frames that went out of the interface behind the port at once.",
            |p| p.counters.forwarded_packets,
        ),
    ];
    for (name, help, read) in counters {
        let mut family = Family::new(out, name, "counter", help);
        for port in ports {
            family.sample(&[("port", &port.name)], read(port));
        }
    }
    let mut drops = Family::new(
        out,
        "nfluid_port_drops_total",
        "counter",
        "Frames sent by the port's owner and dropped.",
    );
    for port in ports {
        for (reason, count) in &port.counters.drops {
            drops.sample(&[("port", &port.name), ("reason", reason)], count);
        }
    }
    type Gauge = fn(&PortStats) -> Option<f64>;
    let optional: [(&'static str, &str, &str, Gauge); 6] = [
        (
            "nfluid_port_rx_ring_used",
            "gauge",
            "Frames that wait in the RX ring.",
            |p| p.rx_ring_used.map(f64::from),
        ),
        (
            "nfluid_port_rx_ring_size",
            "gauge",
            "Slots of the RX ring.",
            |p| p.rx_ring_size.map(f64::from),
        ),
        (
            "nfluid_port_calls_total",
            "counter",
            "Hyperio calls by the port's owner.",
            |p| p.calls.map(|calls| calls as f64),
        ),
        (
            "nfluid_port_cpu_seconds_total",
            "counter",
            "CPU time of the port's instance, divided among its ports by frames received.",
            |p| p.cpu_ns.map(seconds),
        ),
        (
            "nfluid_port_mark_probability",
            "gauge",
            "Probability that a frame for the port is marked or dropped for congestion, 0 to 1.",
            |p| p.signal.map(|signal| signal.probability),
        ),
        (
            "nfluid_port_refuses",
            "gauge",
            "1: all frames for the port are refused, since a ring further on in the chain is full.",
            |p| p.signal.map(|signal| f64::from(u8::from(signal.refuses))),
        ),
    ];
    for (name, kind, help, read) in optional {
        let mut family = Family::new(out, name, kind, help);
        for port in ports {
            if let Some(value) = read(port) {
                family.sample(&[("port", &port.name)], value);
            }
        }
    }
}

pub(super) fn uplinks(out: &mut String, uplinks: &[UplinkStats]) {
    let mut time = Family::new(
        out,
        "nfluid_uplink_receive_seconds_total",
        "counter",
        "Time of the kernel's receive side in the uplink's program, which the kernel charges to other processes.",
    );
    for uplink in uplinks {
        time.sample(&[("uplink", &uplink.name)], seconds(uplink.receive_ns));
    }
    let mut cost = Family::new(
        out,
        "nfluid_uplink_receive_frame_seconds",
        "gauge",
        "CPU time of a received frame in the uplink's program.",
    );
    for uplink in uplinks {
        if let Some(ns) = uplink.frame_ns {
            cost.sample(&[("uplink", &uplink.name)], ns / 1e9);
        }
    }
}
