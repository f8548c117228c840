//! TCP by iperf3 between two namespaces, through the chain of `make demo` (firewall of 10 rules, nat, router, with the
//! daemon that users run), and through the kernel's routing, nftables with the same rules and masquerading. Both paths
//! are measured alternately with the same ends on the same two cores.

mod paths;

use crate::host::cpu::require_two_cores;
use crate::report::Report;
use crate::sweep::{Quantity, Shown, Side, Sweep};
use anyhow::Context;
use nfluid_testbed::command::output;
use nfluid_testbed::interrupt;
use nfluid_testbed::namespace::Namespace;
use nfluid_testbed::process::Background;
use paths::{Ends, KernelPath, NfluidPath};
use std::time::Duration;

/// The server's address on each path.
const BY_NFLUID: &str = "198.51.100.2";
const BY_KERNEL: &str = "198.51.101.2";
/// Number of pings between the ends before giving up, one second each.
const TRIES: u32 = 10;

/// Settings of segmentation and aggregation by the kernel's stack.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Offloads {
    /// The path's default settings.
    AsTheyCome,
    /// `tso off gso off gro off` on every veth of the path: no aggregated packets.
    Off,
}

const QUANTITIES: [Quantity; 1] = [Quantity::new(
    "",
    "Gbit/s",
    &[("Gbit/s", Shown::Median), ("spread", Shown::Spread)],
)];

/// A path and a setting.
#[derive(Clone, Copy)]
struct Variant {
    id: &'static str,
    address: &'static str,
    offloads: Offloads,
    what: &'static str,
}

const VARIANTS: [Variant; 4] = [
    Variant {
        id: "demo.iperf3.gbps",
        address: BY_NFLUID,
        offloads: Offloads::AsTheyCome,
        what: "nfluid, as in the demo: the sender's stack cuts segments late (GSO)",
    },
    Variant {
        id: "demo.iperf3.offloads_off_gbps",
        address: BY_NFLUID,
        offloads: Offloads::Off,
        what: "nfluid, TSO, GSO and GRO off",
    },
    Variant {
        id: "demo.iperf3.kernel_gbps",
        address: BY_KERNEL,
        offloads: Offloads::Off,
        what: "veth, routing, nftables with 10 rules, masquerading; TSO, GSO and GRO off",
    },
    Variant {
        id: "demo.iperf3.kernel_offloads_gbps",
        address: BY_KERNEL,
        offloads: Offloads::AsTheyCome,
        what: "the same with veth's default offloads: 64 KiB pieces cross the path whole",
    },
];

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
    let (rounds, seconds) = report.effort((5, 5), (1, 2));
    let side = |variant: Variant| {
        let conditions = format!("one stream, {seconds} s a round; {}", variant.what);
        Side::new([variant.id.to_owned()], variant.id, variant).under(&conditions)
    };
    let mut sides = VARIANTS.map(side);
    let mut sweep = Sweep::plain(&["figure"], QUANTITIES);
    sweep.notes = &["path"];
    sweep.run(report, rounds, &mut sides, |variant, _| {
        match variant.address {
            BY_NFLUID => nfluid.set(&ends, variant.offloads)?,
            _ => kernel.set(&ends, variant.offloads)?,
        }
        Ok([measure(&ends.client, variant.address, seconds)?])
    })?;
    for (row, variant) in sweep.rows_mut().iter_mut().zip(VARIANTS) {
        row.notes.push(variant.what.to_owned());
    }
    sweep.print(
        "TCP between two namespaces, one stream of iperf3, both ends and all between them on the same cores",
    );
    sweep.report_all(report);
    if let [_, nfluid, kernel, _] = sweep.rows() {
        let ratio = nfluid.samples[0].ratios(&kernel.samples[0]);
        let conditions = "nfluid / kernel, round by round, offloads off on both paths";
        report.figure("demo.iperf3.vs_kernel", &ratio, "x", conditions);
    }
    Ok(())
}

/// Waits until the path forwards.
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
    // The server prints nothing when it is ready; a client that starts earlier fails.
    std::thread::sleep(Duration::from_millis(500));
    Ok(server)
}

fn measure(client: &Namespace, address: &str, seconds: u32) -> anyhow::Result<f64> {
    let mut command = client.command("iperf3");
    command.args(["-J", "-t", &seconds.to_string(), "-c", address]);
    let output = output(&mut command)?;
    let json: serde_json::Value = serde_json::from_str(&output).context("what iperf3 says")?;
    let rate = json["end"]["sum_received"]["bits_per_second"].as_f64();
    Ok(rate.context("what iperf3 received")? / 1e9)
}
