//! Packets in, packets out.
