//! The kernel's own ways, between three namespaces: source, forwarder, sink, joined by two veth
//! pairs. The source sends live frames by XDP, faster than a socket can; the sink counts what comes
//! and the kernel throws it away, because nobody there wants it.

use super::way::{Round, Way};
use super::{Ground, SIZES};
use crate::host::namespace::{Namespace, number};
use crate::host::program::need;
use crate::host::{cpu, workshop::Workshop};
use crate::peer::Peer;
use crate::roles::{Role, Task};
use anyhow::Context;
use rustix::process::{Pid, getpriority_process, setpriority_process};
use rustix::thread::{CpuSet, sched_setaffinity};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Where the frames of the traffic go to, and what must not be the sink's own address.
const TO: &str = "02:00:00:00:01:02";
const ELSEWHERE: &str = "02:00:00:00:01:09";
const GENERATOR_CORE: usize = 1;
const FORWARDING_CORE: usize = 0;
/// The sink's interface.
const SINK: &str = "sink";
const SOURCE: &str = "source";
const RULES: u32 = 10;

/// What forwards.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Forwarder {
    Bridge,
    Nftables,
    Xdp,
}

/// Where it forwards.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Placement {
    /// In soft interrupts on the generator's core.
    OneCore,
    /// In a thread of its own (threaded NAPI), on the other core.
    TwoCores,
}

/// The namespaces and what runs in them. What lives in a namespace comes before it: it ends first.
struct Kernel {
    forwarder: Forwarder,
    placement: Placement,
    generators: Vec<(usize, Peer)>,
    _programs: Vec<Peer>,
    /// The kernel's threads that forward, if they do.
    threads: Vec<u32>,
    _source: Namespace,
    _middle: Namespace,
    sink: Namespace,
    /// CPU time when the idle time began.
    idle_since: f64,
}

pub fn bridge_one_core(ground: &mut Ground) -> anyhow::Result<Box<dyn Way>> {
    start(ground, Forwarder::Bridge, Placement::OneCore)
}

pub fn bridge_two_cores(ground: &mut Ground) -> anyhow::Result<Box<dyn Way>> {
    start(ground, Forwarder::Bridge, Placement::TwoCores)
}

pub fn nftables_one_core(ground: &mut Ground) -> anyhow::Result<Box<dyn Way>> {
    start(ground, Forwarder::Nftables, Placement::OneCore)
}

pub fn nftables_two_cores(ground: &mut Ground) -> anyhow::Result<Box<dyn Way>> {
    start(ground, Forwarder::Nftables, Placement::TwoCores)
}

pub fn xdp_one_core(ground: &mut Ground) -> anyhow::Result<Box<dyn Way>> {
    start(ground, Forwarder::Xdp, Placement::OneCore)
}

pub fn xdp_two_cores(ground: &mut Ground) -> anyhow::Result<Box<dyn Way>> {
    start(ground, Forwarder::Xdp, Placement::TwoCores)
}

fn start(
    ground: &mut Ground,
    forwarder: Forwarder,
    placement: Placement,
) -> anyhow::Result<Box<dyn Way>> {
    need(&[
        ("ip", "iproute2"),
        ("bridge", "iproute2"),
        ("ethtool", "ethtool"),
        ("nft", "nftables"),
        ("sysctl", "procps"),
    ])?;
    let object = ground.workshop.path("xdp.bpf.o");
    if !object.exists() {
        ground
            .workshop
            .bpf("xdp", include_str!("../../../peers/xdp.bpf.c"))?;
    }
    let (source, middle, sink) = (Namespace::new()?, Namespace::new()?, Namespace::new()?);
    // The kernel's threads carry the interface's name: no other one may have it.
    let (entry, exit) = (name(), name());
    Namespace::join((&source, SOURCE), (&middle, &entry))?;
    Namespace::join((&middle, &exit), (&sink, SINK))?;
    let mut programs = Vec::new();
    match forwarder {
        Forwarder::Bridge => {
            bridge(&middle, &entry, &exit)?;
            programs.push(attach(&middle, &object, "pass", &entry, None)?);
        }
        Forwarder::Nftables => {
            route(&ground.workshop, &middle, &entry, &exit)?;
            programs.push(attach(&middle, &object, "pass", &entry, None)?);
        }
        Forwarder::Xdp => {
            programs.push(attach(&middle, &object, "redirect", &entry, Some(&exit))?);
            programs.push(attach(&sink, &object, "drop", SINK, None)?);
        }
    }
    // A veth takes XDP frames when its end polls (NAPI). A program makes it do that, and switches GRO
    // on, which has nothing to merge here and costs 5 %.
    middle.run(&format!("ethtool -K {entry} gro off"))?;
    let threads = match placement {
        Placement::OneCore => Vec::new(),
        Placement::TwoCores => own_threads(&middle, &entry)?,
    };
    let generators = SIZES.iter().map(|len| {
        let task = Task::Generate {
            object: object.clone(),
            interface: SOURCE.to_owned(),
            len: *len,
        };
        let core = GENERATOR_CORE;
        anyhow::Ok((*len, Peer::start_within(&source, &Role { core, task })?))
    });
    Ok(Box::new(Kernel {
        forwarder,
        placement,
        generators: generators.collect::<anyhow::Result<_>>()?,
        _programs: programs,
        threads,
        _source: source,
        _middle: middle,
        sink,
        idle_since: 0.0,
    }))
}

/// An interface name that no other process of this kind has.
fn name() -> String {
    let unique = std::process::id().wrapping_mul(31).wrapping_add(number());
    format!("nfl{:05x}", unique & 0xf_ffff)
}

fn attach(
    namespace: &Namespace,
    object: &Path,
    program: &str,
    interface: &str,
    to: Option<&str>,
) -> anyhow::Result<Peer> {
    let task = Task::Attach {
        object: PathBuf::from(object),
        program: program.to_owned(),
        interface: interface.to_owned(),
        to: to.map(str::to_owned),
    };
    let core = GENERATOR_CORE;
    Peer::start_within(namespace, &Role { core, task })
}

fn bridge(middle: &Namespace, entry: &str, exit: &str) -> anyhow::Result<()> {
    middle.ip("link add name bridge0 type bridge")?;
    for port in [entry, exit] {
        middle.ip(&format!("link set {port} master bridge0"))?;
    }
    middle.ip("link set bridge0 up")?;
    // It knows where the frames go: nothing is flooded.
    middle.run(&format!("bridge fdb replace {TO} dev {exit} master static"))?;
    Ok(())
}

fn route(workshop: &Workshop, middle: &Namespace, entry: &str, exit: &str) -> anyhow::Result<()> {
    middle.run("sysctl -qw net.ipv4.ip_forward=1")?;
    middle.ip(&format!("link set {entry} address {TO}"))?;
    middle.ip(&format!("address add 10.0.255.1/16 dev {entry}"))?;
    middle.ip(&format!("address add 10.1.255.1/16 dev {exit}"))?;
    let to = crate::experiments::traffic::numbered(crate::roles::FLOW).1;
    middle.ip(&format!(
        "neighbour replace {} lladdr {ELSEWHERE} dev {exit}",
        to.ip()
    ))?;
    let file = workshop.path("rules.nft");
    std::fs::write(&file, rules()).context("writing the rules")?;
    middle.run(&format!("nft -f {}", file.display()))?;
    Ok(())
}

/// As the firewall's in `nf`: the source always matches, the rest does not, until the last one.
fn rules() -> String {
    let mut text = String::from(
        "table ip bench {\nchain forward {\ntype filter hook forward priority 0; policy drop;\n",
    );
    for i in 1..RULES {
        let _infallible = if i % 2 == 0 {
            writeln!(
                text,
                "ip saddr 10.0.0.0/8 ip daddr 10.{}.0.0/24 udp dport 53 drop",
                2 + i
            )
        } else {
            let port = 1000 + i;
            writeln!(
                text,
                "ip saddr 10.0.0.0/16 ip daddr 10.1.0.0/16 udp dport {port} drop"
            )
        };
    }
    text.push_str("ip saddr 10.0.0.0/16 ip daddr 10.1.0.0/16 udp dport 53 accept\n}\n}\n");
    text
}

/// Gives the interface's NAPI a thread, and that a core and the priority that the benchmark has.
fn own_threads(middle: &Namespace, interface: &str) -> anyhow::Result<Vec<u32>> {
    let path = format!("/sys/class/net/{interface}/threaded");
    let line = format!("echo 1 > {path}");
    crate::host::program::output(middle.command("sh").args(["-c", &line]))?;
    let threads = cpu::kernel_threads(&format!("napi/{interface}-"));
    anyhow::ensure!(
        !threads.is_empty(),
        "the kernel made no thread for {interface}"
    );
    let mut core = CpuSet::new();
    core.set(FORWARDING_CORE);
    let nice = getpriority_process(None).context("the own priority")?;
    for thread in &threads {
        let thread = Pid::from_raw(thread.cast_signed());
        sched_setaffinity(thread, &core).context("pinning a NAPI thread")?;
        setpriority_process(thread, nice).context("the priority of a NAPI thread")?;
    }
    Ok(threads)
}

impl Kernel {
    /// CPU time of what forwards, in seconds.
    fn cpu_seconds(&self) -> anyhow::Result<f64> {
        match self.placement {
            Placement::OneCore => cpu::softirq_seconds(),
            Placement::TwoCores => {
                let threads = self.threads.iter();
                threads.map(|thread| cpu::process_seconds(*thread)).sum()
            }
        }
    }
}

impl Way for Kernel {
    fn conditions(&self) -> String {
        let what = match self.forwarder {
            Forwarder::Bridge => "bridge".to_owned(),
            Forwarder::Nftables => format!("IPv4 routing, nftables with {RULES} rules"),
            Forwarder::Xdp => "XDP redirect by devmap, native".to_owned(),
        };
        let place = match self.placement {
            Placement::OneCore => {
                "all in soft interrupts on the generator's core; CPU time: soft interrupts of all \
                 cores by /proc/stat, to 10 ms, whoever causes them"
            }
            Placement::TwoCores => {
                "threaded NAPI on core 0, generator on core 1; CPU time: the NAPI thread's"
            }
        };
        format!(
            "{what}; two veth pairs; live XDP frames, one flow, no socket; {place}; the sink's part included"
        )
    }

    fn round(&mut self, len: usize, seconds: f64) -> anyhow::Result<Round> {
        let (before, cpu) = (self.sink.received(SINK)?, self.cpu_seconds()?);
        let generator = self.generators.iter_mut().find(|(of, _)| *of == len);
        let (_, generator) = generator.context("a length that was not prepared")?;
        generator.tell(seconds, None)?;
        let outcome = generator.hear()?;
        let forwarding_seconds = self.cpu_seconds()? - cpu;
        let traffic_seconds = match self.placement {
            // Soft interrupts run on the generator's account.
            Placement::OneCore => (outcome.cpu_seconds - forwarding_seconds).max(0.0),
            Placement::TwoCores => outcome.cpu_seconds,
        };
        Ok(Round {
            frames: self.sink.received(SINK)? - before,
            seconds: outcome.seconds,
            forwarding_seconds,
            traffic_seconds,
        })
    }

    fn idle_begin(&mut self, _seconds: f64) -> anyhow::Result<()> {
        self.idle_since = self.cpu_seconds()?;
        Ok(())
    }

    fn idle_end(&mut self) -> anyhow::Result<f64> {
        Ok(self.cpu_seconds()? - self.idle_since)
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn as_many_rules_as_it_says() {
        let rules = super::rules();
        let verdicts = rules.lines().filter(|line| line.contains("dport"));
        assert_eq!(verdicts.count() as u32, super::RULES);
    }
}
