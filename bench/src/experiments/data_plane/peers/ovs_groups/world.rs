//! Two instances on a bridge of Open vSwitch, with the same security group in different places, or in none.

use super::super::resources::Resources;
use super::super::veth::{self, Ends, GENERATOR_CORE, SINK, SOURCE};
use crate::host::forwards::Forwards;
use crate::ovs::{BRIDGE, Ovs, Ports};
use crate::peer::Peer;
use crate::roles::work::FLOW;
use crate::traffic::{Flow, Headers, VARYING, numbered};
use anyhow::{Context, anyhow, ensure};
use nfluid_gen::interface::{InterfaceReceiver, InterfaceSender};
use nfluid_gen::io::{Receiver, Sender};
use nfluid_testbed::directory::ScratchDirectory;
use nfluid_testbed::namespace::Namespace;
use nfluid_testbed::ovs::{AROUND, Firewall};
use nfluid_testbed::program::need;
use nfluid_wire::MacAddr;
use nfluid_wire::build::Frame;
use rustix::thread::{CpuSet, sched_setaffinity};
use serde_json::{Map, Value, json};
use std::fmt::Write as _;
use std::thread;
use std::time::{Duration, Instant};

/// Open vSwitch's core. The traffic has the other one.
pub const SWITCH_CORE: usize = 0;
const SWITCH_PORTS: [&str; 2] = ["p1", "p2"];
/// The network's VLAN.
const NET: u16 = 7;
/// Ports in the group, and rules of it.
pub const PORTS: usize = 1000;
pub const RULES: u16 = 100;
/// Hardware addresses of the two instances, and what each of them speaks for.
const MACS: [&str; 2] = ["02:00:00:00:01:01", "02:00:00:00:01:02"];
const PREFIXES: [&str; 2] = ["10.0.0.0/16", "10.1.0.0/16"];
/// Frames in flight: fewer than any queue on the way holds.
const WINDOW: u64 = 256;
const BATCH: usize = 64;
/// Time after which frames that have not arrived are lost.
const LOST: Duration = Duration::from_millis(50);
/// Different connections: more than pass in a round.
const CONNECTIONS: u32 = 1 << 20;

/// Where the security group is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In Open vSwitch, by nfluid's firewall.
    Switch,
    /// In a bridge of the kernel between each instance and Open vSwitch: Neutron's hybrid driver.
    Bridges,
    Nowhere,
}

/// Instances and what joins them. A process is declared before the namespaces that it uses.
pub struct World {
    /// The firewall; `None` elsewhere than in the switch.
    pub firewall: Option<Firewall>,
    ovs: Ovs,
    bridges: Vec<Namespace>,
    /// The instances: the one that opens connections, and the other.
    pub ends: Ends,
    _programs: Vec<Peer>,
    _folder: ScratchDirectory,
    /// Seconds that it took to have the group on all ports.
    pub setup_seconds: f64,
    /// Flows of the rules' tables beyond those of a firewall without ports.
    pub flows: usize,
    next: u32,
}

impl World {
    /// Makes it, and has a first connection established.
    ///
    /// # Errors
    /// `CannotRun` if a program is missing; a program fails; nothing passes.
    pub fn new(place: Place, ports: Ports, resources: &Resources) -> anyhow::Result<Self> {
        need(&[
            ("ip", "iproute2"),
            ("ethtool", "ethtool"),
            ("nft", "nftables"),
            ("conntrack", "conntrack"),
        ])?;
        let mut ovs = Ovs::start(ports, SWITCH_CORE)?;
        let folder = ScratchDirectory::new()?;
        let mut bridges = Vec::new();
        if place == Place::Bridges {
            for port in SWITCH_PORTS {
                let bridge = Namespace::new()?;
                Namespace::join((ovs.namespace(), port), (&bridge, "qvb"))?;
                bridges.push(bridge);
            }
        }
        let ends = match bridges.as_slice() {
            [a, b] => Ends::join(resources, (a, "tap"), (b, "tap"))?,
            _ => Ends::join(
                resources,
                (ovs.namespace(), SWITCH_PORTS[0]),
                (ovs.namespace(), SWITCH_PORTS[1]),
            )?,
        };
        // The source's frames are XDP's: what takes them has to be ready for them. AF_XDP sockets are.
        let entry = match bridges.first() {
            Some(bridge) => Some((bridge, "tap")),
            None => (ports == Ports::AfPacket).then_some((ovs.namespace(), SWITCH_PORTS[0])),
        };
        let mut programs = Vec::new();
        if let Some((namespace, interface)) = entry {
            let object = veth::programs(resources)?;
            programs.push(veth::take_xdp_frames(namespace, &object, interface)?);
        }
        for (at, bridge) in bridges.iter().enumerate() {
            filter(bridge, &folder, at)?;
        }
        for (at, (instance, interface)) in instances(&ends).into_iter().enumerate() {
            instance.disable_ipv6();
            instance.ip(&format!("link set {interface} address {}", MACS[at]))?;
            // What tracks connections looks at checksums, which the kernel leaves to a veth's other end.
            instance.run(&format!("ethtool -K {interface} tx off"))?;
            let port = SWITCH_PORTS[at];
            let options = format!("ofport_request={} -- set Port {port} tag={NET}", at + 1);
            ovs.add_interface(port, &options)?;
        }
        let control = &ovs.switch().control;
        let (mut firewall, mut setup_seconds, mut flows) = (None, 0.0, 0);
        if place == Place::Switch {
            control.add_flows(BRIDGE, AROUND)?;
            let mut own = Firewall::start(ovs.switch(), BRIDGE, 1, None)?;
            let count = || -> anyhow::Result<usize> {
                Ok(control.flows(BRIDGE, "table=72")?.len()
                    + control.flows(BRIDGE, "table=82")?.len())
            };
            let before = count()?;
            setup_seconds = own.change(&group(RULES))?;
            flows = count()? - before;
            firewall = Some(own);
        } else {
            control.add_flows(BRIDGE, "priority=0,actions=normal\n")?;
        }
        let mut world = World {
            firewall,
            ovs,
            bridges,
            ends,
            _programs: programs,
            _folder: folder,
            setup_seconds,
            flows,
            next: 1,
        };
        world.establish()?;
        world.runs(false)?;
        Ok(world)
    }

    /// Sends a frame of the first connection and an answer, so that it is established and the bridge knows both addresses.
    fn establish(&mut self) -> anyhow::Result<()> {
        let there = self.pass(64, &[numbered(FLOW)], Duration::from_millis(200))?;
        ensure!(there > 0.0, "nothing passes");
        let (from, to) = numbered(FLOW);
        let [client, server] = MACS.map(|mac| mac.parse::<MacAddr>());
        let (client, server) = (
            client.map_err(|_| anyhow!("an address"))?,
            server.map_err(|_| anyhow!("an address"))?,
        );
        let mut frame = [0; 64];
        let answer = Frame::udp(to.into(), from.into()).macs(server, client);
        let len = answer.write(&mut frame, b"answer")?;
        self.ends.sink().within(|| {
            let mut sender = InterfaceSender::open(SINK)?;
            sender.send(1, |_, slot| {
                slot[..len].copy_from_slice(&frame[..len]);
                len
            })?;
            Ok(sender.flush()?)
        })?;
        thread::sleep(Duration::from_millis(50));
        Ok(())
    }

    fn runs(&self, runs: bool) -> anyhow::Result<()> {
        self.ovs.runs(runs)
    }

    /// Returns how many frames, or new connections, pass in a second, and how many seconds of its CPU time the switch has used for it.
    ///
    /// # Errors
    /// A process has ended; an interface fails.
    pub fn round(
        &mut self,
        traffic: Traffic,
        len: usize,
        seconds: f64,
    ) -> anyhow::Result<[f64; 2]> {
        self.runs(true)?;
        if traffic == Traffic::New {
            self.ovs.switch().control.appctl("dpctl/flush-conntrack")?;
            for bridge in &self.bridges {
                bridge.run("conntrack -F")?;
            }
            // The established connection is one again.
            self.establish()?;
        }
        let before = self.ovs.cpu_seconds()?;
        let rate = match traffic {
            Traffic::Established => {
                let (frames, outcome) = self.ends.send(len, seconds)?;
                frames as f64 / outcome.seconds
            }
            Traffic::New => {
                let first = self.next;
                self.next = first.wrapping_add(CONNECTIONS);
                let connections = (0..CONNECTIONS).map(|at| numbered(first.wrapping_add(at)));
                let connections: Vec<_> = connections.collect();
                self.pass(len, &connections, Duration::from_secs_f64(seconds))?
            }
        };
        let used = self.ovs.cpu_seconds()? - before;
        self.runs(false)?;
        Ok([rate, used])
    }

    /// Sends for a time, with so many frames in flight that none is lost, and returns the rate at which they have arrived.
    fn pass(&self, len: usize, flows: &[Flow], time: Duration) -> anyhow::Result<f64> {
        let mut headers = Headers::new(flows, [2, 0, 0, 0, 1, 2], len)?;
        let ends = [self.ends.source(), self.ends.sink()];
        let passed = thread::scope(|scope| {
            let run = scope.spawn(|| closed_loop(ends, &mut headers, time));
            run.join().map_err(|_| anyhow!("the traffic failed"))?
        })?;
        Ok(passed as f64 / time.as_secs_f64())
    }

    /// Runs with the switch, for work that is no round.
    ///
    /// # Errors
    /// The error of the work; the switch has ended.
    pub fn while_running<T>(
        &mut self,
        work: impl FnOnce(&mut Self) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        self.runs(true)?;
        let done = work(self);
        self.runs(false)?;
        done
    }
}

/// Returns the namespaces of the instances, and their interfaces.
pub fn instances(ends: &Ends) -> [(&Namespace, &'static str); 2] {
    [(ends.source(), SOURCE), (ends.sink(), SINK)]
}

/// The frames that a round sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// Frames of one connection, as many as the source can send.
    Established,
    /// The first frames of connections, never more in flight than queues hold.
    New,
}

/// Sends from one instance, and receives at the other, in a thread of its own.
fn closed_loop(
    [source, sink]: [&Namespace; 2],
    headers: &mut Headers,
    time: Duration,
) -> anyhow::Result<u64> {
    let mut core = CpuSet::new();
    core.set(GENERATOR_CORE);
    sched_setaffinity(None, &core).context("the traffic's core")?;
    source.enter()?;
    let mut sender = InterfaceSender::open(SOURCE)?;
    sink.enter()?;
    let mut receiver = InterfaceReceiver::open(SINK)?;
    let template = headers.template().to_vec();
    let (mut sent, mut arrived, mut lost) = (0_u64, 0_u64, 0_u64);
    let start = Instant::now();
    let mut last = start;
    while start.elapsed() < time {
        let room = WINDOW
            .saturating_sub(sent - arrived - lost)
            .min(BATCH as u64) as usize;
        if room > 0 {
            let taken = sender.send(room, |_, slot| {
                slot[..template.len()].copy_from_slice(&template);
                slot[VARYING].copy_from_slice(headers.next());
                template.len()
            })?;
            sender.flush()?;
            sent += taken as u64;
        }
        let mut count = 0;
        let is_ours = |frame: &[u8]| frame[..6] == template[..6];
        receiver.receive(BATCH, &mut |frame: &[u8]| {
            count += u64::from(is_ours(frame))
        })?;
        arrived += count;
        if count > 0 {
            last = Instant::now();
        } else if last.elapsed() > LOST {
            lost = sent - arrived;
            last = Instant::now();
        }
    }
    Ok(arrived)
}

/// The group on all ports, as Neutron's agent gives it to a firewall: everything out, and in what so many rules permit from members, the last of
/// them the traffic. The two instances speak for a network each, the others for an address.
pub fn group(rules: u16) -> Value {
    let mut found = vec![json!({ "direction": "egress", "ethertype": "IPv4" })];
    found.extend((1..=rules).map(|rule| {
        let port = permitted_port(rule, rules);
        json!({
            "direction": "ingress", "ethertype": "IPv4", "protocol": "udp", "port_range_min": port, "port_range_max": port, "remote_group_id": "all",
        })
    }));
    let mut ports = Map::new();
    for at in 0..PORTS {
        let mac = MACS.get(at).map_or_else(
            || format!("02:00:00:01:{:02x}:{:02x}", at >> 8, at & 255),
            |it| (*it).to_owned(),
        );
        let port = json!({ "number": at + 1, "net": NET, "mac": mac, "addresses": [[mac, address(at)]], "groups": ["all"] });
        ports.insert(at.to_string(), port);
    }
    json!({ "rules": { "all": found }, "members": { "all": members() }, "ports": ports })
}

/// Returns the port that a rule of so many permits: the last one that of the traffic.
fn permitted_port(rule: u16, rules: u16) -> u16 {
    if rule == rules { 53 } else { 1000 + rule }
}

fn members() -> Vec<String> {
    (0..PORTS).map(address).collect()
}

fn address(at: usize) -> String {
    let own = PREFIXES.get(at).map(|it| (*it).to_owned());
    own.unwrap_or_else(|| format!("10.2.{}.{}", at >> 8, at & 255))
}

/// Makes the bridge of an instance, with the group's rules for it: Neutron's hybrid driver has them in iptables, and the group's members in a set.
fn filter(bridge: &Namespace, folder: &ScratchDirectory, at: usize) -> anyhow::Result<()> {
    bridge.disable_ipv6();
    bridge.ip("link add name qbr type bridge")?;
    for port in ["qvb", "tap"] {
        bridge.ip(&format!("link set {port} master qbr"))?;
    }
    bridge.ip("link set qbr up")?;
    bridge.run("sysctl -qw net.bridge.bridge-nf-call-iptables=1")?;
    let mut text = format!(
        "table bridge side {{ chain pre {{ type filter hook prerouting priority -300;\niifname tap meta mark set 1\niifname qvb meta mark set 2\n}}\n}}\n\
         table inet groups {{\nset members {{ type ipv4_addr; flags interval; elements = {{ {} }} }}\n\
         chain forward {{ type filter hook forward priority 0; policy drop;\n\
         ct state established,related accept\nmeta mark 1 ip saddr != {} drop\nmeta mark 1 ct state new accept\n",
        members().join(", "),
        PREFIXES[at]
    );
    for rule in 1..=RULES {
        let port = permitted_port(rule, RULES);
        writeln!(
            text,
            "meta mark 2 udp dport {port} ip saddr @members ct state new accept"
        )?;
    }
    text += "}\n}\n";
    let file = folder.write(&format!("group{at}.nft"), &text)?;
    bridge.run(&format!("nft -f {}", file.display()))?;
    Ok(())
}
