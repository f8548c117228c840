//! Static port forwards: `tcp 203.0.113.1:80 -> 10.0.0.2:80`, `udp ... -> ... vlan 7`.

use super::config::is_unicast;
use super::endpoint::{Endpoint, Protocol, Vlan};
use alloc::format;
use alloc::string::String;
use core::net::SocketAddrV4;

/// An external end point that always leads to the same inside one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Forward {
    pub(super) protocol: Protocol,
    pub(super) external: Endpoint,
    pub(super) inside: Endpoint,
    pub(super) vlan: Vlan,
}

impl Forward {
    /// Reads a forward from its text.
    pub(super) fn parse(text: &str) -> Result<Forward, String> {
        let usage = || {
            format!(
                "'{text}' is not a forward; write 'tcp 203.0.113.1:80 -> 10.0.0.2:8080', \
                 with 'vlan 7' at the end for a tagged network"
            )
        };
        let mut words = text.split_whitespace();
        let protocol = match words.next() {
            Some("tcp") => Protocol::Tcp,
            Some("udp") => Protocol::Udp,
            _ => return Err(usage()),
        };
        let mut endpoint = || words.next().and_then(parse_endpoint);
        let external = endpoint().ok_or_else(usage)?;
        if words.next() != Some("->") {
            return Err(usage());
        }
        let inside = words.next().and_then(parse_endpoint).ok_or_else(usage)?;
        let vlan = match (words.next(), words.next(), words.next()) {
            (None, _, _) => Vlan::UNTAGGED,
            (Some("vlan"), Some(id), None) => {
                let id = id.parse().ok().filter(|id| (1..=4094).contains(id));
                Vlan::tagged(id.ok_or_else(usage)?)
            }
            _ => return Err(usage()),
        };
        Ok(Forward {
            protocol,
            external,
            inside,
            vlan,
        })
    }
}

fn parse_endpoint(text: &str) -> Option<Endpoint> {
    let address: SocketAddrV4 = text.parse().ok()?;
    let usable = is_unicast(*address.ip()) && address.port() != 0;
    usable.then(|| Endpoint::new(address.ip().to_bits(), address.port()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forward_is_read() {
        let forward = Forward::parse("tcp 203.0.113.1:80 -> 10.0.0.2:8080").unwrap();
        assert_eq!(forward.protocol, Protocol::Tcp);
        assert_eq!(forward.external, Endpoint::new(0xcb00_7101, 80));
        assert_eq!(forward.inside, Endpoint::new(0x0a00_0002, 8080));
        assert_eq!(forward.vlan, Vlan::UNTAGGED);
        let tagged = Forward::parse("udp 1.2.3.4:53 -> 10.0.0.2:53 vlan 7").unwrap();
        assert_eq!(
            (tagged.protocol, tagged.vlan),
            (Protocol::Udp, Vlan::tagged(7))
        );
    }

    #[test]
    fn a_malformed_forward_is_refused() {
        for text in [
            "",
            "tcp",
            "icmp 1.2.3.4:1 -> 10.0.0.2:1",
            "tcp 1.2.3.4 -> 10.0.0.2:80",
            "tcp 1.2.3.4:80 10.0.0.2:80",
            "tcp 1.2.3.4:0 -> 10.0.0.2:80",
            "tcp 224.0.0.1:80 -> 10.0.0.2:80",
            "tcp 1.2.3.4:80 -> 10.0.0.2:80 vlan",
            "tcp 1.2.3.4:80 -> 10.0.0.2:80 vlan 4095",
            "tcp 1.2.3.4:80 -> 10.0.0.2:80 vlan 7 8",
            "tcp 1.2.3.4:80 -> 10.0.0.2:80 now",
        ] {
            let error = Forward::parse(text).unwrap_err();
            assert!(
                error.contains("203.0.113.1:80 -> 10.0.0.2:8080"),
                "{text}: {error}"
            );
        }
    }
}
