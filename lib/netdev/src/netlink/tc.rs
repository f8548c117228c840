//! Queueing discipline clsact and its filters of kind bpf (`linux/pkt_sched.h`, `linux/pkt_cls.h`; tc-bpf(8)).

use super::{Netlink, errno};
use netlink_packet_core::{
    Emitable, NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, NlasIterator,
    ParseableParametrized,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{
    TcAttribute, TcBpfFlags, TcFilterBpf, TcFilterBpfOption, TcHandle, TcHeader, TcMessage,
    TcOption,
};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

/// clsact has the place of the qdisc ingress, which has no egress.
const CLSACT: &str = "clsact";
const CLSACT_HANDLE: TcHandle = TcHandle {
    major: u16::MAX,
    minor: 0,
};
/// `ETH_P_ALL` in network order.
const ALL_PROTOCOLS: u32 = (libc::ETH_P_ALL as u16).to_be() as u32;

/// Which way packets go that a program at tc sees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// Frames that come in by the interface.
    #[default]
    Ingress,
    /// Frames that go out by the interface.
    Egress,
}

impl Side {
    /// The parent of filters.
    fn parent(self) -> TcHandle {
        TcHandle {
            major: u16::MAX,
            minor: match self {
                Side::Ingress => TcHandle::MIN_INGRESS,
                Side::Egress => TcHandle::MIN_EGRESS,
            },
        }
    }
}

/// Which filter: its interface, and its place there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilterPlace {
    /// Number of the interface.
    pub index: u32,
    /// Which way.
    pub side: Side,
    /// The lowest number comes first.
    pub priority: u16,
    /// The filter's own number among the filters of one priority.
    pub handle: u32,
}

impl FilterPlace {
    fn message(&self) -> TcMessage {
        let mut message = about(self.index, TcHandle::from(self.handle), self.side.parent());
        message.header.info = u32::from(self.priority) << 16 | ALL_PROTOCOLS;
        let kind = TcAttribute::Kind(TcFilterBpf::KIND.to_owned());
        message.attributes.push(kind);
        message
    }

    /// Returns the message that makes the filter call a program, whose verdict on a packet is final.
    fn calling(&self, program: RawFd, name: &str) -> TcMessage {
        let options = [
            TcFilterBpfOption::ProgFd(program as u32),
            TcFilterBpfOption::ProgName(name.to_owned()),
            TcFilterBpfOption::Flags(TcBpfFlags::DirectAction),
        ];
        let options = options.into_iter().map(TcOption::Bpf).collect();
        let mut message = self.message();
        message.attributes.push(TcAttribute::Options(options));
        message
    }
}

fn about(index: u32, handle: TcHandle, parent: TcHandle) -> TcMessage {
    let mut message = TcMessage::with_index(index.cast_signed());
    message.header.handle = handle;
    message.header.parent = parent;
    message
}

fn clsact(index: u32) -> TcMessage {
    about(index, CLSACT_HANDLE, TcHandle::CLSACT)
}

/// A message that makes clsact.
fn new_clsact(index: u32) -> TcMessage {
    let mut message = clsact(index);
    let kind = TcAttribute::Kind(CLSACT.to_owned());
    message.attributes.push(kind);
    message
}

/// The attributes of an answer about a qdisc or filter of a kind; those that the library does not take are left out.
fn attributes<'a>(body: &'a [u8], kind: &'a str) -> impl Iterator<Item = TcAttribute> + 'a {
    let header = TcHeader::default().buffer_len();
    NlasIterator::new(body.get(header..).unwrap_or(&[]))
        .map_while(Result::ok)
        .filter_map(move |attribute| TcAttribute::parse_with_param(&attribute, kind).ok())
}

impl Netlink {
    /// Sees to it that an interface has clsact. Returns whether it had none.
    ///
    /// # Errors
    /// When the kernel refuses, or another qdisc has its place.
    pub fn make_clsact(&self, index: u32) -> io::Result<bool> {
        let message = RouteNetlinkMessage::NewQueueDiscipline(new_clsact(index));
        match self.request(message, NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL) {
            Ok(_) => return Ok(true),
            Err(error) if errno(&error) == Some(libc::EEXIST) => {}
            Err(error) => return Err(error),
        }
        let mut found = String::new();
        let all = about(index, TcHandle::UNSPEC, TcHandle::UNSPEC);
        self.dump(RouteNetlinkMessage::GetQueueDiscipline(all), |body| {
            let is_there = TcHeader::parse(body).is_ok_and(|header| {
                header.index == index.cast_signed() && header.parent == TcHandle::CLSACT
            });
            if is_there {
                found = kind_of(body);
            }
        })?;
        if found == CLSACT {
            return Ok(false);
        }
        Err(io::Error::other(format!(
            "the interface has the qdisc '{found}' in the place of clsact; remove it ('tc qdisc del dev NAME ingress') with its filters"
        )))
    }

    /// Removes clsact, if no filter is there.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn remove_empty_clsact(&self, index: u32) -> io::Result<()> {
        for side in [Side::Ingress, Side::Egress] {
            let mut any = false;
            let filters = about(index, TcHandle::UNSPEC, side.parent());
            self.dump(RouteNetlinkMessage::GetTrafficFilter(filters), |_| {
                any = true;
            })?;
            if any {
                return Ok(());
            }
        }
        let message = RouteNetlinkMessage::DelQueueDiscipline(clsact(index));
        self.request(message, NLM_F_ACK).map(drop)
    }

    /// Makes a filter that calls a program.
    ///
    /// # Errors
    /// `EEXIST`: one is in its place; else the kernel's own words.
    pub fn add_filter(
        &self,
        at: &FilterPlace,
        program: BorrowedFd<'_>,
        name: &str,
    ) -> io::Result<()> {
        self.set_filter(at, NLM_F_CREATE | NLM_F_EXCL, program, name)
    }

    /// Has a filter call another program, between two packets.
    ///
    /// # Errors
    /// `ENOENT`: there is no such filter; else the kernel's own words.
    pub fn change_filter(
        &self,
        at: &FilterPlace,
        program: BorrowedFd<'_>,
        name: &str,
    ) -> io::Result<()> {
        self.set_filter(at, NLM_F_REPLACE, program, name)
    }

    fn set_filter(
        &self,
        at: &FilterPlace,
        flags: u16,
        program: BorrowedFd<'_>,
        name: &str,
    ) -> io::Result<()> {
        let message = at.calling(program.as_raw_fd(), name);
        self.request(
            RouteNetlinkMessage::NewTrafficFilter(message),
            flags | NLM_F_ACK,
        )
        .map(drop)
    }

    /// The name of the filter's program that is there; `None`: there is no such filter.
    pub fn filter(&self, at: &FilterPlace) -> Option<String> {
        let body = self
            .request(RouteNetlinkMessage::GetTrafficFilter(at.message()), 0)
            .ok()?;
        let options =
            attributes(&body, TcFilterBpf::KIND).find_map(|attribute| match attribute {
                TcAttribute::Options(options) => Some(options),
                _ => None,
            })?;
        options.into_iter().find_map(|option| match option {
            TcOption::Bpf(TcFilterBpfOption::ProgName(name)) => Some(name),
            _ => None,
        })
    }

    /// Removes a filter, and no other one.
    ///
    /// # Errors
    /// When there is none, or the kernel refuses.
    pub fn remove_filter(&self, at: &FilterPlace) -> io::Result<()> {
        let message = RouteNetlinkMessage::DelTrafficFilter(at.message());
        self.request(message, NLM_F_ACK).map(drop)
    }
}

/// The kind of qdisc that an entry is of.
fn kind_of(body: &[u8]) -> String {
    let kind = attributes(body, CLSACT).find_map(|attribute| match attribute {
        TcAttribute::Kind(kind) => Some(kind),
        _ => None,
    });
    kind.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::encode;
    use netlink_packet_core::NLM_F_DUMP;

    // promise: 15.64
    #[test]
    fn a_filter_is_asked_for_by_its_own_place() {
        let at = FilterPlace {
            index: 5,
            side: Side::Egress,
            priority: 50_000,
            handle: 7,
        };
        let message = at.message();
        let mut body = vec![0; message.buffer_len()];
        message.emit(&mut body);
        let word = |at: usize| u32::from_ne_bytes(body[at..at + 4].try_into().expect("a word"));
        assert_eq!([word(4), word(8), word(12)], [5, 7, 0xffff_fff3]);
        assert_eq!(word(16), 50_000 << 16 | ALL_PROTOCOLS);
        assert_eq!(kind_of(&body), "bpf");
        assert_eq!(kind_of(&[]), "");
    }

    /// Bytes of requests that were written by hand, from headers of the kernel, before the library was used.
    #[test]
    #[cfg(target_endian = "little")]
    fn requests_are_the_kernels_structures() {
        let hex = |message, flags| -> String {
            let bytes = encode(message, flags);
            bytes.iter().map(|byte| format!("{byte:02x}")).collect()
        };
        let create = NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL;
        assert_eq!(
            hex(
                RouteNetlinkMessage::NewQueueDiscipline(new_clsact(7)),
                create
            ),
            "3000000024000506000000000000000000000000070000000000fffff1ffffff000000000b000100636c736163740000"
        );
        let all = about(7, TcHandle::UNSPEC, TcHandle::UNSPEC);
        assert_eq!(
            hex(RouteNetlinkMessage::GetQueueDiscipline(all), NLM_F_DUMP),
            "240000002600010300000000000000000000000007000000000000000000000000000000"
        );
        let egress = about(7, TcHandle::UNSPEC, Side::Egress.parent());
        assert_eq!(
            hex(RouteNetlinkMessage::GetTrafficFilter(egress), NLM_F_DUMP),
            "240000002e0001030000000000000000000000000700000000000000f3ffffff00000000"
        );
        assert_eq!(
            hex(
                RouteNetlinkMessage::DelQueueDiscipline(clsact(7)),
                NLM_F_ACK
            ),
            "2400000025000500000000000000000000000000070000000000fffff1ffffff00000000"
        );
        let at = FilterPlace {
            index: 7,
            side: Side::Ingress,
            priority: 50_000,
            handle: 0x6e66,
        };
        let new = |flags| {
            hex(
                RouteNetlinkMessage::NewTrafficFilter(at.calling(9, "nfluid")),
                flags,
            )
        };
        assert_eq!(
            new(create),
            "4c0000002c00050600000000000000000000000007000000666e0000f2ffffff000350c308000100627066002000020008000600090000000b0007006e666c75696400000800080001000000"
        );
        assert_eq!(
            new(NLM_F_REPLACE | NLM_F_ACK),
            "4c0000002c00050100000000000000000000000007000000666e0000f2ffffff000350c308000100627066002000020008000600090000000b0007006e666c75696400000800080001000000"
        );
        assert_eq!(
            hex(RouteNetlinkMessage::GetTrafficFilter(at.message()), 0),
            "2c0000002e00010000000000000000000000000007000000666e0000f2ffffff000350c30800010062706600"
        );
        assert_eq!(
            hex(
                RouteNetlinkMessage::DelTrafficFilter(at.message()),
                NLM_F_ACK
            ),
            "2c0000002d00050000000000000000000000000007000000666e0000f2ffffff000350c30800010062706600"
        );
    }
}
