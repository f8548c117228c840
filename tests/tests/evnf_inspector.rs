//! eDPI on real traffic: through the fast path, everything is classified and counted as by the classifier alone,
//! whichever way each packet has taken.

use nfluid_dpi::classifier::{Classifier, Limits};
use nfluid_dpi::headers::Link;
use nfluid_dpi::inspector::{Accounts, Again, Inspector, Settings};
use nfluid_dpi::library::Library;
use nfluid_dpi::policy::{Rule, Rules, Treatment, When};
use nfluid_evnf::inspector::{
    Action as Treated, Entry, Exit, FlowKey, Inspector as FastPath, Sizes,
};
use nfluid_evnf::load::{Action, Counts};
use nfluid_gen::capture::{self, Capture};
use nfluid_tests::harness::oracle::Namespaces;
use nfluid_tests::harness::skip::{is_root, skip};
use nfluid_wire::MacAddr;
use nfluid_wire::build::Frame;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

const CAPTURES: &str = "../../shared/data/pcap";
/// With long flows of several applications, in frames of an Ethernet.
const NAMES: [&str; 4] = [
    "netflix.pcap",
    "skype-conference-call.pcap",
    "http_ipv6.pcap",
    "zoom.pcap",
];
/// Longest packet on which the kernel runs a program in a test.
const LONGEST: usize = 2000;

fn frames(test: &str, name: &str) -> Option<Vec<Vec<u8>>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join(CAPTURES)
        .join(name);
    let Ok(mut capture) = Capture::open(&path) else {
        skip(test, &format!("there is no capture {}", path.display()));
        return None;
    };
    let mut frames = Vec::new();
    while let Some(frame) = capture.next_frame().expect("it is whole") {
        assert_eq!(frame.link, capture::Link::Ethernet);
        if (14..LONGEST).contains(&frame.bytes.len()) {
            frames.push(frame.bytes.to_vec());
        }
    }
    Some(frames)
}

fn library(test: &str) -> Option<Library> {
    match Library::open() {
        Ok(library) => Some(library),
        Err(error) => {
            skip(test, &error.to_string());
            None
        }
    }
}

/// A time in which nothing expires, however long the test takes.
fn settings() -> Settings {
    let long = Duration::from_secs(3600);
    Settings {
        limits: Limits {
            idle: long,
            ..Limits::default()
        },
        again: Again {
            after: long,
            ..Again::default()
        },
        ..Settings::default()
    }
}

fn load(library: Library, settings: Settings, rules: Rules) -> Inspector {
    let policy = Box::new(move |_: &_, flow: &_| rules.decide(flow));
    Inspector::load(library, settings, policy).expect("the kernel takes it")
}

fn run(inspector: &mut Inspector, frames: &[Vec<u8>]) {
    for frame in frames {
        inspector.fast().test_run(frame, 1).expect("it runs");
        inspector.wait(Duration::ZERO).expect("it works");
    }
}

fn accounts(inspector: &Inspector) -> Accounts {
    inspector.accounts().expect("it tells")
}

fn sum(frames: &[Vec<u8>]) -> Counts {
    Counts {
        packets: frames.len() as u64,
        bytes: frames.iter().map(|frame| frame.len() as u64).sum(),
    }
}

fn left_by(inspector: &Inspector, exit: Exit) -> u64 {
    let exits = inspector.exits().expect("it tells");
    let found = exits.iter().find(|(one, _)| *one == exit);
    found.expect("it is one").1.packets
}

// promise: 15.22
#[test]
fn each_application_gets_what_passed_whichever_way_it_took() {
    let test = "each_application_gets_what_passed_whichever_way_it_took";
    if !is_root(test) {
        return;
    }
    for name in NAMES {
        let (Some(frames), Some(known), Some(own)) =
            (frames(test, name), library(test), library(test))
        else {
            return;
        };
        let mut classifier = Classifier::new(known, Limits::default());
        for frame in &frames {
            classifier.packet(frame, Link::Ethernet, frame.len() as u64, 0);
        }
        classifier.decide_all();
        let mut inspector = load(own, settings(), Rules::default());
        run(&mut inspector, &frames);
        inspector.decide_all();
        let own = accounts(&inspector);
        assert_eq!(own.applications, classifier.totals(), "{name}");
        assert_eq!(own.sum(), sum(&frames), "{name}");
        assert!(own.fast > 0, "{name}: {own:?}");
        assert!(left_by(&inspector, Exit::Passed) > 0, "{name}");
        // The counts of ended flows stay.
        inspector
            .pass_time(Duration::from_secs(7200))
            .expect("it works");
        let ended = accounts(&inspector);
        assert_eq!(ended.fast, 0, "{name}");
        assert_eq!(ended.applications, own.applications, "{name}");
    }
}

// promise: 15.22
#[test]
fn a_full_table_elephants_and_second_looks_lose_no_packet() {
    let test = "a_full_table_elephants_and_second_looks_lose_no_packet";
    if !is_root(test) {
        return;
    }
    let (Some(frames), Some(first), Some(second), Some(third)) = (
        frames(test, NAMES[0]),
        library(test),
        library(test),
        library(test),
    ) else {
        return;
    };
    let small = Settings {
        sizes: Sizes {
            flows: 2,
            ..Sizes::default()
        },
        ..settings()
    };
    let mut inspector = load(first, small, Rules::default());
    run(&mut inspector, &frames);
    let counted = accounts(&inspector);
    assert_eq!((counted.fast, counted.sum()), (2, sum(&frames)));
    assert!(counted.refused > 0, "{counted:?}");

    let elephants = Rules {
        by_application: HashMap::new(),
        others: Rule {
            when: When::Elephant {
                bytes: 15_000,
                rate: u64::MAX,
            },
            treatment: Treatment::COUNT,
        },
    };
    let mut inspector = load(second, settings(), elephants);
    run(&mut inspector, &frames);
    let counted_elephants = accounts(&inspector);
    assert_eq!(counted_elephants.sum(), sum(&frames));
    assert!(counted_elephants.fast > 0, "{counted_elephants:?}");
    assert!(counted_elephants.fast < 50, "{counted_elephants:?}");

    let again = Settings {
        again: Again {
            packets: 10,
            after: Duration::from_secs(3600),
            look: 4,
        },
        ..settings()
    };
    let mut inspector = load(third, again, Rules::default());
    for some in frames.chunks(500) {
        run(&mut inspector, some);
        inspector
            .pass_time(Duration::from_secs(1))
            .expect("it works");
    }
    let counted = accounts(&inspector);
    assert_eq!(counted.sum(), sum(&frames));
    assert!(counted.again.0 > 0, "{counted:?}");
}

// promise: 15.28
#[test]
fn a_successor_knows_what_is_in_the_table_and_counts_on() {
    let test = "a_successor_knows_what_is_in_the_table_and_counts_on";
    if !is_root(test) {
        return;
    }
    let (Some(frames), Some(first), Some(second)) =
        (frames(test, NAMES[0]), library(test), library(test))
    else {
        return;
    };
    let (before, after) = frames.split_at(frames.len() / 2);
    let mut inspector = load(first, settings(), Rules::default());
    run(&mut inspector, before);
    let known = accounts(&inspector);
    assert!(known.fast > 0, "{known:?}");
    // Some have passed while there was none.
    let mut fast = inspector.leave();
    let (between, after) = after.split_at(after.len() / 2);
    for frame in between {
        fast.fast().test_run(frame, 1).expect("it runs");
    }
    let rules = Rules::default();
    let policy = Box::new(move |_: &_, flow: &_| rules.decide(flow));
    let mut inspector =
        Inspector::on(fast, second, settings(), policy).expect("the kernel lets it");
    assert_eq!(accounts(&inspector).fast, known.fast);
    run(&mut inspector, after);
    let counted = accounts(&inspector);
    assert_eq!(counted.sum(), sum(&frames));
    for (application, total) in &known.applications {
        let now = counted.applications.get(application).copied();
        // Flows that were not decided are unknown until they are.
        assert!(
            *application == 0 || now.unwrap_or_default().packets >= total.packets,
            "{application}: {total:?}, then {now:?}"
        );
    }
    inspector
        .pass_time(Duration::from_secs(7200))
        .expect("it works");
    assert_eq!(accounts(&inspector).sum(), sum(&frames));
}

// promise: 15.25
#[test]
fn an_application_that_is_not_wanted_is_dropped_once_it_is_known() {
    let test = "an_application_that_is_not_wanted_is_dropped_once_it_is_known";
    if !is_root(test) {
        return;
    }
    let (Some(frames), Some(library)) = (frames(test, NAMES[0]), library(test)) else {
        return;
    };
    let netflix = library.protocol("NetFlix").expect("it knows it");
    let drop = Rule {
        when: When::Known,
        treatment: Treatment::Fast {
            action: Treated::Drop,
            dscp: None,
        },
    };
    let rules = Rules {
        by_application: HashMap::from([(netflix, drop)]),
        ..Rules::default()
    };
    let mut inspector = load(library, settings(), rules);
    run(&mut inspector, &frames);
    let counted = accounts(&inspector);
    let dropped = left_by(&inspector, Exit::Dropped);
    let of_netflix = counted.applications[&netflix].packets;
    assert!(
        dropped > 0 && dropped < of_netflix,
        "{dropped} of {of_netflix}"
    );
    assert_eq!(counted.sum(), sum(&frames));

    // An entry cannot request an action that its owner forbids.
    let mut fast = inspector.leave();
    fast.forbid(&[Treated::Drop]).expect("the kernel takes it");
    for frame in &frames {
        let run = fast.fast().test_run(frame, 1).expect("it runs");
        assert_eq!(run.action, Action::Pass);
    }
}

// promise: 15.24
#[test]
fn a_flow_is_sent_where_the_kernel_would_send_it() {
    if !is_root("a_flow_is_sent_where_the_kernel_would_send_it") {
        return;
    }
    let [own, host] = [MacAddr([2, 0, 0, 0, 0, 2]), MacAddr([2, 0, 0, 0, 1, 2])];
    let namespaces = Namespaces::new("dpi");
    namespaces.set("net.ipv4.ip_forward=1");
    namespaces.join(1, own);
    let batch = format!(
        "addr add 192.0.2.1/24 dev n1\nneigh add 192.0.2.2 lladdr {host} dev n1 nud permanent\n"
    );
    namespaces.kernel.ip_batch(&batch).expect("addresses");
    namespaces.kernel.enter().expect("root may");
    let mut fast = FastPath::load(Sizes::default()).expect("the kernel takes it");
    let from: SocketAddr = "198.51.100.1:1000".parse().expect("an address");
    for (to, expected) in [
        ("192.0.2.2:53", Action::Send),
        ("192.0.2.3:53", Action::Pass),
    ] {
        let to = to.parse().expect("an address");
        let entry = Entry {
            slot: 0,
            action: Treated::Forward,
            dscp: Some(10),
            copy: false,
            note: 0,
        };
        let key = FlowKey::new(to, from, 17);
        fast.tables().enter(&key, &entry).expect("it has room");
        let sent = |frame: Frame<'_>| {
            let mut buffer = [0; 100];
            let len = frame.write(&mut buffer, b"what is said").expect("it fits");
            buffer[..len].to_vec()
        };
        let arriving = Frame::udp(from, to);
        let mut marked = arriving.traffic_class(10 << 2);
        if expected == Action::Send {
            marked = marked.ttl(63).macs(own, host);
        }
        // The second time the way is known.
        for turn in 1..=2 {
            let run = fast.fast().test_run(&sent(arriving), 1).expect("it runs");
            assert_eq!(
                (run.action, run.packet),
                (expected, sent(marked)),
                "{to}, turn {turn}"
            );
        }
    }
    let exits = fast.exits().expect("it tells");
    let left_by = |exit| {
        exits
            .iter()
            .find(|(one, _)| *one == exit)
            .expect("it is one")
            .1
    };
    assert_eq!(left_by(Exit::Forwarded).packets, 2);
    assert_eq!(left_by(Exit::Passed).packets, 2);
    assert_eq!(fast.tables().counted(0).expect("it tells").packets, 4);
}
