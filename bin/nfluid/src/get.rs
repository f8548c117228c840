//! `nfluid get` and `nfluid describe`.

use crate::args::{Cli, Describable, DescribeArgs, GetArgs, Resource};
use crate::events::events_table;
use crate::failure::Failure;
use crate::screen::{Screen, Style, Table, core, percent, short_bytes, short_time};
use crate::slices;
use clap::CommandFactory;
use clap::error::ErrorKind;
use nfluid_api::client::{Client, escaped};
use nfluid_api::types::{
    Amount, Capacity, ChainStatus, Counters, EventPage, GroupStatus, InstanceStatus, IoStatus,
    LinkStatus, PoolStatus, PortStatus, SecurityGroupStatus, SteeringStatus, SwitchStatus,
    TemplateStatus, UplinkStatus,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::time::Duration;

/// Time between two prints of `--watch`.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

pub async fn get(client: &Client, screen: Screen, args: &GetArgs) -> Result<(), Failure> {
    let is_one = matches!(
        args.resource,
        Resource::Capacity | Resource::Io | Resource::Deployment
    );
    if let Some(name) = args.name.as_ref().filter(|_| is_one) {
        let message = format!("unexpected argument '{name}': there is only one of this kind");
        let usage = Cli::command().error(ErrorKind::UnknownArgument, message);
        usage.exit();
    }
    loop {
        if args.watch {
            screen.clear()?;
        }
        get_once(client, screen, args).await?;
        if !args.watch {
            return Ok(());
        }
        tokio::time::sleep(WATCH_INTERVAL).await;
    }
}

async fn get_once(client: &Client, screen: Screen, args: &GetArgs) -> Result<(), Failure> {
    match args.resource {
        Resource::Instances => list(client, screen, args, "instances", instances_table).await,
        Resource::Groups => list(client, screen, args, "groups", groups_table).await,
        Resource::Ports => list(client, screen, args, "ports", ports_table).await,
        Resource::Switches => list(client, screen, args, "switches", switches_table).await,
        Resource::SecurityGroups => {
            let kind = "security-groups";
            list(client, screen, args, kind, security_groups_table).await
        }
        Resource::Links => list(client, screen, args, "links", links_table).await,
        Resource::Chains => list(client, screen, args, "chains", chains_table).await,
        Resource::Uplinks => list(client, screen, args, "uplinks", uplinks_table).await,
        Resource::Pools => list(client, screen, args, "pools", pools_table).await,
        Resource::Templates => list(client, screen, args, "templates", templates_table).await,
        Resource::Slices => slices::get(client, screen, args).await,
        Resource::Capacity => {
            let capacity: Capacity = client.get("/v1/capacity").await?;
            screen.object(args.output, &capacity, || print_capacity(screen, &capacity))
        }
        Resource::Io => {
            let io: IoStatus = client.get("/v1/io").await?;
            screen.object(args.output, &io, || print_io(screen, &io))
        }
        Resource::Events => {
            let mut page: EventPage = client.get("/v1/events").await?;
            if let Some(name) = &args.name {
                page.events.retain(|event| event.name == *name);
            }
            let events = &page.events;
            screen.object(args.output, events, || screen.table(&events_table(events)))
        }
        Resource::Deployment => {
            let deployment: Value = client.get("/v1/deployment").await?;
            // A deployment has no table: its own syntax is the readable form.
            screen.object(args.output, &deployment, || {
                screen.print(&nfluid_control::yaml::to_text(&deployment))
            })
        }
    }
}

async fn list<T: Serialize + DeserializeOwned>(
    client: &Client,
    screen: Screen,
    args: &GetArgs,
    kind: &str,
    table: fn(&[T]) -> Table,
) -> Result<(), Failure> {
    if let Some(name) = &args.name {
        let path = format!("/v1/{kind}/{}", escaped(name));
        let object: T = client.get(&path).await?;
        return screen.object(args.output, &object, || {
            screen.table(&table(std::slice::from_ref(&object)))
        });
    }
    let objects: Vec<T> = client.get(&format!("/v1/{kind}")).await?;
    screen.object(args.output, &objects, || screen.table(&table(&objects)))
}

fn instances_table(instances: &[InstanceStatus]) -> Table {
    let mut table = Table::new(&[
        "NAME", "NF", "STATE", "AGE", "RESTARTS", "IO", "TRUST", "FLAVOR", "GROUP", "SHARE", "CAP",
        "CORE", "MEMORY", "PORTS",
    ]);
    for instance in instances {
        table.row([
            instance.name.clone(),
            instance.nf.clone(),
            instance.state.to_string(),
            instance.uptime_ms.map_or_else(|| "-".into(), short_time),
            instance.restarts.to_string(),
            instance.io.clone(),
            instance.trust.clone().unwrap_or_else(|| "-".to_owned()),
            or_dash(&instance.flavor),
            instance.group.clone().unwrap_or_else(|| "-".to_owned()),
            percent(instance.share_percent),
            percent(instance.cap_percent),
            core(instance.core),
            match instance.memory_limit_bytes {
                0 => "-".to_owned(),
                bytes => short_bytes(bytes),
            },
            place(instance),
        ]);
    }
    table
}

/// Returns the number of its ports, or the interfaces that it is attached to.
fn place(instance: &InstanceStatus) -> String {
    match &instance.fast {
        None => instance.ports.len().to_string(),
        Some(fast) => {
            let names = fast.interfaces.iter();
            let names: Vec<&str> = names.map(|interface| interface.name.as_str()).collect();
            names.join(" ")
        }
    }
}

fn or_dash(text: &str) -> String {
    match text {
        "" => "-".to_owned(),
        text => text.to_owned(),
    }
}

fn groups_table(groups: &[GroupStatus]) -> Table {
    let mut table = Table::new(&[
        "NAME",
        "GROUP",
        "SHARE",
        "GUARANTEE",
        "CAP",
        "GROUPS",
        "INSTANCES",
    ]);
    for group in groups {
        table.row([
            group.name.clone(),
            group.group.clone().unwrap_or_else(|| "-".to_owned()),
            percent(group.share_percent),
            percent(group.guarantee_percent),
            percent(group.cap_percent),
            group.groups.len().to_string(),
            group.instances.len().to_string(),
        ]);
    }
    table
}

fn ports_table(ports: &[PortStatus]) -> Table {
    let mut table = Table::new(&[
        "NAME",
        "STATE",
        "MAC",
        "DESTINATION",
        "RING",
        "RX",
        "TX",
        "DROPS",
    ]);
    for port in ports {
        table.row([
            port.name.clone(),
            port.state.to_string(),
            port.mac.clone(),
            port.destination.clone(),
            match port.queues {
                0 | 1 => port.ring.to_string(),
                queues => format!("{queues}x{}", port.ring),
            },
            port.counters.rx_packets.to_string(),
            port.counters.tx_packets.to_string(),
            port.counters.dropped().to_string(),
        ]);
    }
    table
}

fn switches_table(switches: &[SwitchStatus]) -> Table {
    let mut table = Table::new(&["NAME", "PORTS", "ADDRESSES", "AGEING"]);
    for switch in switches {
        table.row([
            switch.name.clone(),
            switch.ports.len().to_string(),
            switch
                .addresses
                .map_or_else(|| "-".into(), |n| n.to_string()),
            format!("{}s", switch.ageing_s),
        ]);
    }
    table
}

fn security_groups_table(groups: &[SecurityGroupStatus]) -> Table {
    let mut table = Table::new(&["NAME", "RULES", "ADDRESSES", "PORTS"]);
    for group in groups {
        table.row([
            group.name.clone(),
            group.rules.to_string(),
            group.addresses.len().to_string(),
            or_dash(&group.ports.join(",")),
        ]);
    }
    table
}

fn links_table(links: &[LinkStatus]) -> Table {
    let mut table = Table::new(&["NAME", "STATE", "A", "B"]);
    for link in links {
        table.row([
            link.name.clone(),
            link.state.to_string(),
            link.a.clone(),
            link.b.clone(),
        ]);
    }
    table
}

fn chains_table(chains: &[ChainStatus]) -> Table {
    let mut table = Table::new(&["NAME", "STATE", "FROM", "VIA", "TO", "MATCH"]);
    for chain in chains {
        let rules = match chain.rules.as_slice() {
            [] => "everything".to_owned(),
            [only] => only.clone(),
            many => format!("{} rules", many.len()),
        };
        table.row([
            chain.name.clone(),
            chain.state.to_string(),
            chain.from.clone(),
            chain.via.join(" > "),
            chain.to.clone(),
            rules,
        ]);
    }
    table
}

fn uplinks_table(uplinks: &[UplinkStatus]) -> Table {
    let mut table = Table::new(&[
        "NAME",
        "STATE",
        "INTERFACE",
        "NETNS",
        "MODE",
        "FRAMES",
        "BY NIC",
        "DESTINATION",
        "RX",
        "TX",
        "DROPS",
        "REASON",
    ]);
    for uplink in uplinks {
        let or_dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".into());
        let steering = uplink.steering.as_ref();
        let steering_reason = steering.and_then(|steering| steering.reason.clone());
        let reason = uplink.reason.clone().or(steering_reason);
        table.row([
            uplink.name.clone(),
            uplink.state.to_string(),
            uplink.interface.clone(),
            or_dash(&uplink.netns),
            uplink.mode.clone().unwrap_or_else(|| uplink.kind.clone()),
            uplink.frames.clone(),
            steering.map_or("-".into(), by_nic),
            uplink.destination.clone(),
            uplink.counters.rx_packets.to_string(),
            uplink.counters.tx_packets.to_string(),
            uplink.counters.dropped().to_string(),
            or_dash(&reason),
        ]);
    }
    table
}

/// Returns the rules and frames that the NIC classifies, of all.
fn by_nic(steering: &SteeringStatus) -> String {
    let rules = steering.rules + steering.rules_by_xdp;
    let frames = steering.frames + steering.frames_by_xdp;
    format!(
        "{} of {rules} rules, {} of {frames} frames",
        steering.rules, steering.frames
    )
}

fn pools_table(pools: &[PoolStatus]) -> Table {
    let mut table = Table::new(&[
        "NAME", "FLAVOR", "PORTS", "FOR", "GROUP", "TRUST", "WANTED", "READY", "TAKEN", "MISSED",
        "PROBLEM",
    ]);
    let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".into());
    for pool in pools {
        table.row([
            pool.name.clone(),
            pool.flavor.clone(),
            pool.ports.to_string(),
            pool.purpose.clone(),
            or_none(&pool.group),
            or_none(&pool.trust),
            pool.wanted.to_string(),
            pool.ready.to_string(),
            pool.taken.to_string(),
            pool.missed.to_string(),
            or_none(&pool.problem),
        ]);
    }
    table
}

fn templates_table(templates: &[TemplateStatus]) -> Table {
    let mut table = Table::new(&[
        "NAME",
        "FROM",
        "TO",
        "CLIENTS",
        "MOST",
        "PER SECOND",
        "MADE",
        "ENDED",
        "REFUSED",
    ]);
    for template in templates {
        let refused = template.refused.iter();
        let refused: Vec<String> = refused
            .map(|(reason, frames)| format!("{reason} {frames}"))
            .collect();
        table.row([
            template.name.clone(),
            template.from.clone(),
            template.to.clone(),
            template.clients.to_string(),
            template.most.to_string(),
            template.per_second.to_string(),
            template.made.to_string(),
            template.ended.to_string(),
            if refused.is_empty() {
                "-".into()
            } else {
                refused.join(", ")
            },
        ]);
    }
    table
}

fn print_capacity(screen: Screen, capacity: &Capacity) -> Result<(), Failure> {
    let mut table = Table::new(&["", "TOTAL", "PROMISED", "FREE"]);
    let mut row = |what: &str, amount: Amount, told: &dyn Fn(u64) -> String| {
        let Amount { total, used, free } = amount;
        table.row([what.to_owned(), told(total), told(used), told(free)]);
    };
    let cores = |per_mille: u64| format!("{:.3}", per_mille as f64 / 1000.0);
    row("CPU shares (cores)", capacity.share_per_mille, &cores);
    row("memory", capacity.memory_bytes, &|bytes| short_bytes(bytes));
    row("ports", capacity.ports, &|count| count.to_string());
    row("instances", capacity.instances, &|count| count.to_string());
    screen.table(&table)?;
    let cpus: Vec<String> = capacity.cpus.iter().map(u32::to_string).collect();
    screen.line(&format!("cpus: {}", cpus.join(", ")))?;
    screen.line(&format!("tiers: {}", capacity.tiers.join(", ")))?;
    screen.line(&format!("nfs: {}", capacity.nfs.join(", ")))?;
    for (key, value) in &capacity.labels {
        screen.line(&format!("label: {key}={value}"))?;
    }
    Ok(())
}

fn print_io(screen: Screen, io: &IoStatus) -> Result<(), Failure> {
    let mut table = Table::new(&["THREAD", "MODEL", "INSTANCES", "CORE", "CPU TIME"]);
    for thread in &io.stats.threads {
        table.row([
            thread.name.clone(),
            thread.model.clone(),
            thread.instances.join(" "),
            core(thread.core),
            cpu_time(thread.cpu_ns),
        ]);
    }
    screen.table(&table)?;
    let cap = io.cap_percent.map_or_else(String::new, |_| {
        format!(" of at most {} of a core", percent(io.cap_percent))
    });
    screen.line(&format!("all together: {}{cap}", cpu_time(io.stats.cpu_ns)))?;
    match &io.reason {
        Some(reason) => screen.line(reason),
        None => Ok(()),
    }
}

fn cpu_time(ns: u64) -> String {
    format!("{:.3}s", ns as f64 / 1e9)
}

/// Events about an object that are shown with it.
const EVENTS_SHOWN: usize = 10;

pub async fn describe(client: &Client, screen: Screen, args: &DescribeArgs) -> Result<(), Failure> {
    let kind = match args.resource {
        Describable::Instance => "instances",
        Describable::Group => "groups",
        Describable::Port => "ports",
        Describable::Switch => "switches",
        Describable::SecurityGroup => "security-groups",
        Describable::Link => "links",
        Describable::Chain => "chains",
        Describable::Uplink => "uplinks",
        Describable::Pool => "pools",
        Describable::Template => "templates",
        Describable::Slice => return slices::describe(client, screen, args).await,
    };
    let path = format!("/v1/{kind}/{}", escaped(&args.name));
    let object: Value = client.get(&path).await?;
    screen.print(&nfluid_control::yaml::to_text(&object))?;
    // A fast path has interfaces instead, which are shown already.
    if matches!(args.resource, Describable::Instance) && object["tier"] != "xdp" {
        describe_ports(client, screen, &args.name).await?;
    }
    let page: EventPage = client.get("/v1/events").await?;
    let about = |name: &str| name == args.name;
    let events: Vec<_> = page.events.into_iter().filter(|e| about(&e.name)).collect();
    if !events.is_empty() {
        heading(screen, "Last events")?;
        let first = events.len().saturating_sub(EVENTS_SHOWN);
        screen.table(&events_table(events.get(first..).unwrap_or_default()))?;
    }
    Ok(())
}

fn heading(screen: Screen, text: &str) -> Result<(), Failure> {
    screen.line(&format!("\n{}", screen.styled(Style::Bold, text)))
}

async fn describe_ports(client: &Client, screen: Screen, instance: &str) -> Result<(), Failure> {
    let ports: Vec<PortStatus> = client.get("/v1/ports").await?;
    let is_own = |port: &PortStatus| {
        port.name
            .strip_prefix(instance)
            .is_some_and(|rest| rest.starts_with('.'))
    };
    let own: Vec<PortStatus> = ports.into_iter().filter(is_own).collect();
    heading(screen, "Ports")?;
    screen.table(&ports_table(&own))?;
    for port in &own {
        if let Some(text) = drops_text(&port.counters) {
            screen.line(&format!("{} dropped: {text}", port.name))?;
        }
    }
    Ok(())
}

/// Drops by reason, the most frequent first; `None` if there are none.
pub fn drops_text(counters: &Counters) -> Option<String> {
    let mut drops: Vec<(&String, &u64)> = counters.drops.iter().filter(|(_, n)| **n > 0).collect();
    drops.sort_by(|a, b| b.1.cmp(a.1));
    let words: Vec<String> = drops
        .iter()
        .map(|(reason, n)| format!("{reason} {n}"))
        .collect();
    (!words.is_empty()).then(|| words.join(", "))
}
