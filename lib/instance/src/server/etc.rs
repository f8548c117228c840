//! Files in `/etc` that say who and where a program is.

use nfluid_control::spec::PortSpec;
use nfluid_sandbox::INSIDE_ID;
use std::fmt::Write;

/// A file's name, and its content.
type Files = Vec<(&'static str, Vec<u8>)>;

/// Returns the names of the instance's addresses, its own name and its name servers.
pub(super) fn network(name: &str, ports: &[PortSpec]) -> Files {
    let interfaces = || ports.iter().filter_map(|port| port.interface.as_ref());
    let mut hosts = "127.0.0.1 localhost\n::1 localhost\n".to_owned();
    for address in interfaces().flat_map(|interface| &interface.addresses) {
        // Writing to a text cannot fail.
        let _ = writeln!(hosts, "{} {name}", address.addr());
    }
    let mut files = vec![
        ("hosts", hosts.into_bytes()),
        ("hostname", format!("{name}\n").into_bytes()),
    ];
    let servers = interfaces().flat_map(|interface| &interface.dns);
    let servers: String = servers
        .map(|server| format!("nameserver {server}\n"))
        .collect();
    if !servers.is_empty() {
        files.push(("resolv.conf", servers.into_bytes()));
    }
    files
}

/// Returns the files of a program of the host, which has no others: also its user, and where names are looked up.
pub(super) fn of_host(name: &str, ports: &[PortSpec]) -> Files {
    let mut files = network(name, ports);
    let user = format!("nfluid:x:{INSIDE_ID}:{INSIDE_ID}::/tmp:\n");
    files.extend([
        ("passwd", user.into_bytes()),
        ("group", format!("nfluid:x:{INSIDE_ID}:\n").into_bytes()),
        (
            "nsswitch.conf",
            b"passwd: files\ngroup: files\nhosts: files dns\n".to_vec(),
        ),
    ]);
    files
}
