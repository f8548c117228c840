//! The few rtnetlink messages that are needed, with the kernel's own error texts (RFC 3549;
//! `linux/rtnetlink.h`, `linux/if_link.h`).

pub mod tc;

use crate::error::NetdevError;
use crate::hook::XdpHook;
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, bind, netlink, recv,
    send, socket_with,
};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const RTM_SETLINK: u16 = 19;
const RTM_GETNSID: u16 = 90;
const NLMSG_ERROR: u16 = 2;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLM_F_CAPPED: u16 = 0x100;
const NLM_F_ACK_TLVS: u16 = 0x200;
const NLMSGERR_ATTR_MSG: u16 = 1;
const SOL_NETLINK: i32 = 270;
const NETLINK_CAP_ACK: i32 = 10;
const NETLINK_EXT_ACK: i32 = 11;
const NESTED: u16 = 1 << 15;
const HEADER: usize = 16;
const IFINFO: usize = 16;
const REPLY_BYTES: usize = 64 * 1024;

const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_LINK: u16 = 5;
const IFLA_MASTER: u16 = 10;
const IFLA_LINKINFO: u16 = 18;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_LINK_NETNSID: u16 = 37;
const IFLA_XDP: u16 = 43;
const IFLA_XDP_FD: u16 = 1;
const IFLA_XDP_ATTACHED: u16 = 2;
const IFLA_XDP_FLAGS: u16 = 3;
const IFLA_XDP_PROG_ID: u16 = 4;
const IFLA_XDP_EXPECTED_FD: u16 = 8;
const NETNSA_NSID: u16 = 1;
const NETNSA_FD: u16 = 3;

/// XDP_FLAGS_UPDATE_IF_NOEXIST
const XDP_IF_NONE: u32 = 1 << 0;
/// XDP_FLAGS_REPLACE
const XDP_REPLACE: u32 = 1 << 4;

/// What the kernel says about an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Index within its namespace.
    pub index: u32,
    /// Name.
    pub name: String,
    /// Is it up, administratively?
    pub up: bool,
    /// Can frames go out of it? Of a veth: are both ends up?
    pub carrier: bool,
    /// Largest packet.
    pub mtu: u32,
    /// Address, if it is an Ethernet one.
    pub mac: Option<[u8; 6]>,
    /// Kind of a virtual interface: "veth", "tun", ...
    pub kind: Option<String>,
    /// Index of the interface below or, for veth, of the other end.
    pub peer: Option<u32>,
    /// Index of the bridge, bond or VRF that it is a part of.
    pub master: Option<u32>,
    /// The kernel's number, in this namespace, of the namespace in which `peer` is; absent: here.
    pub peer_netns: Option<i32>,
    /// The attached XDP program, if there is just one.
    pub xdp: Option<u32>,
    /// Is any XDP program attached?
    pub xdp_attached: bool,
}

/// A request being put together.
struct Message(Vec<u8>);

impl Message {
    fn new(kind: u16, flags: u16) -> Self {
        let mut bytes = vec![0; HEADER];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&(flags | NLM_F_REQUEST).to_ne_bytes());
        Message(bytes)
    }

    /// With an `ifinfomsg`.
    fn link(kind: u16, flags: u16, index: u32) -> Self {
        let mut message = Self::new(kind, flags);
        let mut info = [0u8; IFINFO];
        info[4..8].copy_from_slice(&index.to_ne_bytes());
        message.0.extend(info);
        message
    }

    /// Puts the interface up or down.
    fn up(mut self, up: bool) -> Self {
        let flag = libc::IFF_UP as u32;
        let info = &mut self.0[HEADER..];
        info[8..12].copy_from_slice(&(if up { flag } else { 0 }).to_ne_bytes());
        info[12..16].copy_from_slice(&flag.to_ne_bytes());
        self
    }

    fn attribute(mut self, kind: u16, value: &[u8]) -> Self {
        let len = (4 + value.len()) as u16;
        self.0.extend(len.to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    fn nested(self, kind: u16, attributes: &[(u16, u32)]) -> Self {
        let mut value = Vec::new();
        for (kind, word) in attributes {
            value.extend(8u16.to_ne_bytes());
            value.extend(kind.to_ne_bytes());
            value.extend(word.to_ne_bytes());
        }
        self.attribute(kind | NESTED, &value)
    }

    fn finish(mut self) -> Vec<u8> {
        let len = self.0.len() as u32;
        self.0[..4].copy_from_slice(&len.to_ne_bytes());
        self.0
    }
}

/// The attributes in `bytes`; stops at the first that does not fit.
fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let len = usize::from(half(rest, 0)?);
        let kind = half(rest, 2)? & !NESTED;
        let value = rest.get(4..len)?;
        rest = rest.get(len.next_multiple_of(4)..).unwrap_or(&[]);
        Some((kind, value))
    })
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// Reads the body of an RTM_NEWLINK message. Never fails: what is missing stays at its default.
fn parse_link(body: &[u8]) -> Link {
    let mut link = Link {
        index: word(body, 4).unwrap_or(0),
        up: word(body, 8).unwrap_or(0) & libc::IFF_UP as u32 != 0,
        carrier: word(body, 8).unwrap_or(0) & libc::IFF_LOWER_UP as u32 != 0,
        ..Link::default()
    };
    for (kind, value) in attributes(body.get(IFINFO..).unwrap_or(&[])) {
        match kind {
            IFLA_ADDRESS => link.mac = value.try_into().ok(),
            IFLA_IFNAME => link.name = text(value),
            IFLA_MTU => link.mtu = word(value, 0).unwrap_or(0),
            IFLA_LINK => link.peer = word(value, 0),
            IFLA_MASTER => link.master = word(value, 0).filter(|index| *index != 0),
            IFLA_LINK_NETNSID => link.peer_netns = word(value, 0).map(|id| id as i32),
            IFLA_LINKINFO => {
                let mut info = attributes(value);
                link.kind = info
                    .find(|(kind, _)| *kind == IFLA_INFO_KIND)
                    .map(|(_, value)| text(value));
            }
            IFLA_XDP => parse_xdp(value, &mut link),
            _ => {}
        }
    }
    link
}

fn parse_xdp(value: &[u8], link: &mut Link) {
    for (kind, value) in attributes(value) {
        match kind {
            IFLA_XDP_ATTACHED => link.xdp_attached = value.first().is_some_and(|&mode| mode != 0),
            IFLA_XDP_PROG_ID => link.xdp = word(value, 0),
            _ => {}
        }
    }
}

/// An rtnetlink socket in the namespace of the thread that opened it.
#[derive(Debug)]
pub struct Netlink(OwnedFd);

impl Netlink {
    /// Opens a socket for requests.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn open() -> Result<Self, NetdevError> {
        let socket = socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            None, // NETLINK_ROUTE is 0
        )
        .map_err(NetdevError::system("opening a netlink socket"))?;
        for option in [NETLINK_CAP_ACK, NETLINK_EXT_ACK] {
            let on = 1i32;
            // SAFETY: the option value is a live i32 of the length that is passed.
            let status = unsafe {
                libc::setsockopt(
                    socket.as_raw_fd(),
                    SOL_NETLINK,
                    option,
                    (&raw const on).cast(),
                    size_of::<i32>() as libc::socklen_t,
                )
            };
            if status != 0 {
                tracing::debug!(option, "the kernel gives no error texts over netlink");
            }
        }
        Ok(Netlink(socket))
    }

    /// Sends a request, returns the body of the answer; empty for a mere acknowledgement.
    fn request(&self, message: Message) -> io::Result<Vec<u8>> {
        send(&self.0, &message.finish(), SendFlags::empty())?;
        let mut reply = vec![0u8; REPLY_BYTES];
        let (len, _) = recv(&self.0, &mut reply[..], RecvFlags::empty())?;
        reply.truncate(len);
        let short = || io::Error::other("the kernel's answer is cut short");
        let end = word(&reply, 0).ok_or_else(short)? as usize;
        let kind = half(&reply, 4).ok_or_else(short)?;
        let flags = half(&reply, 6).ok_or_else(short)?;
        let body = reply.get(HEADER..end).ok_or_else(short)?;
        if kind != NLMSG_ERROR {
            return Ok(body.to_vec());
        }
        match word(body, 0).ok_or_else(short)? as i32 {
            0 => Ok(Vec::new()),
            error => Err(explain(-error, flags, body)),
        }
    }

    /// The interface `name`; `None` if there is none.
    ///
    /// # Errors
    /// When the kernel refuses to say.
    pub fn link(&self, name: &str) -> Result<Option<Link>, NetdevError> {
        let mut value = name.as_bytes().to_vec();
        value.push(0);
        let message = Message::link(RTM_GETLINK, 0, 0).attribute(IFLA_IFNAME, &value);
        self.find(message, name)
    }

    /// The interface with this index; `None` if there is none.
    ///
    /// # Errors
    /// When the kernel refuses to say.
    pub fn link_by_index(&self, index: u32) -> Result<Option<Link>, NetdevError> {
        let message = Message::link(RTM_GETLINK, 0, index);
        self.find(message, &format!("number {index}"))
    }

    fn find(&self, message: Message, what: &str) -> Result<Option<Link>, NetdevError> {
        match self.request(message) {
            Ok(body) => Ok(Some(parse_link(&body))),
            Err(error) if errno(&error) == Some(libc::ENODEV) => Ok(None),
            Err(error) => Err(NetdevError::system(format!("looking for interface {what}"))(error)),
        }
    }

    /// Puts an interface up or down.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn set_up(&self, index: u32, up: bool) -> Result<(), NetdevError> {
        self.request(Message::link(RTM_NEWLINK, NLM_F_ACK, index).up(up))
            .map(drop)
            .map_err(NetdevError::system("putting the interface up or down"))
    }

    /// Gives an interface an address.
    ///
    /// # Errors
    /// When the kernel or the driver refuses.
    pub fn set_mac(&self, index: u32, mac: [u8; 6]) -> Result<(), NetdevError> {
        let message = Message::link(RTM_SETLINK, NLM_F_ACK, index).attribute(IFLA_ADDRESS, &mac);
        self.request(message)
            .map(drop)
            .map_err(NetdevError::system("setting the interface's address"))
    }

    /// Attaches an XDP program where none is, or in place of `instead_of`, atomically.
    ///
    /// # Errors
    /// The kernel's own words; `EBUSY` or `EEXIST`: another program is there.
    pub fn attach_xdp(
        &self,
        index: u32,
        hook: XdpHook,
        program: BorrowedFd<'_>,
        instead_of: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        self.set_xdp(index, hook, program.as_raw_fd(), instead_of)
    }

    /// Detaches `program`, if it is the one that is attached.
    ///
    /// # Errors
    /// As the kernel reports them.
    pub fn detach_xdp(&self, index: u32, hook: XdpHook, program: BorrowedFd<'_>) -> io::Result<()> {
        self.set_xdp(index, hook, -1, Some(program))
    }

    fn set_xdp(
        &self,
        index: u32,
        hook: XdpHook,
        fd: RawFd,
        expected: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        let how = if expected.is_some() {
            XDP_REPLACE
        } else {
            XDP_IF_NONE
        };
        let mut xdp = vec![
            (IFLA_XDP_FD, fd as u32),
            (IFLA_XDP_FLAGS, hook.flag() | how),
        ];
        xdp.extend(expected.map(|fd| (IFLA_XDP_EXPECTED_FD, fd.as_raw_fd() as u32)));
        let message = Message::link(RTM_SETLINK, NLM_F_ACK, index).nested(IFLA_XDP, &xdp);
        self.request(message).map(drop)
    }

    /// The number that this namespace has given to the namespace `fd`.
    ///
    /// # Errors
    /// When the kernel refuses to say.
    pub fn netns_id(&self, fd: BorrowedFd<'_>) -> io::Result<i32> {
        let mut message = Message::new(RTM_GETNSID, 0);
        message.0.extend([0u8; 4]);
        let message = message.attribute(NETNSA_FD, &(fd.as_raw_fd() as u32).to_ne_bytes());
        let body = self.request(message)?;
        let id = attributes(body.get(4..).unwrap_or(&[]))
            .find(|(kind, _)| *kind == NETNSA_NSID)
            .and_then(|(_, value)| word(value, 0));
        Ok(id.map_or(-1, |id| id as i32))
    }
}

/// The kernel's text, where it gives one, with its error number.
fn explain(errno: i32, flags: u16, body: &[u8]) -> io::Error {
    let error = io::Error::from_raw_os_error(errno);
    if flags & NLM_F_ACK_TLVS == 0 {
        return error;
    }
    // The error is followed by the request's header, and by all of it if the answer is not capped.
    let echoed = if flags & NLM_F_CAPPED != 0 {
        HEADER
    } else {
        word(body, 4).map_or(HEADER, |len| (len as usize).next_multiple_of(4))
    };
    let message = attributes(body.get(4 + echoed..).unwrap_or(&[]))
        .find(|(kind, _)| *kind == NLMSGERR_ATTR_MSG)
        .map(|(_, value)| text(value));
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

/// Announcements of the kernel about a namespace: something was added, removed or changed.
#[derive(Debug)]
pub struct Monitor(OwnedFd);

/// RTNLGRP_LINK, as a bit.
const GROUP_LINK: u32 = 1;
/// RTNLGRP_IPV4_IFADDR and RTNLGRP_IPV6_IFADDR, as bits.
const GROUPS_ADDRESS: u32 = 1 << 4 | 1 << 8;
/// NFNLGRP_NFTABLES, as a bit.
const GROUP_RULES: u32 = 1 << 6;

impl Monitor {
    /// Of the interfaces in the calling thread's namespace.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn of_links() -> Result<Self, NetdevError> {
        Self::open(None, GROUP_LINK, "listening for changes of interfaces")
    }

    /// Of its interfaces and their addresses.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn of_addresses() -> Result<Self, NetdevError> {
        let what = "listening for changes of addresses";
        Self::open(None, GROUP_LINK | GROUPS_ADDRESS, what)
    }

    /// Of its rule set (nftables, and what iptables-nft makes of it).
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn of_rules() -> Result<Self, NetdevError> {
        let what = "listening for changes of the rule set";
        Self::open(Some(netlink::NETFILTER), GROUP_RULES, what)
    }

    /// `protocol`: none is NETLINK_ROUTE, which is 0.
    fn open(protocol: Option<Protocol>, groups: u32, what: &str) -> Result<Self, NetdevError> {
        let socket = socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            protocol,
        )
        .map_err(NetdevError::system(what))?;
        bind(&socket, &netlink::SocketAddrNetlink::new(0, groups))
            .map_err(NetdevError::system(what))?;
        Ok(Monitor(socket))
    }

    /// Takes what has been announced. What it was does not matter: the interface is looked at.
    pub fn drain(&self) -> bool {
        let mut buffer = [0u8; 8192];
        let mut any = false;
        // An overrun (ENOBUFS) is news as well; bounded, as announcements may come without end.
        for _ in 0..64 {
            match recv(&self.0, &mut buffer[..], RecvFlags::TRUNC) {
                Ok(_) | Err(rustix::io::Errno::NOBUFS) => any = true,
                Err(_) => break,
            }
        }
        any
    }
}

impl AsFd for Monitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_link_is_read_back() {
        let message = Message::link(RTM_NEWLINK, 0, 7)
            .up(true)
            .attribute(IFLA_IFNAME, b"eth7\0")
            .attribute(IFLA_MTU, &1500u32.to_ne_bytes())
            .attribute(IFLA_ADDRESS, &[2, 0, 0, 0, 0, 7])
            .attribute(IFLA_LINK, &9u32.to_ne_bytes())
            .attribute(IFLA_MASTER, &11u32.to_ne_bytes())
            .attribute(IFLA_LINK_NETNSID, &3u32.to_ne_bytes())
            .nested(IFLA_XDP, &[(IFLA_XDP_ATTACHED, 1), (IFLA_XDP_PROG_ID, 55)])
            .finish();
        let link = parse_link(&message[HEADER..]);
        let want = Link {
            index: 7,
            name: "eth7".to_owned(),
            up: true,
            carrier: false,
            mtu: 1500,
            mac: Some([2, 0, 0, 0, 0, 7]),
            kind: None,
            peer: Some(9),
            master: Some(11),
            peer_netns: Some(3),
            xdp: Some(55),
            xdp_attached: true,
        };
        assert_eq!(link, want);
    }

    proptest! {
        #[test]
        fn no_answer_of_the_kernel_panics(bytes in proptest::collection::vec(any::<u8>(), 0..256), flags: u16) {
            let _ = parse_link(&bytes);
            let _ = explain(1, flags, &bytes);
        }
    }
}
