//! Following what fast paths depend on: a thread that reads rule sets anew when the kernel says that they have changed, takes
//! hold of interfaces that return, has servers looked after, and slow paths started again.
//!
//! The thread reads and loads without the lock of [`FastPaths`], see [`super::shared`].

use super::balancing::Followed as Weight;
use super::checks::{Checks, Subject};
use super::load::{self, Loads, Reading};
use super::shared::{Shared, Watched};
use super::{FastPaths, Work};
use nfluid_api::types::EventKind;
use nfluid_evnf::nft::legacy_tables;
use nfluid_switch::uplink::{Monitor, Place};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// How often it is asked which fast paths there are, if the kernel says nothing.
const LOOK: Duration = Duration::from_millis(200);
/// How often interfaces that are gone are looked for, and rules that could not be read.
const AGAIN: Duration = Duration::from_secs(1);
/// Rules are changed in bursts: how long nothing more must have been said of them, and how long at most is waited for that.
const CALM: Duration = Duration::from_millis(20);
const PATIENCE: Duration = Duration::from_millis(200);

/// What is followed for one fast path.
struct Followed {
    place: Place,
    monitors: Vec<Monitor>,
    /// Its rules are to be read.
    is_stale: bool,
    /// Tables of iptables-legacy, which nobody announces, if it goes by the host's rules.
    legacy: Option<Vec<String>>,
    checks: Option<Checks>,
    loads: Option<Loads>,
    tried: Instant,
}

/// Where a fast path is, whether it goes by the host's rules, which servers are to be looked after, and whose load is asked for.
struct Subjects {
    place: Place,
    has_rules: bool,
    checked: Option<Subject>,
    asked: Option<load::Subject>,
}

impl Followed {
    /// Whether there is another table of iptables-legacy than when it was asked last.
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

/// Follows fast paths; never returns. `report` has the daemon fetch the events of what was done; it is called without the
/// lock of [`FastPaths`].
pub fn run(fast_paths: Shared, report: impl Fn() + Send + Sync + 'static) -> ! {
    let paths = Watched::new(fast_paths, report);
    let mut followed: BTreeMap<String, Followed> = BTreeMap::new();
    loop {
        renew(&paths, &mut followed);
        let slow = paths.with(|paths| paths.slow_descriptors());
        wait(&followed, &slow);
        paths.with(FastPaths::look_at_slow_paths);
        listen(&mut followed);
        for (name, one) in &mut followed {
            if one.is_stale || one.tried.elapsed() > AGAIN {
                one.tried = Instant::now();
                if paths.with(|paths| paths.hold_again(name)) {
                    // Its namespace may be another of the same name.
                    one.monitors = monitors(name, &one.place);
                    one.is_stale = true;
                }
                one.is_stale |=
                    paths.with(|paths| paths.has_unread_rules(name)) || one.has_other_tables();
            }
            if std::mem::take(&mut one.is_stale) {
                read_again(&paths, name);
            }
        }
    }
}

/// Begins to follow those that are new, and ends to follow those that are gone.
fn renew(paths: &Watched, followed: &mut BTreeMap<String, Followed>) {
    let now = paths.with(|paths| paths.subjects());
    followed.retain(|name, one| now.get(name).is_some_and(|it| it.place == one.place));
    for (name, subjects) in now {
        let Subjects {
            place,
            has_rules,
            checked,
            asked,
        } = subjects;
        let one = followed.entry(name.clone()).or_insert_with(|| Followed {
            monitors: monitors(&name, &place),
            place: place.clone(),
            // What has changed before the kernel was asked to tell.
            is_stale: true,
            legacy: has_rules.then(Vec::new),
            checks: None,
            loads: None,
            tried: Instant::now(),
        });
        // The former ones end when they are dropped.
        if one.checks.as_ref().map(Checks::subject) != checked.as_ref() {
            one.checks = checked.map(|checked| Checks::start(paths, &name, &place, checked));
        }
        if one.loads.as_ref().map(Loads::subject) != asked.as_ref() {
            one.loads = asked.map(|asked| Loads::start(paths, &name, &place, asked));
        }
    }
}

fn monitors(name: &str, place: &Place) -> Vec<Monitor> {
    let made = place.within(|| Ok(vec![Monitor::of_rules()?, Monitor::of_addresses()?]));
    made.unwrap_or_else(|error| {
        tracing::warn!(instance = name, %error, "changes of rules are not followed");
        Vec::new()
    })
}

/// Waits until the kernel says something, or one of these descriptors is readable.
fn wait(followed: &BTreeMap<String, Followed>, slow: &[OwnedFd]) {
    let monitors = followed.values().flat_map(|one| &one.monitors);
    let mut fds: Vec<PollFd<'_>> = monitors
        .map(AsFd::as_fd)
        .chain(slow.iter().map(AsFd::as_fd))
        .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
        .collect();
    let timeout = Timespec::try_from(LOOK).unwrap_or_default();
    // Interrupted or not: look.
    let _ = poll(&mut fds, Some(&timeout));
}

/// Notes of whom the kernel has said something, whatever that was, until it says no more.
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

/// Reads the rules of a firewall, and puts them in force if they are others.
fn read_again(paths: &Watched, name: &str) {
    let Some(reading) = paths.with(|paths| paths.reading(name)) else {
        return;
    };
    let read = reading.read();
    paths.with(|paths| {
        let put = read.and_then(|read| paths.put_rules_in_force(name, &reading, read));
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
    /// What is to be followed of each fast path.
    fn subjects(&self) -> BTreeMap<String, Subjects> {
        let subjects = self.instances.iter().filter_map(|(name, fast)| {
            let place = super::places(&fast.spec).into_iter().next()?;
            let config = match &fast.work {
                Work::Firewall(_) | Work::Inspector(_) | Work::Guard(_) => None,
                Work::Balancer(balancing) => Some(balancing.config()),
            };
            let subjects = Subjects {
                place,
                has_rules: matches!(fast.work, Work::Firewall(_)),
                checked: config.and_then(Subject::of),
                asked: config.and_then(load::Subject::of),
            };
            Some((name.clone(), subjects))
        });
        subjects.collect()
    }

    /// Whether a firewall's rules could not be read the last time.
    fn has_unread_rules(&self, name: &str) -> bool {
        self.instances.get(name).is_some_and(|fast| {
            let Work::Firewall(loaded) = &fast.work else {
                return false;
            };
            fast.problem.is_some() || loaded.iter().any(Option::is_none)
        })
    }

    /// Notes what a server's agent has said of its load.
    pub(super) fn note_load(&mut self, name: &str, key: &str, said: Result<Reading, String>) {
        let file = self.paths.record(name);
        let Some(fast) = self.instances.get_mut(name) else {
            return;
        };
        let Work::Balancer(balancing) = &mut fast.work else {
            return;
        };
        let followed = balancing.loaded(key, said, &mut fast.record.numbers);
        let reason = balancing.load_reason(key).unwrap_or_default().to_owned();
        match followed {
            Ok(Weight::Same) => return,
            Ok(_) => {}
            Err(ref error) => tracing::warn!(instance = name, "{key}: {error:#}"),
        }
        if let Err(error) = nfluid_records::save(&fast.record, &file) {
            tracing::warn!(instance = name, %error, "writing down the weight of a server");
        }
        let (kind, message) = match followed {
            Ok(Weight::GivenUp) => (
                EventKind::Warning,
                format!(
                    "server {key} has its configured weight, as its load is not known: {reason}"
                ),
            ),
            Ok(Weight::Again) => (
                EventKind::Changed,
                format!("server {key} has a weight by its load again"),
            ),
            _ => return,
        };
        self.event(kind, name, message);
    }

    /// Notes what looking at a server has found.
    pub(super) fn note_server(&mut self, name: &str, key: &str, down: Option<&str>) {
        let file = self.paths.record(name);
        let Some(fast) = self.instances.get_mut(name) else {
            return;
        };
        let Work::Balancer(balancing) = &mut fast.work else {
            return;
        };
        let noted = balancing.found(key, down, &mut fast.record.numbers);
        match noted {
            Ok(false) => return,
            Ok(true) => {}
            Err(error) => tracing::warn!(instance = name, "{key}: {error:#}"),
        }
        if let Err(error) = nfluid_records::save(&fast.record, &file) {
            tracing::warn!(instance = name, %error, "writing down the state of a server");
        }
        let (kind, message) = match down {
            Some(why) => (EventKind::Unhealthy, format!("server {key} is down: {why}")),
            None => (EventKind::Healthy, format!("server {key} is up again")),
        };
        self.event(kind, name, message);
    }
}
