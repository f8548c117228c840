//! TCP by iperf3 between two namespaces, through the chain of `make demo` (firewall of 10 rules, nat,
//! router, with the daemon that users run), and through the kernel's routing, nftables with the same
//! rules and masquerading. The same ends, the same two cores, in turn.

mod paths;

use crate::host::cpu::require_two_cores;
use crate::report::{Report, significant, table};
use anyhow::Context;
use nfluid_figures::statistics::Samples;
use nfluid_testbed::command::output;
use nfluid_testbed::interrupt;
use nfluid_testbed::namespace::Namespace;
use nfluid_testbed::process::Background;
use paths::{Ends, KernelPath, NfluidPath};
use std::time::Duration;

/// The server's addresses, by the way to it.
const BY_NFLUID: &str = "198.51.100.2";
const BY_KERNEL: &str = "198.51.101.2";
/// How often the ends try to reach each other, and wait a second for it.
const TRIES: u32 = 10;

/// Segmentation and aggregation by the kernel's stack.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Offloads {
    /// As the path has them when nobody changes anything.
    AsTheyCome,
    /// `tso off gso off gro off` on every veth of the path: a packet is a packet.
    Off,
}

/// A path and a setting.
struct Variant {
    id: &'static str,
    address: &'static str,
    offloads: Offloads,
    what: &'static str,
    gbps: Samples,
}

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    require_two_cores()?;
    let ends = Ends::new()?;
    let nfluid = NfluidPath::new(&ends)?;
    let kernel = KernelPath::new(&ends)?;
    for address in [BY_NFLUID, BY_KERNEL] {
        reach(&ends.client, address)?;
    }
    let _server = serve(&ends.server)?;
    let mut variants = variants();
    let (rounds, seconds) = report.effort((5, 5), (1, 2));
    for _ in 0..rounds {
        for variant in &mut variants {
            interrupt::check()?;
            match variant.address {
                BY_NFLUID => nfluid.set(&ends, variant.offloads)?,
                _ => kernel.set(&ends, variant.offloads)?,
            }
            variant
                .gbps
                .push(measure(&ends.client, variant.address, seconds)?);
        }
    }
    let row = |variant: &Variant| {
        vec![
            variant.id.to_owned(),
            significant(variant.gbps.median()),
            format!("{:.0} %", variant.gbps.spread_percent()),
            variant.what.to_owned(),
        ]
    };
    let rows: Vec<_> = variants.iter().map(row).collect();
    let title = "TCP between two namespaces, one stream of iperf3, both ends and all between them on the same cores";
    table(title, &["figure", "Gbit/s", "spread", "path"], &rows);
    for variant in &variants {
        let conditions = format!("one stream, {seconds} s a round; {}", variant.what);
        report.figure(variant.id, &variant.gbps, "Gbit/s", &conditions);
    }
    let rounds = variants[1]
        .gbps
        .values()
        .iter()
        .zip(variants[2].gbps.values());
    let ratio: Samples = rounds.map(|(nfluid, kernel)| nfluid / kernel).collect();
    let conditions = "nfluid / kernel, round by round, offloads off on both paths";
    report.figure("demo.iperf3.vs_kernel", &ratio, "x", conditions);
    Ok(())
}

fn variants() -> [Variant; 4] {
    let variant = |id, address, offloads, what| Variant {
        id,
        address,
        offloads,
        what,
        gbps: Samples::default(),
    };
    [
        variant(
            "demo.iperf3.gbps",
            BY_NFLUID,
            Offloads::AsTheyCome,
            "nfluid, as in the demo: the sender's stack cuts segments late (GSO)",
        ),
        variant(
            "demo.iperf3.offloads_off_gbps",
            BY_NFLUID,
            Offloads::Off,
            "nfluid, TSO, GSO and GRO off",
        ),
        variant(
            "demo.iperf3.kernel_gbps",
            BY_KERNEL,
            Offloads::Off,
            "veth, routing, nftables with 10 rules, masquerading; TSO, GSO and GRO off",
        ),
        variant(
            "demo.iperf3.kernel_offloads_gbps",
            BY_KERNEL,
            Offloads::AsTheyCome,
            "the same with veth's default offloads: 64 KiB pieces cross the path whole",
        ),
    ]
}

/// Waits until the path is there.
fn reach(client: &Namespace, address: &str) -> anyhow::Result<()> {
    let mut answer = Ok(String::new());
    for _ in 0..TRIES {
        interrupt::check()?;
        answer = client.run(&format!("ping -c 1 -W 1 {address}"));
        if answer.is_ok() {
            return Ok(());
        }
    }
    answer
        .map(drop)
        .with_context(|| format!("no way to {address}"))
}

fn serve(namespace: &Namespace) -> anyhow::Result<Background> {
    let mut command = namespace.command("iperf3");
    let server = Background::start(command.arg("-s"))?;
    // It says nothing that could be waited for; the client fails when it is not there yet.
    std::thread::sleep(Duration::from_millis(500));
    Ok(server)
}

fn measure(client: &Namespace, address: &str, seconds: u32) -> anyhow::Result<f64> {
    let mut command = client.command("iperf3");
    command.args(["-J", "-t", &seconds.to_string(), "-c", address]);
    let said = output(&mut command)?;
    let json: serde_json::Value = serde_json::from_str(&said).context("what iperf3 says")?;
    let rate = json["end"]["sum_received"]["bits_per_second"].as_f64();
    Ok(rate.context("what iperf3 received")? / 1e9)
}
