//! H8: NFs that share a core by weight: compares the throughput of each NF with its promised share, in each I/O model
//! (HyperNF, SoCC '17, figs. 4 and 8). Two NFs as in the literature, and ten of random shares and kinds.
//!
//! The literature's error is (goodput - baseline x share) / (baseline x share), where the baseline is the NF alone on
//! the core. A machine's speed drifts by more than these errors. So the baseline is measured in slices directly before
//! and after each run, and a second error excludes what all NFs lost or gained: each NF's throughput as a part of its
//! baseline, as a part of the sum of those, against its share. That sum is the efficiency. Shares are weights of
//! cgroups; the process of the I/O threads has its own cgroup, with the weight of a whole core.
//!
//! All NFs of a run are measured over the same time, in which all of them run: the first to start, or the last to end,
//! has the core alone outside of that time. The pace shows what an NF loses by cold caches and context switches: frames
//! per second of its own CPU time, relative to those alone.

mod fairness;
mod ten;
mod variant;

use crate::host::cpu::require_two_cores;
use crate::io_model::Model;
use crate::report::{Report, significant};
use crate::sweep::{Quantity, Shown, Side, Sweep};
use crate::workload::Workload;
use fairness::{Fairness, Got};
use nfluid_figures::plot::{Axis, Plot, Series};
use nfluid_testbed::scratch::Scratch;
use variant::{Nf, Times, Variant};

/// Percent of the core for the first and the second NF.
const SHARES: [[u32; 2]; 5] = [[50, 50], [30, 70], [70, 30], [20, 80], [80, 20]];
const SHARES_QUICK: [[u32; 2]; 2] = [[50, 50], [20, 80]];

/// Seconds in which the kernel measures the cost of receiving at uplinks.
const METERED: f64 = 0.1;

/// Flows of a firewall's traffic.
const FLOWS: u32 = 1000;

/// The NFs of set-ups A and B.
fn set_ups() -> [(&'static str, Vec<Nf>); 2] {
    let nf = |name: &str, workload, len| Nf {
        name: name.to_owned(),
        workload,
        len,
    };
    let firewall = |rules| Workload::Firewall {
        rules,
        flows: FLOWS,
    };
    let bridge = nf("bridge", Workload::Bridge, 64);
    [
        ("A", vec![bridge, nf("firewall50", firewall(50), 1472)]),
        (
            "B",
            vec![
                nf("firewall10", firewall(10), 1024),
                nf("firewall50", firewall(50), 512),
            ],
        ),
    ]
}

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    require_two_cores()?;
    let mut scratch = Scratch::new("h8")?;
    let inline = virtual_ports(report, &mut scratch, &[Model::Inline])?;
    let errors = inline.iter().flat_map(|variant| &variant.results);
    report.derived(
        "h8.virtual.max_error_percent",
        errors.map(Fairness::error_max).fold(0.0, f64::max),
        "%",
        "inline, both set-ups, all shares: largest corrected error of an NF, by its amount",
    );
    let efficiencies = inline.iter().flat_map(|variant| &variant.results);
    let efficiencies = efficiencies.map(|result| result.efficiency.median());
    report.derived(
        "h8.efficiency_percent",
        efficiencies.fold(f64::INFINITY, f64::min),
        "%",
        "inline, both set-ups, all shares: smallest sum of both NFs' throughputs, each as a part of what it has alone",
    );
    uplinks(report, &mut scratch)?;
    ten::run(report, &mut scratch)?;
    let others = virtual_ports(report, &mut scratch, &Model::ALL[1..])?;
    for name in ["A", "B"] {
        let variants: Vec<&Variant> = inline.iter().chain(&others).collect();
        let variants: Vec<&Variant> = variants
            .into_iter()
            .filter(|variant| variant.name == name)
            .collect();
        (0..2).for_each(|which| report.plot(plot(&variants, which)));
    }
    Ok(())
}

/// Measures both set-ups in several models; the NFs have virtual ports.
fn virtual_ports(
    report: &mut Report,
    scratch: &mut Scratch,
    models: &[Model],
) -> anyhow::Result<Vec<Variant>> {
    let is_inline = models.contains(&Model::Inline);
    let (divisions, rounds, alone, together) = if is_inline {
        let full = (&SHARES[..], 20, 0.05, 0.6);
        report.choose(full, (&SHARES_QUICK, 3, 0.03, 0.3))
    } else {
        let full = (&SHARES[..], 4, 0.04, 0.3);
        report.choose(full, (&SHARES_QUICK[..1], 1, 0.02, 0.1))
    };
    let divisions: Vec<Vec<u32>> = divisions.iter().map(|shares| shares.to_vec()).collect();
    let most = if is_inline { 2 } else { report.choose(2, 1) };
    let mut variants = Vec::new();
    for (name, nfs) in set_ups().into_iter().take(most) {
        for model in models {
            let nfs = nfs.clone();
            variants.push(Variant::new(scratch, name, *model, nfs, &divisions)?);
        }
    }
    measure(report, &mut variants, rounds, Times { alone, together })?;
    show(report, "Two NFs that share a core by weight", &variants);
    Ok(variants)
}

/// Measures both set-ups; each NF sends out of its own uplink, and receives its frames by another uplink.
fn uplinks(report: &mut Report, scratch: &mut Scratch) -> anyhow::Result<()> {
    let full = (&SHARES[..], 20, 0.05, 0.6);
    let (divisions, rounds, alone, together) =
        report.choose(full, (&SHARES_QUICK[1..], 2, 0.03, 0.3));
    let divisions: Vec<Vec<u32>> = divisions.iter().map(|shares| shares.to_vec()).collect();
    let mut variants = Vec::new();
    for ((_, nfs), name) in set_ups().into_iter().zip(["A-uplink", "B-uplink"]) {
        variants.push(Variant::with_uplinks(scratch, name, nfs, &divisions)?);
    }
    for variant in &mut variants {
        variant.meter(METERED)?;
    }
    measure(report, &mut variants, rounds, Times { alone, together })?;
    let title = "Two NFs that send out of uplinks, and receive by them";
    show(report, title, &variants);
    let errors = variants.iter().flat_map(|variant| &variant.results);
    report.derived(
        "h8.uplink.max_error_percent",
        errors.map(Fairness::error_max).fold(0.0, f64::max),
        "%",
        "inline, both set-ups, all shares, each NF sends out of an uplink on a veth and receives by one at its other \
         end; their threads and the kernel's receive side have the other core: largest corrected error of an NF, by \
         its amount",
    );
    for variant in &variants {
        charged(report, variant);
    }
    Ok(())
}

/// Reports the CPU time of the kernel's reception for each NF that was charged to another process.
fn charged(report: &mut Report, variant: &Variant) {
    for (result, nf, got) in each(variant) {
        let id = format!(
            "h8.{}.{}.{}.charged_percent",
            variant.name,
            result.name(),
            nf.name
        );
        let conditions = "run time of the uplink's XDP program for the frames that came in, in percent of the NF's own \
                          CPU time: charged back to it in what the platform reports";
        report.figure(id, &got.charged, "%", conditions);
    }
}

/// Measures all variants alternately; the first round warms up.
fn measure(
    report: &mut Report,
    variants: &mut [Variant],
    rounds: usize,
    times: Times,
) -> anyhow::Result<()> {
    let warm_up = Times {
        alone: times.alone / 4.0,
        together: times.together / 4.0,
    };
    for round in 0..=rounds {
        for variant in &mut *variants {
            report.settle();
            let times = if round == 0 { warm_up } else { times };
            variant.measure(times, round > 0)?;
        }
    }
    Ok(())
}

/// The quantities of an NF.
const GOT: [Quantity; 7] = [
    Quantity::shown(&[("alone Mpps", Shown::Median)]),
    Quantity::shown(&[("Mpps", Shown::Median)]),
    Quantity::new(
        ".error_percent",
        "%",
        &[("error %", Shown::Tenths), ("quartiles", Shown::Quartiles)],
    ),
    Quantity::new(
        ".corrected_percent",
        "%",
        &[
            ("corrected %", Shown::Tenths),
            ("quartiles", Shown::Quartiles),
        ],
    ),
    Quantity::shown(&[("of the NFs' CPU time %", Shown::Tenths)]),
    Quantity::new(".pace_percent", "%", &[("pace %", Shown::Tenths)])
        .meaning("frames per second of its CPU time, over those alone"),
    Quantity::shown(&[("efficiency %", Shown::Tenths)]),
];

/// Returns each NF with each division.
fn each(variant: &Variant) -> impl Iterator<Item = (&Fairness, &Nf, &Got)> {
    variant.results.iter().flat_map(|result| {
        let nfs = variant.nfs.iter().zip(&result.nfs);
        nfs.map(move |(nf, got)| (result, nf, got))
    })
}

fn show(report: &mut Report, title: &str, variants: &[Variant]) {
    let mut sweep = Sweep::plain(&["set-up", "model", "shares", "NF"], GOT);
    for variant in variants {
        let (set_up, model) = (variant.name, variant.model.name());
        for (result, nf, got) in each(variant) {
            let shares = result.name();
            let conditions = format!(
                "{}; shares {shares}, {} B; {} Mpps alone, {} Mpps here, {:.0} % of the NFs' CPU time",
                variant.model.place(),
                nf.len,
                significant(got.alone.median()),
                significant(got.mpps.median()),
                got.cpu.median()
            );
            let id = format!("h8.{set_up}.{model}.{shares}.{}", nf.name);
            let key = [
                set_up.to_owned(),
                model.to_owned(),
                shares,
                format!("{} {} B", nf.name, nf.len),
            ];
            let samples = [
                &got.alone,
                &got.mpps,
                &got.raw,
                &got.corrected,
                &got.cpu,
                &got.pace,
                &result.efficiency,
            ];
            sweep.add(
                &Side::new(key, id, ()).under(&conditions),
                samples.map(Clone::clone),
            );
        }
    }
    sweep.print(title);
    sweep.report_all(report);
    variants.iter().for_each(|variant| summary(report, variant));
}

fn summary(report: &mut Report, variant: &Variant) {
    let (set_up, model) = (variant.name, variant.model.name());
    let place = variant.model.place();
    for result in &variant.results {
        let id = format!("h8.{set_up}.{model}.{}.efficiency_percent", result.name());
        report.figure(id, &result.efficiency, "%", place);
    }
    let conditions = format!("{place}; largest of all shares and NFs, by its amount");
    let raw = each(variant).map(|(_, _, got)| got.raw.median().abs());
    let corrected = variant.results.iter().map(Fairness::error_max);
    let largest = [
        ("error_percent_max", raw.fold(0.0, f64::max)),
        ("corrected_percent_max", corrected.fold(0.0, f64::max)),
    ];
    for (what, value) in largest {
        let id = format!("h8.{set_up}.{model}.{what}");
        report.derived(id, value, "%", &conditions);
    }
}

/// The literature's errors of one of the NFs in all models of a set-up.
fn plot(variants: &[&Variant], which: usize) -> Plot {
    let line = |variant: &&Variant| {
        let mut series = Series::new(variant.model.name());
        for (index, result) in variant.results.iter().enumerate() {
            series.push(index as f64, &result.nfs[which].raw);
        }
        series
    };
    let variant = variants[0];
    let nf = &variant.nfs[which];
    Plot {
        id: format!("h8.{}.{}", variant.name, nf.name),
        title: format!("Set-up {}: {} with {} B", variant.name, nf.name, nf.len),
        x: Axis::categories(
            "shares of both NFs in %",
            variant.results.iter().map(Fairness::name),
        ),
        y: Axis::linear("error of the throughput in %"),
        series: variants.iter().map(line).collect(),
    }
}
