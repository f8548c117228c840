//! The message by which a process that waits in a prepared instance becomes a network function: the NF's name, its
//! configuration and its ports.
//!
//! The message is sent on a socket of kind SEQPACKET. Only the daemon has the other end of the socket. Bytes: the
//! number of doorbells, for each doorbell the position of its port in the table; the length of the NF's name, the
//! name; the length of the port table (2 bytes, little-endian), the table; the configuration. Descriptors: the
//! doorbells, and a memory file with the configuration if the configuration is too long for the message, which then
//! has none. The table is the table that the process was started with, except for names, addresses and sizes. The
//! doorbells of other instances are known only now.

use crate::error::AttachError;
use crate::table::{PORTS_MAX, TABLE_MAX, Table};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::{IoSlice, IoSliceMut};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::fs::File;
use std::io::{self, Seek, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};

/// Environment variable that names the socket on which a process waits.
pub const ASSIGNMENT_ENV: &str = "NFLUID_ASSIGNMENT_FD";

/// Longest name of an NF in bytes.
const NAME_MAX: usize = 255;
/// Longest configuration that is a part of the message, in bytes.
const CONFIG_MAX: usize = 32 << 10;
const BYTES_MAX: usize = 1 + PORTS_MAX + 1 + NAME_MAX + 2 + TABLE_MAX + CONFIG_MAX;
const FDS_MAX: usize = 1 + PORTS_MAX;

/// The role of a process that waited: an NF, its ports and its configuration.
#[derive(Debug)]
pub struct Assignment {
    /// The NF's name.
    pub nf: String,
    /// The ports of the instance.
    pub table: Table,
    /// The configuration of the NF in JSON.
    pub config: Config,
}

/// A configuration.
#[derive(Debug)]
pub enum Config {
    /// The text of the configuration.
    Text(Vec<u8>),
    /// A memory file with it.
    File(OwnedFd),
}

/// Assigns a network function to a waiting process: the NF's name, and the bytes of its port table and of its
/// configuration. `doorbells` are the doorbells of the ports' peers, each with the position of the port.
///
/// # Errors
/// When the process is gone, or the message too long.
pub fn send(
    socket: impl AsFd,
    nf: &str,
    table: &[u8],
    config: &[u8],
    doorbells: &[(u8, BorrowedFd<'_>)],
) -> io::Result<()> {
    if doorbells.len() > PORTS_MAX || nf.len() > NAME_MAX || table.len() > TABLE_MAX {
        return Err(io::Error::other(
            "too many doorbells or ports, or a name that is too long",
        ));
    }
    let mut bytes = vec![doorbells.len() as u8];
    bytes.extend(doorbells.iter().map(|(port, _)| *port));
    bytes.push(nf.len() as u8);
    bytes.extend(nf.as_bytes());
    bytes.extend((table.len() as u16).to_le_bytes());
    bytes.extend(table);
    let mut fds: Vec<BorrowedFd<'_>> = doorbells.iter().map(|(_, doorbell)| *doorbell).collect();
    let file = (config.len() > CONFIG_MAX).then(|| memory_file(config));
    let file = file.transpose()?;
    match &file {
        Some(file) => fds.push(file.as_fd()),
        None => bytes.extend(config),
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(&fds)) {
        return Err(io::Error::other("too many descriptors"));
    }
    let part = [IoSlice::new(&bytes)];
    let sent = sendmsg(socket, &part, &mut ancillary, SendFlags::NOSIGNAL)?;
    if sent < bytes.len() {
        return Err(io::Error::other("it takes no message of this length"));
    }
    Ok(())
}

fn memory_file(content: &[u8]) -> io::Result<OwnedFd> {
    let mut file = File::from(memfd_create("config", MemfdFlags::CLOEXEC)?);
    file.write_all(content)?;
    file.rewind()?;
    Ok(file.into())
}

/// Waits until this process is assigned a network function. Returns `None` if the other end of the socket is closed:
/// no assignment can come any more.
///
/// # Errors
/// When the message is not one.
pub fn receive(socket: impl AsFd) -> Result<Option<Assignment>, AttachError> {
    let failed = |errno: rustix::io::Errno| AttachError::Read {
        fd: socket.as_fd().as_raw_fd(),
        source: errno.into(),
    };
    let mut bytes = vec![0; BYTES_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::io::retry_on_intr(|| {
        let mut parts = [IoSliceMut::new(&mut bytes)];
        recvmsg(&socket, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC)
    });
    let length = received.map_err(failed)?.bytes;
    if length == 0 {
        return Ok(None);
    }
    let mut fds = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            fds.extend(received);
        }
    }
    assemble(bytes.get(..length).unwrap_or_default(), fds).map(Some)
}

/// The next part of a message: as many bytes as `length` says.
fn part<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (part, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(part)
}

/// Ports with doorbells, the NF's name, and its port table, from the beginning of a message.
fn parts<'a>(rest: &mut &'a [u8]) -> Option<(&'a [u8], &'a [u8], &'a [u8])> {
    let doorbells = part(rest, 1)?[0];
    let ports = part(rest, usize::from(doorbells))?;
    let name = part(rest, 1)?[0];
    let name = part(rest, usize::from(name))?;
    let length = part(rest, 2)?;
    let table = part(
        rest,
        usize::from(u16::from_le_bytes([length[0], length[1]])),
    )?;
    Some((ports, name, table))
}

fn assemble(bytes: &[u8], fds: Vec<OwnedFd>) -> Result<Assignment, AttachError> {
    let bad = || AttachError::BadTable(format!("not an assignment ({ASSIGNMENT_ENV})"));
    let mut rest = bytes;
    let (ports, name, table) = parts(&mut rest).ok_or_else(bad)?;
    let mut table = Table::parse(table)?;
    let mut fds = fds.into_iter();
    for port in ports {
        let doorbell = fds.next().ok_or_else(bad)?;
        let entry = table.ports.get_mut(usize::from(*port)).ok_or_else(bad)?;
        if entry.peer_doorbell_fd >= 0 {
            return Err(bad());
        }
        entry.peer_doorbell_fd = doorbell.into_raw_fd();
    }
    let config = match fds.next() {
        Some(file) if rest.is_empty() => Config::File(file),
        None => Config::Text(rest.to_vec()),
        Some(_) => return Err(bad()),
    };
    if fds.next().is_some() {
        return Err(bad());
    }
    Ok(Assignment {
        nf: String::from_utf8(name.to_vec()).map_err(|_| bad())?,
        table,
        config,
    })
}

#[cfg(test)]
mod tests {
    use super::{CONFIG_MAX, Config, assemble, receive, send};
    use crate::table::{ATTACH_MAGIC, PortEntry, Table, TableHead};
    use proptest::prelude::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use std::fs::File;
    use std::io::{Read, Write};
    use std::os::fd::{AsFd, OwnedFd};

    fn file(bytes: &[u8]) -> OwnedFd {
        let mut file = tempfile();
        file.write_all(bytes).expect("a file");
        file.into()
    }

    fn tempfile() -> File {
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        rustix::fs::memfd_create("test", flags)
            .expect("memory")
            .into()
    }

    fn table() -> Table {
        let entry = |n: i32| PortEntry {
            name: [0; 32],
            mac: [2, 0, 0, 0, 0, 1],
            mtu: 1500,
            queue: 0,
            queues: 1,
            socket_fd: 100 + n,
            ring_fd: 200 + n,
            peer_doorbell_fd: -1,
            ring_slots: 64,
            rx_base: 128 * n as u32,
            tx_base: 128 * n as u32 + 64,
            tx_slots: 64,
            ..PortEntry::default()
        };
        Table {
            head: TableHead {
                magic: ATTACH_MAGIC,
                ports: 2,
                pool_fd: 4,
                pool_slots: 256,
                doorbell_fd: 7,
                kernel_doorbell_fd: -1,
                io_doorbell_fd: -1,
            },
            ports: vec![entry(0), entry(1)],
        }
    }

    fn pair() -> (OwnedFd, OwnedFd) {
        let flags = SocketFlags::CLOEXEC;
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("a pair")
    }

    #[test]
    fn what_is_sent_is_received_with_its_doorbells() {
        let (daemon, waiting) = pair();
        let (ports, doorbell) = (table().to_bytes(), file(b""));
        let doorbells = [(1, doorbell.as_fd())];
        send(&daemon, "bridge", &ports, b"{}", &doorbells).expect("it waits");
        let told = receive(&waiting).expect("a message").expect("one");
        assert_eq!(told.nf, "bridge");
        assert_eq!(told.table.ports[0], table().ports[0]);
        assert!(told.table.ports[1].peer_doorbell_fd > 2);
        assert!(matches!(told.config, Config::Text(text) if text == b"{}"));
        drop(daemon);
        assert!(receive(&waiting).expect("an end").is_none());
    }

    #[test]
    fn a_long_configuration_comes_in_a_file() {
        let (daemon, waiting) = pair();
        let long = vec![b' '; CONFIG_MAX + 1];
        send(&daemon, "bridge", &table().to_bytes(), &long, &[]).expect("it waits");
        let told = receive(&waiting).expect("a message").expect("one");
        let Config::File(file) = told.config else {
            panic!("a text of more than {CONFIG_MAX} bytes");
        };
        let mut text = Vec::new();
        File::from(file).read_to_end(&mut text).expect("a file");
        assert_eq!(text, long);
    }

    proptest! {
        #[test]
        fn any_message_is_survived(bytes in proptest::collection::vec(any::<u8>(), 0..80), fds in 0usize..5) {
            let fds = (0..fds).map(|_| file(b"")).collect();
            let _ = assemble(&bytes, fds);
        }

        #[test]
        fn any_end_of_a_message_is_survived(cut in 0usize..200, fds in 0usize..5) {
            let table = table().to_bytes();
            let mut bytes = vec![1, 1, 3, b'n', b'a', b't'];
            bytes.extend((table.len() as u16).to_le_bytes());
            bytes.extend(table);
            bytes.truncate(cut);
            let fds = (0..fds).map(|_| file(b"")).collect();
            let _ = assemble(&bytes, fds);
        }
    }
}
