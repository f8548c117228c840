//! Drop reasons: numbers of `enum nfl_drop` (`bpf/switch/switch_types.h`).

pub(super) const RING_FULL: usize = 0;
pub(super) const BAD_LENGTH: usize = 1;
pub(super) const BAD_INDEX: usize = 2;
pub(super) const FOREIGN_MAC: usize = 3;
pub(super) const NO_ROUTE: usize = 4;
pub(super) const PORT_DOWN: usize = 5;
pub(super) const SAME_PORT: usize = 6;
pub(super) const FLOOD_LIMIT: usize = 7;
pub(super) const RESERVED_MAC: usize = 8;
pub(super) const CONTENDED: usize = 9;
pub(super) const CHANGED: usize = 10;
pub(super) const RECLAIMED: usize = 12;
pub(super) const TOO_LONG: usize = 16;
pub(super) const BAD_OFFLOAD: usize = 17;
pub(super) const NO_OFFLOAD: usize = 18;
