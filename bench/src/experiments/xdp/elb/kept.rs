//! Connections that stay with their servers during changes of the servers, and across a restart of the balancer's
//! process.

use super::{CONNECTIONS, KNOWN, client, packet};
use anyhow::Context;
use nfluid_evnf::balancer::{Balancer, Mode, Server, Service, State, Transport};
use nfluid_evnf::load::Action;
use nfluid_testbed::directory::ScratchDirectory;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

/// Largest number of servers, the first at 203.0.113.1.
pub const SERVERS: u32 = 4;
/// The address of the service, which no server has.
const SERVICE: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(203, 0, 113, 100)), 80);

/// Returns the percentage of connections that keep their server after each change.
pub fn percent() -> anyhow::Result<f64> {
    let tables = Tables::new()?;
    let mut balancer = Balancer::load_kept(CONNECTIONS, &tables.folder)?;
    for number in 0..SERVERS - 1 {
        set(&mut balancer, number, State::Up)?;
    }
    share(&mut balancer, [1, 1, 1, 0])?;
    let servers = servers(&mut balancer)?;
    let (mut kept, mut all) = (0, 0);
    for change in 0..6 {
        match change {
            // Adds a server.
            0 => {
                set(&mut balancer, SERVERS - 1, State::Up)?;
                share(&mut balancer, [1, 1, 1, 1])?;
            }
            1 => share(&mut balancer, [9, 1, 5, 2])?,
            // Drains a server, ...
            2 => {
                set(&mut balancer, 0, State::Draining)?;
                share(&mut balancer, [1, 1, 1, 1])?;
            }
            // ... removes it from the service, ...
            3 => share(&mut balancer, [0, 1, 1, 1])?,
            // ... and adds it again.
            4 => {
                set(&mut balancer, 0, State::Up)?;
                share(&mut balancer, [1, 1, 1, 1])?;
            }
            _ => {
                drop(balancer);
                balancer = Balancer::load_kept(CONNECTIONS, &tables.folder)?;
            }
        }
        let now = self::servers(&mut balancer)?;
        kept += now.iter().zip(&servers).filter(|(a, b)| a == b).count();
        all += servers.len();
    }
    Ok(kept as f64 * 100.0 / all as f64)
}

fn set(balancer: &mut Balancer, number: u32, state: State) -> anyhow::Result<()> {
    let at = (Ipv4Addr::new(203, 0, 113, number as u8 + 1), 80).into();
    Ok(balancer.set_server(number, Server { at, state })?)
}

/// Sets the servers' weights. A server of weight 0 is left out of the service.
fn share(balancer: &mut Balancer, weights: [u32; SERVERS as usize]) -> anyhow::Result<()> {
    let servers = (0..).zip(weights).filter(|(_, weight)| *weight > 0);
    let service = Service {
        at: SERVICE,
        transport: Transport::Tcp,
        mode: Mode::Translate,
        servers: servers.collect(),
    };
    Ok(balancer.set_service(0, &service)?)
}

/// Returns the last octet of each connection's server.
fn servers(balancer: &mut Balancer) -> anyhow::Result<Vec<u8>> {
    let server = |port| {
        let run = balancer
            .fast()
            .test_run(&packet(client(port), SERVICE), 1)?;
        anyhow::ensure!(run.action == Action::Send, "a packet was not sent on");
        run.packet
            .get(33)
            .copied()
            .context("a packet without a destination")
    };
    (0..KNOWN).map(server).collect()
}

/// A private BPF file system; unmounted when dropped, before its folder is removed.
struct Tables {
    folder: PathBuf,
    _directory: ScratchDirectory,
}

impl Tables {
    fn new() -> anyhow::Result<Self> {
        let directory = ScratchDirectory::new()?;
        let folder = directory.path("tables");
        std::fs::create_dir(&folder).context("a folder for tables")?;
        mount("bpf", &folder, "bpf", MountFlags::empty(), None)
            .context("mounting a BPF file system")?;
        Ok(Tables {
            folder,
            _directory: directory,
        })
    }
}

impl Drop for Tables {
    fn drop(&mut self) {
        // A mount that remains does no harm.
        let _ = unmount(&self.folder, UnmountFlags::DETACH);
    }
}
