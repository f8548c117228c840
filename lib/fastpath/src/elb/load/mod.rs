//! Weights that follow the load of a balancer's servers, as their SNMP agents tell it: a thread in their namespace asks.
//!
//! An agent is not trusted: whatever it says, its server gets between a part of its configured weight and all of it ([`law`]). One
//! that says nothing, or nothing that can be true, is counted, and its server goes back to the configured weight.

mod config;
mod law;
mod snmp;
#[cfg(test)]
mod tests;

pub use config::LoadConfig;
pub use law::{Estimate, Reading};

use super::config::BalancerConfig;
use super::finding::{Finding, Findings};
use nfluid_netdev::Place;
use snmp::Agent;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How soon the thread notices that it is to end.
const LOOK: Duration = Duration::from_millis(100);
/// Agents that are asked at the same time.
const AT_ONCE: usize = 16;

/// The agents to ask.
#[derive(Clone, Debug, PartialEq)]
pub struct Subject {
    agents: Vec<(String, SocketAddr, LoadConfig)>,
}

impl Subject {
    /// Returns the agents of servers whose weights follow their load. `None`: there are none.
    pub fn of(config: &BalancerConfig) -> Option<Self> {
        let services = config.services.values();
        let services = services.filter_map(|service| Some((service, service.load.as_ref()?)));
        let agents = services.flat_map(|(service, load)| {
            let all = service.servers.iter();
            all.map(move |server| {
                let agent = SocketAddr::new(server.at.ip(), load.port());
                (service.server_key(server.at), agent, load.clone())
            })
        });
        let agents: Vec<_> = agents.collect();
        (!agents.is_empty()).then_some(Subject { agents })
    }
}

/// The thread that asks agents. The thread ends when this is dropped.
pub struct Loads {
    subject: Subject,
    stop: Arc<AtomicBool>,
}

impl Loads {
    /// Starts asking the agents of an instance's servers, from the namespace of its interface.
    pub fn start(findings: Findings, place: &Place, subject: Subject) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (there, agents) = (Arc::clone(&stop), subject.agents.clone());
        let place = place.clone();
        let started = thread::Builder::new()
            .name("loads".to_owned())
            .spawn(move || {
                let asked = place.within(|| {
                    ask_all(&findings, agents, &there);
                    Ok(())
                });
                if let Err(error) = asked {
                    tracing::warn!(instance = findings.instance(), %error, "the load of its servers is not asked for");
                }
            });
        if let Err(error) = started {
            tracing::warn!(%error, "the load of servers is not asked for");
        }
        Loads { subject, stop }
    }

    /// Returns the agents that are asked.
    pub fn subject(&self) -> &Subject {
        &self.subject
    }
}

impl Drop for Loads {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// An agent, and when it is asked next.
struct Asked {
    key: String,
    agent: Agent,
    interval: Duration,
    due: Instant,
}

fn ask_all(findings: &Findings, agents: Vec<(String, SocketAddr, LoadConfig)>, stop: &AtomicBool) {
    let asked = |(key, at, config): (String, SocketAddr, LoadConfig)| Asked {
        key,
        interval: config.interval(),
        agent: Agent::new(at, config),
        due: Instant::now(),
    };
    let mut agents: Vec<Asked> = agents.into_iter().map(asked).collect();
    while !stop.load(Ordering::Relaxed) {
        let now = Instant::now();
        let mut due: Vec<&mut Asked> = agents.iter_mut().filter(|one| one.due <= now).collect();
        for some in due.chunks_mut(AT_ONCE) {
            let readings = ask(some);
            for (one, reading) in some.iter_mut().zip(readings) {
                one.due = Instant::now() + one.interval;
                // Only while the load is wanted: the configuration may be another by now.
                if !stop.load(Ordering::Relaxed) {
                    findings.report(Finding::Load {
                        key: one.key.clone(),
                        said: reading,
                    });
                }
            }
        }
        let next = agents.iter().map(|one| one.due).min();
        let wait = next.map_or(LOOK, |due| due.saturating_duration_since(Instant::now()));
        thread::sleep(wait.min(LOOK));
    }
}

/// Asks some agents at the same time, each for as long as it has.
fn ask(agents: &mut [&mut Asked]) -> Vec<Result<Reading, String>> {
    thread::scope(|scope| {
        let threads = agents.iter_mut().map(|one| {
            let thread = thread::Builder::new().name("load".to_owned());
            thread.spawn_scoped(scope, || one.agent.ask())
        });
        let threads: Vec<_> = threads.collect();
        let readings = threads.into_iter().map(|thread| match thread {
            Ok(thread) => thread
                .join()
                .unwrap_or_else(|_| Err("asking it has failed".to_owned())),
            Err(error) => Err(format!("there is no thread to ask it: {error}")),
        });
        readings.collect()
    })
}
