//! Requests to the kernel by rtnetlink, with the kernel's own error texts (RFC 3549).
//!
//! Messages are those of `netlink-packet-route`. An answer is read attribute by attribute: an attribute that is
//! missing, or that the library does not understand, stays at its default, so that a newer kernel's attribute makes
//! no interface disappear.

mod address;
mod link;
mod monitor;
pub mod tc;

pub use address::Prefix;
pub use link::{Link, MaxSizes};
pub use monitor::Monitor;

use crate::error::NetdevError;
use netlink_packet_core::{
    Emitable, ErrorBuffer, NLM_F_ACK, NLM_F_ACK_TLVS, NLM_F_CAPPED, NLM_F_CREATE, NLM_F_DUMP,
    NLM_F_EXCL, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR, NetlinkBuffer, NetlinkHeader,
    NetlinkMessage, NetlinkPayload, NlasIterator, parse_string,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::{Socket, protocols::NETLINK_ROUTE};
use std::io;

const REPLY_BYTES: usize = 64 * 1024;
/// Of requests for what must not be there yet.
const NEW: u16 = NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL;
/// `enum nlmsgerr_attrs` of `linux/netlink.h`.
const NLMSGERR_ATTR_MSG: u16 = 1;

/// An rtnetlink socket in the namespace of the thread that opened it.
#[derive(Debug)]
pub struct Netlink(Socket);

impl Netlink {
    /// Opens a socket for requests.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn open() -> Result<Self, NetdevError> {
        let socket =
            Socket::new(NETLINK_ROUTE).map_err(NetdevError::system("opening a netlink socket"))?;
        for (option, set) in [
            ("NETLINK_CAP_ACK", socket.set_cap_ack(true)),
            ("NETLINK_EXT_ACK", socket.set_ext_ack(true)),
        ] {
            if set.is_err() {
                tracing::debug!(option, "the kernel gives no error texts over netlink");
            }
        }
        Ok(Netlink(socket))
    }

    /// Sends a request, returns the body of the answer; empty for a mere acknowledgement.
    fn request(&self, message: RouteNetlinkMessage, flags: u16) -> io::Result<Vec<u8>> {
        self.0.send(&encode(message, flags), 0)?;
        let reply = self.receive()?;
        let answer = NetlinkBuffer::new_checked(&reply).map_err(|_| short("answer"))?;
        let body = answer.payload();
        if answer.message_type() != NLMSG_ERROR {
            return Ok(body.to_vec());
        }
        let error = ErrorBuffer::new_checked(body).map_err(|_| short("answer"))?;
        match error.code() {
            None => Ok(Vec::new()),
            Some(code) => Err(explain(-code.get(), answer.flags(), error.payload())),
        }
    }

    /// Asks for a list; `take` gets the body of each entry.
    fn dump(&self, message: RouteNetlinkMessage, mut take: impl FnMut(&[u8])) -> io::Result<()> {
        self.0.send(&encode(message, NLM_F_DUMP), 0)?;
        loop {
            let reply = self.receive()?;
            let mut rest = &reply[..];
            while rest.len() >= NetlinkHeader::default().buffer_len() {
                let entry = NetlinkBuffer::new_checked(rest).map_err(|_| short("list"))?;
                match entry.message_type() {
                    NLMSG_DONE => return Ok(()),
                    NLMSG_ERROR => {
                        let error = ErrorBuffer::new_checked(entry.payload());
                        let code = error.ok().and_then(|error| error.code());
                        let number = code.map_or(0, |code| -code.get());
                        return Err(io::Error::from_raw_os_error(number));
                    }
                    _ => take(entry.payload()),
                }
                let end = (entry.length() as usize).next_multiple_of(4);
                rest = rest.get(end..).unwrap_or(&[]);
            }
        }
    }

    fn receive(&self) -> io::Result<Vec<u8>> {
        let mut reply = Vec::with_capacity(REPLY_BYTES);
        self.0.recv(&mut reply, 0)?;
        Ok(reply)
    }
}

/// The bytes of a request.
fn encode(message: RouteNetlinkMessage, flags: u16) -> Vec<u8> {
    let mut header = NetlinkHeader::default();
    header.flags = flags | NLM_F_REQUEST;
    let mut message = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(message));
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    bytes
}

fn short(what: &str) -> io::Error {
    io::Error::other(format!("the kernel's {what} is cut short"))
}

/// The kernel's text, where it gives one, with its error number. `echo`: what follows the number.
fn explain(errno: i32, flags: u16, echo: &[u8]) -> io::Error {
    let error = io::Error::from_raw_os_error(errno);
    if flags & NLM_F_ACK_TLVS == 0 {
        return error;
    }
    // The error is followed by the request's header, and by all of it if the answer is not capped.
    let header = NetlinkHeader::default().buffer_len();
    let echoed = match echo.first_chunk() {
        Some(length) if flags & NLM_F_CAPPED == 0 => {
            (u32::from_ne_bytes(*length) as usize).next_multiple_of(4)
        }
        _ => header,
    };
    let message = NlasIterator::new(echo.get(echoed..).unwrap_or(&[]))
        .map_while(Result::ok)
        .find(|attribute| attribute.kind() == NLMSGERR_ATTR_MSG)
        .and_then(|attribute| parse_string(attribute.value()).ok());
    match message {
        Some(message) => io::Error::new(
            error.kind(),
            Explained {
                errno,
                text: format!("{message} ({error})"),
            },
        ),
        None => error,
    }
}

/// An error of the kernel with the kernel's explanation.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
struct Explained {
    errno: i32,
    text: String,
}

/// The number of an error, explained or not.
pub fn errno(error: &io::Error) -> Option<i32> {
    let explained = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<Explained>());
    explained.map_or(error.raw_os_error(), |e| Some(e.errno))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_kernels_words_come_with_its_number() {
        let mut echo = vec![0u8; 16];
        echo.extend([13, 0, 1, 0]);
        echo.extend(b"no place\0\0\0\0");
        let flags = NLM_F_CAPPED | NLM_F_ACK_TLVS;
        let error = explain(libc::EBUSY, flags, &echo);
        assert_eq!(errno(&error), Some(libc::EBUSY));
        let plain = io::Error::from_raw_os_error(libc::EBUSY);
        assert_eq!(error.to_string(), format!("no place ({plain})"));
        assert_eq!(
            explain(libc::EBUSY, 0, &echo).to_string(),
            plain.to_string()
        );
    }

    proptest! {
        #[test]
        fn no_error_of_the_kernel_panics(bytes in proptest::collection::vec(any::<u8>(), 0..256), flags: u16) {
            let _ = explain(1, flags, &bytes);
        }
    }
}
