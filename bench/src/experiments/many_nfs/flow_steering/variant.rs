//! A variant of the experiment: a way of steering frames from a wire to NFs.

use crate::host::cpu;
use crate::peer::{Peer, run_together};
use crate::report::gbps;
use crate::roles::function::Manner;
use crate::roles::work::Waits;
use crate::roles::xdp::Addressees;
use crate::roles::{Role, Task};
use crate::workload::Workload;
use anyhow::Context;
use nfluid_switch::classifier::{Prefix, Rule};
use nfluid_switch::{Destination, Switch, Wake};
use nfluid_testbed::command::output;
use nfluid_testbed::interrupt;
use nfluid_testbed::scratch::{Forwarder, Scratch, ScratchInstance, mac_of};
use nfluid_testbed::{namespace::Namespace, unique_number};
use nfluid_uplink::{Uplink, UplinkSpec};
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::net::{IpAddr, Ipv4Addr};
use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};

/// Core of the wire, whose CPU time is not counted, and of the uplink's receive side: on a core with the NFs the
/// receive side would keep them from running, and most frames would be lost in their rings.
const RECEIVE_CORE: usize = 0;
/// Core of the NFs and the bridge.
const NFS_CORE: usize = 1;
const BATCH: usize = 32;
const NF_RING: u32 = 256;
/// Slots of the bridge's ring: the largest ring.
const HOP_RING: u32 = 1024;
/// A time longer than any run, in seconds.
const FOR_EVER: f64 = 1e6;
const DRAIN: Duration = Duration::from_millis(5);
/// The other end of the wire.
const SOURCE: &str = "source";

/// How the uplink steers frames to their NFs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The uplink is a member of a switch, which looks up the hardware address.
    Switch,
    /// Rules of the uplink's classifier steer to this many NFs; frames for the others take another hop: a bridge that
    /// sends them on a switch.
    Classified(u32),
}

/// Parameters of a variant.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub way: Way,
    pub nfs: u32,
    /// Bytes of a frame.
    pub len: usize,
    /// Rules that match nothing, in front of the others.
    pub idle_rules: u32,
}

/// The processes. What lives in something else comes before it: it ends first.
pub struct Variant {
    /// Bytes of a frame.
    len: usize,
    generator: [Peer; 1],
    nfs: Vec<Peer>,
    /// Ports of the NFs.
    ports: Range<u32>,
    /// The bridge of frames that are not classified.
    hop: Option<Peer>,
    uplink_thread: u32,
    /// The kernel's thread that receives from the wire.
    receiver: u32,
    uplink: Uplink,
    _instances: Vec<ScratchInstance>,
    _wire: [Namespace; 2],
}

impl Variant {
    /// Starts a variant; `switch` is a number that no other variant has.
    pub fn new(
        scratch: &mut Scratch,
        object: &Path,
        shape: Shape,
        switch: u32,
    ) -> anyhow::Result<Self> {
        let wire = [Namespace::new()?, Namespace::new()?];
        // The name of the uplink's thread contains the interface's name.
        let interface = format!("up{}", unique_number());
        Namespace::join((&wire[0], SOURCE), (&wire[1], &interface))?;
        let mut instances = nfs(scratch, shape.nfs)?;
        let first = instances.first().context("no NFs")?.id(0);
        let uplink = uplink(scratch, &wire[1], &interface)?;
        let thread = cpu::own_thread(&format!("uplink-{interface}"))?;
        let receiver = receiver(&wire[1], &interface)?;
        let port = uplink.spec().port;
        // An address without an owner: only the uplink sends on the switch.
        let mut from = [2, 0, 0, 0, 0xff, 0xff];
        let mut hop = None;
        if shape.joins_switch() {
            for nf in &instances {
                join(scratch, switch, nf, 0)?;
            }
        }
        match shape.way {
            Way::Switch => {
                let to = Destination::Switch(switch);
                scratch.switch.connect(port, to)?;
                scratch.switch.set_learning(port, true);
            }
            Way::Classified(direct) => {
                let mut rules = shape.rules(first, direct);
                if direct < shape.nfs {
                    let bridge = scratch.instance(2, HOP_RING, 64)?;
                    join(scratch, switch, &bridge, 1)?;
                    from = bridge.mac(1);
                    rules.push(Rule {
                        to: Some(bridge.id(0)),
                        ..Rule::default()
                    });
                    hop = Some(start_hop(&bridge)?);
                    instances.push(bridge);
                }
                scratch.switch.set_rules(port, &rules)?;
                scratch.switch.connect(port, Destination::Classifier)?;
            }
        }
        let to = Addressees {
            first: mac_of(first),
            count: shape.nfs,
            from,
        };
        let generator = generator(object, &wire[0], shape.len, to)?;
        let nfs = instances.iter().take(shape.nfs as usize);
        let nfs = nfs.map(start_nf).collect::<anyhow::Result<_>>()?;
        Ok(Variant {
            len: shape.len,
            generator: [generator],
            nfs,
            ports: first..first + shape.nfs,
            hop,
            uplink_thread: thread,
            receiver,
            uplink,
            _instances: instances,
            _wire: wire,
        })
    }

    /// Sends as much as goes for so many seconds. Returns Mpps, Gbit/s, Mpps of CPU time of all threads, and the
    /// percent of what the uplink took in that did not reach its NF: a ring was full.
    pub fn measure(&mut self, switch: &Switch, seconds: f64) -> anyhow::Result<[f64; 4]> {
        let before = (self.frames(switch), self.cpu_seconds()?);
        let start = Instant::now();
        run_together(&mut self.generator, seconds)?;
        // The generator's own clock stands still while the receive side has the core.
        let elapsed = start.elapsed().as_secs_f64();
        // Waits until the NFs have taken the frames in the rings.
        std::thread::sleep(DRAIN);
        let after = (self.frames(switch), self.cpu_seconds()?);
        let entered = (after.0.entered - before.0.entered) as f64;
        let got = (after.0.got - before.0.got) as f64;
        let mpps = got / 1e6 / elapsed;
        let per_cpu = got / 1e6 / (after.1 - before.1);
        let lost_percent = (entered - got) / entered * 100.0;
        Ok([mpps, gbps(mpps, self.len), per_cpu, lost_percent])
    }

    fn frames(&self, switch: &Switch) -> Frames {
        let got = self
            .ports
            .clone()
            .map(|port| switch.counters(port).rx_frames);
        Frames {
            entered: switch.counters(self.uplink.spec().port).tx_frames,
            got: got.sum(),
        }
    }

    /// Returns the CPU time of the receive side, the NFs, the bridge, and the uplink's thread.
    fn cpu_seconds(&self) -> anyhow::Result<f64> {
        let peers = self.nfs.iter().chain(&self.hop).map(Peer::pid);
        let processes = peers.chain([self.receiver]).map(cpu::process_seconds);
        let uplink = cpu::thread_seconds(self.uplink_thread);
        processes.chain([uplink]).sum()
    }
}

impl Drop for Variant {
    fn drop(&mut self) {
        self.nfs.iter_mut().for_each(Peer::kill);
    }
}

/// Frame counts since the start of the variant.
struct Frames {
    /// Frames at the uplink.
    entered: u64,
    /// Frames at the NFs.
    got: u64,
}

impl Shape {
    /// Returns the number of NFs that are reached without another hop.
    pub fn direct(&self) -> u32 {
        match self.way {
            Way::Switch => 0,
            Way::Classified(direct) => direct.min(self.nfs),
        }
    }

    fn joins_switch(&self) -> bool {
        self.direct() < self.nfs
    }

    /// Returns rules on the IPv4 destination, one for each NF from port `first` on.
    fn rules(&self, first: u32, direct: u32) -> Vec<Rule> {
        let rule = |address: Ipv4Addr, to: u32| Rule {
            dst: Some(Prefix {
                address: IpAddr::V4(address),
                len: 32,
            }),
            to: Some(to),
            ..Rule::default()
        };
        let of = |net: u8, i: u32| {
            let [_, _, high, low] = i.to_be_bytes();
            Ipv4Addr::new(10, net, high, low)
        };
        let idle = (0..self.idle_rules).map(|i| rule(of(2, i), first));
        let used = (0..direct.min(self.nfs)).map(|i| rule(of(1, i), first + i));
        idle.chain(used).collect()
    }
}

/// Makes NFs of one port, rung by the switch alone, in the order of their numbers.
fn nfs(scratch: &mut Scratch, count: u32) -> anyhow::Result<Vec<ScratchInstance>> {
    let kind = Forwarder {
        ring: NF_RING,
        wake: Wake::AT_ONCE,
        may_be_served: false,
        group: None,
    };
    Ok(scratch.forwarders(count, kind)?)
}

fn join(
    scratch: &Scratch,
    switch: u32,
    instance: &ScratchInstance,
    port: usize,
) -> anyhow::Result<()> {
    let (id, mac) = (instance.id(port), instance.mac(port));
    scratch.switch.connect(id, Destination::Switch(switch))?;
    Ok(scratch.switch.pin_address(switch, 0, mac, id)?)
}

fn uplink(scratch: &mut Scratch, netns: &Namespace, interface: &str) -> anyhow::Result<Uplink> {
    let (port, pool) = (scratch.port_ids(1), scratch.pool_id());
    let mut spec = UplinkSpec::new(interface, interface, port, pool);
    spec.netns = Some(Path::new("/run/netns").join(netns.name()));
    Ok(Uplink::open(&scratch.switch, spec)?)
}

/// Makes a kernel thread receive from the interface, so that its CPU time is separate from the generator's
/// (Documentation/networking/napi.rst, "Threaded NAPI").
fn receiver(netns: &Namespace, interface: &str) -> anyhow::Result<u32> {
    let threaded = format!("echo 1 > /sys/class/net/{interface}/threaded");
    output(netns.command("sh").args(["-c", &threaded])).context("receiving by a thread")?;
    let name = format!("napi/{interface}-");
    let thread = *cpu::kernel_threads(&name)
        .first()
        .with_context(|| format!("the kernel has no thread {name}*"))?;
    let mut cores = CpuSet::new();
    cores.set(RECEIVE_CORE);
    sched_setaffinity(Pid::from_raw(thread.cast_signed()), &cores)
        .context("moving the thread that receives")?;
    Ok(thread)
}

fn generator(object: &Path, netns: &Namespace, len: usize, to: Addressees) -> anyhow::Result<Peer> {
    let task = Task::Generate {
        object: object.to_owned(),
        interface: SOURCE.to_owned(),
        len,
        to: Some(to),
    };
    let core = RECEIVE_CORE;
    Peer::start_within(netns, &Role { core, task })
}

/// Starts an NF that receives until it is killed.
fn start_nf(nf: &ScratchInstance) -> anyhow::Result<Peer> {
    interrupt::check()?;
    let task = Task::Receive {
        batch: BATCH,
        reads: false,
        waits: Waits::Sleeping,
    };
    let core = NFS_CORE;
    let mut peer = Peer::start(nf, &Role { core, task })?;
    peer.start_run(FOR_EVER, None)?;
    Ok(peer)
}

fn start_hop(bridge: &ScratchInstance) -> anyhow::Result<Peer> {
    let task = Task::Host {
        workload: Workload::Bridge,
        manner: Manner::HOSTED,
    };
    let core = NFS_CORE;
    let mut peer = Peer::start(bridge, &Role { core, task })?;
    peer.await_ready()?;
    Ok(peer)
}
