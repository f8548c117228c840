//! OpenVIM's interface: from the request for a server until it is active, and until the first frame has crossed it; beside the same instance by
//! nfluid's own API (V1).

use super::orchestrated::{Hosts, SHELLS, row};
use crate::report::{Report, table};
use anyhow::{Context, ensure};
use nfluid_figures::statistics::Samples;
use nfluid_testbed::directory::ScratchDirectory;
use nfluid_testbed::interrupt;
use nfluid_testbed::openvim::{OpenVim, Tenant};
use nfluid_testbed::program::built;
use serde_json::{Value, json};
use std::time::Instant;

struct Setup {
    // The manager ends before its host.
    manager: OpenVim,
    hosts: Hosts,
    /// The path of a tenant's servers, and the request for one.
    servers: String,
    server: Value,
    _folder: ScratchDirectory,
}

impl Setup {
    fn new() -> anyhow::Result<Self> {
        let program = built("nfluid-openvim", "nfluid-openvim")?;
        let hosts = Hosts::without_uplinks()?;
        let folder = ScratchDirectory::new()?;
        let mut manager = OpenVim::new(program, &folder.path(""), Vec::new())?;
        manager.start()?;
        let host = json!({ "name": "here", "ip_name": hosts.platform.socket(), "user": "nobody" });
        manager.make("hosts", "host", host)?;
        let [lan, _] = manager.network_on("lan")?;
        let [wan, _] = manager.network_on("wan")?;
        let tenant = Tenant::new(&manager, "1%")?;
        let server = tenant.server("s", &[&lan, &wan]);
        Ok(Setup {
            manager,
            hosts,
            servers: tenant.servers,
            server,
            _folder: folder,
        })
    }

    /// Makes a server; returns its path and the milliseconds until the answer that it is active.
    fn make(&self) -> anyhow::Result<(String, f64)> {
        let begun = Instant::now();
        let answer = self.manager.must("POST", &self.servers, &self.server)?;
        let ms = begun.elapsed().as_secs_f64() * 1e3;
        let server = &answer["server"];
        ensure!(
            server["status"] == "ACTIVE",
            "the server is not active: {answer}"
        );
        let id = server["id"].as_str().unwrap_or_default();
        Ok((format!("{}/{id}", self.servers), ms))
    }

    fn remove(&self, path: &str) -> anyhow::Result<f64> {
        let begun = Instant::now();
        self.manager.must("DELETE", path, &Value::Null)?;
        Ok(begun.elapsed().as_secs_f64() * 1e3)
    }

    /// The same instance by nfluid's own API, until the first frame.
    fn directly(&self) -> anyhow::Result<f64> {
        let mut api = self.hosts.platform.api()?;
        let deployment = api.get("/v1/deployment")?;
        let port = |interface: &str| {
            let uplinks = deployment["uplinks"].as_object();
            let mut uplinks = uplinks.into_iter().flat_map(|all| all.values());
            let uplink = uplinks.find(|uplink| uplink["interface"] == interface);
            let uplink = uplink.context("no uplink on an interface")?;
            anyhow::Ok(json!({ "switch": uplink["switch"], "learn": true }))
        };
        let ports = json!({ "in": port("lan")?, "out": port("wan")? });
        let instance = json!({ "nf": "bridge", "flavor": "small", "memory": "16MiB", "share": "1%", "ports": ports });
        let request = json!({ "instance": instance });
        let path = "/v1/instances/direct";
        let (ms, _) = self
            .hosts
            .until_first_frame(|| api.request("PUT", path, &request))?;
        api.request("DELETE", path, &Value::Null)?;
        Ok(ms)
    }
}

/// Runs the experiment.
pub fn run_openvim(report: &mut Report) -> anyhow::Result<()> {
    let (rounds, many, turns) = report.choose((100, 50, 5), (5, 5, 1));
    let setup = Setup::new()?;
    report.settle();
    let [mut active, mut first_frame, mut direct, mut removed] = [const { Vec::new() }; 4];
    for _ in 0..rounds {
        interrupt::check()?;
        setup.hosts.await_shells()?;
        direct.push(setup.directly()?);
        setup.hosts.await_shells()?;
        let (ms, (path, answered)) = setup.hosts.until_first_frame(|| setup.make())?;
        first_frame.push(ms);
        active.push(answered);
        removed.push(setup.remove(&path)?);
    }
    let mut rates = Vec::new();
    for _ in 0..turns {
        let begun = Instant::now();
        let mut paths = Vec::new();
        for _ in 0..many {
            interrupt::check()?;
            paths.push(setup.make()?.0);
        }
        rates.push(f64::from(many) / begun.elapsed().as_secs_f64());
        for path in paths {
            setup.remove(&path)?;
        }
    }
    let [active, first_frame, direct, removed, rates] =
        [active, first_frame, direct, removed, rates].map(Samples::from_iter);
    let conditions = format!(
        "a bridge between two networks, from a pool of {SHELLS}; {rounds} in turn, one after the other"
    );
    let figures = [
        (
            "v1.openvim.ms",
            &active,
            "request until the answer that it is ACTIVE",
        ),
        (
            "v1.openvim.first_frame_ms",
            &first_frame,
            "request until the first frame",
        ),
        (
            "v1.openvim.nfluid_ms",
            &direct,
            "the same instance by nfluid's API, until the first frame",
        ),
        ("v1.openvim.remove_ms", &removed, "removal until the answer"),
    ];
    for (id, samples, what) in figures {
        report.figure(id, samples, "ms", &format!("{conditions}; {what}"));
    }
    let conditions =
        format!("{many} servers by one client, {turns} in turn, more than the pool has");
    report.figure("v1.openvim.rate_per_s", &rates, "1/s", &conditions);
    table(
        "OpenVIM, one server",
        &["until", "median ms", "mean ms"],
        &[
            row("active", &active),
            row("first frame", &first_frame),
            row("nfluid alone, first frame", &direct),
            row("removed", &removed),
        ],
    );
    Ok(())
}
