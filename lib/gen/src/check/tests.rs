use std::collections::HashSet;

use proptest::prelude::*;

use super::*;
use crate::payload::Kind;

fn arrive(checker: &mut Checker, stream: u32, sequences: impl IntoIterator<Item = u32>) {
    for sequence in sequences {
        let header = StreamHeader {
            kind: Kind::Data,
            stream,
            tx_time_ns: 0,
            sequence,
        };
        checker.observe(&Ok(header));
    }
}

fn check(sequences: impl IntoIterator<Item = u32>) -> CheckReport {
    let mut checker = Checker::default();
    arrive(&mut checker, 3, sequences);
    checker.report()
}

#[test]
fn in_order_is_clean() {
    let report = check(0..5000);
    assert!(report.is_clean(), "{report:?}");
    assert_eq!((report.unique, report.streams), (5000, 1));
}

#[test]
fn gaps_are_losses_and_late_arrivals_take_them_back() {
    assert_eq!(check([0, 1, 4]).lost, 2);
    let report = check([0, 1, 4, 2]);
    assert_eq!(
        (report.lost, report.reordered, report.reorder_extent_max),
        (1, 1, 2)
    );
}

#[test]
fn losses_before_the_first_arrival_count() {
    assert_eq!(check([3]).lost, 3);
    let report = check([5_000, 5_001]);
    assert_eq!((report.lost, report.joined), (0, 1));
}

#[test]
fn a_frame_before_the_first_of_a_joined_stream_moves_the_beginning() {
    let report = check([5_000, 4_998]);
    assert_eq!((report.lost, report.reordered, report.unique), (1, 1, 2));
}

#[test]
fn second_arrivals_are_duplicates_and_not_reordered() {
    let report = check([0, 1, 2, 1, 1, 3]);
    assert_eq!(
        (report.duplicates, report.reordered, report.lost),
        (2, 0, 0)
    );
}

#[test]
fn numbers_wrap() {
    let report = check((u32::MAX - 10..=u32::MAX).chain(0..10));
    assert_eq!((report.unique, report.lost, report.reordered), (21, 0, 0));
}

#[test]
fn what_is_too_late_is_stale_and_stays_lost() {
    let report = check((1..2000).chain([0]));
    assert_eq!((report.stale, report.lost), (1, 1));
}

#[test]
fn a_sender_that_begins_anew_is_recognised() {
    let report = check((0..3000).chain(0..1000));
    assert_eq!((report.restarts, report.stale, report.lost), (1, 0, 0));
    assert_eq!(report.unique, 4000);
    let report = check((0..3000).chain(0..1000).filter(|&sequence| sequence != 500));
    assert_eq!(report.lost, 2);
}

#[test]
fn streams_beyond_the_limit_are_only_counted() {
    let mut checker = Checker::new(256);
    for stream in 0..1000 {
        arrive(&mut checker, stream, [0]);
    }
    let report = checker.report();
    assert_eq!(
        (report.streams, report.untracked, report.received),
        (256, 744, 1000)
    );
    arrive(&mut checker, u32::MAX, [0]);
    assert_eq!(checker.report().untracked, 745);
}

#[test]
fn each_stream_has_a_report_of_its_own() {
    let mut checker = Checker::default();
    arrive(&mut checker, 1, [0, 2]);
    arrive(&mut checker, 70_000, [0, 1, 1]);
    let reports: Vec<_> = checker.streams().collect();
    assert_eq!(reports.len(), 2);
    assert_eq!((reports[0].stream, reports[0].lost), (1, 1));
    assert_eq!((reports[1].stream, reports[1].duplicates), (70_000, 1));
}

/// The definitions, applied to the whole history with unbounded memory.
fn reference(sequences: &[u32]) -> (u64, u64, u64) {
    let mut seen = HashSet::new();
    let (mut highest, mut duplicates, mut reordered) = (0, 0, 0);
    for &sequence in sequences {
        if !seen.insert(sequence) {
            duplicates += 1;
        } else if sequence < highest {
            reordered += 1;
        }
        highest = highest.max(sequence);
    }
    let lost = u64::from(highest) + 1 - seen.len() as u64;
    (lost, duplicates, reordered)
}

proptest! {
    #[test]
    fn agrees_with_the_definitions_within_the_window(
        sequences in prop::collection::vec(0u32..WINDOW as u32, 1..500),
    ) {
        let report = check(sequences.iter().copied());
        let (lost, duplicates, reordered) = reference(&sequences);
        prop_assert_eq!((report.lost, report.duplicates, report.reordered),
            (lost, duplicates, reordered));
    }

    #[test]
    fn any_order_keeps_the_sums(sequences in prop::collection::vec(any::<u32>(), 0..300)) {
        let report = check(sequences.iter().copied());
        prop_assert_eq!(report.received, sequences.len() as u64);
        prop_assert_eq!(report.received, report.unique + report.duplicates + report.stale);
        prop_assert!((0.0..=1.0).contains(&report.loss_ratio()));
    }
}
