//! Ports with several queues: one thread for each queue, with an NF of its own.
//!
//! The switch spreads frames by flow, and both directions of a flow alike: the NF that has queue 1 of
//! every port sees all of its flows, and no other NF sees anything of them. All queues share the
//! instance's doorbell; a thread without ports waits on it and wakes them.

use crate::host::Host;
use anyhow::{Context, bail};
use nfluid_protocol::instance::Control;
use nfluid_ring::attach::Attached;
use nfluid_ring::doorbell::{AGEING, Doorbell};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Divides the queues: each part gets its own queue of every port. The instance's doorbell is returned separately,
/// except with a single queue, which keeps it.
pub fn divide(attached: Attached) -> anyhow::Result<(Vec<Attached>, Option<Doorbell>)> {
    let queues = attached.ports.iter().map(|port| port.entry().queues);
    let queues = usize::from(queues.max().unwrap_or(1).max(1));
    if queues == 1 {
        return Ok((vec![attached], None));
    }
    let mut divided = Vec::with_capacity(queues);
    for _ in 0..queues {
        divided.push(Attached {
            pool: Arc::clone(&attached.pool),
            ports: Vec::new(),
            doorbell: Doorbell::new(None, None)?,
        });
    }
    for port in attached.ports {
        let entry = port.entry();
        if usize::from(entry.queues) != queues {
            bail!(
                "port '{}' has {} queues, others {queues}",
                entry.name(),
                entry.queues
            );
        }
        let queue = divided
            .get_mut(usize::from(entry.queue))
            .with_context(|| format!("port '{}' has no queue {}", entry.name(), entry.queue))?;
        queue.ports.push(port);
    }
    Ok((divided, Some(attached.doorbell)))
}

/// Runs all queues until the process is killed.
pub fn run(
    hosts: Vec<Host>,
    controls: Vec<Control>,
    doorbell: Option<Doorbell>,
) -> anyhow::Result<()> {
    let Some(doorbell) = doorbell else {
        return hosts
            .into_iter()
            .zip(controls)
            .try_for_each(|(host, control)| forward(host, control));
    };
    let wakes = controls
        .iter()
        .map(|control| control.wake().try_clone())
        .collect::<Result<_, _>>()
        .context("duplicating an eventfd")?;
    for (number, (host, control)) in hosts.into_iter().zip(controls).enumerate() {
        std::thread::Builder::new()
            .name(format!("queue-{number}"))
            .spawn(move || {
                if let Err(error) = forward(host, control) {
                    eprintln!("nfluid: queue {number}: {error:#}");
                }
                // An instance that loses the NF of some of its flows is worse than one that restarts.
                std::process::exit(1)
            })
            .context("starting a queue's thread")?;
    }
    wake_all(doorbell, wakes)
}

fn forward(mut host: Host, mut control: Control) -> anyhow::Result<()> {
    loop {
        host.round(&mut control)?;
    }
}

/// Waits for rings and wakes all queues, since a ring does not name a queue. The wake-up stays in the eventfd of a
/// thread that is about to sleep.
fn wake_all(mut doorbell: Doorbell, queues: Vec<OwnedFd>) -> anyhow::Result<()> {
    loop {
        if doorbell.wait_for_ring(AGEING)? {
            for wake in &queues {
                // The eventfd is full only after 2^64 rings, and then it is readable already.
                let _ = rustix::io::write(wake, &1u64.to_ne_bytes());
            }
        }
    }
}
