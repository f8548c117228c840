//! netmap's interface between programs and the kernel, versions 11 to 14, as far as this library answers it: declared here
//! by its layout, from netmap(4) and the headers of the project (github.com/luigirizzo/netmap, `sys/net`).

use std::ffi::c_ulong;

/// The path that programs open.
pub const DEVICE: &[u8] = b"/dev/netmap";
/// The newest version.
pub const VERSION: u16 = 14;
/// The oldest version whose structures are these.
pub const VERSION_MIN: u16 = 11;

/// The type of all requests of netmap, as in `_IO('i', ..)`.
const IOCTL_TYPE: c_ulong = b'i' as c_ulong;

/// `_IO` and `_IOWR` of Linux's generic `asm/ioctl.h`.
const fn request(number: u8, size: usize) -> c_ulong {
    let access = if size == 0 { 0 } else { 3 };
    access << 30 | (size as c_ulong) << 16 | IOCTL_TYPE << 8 | number as c_ulong
}

/// `NIOCGINFO`.
pub const LEGACY_INFO: c_ulong = request(145, size_of::<LegacyRequest>());
/// `NIOCREGIF`.
pub const LEGACY_REGISTER: c_ulong = request(146, size_of::<LegacyRequest>());
/// `NIOCTXSYNC`.
pub const TX_SYNC: c_ulong = request(148, 0);
/// `NIOCRXSYNC`.
pub const RX_SYNC: c_ulong = request(149, 0);
/// `NIOCCTRL`.
pub const CONTROL: c_ulong = request(151, size_of::<Header>());

/// `struct nmreq_header`.
#[repr(C)]
pub struct Header {
    pub version: u16,
    pub kind: u16,
    pub reserved: u32,
    pub name: [u8; 64],
    pub options: u64,
    pub body: u64,
}

/// `NETMAP_REQ_..`: what a [`Header`] asks for.
pub mod kind {
    pub const REGISTER: u16 = 1;
    pub const PORT_INFO_GET: u16 = 2;
    pub const VALE_ATTACH: u16 = 3;
    pub const VALE_DETACH: u16 = 4;
    pub const VALE_LIST: u16 = 5;
    pub const PORT_HEADER_SET: u16 = 6;
    pub const PORT_HEADER_GET: u16 = 7;
    pub const VALE_NEWIF: u16 = 8;
    pub const VALE_DELIF: u16 = 9;
}

/// `struct nmreq_option`, without what follows it.
#[repr(C)]
pub struct RequestOption {
    pub next: u64,
    pub kind: u32,
    pub status: u32,
    pub size: u64,
}

/// Options that a request may have; more are an error of the program.
pub const OPTIONS_MAX: usize = 16;

/// `struct nmreq_register`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Register {
    pub offset: u64,
    pub memory: u64,
    pub tx_slots: u32,
    pub rx_slots: u32,
    pub tx_rings: u16,
    pub rx_rings: u16,
    pub host_tx_rings: u16,
    pub host_rx_rings: u16,
    pub memory_id: u16,
    pub ring: u16,
    pub mode: u32,
    pub extra_buffers: u32,
    pub flags: u64,
}

/// `NR_REG_..`: which rings a descriptor is for.
pub mod mode {
    pub const DEFAULT: u32 = 0;
    pub const ALL_NIC: u32 = 1;
    pub const HOST: u32 = 2;
    pub const NIC_AND_HOST: u32 = 3;
    pub const ONE_NIC: u32 = 4;
    pub const PIPE_MASTER: u32 = 5;
    pub const PIPE_SLAVE: u32 = 6;
    pub const ONE_HOST: u32 = 8;
    /// The bits of a mode in [`super::LegacyRequest::flags`].
    pub const MASK: u32 = 0xf;
}

/// Flags of a registration; the other ones of netmap ask for what this library has not.
pub mod flag {
    pub const MONITOR_TX: u64 = 0x100;
    pub const MONITOR_RX: u64 = 0x200;
    pub const ZERO_COPY_MONITOR: u64 = 0x400;
    pub const EXCLUSIVE: u64 = 0x800;
    pub const RX_RINGS_ONLY: u64 = 0x2000;
    pub const TX_RINGS_ONLY: u64 = 0x4000;
    pub const DO_RX_POLL: u64 = 0x1_0000;
    pub const NO_TX_POLL: u64 = 0x2_0000;
}

/// `struct nmreq_port_info_get`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct PortInfo {
    pub memory: u64,
    pub tx_slots: u32,
    pub rx_slots: u32,
    pub tx_rings: u16,
    pub rx_rings: u16,
    pub host_tx_rings: u16,
    pub host_rx_rings: u16,
    pub memory_id: u16,
    pub pad: [u16; 3],
}

/// `struct nmreq_port_hdr`.
#[repr(C)]
pub struct PortHeader {
    pub len: u32,
    pub pad: u32,
}

/// `struct nmreq`.
#[repr(C)]
pub struct LegacyRequest {
    pub name: [u8; 16],
    pub version: u32,
    pub offset: u32,
    pub memory: u32,
    pub tx_slots: u32,
    pub rx_slots: u32,
    pub tx_rings: u16,
    pub rx_rings: u16,
    pub ring: u16,
    pub command: u16,
    pub argument1: u16,
    pub memory_id: u16,
    pub extra_buffers: u32,
    pub flags: u32,
    pub spare: u32,
}

/// Bits of [`LegacyRequest::ring`].
pub mod legacy_ring {
    pub const NUMBER: u16 = 0xfff;
    pub const NO_TX_POLL: u16 = 0x1000;
    pub const HOST: u16 = 0x2000;
    pub const ONE: u16 = 0x4000;
    pub const DO_RX_POLL: u16 = 0x8000;
}

/// Flags of [`LegacyRequest::flags`] and of a [`Register`] that have the same bits.
pub const LEGACY_FLAGS: u32 = 0xfff0;

const _: () = assert!(size_of::<Header>() == 88);
const _: () = assert!(size_of::<Register>() == 56);
const _: () = assert!(size_of::<PortInfo>() == 32);
const _: () = assert!(size_of::<LegacyRequest>() == 60);

/// Bytes of `struct netmap_if` before its array of offsets of rings.
pub const INTERFACE_BYTES: usize = 56;
/// Bytes of `struct netmap_ring` before its slots.
pub const RING_BYTES: usize = 256;
/// Bytes of `struct netmap_slot`.
pub const SLOT_BYTES: usize = 16;

/// Offsets in `struct netmap_if`.
pub mod interface {
    pub const VERSION: usize = 16;
    pub const TX_RINGS: usize = 24;
    pub const RX_RINGS: usize = 28;
    pub const EXTRA_BUFFERS: usize = 32;
    pub const HOST_TX_RINGS: usize = 36;
    pub const HOST_RX_RINGS: usize = 40;
}

/// Offsets in `struct netmap_ring`.
pub mod ring {
    pub const BUFFERS: usize = 0;
    pub const SLOTS: usize = 8;
    pub const BUFFER_SIZE: usize = 12;
    pub const NUMBER: usize = 16;
    pub const DIRECTION: usize = 18;
    pub const HEAD: usize = 20;
    pub const CUR: usize = 24;
    pub const TAIL: usize = 28;
    pub const TIME: usize = 40;
}

/// Flags of a slot.
pub mod slot {
    pub const BUFFER_CHANGED: u16 = 0x1;
    pub const INDIRECT: u16 = 0x10;
    pub const MORE_FRAGMENTS: u16 = 0x20;
}

/// Indices that stand for no buffer: the first two.
pub const RESERVED_BUFFERS: u32 = 2;
/// Slots of the longest packet in fragments.
pub const FRAGMENTS_MAX: usize = 64;
