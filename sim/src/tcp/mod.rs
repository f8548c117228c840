//! TCP, as far as it decides how many packets are on their way: windows, loss recovery, ECN, and the
//! coupling of the subflows of a multipath connection. A packet is a segment; sequence numbers count
//! packets; there is no hand-shake, no flow control, and always something to send.
//!
//! - [`window`]: slow start and what surrounds congestion avoidance (RFC 5681, RFC 3168).
//! - [`congestion`]: congestion avoidance: Reno (RFC 5681), CUBIC (RFC 9438), the multipath couplings
//!   LIA (RFC 6356) and OLIA.
//! - [`sender`]: transmissions, what is lost, the timer (RFC 6298).
//! - [`receiver`]: acknowledges every packet.

pub mod congestion;
pub mod receiver;
pub mod round_trip;
pub mod sender;
pub mod window;

pub use congestion::Control;
pub use receiver::Receiver;
pub use sender::Sender;
