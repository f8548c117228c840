//! Frames on a network interface of the kernel (NIC, veth, tap) by `AF_PACKET` sockets: 256 frames
//! per system call, one copy by the kernel each way.
//!
//! Two properties of `AF_PACKET` are visible. The kernel takes the outermost VLAN tag off a received frame before a
//! socket sees it, so a tagged frame arrives 4 bytes shorter. And a frame longer than a slot, which offloads on the
//! sending side can make, arrives cut: such frames are not passed on but counted, see [`InterfaceReceiver::oversized`].

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use arrayvec::ArrayVec;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::socket::{
    AddressFamily, LinkAddr, MsgFlags, MultiHeaders, SockFlag, SockProtocol, SockType, bind,
    recvmmsg, sendmmsg, setsockopt, socket, sockopt,
};
use nix::sys::time::{TimeSpec, TimeVal, TimeValLike};

use crate::io::{BATCH_MAX, FRAME_MAX, IoError, Receiver, Sender};

/// Bytes per frame buffer.
const BUFFER_SIZE: usize = 2048;
/// Requested receive buffer, in bytes as the kernel counts them (about 768 per short frame).
const SOCKET_BUFFER: usize = 32 << 20;
/// `sll_pkttype` of a frame that this host sends itself.
const PACKET_OUTGOING: u8 = 4;
/// Longest that a send may block on a full socket buffer, in seconds.
const SEND_TIMEOUT_S: i64 = 1;

/// Hardware address of the Ethernet interface `name`.
///
/// # Errors
/// [`IoError::Open`] when there is no such interface in this network namespace.
pub fn hardware_address(name: &str) -> Result<[u8; 6], IoError> {
    Ok(link_address(name)?.addr().unwrap_or_default())
}

/// Opens the interface `name` for sending and for receiving.
///
/// # Errors
/// [`IoError::Open`] without the interface, or without the right to open packet sockets.
pub fn open(name: &str) -> Result<(InterfaceSender, InterfaceReceiver), IoError> {
    Ok((InterfaceSender::open(name)?, InterfaceReceiver::open(name)?))
}

fn link_address(name: &str) -> Result<LinkAddr, IoError> {
    let fail = |cause: Errno| IoError::Open {
        port: format!("interface {name}"),
        cause: cause.into(),
        remedy: "list this network namespace's interfaces with `ip link`",
    };
    nix::ifaddrs::getifaddrs()
        .map_err(fail)?
        .filter(|entry| entry.interface_name == name)
        .find_map(|entry| entry.address.as_ref()?.as_link_addr().copied())
        .ok_or_else(|| fail(Errno::ENODEV))
}

/// A packet socket bound to the interface. Without a `protocol` it receives nothing.
fn open_socket(
    name: &str,
    address: &LinkAddr,
    flags: SockFlag,
    protocol: Option<SockProtocol>,
) -> Result<OwnedFd, IoError> {
    let fail = |cause: Errno| IoError::Open {
        port: format!("interface {name}"),
        cause: cause.into(),
        remedy: "raw frames need CAP_NET_RAW: run as root",
    };
    let family = AddressFamily::Packet;
    let fd = socket(
        family,
        SockType::Raw,
        flags | SockFlag::SOCK_CLOEXEC,
        protocol,
    )
    .map_err(fail)?;
    bind(fd.as_raw_fd(), address).map_err(fail)?;
    Ok(fd)
}

type Buffers = Box<[[u8; BUFFER_SIZE]; BATCH_MAX]>;

fn frame_buffers() -> Buffers {
    // By way of a vector, because a boxed array would be made on the stack first.
    vec![[0; BUFFER_SIZE]; BATCH_MAX]
        .try_into()
        .expect("the vector has as many elements")
}

/// The sending half of an interface.
#[derive(Debug)]
pub struct InterfaceSender {
    name: String,
    fd: OwnedFd,
    buffers: Buffers,
    lengths: ArrayVec<usize, BATCH_MAX>,
    headers: MultiHeaders<LinkAddr>,
    unaddressed: Vec<Option<LinkAddr>>,
    dropped: u64,
}

impl InterfaceSender {
    /// Opens the interface `name` for sending.
    ///
    /// # Errors
    /// As for [`open`].
    pub fn open(name: &str) -> Result<Self, IoError> {
        let address = link_address(name)?;
        let fd = open_socket(name, &address, SockFlag::empty(), None)?;
        let timeout = TimeVal::seconds(SEND_TIMEOUT_S);
        setsockopt(&fd, sockopt::SendTimeout, &timeout).map_err(|cause| IoError::Open {
            port: format!("interface {name}"),
            cause: cause.into(),
            remedy: "this is not expected of any kernel that nfluid supports",
        })?;
        Ok(InterfaceSender {
            name: name.to_owned(),
            fd,
            buffers: frame_buffers(),
            lengths: ArrayVec::new(),
            headers: MultiHeaders::preallocate(BATCH_MAX, None),
            unaddressed: vec![None; BATCH_MAX],
            dropped: 0,
        })
    }

    /// Makes a system call for the frames from `first` on. Returns how many are done with.
    fn send_from(&mut self, first: usize) -> Result<usize, IoError> {
        let slices: ArrayVec<[IoSlice<'_>; 1], BATCH_MAX> = self.buffers[first..]
            .iter()
            .zip(&self.lengths[first..])
            .map(|(buffer, &length)| [IoSlice::new(&buffer[..length])])
            .collect();
        let outcome = sendmmsg(
            self.fd.as_raw_fd(),
            &mut self.headers,
            slices.iter(),
            &self.unaddressed,
            [],
            MsgFlags::empty(),
        );
        match outcome {
            Ok(results) => Ok(results.count()),
            Err(Errno::EINTR) => Ok(0),
            // The kernel reports the error of the first frame only, so a frame behind it that finds the queue full is
            // tried once more, as the first of the next call.
            Err(Errno::ENOBUFS | Errno::EAGAIN) => {
                self.dropped += 1;
                Ok(1)
            }
            Err(Errno::EMSGSIZE) => Err(IoError::Refused {
                port: format!("interface {}", self.name),
                length: self.lengths[first],
            }),
            Err(cause) => Err(IoError::Failed {
                port: format!("interface {}", self.name),
                action: "sending",
                cause: cause.into(),
            }),
        }
    }

    /// Forgets the first `count` frames and moves the rest to the front.
    fn forget(&mut self, count: usize) {
        let held = self.lengths.len();
        self.buffers[..held].rotate_left(count);
        self.lengths.drain(..count);
    }
}

impl Sender for InterfaceSender {
    fn send(
        &mut self,
        count: usize,
        mut fill: impl FnMut(usize, &mut [u8]) -> usize,
    ) -> Result<usize, IoError> {
        for position in 0..count {
            if self.lengths.is_full() {
                self.flush()?;
            }
            let length = fill(position, &mut self.buffers[self.lengths.len()]);
            match length {
                0 => return Ok(position),
                1..=FRAME_MAX => self.lengths.push(length),
                _ => self.dropped += 1,
            }
        }
        Ok(count)
    }

    fn flush(&mut self) -> Result<(), IoError> {
        let mut done = 0;
        while done < self.lengths.len() {
            match self.send_from(done) {
                Ok(count) => done += count,
                Err(error) => {
                    self.forget(done + 1);
                    return Err(error);
                }
            }
        }
        self.lengths.clear();
        Ok(())
    }

    fn prefill(&mut self, mut write: impl FnMut(&mut [u8])) -> bool {
        self.buffers.iter_mut().for_each(|buffer| write(buffer));
        true
    }

    /// Frames that found the interface's queue full, or too long for a slot.
    fn dropped(&self) -> u64 {
        self.dropped
    }
}

/// The receiving half of an interface.
#[derive(Debug)]
pub struct InterfaceReceiver {
    name: String,
    fd: OwnedFd,
    interface_index: usize,
    buffers: Buffers,
    headers: MultiHeaders<LinkAddr>,
    oversized: u64,
}

impl InterfaceReceiver {
    /// Opens the interface `name` for receiving: every frame that arrives there, none that this
    /// host sends there itself.
    ///
    /// # Errors
    /// As for [`open`].
    pub fn open(name: &str) -> Result<Self, IoError> {
        let address = link_address(name)?;
        let protocol = Some(SockProtocol::EthAll);
        let fd = open_socket(name, &address, SockFlag::SOCK_NONBLOCK, protocol)?;
        // Without CAP_NET_ADMIN the system-wide limit applies, and a smaller buffer works as well,
        // only less patiently.
        if setsockopt(&fd, sockopt::RcvBufForce, &SOCKET_BUFFER).is_err() {
            let _ = setsockopt(&fd, sockopt::RcvBuf, &SOCKET_BUFFER);
        }
        Ok(InterfaceReceiver {
            name: name.to_owned(),
            fd,
            interface_index: address.ifindex(),
            buffers: frame_buffers(),
            headers: MultiHeaders::preallocate(BATCH_MAX, None),
            oversized: 0,
        })
    }

    /// Returns the number of frames that were longer than a slot and therefore not passed on.
    pub fn oversized(&self) -> u64 {
        self.oversized
    }

    /// Makes a system call for up to `max` frames, into the buffers from the first on.
    fn receive_batch(&mut self, max: usize) -> nix::Result<ArrayVec<Arrival, BATCH_MAX>> {
        let interface_index = self.interface_index;
        let mut slices = self
            .buffers
            .each_mut()
            .map(|buffer| [IoSliceMut::new(buffer)]);
        let messages = recvmmsg(
            self.fd.as_raw_fd(),
            &mut self.headers,
            slices[..max].iter_mut(),
            MsgFlags::MSG_DONTWAIT,
            None,
        )?;
        let arrivals = messages.map(|message| {
            // Between the socket's creation and its binding, frames of other interfaces may have
            // been queued; and frames that this host sends are seen as well.
            let ours = message.address.is_some_and(|from| {
                from.ifindex() == interface_index && from.pkttype() != PACKET_OUTGOING
            });
            match (ours, message.flags.contains(MsgFlags::MSG_TRUNC)) {
                (false, _) => Arrival::NotOurs,
                (true, true) => Arrival::Cut,
                (true, false) => Arrival::Frame(message.bytes),
            }
        });
        Ok(arrivals.collect())
    }

    fn failed(&self, action: &'static str, cause: Errno) -> IoError {
        IoError::Failed {
            port: format!("interface {}", self.name),
            action,
            cause: cause.into(),
        }
    }
}

/// The content of a buffer after a system call.
#[derive(Clone, Copy, Debug)]
enum Arrival {
    /// A frame of this many bytes.
    Frame(usize),
    /// The beginning of a frame that did not fit.
    Cut,
    /// A frame that did not arrive at this interface.
    NotOurs,
}

impl Receiver for InterfaceReceiver {
    fn receive(&mut self, max: usize, mut handle: impl FnMut(&[u8])) -> Result<usize, IoError> {
        let arrivals = match self.receive_batch(max.min(BATCH_MAX)) {
            Ok(arrivals) => arrivals,
            Err(Errno::EAGAIN | Errno::EINTR) => return Ok(0),
            Err(cause) => return Err(self.failed("receiving", cause)),
        };
        let mut count = 0;
        for (buffer, arrival) in self.buffers.iter().zip(&arrivals) {
            match *arrival {
                Arrival::Frame(length @ ..=FRAME_MAX) => {
                    handle(&buffer[..length]);
                    count += 1;
                }
                Arrival::Frame(_) | Arrival::Cut => self.oversized += 1,
                Arrival::NotOurs => {}
            }
        }
        Ok(count)
    }

    fn wait(&mut self, timeout: Duration) -> Result<(), IoError> {
        let timeout = TimeSpec::from_duration(timeout);
        let mut events = [PollFd::new(self.fd.as_fd(), PollFlags::POLLIN)];
        match ppoll(&mut events, Some(timeout), None) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(cause) => Err(self.failed("waiting", cause)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_interface_is_named_with_a_remedy() {
        let error = open("nfl-none0").map(|_| ()).unwrap_err().to_string();
        assert!(
            error.contains("nfl-none0") && error.contains("ip link"),
            "{error}"
        );
    }
}
