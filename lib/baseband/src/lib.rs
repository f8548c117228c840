//! Baseband: the kernels of an LTE uplink receiver (PUSCH), from subcarriers to transport blocks.
//!
//! Four antennas receive four layers of spatially multiplexed SC-FDMA, 64-QAM. For each user: channel estimation
//! ([`estimate`]), MMSE weights and combining ([`equalise`]), transform de-precoding ([`transform`]), soft demapping
//! ([`modulation`]), descrambling ([`scramble`]), de-interleaving and rate de-matching ([`rate`]), turbo decoding
//! ([`turbo`]) and the check of the transport block ([`crc`]). [`uplink`] makes them a graph for `nfluid-dataflow`: 104
//! tasks per user and subframe. [`transmit`] and [`channel`] produce what tests and benchmarks receive.
//!
//! Numbers of 3GPP: TS 36.211 (physical channels), TS 36.212 (coding), release 10. Samples are `f32`; soft bits
//! (log-likelihood ratios) are positive for a 0. The crate does no I/O.

#![forbid(unsafe_code)]

pub mod channel;
pub mod crc;
pub mod equalise;
pub mod estimate;
pub mod front_end;
pub mod modulation;
pub mod rate;
pub mod reference;
pub mod scramble;
pub mod size;
pub mod transform;
pub mod transmit;
pub mod turbo;
pub mod uplink;

/// A complex sample, or the value of a subcarrier.
pub type Sample = num_complex::Complex<f32>;

#[cfg(test)]
mod tests;
