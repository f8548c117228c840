//! Addresses and routes of interfaces.

use super::link::nested;
use super::{NEW, Netlink, errno};
use crate::error::NetdevError;
use netlink_packet_core::Emitable;
use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use std::net::IpAddr;

/// An address, and the number of its leading bits that its network shares.
pub type Prefix = (IpAddr, u8);

impl Netlink {
    /// Adds an address to an interface. An IPv6 address is used at once: nobody else can have it (no detection of
    /// duplicates, RFC 4862 section 5.4).
    ///
    /// # Errors
    /// The kernel refuses: it is there already.
    pub fn add_address(&self, index: u32, (address, length): Prefix) -> Result<(), NetdevError> {
        let mut message = AddressMessage::default();
        message.header.family = family(address);
        message.header.prefix_len = length;
        message.header.index = index;
        message.attributes.push(AddressAttribute::Address(address));
        match address {
            IpAddr::V4(_) => message.attributes.push(AddressAttribute::Local(address)),
            IpAddr::V6(_) => message.header.flags = AddressHeaderFlags::Nodad,
        }
        self.request(RouteNetlinkMessage::NewAddress(message), NEW)
            .map(drop)
            .map_err(NetdevError::system(format!(
                "adding the address {address}/{length}"
            )))
    }

    /// Adds a route through an interface to `to`, by way of `via`, or to hosts on the interface's segment.
    ///
    /// # Errors
    /// The kernel refuses: it is there already, or `via` is on no network of the interface.
    pub fn add_route(
        &self,
        index: u32,
        to: Prefix,
        via: Option<IpAddr>,
    ) -> Result<(), NetdevError> {
        let (network, length) = to;
        let mut message = RouteMessage::default();
        message.header.address_family = family(network);
        message.header.destination_prefix_length = length;
        message.header.table = RouteHeader::RT_TABLE_MAIN;
        message.header.protocol = RouteProtocol::Static;
        message.header.kind = RouteType::Unicast;
        message.header.scope = match via {
            Some(_) => RouteScope::Universe,
            None => RouteScope::Link,
        };
        if length > 0 {
            message
                .attributes
                .push(RouteAttribute::Destination(network.into()));
        }
        let via_address = via.map(RouteAddress::from);
        message
            .attributes
            .extend(via_address.map(RouteAttribute::Gateway));
        message.attributes.push(RouteAttribute::Oif(index));
        let words = match via {
            Some(via) => format!("adding the route to {network}/{length} via {via}"),
            None => format!("adding the route to {network}/{length}"),
        };
        self.request(RouteNetlinkMessage::NewRoute(message), NEW)
            .map(drop)
            .map_err(NetdevError::system(words))
    }

    /// Returns the index of the interface by which packets to a host leave; `None`: no route leads there.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub fn way_to(&self, host: IpAddr) -> Result<Option<u32>, NetdevError> {
        let mut message = RouteMessage::default();
        message.header.address_family = family(host);
        message.header.destination_prefix_length = if host.is_ipv4() { 32 } else { 128 };
        message
            .attributes
            .push(RouteAttribute::Destination(host.into()));
        match self.request(RouteNetlinkMessage::GetRoute(message), 0) {
            Ok(body) => {
                let attributes = body.get(RouteHeader::default().buffer_len()..);
                let index = nested(attributes.unwrap_or_default(), libc::RTA_OIF);
                let index = index.and_then(|bytes| bytes.try_into().ok());
                Ok(index.map(u32::from_ne_bytes))
            }
            Err(error) => match errno(&error) {
                Some(libc::ENETUNREACH | libc::EHOSTUNREACH) => Ok(None),
                _ => Err(NetdevError::system(format!("looking for a way to {host}"))(
                    error,
                )),
            },
        }
    }
}

fn family(address: IpAddr) -> AddressFamily {
    match address {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    }
}
