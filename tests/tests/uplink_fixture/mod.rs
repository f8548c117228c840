//! Fixture of the uplinks' tests: namespaces joined by veth pairs, raw sockets, a platform.
#![allow(
    dead_code,
    unused_imports,
    reason = "each test program uses its own part"
)]

use nfluid_testbed::namespace::{Namespace, path_of, probe_veth};
use nfluid_testbed::scratch::Scratch;
use nfluid_tests::harness::command::must;
use nfluid_tests::harness::patience::{PATIENCE, eventually};
use nfluid_tests::harness::platform::Platform;
use nfluid_tests::harness::skip::{is_root, skip};
use nfluid_tests::harness::within;
use nfluid_uplink::{Uplink, UplinkError, UplinkSpec};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The tests of a program share its cgroup: one platform at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// A platform and namespaces of one test; removed when dropped.
pub struct Fixture {
    pub scratch: Scratch,
    pub label: String,
    namespaces: Vec<Namespace>,
    _turn: MutexGuard<'static, ()>,
}

impl Fixture {
    /// Makes the namespaces LABEL-NAME; reports the reason and returns `None` where the test cannot run.
    pub fn new(test: &str, names: &[&str]) -> Option<Self> {
        if !is_root(test) {
            return None;
        }
        let turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let label = format!("nfl-{}-{test}", std::process::id());
        let scratch = Scratch::new(test).expect("a platform");
        let mut fixture = Fixture {
            scratch,
            label,
            namespaces: Vec::new(),
            _turn: turn,
        };
        for name in names {
            match Namespace::named(fixture.netns(name)) {
                Ok(namespace) => {
                    namespace.disable_ipv6();
                    fixture.namespaces.push(namespace);
                }
                Err(why) => {
                    skip(test, &format!("no network namespaces here: {why:#}"));
                    return None;
                }
            }
        }
        if let Err(why) = probe_veth(&fixture.netns(names[0])) {
            skip(test, &format!("no veth here: {why:#}"));
            return None;
        }
        Some(fixture)
    }

    /// Name of a namespace.
    pub fn netns(&self, name: &str) -> String {
        format!("{}-{name}", self.label)
    }

    /// Its path.
    pub fn path(&self, name: &str) -> PathBuf {
        path_of(&self.netns(name))
    }

    /// Joins two namespaces by a veth pair, both ends up.
    pub fn join(&self, (left, a): (&str, &str), (right, b): (&str, &str)) {
        let (left, right) = (self.netns(left), self.netns(right));
        must(&format!(
            "ip -n {left} link add {a} type veth peer name {b} netns {right}"
        ));
        must(&format!("ip -n {left} link set {a} up"));
        must(&format!("ip -n {right} link set {b} up"));
    }

    /// An uplink to be on `interface` in the namespace `name`, with the next free port.
    pub fn spec(&mut self, name: &str, interface: &str) -> UplinkSpec {
        let port = self.scratch.port_ids(1);
        UplinkSpec {
            netns: Some(self.path(name)),
            ..UplinkSpec::new(
                &format!("{}-{interface}", self.label),
                interface,
                port,
                8000 + port,
            )
        }
    }

    pub fn open(&self, spec: &UplinkSpec) -> Result<Uplink, UplinkError> {
        Uplink::open(&self.scratch.switch, spec.clone())
    }

    /// A raw socket on an interface.
    pub fn raw(&self, name: &str, interface: &str) -> Raw {
        within(&self.path(name), || Raw::open(interface)).expect("a raw socket")
    }
}

/// A packet socket that sends and receives whole frames on one interface.
pub struct Raw {
    socket: OwnedFd,
    /// Bytes of the header before each frame.
    header: usize,
}

impl Raw {
    /// Opens one in the present namespace.
    pub fn open(interface: &str) -> io::Result<Self> {
        let name = CString::new(interface).expect("no NUL");
        let all = (libc::ETH_P_ALL as u16).to_be();
        // SAFETY: plain calls on numbers and live values of the lengths that are passed.
        unsafe {
            let fd = libc::socket(
                libc::AF_PACKET,
                libc::SOCK_RAW | libc::SOCK_CLOEXEC,
                i32::from(all),
            );
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            let socket = OwnedFd::from_raw_fd(fd);
            let mut address: libc::sockaddr_ll = std::mem::zeroed();
            address.sll_family = libc::AF_PACKET as u16;
            address.sll_protocol = all;
            address.sll_ifindex = libc::if_nametoindex(name.as_ptr()) as i32;
            let len = size_of::<libc::sockaddr_ll>() as u32;
            if libc::bind(fd, (&raw const address).cast(), len) != 0 {
                return Err(io::Error::last_os_error());
            }
            let (on, bytes) = (1i32, 8 << 20);
            for (level, option, value) in [
                (libc::SOL_PACKET, libc::PACKET_AUXDATA, on),
                (libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, bytes),
                (libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, on),
            ] {
                libc::setsockopt(fd, level, option, (&raw const value).cast(), 4);
            }
            Ok(Raw { socket, header: 0 })
        }
    }

    /// From now on each frame that is sent or received has a `struct virtio_net_hdr` before it.
    pub fn takes_headers(&mut self) {
        const PACKET_VNET_HDR: i32 = 15;
        let on = 1i32;
        // SAFETY: the option value is live and of the length that is passed.
        let set = unsafe {
            let value = (&raw const on).cast();
            libc::setsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_PACKET,
                PACKET_VNET_HDR,
                value,
                4,
            )
        };
        assert_eq!(set, 0, "PACKET_VNET_HDR");
        self.header = nfluid_ring::offload::VNET_BYTES;
    }

    /// Sends a frame. Waits while the other end of the veth has no room for it, as where its processor is busy.
    pub fn send(&self, frame: &[u8]) {
        let start = Instant::now();
        loop {
            let (socket, bytes) = (self.socket.as_raw_fd(), frame.as_ptr());
            // SAFETY: the buffer is live and of the length that is passed.
            let sent = unsafe { libc::send(socket, bytes.cast(), frame.len(), 0) };
            if sent == frame.len() as isize {
                return;
            }
            let error = io::Error::last_os_error();
            let has_no_room = error.raw_os_error() == Some(libc::ENOBUFS);
            assert!(has_no_room && start.elapsed() < PATIENCE, "{error}");
            thread::yield_now();
        }
    }

    /// The next frame, VLAN tag put back where the kernel keeps it beside; `None` after the time.
    pub fn receive(&self, patience: Duration) -> Option<Vec<u8>> {
        let mut bytes = vec![0u8; 1 << 17];
        let mut control = [0u64; 16];
        let mut poll = libc::pollfd {
            fd: self.socket.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: all structures and buffers are live and of the lengths that are passed; control
        // messages are walked by the macros made for that.
        unsafe {
            if libc::poll(&raw mut poll, 1, patience.as_millis() as i32) != 1 {
                return None;
            }
            let mut part = libc::iovec {
                iov_base: bytes.as_mut_ptr().cast(),
                iov_len: bytes.len(),
            };
            let mut message: libc::msghdr = std::mem::zeroed();
            message.msg_iov = &raw mut part;
            message.msg_iovlen = 1;
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = size_of_val(&control);
            let len = libc::recvmsg(self.socket.as_raw_fd(), &raw mut message, 0);
            bytes.truncate(usize::try_from(len).expect("a frame"));
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            if !header.is_null() && (*header).cmsg_type == libc::PACKET_AUXDATA {
                let aux: libc::tpacket_auxdata = libc::CMSG_DATA(header)
                    .cast::<libc::tpacket_auxdata>()
                    .read_unaligned();
                if aux.tp_status & libc::TP_STATUS_VLAN_VALID != 0 {
                    let mut tag = aux.tp_vlan_tpid.to_be_bytes().to_vec();
                    tag.extend(aux.tp_vlan_tci.to_be_bytes());
                    let at = self.header + 12;
                    bytes.splice(at..at, tag);
                }
            }
        }
        Some(bytes)
    }

    /// The next frame that `wanted` wants; others (the kernel's own) are skipped. Without one `None`, after all
    /// patience.
    pub fn receive_wanted(&self, wanted: impl Fn(&[u8]) -> bool) -> Option<Vec<u8>> {
        let start = Instant::now();
        loop {
            let left = PATIENCE.saturating_sub(start.elapsed());
            let frame = self.receive(left)?;
            if wanted(&frame) {
                return Some(frame);
            }
        }
    }
}

/// The EtherType of the tests' own frames (IEEE Std 802, local experimental).
pub const EXPERIMENTAL: [u8; 2] = [0x88, 0xb5];

/// A frame of `len` bytes with a number and a pattern in it, as far as they fit.
pub fn frame(dst: [u8; 6], src: [u8; 6], tag: &[u8], len: usize, number: u32) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len);
    bytes.extend(dst);
    bytes.extend(src);
    bytes.extend(tag);
    bytes.extend(EXPERIMENTAL);
    bytes.extend(number.to_be_bytes());
    let mut next = number as u8;
    while bytes.len() < len {
        bytes.push(next);
        next = next.wrapping_mul(31).wrapping_add(7);
    }
    bytes.truncate(len);
    bytes
}

/// The two hosts at the ends of a platform, without a network stack in between.
pub struct Ends {
    pub client: Raw,
    pub server: Raw,
}

impl Ends {
    pub fn of(platform: &Platform) -> Self {
        let raw = |host: &str| within(&platform.host_netns(host), || Raw::open("eth0"));
        let [client, server] = ["client", "server"].map(|host| raw(host).expect("a raw socket"));
        Self { client, server }
    }

    /// The next test frame that comes to the server.
    pub fn arrived(&self, patience: Duration) -> Option<Vec<u8>> {
        let start = Instant::now();
        loop {
            let left = patience.saturating_sub(start.elapsed());
            let frame = self.server.receive(left)?;
            if frame[12..14] == EXPERIMENTAL {
                return Some(frame);
            }
        }
    }
}
