//! I/O threads of other instances, as `nfluidd io` hosts them. They serve only during a run: a polling thread would
//! take CPU time from measurements in between.

use super::work::{Outcome, cpu_seconds, print_ready, serve};
use crate::io_model::Model;
use anyhow::Context;
use nfluid_io::{Duty, Idle, IoThread, Placement};
use nfluid_switch::serve::Serve;
use nfluid_testbed::io_process::from_env;
use std::time::{Duration, Instant};

/// Polls of a thread with its own core before it sleeps.
const LOOKS: u32 = 100;

/// Serves the inherited ports by `model`; a thread with its own core is on `core`.
pub fn serve_ports(model: &Model, core: usize) -> anyhow::Result<()> {
    let (program, mut instances) = from_env().context("taking over ports")?;
    print_ready()?;
    serve(|span| {
        let (begin, cpu) = (Instant::now(), cpu_seconds());
        let mut outcome = run(model, core, &program, &mut instances, span.time)?;
        outcome.seconds = begin.elapsed().as_secs_f64();
        outcome.cpu_seconds = cpu_seconds() - cpu;
        Ok(outcome)
    })
}

/// Takes the ports over, and returns them at the end of the run.
fn run(
    model: &Model,
    core: usize,
    program: &Serve,
    instances: &mut [Vec<Duty>],
    time: Duration,
) -> anyhow::Result<Outcome> {
    let threads = start(model, core, program, instances.len())?;
    let begin = Instant::now();
    let served = || threads.iter().cycle();
    let mut ports: Vec<Vec<u32>> = Vec::with_capacity(instances.len());
    for (duties, thread) in instances.iter_mut().zip(served()) {
        ports.push(duties.iter().map(Duty::port).collect());
        for duty in duties.drain(..) {
            thread.add(duty).context("serving a port")?;
        }
    }
    std::thread::sleep(time.saturating_sub(begin.elapsed()));
    let mut outcome = Outcome::default();
    for thread in &threads {
        let stats = thread.stats().context("what an I/O thread has counted")?;
        outcome.frames += stats.frames;
        outcome.visits += stats.visits;
    }
    for ((duties, ports), thread) in instances.iter_mut().zip(ports).zip(served()) {
        for port in ports {
            duties.extend(thread.remove(port).context("giving a port back")?);
        }
    }
    Ok(outcome)
}

fn start(
    model: &Model,
    core: usize,
    program: &Serve,
    instances: usize,
) -> anyhow::Result<Vec<IoThread>> {
    let thread = |number: usize, idle, placement| {
        let own = program.program().try_clone_to_owned();
        let serve = Serve::of(own.context("duplicating a descriptor")?, program.form());
        IoThread::start(&format!("io-{number}"), serve, idle, placement).context("an I/O thread")
    };
    let one_for_all = |idle| -> anyhow::Result<Vec<IoThread>> {
        Ok(vec![thread(0, idle, Placement::Core(core))?])
    };
    let one_each = |placement| -> anyhow::Result<Vec<IoThread>> {
        (0..instances)
            .map(|number| thread(number, Idle::Sleep { looks: 0 }, placement))
            .collect()
    };
    match model {
        Model::Inline => Ok(Vec::new()),
        Model::Split { polls: true } => one_for_all(Idle::Poll),
        Model::Split { polls: false } => one_for_all(Idle::Sleep { looks: LOOKS }),
        Model::Merge => one_each(Placement::WithInstance),
        Model::Mix => one_each(Placement::Anywhere),
    }
}
