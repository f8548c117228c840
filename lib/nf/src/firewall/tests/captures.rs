//! Real traffic crosses the firewall.

use super::*;
use crate::captures;
use crate::tcp::{Connection, End, Policy, Segment};
use core::net::SocketAddr;
use nfluid_ring::layout::FRAME_MAX;
use nfluid_wire::tcp::TcpPacket;
use nfluid_wire::{IpProtocol, PacketMeta};
use std::collections::HashMap;

/// Each frame passes unchanged or is counted as dropped, whatever the rules.
#[test]
fn captures_cross_unchanged_or_are_counted() {
    let Some(files) = captures::files() else {
        return;
    };
    let many: String = (0..300)
        .map(|i| {
            format!(
                "deny tcp from 250.{}.0.0/16 to any {i}-{}\n",
                i % 200,
                i * 3
            )
        })
        .collect();
    let stateful = "deny ip from any to any frag
         reject udp from any to any 53
         allow ip from any to any out keep-state max 500
         allow tcp from any to any established
         deny icmp from any to any";
    let configs = [
        json!({"default": "allow", "non_ip": "allow"}),
        json!({ "rules": stateful, "states": {"max": 700} }),
        json!({ "rules": many + stateful, "default": "allow" }),
    ];
    let mut total = 0;
    for file in files {
        let frames = captures::frames_up_to(&file, FRAME_MAX);
        total += frames.len();
        for config in &configs {
            cross(&mut Bench::new(config.clone()), &frames);
        }
    }
    captures::assert_enough(total);
}

fn cross(fw: &mut Bench, frames: &[Vec<u8>]) {
    let mut forwarded = 0;
    for (index, frame) in frames.iter().enumerate() {
        let port = (index % 2) as u8;
        fw.now.0 += 1_000_000;
        for (to, sent) in fw.sent(port, frame) {
            if to == port {
                continue;
            }
            assert_eq!(&sent, frame, "changed on the way");
            forwarded += 1;
        }
    }
    let dropped: u64 = [
        "rule",
        "rejected",
        "default",
        "non_ip",
        "malformed",
        "state_table_full",
        "state_rule_limit",
        "state_source_limit",
        "tcp_out_of_window",
    ]
    .map(|reason| fw.dropped(reason))
    .iter()
    .sum();
    assert_eq!(forwarded + dropped, frames.len() as u64);
}

/// Segments of real hosts stay in their connection's windows. Catches: a bound that is too tight for options, losses
/// and retransmissions of the wild.
// promise: 10.33
#[test]
fn real_connections_stay_in_their_windows() {
    let Some(files) = captures::files() else {
        return;
    };
    let mut segments = 0;
    for path in files {
        let frames = captures::frames(&path);
        for seen in connections(&frames).values().filter(|seen| is_whole(seen)) {
            let mut connection = Connection::default();
            for (end, payload) in seen {
                let segment = Segment::read(payload, true).expect("it was parsed");
                let followed = connection.segment(*end, &segment, Policy::default());
                assert!(
                    followed.is_ok(),
                    "{}: {segment:?} of {connection:?}",
                    path.display()
                );
                segments += 1;
            }
        }
    }
    assert!(segments > 500, "only {segments} segments in the captures");
}

/// Segments in the order in which they were captured, with who sent them.
type Seen<'a> = Vec<(End, &'a [u8])>;

fn connections(frames: &[Vec<u8>]) -> HashMap<(SocketAddr, SocketAddr), Seen<'_>> {
    let mut connections: HashMap<_, Seen<'_>> = HashMap::new();
    for frame in frames {
        let Ok(meta) = PacketMeta::parse(frame) else {
            continue;
        };
        let (IpProtocol::TCP, false, Some((src, dst))) =
            (meta.protocol, meta.is_fragment(), meta.addresses())
        else {
            continue;
        };
        let payload = &frame[usize::from(meta.l4_offset)..meta.l3_end()];
        let from = SocketAddr::new(src, meta.src_port);
        let to = SocketAddr::new(dst, meta.dst_port);
        let (ends, end) = match connections.contains_key(&(to, from)) {
            true => ((to, from), End::Far),
            false => ((from, to), End::Near),
        };
        connections.entry(ends).or_default().push((end, payload));
    }
    connections
}

/// Returns true if a connection was captured from its SYN on, and without gaps: some captures leave out large
/// packets.
fn is_whole(seen: &Seen<'_>) -> bool {
    let mut next: [Option<u32>; 2] = [None; 2];
    seen.iter().all(|&(end, payload)| {
        let tcp = TcpPacket::new_unchecked(payload);
        let (own, other) = (end as usize, end.other() as usize);
        let later = |at: u32, than: u32| (at.wrapping_sub(than) as i32) > 0;
        let gap = match next[own] {
            Some(next) => later(tcp.seq(), next),
            None => !tcp.flags().intersects(TcpFlags::SYN | RST),
        };
        let unseen = next[other].is_some_and(|next| {
            tcp.flags().contains(ACK) && !tcp.flags().contains(RST) && later(tcp.ack(), next)
        });
        let control =
            u32::from(tcp.flags().contains(SYN)) + u32::from(tcp.flags().contains(TcpFlags::FIN));
        let behind = tcp.seq().wrapping_add(tcp.payload().len() as u32 + control);
        if next[own].is_none_or(|next| later(behind, next)) {
            next[own] = Some(behind);
        }
        !gap && !unseen
    })
}
