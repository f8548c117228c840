//! `listen`: ports on the host's own network stack.

use super::fields::{Fields, read, text};
use crate::quantity::ValueError;
use crate::report::Report;
use crate::stack::{LISTEN_MAX, Stack};
use crate::yaml::{Kind, Node};
use std::net::SocketAddr;

/// Reads the listening addresses of an instance on the kernel's stack.
pub fn stack(fields: &mut Fields<'_>, report: &mut Report<'_>) -> Option<Stack> {
    let listen = fields.get("listen");
    let netns = fields.get("netns");
    let Some((node, path)) = listen else {
        if let Some((node, path)) = netns {
            report.error_at(
                node.mark,
                &path,
                "'netns' has no effect without 'listen'",
                "add 'listen', or remove 'netns'",
            );
        }
        return None;
    };
    let netns = netns.and_then(|(node, path)| text(node, &path, report).map(str::to_owned));
    Some(Stack {
        listen: addresses(node, &path, report),
        netns,
    })
}

/// Reads an address, or a list of addresses.
fn addresses(node: &Node, path: &str, report: &mut Report<'_>) -> Vec<SocketAddr> {
    let Kind::Sequence(items) = &node.kind else {
        return read(node, path, report, address).into_iter().collect();
    };
    if items.is_empty() || items.len() > LISTEN_MAX {
        report.error_at(
            node.mark,
            path,
            format!("an instance cannot listen at {} addresses", items.len()),
            format!("name 1 to {LISTEN_MAX}"),
        );
        return Vec::new();
    }
    let items = items.iter().enumerate();
    items
        .filter_map(|(i, item)| read(item, &format!("{path}[{i}]"), report, address))
        .collect()
}

/// Parses an IP address and a port.
fn address(text: &str) -> Result<SocketAddr, ValueError> {
    match text.parse::<SocketAddr>() {
        Ok(address) if address.port() != 0 => Ok(address),
        _ => Err(ValueError::new(
            format!("'{}' is no IP address with a port", text.escape_debug()),
            "write '192.0.2.1:443', or '\"[2001:db8::1]:443\"' in quotes",
        )),
    }
}
