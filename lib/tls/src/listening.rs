//! The sockets on which a terminator is called.

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with, sockopt};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

/// Connections that may wait until they are accepted; the kernel's own limit is net.core.somaxconn.
const BACKLOG: i32 = 1024;

/// The reason why an address cannot be listened to.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen at {address}: {why}")]
pub struct ListenError {
    /// The address.
    pub address: SocketAddr,
    /// The kernel's error, and the remedy.
    pub why: String,
}

/// Opens a socket that listens at an address, in the calling thread's network namespace. Accepted connections have
/// TCP_NODELAY set here, since the accepting process may not be permitted to set it.
///
/// # Errors
/// The address is in use, or is not this host's.
pub fn open(address: SocketAddr) -> Result<OwnedFd, ListenError> {
    opened(address).map_err(|errno| ListenError {
        address,
        why: match errno {
            Errno::ADDRINUSE => "somebody listens there already; 'ss -ltnp' says who".to_owned(),
            Errno::ADDRNOTAVAIL => {
                "no interface has this address; 'ip address add' gives it to one".to_owned()
            }
            other => std::io::Error::from(other).to_string(),
        },
    })
}

fn opened(address: SocketAddr) -> Result<OwnedFd, Errno> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    // Connections of a predecessor that still die off are no reason to wait.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    sockopt::set_tcp_nodelay(&socket, true)?;
    bind(&socket, &address)?;
    listen(&socket, BACKLOG)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::open;
    use std::net::TcpListener;

    #[test]
    fn who_is_in_the_way_or_what_is_missing_is_said() {
        let first = open("127.0.0.1:0".parse().expect("an address")).expect("there are ports");
        let taken = TcpListener::from(first).local_addr().expect("it has one");
        assert!(open(taken).is_ok(), "it was closed");
        let held = open(taken).expect("it is free");
        let error = open(taken).expect_err("it is taken").to_string();
        assert!(
            error.contains(&taken.to_string()) && error.contains("already"),
            "{error}"
        );
        drop(held);
        let error = open("192.0.2.1:1".parse().expect("an address")).expect_err("it is not ours");
        assert!(error.to_string().contains("no interface"), "{error}");
    }
}
