//! Queueing discipline clsact and its filters of kind bpf (`linux/pkt_sched.h`, `linux/pkt_cls.h`; tc-bpf(8)).

use super::{
    HEADER, Message, NLM_F_ACK, NLMSG_ERROR, Netlink, attributes, errno, half, text, word,
};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

const RTM_NEWQDISC: u16 = 36;
const RTM_DELQDISC: u16 = 37;
const RTM_GETQDISC: u16 = 38;
const RTM_NEWTFILTER: u16 = 44;
const RTM_DELTFILTER: u16 = 45;
const RTM_GETTFILTER: u16 = 46;
const NLMSG_DONE: u16 = 3;
const NLM_F_REPLACE: u16 = 0x100;
const NLM_F_DUMP: u16 = 0x300;
const NLM_F_EXCL: u16 = 0x200;
const NLM_F_CREATE: u16 = 0x400;
const TCMSG: usize = 20;

const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TCA_BPF_FD: u16 = 6;
const TCA_BPF_NAME: u16 = 7;
const TCA_BPF_FLAGS: u16 = 8;
/// What the program returns is what becomes of the packet.
const TCA_BPF_FLAG_ACT_DIRECT: u32 = 1;

/// Parent and handle of clsact (`TC_H_CLSACT`), and of the qdisc that has its place without an egress.
const CLSACT_PARENT: u32 = 0xffff_fff1;
const CLSACT_HANDLE: u32 = 0xffff_0000;
const CLSACT: &str = "clsact";
const BPF: &[u8] = b"bpf\0";
/// `ETH_P_ALL` in network order.
const ALL_PROTOCOLS: u32 = 3u16.to_be() as u32;

/// Which way packets go that a program at tc sees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// They come in by the interface.
    #[default]
    Ingress,
    /// They go out by it.
    Egress,
}

impl Side {
    /// The parent of filters (`TC_H_MIN_INGRESS`, `TC_H_MIN_EGRESS`).
    fn parent(self) -> u32 {
        match self {
            Side::Ingress => 0xffff_fff2,
            Side::Egress => 0xffff_fff3,
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
    /// Its own among those of one priority.
    pub handle: u32,
}

impl FilterPlace {
    fn message(&self, kind: u16, flags: u16) -> Message {
        let info = u32::from(self.priority) << 16 | ALL_PROTOCOLS;
        let message = about(
            kind,
            flags,
            self.index,
            self.handle,
            self.side.parent(),
            info,
        );
        message.attribute(TCA_KIND, BPF)
    }
}

/// A request with a `tcmsg`.
fn about(kind: u16, flags: u16, index: u32, handle: u32, parent: u32, info: u32) -> Message {
    let mut message = Message::new(kind, flags);
    message.0.extend(0u32.to_ne_bytes());
    for word in [index, handle, parent, info] {
        message.0.extend(word.to_ne_bytes());
    }
    message
}

impl Netlink {
    /// Sees to it that an interface has clsact. Returns whether it had none.
    ///
    /// # Errors
    /// When the kernel refuses, or another qdisc has its place.
    pub fn make_clsact(&self, index: u32) -> io::Result<bool> {
        let flags = NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL;
        let message = about(RTM_NEWQDISC, flags, index, CLSACT_HANDLE, CLSACT_PARENT, 0);
        match self.request(message.attribute(TCA_KIND, b"clsact\0")) {
            Ok(_) => return Ok(true),
            Err(error) if errno(&error) == Some(libc::EEXIST) => {}
            Err(error) => return Err(error),
        }
        let mut found = String::new();
        let all = about(RTM_GETQDISC, NLM_F_DUMP, index, 0, 0, 0);
        self.dump(all, |body| {
            if word(body, 4) == Some(index) && word(body, 12) == Some(CLSACT_PARENT) {
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
            let filters = about(RTM_GETTFILTER, NLM_F_DUMP, index, 0, side.parent(), 0);
            self.dump(filters, |_| any = true)?;
            if any {
                return Ok(());
            }
        }
        let message = about(
            RTM_DELQDISC,
            NLM_F_ACK,
            index,
            CLSACT_HANDLE,
            CLSACT_PARENT,
            0,
        );
        self.request(message).map(drop)
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
        let name = [name.as_bytes(), b"\0"].concat();
        let options = Message(Vec::new())
            .attribute(TCA_BPF_FD, &program.as_raw_fd().to_ne_bytes())
            .attribute(TCA_BPF_NAME, &name)
            .attribute(TCA_BPF_FLAGS, &TCA_BPF_FLAG_ACT_DIRECT.to_ne_bytes());
        let message = at.message(RTM_NEWTFILTER, flags | NLM_F_ACK);
        self.request(message.attribute(TCA_OPTIONS, &options.0))
            .map(drop)
    }

    /// The name of the filter's program that is there; `None`: there is no such filter.
    pub fn filter(&self, at: &FilterPlace) -> Option<String> {
        let body = self.request(at.message(RTM_GETTFILTER, 0)).ok()?;
        let options = attributes(body.get(TCMSG..)?).find(|(kind, _)| *kind == TCA_OPTIONS);
        let (_, options) = options?;
        let name = attributes(options).find(|(kind, _)| *kind == TCA_BPF_NAME);
        name.map(|(_, name)| text(name))
    }

    /// Removes a filter, and no other one.
    ///
    /// # Errors
    /// When there is none, or the kernel refuses.
    pub fn remove_filter(&self, at: &FilterPlace) -> io::Result<()> {
        self.request(at.message(RTM_DELTFILTER, NLM_F_ACK))
            .map(drop)
    }

    /// Asks for a list; `take` gets the body of each entry.
    fn dump(&self, message: Message, mut take: impl FnMut(&[u8])) -> io::Result<()> {
        send(&self.0, &message.finish(), SendFlags::empty())?;
        let mut reply = vec![0u8; super::REPLY_BYTES];
        loop {
            let (len, _) = recv(&self.0, &mut reply[..], RecvFlags::empty())?;
            let mut rest = &reply[..len];
            while let (Some(end), Some(kind)) = (word(rest, 0), half(rest, 4)) {
                let end = end as usize;
                let short = || io::Error::other("the kernel's list is cut short");
                let body = rest.get(HEADER..end).ok_or_else(short)?;
                match kind {
                    NLMSG_DONE => return Ok(()),
                    NLMSG_ERROR => {
                        let error = word(body, 0).unwrap_or(0) as i32;
                        return Err(io::Error::from_raw_os_error(-error));
                    }
                    _ => take(body),
                }
                rest = rest.get(end.next_multiple_of(4)..).unwrap_or(&[]);
            }
        }
    }
}

/// The kind of qdisc that an entry is of.
fn kind_of(body: &[u8]) -> String {
    let mut all = attributes(body.get(TCMSG..).unwrap_or(&[]));
    let kind = all.find(|(kind, _)| *kind == TCA_KIND);
    kind.map_or_else(String::new, |(_, kind)| text(kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_asked_for_by_its_own_place() {
        let at = FilterPlace {
            index: 5,
            side: Side::Egress,
            priority: 50_000,
            handle: 7,
        };
        let bytes = at.message(RTM_GETTFILTER, 0).finish();
        let body = &bytes[HEADER..];
        assert_eq!(word(body, 4), Some(5));
        assert_eq!(word(body, 8), Some(7));
        assert_eq!(word(body, 12), Some(0xffff_fff3));
        assert_eq!(word(body, 16), Some(50_000 << 16 | ALL_PROTOCOLS));
        assert_eq!(kind_of(body), "bpf");
        assert_eq!(kind_of(&[]), "");
    }
}
