//! Frames for an instance whose host has just changed: what waited at the source, and what still comes there.
//!
//! **They go first, and the network is told afterwards.** By the network frames come at their full rate to an instance that has
//! never run, whose memory, doorbells and neighbours are cold; its rings are full after milliseconds. The source has room for
//! more, and frames come from there no faster than they are taken out of the rings here.

use super::target::STEP;
use crate::host::landing::{self, Addresses, ArrivalRings};
use crate::host::moving::{Handed, Way};
use crate::server::Daemon;
use anyhow::ensure;
use nfluid_control::stopwatch::Stopwatch;
use nfluid_formats::message::{Address, Message, Taken};
use nfluid_migration::channel::{Channel, Patience, unexpected};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

/// How long frames are handed on at most. Who has not learned by then where the instance is, sends to nobody.
const HANDING_ON: Duration = Duration::from_secs(1);
/// How long the network is told nothing at most.
const CATCHING_UP: Duration = Duration::from_millis(250);
/// How long a source may hand frames on, whatever it says: meanwhile no shells are made here, and it has one of few places.
const TAKING_ON: Duration = Duration::from_secs(60);
/// How long the other host may take to find room for what it is sent.
const TAKING: Patience = Patience {
    idle: Duration::from_secs(10),
    whole: Duration::from_secs(20),
};

/// The source: sends on what waits and what still comes, until nothing does.
///
/// # Errors
/// The instance has ended, or the connection is cut.
pub fn hand_on(channel: &mut Channel, way: &mut Way, watch: &mut Stopwatch) -> anyhow::Result<()> {
    way.hand_on()?;
    let begun = Instant::now();
    let (mut is_first, mut is_told, mut is_ending) = (true, false, false);
    loop {
        let handed = way.handed()?;
        let passed = begun.elapsed();
        let waited = handed == Handed::AllThatWaited || passed > CATCHING_UP;
        let is_quiet = handed == Handed::Nothing;
        match handed {
            Handed::Frames(frames) => {
                channel.say(&Message::Frames(frames), TAKING)?;
                if std::mem::take(&mut is_first) {
                    watch.lap(FIRST);
                }
            }
            Handed::End => break,
            Handed::Nothing if is_ending => break,
            Handed::Nothing | Handed::AllThatWaited => {}
        }
        if !is_ending && (passed > HANDING_ON || (is_quiet && is_told)) {
            way.end()?;
            is_ending = true;
        }
        if !is_told && (waited || is_quiet) {
            channel.say(&Message::Announce, TAKING)?;
            watch.lap("catch_up");
            is_told = true;
        }
    }
    watch.lap("hand_on");
    Ok(())
}

/// The lap until the first frames are on their way.
pub const FIRST: &str = "first";

/// What there is to tell the network.
enum News {
    /// That these are here, too.
    Addresses(Vec<Address>),
    /// All that waited is here: now.
    AllThatWaited,
}

/// The addresses that the network is told of, and who does that.
pub struct Told {
    addresses: Addresses,
    news: Sender<News>,
}

/// The target: does something, as [`take_frames`], while the network is told in time where the instance is, whatever becomes of
/// it. `behind` are the first ones of `addresses`.
pub fn take<T>(
    daemon: &Daemon,
    name: &str,
    (addresses, behind): (Addresses, Vec<Address>),
    act: impl FnOnce(Told) -> T,
) -> T {
    std::thread::scope(|scope| {
        let (news, heard) = mpsc::channel();
        scope.spawn(move || announce_in_time(daemon, name, behind, &heard));
        act(Told { addresses, news })
    })
}

/// Puts the frames that the source hands on into the rings.
///
/// # Errors
/// The connection is cut, or what comes is not what comes next.
pub fn take_frames(
    daemon: &Daemon,
    channel: &mut Channel,
    landing: &ArrivalRings,
    mut told: Told,
) -> anyhow::Result<Taken> {
    let mut all = Taken::default();
    let begun = Instant::now();
    loop {
        ensure!(
            begun.elapsed() < TAKING_ON,
            "frames still come after {} s",
            TAKING_ON.as_secs()
        );
        // Who tells the network listens until `told` is dropped.
        match channel.hear(STEP)? {
            Message::Frames(frames) => {
                let (put, left) = landing.put(&daemon.host, &frames)?;
                all.taken += put;
                all.left_out += left;
                let new = told.addresses.new_of(&frames);
                if !new.is_empty() {
                    let _listens = told.news.send(News::Addresses(new));
                }
            }
            Message::Announce => drop(told.news.send(News::AllThatWaited)),
            Message::End => return Ok(all),
            other => return Err(unexpected(&other)),
        }
    }
}

/// Tells the network where the addresses are that frames are for: when all is here that waited at the source, or nothing more
/// is heard of that.
fn announce_in_time(
    daemon: &Daemon,
    name: &str,
    mut addresses: Vec<Address>,
    heard: &Receiver<News>,
) {
    let announce = |addresses: &[Address]| {
        if let Err(why) = landing::announce(&daemon.host, name, addresses) {
            tracing::warn!(instance = name, "telling the network where it is: {why:#}");
        }
    };
    let deadline = Instant::now() + CATCHING_UP;
    let left = || deadline.saturating_duration_since(Instant::now());
    while let Ok(News::Addresses(more)) = heard.recv_timeout(left()) {
        addresses.extend(more);
    }
    announce(&addresses);
    for news in heard {
        if let News::Addresses(more) = news {
            announce(&more);
        }
    }
}
