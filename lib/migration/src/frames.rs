//! Frames for an instance whose host has just changed: those that waited at the source, and those that still come there.
//!
//! **Frames go first, and the network learns the instance's new place afterwards.** The network would send at full rate to an
//! instance that has never run, and whose memory, doorbells and neighbours are cold: its rings would be full after
//! milliseconds. The source has more room, and forwards frames no faster than the target's rings are emptied.

use crate::addresses::Addresses;
use crate::channel::{Channel, unexpected};
use crate::guarded::Guarded;
use crate::patience::{FRAMES, STEP};
use crate::site::{Forwarded, Instances, Rings, Stopped};
use anyhow::ensure;
use nfluid_control::stopwatch::Stopwatch;
use nfluid_formats::message::{Address, Message, Taken};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

/// Maximum time for which the source forwards frames. Frames of a sender that has not learned the new place by then are
/// lost.
const FORWARDING: Duration = Duration::from_secs(1);
/// Maximum delay of the announcement.
const CATCHING_UP: Duration = Duration::from_millis(250);
/// Maximum time for which the target accepts frames: meanwhile the target prepares no shells, and the arrival uses one
/// of few places.
const TAKING: Duration = Duration::from_secs(60);

/// Name of the lap that ends when the first frames are on their way.
pub const FIRST: &str = "first";

/// Sends on what waits at the source and what still comes, until nothing comes any more.
///
/// # Errors
/// The instance has ended, or the connection is cut.
pub fn forward(
    channel: &mut Channel,
    stopped: &mut impl Stopped,
    watch: &mut Stopwatch,
) -> anyhow::Result<()> {
    stopped.forward()?;
    let begun = Instant::now();
    let (mut is_first, mut is_announced, mut is_ending) = (true, false, false);
    loop {
        let forwarded = stopped.next()?;
        let passed = begun.elapsed();
        let waited = forwarded == Forwarded::AllThatWaited || passed > CATCHING_UP;
        let is_quiet = forwarded == Forwarded::Nothing;
        match forwarded {
            Forwarded::Frames(frames) => {
                channel.say(&Message::Frames(frames), FRAMES)?;
                if std::mem::take(&mut is_first) {
                    watch.lap(FIRST);
                }
            }
            Forwarded::End => break,
            Forwarded::Nothing if is_ending => break,
            Forwarded::Nothing | Forwarded::AllThatWaited => {}
        }
        if !is_ending && (passed > FORWARDING || (is_quiet && is_announced)) {
            stopped.end()?;
            is_ending = true;
        }
        if !is_announced && (waited || is_quiet) {
            channel.say(&Message::Announce, FRAMES)?;
            watch.lap("catch_up");
            is_announced = true;
        }
    }
    watch.lap("hand_on");
    Ok(())
}

/// A message to the thread that announces.
enum Notice {
    /// More addresses to announce.
    Addresses(Vec<Address>),
    /// All frames that waited at the source are here: announce now.
    AllThatWaited,
}

/// Collects the addresses of frames for the thread that announces them.
pub struct Announcer {
    addresses: Addresses,
    notices: Sender<Notice>,
}

/// Runs `act`, as [`take`], while a thread announces the instance's addresses in time, whatever becomes of `act`. `first` are
/// the addresses that are known already, and are part of `addresses`.
pub fn while_announcing<T>(
    instances: &impl Instances,
    guarded: &Guarded,
    (addresses, first): (Addresses, Vec<Address>),
    act: impl FnOnce(Announcer) -> T,
) -> T {
    std::thread::scope(|scope| {
        let (notices, noticed) = mpsc::channel();
        scope.spawn(move || announce_in_time(instances, guarded, first, &noticed));
        act(Announcer { addresses, notices })
    })
}

/// Puts the frames that the source forwards into the rings.
///
/// # Errors
/// The connection is cut, or a message is not the one that is due.
pub fn take(
    channel: &mut Channel,
    rings: &impl Rings,
    mut announcer: Announcer,
) -> anyhow::Result<Taken> {
    let mut all = Taken::default();
    let begun = Instant::now();
    loop {
        ensure!(
            begun.elapsed() < TAKING,
            "frames still come after {} s",
            TAKING.as_secs()
        );
        // The thread that announces listens until `announcer` is dropped.
        match channel.hear(STEP)? {
            Message::Frames(frames) => {
                all += rings.put(&frames)?;
                let new = announcer.addresses.add_of_frames(&frames);
                if !new.is_empty() {
                    let _listens = announcer.notices.send(Notice::Addresses(new));
                }
            }
            Message::Announce => drop(announcer.notices.send(Notice::AllThatWaited)),
            Message::End => return Ok(all),
            other => return Err(unexpected(&other)),
        }
    }
}

/// Announces addresses as soon as all frames are here that waited at the source, or after [`CATCHING_UP`], or when `noticed`
/// is closed; and then the addresses that come later.
fn announce_in_time(
    instances: &impl Instances,
    guarded: &Guarded,
    mut addresses: Vec<Address>,
    noticed: &Receiver<Notice>,
) {
    let announce = |addresses: &[Address]| guarded.announce(instances, addresses);
    let deadline = Instant::now() + CATCHING_UP;
    let left = || deadline.saturating_duration_since(Instant::now());
    while let Ok(Notice::Addresses(more)) = noticed.recv_timeout(left()) {
        addresses.extend(more);
    }
    announce(&addresses);
    for notice in noticed {
        if let Notice::Addresses(more) = notice {
            announce(&more);
        }
    }
}
