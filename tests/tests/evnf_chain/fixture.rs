//! Where a kernel forwards between clients at `n0` and a server at `n1`, and a balancer for that server.

use nfluid_evnf::balancer::{Balancer, Exit, Mode, Server, Service, State, Transport};
use nfluid_evnf::chain::{Chain, Member};
use nfluid_evnf::firewall::{
    self, Family, Firewall, Pattern, Prefix, Rule, Stage, Traffic, Verdict,
};
use nfluid_evnf::hook::Hook;
use nfluid_tests::harness::oracle::Namespaces;
use nfluid_wire::MacAddr;
use nfluid_wire::build::Frame;
use rustix::net::netdevice::name_to_index;
use rustix::net::{AddressFamily, SocketType, socket};
use std::net::IpAddr;

/// The service has its only server's own address: by whichever path a packet comes, it comes there.
pub const SERVICE: &str = "192.0.2.2:80";
pub const SERVER: u32 = 0;
pub const OWN: [MacAddr; 2] = [MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2])];
pub const HOSTS: [MacAddr; 2] = [MacAddr([2, 0, 0, 0, 1, 1]), MacAddr([2, 0, 0, 0, 1, 2])];

pub struct Fixture {
    pub namespaces: Namespaces,
    balancer: Balancer,
}

impl Fixture {
    /// Moves the calling thread to where the kernel forwards.
    pub fn new(name: &str) -> Self {
        let namespaces = Namespaces::new(name);
        namespaces.set("net.ipv4.ip_forward=1");
        for (port, own) in OWN.into_iter().enumerate() {
            namespaces.join(port, own);
        }
        let mut batch = String::from("addr add 10.0.0.1/24 dev n0\naddr add 192.0.2.1/24 dev n1\n");
        for (host, port) in [("10.0.0.2", 0), ("192.0.2.2", 1)] {
            let at = HOSTS[port];
            batch += &format!("neigh add {host} lladdr {at} dev n{port} nud permanent\n");
        }
        namespaces.kernel.ip_batch(&batch).expect("addresses");
        namespaces.kernel.enter().expect("root may");
        let mut balancer = Balancer::load(1000).unwrap();
        let at = SERVICE.parse().unwrap();
        let state = State::Up;
        balancer.set_server(SERVER, Server { at, state }).unwrap();
        let service = Service {
            at,
            transport: Transport::Udp,
            mode: Mode::Direct,
            servers: vec![(SERVER, 1)],
        };
        balancer.set_service(0, &service).unwrap();
        Fixture {
            namespaces,
            balancer,
        }
    }

    pub fn member(&self) -> Member {
        self.member_at(Hook::Xdp)
    }

    pub fn member_at(&self, hook: Hook) -> Member {
        self.balancer.member_at(hook).unwrap()
    }

    /// The firewall, then the balancer.
    pub fn chain(&self, firewall: &Firewall) -> Chain {
        self.chain_at(Hook::Xdp, firewall)
    }

    /// The same at a hook.
    pub fn chain_at(&self, hook: Hook, firewall: &Firewall) -> Chain {
        let members = vec![firewall.member_at(hook).unwrap(), self.member_at(hook)];
        Chain::new(members).unwrap()
    }

    /// The number of an interface where the kernel forwards.
    pub fn number(&self, interface: &str) -> u32 {
        self.within(|| {
            let kind = (AddressFamily::UNIX, SocketType::DGRAM);
            let socket = socket(kind.0, kind.1, None).unwrap();
            name_to_index(socket, interface).expect("it is there")
        })
    }

    /// How packets have left the balancer.
    pub fn came(&self) -> Vec<(Exit, u64)> {
        let exits = self.balancer.exits().unwrap().into_iter();
        exits.map(|(exit, counts)| (exit, counts.packets)).collect()
    }

    pub fn sent_to(&self, server: u32) -> u64 {
        self.balancer.sent_to(server).unwrap().packets
    }

    /// Does something where the kernel forwards, wherever the calling thread is.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let done = scope.spawn(|| {
                self.namespaces.kernel.enter().expect("root may");
                work()
            });
            done.join().expect("it does not panic")
        })
    }
}

/// Moves the calling thread into a namespace.
/// How many packets have left a firewall so.
pub fn left(firewall: &Firewall, exit: firewall::Exit) -> u64 {
    let exits = firewall.exits().unwrap();
    exits
        .iter()
        .find(|(own, _)| *own == exit)
        .unwrap()
        .1
        .packets
}

/// Leaves what some hosts send to the kernel, drops what others send, and accepts the rest.
pub fn firewall(asked: &[&str], refused: &[&str]) -> Firewall {
    let stage = from_hosts(&[(asked, Verdict::Ask), (refused, Verdict::Drop)]);
    Firewall::load(&[stage], &[]).unwrap()
}

/// Returns a stage with verdicts on packets from some hosts; packets from other hosts are accepted.
pub fn from_hosts(rules: &[(&[&str], Verdict)]) -> Stage {
    let from = |hosts: &[&str], verdict| {
        let pattern = |host: &&str| {
            let address: IpAddr = host.parse().unwrap();
            Pattern {
                src: Prefix::of_address(address, 32),
                ..Pattern::any(Family::V4)
            }
        };
        Rule {
            patterns: hosts.iter().map(pattern).collect(),
            verdict,
        }
    };
    let rules = rules.iter().map(|(hosts, verdict)| from(hosts, *verdict));
    Stage {
        traffic: Traffic::All,
        rules: rules.collect(),
    }
}

pub fn asks_about(hosts: &[&str]) -> Firewall {
    firewall(hosts, &[])
}

/// A datagram from a client, as it comes in.
pub fn datagram(from: &str, to: &str, number: u32) -> Vec<u8> {
    let frame = Frame::udp(from.parse().unwrap(), to.parse().unwrap()).macs(HOSTS[0], OWN[0]);
    let mut buffer = [0; 128];
    let len = frame.write(&mut buffer, &number.to_be_bytes()).unwrap();
    buffer[..len].to_vec()
}
