//! Weights that follow the load of a balancer's servers, as their SNMP agents report it: a thread in their namespace
//! queries the agents.
//!
//! An agent is not trusted: whatever it reports, its server gets between the least part and all of its configured
//! weight ([`law`]). An agent without a plausible answer is counted, and its server returns to the configured weight.

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

/// Longest delay until the thread sees that it must end.
const LOOK: Duration = Duration::from_millis(100);
/// Number of agents queried in parallel.
const AT_ONCE: usize = 16;

/// The agents to query.
#[derive(Clone, Debug, PartialEq)]
pub struct Subject {
    agents: Vec<(String, SocketAddr, LoadConfig)>,
}

impl Subject {
    /// Returns the agents of servers whose weights follow their load; `None` if there are none.
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

/// The thread that queries agents. Dropping this ends the thread.
pub struct Loads {
    subject: Subject,
    stop: Arc<AtomicBool>,
}

impl Loads {
    /// Starts querying the agents of an instance's servers, from the namespace of its interface.
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

    /// Returns the queried agents.
    pub fn subject(&self) -> &Subject {
        &self.subject
    }
}

impl Drop for Loads {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// An agent and the time of its next query.
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
                // Only while the load is wanted: the configuration may have changed.
                if !stop.load(Ordering::Relaxed) {
                    findings.report(Finding::Load {
                        key: one.key.clone(),
                        reading,
                    });
                }
            }
        }
        let next = agents.iter().map(|one| one.due).min();
        let wait = next.map_or(LOOK, |due| due.saturating_duration_since(Instant::now()));
        thread::sleep(wait.min(LOOK));
    }
}

/// Queries agents in parallel, each with its own timeout.
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
