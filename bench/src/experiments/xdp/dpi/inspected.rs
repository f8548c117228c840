//! An eDPI on a host's interfaces, in a thread of its own, perhaps with an eFW before it.

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
/// Room for copies, in bytes: the classifier shares its core with the ends.
const COPIES: u32 = 1 << 26;
/// How often accounts are looked at: copies may wait still, and a packet may come at any time.
const TRIES: u32 = 2000;

/// Of the firewall before it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Rules {
    /// There is none.
    None,
    /// The rules that the host has in force.
    InForce,
}

/// Counters of an eDPI during a measurement.
pub struct Inspection {
    pub exits: Vec<(Exit, Counts)>,
    /// CPU time of the classifier, in seconds.
    pub cpu_seconds: f64,
}

impl Inspection {
    /// Packets that left by an exit, in percent.
    pub fn percent(&self, exit: Exit) -> f64 {
        let packets = |of: &dyn Fn(Exit) -> bool| -> u64 {
            let exits = self.exits.iter().filter(|(one, _)| of(*one));
            exits.map(|(_, counts)| counts.packets).sum()
        };
        packets(&|one| one == exit) as f64 * 100.0 / packets(&|_| true).max(1) as f64
    }
}

/// Does `work` while an eDPI has the topology's host, of which the flows to the first `elephants` ports go to its fast path.
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
        // Why it did not begin says more than that it did not.
        let inspection = inspection?;
        Ok((done?, inspection))
    })
}

/// The members on an interface.
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

/// How packets have left, when each of them has been counted under an application, or as what else it was.
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
