//! Interfaces by rtnetlink (`linux/if_link.h`).

use super::{NEW, Netlink, errno};
use crate::error::NetdevError;
use crate::hook::XdpHook;
use netlink_packet_core::{Emitable, NLM_F_ACK, NlasIterator, Parseable, ParseableParametrized};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVeth, InfoVxlan, LinkAttribute, LinkFlags, LinkHeader, LinkInfo,
    LinkMessage, LinkXdp, XdpAttached,
};
use netlink_packet_route::nsid::{NsidAttribute, NsidMessage};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

/// XDP_FLAGS_UPDATE_IF_NOEXIST
const XDP_IF_NONE: u32 = 1 << 0;
/// XDP_FLAGS_REPLACE
const XDP_REPLACE: u32 = 1 << 4;
/// IFLA_INFO_KIND
const IFLA_INFO_KIND: u16 = 1;

/// The kernel's description of an interface.
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
    /// The text that somebody has left on it.
    pub alias: Option<String>,
    /// The number of the group that it was made in; 0: none.
    pub group: u32,
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
    /// Longest packets that the kernel makes of several.
    pub sizes: MaxSizes,
}

/// The longest packets in bytes that the kernel cuts for an interface (GSO), and that it merges from it (GRO); IPv4 has
/// bounds of its own since Linux 6.3. Absent: the kernel does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct MaxSizes {
    /// To be sent.
    pub gso: Option<u32>,
    /// Received.
    pub gro: Option<u32>,
    /// To be sent, over IPv4.
    pub gso_ipv4: Option<u32>,
    /// Received, over IPv4.
    pub gro_ipv4: Option<u32>,
}

impl MaxSizes {
    /// The same, but none is above `most`.
    #[must_use]
    pub fn limited(self, most: u32) -> Self {
        let limit = |size: Option<u32>| size.map(|size| size.min(most));
        MaxSizes {
            gso: limit(self.gso),
            gro: limit(self.gro),
            gso_ipv4: limit(self.gso_ipv4),
            gro_ipv4: limit(self.gro_ipv4),
        }
    }

    fn attributes(&self) -> Vec<LinkAttribute> {
        let all = [
            self.gso.map(LinkAttribute::GsoMaxSize),
            self.gro.map(LinkAttribute::GroMaxSize),
            self.gso_ipv4.map(LinkAttribute::GsoIpv4MaxSize),
            self.gro_ipv4.map(LinkAttribute::GroIpv4MaxSize),
        ];
        all.into_iter().flatten().collect()
    }
}

/// A message about the interface `index`; 0 if an attribute names the interface.
fn about(index: u32, attributes: Vec<LinkAttribute>) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.index = index;
    message.attributes = attributes;
    message
}

/// A message that makes a veth: one end `name` here, the other one in the namespace `there`, with a name of the kernel's choice
/// after `pattern`.
fn veth(name: &str, mtu: u32, pattern: &str, there: RawFd) -> LinkMessage {
    let end = |name: &str| {
        vec![
            LinkAttribute::IfName(name.to_owned()),
            LinkAttribute::Mtu(mtu),
        ]
    };
    let mut other = about(0, end(pattern));
    other.attributes.push(LinkAttribute::NetNsFd(there));
    let mut message = about(0, end(name));
    message.attributes.push(LinkAttribute::LinkInfo(vec![
        LinkInfo::Kind(InfoKind::Veth),
        LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(other))),
    ]));
    message
}

/// A message that puts an interface up or down.
fn updown(index: u32, up: bool) -> LinkMessage {
    let mut message = about(index, Vec::new());
    message.header.change_mask = LinkFlags::Up;
    if up {
        message.header.flags = LinkFlags::Up;
    }
    message
}

/// A message that has an interface run the XDP program `fd`, or none if it is -1.
fn xdp(index: u32, hook: XdpHook, fd: RawFd, expected: Option<RawFd>) -> LinkMessage {
    let how = if expected.is_some() {
        XDP_REPLACE
    } else {
        XDP_IF_NONE
    };
    let mut program = vec![LinkXdp::Fd(fd), LinkXdp::Flags(hook.flag() | how)];
    program.extend(expected.map(|fd| LinkXdp::ExpectedFd(fd as u32)));
    about(index, vec![LinkAttribute::Xdp(program)])
}

/// A question for the number that this namespace has given to the namespace `fd`.
fn netns(fd: RawFd) -> NsidMessage {
    let mut message = NsidMessage::default();
    message.attributes.push(NsidAttribute::Fd(fd as u32));
    message
}

/// Reads the body of an RTM_NEWLINK message. Reading never fails: an attribute that is missing, or that the library
/// does not understand, stays at its default. Nested attributes are read one by one, so that an attribute of another
/// kernel hides no other.
fn parse_link(body: &[u8]) -> Link {
    let header = LinkHeader::parse(body).unwrap_or_default();
    let mut link = Link {
        index: header.index,
        up: header.flags.contains(LinkFlags::Up),
        carrier: header.flags.contains(LinkFlags::LowerUp),
        ..Link::default()
    };
    let attributes = body.get(header.buffer_len()..).unwrap_or(&[]);
    for attribute in NlasIterator::new(attributes).map_while(Result::ok) {
        let value = attribute.value();
        match attribute.kind() {
            libc::IFLA_IFNAME => link.name = text(value),
            libc::IFLA_IFALIAS => link.alias = Some(text(value)),
            libc::IFLA_LINKINFO => {
                let kind = nested(value, IFLA_INFO_KIND);
                link.kind = kind.map(|kind| text(&kind));
            }
            libc::IFLA_XDP => parse_xdp(value, &mut link),
            _ => {}
        }
        match LinkAttribute::parse_with_param(&attribute, header.interface_family) {
            Ok(LinkAttribute::Address(address)) => link.mac = address.try_into().ok(),
            Ok(LinkAttribute::Mtu(mtu)) => link.mtu = mtu,
            Ok(LinkAttribute::Group(group)) => link.group = group,
            Ok(LinkAttribute::Link(index)) => link.peer = Some(index),
            Ok(LinkAttribute::Controller(index)) => {
                link.master = Some(index).filter(|index| *index != 0);
            }
            Ok(LinkAttribute::LinkNetNsId(id)) => link.peer_netns = Some(id),
            Ok(LinkAttribute::GsoMaxSize(size)) => link.sizes.gso = Some(size),
            Ok(LinkAttribute::GroMaxSize(size)) => link.sizes.gro = Some(size),
            Ok(LinkAttribute::GsoIpv4MaxSize(size)) => link.sizes.gso_ipv4 = Some(size),
            Ok(LinkAttribute::GroIpv4MaxSize(size)) => link.sizes.gro_ipv4 = Some(size),
            _ => {}
        }
    }
    link
}

fn parse_xdp(xdp: &[u8], link: &mut Link) {
    for attribute in NlasIterator::new(xdp).map_while(Result::ok) {
        match LinkXdp::parse(&attribute) {
            Ok(LinkXdp::Attached(mode)) => link.xdp_attached = mode != XdpAttached::None,
            Ok(LinkXdp::ProgId(id)) => link.xdp = Some(id),
            _ => {}
        }
    }
}

/// The value of a nested attribute.
pub(super) fn nested(attributes: &[u8], kind: u16) -> Option<Vec<u8>> {
    let mut attributes = NlasIterator::new(attributes).map_while(Result::ok);
    let found = attributes.find(|attribute| attribute.kind() == kind)?;
    Some(found.value().to_vec())
}

/// Text with a NUL at its end. A name need not be UTF-8.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0);
    let bytes = &bytes[..end.unwrap_or(bytes.len())];
    String::from_utf8_lossy(bytes).into_owned()
}

impl Netlink {
    /// The interface `name`; `None` if there is none.
    ///
    /// # Errors
    /// When the kernel refuses to say.
    pub fn link(&self, name: &str) -> Result<Option<Link>, NetdevError> {
        let named = vec![LinkAttribute::IfName(name.to_owned())];
        self.find(about(0, named), name)
    }

    /// The interface with this index; `None` if there is none.
    ///
    /// # Errors
    /// When the kernel refuses to say.
    pub fn link_by_index(&self, index: u32) -> Result<Option<Link>, NetdevError> {
        self.find(about(index, Vec::new()), &format!("number {index}"))
    }

    fn find(&self, message: LinkMessage, what: &str) -> Result<Option<Link>, NetdevError> {
        match self.request(RouteNetlinkMessage::GetLink(message), 0) {
            Ok(body) => Ok(Some(parse_link(&body))),
            Err(error) if errno(&error) == Some(libc::ENODEV) => Ok(None),
            Err(error) => Err(NetdevError::system(format!("looking for interface {what}"))(error)),
        }
    }

    /// Makes a veth whose longest packets have `mtu` bytes: one end `name` here, the other one in the namespace `there`, with a
    /// name of the kernel's choice after `pattern`, in which `%d` is a number.
    ///
    /// # Errors
    /// When the kernel refuses: the name is taken, for instance.
    pub fn make_veth(
        &self,
        name: &str,
        mtu: u32,
        (pattern, there): (&str, BorrowedFd<'_>),
    ) -> Result<(), NetdevError> {
        let message = veth(name, mtu, pattern, there.as_raw_fd());
        self.request(RouteNetlinkMessage::NewLink(message), NEW)
            .map(drop)
            .map_err(NetdevError::system(format!("making the veth {name}")))
    }

    /// Makes a VXLAN interface in a group of interfaces.
    ///
    /// # Errors
    /// When the kernel refuses: the name is taken, for instance, or the number.
    pub fn make_vxlan(
        &self,
        name: &str,
        group: u32,
        settings: Vec<InfoVxlan>,
        mtu: u32,
    ) -> Result<(), NetdevError> {
        let attributes = vec![
            LinkAttribute::Mtu(mtu),
            LinkAttribute::IfName(name.to_owned()),
            LinkAttribute::Group(group),
            LinkAttribute::LinkInfo(vec![
                LinkInfo::Kind(InfoKind::Vxlan),
                LinkInfo::Data(InfoData::Vxlan(settings)),
            ]),
        ];
        self.request(RouteNetlinkMessage::NewLink(about(0, attributes)), NEW)
            .map(drop)
            .map_err(NetdevError::system(format!("making the tunnel {name}")))
    }

    /// Leaves a text on an interface.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn set_alias(&self, index: u32, alias: &str) -> Result<(), NetdevError> {
        let alias = vec![LinkAttribute::IfAlias(alias.to_owned())];
        self.set(about(index, alias))
            .map_err(NetdevError::system("leaving a text on the interface"))
    }

    /// Removes a virtual interface.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn delete(&self, index: u32) -> Result<(), NetdevError> {
        let message = RouteNetlinkMessage::DelLink(about(index, Vec::new()));
        self.request(message, NLM_F_ACK)
            .map(drop)
            .map_err(NetdevError::system("removing the interface"))
    }

    /// Puts an interface up or down.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn set_up(&self, index: u32, up: bool) -> Result<(), NetdevError> {
        let message = RouteNetlinkMessage::NewLink(updown(index, up));
        self.request(message, NLM_F_ACK)
            .map(drop)
            .map_err(NetdevError::system("putting the interface up or down"))
    }

    /// Renames an interface, which is down.
    ///
    /// # Errors
    /// When the kernel refuses: the name is taken, for instance.
    pub fn set_name(&self, index: u32, name: &str) -> Result<(), NetdevError> {
        let name = vec![LinkAttribute::IfName(name.to_owned())];
        self.set(about(index, name))
            .map_err(NetdevError::system("renaming the interface"))
    }

    /// Gives an interface an address.
    ///
    /// # Errors
    /// When the kernel or the driver refuses.
    pub fn set_mac(&self, index: u32, mac: [u8; 6]) -> Result<(), NetdevError> {
        let address = vec![LinkAttribute::Address(mac.to_vec())];
        self.set(about(index, address))
            .map_err(NetdevError::system("setting the interface's address"))
    }

    /// Sets the longest IP packet of an interface.
    ///
    /// # Errors
    /// When the kernel or the driver refuses.
    pub fn set_mtu(&self, index: u32, mtu: u32) -> Result<(), NetdevError> {
        self.set(about(index, vec![LinkAttribute::Mtu(mtu)]))
            .map_err(NetdevError::system(format!("setting the MTU to {mtu}")))
    }

    /// Sets the longest packets that the kernel makes of several.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn set_max_sizes(&self, index: u32, sizes: &MaxSizes) -> Result<(), NetdevError> {
        self.set(about(index, sizes.attributes()))
            .map_err(NetdevError::system("setting the longest packets"))
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
        let expected = instead_of.map(|fd| fd.as_raw_fd());
        self.set(xdp(index, hook, program.as_raw_fd(), expected))
    }

    /// Detaches `program`, if it is the one that is attached.
    ///
    /// # Errors
    /// As the kernel reports them.
    pub fn detach_xdp(&self, index: u32, hook: XdpHook, program: BorrowedFd<'_>) -> io::Result<()> {
        self.set(xdp(index, hook, -1, Some(program.as_raw_fd())))
    }

    fn set(&self, message: LinkMessage) -> io::Result<()> {
        self.request(RouteNetlinkMessage::SetLink(message), NLM_F_ACK)
            .map(drop)
    }

    /// The number that this namespace has given to the namespace `fd`.
    ///
    /// # Errors
    /// When the kernel refuses to say.
    pub fn netns_id(&self, fd: BorrowedFd<'_>) -> io::Result<i32> {
        let body = self.request(RouteNetlinkMessage::GetNsId(netns(fd.as_raw_fd())), 0)?;
        let answer = NsidMessage::parse(&body[..]).map_err(io::Error::other)?;
        let id = answer
            .attributes
            .iter()
            .find_map(|attribute| match attribute {
                NsidAttribute::Id(id) => Some(*id),
                _ => None,
            });
        Ok(id.unwrap_or(-1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::encode;
    use proptest::prelude::*;

    #[test]
    fn a_link_is_read_back() {
        let mut message = about(
            7,
            vec![
                LinkAttribute::IfName("eth7".to_owned()),
                LinkAttribute::IfAlias("of the lab".to_owned()),
                LinkAttribute::Group(5),
                LinkAttribute::Mtu(1500),
                LinkAttribute::Address(vec![2, 0, 0, 0, 0, 7]),
                LinkAttribute::Link(9),
                LinkAttribute::Controller(11),
                LinkAttribute::LinkNetNsId(3),
                LinkAttribute::GsoMaxSize(65_536),
                LinkAttribute::GroIpv4MaxSize(65_000),
                LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Veth)]),
                LinkAttribute::Xdp(vec![
                    LinkXdp::Attached(XdpAttached::Driver),
                    LinkXdp::ProgId(55),
                ]),
            ],
        );
        message.header.flags = LinkFlags::Up;
        let mut body = vec![0; message.buffer_len()];
        message.emit(&mut body);
        let want = Link {
            index: 7,
            name: "eth7".to_owned(),
            up: true,
            carrier: false,
            mtu: 1500,
            mac: Some([2, 0, 0, 0, 0, 7]),
            alias: Some("of the lab".to_owned()),
            group: 5,
            kind: Some("veth".to_owned()),
            peer: Some(9),
            master: Some(11),
            peer_netns: Some(3),
            xdp: Some(55),
            xdp_attached: true,
            sizes: MaxSizes {
                gso: Some(65_536),
                gro_ipv4: Some(65_000),
                ..MaxSizes::default()
            },
        };
        assert_eq!(parse_link(&body), want);
    }

    #[test]
    fn the_loopback_interface_is_found_by_name_and_by_index_and_others_are_not() {
        let netlink = Netlink::open().expect("a socket");
        let link = netlink.link("lo").expect("an answer").expect("there");
        assert_eq!((link.name.as_str(), link.mac), ("lo", Some([0; 6])));
        let same = netlink.link_by_index(link.index).expect("an answer");
        assert_eq!(same.expect("there").name, "lo");
        assert_eq!(netlink.link("no-such-nic").expect("an answer"), None);
    }

    /// Catches: an attribute that the library does not take (here statistics that are too short) ends the reading.
    #[test]
    fn an_attribute_that_makes_no_sense_hides_no_other() {
        let mut body = vec![0; 16];
        body.extend([6, 0, 23, 0, 1, 2, 0, 0]);
        body.extend([8, 0, 4, 0]);
        body.extend(1500u32.to_ne_bytes());
        assert_eq!(parse_link(&body).mtu, 1500);
    }

    /// Catches: a bridge port's data of a newer kernel that hides that the interface is a veth; a name that is not UTF-8.
    #[test]
    fn nested_attributes_are_read_one_by_one() {
        let attribute = |kind: u16, value: &[u8]| {
            let mut bytes = (value.len() as u16 + 4).to_ne_bytes().to_vec();
            bytes.extend(kind.to_ne_bytes());
            bytes.extend(value);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            bytes
        };
        let mut info = attribute(IFLA_INFO_KIND, b"veth\0");
        // The kind and the data of the master of the interface.
        info.extend(attribute(4, b"bridge\0"));
        info.extend(attribute(5, &attribute(1, &[9])));
        let mut body = vec![0; 16];
        body.extend(attribute(libc::IFLA_IFNAME, b"eth\xff\0"));
        body.extend(attribute(libc::IFLA_LINKINFO, &info));
        let link = parse_link(&body);
        assert_eq!(link.kind.as_deref(), Some("veth"));
        assert_eq!(link.name, "eth\u{fffd}");
    }

    /// Bytes of requests that were written by hand, from headers of the kernel, before the library was used.
    #[test]
    #[cfg(target_endian = "little")]
    fn requests_are_the_kernels_structures() {
        let hex = |message, flags| -> String {
            let bytes = encode(message, flags);
            bytes.iter().map(|byte| format!("{byte:02x}")).collect()
        };
        let named = about(0, vec![LinkAttribute::IfName("eth7".to_owned())]);
        assert_eq!(
            hex(RouteNetlinkMessage::GetLink(named), 0),
            "2c00000012000100000000000000000000000000000000000000000000000000090003006574683700000000"
        );
        assert_eq!(
            hex(RouteNetlinkMessage::GetLink(about(7, Vec::new())), 0),
            "2000000012000100000000000000000000000000070000000000000000000000"
        );
        let new = |message| hex(RouteNetlinkMessage::NewLink(message), NLM_F_ACK);
        assert_eq!(
            new(updown(7, true)),
            "2000000010000500000000000000000000000000070000000100000001000000"
        );
        assert_eq!(
            new(updown(7, false)),
            "2000000010000500000000000000000000000000070000000000000001000000"
        );
        let set = |message| hex(RouteNetlinkMessage::SetLink(message), NLM_F_ACK);
        let address = vec![LinkAttribute::Address(vec![2, 0, 0, 0, 0, 7])];
        assert_eq!(
            set(about(7, address)),
            "2c000000130005000000000000000000000000000700000000000000000000000a0001000200000000070000"
        );
        // By hand, IFLA_XDP was marked as nested (0x802b). The kernel does not look at the mark (`do_setlink`).
        assert_eq!(
            set(xdp(7, XdpHook::Native, 9, None)),
            "340000001300050000000000000000000000000007000000000000000000000014002b0008000100090000000800030005000000"
        );
        assert_eq!(
            set(xdp(7, XdpHook::Generic, 9, Some(11))),
            "3c000000130005000000000000000000000000000700000000000000000000001c002b0008000100090000000800030012000000080008000b000000"
        );
        assert_eq!(
            set(xdp(7, XdpHook::Native, -1, Some(11))),
            "3c000000130005000000000000000000000000000700000000000000000000001c002b0008000100ffffffff0800030014000000080008000b000000"
        );
        assert_eq!(
            hex(RouteNetlinkMessage::GetNsId(netns(9)), 0),
            "1c0000005a0001000000000000000000000000000800030009000000"
        );
    }

    proptest! {
        #[test]
        fn no_answer_of_the_kernel_panics(bytes in proptest::collection::vec(any::<u8>(), 0..256)) {
            let _ = parse_link(&bytes);
        }
    }
}
