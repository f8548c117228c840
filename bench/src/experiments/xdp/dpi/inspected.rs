//! An eDPI on a host's interfaces, in its own thread, optionally behind an eFW.

use super::topology::{BACK, FRONT, PORTS, Topology};
use crate::host::cpu;
use anyhow::{Context, anyhow};
use nfluid_dpi::inspector::{Inspector, Settings};
use nfluid_dpi::library::Library;
use nfluid_dpi::policy::Treatment;
use nfluid_evnf::chain::Chain;
use nfluid_evnf::firewall::Firewall;
use nfluid_evnf::inspector::{Action, Exit, Sizes};
use nfluid_evnf::load::Counts;
use nfluid_evnf::nft::{Ruleset, split};
use nfluid_testbed::interrupt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_millis(50);
/// Bytes for copies of packets: the classifier shares its core with the ends.
const COPIES: u32 = 1 << 26;
/// Number of checks of the counters: copies may still wait, and a packet may arrive at any time.
const TRIES: u32 = 2000;

/// The rules of the firewall before the eDPI.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Rules {
    /// No firewall.
    None,
    /// The host's rules in force.
    InForce,
}

/// Counters of an eDPI during a measurement.
pub struct Inspection {
    pub exits: Vec<(Exit, Counts)>,
    /// CPU time of the classifier, in seconds.
    pub cpu_seconds: f64,
}

impl Inspection {
    /// Returns the packets that left by an exit, in percent.
    pub fn percent(&self, exit: Exit) -> f64 {
        let packets = |of: &dyn Fn(Exit) -> bool| -> u64 {
            let exits = self.exits.iter().filter(|(one, _)| of(*one));
            exits.map(|(_, counts)| counts.packets).sum()
        };
        packets(&|one| one == exit) as f64 * 100.0 / packets(&|_| true).max(1) as f64
    }
}

/// Does `work` while an eDPI is on the topology's host. The flows to the first `elephants` ports go to its fast path.
pub fn during<T>(
    topology: &Topology,
    elephants: usize,
    rules: Rules,
    work: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<(T, Inspection)> {
    let ends = AtomicBool::new(false);
    let (ready, is_ready) = mpsc::channel();
    std::thread::scope(|scope| {
        let inspects = scope.spawn(|| {
            topology.host.within(|| {
                let mut inspector = load(elephants)?;
                let _front = attach(&inspector, rules, FRONT)?;
                let _back = attach(&inspector, rules, BACK)?;
                // An error means that the waiting thread has ended.
                let _sent = ready.send(());
                let thread = rustix::thread::gettid()
                    .as_raw_nonzero()
                    .get()
                    .cast_unsigned();
                let began = cpu::thread_seconds(thread)?;
                while !ends.load(Ordering::Relaxed) {
                    interrupt::check()?;
                    inspector.wait(PATIENCE)?;
                }
                let cpu_seconds = cpu::thread_seconds(thread)? - began;
                let exits = all_counted(&mut inspector)?;
                Ok(Inspection { exits, cpu_seconds })
            })
        });
        let done = is_ready
            .recv()
            .context("eDPI did not begin")
            .and_then(|()| topology.plain())
            .and_then(|()| work());
        ends.store(true, Ordering::Relaxed);
        let inspection = inspects.join();
        let inspection = inspection.map_err(|_| anyhow!("eDPI has failed"))?;
        // The reason of a failed start is more useful than its timeout.
        let inspection = inspection?;
        Ok((done?, inspection))
    })
}

/// Returns the chain on an interface.
fn attach(inspector: &Inspector, rules: Rules, interface: &str) -> anyhow::Result<Chain> {
    let mut members = Vec::new();
    if rules == Rules::InForce {
        let split = split(&Ruleset::in_force()?, interface).before_senders();
        members.push(Firewall::load(&split.stages, &[])?.member()?);
    }
    members.push(inspector.member()?);
    let mut chain = Chain::new(members)?;
    chain.attach(interface)?;
    Ok(chain)
}

/// Returns the packets per exit, when each has been counted under an application or another reason.
fn all_counted(inspector: &mut Inspector) -> anyhow::Result<Vec<(Exit, Counts)>> {
    let mut last = String::new();
    for _ in 0..TRIES {
        inspector.wait(PATIENCE)?;
        let exits = inspector.exits()?;
        let accounts = inspector.accounts()?;
        let mut left = Counts::default();
        for (_, counts) in &exits {
            left.packets += counts.packets;
            left.bytes += counts.bytes;
        }
        if left == accounts.sum() {
            return Ok(exits);
        }
        last = format!("{left:?} have passed, accounted for are {accounts:?}");
    }
    Err(anyhow!("the accounts are wrong: {last}"))
}

fn load(elephants: usize) -> anyhow::Result<Inspector> {
    let library = Library::open()?;
    let policy = Box::new(move |key: &nfluid_dpi::headers::Key, _: &_| {
        let is_fast = |port: &u16| [key.low.1, key.high.1].contains(port);
        if PORTS[..elephants].iter().any(is_fast) {
            Treatment::Fast {
                action: Action::Forward,
                dscp: None,
            }
        } else {
            Treatment::Inspect
        }
    });
    let settings = Settings {
        sizes: Sizes {
            copies: COPIES,
            ..Sizes::default()
        },
        ..Settings::default()
    };
    Ok(Inspector::load(library, settings, policy)?)
}
