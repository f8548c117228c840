//! D2: very many NFs that sleep until they are rung: for the first frame, or (`d2.aged`) when the number of frames
//! reaches a threshold, and at the latest a time after the first frame.

use super::massive::host;
use super::massive::{Architecture, Buffers, Entry, Sizes, Waiting, measure};
use crate::report::Report;
use crate::setups::pipe_chain::PipeChain;
use nfluid_figures::statistics::Samples;
use nfluid_switch::Wake;
use std::time::Duration;

const THRESHOLD: Wake = Wake {
    frames: 8,
    after: Duration::from_millis(1),
};

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    let at_once = Architecture {
        id: "d2",
        title: "NFs that sleep until they are rung",
        waiting: Waiting::SLEEPING,
        buffers: Buffers::Isolated,
        entry: Entry::Port,
    };
    let aged = Architecture {
        id: "d2.aged",
        title: "NFs that sleep until 8 frames wait, or one for a millisecond",
        waiting: Waiting {
            wake: THRESHOLD,
            ..Waiting::SLEEPING
        },
        ..at_once
    };
    let all = Sizes {
        idle: true,
        ..Sizes::common(report)
    };
    let some = Sizes {
        nfs: report.choose(vec![40, 100, 400, 2000], vec![100]),
        lens: vec![700],
        ..Sizes::common(report)
    };
    measure(report, &[at_once], &all)?;
    measure(report, &[aged], &some)?;
    report
        .choose(vec![100, 400, 2000], vec![100])
        .into_iter()
        .try_for_each(|nfs| hand_over(report, nfs))
}

/// Measures the cost of waking as many processes one after the other on this machine, without frames, switch or NF: a
/// lower bound for every architecture in which each NF is a process.
fn hand_over(report: &mut Report, nfs: usize) -> anyhow::Result<()> {
    let count = nfs / host::cores();
    let mut tokens = PipeChain::start(count, 0)?;
    let mut each = Samples::default();
    for _ in 0..report.effort(5, 2) {
        let time = Duration::from_secs_f64(report.effort(1.0, 0.2));
        each.push(tokens.measure(time)? / (count + 1) as f64);
    }
    let conditions = format!("{count} processes on one core that hand a byte on through pipes");
    report.figure(format!("d2.{nfs}.hand_over_us"), &each, "us", &conditions);
    Ok(())
}
