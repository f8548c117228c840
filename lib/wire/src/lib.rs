//! Packet formats: view, parse, emit.
//!
//! Every format is a zero-copy view, generic over the buffer, whose `new_checked` validates all
//! lengths once. Data paths that only need to know what a frame *is* use
//! [`flow::PacketMeta::parse`], one pass over the headers.
//!
//! Invariants: no allocation, no `unsafe`, no I/O, no dependency; bytes from the network never
//! make a function of this crate panic, as long as the view came from `new_checked`.

#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

mod be;
mod error;
mod tlv;
mod view;

pub mod arp;
pub mod build;
pub mod checksum;
pub mod ether;
pub mod flow;
mod icmp;
pub mod icmpv4;
pub mod icmpv6;
pub mod ip;
pub mod ipv4;
pub mod ipv6;
pub mod ndp;
pub mod segment;
pub mod tcp;
pub mod udp;

pub use checksum::ChecksumState;
pub use error::ParseError;
pub use ether::{EtherType, EthernetFrame, MacAddr, VlanTag};
pub use flow::{FlowKey, HashSeed, L3, PacketMeta};
pub use ip::IpProtocol;
pub use tcp::TcpFlags;
pub use tlv::{TlvOption, TlvOptions};

/// Compiles the example in the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
