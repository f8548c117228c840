//! The life of instances with a runtime that does nothing: no root, no process, no switch.

mod bed;
mod null;

use bed::Daemon;
use nfluid_api::types::{EventKind, InstanceState, PausedTraffic};
use nfluid_control::apply::PlatformErrorKind;
use nfluid_control::model::{Backoff, Restart, RestartPolicy};
use nfluid_control::quantity::Millis;
use nfluid_control::supervise::Exit;
use nfluid_lifecycle::services::Services as _;
use nfluid_lifecycle::{creation, departure, pausing, supervision, upgrade};
use null::Shared;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use std::collections::BTreeSet;
use std::sync::Mutex;

const ALL_TRAFFIC: [PausedTraffic; 3] = [
    PausedTraffic::Hold,
    PausedTraffic::Drop,
    PausedTraffic::Bypass,
];

/// A restart policy without a wait.
fn restart(policy: RestartPolicy, max: Option<u32>) -> Restart {
    Restart {
        policy,
        max,
        backoff: Backoff {
            shortest: Millis(0),
            longest: Millis(0),
        },
        healthy: Millis(u64::MAX),
    }
}

fn always() -> Restart {
    restart(RestartPolicy::Always, None)
}

/// Creates a daemon with the instance `fw`.
fn with_one(restart: Restart) -> Daemon {
    let mut daemon = Daemon::of(&Shared::default());
    daemon.create("fw", restart).expect("nothing fails");
    daemon
}

fn state(daemon: &Daemon) -> InstanceState {
    daemon.instances().get("fw").expect("it is there").state
}

fn crash(daemon: &mut Daemon, exit: Exit) {
    daemon.world.crash("fw", exit);
    supervision::note_exits(daemon, &["fw".to_owned()]);
}

// Catches: an instance that was asked to end is started again before it is removed.
// promise: 7.41
#[test]
fn the_exit_of_an_instance_that_was_asked_to_end_is_no_crash() {
    let mut daemon = with_one(always());
    let mark = |daemon: &mut Daemon, is_ending| {
        let running = daemon.instances_mut().get_mut("fw");
        running.expect("it is there").is_ending = is_ending;
    };
    mark(&mut daemon, true);
    crash(&mut daemon, Exit::Success);
    assert_eq!(state(&daemon), InstanceState::Running);
    // Whoever asked has given up.
    mark(&mut daemon, false);
    supervision::note_exits(&mut daemon, &["fw".to_owned()]);
    assert_eq!(state(&daemon), InstanceState::Waiting);
}

#[test]
fn what_is_made_runs_and_what_is_taken_out_is_gone_when_its_remains_are() {
    let mut daemon = with_one(always());
    assert!(daemon.world.seen("fw").pid.is_some());
    let remains = creation::end(&mut daemon, "fw").expect("it ends");
    assert!(daemon.instances().get("fw").is_none());
    assert_eq!(daemon.world.seen("fw").pid, None);
    assert_eq!(daemon.world.lock().instances.len(), 1, "its remains");
    drop(remains);
    assert!(daemon.world.lock().instances.is_empty());
}

#[test]
fn what_cannot_be_limited_is_not_taken_up_and_leaves_nothing() {
    let mut daemon = Daemon::of(&Shared::default());
    daemon.world.lock().failing.insert("cap");
    let spec = {
        let mut spec = bed::spec(always());
        spec.resources.group = Some("gold".to_owned());
        spec
    };
    let prepared = creation::start(&daemon, "fw", &spec).expect("nothing fails");
    creation::take_up(&mut daemon, "fw", &spec, prepared).expect_err("no cap");
    assert!(daemon.instances().get("fw").is_none());
    assert!(daemon.world.lock().instances.is_empty());
}

#[test]
fn an_instance_that_crashes_is_started_again_on_its_ports() {
    let mut daemon = with_one(always());
    let before = daemon.world.seen("fw").pid;
    crash(&mut daemon, Exit::Failure);
    assert_eq!(state(&daemon), InstanceState::Waiting);
    let seen = daemon.world.seen("fw");
    assert_eq!((seen.reclaims, seen.is_up), (1, false));
    supervision::start_due(&mut daemon);
    assert_eq!(state(&daemon), InstanceState::Running);
    let seen = daemon.world.seen("fw");
    assert!(seen.is_up && seen.pid.is_some() && seen.pid != before);
    let events = [EventKind::Crashed, EventKind::Started];
    assert_eq!(daemon.take_events(), events);
    // Reported once, not at each check.
    supervision::start_due(&mut daemon);
    assert_eq!(daemon.world.seen("fw").starts, 2);
}

// promise: 5.5
#[test]
fn an_instance_that_crashes_too_often_is_given_up_and_an_operator_starts_it() {
    let mut daemon = with_one(restart(RestartPolicy::Always, Some(2)));
    for _ in 0..3 {
        crash(&mut daemon, Exit::Failure);
        supervision::start_due(&mut daemon);
    }
    assert_eq!(state(&daemon), InstanceState::Failed);
    assert_eq!(daemon.world.seen("fw").starts, 3);
    assert_eq!(
        daemon.take_events().last(),
        Some(&EventKind::CrashLoop),
        "the operator hears of it"
    );
    supervision::restart(&mut daemon, "fw").expect("nothing fails");
    assert_eq!(state(&daemon), InstanceState::Running);
    crash(&mut daemon, Exit::Failure);
    assert_eq!(state(&daemon), InstanceState::Waiting, "it was forgiven");
}

// promise: 5.5
#[test]
fn an_instance_that_ends_with_success_is_not_restarted_if_its_policy_says_so() {
    for (policy, exit, expected) in [
        (RestartPolicy::Always, Exit::Success, InstanceState::Waiting),
        (
            RestartPolicy::OnFailure,
            Exit::Success,
            InstanceState::Stopped,
        ),
        (
            RestartPolicy::OnFailure,
            Exit::Failure,
            InstanceState::Waiting,
        ),
        (RestartPolicy::Never, Exit::Failure, InstanceState::Stopped),
    ] {
        let mut daemon = with_one(restart(policy, None));
        crash(&mut daemon, exit);
        assert_eq!(state(&daemon), expected, "{policy:?}, {exit:?}");
    }
}

// promise: 5.5
#[test]
fn an_instance_that_cannot_be_started_again_is_tried_until_it_can() {
    let mut daemon = with_one(always());
    daemon.world.lock().failing.insert("start");
    crash(&mut daemon, Exit::Failure);
    for _ in 0..3 {
        supervision::start_due(&mut daemon);
        assert_eq!(state(&daemon), InstanceState::Waiting);
    }
    daemon.world.lock().failing.clear();
    supervision::start_due(&mut daemon);
    assert_eq!(state(&daemon), InstanceState::Running);
}

/// Asserts that nothing of a pause is left.
fn assert_goes_on(daemon: &Daemon, what: &str) {
    let seen = daemon.world.seen("fw");
    assert!(seen.is_up, "{what}: its ports are shut");
    assert!(!seen.is_frozen, "{what}: it stands still");
    assert!(daemon.bypassed.is_empty(), "{what}: frames are led past it");
    let running = daemon.instances().get("fw").expect("it is there");
    assert!(!running.is_paused(), "{what}: it counts as paused");
    assert_eq!(running.state, InstanceState::Running, "{what}");
}

// promise: 5.7
#[test]
fn a_pause_stops_instance_and_traffic_as_asked_and_its_end_undoes_both() {
    for traffic in ALL_TRAFFIC {
        let mut daemon = with_one(always());
        pausing::pause(&mut daemon, "fw", traffic).expect("nothing fails");
        let seen = daemon.world.seen("fw");
        assert!(seen.is_frozen);
        assert_eq!(seen.paused_on_disk, Some(traffic));
        assert_eq!(seen.is_up, traffic != PausedTraffic::Drop);
        let bypassed = daemon.bypassed.contains("fw");
        assert_eq!(bypassed, traffic == PausedTraffic::Bypass);
        assert_eq!(state(&daemon), InstanceState::Paused);
        let again = pausing::pause(&mut daemon, "fw", traffic).expect_err("it is paused");
        assert_eq!(again.kind, PlatformErrorKind::Refused);
        pausing::unpause(&mut daemon, "fw").expect("nothing fails");
        assert_goes_on(&daemon, &traffic.to_string());
        assert_eq!(daemon.world.seen("fw").paused_on_disk, None);
    }
}

// promise: 5.7
#[test]
fn a_pause_that_fails_at_any_step_leaves_nothing_behind() {
    for traffic in ALL_TRAFFIC {
        for step in [
            "begin_freeze",
            "await_frozen",
            "save_record",
            "begin_bypass",
        ] {
            let mut daemon = with_one(always());
            daemon.world.lock().failing.insert(step);
            let paused = pausing::pause(&mut daemon, "fw", traffic);
            daemon.world.lock().failing.clear();
            if paused.is_err() {
                assert_goes_on(&daemon, &format!("{traffic}, {step} failed"));
            } else {
                assert!(daemon.world.seen("fw").is_frozen, "{traffic}, {step}");
            }
        }
    }
}

// promise: 5.7
#[test]
fn an_instance_that_cannot_be_thawed_stays_paused_on_the_disk_as_well() {
    let mut daemon = with_one(always());
    pausing::pause(&mut daemon, "fw", PausedTraffic::Drop).expect("nothing fails");
    daemon.world.lock().failing.insert("thaw");
    pausing::unpause(&mut daemon, "fw").expect_err("it stands still");
    let seen = daemon.world.seen("fw");
    assert_eq!(seen.paused_on_disk, Some(PausedTraffic::Drop));
    assert!(!seen.is_up);
    daemon.world.lock().failing.clear();
    pausing::unpause(&mut daemon, "fw").expect("it goes on");
    assert_goes_on(&daemon, "at the second try");
}

// promise: 5.7
#[test]
fn an_instance_that_dies_while_paused_is_restarted_unpaused() {
    for traffic in ALL_TRAFFIC {
        let mut daemon = with_one(always());
        pausing::pause(&mut daemon, "fw", traffic).expect("nothing fails");
        crash(&mut daemon, Exit::Failure);
        assert!(!daemon.world.seen("fw").is_up, "nobody empties its rings");
        supervision::start_due(&mut daemon);
        assert_goes_on(&daemon, &traffic.to_string());
    }
}

// promise: 5.7
#[test]
fn the_next_daemon_finds_an_instance_paused_as_it_was() {
    for traffic in ALL_TRAFFIC {
        let mut daemon = with_one(always());
        pausing::pause(&mut daemon, "fw", traffic).expect("nothing fails");
        let world = daemon.world.clone();
        drop(daemon);
        let mut next = Daemon::of(&world);
        creation::adopt(&mut next, "fw", &bed::spec(always())).expect("it is there");
        assert_eq!(state(&next), InstanceState::Paused);
        assert!(world.seen("fw").is_frozen);
        pausing::unpause(&mut next, "fw").expect("nothing fails");
        assert_goes_on(&next, &traffic.to_string());
    }
}

// promise: 5.8
#[test]
fn a_successor_takes_over_and_one_that_fails_leaves_the_running_one() {
    let host = Mutex::new(with_one(always()));
    let world = host.lock().expect("whole").world.clone();
    let before = world.seen("fw").pid;
    for step in ["begin_succession", "hand_over"] {
        world.lock().failing.insert(step);
        upgrade::succeed(&host, "fw", &bed::spec(always())).expect_err(step);
        world.lock().failing.clear();
        let seen = world.seen("fw");
        assert!(!seen.has_successor, "{step}");
        assert_eq!(seen.pid, before, "{step}");
        let settled = host.lock().expect("whole");
        settled.instances().check_settled("fw").expect(step);
    }
    let other = restart(RestartPolicy::Never, None);
    upgrade::succeed(&host, "fw", &bed::spec(other)).expect("nothing fails");
    let seen = world.seen("fw");
    assert!(!seen.has_successor && seen.pid.is_some() && seen.pid != before);
    let host = host.lock().expect("whole");
    assert_eq!(host.instances().get("fw").expect("it").spec.restart, other);
}

#[test]
fn a_successor_forgets_the_doorbell_of_a_peer_that_went_meanwhile() {
    let mut daemon = with_one(always());
    daemon.create("peer", always()).expect("nothing fails");
    let peers = vec![Some("peer".to_owned()), None];
    daemon.peers.insert("fw".to_owned(), peers.clone());
    let host = Mutex::new(daemon);
    upgrade::succeed(&host, "fw", &bed::spec(always())).expect("nothing fails");
    let host = &mut *host.lock().expect("whole");
    let doorbells = |host: &Daemon| {
        let running = host.instances().get("fw").expect("it is there");
        running.record().doorbells.clone()
    };
    assert_eq!(doorbells(host), peers);
    drop(creation::end(host, "peer").expect("it ends"));
    host.instances_mut().forget_doorbell("peer");
    assert_eq!(doorbells(host), [None, None], "a later peer has another");
}

// promise: 5.36
#[test]
fn nothing_is_done_to_an_instance_of_which_it_is_not_settled_who_has_it() {
    let host = Mutex::new(with_one(always()));
    let process = departure::begin_departure(&host, "fw").expect("it can move");
    {
        let host = &mut *host.lock().expect("whole");
        pausing::pause(host, "fw", PausedTraffic::Hold).expect_err("pause");
        supervision::restart(host, "fw").expect_err("restart");
        assert!(creation::end(host, "fw").is_err(), "end");
        // The other host may have caused the end.
        crash(host, Exit::Failure);
        assert_eq!(state(host), InstanceState::Running);
    }
    upgrade::succeed(&host, "fw", &bed::spec(always())).expect_err("upgrade");
    assert_eq!(departure::process_of(&host, "fw"), None, "{process}");
    departure::settle(&host, "fw");
    let host = &mut *host.lock().expect("whole");
    assert_eq!(state(host), InstanceState::Waiting, "its end is noted now");
}

// promise: 5.36
#[test]
fn what_may_change_around_an_instance_follows_from_its_way() {
    let host = Mutex::new(with_one(always()));
    let is_leaving = || {
        let host = host.lock().expect("whole");
        host.instances().leaving().any(|name| name == "fw")
    };
    let may_change = |is_filter: bool| {
        let host = host.lock().expect("whole");
        match is_filter {
            true => host.instances().check_stays("fw").is_ok(),
            false => host.instances().check_settled("fw").is_ok(),
        }
    };
    let stays = || !is_leaving() && may_change(true) && may_change(false);
    assert!(stays());
    departure::begin_departure(&host, "fw").expect("it can move");
    assert!(is_leaving() && !may_change(true) && !may_change(false));
    // Who waits for a host that does not answer leads traffic around the instance.
    departure::unsettle(&host, "fw");
    assert!(!is_leaving() && !may_change(true) && !may_change(false));
    departure::settle(&host, "fw");
    assert!(stays());
    // What arrives is wired here.
    departure::close_ports(&host, "fw").expect("it runs");
    assert!(!is_leaving() && may_change(true) && !may_change(false));
    departure::settle(&host, "fw");
    departure::let_go(&host, "fw");
    assert!(is_leaving() && !may_change(true) && !may_change(false));
    let ended = creation::end(&mut *host.lock().expect("whole"), "fw");
    assert!(ended.expect("it can be removed").is_some());
}

/// An event in an instance's life.
#[derive(Clone, Copy, Debug)]
enum Step {
    Create,
    End,
    Crash(bool),
    StartDue,
    Restart,
    Pause(PausedTraffic),
    Unpause,
    Upgrade,
    Fail(&'static str),
    Mend,
    NextDaemon,
}

fn step() -> impl Strategy<Value = Step> {
    let methods = prop::sample::select(vec![
        "make",
        "start",
        "stop",
        "begin_freeze",
        "await_frozen",
        "thaw",
        "save_record",
        "begin_bypass",
        "begin_succession",
        "hand_over",
        "reclaim",
    ]);
    prop_oneof![
        1 => Just(Step::Create),
        1 => Just(Step::End),
        1 => any::<bool>().prop_map(Step::Crash),
        3 => Just(Step::StartDue),
        1 => Just(Step::Restart),
        1 => prop::sample::select(ALL_TRAFFIC.to_vec()).prop_map(Step::Pause),
        2 => Just(Step::Unpause),
        1 => Just(Step::Upgrade),
        1 => methods.prop_map(Step::Fail),
        3 => Just(Step::Mend),
        1 => Just(Step::NextDaemon),
    ]
}

fn take(host: Mutex<Daemon>, step: Step) -> Mutex<Daemon> {
    let world = host.lock().expect("whole").world.clone();
    if matches!(step, Step::Upgrade) {
        let _refused = upgrade::succeed(&host, "fw", &bed::spec(always()));
        return host;
    }
    let mut daemon = host.into_inner().expect("whole");
    match step {
        Step::Create if daemon.instances().get("fw").is_none() => {
            let _refused = daemon.create("fw", always());
        }
        Step::Create | Step::Upgrade => {}
        Step::End => drop(creation::end(&mut daemon, "fw")),
        Step::Crash(well) => {
            let exit = if well { Exit::Success } else { Exit::Failure };
            crash(&mut daemon, exit);
        }
        Step::StartDue => supervision::start_due(&mut daemon),
        Step::Restart => {
            let _refused = supervision::restart(&mut daemon, "fw");
        }
        Step::Pause(traffic) => {
            let _refused = pausing::pause(&mut daemon, "fw", traffic);
        }
        Step::Unpause => {
            let _refused = pausing::unpause(&mut daemon, "fw");
        }
        Step::Fail(method) => drop(world.lock().failing.insert(method)),
        Step::Mend => world.lock().failing.clear(),
        Step::NextDaemon => {
            let runs = daemon
                .instances()
                .get("fw")
                .is_some_and(|it| it.has_process());
            if runs && world.lock().failing.is_empty() {
                daemon = Daemon::of(&world);
                creation::adopt(&mut daemon, "fw", &bed::spec(always())).expect("it runs");
            }
        }
    }
    Mutex::new(daemon)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 1000,
        failure_persistence: None,
        // The same histories in each run.
        rng_seed: RngSeed::Fixed(1),
        ..ProptestConfig::default()
    })]

    /// After any history, with calls that fail at any moment: what is said of the instance is so, and when nothing fails any more
    /// it can be brought to run with open ports and no pause.
    // promise: 5.39
    #[test]
    fn whatever_happens_an_instance_is_as_it_is_said_to_be(steps in prop::collection::vec(step(), 1..40)) {
        let mut host = Mutex::new(with_one(always()));
        for step in steps {
            host = take(host, step);
        }
        let mut daemon = host.into_inner().expect("whole");
        let world = daemon.world.clone();
        world.lock().failing.clear();
        let names: BTreeSet<String> = world.lock().instances.keys().cloned().collect();
        let known: BTreeSet<String> = daemon.instances().table().keys().cloned().collect();
        prop_assert_eq!(names, known, "an instance that nobody knows, or one that is not there");
        if daemon.instances().get("fw").is_some() {
            let (state, is_paused) = {
                let running = daemon.instances().get("fw").expect("it is there");
                (running.state, running.is_paused())
            };
            let seen = world.seen("fw");
            prop_assert!(!seen.has_successor);
            prop_assert_eq!(seen.pid.is_some(), matches!(state, InstanceState::Running | InstanceState::Paused));
            if state == InstanceState::Paused {
                prop_assert!(is_paused, "it could not be let go");
            }
            if state == InstanceState::Running {
                prop_assert!(!is_paused && !seen.is_frozen && seen.is_up, "it runs, they say");
                prop_assert!(daemon.bypassed.is_empty());
            }
            let _not_paused = pausing::unpause(&mut daemon, "fw");
            supervision::restart(&mut daemon, "fw").expect("nothing fails");
            assert_goes_on(&daemon, "in the end");
        }
    }
}
