//! The part of the configuration that all servers have.

use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;
use core::net::IpAddr;
use ipnet::IpNet;
use nfluid_nf::{ConfigError, PortInfo};
use serde::Deserialize;

/// Most addresses of a server.
pub const ADDRESSES_MAX: usize = 8;
/// Smallest MTU of a link that carries IPv4 (RFC 791), and IPv6 (RFC 8200, section 5).
const MTU_MIN_V4: u16 = 68;
const MTU_MIN_V6: u16 = 1280;
/// Most connections at a time.
pub const CONNECTIONS_MAX: usize = 1024;

/// Addresses and limits of a server.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Endpoint {
    /// Its addresses, with the lengths of their prefixes.
    pub addresses: Vec<IpNet>,
    /// Routers for everything that is not in these prefixes, at most one for each version of IP.
    #[serde(default)]
    pub gateways: Vec<IpAddr>,
    /// TCP port; the service's own if absent.
    pub port: Option<u16>,
    /// Connections at a time.
    #[serde(default = "default_connections")]
    pub connections: usize,
}

/// Connections at a time if the configuration does not say.
pub fn default_connections() -> usize {
    64
}

impl Endpoint {
    /// Checks the values.
    ///
    /// # Errors
    /// The first value that cannot be used.
    pub fn check(&self, ports: &[PortInfo]) -> Result<(), ConfigError> {
        if ports.len() != 1 {
            let message = format!("a server has one port, not {}", ports.len());
            return Err(ConfigError::at("", message));
        }
        let least = if self.addresses.iter().any(|net| net.addr().is_ipv6()) {
            MTU_MIN_V6
        } else {
            MTU_MIN_V4
        };
        if ports[0].mtu < least {
            let message = format!("the port's MTU of {} is less than {least}", ports[0].mtu);
            return Err(ConfigError::at("addresses", message));
        }
        if self.addresses.is_empty() || self.addresses.len() > ADDRESSES_MAX {
            let message =
                format!("1 to {ADDRESSES_MAX} addresses, as in [10.0.0.2/24, 'fd00::2/64']");
            return Err(ConfigError::at("addresses", message));
        }
        for (at, address) in self.addresses.iter().enumerate() {
            if !is_host(address.addr()) || is_reserved(address) {
                let message = format!("{address} is not the address of a host");
                return Err(ConfigError::at(format!("addresses[{at}]"), message));
            }
            if self.addresses[..at]
                .iter()
                .any(|it| it.addr() == address.addr())
            {
                let message = format!("{address} is there twice");
                return Err(ConfigError::at(format!("addresses[{at}]"), message));
            }
        }
        for (at, gateway) in self.gateways.iter().enumerate() {
            let path = || format!("gateways[{at}]");
            if !self.addresses.iter().any(|net| net.contains(gateway)) {
                let message = format!("{gateway} is in no prefix of 'addresses'");
                return Err(ConfigError::at(path(), message));
            }
            let before = &self.gateways[..at];
            if before.iter().any(|it| it.is_ipv4() == gateway.is_ipv4()) {
                let message = "one gateway for each version of IP".to_string();
                return Err(ConfigError::at(path(), message));
            }
        }
        if self.port == Some(0) {
            return Err(ConfigError::at("port", "1 to 65535".to_string()));
        }
        if !(1..=CONNECTIONS_MAX).contains(&self.connections) {
            let message = format!("1 to {CONNECTIONS_MAX}");
            return Err(ConfigError::at("connections", message));
        }
        Ok(())
    }
}

fn is_host(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(it) => !it.is_unspecified() && !it.is_multicast() && !it.is_broadcast(),
        IpAddr::V6(it) => !it.is_unspecified() && !it.is_multicast(),
    }
}

/// The first and the last address of an IPv4 network belong to no host.
fn is_reserved(address: &IpNet) -> bool {
    match address {
        IpNet::V4(net) if net.prefix_len() < 31 => {
            net.addr() == net.network() || net.addr() == net.broadcast()
        }
        _ => false,
    }
}
