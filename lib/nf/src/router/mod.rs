//! Router: IPv4 and IPv6 forwarding.

mod lpm4;
mod lpm6;
