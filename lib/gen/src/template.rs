//! Frames prepared in advance: per flow the headers, per size what only depends on the size. For
//! each frame one or two cache lines are copied and lengths, stream header and the two checksums
//! are set from sums made beforehand; nothing is summed over the frame again.

use std::net::SocketAddr;

use nfluid_wire::build::Frame;
use nfluid_wire::{TcpFlags, checksum};

use crate::io::{FRAME_MAX, FRAME_MIN};
use crate::payload::{self, HEADER_LEN, Kind, Stamp, StreamHeader};
use crate::spec::{Content, FlowSpec, SpecError, TrafficSpec, Transport};

/// Bytes of a short template: Ethernet, IPv4, UDP and the stream header fit.
const SHORT: usize = 64;
/// Bytes of a long template: two VLAN tags, IPv6, TCP and the stream header fit.
const LONG: usize = 128;

const IPV4_TOTAL_LEN: usize = 2;
const IPV4_CHECKSUM: usize = 10;
const IPV6_PAYLOAD_LEN: usize = 4;
const UDP_LENGTH: usize = 4;
const UDP_CHECKSUM: usize = 6;
const TCP_CHECKSUM: usize = 16;

/// Untagged UDP over IPv4, for which the code is made twice, once with constant offsets.
const COMMON: Layout = Layout {
    ipv4: true,
    udp: true,
    ip: 14,
    transport: 34,
    payload: 42,
    stride: SHORT,
};

/// Offsets in every frame of a specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Layout {
    ipv4: bool,
    udp: bool,
    ip: usize,
    transport: usize,
    payload: usize,
    /// Bytes that are copied from a flow's template, [`SHORT`] or [`LONG`].
    stride: usize,
}

impl Layout {
    fn new(spec: &FlowSpec) -> Self {
        let ip = FRAME_MIN + 4 * spec.vlans.len();
        let transport = ip + if spec.src.is_ipv4() { 20 } else { 40 };
        let payload = transport
            + if spec.transport == Transport::Udp {
                8
            } else {
                20
            };
        Layout {
            ipv4: spec.src.is_ipv4(),
            udp: spec.transport == Transport::Udp,
            ip,
            transport,
            payload,
            stride: if payload + HEADER_LEN <= SHORT {
                SHORT
            } else {
                LONG
            },
        }
    }
}

/// The fields that depend on the flow alone, besides its template.
#[derive(Clone, Copy, Debug)]
struct Flow {
    /// Sum of the IPv4 header with length and checksum zero.
    ip_sum: u16,
    /// Sum of pseudo-header and transport header with lengths and checksum zero.
    transport_sum: u16,
}

/// The fields that depend on the size alone.
#[derive(Clone, Copy, Debug)]
struct Size {
    frame_len: u16,
    body_sum: u16,
    body_digest: u64,
}

/// The frames of one generator, to be written in turn.
#[derive(Debug)]
pub struct Templates {
    layout: Layout,
    kind: Kind,
    content: Content,
    first_stream: u32,
    /// `layout.stride` bytes per flow.
    heads: Vec<u8>,
    flows: Vec<Flow>,
    /// Frames written per flow, stored separately from fields that are only read: a read of both would wait for the
    /// write.
    sequences: Vec<u32>,
    sizes: Vec<Size>,
    round: Vec<u16>,
    pattern: Box<[u8; FRAME_MAX]>,
    next_flow: usize,
    next_size: usize,
    /// True if flows and sizes would always meet in the same pairs.
    in_step: bool,
}

impl Templates {
    /// Prepares the frames of `spec`, which carry the magic of `kind`.
    ///
    /// # Errors
    /// When the flows cannot be made ([`FlowSpec::check`]) or a size has no room for the headers
    /// and, for stamped content, the stream header.
    pub fn new(spec: &TrafficSpec, kind: Kind) -> Result<Self, SpecError> {
        spec.flows.check()?;
        let layout = Layout::new(&spec.flows);
        check_room(spec, &layout)?;
        let pattern = payload::pattern();
        let sizes: Vec<Size> = spec
            .sizes
            .sizes()
            .iter()
            .map(|&frame_len| {
                let body_len = usize::from(frame_len).saturating_sub(layout.payload + HEADER_LEN);
                let body = &pattern[..body_len];
                Size {
                    frame_len,
                    body_sum: checksum::sum(body),
                    body_digest: payload::digest(body),
                }
            })
            .collect();
        let mut templates = Templates {
            layout,
            kind,
            content: spec.content,
            first_stream: spec.flows.first_stream,
            heads: vec![0; layout.stride * spec.flows.count as usize],
            flows: Vec::with_capacity(spec.flows.count as usize),
            sequences: vec![0; spec.flows.count as usize],
            sizes,
            round: spec.sizes.round().to_vec(),
            pattern,
            next_flow: 0,
            next_size: 0,
            in_step: false,
        };
        templates.in_step = gcd(templates.round.len(), spec.flows.count as usize) > 1;
        for index in 0..spec.flows.count {
            templates.add_flow(&spec.flows, index)?;
        }
        Ok(templates)
    }

    /// Number of flows.
    pub fn flow_count(&self) -> usize {
        self.flows.len()
    }

    /// Returns the number of frames written for flow `index`, modulo 2^32.
    pub fn sequence(&self, index: usize) -> u32 {
        self.sequences[index]
    }

    fn add_flow(&mut self, spec: &FlowSpec, index: u32) -> Result<(), SpecError> {
        let layout = self.layout;
        let place = spec.flow(index);
        let src = SocketAddr::new(spec.src.get(place.src), spec.src_ports.get(place.src_port));
        let dst = SocketAddr::new(spec.dst.get(place.dst), spec.dst_ports.get(place.dst_port));
        let frame = match spec.transport {
            Transport::Udp => Frame::udp(src, dst),
            Transport::Tcp => Frame::tcp(src, dst, TcpFlags(spec.tcp_flags)),
        };
        let tags = spec.tags();
        let frame = frame
            .macs(spec.src_mac, spec.dst_mac)
            .vlans(&tags)
            .ttl(spec.ttl)
            .traffic_class(spec.traffic_class);
        let start = index as usize * layout.stride;
        let head = &mut self.heads[start..start + layout.stride];
        let rest = &self.pattern[..layout.stride - layout.payload - HEADER_LEN];
        let content = [&[0; HEADER_LEN][..], rest].concat();
        frame
            .write(head, &content)
            .map_err(|error| SpecError::new("flow", &index.to_string(), error))?;

        let (ip, transport) = (layout.ip, layout.transport);
        let protocol = if layout.udp { 17 } else { 6 };
        let pseudo_header = if layout.ipv4 {
            head[ip + IPV4_TOTAL_LEN..][..2].fill(0);
            head[ip + IPV4_CHECKSUM..][..2].fill(0);
            checksum::combine(&[checksum::sum(&head[ip + 12..ip + 20]), protocol])
        } else {
            head[ip + IPV6_PAYLOAD_LEN..][..2].fill(0);
            checksum::combine(&[checksum::sum(&head[ip + 8..ip + 40]), protocol])
        };
        if layout.udp {
            head[transport + UDP_LENGTH..][..4].fill(0);
        } else {
            head[transport + TCP_CHECKSUM..][..2].fill(0);
        }
        let header_sum = checksum::sum(&head[transport..layout.payload]);
        self.flows.push(Flow {
            ip_sum: checksum::sum(&head[ip..transport]),
            transport_sum: checksum::combine(&[pseudo_header, header_sum]),
        });
        Ok(())
    }

    /// Writes the next frame to the start of `slot` ([`SLOT_MIN`](crate::io::SLOT_MIN) bytes at
    /// least), stamped with `now_ns` where the content asks for it, and returns its length.
    #[inline]
    pub fn write(&mut self, slot: &mut [u8], now_ns: u64) -> usize {
        if self.layout == COMMON {
            self.write_as(COMMON, slot, now_ns)
        } else {
            self.write_as(self.layout, slot, now_ns)
        }
    }

    /// Writes a frame of the given layout; inlined, so that a constant one becomes constant offsets.
    #[inline(always)]
    fn write_as(&mut self, layout: Layout, slot: &mut [u8], now_ns: u64) -> usize {
        let (flow_index, size_index) = self.advance();
        let size = self.sizes[size_index];
        let flow = self.flows[flow_index];
        let sequence = &mut self.sequences[flow_index];
        let frame_len = usize::from(size.frame_len);
        let (frame, rest) = slot
            .split_first_chunk_mut::<LONG>()
            .expect("slots have SLOT_MIN bytes");

        // Copies of constant length are two or four moves, not a call.
        if layout.stride == SHORT {
            copy_block::<SHORT>(frame, &self.heads, flow_index);
        } else {
            copy_block::<LONG>(frame, &self.heads, flow_index);
        }
        let in_frame = frame_len.min(LONG);
        if in_frame > layout.stride {
            let body = &self.pattern[layout.stride - layout.payload - HEADER_LEN..];
            frame[layout.stride..in_frame].copy_from_slice(&body[..in_frame - layout.stride]);
        }
        if frame_len > LONG {
            let body = &self.pattern[LONG - layout.payload - HEADER_LEN..];
            rest[..frame_len - LONG].copy_from_slice(&body[..frame_len - LONG]);
        }
        let stamp = match self.content {
            Content::Constant => Stamp::default(),
            Content::Stamped => StreamHeader {
                kind: self.kind,
                stream: self.first_stream + flow_index as u32,
                tx_time_ns: now_ns,
                sequence: *sequence,
            }
            .stamp(size.body_digest),
        };
        *sequence = sequence.wrapping_add(1);
        stamp.write(&mut frame[layout.payload..layout.payload + HEADER_LEN]);
        finish(frame, &layout, flow, size, stamp.sum());
        frame_len
    }

    /// The length of the next frame, for slots that hold a frame already.
    #[inline]
    pub fn next_len(&mut self) -> usize {
        let (flow_index, size_index) = self.advance();
        let sequence = &mut self.sequences[flow_index];
        *sequence = sequence.wrapping_add(1);
        usize::from(self.sizes[size_index].frame_len)
    }

    /// Returns true if slots may be [prefilled](Self::prefill): the frames carry nothing that changes, and all have
    /// one size.
    pub fn can_prefill(&self) -> bool {
        self.content == Content::Constant && self.sizes.len() == 1
    }

    /// Fills a slot with the next flow's frame, for later use with [`next_len`](Self::next_len).
    pub fn prefill(&mut self, slot: &mut [u8]) {
        let flow = self.next_flow;
        self.write(slot, 0);
        self.sequences[flow] = 0;
    }

    #[inline]
    fn advance(&mut self) -> (usize, usize) {
        let pair = (self.next_flow, usize::from(self.round[self.next_size]));
        self.next_flow += 1;
        self.next_size += 1;
        if self.next_flow == self.flows.len() {
            self.next_flow = 0;
            // Without this every flow would see some of the sizes only.
            self.next_size += usize::from(self.in_step);
        }
        if self.next_size >= self.round.len() {
            self.next_size -= self.round.len();
        }
        pair
    }
}

fn check_room(spec: &TrafficSpec, layout: &Layout) -> Result<(), SpecError> {
    let (needed, what) = match spec.content {
        Content::Stamped => (layout.payload + HEADER_LEN, "headers and stream header"),
        Content::Constant => (layout.payload, "headers"),
    };
    let smallest = spec.sizes.smallest();
    if smallest >= needed {
        return Ok(());
    }
    let reason = format!(
        "too small: {what} of these flows take {needed} bytes; \
         choose larger frames, IPv4, UDP, fewer VLAN tags, or content that is not stamped"
    );
    Err(SpecError::new("frame size", &smallest.to_string(), reason))
}

#[inline]
fn copy_block<const N: usize>(slot: &mut [u8; LONG], heads: &[u8], index: usize) {
    let (blocks, _) = heads.as_chunks::<N>();
    slot[..N].copy_from_slice(&blocks[index]);
}

/// Sets lengths and checksums.
#[inline(always)]
fn finish(frame: &mut [u8; LONG], layout: &Layout, flow: Flow, size: Size, stamp_sum: u64) {
    let ip_len = size.frame_len - layout.ip as u16;
    let transport_len = size.frame_len - layout.transport as u16;
    if layout.ipv4 {
        put_u16(frame, layout.ip + IPV4_TOTAL_LEN, ip_len);
        let sum = fold(u64::from(flow.ip_sum) + u64::from(ip_len));
        put_u16(frame, layout.ip + IPV4_CHECKSUM, !sum);
    } else {
        put_u16(frame, layout.ip + IPV6_PAYLOAD_LEN, transport_len);
    }
    let total = u64::from(flow.transport_sum)
        + u64::from(transport_len)
        + u64::from(size.body_sum)
        + stamp_sum;
    if layout.udp {
        put_u16(frame, layout.transport + UDP_LENGTH, transport_len);
        let checksum = !fold(total + u64::from(transport_len));
        // RFC 768: a computed checksum of zero is sent as all ones.
        let checksum = if checksum == 0 { 0xffff } else { checksum };
        put_u16(frame, layout.transport + UDP_CHECKSUM, checksum);
    } else {
        put_u16(frame, layout.transport + TCP_CHECKSUM, !fold(total));
    }
}

#[inline]
fn put_u16(frame: &mut [u8; LONG], offset: usize, value: u16) {
    frame[offset..offset + 2].copy_from_slice(&value.to_be_bytes());
}

/// Folds a sum below 2^47 to 16 bits.
#[inline]
fn fold(sum: u64) -> u16 {
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    ((sum & 0xffff) + (sum >> 16)) as u16
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests;
