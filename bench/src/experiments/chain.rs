//! 1 to 50 firewalls in a row (H11 "service chain"): round trip and throughput, all NFs asleep while
//! nothing waits. Beside it the floor: as many processes that wake each other and do nothing else.

use crate::host::cpu::require_two_cores;
use crate::io_model::Model;
use crate::peer::{Peer, run_together};
use crate::report::{Report, significant, table};
use crate::roles::work::Waits;
use crate::roles::{Role, Task};
use crate::setups::pipe_chain::TokenChain;
use crate::workload::Workload;
use nfluid_figures::statistics::{Samples, highest};
use nfluid_switch::Group;
use nfluid_testbed::scratch::{Scratch, ScratchInstance};
use std::sync::Arc;
use std::time::Duration;

pub const BATCH: usize = 64;
pub const RING: u32 = 128;
/// TX slots of a port of an NF in a chain.
const TX_SLOTS: u32 = 64;

/// What a chain is made of.
#[derive(Clone, Debug)]
pub struct Links {
    /// The NF.
    pub workload: Workload,
    /// The trust group that the NFs are in; the traffic is outside of it.
    pub group: Option<Arc<Group>>,
}

impl Links {
    /// Firewalls of 10 rules, each with memory of its own.
    pub fn firewalls() -> Self {
        Links {
            workload: Workload::Firewall {
                rules: 10,
                flows: 1000,
            },
            group: None,
        }
    }

    /// Slots that `count` NFs in a row need.
    pub fn slots(count: usize) -> u32 {
        count as u32 * 2 * (RING + TX_SLOTS)
    }
}

/// Which cores the chain runs on.
#[derive(Clone, Copy)]
pub enum Placement {
    /// Everything, traffic included, on core 1.
    OneCore,
    /// The firewalls on core 0, the traffic on core 1.
    TrafficApart,
    /// The first half of the firewalls on core 0, the rest and the traffic on core 1.
    Halves,
}

impl Placement {
    pub fn name(self) -> &'static str {
        match self {
            Placement::OneCore => "all on one core",
            Placement::TrafficApart => "firewalls on one core, traffic on the other",
            Placement::Halves => {
                "half of the firewalls and the traffic on one core, half on the other"
            }
        }
    }

    /// Core of firewall `index` of `count`.
    fn core(self, index: usize, count: usize) -> usize {
        match self {
            Placement::OneCore => 1,
            Placement::TrafficApart => 0,
            Placement::Halves => usize::from(2 * index >= count),
        }
    }
}

/// Firewalls and what drives them: the driver comes after them, and then the process of the I/O threads,
/// if there is one.
pub struct Chain {
    pub peers: Vec<Peer>,
    /// What the peers use lives as long as they do.
    instances: Vec<ScratchInstance>,
}

/// A length and a placement, measured with two chains.
struct Variant {
    count: usize,
    placement: Placement,
    ping: Chain,
    load: Chain,
    rtt: Samples,
    rtt_p99: Samples,
    mpps: Samples,
    lost: u64,
}

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    require_two_cores()?;
    let counts = report.choose(vec![1, 2, 5, 10, 20, 50], vec![1, 50]);
    let (rounds, seconds) = report.effort((11, 0.5), (2, 0.1));
    // Starting hundreds of processes is most of a quick run.
    let placements = report.choose(
        vec![
            Placement::OneCore,
            Placement::TrafficApart,
            Placement::Halves,
        ],
        vec![Placement::OneCore, Placement::Halves],
    );
    let mut all = Vec::new();
    for count in counts {
        let mut scratch = Scratch::new("chain")?;
        let mut variants = Vec::new();
        for &placement in &placements {
            // With one firewall there is nothing to halve.
            if count > 1 || !matches!(placement, Placement::Halves) {
                variants.push(Variant::new(&mut scratch, count, placement)?);
            }
        }
        let mut tokens = TokenChain::start(count, 1)?;
        let mut floor = Samples::default();
        for round in 0..=rounds {
            for variant in &mut variants {
                // The first round warms up.
                variant.measure(seconds, round > 0)?;
            }
            let token = tokens.measure(Duration::from_secs_f64(seconds))?;
            if round > 0 {
                floor.push(token);
            }
        }
        figures(report, count, &variants);
        report.figure(
            format!("chain.{count}.floor_us"),
            &floor,
            "us",
            "processes that hand a byte on through pipes, all on one core: no frame, no switch, no NF",
        );
        all.extend(variants.iter().map(Variant::row));
    }
    let header = [
        "firewalls",
        "placement",
        "rtt us",
        "p99 us",
        "Mpps",
        "spread",
        "late or lost",
    ];
    table("Firewalls of 10 rules in a row", &header, &all);
    Ok(())
}

/// The better placement of each kind is the figure.
fn figures(report: &mut Report, count: usize, variants: &[Variant]) {
    let fastest = variants
        .iter()
        .min_by(|a, b| a.rtt.median().total_cmp(&b.rtt.median()));
    if let Some(variant) = fastest {
        let conditions = variant.conditions("one frame of 64 B at a time");
        report.figure(
            format!("chain.{count}.rtt_us"),
            &variant.rtt,
            "us",
            &conditions,
        );
        report.figure(
            format!("chain.{count}.rtt_p99_us"),
            &variant.rtt_p99,
            "us",
            &conditions,
        );
    }
    if let Some(variant) = highest(variants, |variant| &variant.mpps) {
        let traffic = format!("64 B, batch {BATCH}, at most {RING} frames under way");
        let conditions = variant.conditions(&traffic);
        report.figure(
            format!("chain.{count}.mpps"),
            &variant.mpps,
            "Mpps",
            &conditions,
        );
    }
}

impl Variant {
    fn new(scratch: &mut Scratch, count: usize, placement: Placement) -> anyhow::Result<Self> {
        Ok(Variant {
            count,
            placement,
            ping: Chain::pinged(scratch, count, placement, &Links::firewalls())?,
            load: Chain::loaded(scratch, count, placement, &Links::firewalls(), 64)?,
            rtt: Samples::default(),
            rtt_p99: Samples::default(),
            mpps: Samples::default(),
            lost: 0,
        })
    }

    fn measure(&mut self, seconds: f64, counts: bool) -> anyhow::Result<()> {
        let ping = run_together(&mut self.ping.peers, seconds)?[self.count];
        let load = run_together(&mut self.load.peers, seconds)?[self.count];
        if counts {
            self.rtt.push(ping.median_us);
            self.rtt_p99.push(ping.p99_us);
            self.mpps.push(load.frames as f64 / load.seconds / 1e6);
            self.lost += ping.lost + load.lost;
        }
        Ok(())
    }

    fn conditions(&self, traffic: &str) -> String {
        format!(
            "{}; every process sleeps while nothing waits; {traffic}; {RING} slots",
            self.placement.name()
        )
    }

    fn row(&self) -> Vec<String> {
        vec![
            self.count.to_string(),
            self.placement.name().to_owned(),
            significant(self.rtt.median()),
            significant(self.rtt_p99.median()),
            significant(self.mpps.median()),
            format!("{:.0} %", self.mpps.spread_percent()),
            self.lost.to_string(),
        ]
    }
}

impl Chain {
    /// `count` NFs through which one frame of 64 B goes at a time.
    pub fn pinged(
        scratch: &mut Scratch,
        count: usize,
        placement: Placement,
        links: &Links,
    ) -> anyhow::Result<Self> {
        let workload = links.workload;
        Chain::new(scratch, count, placement, links, &|to| Task::Ping {
            workload,
            to,
        })
    }

    /// `count` NFs with up to [`RING`] frames of `len` bytes under way.
    pub fn loaded(
        scratch: &mut Scratch,
        count: usize,
        placement: Placement,
        links: &Links,
        len: usize,
    ) -> anyhow::Result<Self> {
        let workload = links.workload;
        Chain::new(scratch, count, placement, links, &|to| Task::Around {
            workload,
            to,
            len,
            batch: BATCH,
            window: RING,
            waits: Waits::Sleeping,
        })
    }

    /// `count` NFs, driven by `task`, which is told where to send.
    fn new(
        scratch: &mut Scratch,
        count: usize,
        placement: Placement,
        links: &Links,
        task: &dyn Fn([u8; 6]) -> Task,
    ) -> anyhow::Result<Self> {
        let mut instances = match &links.group {
            Some(group) => (0..count)
                .map(|_| scratch.member(group, 2, RING, TX_SLOTS))
                .collect::<Result<_, _>>()?,
            None => scratch.instances(count, 2, RING, TX_SLOTS)?,
        };
        let mut traffic = scratch.instance(2, RING, RING)?;
        scratch.link((&mut traffic, 0), (&mut instances[0], 0))?;
        for index in 1..count {
            let (before, after) = instances.split_at_mut(index);
            scratch.link((&mut before[index - 1], 1), (&mut after[0], 0))?;
        }
        scratch.link((&mut instances[count - 1], 1), (&mut traffic, 1))?;
        let to = instances[0].mac(0);
        let mut peers = Vec::with_capacity(count + 1);
        for (index, instance) in instances.iter().enumerate() {
            let role = Role {
                core: placement.core(index, count),
                task: Task::Nf {
                    workload: links.workload,
                },
            };
            peers.push(Peer::start(instance, &role)?);
        }
        let driver = Role {
            core: 1,
            task: task(to),
        };
        peers.push(Peer::start(&traffic, &driver)?);
        instances.push(traffic);
        Ok(Chain { peers, instances })
    }

    /// The firewalls are served as `model` says; a split's I/O thread is on `core`.
    pub fn served(mut self, scratch: &Scratch, model: Model, core: usize) -> anyhow::Result<Self> {
        let firewalls = self.instances.split_last().map_or(&[][..], |(_, all)| all);
        let firewalls: Vec<&ScratchInstance> = firewalls.iter().collect();
        let io = model.start_on(core, scratch, &firewalls)?;
        self.peers.extend(io);
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::Placement;

    #[test]
    fn halves_are_halves() {
        let cores: Vec<_> = (0..4).map(|i| Placement::Halves.core(i, 4)).collect();
        assert_eq!(cores, [0, 0, 1, 1]);
    }
}
