//! The tables that both forms of `top` show.

use crate::screen::{Table, core, percent, short_bytes, short_ns, short_number};
use crate::slices::slice_name;
use nfluid_api::types::{PortRates, Rates};

/// Returns titles and tables. Tables without rows are left out, except that of the instances.
pub fn all(rates: &Rates) -> Vec<(&'static str, Table)> {
    let mut tables = vec![("Instances", instances(rates)), ("Ports", ports(rates))];
    tables.push(("Uplinks", uplinks(rates)));
    tables.push(("Groups", groups(rates)));
    tables.push(("Chains", chains(rates)));
    tables.push(("Slices", slices(rates)));
    tables.push(("I/O threads", io_threads(rates)));
    tables.retain(|(title, table)| *title == "Instances" || !table.rows().is_empty());
    tables
}

fn instances(rates: &Rates) -> Table {
    let mut table = Table::new(&[
        "INSTANCE",
        "CPU GOT",
        "ASKED",
        "CORE",
        "AT UPLINKS",
        "I/O CPU",
        "MEMORY",
        "LIMIT",
        "RX PPS",
        "TX PPS",
        "DROP PPS",
        "NS/PACKET",
        "RESTARTS",
    ]);
    let dash = || "-".to_owned();
    for instance in &rates.instances {
        table.row([
            if instance.paused {
                format!("{} (paused)", instance.name)
            } else {
                instance.name.clone()
            },
            percent(Some(instance.got_percent)),
            percent(instance.share_percent),
            core(instance.core),
            percent(instance.uplink_percent),
            percent(instance.io_cpu_percent),
            instance.memory_bytes.map_or_else(dash, short_bytes),
            instance.memory_limit_bytes.map_or_else(dash, short_bytes),
            short_number(instance.rx_pps),
            short_number(instance.tx_pps),
            short_number(instance.drop_pps),
            instance.cost_ns.map_or_else(dash, |ns| format!("{ns:.0}")),
            instance.restarts.to_string(),
        ]);
    }
    table
}

fn uplinks(rates: &Rates) -> Table {
    let mut table = Table::new(&["UPLINK", "RECEIVE CPU", "NS/FRAME"]);
    for uplink in &rates.uplinks {
        table.row([
            uplink.name.clone(),
            percent(Some(uplink.receive_percent)),
            uplink
                .frame_ns
                .map_or_else(|| "-".to_owned(), |ns| format!("{ns:.0}")),
        ]);
    }
    table
}

fn groups(rates: &Rates) -> Table {
    let mut table = Table::new(&["GROUP", "CPU GOT", "ASKED"]);
    for group in &rates.groups {
        table.row([
            group.name.clone(),
            percent(Some(group.cpu_percent)),
            percent(group.share_percent),
        ]);
    }
    table
}

fn io_threads(rates: &Rates) -> Table {
    let mut table = Table::new(&["I/O THREAD", "MODEL", "INSTANCES", "CORE", "CPU GOT"]);
    for thread in &rates.io {
        table.row([
            thread.name.clone(),
            thread.model.clone(),
            thread.instances.len().to_string(),
            core(thread.core),
            percent(Some(thread.cpu_percent)),
        ]);
    }
    table
}

fn slices(rates: &Rates) -> Table {
    let mut table = Table::new(&[
        "SLICE",
        "DONE/S",
        "LATE/S",
        "LOST/S",
        "MAKESPAN",
        "UTILISATION",
    ]);
    for slice in &rates.slices {
        table.row([
            slice_name(&slice.instance, &slice.name),
            short_number(slice.done),
            short_number(slice.late),
            short_number(slice.lost),
            delay(slice.makespan_ns.map(|ns| ns as u64)),
            percent(slice.busy_percent),
        ]);
    }
    table
}

fn ports(rates: &Rates) -> Table {
    let mut table = Table::new(&[
        "PORT",
        "RX PPS",
        "RX BIT/S",
        "TX PPS",
        "TX BIT/S",
        "RING",
        "QUEUE DELAY",
        "BATCH",
        "MARKED PPS",
        "MARK",
        "DROPS",
    ]);
    for port in &rates.ports {
        table.row([
            port.name.clone(),
            short_number(port.rx_pps),
            short_number(port.rx_bps),
            short_number(port.tx_pps),
            short_number(port.tx_bps),
            percent(port.ring_percent),
            delay(port.queue_delay_ns),
            port.batch
                .map_or_else(|| "-".to_owned(), |n| format!("{n:.1}")),
            short_number(port.marked_pps),
            percent(port.mark_percent),
            drops(port),
        ]);
    }
    table
}

/// Returns the drops by reason in total, and per second where the counter grows now.
fn drops(port: &PortRates) -> String {
    let mut reasons: Vec<(&String, &u64)> = port.drops.iter().collect();
    reasons.sort_by(|a, b| b.1.cmp(a.1));
    let words: Vec<String> = reasons
        .into_iter()
        .map(|(reason, count)| match port.drop_pps.get(reason) {
            Some(rate) if *rate > 0.0 => format!("{reason} {count} (+{}/s)", short_number(*rate)),
            _ => format!("{reason} {count}"),
        })
        .collect();
    if words.is_empty() {
        return "-".into();
    }
    words.join(", ")
}

/// Returns the estimated time for which frames wait in rings.
fn delay(ns: Option<u64>) -> String {
    ns.map_or_else(|| "-".to_owned(), short_ns)
}

fn chains(rates: &Rates) -> Table {
    let mut table = Table::new(&[
        "CHAIN",
        "FORWARD PPS",
        "RETURN PPS",
        "QUEUE DELAY",
        "RETURN DELAY",
        "REFUSED PPS",
        "BOTTLENECK",
        "RETURN BOTTLENECK",
    ]);
    let name = |instance: &Option<String>| instance.clone().unwrap_or_else(|| "-".to_owned());
    for chain in &rates.chains {
        table.row([
            chain.name.clone(),
            short_number(chain.forward_pps),
            short_number(chain.return_pps),
            delay(chain.forward_delay_ns),
            delay(chain.return_delay_ns),
            short_number(chain.refused_pps),
            name(&chain.forward_bottleneck),
            name(&chain.return_bottleneck),
        ]);
    }
    table
}
