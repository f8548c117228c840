//! A server, a client's TCP stack, and the wire between them.

use crate::server::Surroundings;
use crate::service::UnixTime;
use core::net::IpAddr;
use nfluid_nf::testing::{self, Collected, ports};
use nfluid_nf::{ConfigError, Nanos, NetworkFunction, PortInfo};
use serde_json::{Value, json};
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp::{Socket, SocketBuffer, State};
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, HardwareAddress, IpCidr};
use std::collections::VecDeque;

pub type Build =
    fn(&Value, &[PortInfo], Surroundings) -> Result<Box<dyn NetworkFunction>, ConfigError>;

pub const SERVER: &str = "10.9.0.1";
pub const SERVER_V6: &str = "fd09::1";

/// A time of day that tells tests when it was: the monotonic clock's seconds behind this one.
pub const EPOCH: u64 = 1_000_000_000;

pub fn surroundings() -> Surroundings {
    Surroundings {
        seed: 7,
        time_of_day: |now| UnixTime(EPOCH + now.0 / 1_000_000_000),
    }
}

/// A configuration with addresses of both versions, and `more` keys.
pub fn config(more: Value) -> Value {
    let mut config = json!({ "addresses": [format!("{SERVER}/24"), format!("{SERVER_V6}/64")] });
    for (key, value) in more.as_object().expect("a map") {
        config[key] = value.clone();
    }
    config
}

/// One end of the wire.
#[derive(Default)]
struct End {
    arrived: VecDeque<Vec<u8>>,
    left: Vec<Vec<u8>>,
}

struct Got(Vec<u8>);

impl RxToken for Got {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, look: F) -> R {
        look(&self.0)
    }
}

struct Put<'a>(&'a mut Vec<Vec<u8>>);

impl TxToken for Put<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, write: F) -> R {
        let mut frame = vec![0; length];
        let result = write(&mut frame);
        self.0.push(frame);
        result
    }
}

impl Device for End {
    type RxToken<'a> = Got;
    type TxToken<'a> = Put<'a>;

    fn receive(&mut self, _now: Instant) -> Option<(Got, Put<'_>)> {
        let frame = self.arrived.pop_front()?;
        Some((Got(frame), Put(&mut self.left)))
    }

    fn transmit(&mut self, _now: Instant) -> Option<Put<'_>> {
        Some(Put(&mut self.left))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = 1514;
        capabilities
    }
}

/// The server and a client's host.
pub struct Bed {
    pub server: Box<dyn NetworkFunction>,
    interface: Interface,
    sockets: SocketSet<'static>,
    end: End,
    now: Nanos,
    next_port: u16,
    /// Servers whose MAC addresses the client knows.
    known: Vec<IpAddr>,
    port: u16,
    /// Of so many frames each way the last one is lost.
    pub loses: Option<u32>,
    frames: u32,
    /// The longest frame of the server.
    pub longest: usize,
    /// The client's frames, if they are kept.
    pub records: Option<Vec<Vec<u8>>>,
}

/// A connection of the client.
pub type Client = SocketHandle;

impl Bed {
    pub fn new(build: Build, config: &Value, port: u16) -> Self {
        Self::with_mtu(build, config, port, 1500)
    }

    /// A server on a link of this MTU.
    pub fn with_mtu(build: Build, config: &Value, port: u16, mtu: u16) -> Self {
        let mut links = ports(1);
        links[0].mtu = mtu;
        let server = build(config, &links, surroundings()).expect("a server");
        let address = HardwareAddress::Ethernet(EthernetAddress([2, 0, 0, 0, 1, 1]));
        let mut end = End::default();
        let mut interface = Interface::new(Config::new(address), &mut end, Instant::ZERO);
        interface.update_ip_addrs(|addresses| {
            for (address, length) in [("10.9.0.2", 24), ("fd09::2", 64)] {
                let address: IpAddr = address.parse().expect("an address");
                addresses
                    .push(IpCidr::new(address.into(), length))
                    .expect("room");
            }
        });
        Bed {
            server,
            interface,
            sockets: SocketSet::new(Vec::new()),
            end,
            now: Nanos(1_000_000_000),
            next_port: 40_000,
            known: Vec::new(),
            port,
            loses: None,
            frames: 0,
            records: None,
            longest: 0,
        }
    }

    pub fn now(&self) -> Nanos {
        self.now
    }

    /// Begins to connect. The first time, a neighbour is asked for: one in a second.
    pub fn connect(&mut self, to: &str) -> Client {
        let buffer = |bytes| SocketBuffer::new(vec![0; bytes]);
        let handle = self
            .sockets
            .add(Socket::new(buffer(4096), buffer(16 << 10)));
        let socket = self.sockets.get_mut::<Socket<'_>>(handle);
        let address: IpAddr = to.parse().expect("an address");
        self.next_port += 1;
        socket
            .connect(
                self.interface.context(),
                (address, self.port),
                self.next_port,
            )
            .expect("it connects");
        if !self.known.contains(&address) {
            self.known.push(address);
            self.wait(1);
        }
        handle
    }

    /// Connects and says something.
    pub fn client(&mut self, to: &str, says: &[u8]) -> Client {
        let client = self.connect(to);
        self.run();
        self.say(client, says);
        client
    }

    pub fn socket(&mut self, client: Client) -> &mut Socket<'static> {
        self.sockets.get_mut(client)
    }

    pub fn state(&mut self, client: Client) -> State {
        self.socket(client).state()
    }

    /// Has a client say something, and both ends do what follows.
    pub fn say(&mut self, client: Client, says: &[u8]) {
        let sent = self.socket(client).send_slice(says).expect("it can send");
        assert_eq!(sent, says.len(), "the client's buffer is too small");
        self.run();
    }

    /// Returns what a client has been told since.
    pub fn told(&mut self, client: Client) -> String {
        let mut all = Vec::new();
        loop {
            self.run();
            let socket = self.socket(client);
            if !socket.can_recv() {
                return String::from_utf8(all).expect("text");
            }
            let take = |bytes: &mut [u8]| (bytes.len(), bytes.to_vec());
            all.extend(socket.recv(take).expect("bytes"));
        }
    }

    /// Lets frames pass until neither end has more to say at this time.
    pub fn run(&mut self) {
        loop {
            let at = Instant::from_micros((self.now.0 / 1000) as i64);
            self.interface.poll(at, &mut self.end, &mut self.sockets);
            let frames: Vec<_> = std::mem::take(&mut self.end.left)
                .into_iter()
                .filter(|_| !is_lost(&mut self.frames, self.loses))
                .map(|frame| (0, frame))
                .collect();
            if let Some(records) = &mut self.records {
                records.extend(frames.iter().map(|(_, frame)| frame.clone()));
            }
            let mut sent = testing::run(self.server.as_mut(), self.now, &frames);
            let mut outbox = Collected::default();
            self.server.tick(self.now, &mut outbox);
            sent.extend(outbox.plain());
            if frames.is_empty() && sent.is_empty() {
                return;
            }
            for (port, frame) in sent {
                assert_eq!(port, 0);
                self.longest = self.longest.max(frame.len());
                if !is_lost(&mut self.frames, self.loses) {
                    self.end.arrived.push_back(frame);
                }
            }
        }
    }

    /// Lets time pass, with everything that happens meanwhile.
    pub fn wait(&mut self, seconds: u64) {
        for _ in 0..seconds * 20 {
            self.pass();
        }
    }

    /// Lets 50 ms pass.
    pub fn pass(&mut self) {
        self.now = Nanos(self.now.0 + 50_000_000);
        self.run();
    }

    pub fn metric(&self, name: &str) -> f64 {
        let mut found = None;
        self.server.metrics(&mut |metric| {
            if metric.name == name {
                found = Some(metric.value);
            }
        });
        found.expect("the metric")
    }
}

fn is_lost(frames: &mut u32, loses: Option<u32>) -> bool {
    *frames += 1;
    loses.is_some_and(|each| frames.is_multiple_of(each))
}
