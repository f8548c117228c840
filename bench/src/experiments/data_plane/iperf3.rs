//! TCP by iperf3 between two namespaces, through the chain of `make demo` (firewall of 10 rules, nat, router, with the
//! daemon that users run), and through the kernel's routing, nftables with the same rules and masquerading. Both paths
//! are measured alternately with the same ends on the same two cores.

use super::tcp_paths::{Ends, KernelPath, NfluidPath, Offloads, Uplinks, iperf};
use crate::host::cpu::require_two_cores;
use crate::report::Report;
use crate::sweep::{Quantity, Shown, Side, Sweep};

const QUANTITIES: [Quantity; 1] = [Quantity::new(
    "",
    "Gbit/s",
    &[("Gbit/s", Shown::Median), ("spread", Shown::Spread)],
)];

/// The way of the packets.
#[derive(Clone, Copy)]
enum Path {
    Nfluid,
    Kernel,
}

/// A path and a setting.
#[derive(Clone, Copy)]
struct Variant {
    id: &'static str,
    path: Path,
    offloads: Offloads,
    what: &'static str,
}

const VARIANTS: [Variant; 4] = [
    Variant {
        id: "demo.iperf3.gbps",
        path: Path::Nfluid,
        offloads: Offloads::AsTheyCome,
        what: "nfluid, as in the demo, default settings",
    },
    Variant {
        id: "demo.iperf3.offloads_off_gbps",
        path: Path::Nfluid,
        offloads: Offloads::Off,
        what: "nfluid, 'super: off', TSO, GSO and GRO off at the ends",
    },
    Variant {
        id: "demo.iperf3.kernel_gbps",
        path: Path::Kernel,
        offloads: Offloads::Off,
        what: "veth, routing, nftables with 10 rules, masquerading; TSO, GSO and GRO off",
    },
    Variant {
        id: "demo.iperf3.kernel_offloads_gbps",
        path: Path::Kernel,
        offloads: Offloads::AsTheyCome,
        what: "the same with veth's default offloads: 64 KiB pieces cross the path whole",
    },
];

// Places of the variants in [`VARIANTS`].
const NFLUID: usize = 0;
const PLAIN: usize = 1;
const KERNEL: usize = 2;
const KERNEL_OFFLOADS: usize = 3;

/// Ratios of two variants: figure, numerator and denominator, conditions.
const RATIOS: [(&str, [usize; 2], &str); 3] = [
    (
        "demo.iperf3.vs_kernel_offloads",
        [NFLUID, KERNEL_OFFLOADS],
        "nfluid with default settings / kernel with offloads",
    ),
    (
        "demo.iperf3.vs_kernel",
        [NFLUID, KERNEL],
        "nfluid with default settings / kernel with offloads off: the kernel cuts packets early, nfluid does not",
    ),
    (
        "demo.iperf3.plain_vs_kernel",
        [PLAIN, KERNEL],
        "nfluid / kernel, offloads off on both paths",
    ),
];

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    require_two_cores()?;
    let ends = Ends::new()?;
    let mut nfluid = NfluidPath::new(&ends, Uplinks::Veth)?;
    let kernel = KernelPath::new(&ends)?;
    for server in [nfluid.server(), kernel.server()] {
        ends.reach(&server)?;
    }
    let _server = iperf::serve(&ends.server)?;
    let (rounds, seconds) = report.effort((5, 5), (1, 2));
    let side = |variant: Variant| {
        let conditions = format!("one stream, {seconds} s a round; {}", variant.what);
        Side::new([variant.id.to_owned()], variant.id, variant).under(&conditions)
    };
    let mut sides = VARIANTS.map(side);
    let mut sweep = Sweep::plain(&["figure"], QUANTITIES);
    sweep.notes = &["path"];
    let mut level = String::new();
    sweep.run(report, rounds, &mut sides, |variant, _| {
        let server = match variant.path {
            Path::Nfluid => {
                nfluid.set(&ends, variant.offloads)?;
                if variant.offloads == Offloads::AsTheyCome {
                    level = nfluid.level()?;
                }
                nfluid.server()
            }
            Path::Kernel => {
                kernel.set(&ends, variant.offloads)?;
                kernel.server()
            }
        };
        Ok([iperf::send(&ends.client, &server, 1, seconds)?.gbps()])
    })?;
    let level = format!("; the uplinks' frames: {level}");
    sweep.rows_mut()[NFLUID].conditions += &level;
    for (row, variant) in sweep.rows_mut().iter_mut().zip(VARIANTS) {
        row.notes.push(variant.what.to_owned());
    }
    sweep.rows_mut()[NFLUID].notes[0] += &level;
    sweep.print(
        "TCP between two namespaces, one stream of iperf3, both ends and all between them on the same cores",
    );
    sweep.report_all(report);
    for (id, rows, conditions) in RATIOS {
        let [one, other] = rows.map(|row| &sweep.rows()[row].samples[0]);
        let conditions = format!("{conditions}; round by round");
        report.figure(id, &one.ratios(other), "x", &conditions);
    }
    Ok(())
}
