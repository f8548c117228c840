//! `libnfluid`: the port library for C. The manual is `lib/ring/include/nfluid.h`. This crate is the thin layer
//! between that header and `nfluid-ring`.
//!
//! No panic crosses the boundary: each function runs inside [`errors::status`] or
//! [`errors::or_null`]. Pointers are checked for null and nothing else: that they are what the
//! header asks for, and which thread may use them when, is the caller's part of the contract.

mod errors;
mod frames;
mod held;
mod instance;
mod lane;
mod offload;
mod ports;
mod sleep;
mod traffic;

pub use errors::nfl_strerror;
pub use frames::{
    NflFrame, NflPacket, nfl_frame_cut, nfl_frame_finish, nfl_frame_offload, nfl_frame_room,
    nfl_frame_set_offload, nfl_frame_settle,
};
pub use instance::{NflInstance, nfl_attach, nfl_detach, nfl_wait};
pub use offload::{NflOffload, nfl_offload_packet_len, nfl_offload_segments, nfl_offload_wire_len};
pub use ports::{
    NflPort, nfl_port_at, nfl_port_by_name, nfl_port_count, nfl_port_index, nfl_port_level,
    nfl_port_mac, nfl_port_mtu, nfl_port_name, nfl_port_queue, nfl_port_queues, nfl_port_rx_long,
    nfl_port_tx_long,
};
pub use sleep::{nfl_awake, nfl_sleep, nfl_wait_ring};
pub use traffic::{
    NflStats, nfl_flush, nfl_forward, nfl_queued, nfl_receive, nfl_release, nfl_release_first,
    nfl_send_copy, nfl_send_offload, nfl_stats, nfl_tx_commit, nfl_tx_reserve,
};
