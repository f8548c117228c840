//! The state of an instance: saved, and given to an instance that was created from an image.

use crate::errors::failed;
use crate::pausing;
use crate::services::{Services, lock};
use anyhow::{Context, ensure};
use nfluid_api::types::{PausedTraffic, SAVED_BYTES_MAX};
use nfluid_control::apply::PlatformError;
use nfluid_control::apply::no_instance;
use nfluid_control::stopwatch::Lap;
use nfluid_formats::answer::take_addresses;
use nfluid_formats::frames::frames;
use nfluid_formats::message::{ADDRESSES_MAX, Address};
use nfluid_protocol::answer::{self, Exported, Imported};
use nfluid_protocol::daemon::memory_file;
use nfluid_protocol::{Request, daemon};
use serde_json::Value;
use std::fs::File;
use std::io::{Read, Seek};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

/// The state of an instance's NF, the frames that wait in its rings, and what is behind its ports.
pub struct Moved {
    /// The NF's own image of its state.
    pub state: Vec<u8>,
    /// The frames, by the port's place in the specification.
    pub frames: Vec<(u8, Vec<u8>)>,
    /// The addresses that frames for the instance were for lately, by the port's place in the specification.
    pub addresses: Vec<Address>,
}

/// The result of giving state and frames to an instance.
#[derive(Clone, Debug, Default)]
pub struct Given {
    /// Entries of the state that were imported.
    pub taken: u64,
    /// Entries that were left out.
    pub left_out: u64,
    /// Frames that were put into rings.
    pub frames: u64,
    /// Frames that had no room.
    pub frames_left_out: u64,
    /// The steps, with their times.
    pub laps: Vec<Lap>,
}

/// Asks an instance for its state and frames. The instance goes on. The host is not locked meanwhile.
///
/// # Errors
/// The instance does not exist, is paused, or has no state that can be saved.
pub fn export<C: Services>(host: &Mutex<C>, name: &str) -> Result<Moved, PlatformError> {
    let control = {
        let host = lock(host);
        host.instances().check_awake(name)?;
        let control = host.instances().control(name);
        control.ok_or_else(|| no_instance(name))?
    };
    exported(&control, false).map_err(failed)
}

/// Returns the path of an instance's control socket.
fn listens_at<C: Services>(host: &Mutex<C>, name: &str) -> Result<PathBuf, PlatformError> {
    let control = lock(host).instances().control(name);
    control.ok_or_else(|| no_instance(name))
}

/// Returns the present state of an instance. The instance goes on, and prepares to be asked again soon.
///
/// # Errors
/// As for [`export`].
pub fn state_now<C: Services>(host: &Mutex<C>, name: &str) -> anyhow::Result<Vec<u8>> {
    let control = listens_at(host, name)?;
    Ok(exported(&control, true)?.state)
}

/// Returns the state of an instance, and unless that is all, the frames that wait in its rings and what is behind it.
fn exported(control: &Path, state_only: bool) -> anyhow::Result<Moved> {
    let mut file = File::from(memory_file("state", &[])?);
    let request = Request::Export { state_only };
    let mut answer = daemon::ask_about(control, &request, Some(file.as_fd()))?;
    let addresses = take_addresses(&mut answer, ADDRESSES_MAX);
    let exported = answer::read::<Exported>(answer);
    let exported = exported.context("it does not say how long its state is")?;
    let (state, waiting) = (exported.state_bytes, exported.waiting_bytes);
    // The reported length is not trusted: no more than this is read.
    ensure!(
        state.saturating_add(waiting) <= SAVED_BYTES_MAX as u64,
        "its state is longer than the {} bytes that can be saved",
        SAVED_BYTES_MAX
    );
    file.rewind()?;
    let mut bytes = vec![0; state as usize];
    file.read_exact(&mut bytes)
        .context("its state is not whole")?;
    let mut waiting = vec![0; waiting as usize];
    file.read_exact(&mut waiting)
        .context("its frames are not whole")?;
    Ok(Moved {
        state: bytes,
        frames: frames(&waiting)?,
        addresses,
    })
}

/// Makes an instance that was just created import a state and forget it, so that the memory is allocated when the
/// final state comes.
///
/// # Errors
/// The instance does not import the state. It has no state in either case.
pub fn rehearse<C: Services>(host: &Mutex<C>, name: &str, state: &[u8]) -> anyhow::Result<()> {
    let control = listens_at(host, name)?;
    let file = memory_file("state", state)?;
    let request = Request::Rehearse {
        bytes: state.len() as u64,
    };
    daemon::ask_about(&control, &request, Some(file.as_fd())).map(drop)
}

/// Gives state and frames to an instance that was just created and has no wires. With `paused`, the instance is
/// paused afterwards.
///
/// # Errors
/// The instance refuses the state.
pub fn give<C: Services>(
    host: &Mutex<C>,
    name: &str,
    moved: &Moved,
    paused: bool,
) -> Result<Given, PlatformError> {
    let control = listens_at(host, name)?;
    let import = || -> anyhow::Result<Value> {
        let file = memory_file("state", &moved.state)?;
        let request = Request::Import {
            bytes: moved.state.len() as u64,
            part: None,
        };
        daemon::ask_about(&control, &request, Some(file.as_fd()))
    };
    let answer: Imported = answer::read(import().map_err(failed)?).unwrap_or_default();
    let imported = Lap::now("import");
    let importing = Duration::from_micros(answer.took_us);
    let begun = imported.until.checked_sub(importing);
    // An instance that was just created had to start before.
    let started = begun.map(|until| Lap {
        what: "start",
        until,
    });
    let mut given = Given {
        taken: answer.taken,
        left_out: answer.left_out,
        laps: started.into_iter().chain([imported]).collect(),
        ..Given::default()
    };
    let host = &mut *lock(host);
    if paused {
        pausing::pause(host, name, PausedTraffic::Hold)?;
    }
    given.frames = refill(host, name, &moved.frames)?;
    given.frames_left_out = (moved.frames.len() as u64).saturating_sub(given.frames);
    given.laps.push(Lap::now("refill"));
    Ok(given)
}

/// Puts frames into an instance's rings. Returns the number of frames that had room.
fn refill(
    services: &dyn Services,
    name: &str,
    frames: &[(u8, Vec<u8>)],
) -> Result<u64, PlatformError> {
    let workload = &services.instances().find(name)?.workload;
    let mut put = 0;
    for queue in 0..workload.ports().len() {
        let own = frames.iter().filter(|(to, _)| usize::from(*to) == queue);
        let own: Vec<&[u8]> = own.map(|(_, frame)| frame.as_slice()).collect();
        if !own.is_empty() {
            let had_room = workload.put_frames(queue, &own).map_err(failed)?;
            workload.count_left_out(queue, (own.len() - had_room) as u64);
            put += had_room;
        }
    }
    if put > 0 {
        workload.ring();
    }
    Ok(put as u64)
}
