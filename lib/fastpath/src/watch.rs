//! Monitoring of what fast paths depend on: a thread rereads rules when the kernel reports a change, attaches fast
//! paths again to interfaces that return, and has functions check their servers and processes.
//!
//! The thread reads and loads without the lock of [`FastPaths`], see [`super::shared`].

use super::FastPaths;
use super::function::Waker;
use super::placement::places;
use super::shared::Shared;
use nfluid_api::types::EventKind;
use nfluid_evnf::nft::legacy_tables;
use nfluid_netdev::{Monitor, Place};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// Interval of checks for new and removed fast paths, if the kernel reports nothing.
const LOOK: Duration = Duration::from_millis(200);
/// Retry interval for attaching to missing interfaces, and for reading rules after a failure.
const AGAIN: Duration = Duration::from_secs(1);
/// Rules change in bursts: a burst has ended when the kernel has reported nothing for `CALM`, or after `PATIENCE`.
const CALM: Duration = Duration::from_millis(20);
const PATIENCE: Duration = Duration::from_millis(200);

/// What is monitored for one fast path.
struct Followed {
    place: Place,
    monitors: Vec<Monitor>,
    /// True if its rules must be reread.
    is_stale: bool,
    /// Tables of iptables-legacy, if the function depends on the host's rules: the kernel does not report changes of
    /// them.
    legacy: Option<Vec<String>>,
    tried: Instant,
}

/// Interface of a fast path, and whether the fast path depends on the host's rules.
struct Subject {
    place: Place,
    has_rules: bool,
}

impl Followed {
    /// Returns true if the tables of iptables-legacy have changed since the last call.
    fn has_other_tables(&mut self) -> bool {
        let Some(known) = &mut self.legacy else {
            return false;
        };
        let found = self.place.within(|| Ok(legacy_tables()));
        let Ok(found) = found else {
            return false;
        };
        let is_other = found != *known;
        *known = found;
        is_other
    }
}

/// Monitors fast paths; never returns.
pub fn run(paths: &Shared) -> ! {
    let mut followed: BTreeMap<String, Followed> = BTreeMap::new();
    loop {
        renew(paths, &mut followed);
        let slow = paths.with(|paths| paths.descriptors());
        wait(&followed, &slow);
        paths.with(FastPaths::look_at_all);
        listen(&mut followed);
        for (name, one) in &mut followed {
            if one.is_stale || one.tried.elapsed() > AGAIN {
                one.tried = Instant::now();
                if paths.with(|paths| paths.attach_again(name)) {
                    // The namespace may be a new one of the same name.
                    one.monitors = monitors(name, &one.place);
                    one.is_stale = true;
                }
                one.is_stale |=
                    paths.with(|paths| paths.has_unread_rules(name)) || one.has_other_tables();
            }
            if std::mem::take(&mut one.is_stale) {
                read_again(paths, name);
            }
        }
    }
}

/// Starts monitoring new fast paths, and stops monitoring removed ones.
fn renew(paths: &Shared, followed: &mut BTreeMap<String, Followed>) {
    let now = paths.with(|all| all.subjects(paths));
    followed.retain(|name, one| now.get(name).is_some_and(|it| it.place == one.place));
    for (name, Subject { place, has_rules }) in now {
        let monitors = || monitors(&name, &place);
        followed.entry(name.clone()).or_insert_with(|| Followed {
            monitors: monitors(),
            place: place.clone(),
            // Rules may have changed before the monitors were made.
            is_stale: true,
            legacy: has_rules.then(Vec::new),
            tried: Instant::now(),
        });
    }
}

fn monitors(name: &str, place: &Place) -> Vec<Monitor> {
    let made = place.within(|| Ok(vec![Monitor::of_rules()?, Monitor::of_addresses()?]));
    made.unwrap_or_else(|error| {
        tracing::warn!(instance = name, %error, "changes of rules are not followed");
        Vec::new()
    })
}

/// Waits until the kernel reports a change, one of these descriptors is readable, or `LOOK` has passed.
fn wait(followed: &BTreeMap<String, Followed>, slow: &[OwnedFd]) {
    let monitors = followed.values().flat_map(|one| &one.monitors);
    let mut fds: Vec<PollFd<'_>> = monitors
        .map(AsFd::as_fd)
        .chain(slow.iter().map(AsFd::as_fd))
        .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
        .collect();
    let timeout = Timespec::try_from(LOOK).unwrap_or_default();
    // An interrupted poll is no error: all sources are checked.
    let _ = poll(&mut fds, Some(&timeout));
}

/// Notes the fast paths for which the kernel has reported a change, until the burst has ended.
fn listen(followed: &mut BTreeMap<String, Followed>) {
    let begun = Instant::now();
    loop {
        let mut any = false;
        for one in followed.values_mut() {
            for monitor in &one.monitors {
                if monitor.drain() {
                    one.is_stale = true;
                    any = true;
                }
            }
        }
        if !any || begun.elapsed() > PATIENCE {
            return;
        }
        std::thread::sleep(CALM);
    }
}

/// Reads the rules of a fast path, and puts them in force if they have changed.
fn read_again(paths: &Shared, name: &str) {
    let Some(mut reading) = paths.with(|paths| paths.reading(name)) else {
        return;
    };
    let read = reading.read();
    paths.with(|paths| {
        let put = read.and_then(|()| paths.put_rules_in_force(name, &mut reading));
        match put {
            Ok(changed) => {
                paths.note_problem(name, None);
                if changed {
                    let message = "the host's rules have changed: the fast path has them now";
                    paths.event(EventKind::Changed, name, message);
                }
            }
            Err(why) => {
                let problem = format!("the rules cannot be followed: {why}");
                paths.note_problem(name, Some(problem));
            }
        }
    });
}

impl FastPaths {
    /// Returns what is to be monitored for each fast path, and has functions start and end their threads.
    fn subjects(&mut self, shared: &Shared) -> BTreeMap<String, Subject> {
        let subjects = self.instances.iter_mut().filter_map(|(name, fast)| {
            let place = places(&fast.spec).into_iter().next()?;
            let (shared, own) = (shared.clone(), name.clone());
            let waker = Waker::new(move || shared.with(|paths| paths.look(&own)));
            fast.function.follow(name, &place, &waker);
            let has_rules = fast.function.has_host_rules();
            Some((name.clone(), Subject { place, has_rules }))
        });
        subjects.collect()
    }

    /// Returns true if the host's rules could not be read the last time.
    fn has_unread_rules(&self, name: &str) -> bool {
        self.instances.get(name).is_some_and(|fast| {
            let function = &fast.function;
            function.has_host_rules() && (fast.problem.is_some() || function.has_unread_rules())
        })
    }

    /// Returns descriptors that become readable when a function has work.
    fn descriptors(&self) -> Vec<OwnedFd> {
        let functions = self.instances.values().map(|fast| &fast.function);
        functions
            .flat_map(|function| function.descriptors())
            .collect()
    }

    /// Has all functions handle their events.
    fn look_at_all(&mut self) {
        let names: Vec<String> = self.instances.keys().cloned().collect();
        for name in names {
            self.look(&name);
        }
    }

    /// Has a function handle its events.
    fn look(&mut self, name: &str) {
        self.act(name, |function, context| function.look(context));
    }

    /// Notes a problem of a fast path, or that it has ended.
    fn note_problem(&mut self, name: &str, problem: Option<String>) {
        self.act(name, |_, context| context.note_problem(problem));
    }
}
