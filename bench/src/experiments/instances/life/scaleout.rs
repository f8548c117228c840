//! A firewall that is scaled to 2, 4 and again 1 members while frames pass: lost and reordered frames, delay of frames,
//! and the throughput of that many members.

use super::setup::{Round, SUBJECT, Setup, number};
use crate::host::cpu::require_two_cores;
use crate::report::Report;
use crate::sweep::{Quantity, Shown, Side, Sweep};
use nfluid_figures::statistics::Samples;
use serde_json::{Value, json};

/// Frames a second during scaling.
const RATE: u64 = 100_000;
/// Frames a second that exceed the throughput of a small machine's cores.
const FLOOD: u64 = 4_000_000;
/// Numbers of members before and after each step.
const STEPS: [(u64, u64); 3] = [(1, 2), (2, 4), (4, 1)];

const MOVES: [Quantity; 2] = [
    Quantity::new(
        ".held_ms",
        "ms",
        &[("median", Shown::Median), ("p99", Shown::P99)],
    ),
    Quantity::new(".took_ms", "ms", &[("all of it", Shown::Median)]),
];
const THROUGHPUT: [Quantity; 1] = [Quantity::new(".mpps", "Mpps", &[("median", Shown::Median)])];

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    require_two_cores()?;
    let cycles = report.effort(20, 2);
    let mut setup = Setup::new()?;
    setup.pump_numbered(RATE)?;
    let mut held: [Samples; 3] = Default::default();
    let mut took: [Samples; 3] = Default::default();
    let mut moved = [0.0; 3];
    let (mut with, mut without) = (Sums::default(), Sums::default());
    for _ in 0..cycles {
        without.add(setup.round()?);
        for (at, (_, members)) in STEPS.into_iter().enumerate() {
            // In the middle of the running round.
            let mut is_done = false;
            let (before, round) = setup.round_with(|requests| {
                if is_done {
                    return Ok(());
                }
                is_done = true;
                let path = format!("/v1/instances/{SUBJECT}/scale");
                let answer = requests.request("POST", &path, &json!({ "replicas": members }))?;
                held[at].push(number(&answer, "held_us")? / 1000.0);
                took[at].push(number(&answer, "took_us")? / 1000.0);
                moved[at] = number(&answer, "state_taken")?;
                Ok(())
            })?;
            before.into_iter().for_each(|round| without.add(round));
            with.add(round);
            // The effect may extend into this round.
            with.add(setup.round()?);
        }
    }
    report_moves(report, &with, &without);
    let mut sweep = Sweep::plain(&["members"], MOVES);
    sweep.notes = &["states that move"];
    for ((at, (from, to)), samples) in STEPS
        .into_iter()
        .enumerate()
        .zip(held.into_iter().zip(took))
    {
        let conditions = format!(
            "firewall of {from} becomes {to} at {RATE} frames/s, 1000 states, of which {} move; pump on one core, all members on another",
            moved[at]
        );
        let side = Side::new(
            [format!("{from} -> {to}")],
            format!("scaleout.{from}to{to}"),
            (),
        );
        sweep.add(&side.under(&conditions), samples.into());
        sweep.rows_mut()[at].notes.push(moved[at].to_string());
    }
    sweep.report_all(report);
    sweep.print("Frames of flows that change hands wait, ms");
    throughput(report, &mut setup)
}

/// Sums of the rounds of one kind.
#[derive(Default)]
struct Sums {
    sent: u64,
    lost: u64,
    overtaken: u64,
}

impl Sums {
    fn add(&mut self, round: Round) {
        self.sent += round.sent;
        self.lost += round.lost();
        self.overtaken += round.overtaken;
    }
}

fn report_moves(report: &mut Report, with: &Sums, without: &Sums) {
    let conditions = format!(
        "of {} frames in rounds with changes and those after them; without changes {} lost of {}",
        with.sent, without.lost, without.sent
    );
    for (id, count) in [("lost", with.lost), ("overtaken", with.overtaken)] {
        report.derived(
            format!("scaleout.{id}"),
            count as f64,
            "frames",
            &conditions,
        );
    }
    println!(
        "{} of {} frames lost, {} overtaken, while members came and went; {} of {} lost without",
        with.lost, with.sent, with.overtaken, without.lost, without.sent
    );
}

/// Measures the throughput when the offered rate exceeds what the members can forward.
fn throughput(report: &mut Report, setup: &mut Setup) -> anyhow::Result<()> {
    let rounds = report.effort(10, 2);
    setup.pump_numbered(FLOOD)?;
    let mut sweep = Sweep::plain(&["members"], THROUGHPUT);
    for members in [1, 2, 4] {
        scale(setup, members)?;
        // Skips the round during which the change happened.
        setup.round()?;
        let conditions = format!(
            "firewall of {members}, {FLOOD} frames/s offered; pump on one core, all members on another: what more members cost there, not what more cores give"
        );
        let id = format!("scaleout.{members}");
        let side = Side::new([members.to_string()], id, ()).under(&conditions);
        sweep.run(report, rounds, &mut [side], |(), _| {
            Ok([setup.round()?.received_per_s() / 1e6])
        })?;
    }
    sweep.report_all(report);
    sweep.print("Throughput, Mpps, all members on one core");
    scale(setup, 1)
}

fn scale(setup: &mut Setup, members: u64) -> anyhow::Result<()> {
    let path = format!("/v1/instances/{SUBJECT}/scale");
    let _: Value = setup
        .requests()
        .request("POST", &path, &json!({ "replicas": members }))?;
    Ok(())
}
