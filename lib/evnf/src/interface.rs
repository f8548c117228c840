//! Interfaces of the calling thread's network namespace, and their attached programs.

use libbpf_rs::Xdp;
use libbpf_rs::XdpFlags;
use libbpf_rs::query::ProgInfoIter;
use rustix::io;
use rustix::net::netdevice::name_to_index;
use rustix::net::{AddressFamily, SocketType, socket};
use std::os::fd::BorrowedFd;

/// The number of an interface.
///
/// # Errors
/// When no interface has the name.
pub(crate) fn index(interface: &str) -> io::Result<i32> {
    let socket = socket(AddressFamily::UNIX, SocketType::DGRAM, None)?;
    Ok(name_to_index(socket, interface)?.cast_signed())
}

/// Name and number of the XDP program that an interface has; `own` is any program of ours.
pub(crate) fn occupant(own: BorrowedFd<'_>, index: i32) -> Option<String> {
    let id = Xdp::new(own).query_id(index, XdpFlags::NONE).ok()?;
    let known = ProgInfoIter::default().find(|program| program.id == id);
    // The program may have gone meanwhile.
    let name = known.map_or_else(String::new, |program| {
        program.name.to_string_lossy().into_owned()
    });
    (id != 0).then(|| format!("'{name}' (number {id})"))
}
