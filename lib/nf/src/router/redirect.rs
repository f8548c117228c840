//! ICMP redirects: the router notifies a host on a link that another router on that link, or the destination itself,
//! is nearer (RFC 792, RFC 1812 section 5.2.7.2). The packet is forwarded all the same.

use super::Router;
use super::icmp::{Error, Offender};
use super::options::{self, OptionError};
use super::slow::Arrival;
use crate::bucket::Rate;
use crate::function::Nanos;
use core::net::{IpAddr, Ipv4Addr};
use nfluid_ring::{Frame, Outbox};
use nfluid_wire::ether;
use nfluid_wire::ipv4::{self, Ipv4Packet};

/// Redirects per port of arrival, besides the limit of all ICMP errors: some hosts take none, and their packets would each get one.
const RATE: Rate = Rate {
    per_second: 10,
    burst: 10,
};

impl Router {
    /// Notifies the source of a packet, which is about to leave by the port of its arrival, that `next_hop` is
    /// nearer, if it is: if they are in one network.
    pub(super) fn redirect(
        &mut self,
        now: Nanos,
        arrival: Arrival,
        frame: &Frame<'_>,
        next_hop: Ipv4Addr,
        outbox: &mut dyn Outbox,
    ) {
        let port = usize::from(arrival.port);
        let packet = Ipv4Packet::new_unchecked(&frame.bytes()[ether::HEADER_LEN..]);
        let source = IpAddr::V4(packet.src());
        let are_together = self.ports[port]
            .addresses()
            .any(|own| own.holds(source) && own.holds(next_hop.into()));
        let options = options::check(&packet.header()[ipv4::HEADER_LEN..]);
        let is_source_routed = matches!(options, Err(OptionError::SourceRoute { .. }));
        if are_together
            && !is_source_routed
            && packet.src() != next_hop
            && self.redirect_budget[port].take(RATE, now)
        {
            let error = Error::Redirect { gateway: next_hop };
            self.send_error(now, Offender::of(arrival, frame), error, outbox);
        }
    }
}
