//! The transfer of the state of flows that change their owner: all members work at the same time.

use super::division::Member;
use super::note::Note;
use anyhow::Context;
use nfluid_control::apply::{PlatformError, PlatformErrorKind};
use nfluid_protocol::answer::{self, Drained, Imported};
use nfluid_protocol::daemon::memory_file;
use nfluid_protocol::request::Part;
use nfluid_protocol::{Request, daemon};
use nfluid_ring::flow::Buckets;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

/// The result of an exchange.
#[derive(Debug, Default)]
pub struct Exchanged {
    /// Time from the change of the tables until the last gaining member went on.
    pub held: Duration,
    /// Entries that arrived.
    pub taken: u64,
    /// Entries for which the receiving members had no room.
    pub left_out: u64,
    /// Giving members of which some state has not arrived.
    pub failed_givers: BTreeSet<u8>,
    /// The problems that occurred.
    pub problems: Vec<String>,
}

impl Exchanged {
    fn add(&mut self, other: Exchanged) {
        self.held = self.held.max(other.held);
        self.taken = self.taken.saturating_add(other.taken);
        self.left_out = self.left_out.saturating_add(other.left_out);
        self.failed_givers.extend(other.failed_givers);
        self.problems.extend(other.problems);
    }

    fn fail(&mut self, giver: u8, what: String) {
        self.failed_givers.insert(giver);
        self.problems.push(what);
    }
}

/// The exported state of a member.
struct State {
    file: OwnedFd,
    bytes: u64,
}

/// The part of a member's state that another member gets.
struct Given {
    state: Arc<State>,
    from: u8,
    flows: Buckets,
}

/// Calls `lead`, which leads the flows to the members that stand still (`takers`, each with its descriptor). The
/// `givers` handle the frames that came before and export their state. The takers import that state and go on.
/// `until` gives the ring position up to which a port's frames belong to the giver.
///
/// # Errors
/// `lead` has failed, or a thread could not be started: no member has given state away, and all go on.
pub fn exchange<'a>(
    note: &Note,
    givers: impl Iterator<Item = &'a Member>,
    takers: Vec<(&'a Member, OwnedFd)>,
    until: &(dyn Fn(u32) -> u32 + Sync),
    lead: impl FnOnce() -> Result<(), PlatformError>,
) -> Result<Exchanged, PlatformError> {
    thread::scope(|scope| {
        let mut ways = BTreeMap::new();
        let mut taking = Vec::new();
        for (member, stands) in takers {
            let (way, given) = channel();
            ways.insert(member.number, way);
            let work = move || take_over(member, &given, stands);
            taking.push(start(scope, work)?);
        }
        let mut giving = Vec::new();
        for member in givers {
            let gifts = note.gifts(member.number, ways.keys().copied());
            let gifts = gifts.into_iter().filter_map(|gift| {
                let way = ways.get(&gift.to)?.clone();
                Some((way, gift.flows))
            });
            let gifts: Vec<_> = gifts.collect();
            // Created before any member waits for it.
            let file = memory_file("state", &[]).map_err(crate::errors::failed)?;
            let (go, led) = channel();
            let work = move || match led.recv() {
                Ok(()) => give_up(member, file, until, gifts),
                // The flows were not led to other members.
                Err(_) => Exchanged::default(),
            };
            giving.push((go, start(scope, work)?));
        }
        // A taker waits for givers only.
        drop(ways);
        let begun = Instant::now();
        lead()?;
        for (go, _) in &giving {
            // The thread waits for this message.
            let _ = go.send(());
        }
        let mut all = Exchanged::default();
        let giving = giving.into_iter().map(|(_, thread)| thread);
        for thread in giving {
            all.add(thread.join().unwrap_or_else(|_| thread_failed()));
        }
        for thread in taking {
            let (ended, one) = thread.join().unwrap_or_else(|_| (begun, thread_failed()));
            all.held = all.held.max(ended.saturating_duration_since(begun));
            all.add(one);
        }
        Ok(all)
    })
}

fn start<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>, PlatformError> {
    let thread = thread::Builder::new().name("scaling".to_owned());
    thread.spawn_scoped(scope, work).map_err(|why| {
        let message = format!("starting a thread that moves flows: {why}");
        PlatformError::new(PlatformErrorKind::Exhausted, message)
    })
}

fn thread_failed() -> Exchanged {
    Exchanged {
        problems: vec!["a thread that moves flows has failed".to_owned()],
        ..Exchanged::default()
    }
}

/// Makes a member drain, and sends its state to the members that get a part of it.
fn give_up(
    member: &Member,
    file: OwnedFd,
    until: &(dyn Fn(u32) -> u32 + Sync),
    gifts: Vec<(Sender<Given>, Buckets)>,
) -> Exchanged {
    let mut all = Exchanged::default();
    match drain(member, file, until) {
        Ok(state) => {
            let state = Arc::new(state);
            for (way, flows) in gifts {
                let given = Given {
                    state: Arc::clone(&state),
                    from: member.number,
                    flows,
                };
                // A taker waits as long as a giver is left.
                let _ = way.send(given);
            }
        }
        Err(why) => {
            let number = member.number;
            let what = format!("member {number} gives up flows without their state: {why:#}");
            all.fail(number, what);
        }
    }
    all
}

fn drain(
    member: &Member,
    file: OwnedFd,
    until: &(dyn Fn(u32) -> u32 + Sync),
) -> anyhow::Result<State> {
    let until: Vec<u32> = member.ports.iter().map(|port| until(*port)).collect();
    let request = Request::Drain { until };
    let answer = daemon::ask_about(&member.control, &request, Some(file.as_fd()))?;
    let drained = answer::read::<Drained>(answer);
    let bytes = drained
        .context("it does not say how long its state is")?
        .state_bytes;
    Ok(State { file, bytes })
}

/// Makes a member import all that it is given, and then lets the member go on. Returns the time at which it went on.
fn take_over(member: &Member, given: &Receiver<Given>, stands: OwnedFd) -> (Instant, Exchanged) {
    let mut all = Exchanged::default();
    for given in given {
        let request = Request::Import {
            bytes: given.state.bytes,
            part: Some(Part {
                flows: given.flows.0,
                counts: false,
            }),
        };
        let file = given.state.file.as_fd();
        match daemon::ask_about(&member.control, &request, Some(file)) {
            Ok(answer) => {
                let imported: Imported = answer::read(answer).unwrap_or_default();
                // The number is reported by the member, and may be any number.
                all.taken = all.taken.saturating_add(imported.taken);
                all.left_out = all.left_out.saturating_add(imported.left_out);
            }
            Err(why) => {
                let (number, from) = (member.number, given.from);
                let what = format!(
                    "member {number} gets flows of member {from} without their state: {why:#}"
                );
                all.fail(from, what);
            }
        }
    }
    drop(stands);
    (Instant::now(), all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scaling::stand_in::{Log, done, log_of, member};
    use nfluid_ring::flow::Shares;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use serde_json::{Value, json};
    use std::sync::Barrier;

    fn note(old: u8, new: u8) -> Note {
        let before = Shares::ONE.among(old);
        Note::new(u16::from(old.max(new)), before, before.among(new))
    }

    fn stands() -> (OwnedFd, OwnedFd) {
        let kind = (AddressFamily::UNIX, SocketType::STREAM);
        socketpair(kind.0, kind.1, SocketFlags::CLOEXEC, None).expect("a pair")
    }

    // promise: 7.39
    #[test]
    fn all_who_lose_flows_drain_at_the_same_time_and_who_gets_them_has_all_before_it_goes_on() {
        let folder = tempfile::tempdir().expect("a folder");
        let log = Log::default();
        // None of the three answers before all have been asked.
        let barrier = Arc::new(Barrier::new(3));
        let first = member(folder.path(), 0, &log, done);
        let leaving: Vec<Member> = (1..4)
            .map(|number| {
                let barrier = Arc::clone(&barrier);
                member(folder.path(), number, &log, move |asked| {
                    barrier.wait();
                    done(asked)
                })
            })
            .collect();
        let (way, its_end) = stands();
        let note = note(4, 1);
        let led = || {
            log.lock().expect("whole").push(json!("led"));
            Ok(())
        };
        let until = |port: u32| 100 + port;
        let exchanged = exchange(&note, leaving.iter(), vec![(&first, way)], &until, led);
        let exchanged = exchanged.expect("nothing is wrong");
        assert!(exchanged.problems.is_empty(), "{exchanged:?}");
        assert_eq!((exchanged.taken, exchanged.left_out), (6, 3));
        let asked = log_of(&log);
        assert_eq!(asked[0], "led", "nobody drains before");
        let of = |op: &str| asked.iter().filter(|it| it["op"] == op).collect::<Vec<_>>();
        let (drains, imports) = (of("drain"), of("import"));
        assert_eq!((drains.len(), imports.len()), (3, 3));
        assert!(
            drains
                .iter()
                .all(|it| it["until"][0] == 100 + it["member"].as_u64().expect("who"))
        );
        assert!(imports.iter().all(|it| it["member"] == 0));
        let mut byte = [0];
        assert_eq!(rustix::io::read(&its_end, &mut byte), Ok(0), "it goes on");
    }

    #[test]
    fn a_member_that_does_not_drain_keeps_no_other_member_stopped() {
        let folder = tempfile::tempdir().expect("a folder");
        let log = Log::default();
        let first = member(folder.path(), 0, &log, |_| json!({ "error": "no room" }));
        let new = member(folder.path(), 1, &log, done);
        let (way, its_end) = stands();
        let note = note(1, 2);
        let exchanged = exchange(
            &note,
            [&first].into_iter(),
            vec![(&new, way)],
            &|_| 0,
            || Ok(()),
        );
        let exchanged = exchanged.expect("it is told otherwise");
        assert!(exchanged.problems[0].contains("no room"), "{exchanged:?}");
        assert_eq!(
            exchanged.failed_givers,
            BTreeSet::from([0]),
            "it keeps its states"
        );
        assert_eq!(log_of(&log).len(), 1, "nothing is taken in");
        assert_eq!(rustix::io::read(&its_end, &mut [0]), Ok(0), "it goes on");
    }

    #[test]
    fn nothing_is_asked_if_the_flows_cannot_be_led() {
        let folder = tempfile::tempdir().expect("a folder");
        let log = Log::default();
        let first = member(folder.path(), 0, &log, done);
        let new = member(folder.path(), 1, &log, done);
        let (way, its_end) = stands();
        let refused = || Err(PlatformError::new(PlatformErrorKind::Failed, "no table"));
        let note = note(1, 2);
        let exchanged = exchange(
            &note,
            [&first].into_iter(),
            vec![(&new, way)],
            &|_| 0,
            refused,
        );
        assert_eq!(exchanged.expect_err("refused").message, "no table");
        assert_eq!(log_of(&log), Vec::<Value>::new());
        assert_eq!(rustix::io::read(&its_end, &mut [0]), Ok(0), "it goes on");
    }
}
