//! The model of the switch's protocol: no run breaks what is promised, and each defect that is planted is found.

use nfluid_sim::protocol::mutation::Mutation;
use nfluid_sim::protocol::storm::storm;
use std::time::Instant;

/// As `nfluid_tests::harness::soak`, which needs the whole platform.
fn choose(short: u64, long: u64) -> u64 {
    if std::env::var_os("NFLUID_SOAK").is_some() {
        long
    } else {
        short
    }
}

/// Returns a single seed, by `NFLUID_SEED`, or as many as requested.
fn seeds(count: u64) -> std::ops::Range<u64> {
    let seed = std::env::var("NFLUID_SEED")
        .ok()
        .and_then(|text| text.parse().ok());
    seed.map_or(0..count, |seed| seed..seed + 1)
}

/// Catches: each of the mutations, see below; and whatever else makes the books not balance, a receiver wait for ever, a
/// frame cross between switches or overtake another one of its flow, a slot have two owners.
// promise: 1.40
#[test]
fn no_interleaving_breaks_the_switchs_promises() {
    let begun = Instant::now();
    let mut steps = 0;
    let seeds = seeds(choose(150, 100_000));
    let count = seeds.end - seeds.start;
    for seed in seeds {
        let outcome = storm(seed, None);
        steps += outcome.steps;
        assert_eq!(outcome.violation, None, "NFLUID_SEED={seed}");
    }
    let seconds = begun.elapsed().as_secs_f64();
    println!(
        "{count} runs, {:.0} in a second; {steps} accesses, {:.0} in a second",
        count as f64 / seconds,
        steps as f64 / seconds
    );
}

// promise: 1.40
#[test]
fn a_seed_decides_a_run() {
    let [one, other] = [(); 2].map(|()| storm(7, None));
    assert_eq!((one.steps, one.violation), (other.steps, other.violation));
}

/// A defect is found within so many seeds.
const SEEDS: u64 = 2000;

fn is_found(mutation: Mutation) {
    is_found_from(mutation, 0);
}

/// As [`is_found`], from the seed `first` on, for a defect that one run in hundreds shows. `make soak` begins with seed 0.
fn is_found_from(mutation: Mutation, first: u64) {
    let begun = Instant::now();
    let first = choose(first, 0);
    let found = (first..first + SEEDS)
        .find_map(|seed| Some((seed, storm(seed, Some(mutation)).violation?)));
    let (seed, violation) =
        found.unwrap_or_else(|| panic!("{mutation:?} was not found by {SEEDS} seeds"));
    println!(
        "{mutation:?}: seed {seed}, {:?}: {violation}",
        begun.elapsed()
    );
}

// promise: 1.41
#[test]
fn a_run_that_returns_without_publishing_is_found() {
    is_found(Mutation::CopyRunReturns);
}

// promise: 1.41
#[test]
fn a_way_in_two_words_is_found() {
    is_found(Mutation::DestinationInTwoWords);
}

// promise: 1.41
#[test]
fn an_address_that_stays_behind_is_found_where_nobody_looks_at_membership() {
    is_found(Mutation::NoMembershipCheck);
}

// promise: 1.41
#[test]
fn an_address_without_a_generation_is_found() {
    is_found(Mutation::EntryWithoutGeneration);
}

// promise: 1.41
#[test]
fn a_reclaim_that_does_not_wait_is_found() {
    is_found(Mutation::ReclaimDoesNotWait);
}

// promise: 1.41
#[test]
fn a_number_that_is_reused_at_once_is_found() {
    is_found_from(Mutation::NumberReusedAtOnce, 460);
}

// promise: 1.41
#[test]
fn a_gap_that_is_filled_at_once_is_found() {
    is_found(Mutation::GapFilledAtOnce);
}

// promise: 1.41
#[test]
fn a_flood_that_counts_nothing_is_found() {
    is_found(Mutation::FloodCountsNothing);
}

#[test]
fn a_copy_that_counts_nothing_is_found() {
    is_found(Mutation::FloodCopyCountsNothing);
}

#[test]
fn a_frame_into_a_group_that_is_not_published_is_found() {
    is_found(Mutation::AdmitReturns);
}

#[test]
fn a_move_that_does_not_wait_is_found() {
    is_found(Mutation::MoveDoesNotWait);
}

#[test]
fn a_call_that_is_seen_late_is_found() {
    is_found_from(Mutation::CallSeenLate, 140);
}

// promise: 1.41
#[test]
fn a_call_that_does_not_say_how_far_it_came_is_found() {
    is_found(Mutation::TailNotWritten);
}

// promise: 1.41
#[test]
fn a_port_that_leaves_its_switch_halfway_is_found() {
    is_found_from(Mutation::LeftHalfway, 420);
}

// promise: 1.41
#[test]
fn a_plain_frame_that_forgets_the_slots_of_long_ones_is_found() {
    is_found(Mutation::LongPositionLost);
}

#[test]
fn a_position_that_carries_into_the_other_is_found() {
    is_found(Mutation::PositionCarries);
}

// promise: 1.41
#[test]
fn slots_that_are_reserved_apart_from_their_position_are_found() {
    is_found(Mutation::LongReservedApart);
}

// promise: 1.41
#[test]
fn a_long_frame_across_a_block_is_found() {
    is_found(Mutation::SkipForgotten);
}

// promise: 1.41
#[test]
fn an_area_that_is_a_frame_too_large_is_found() {
    is_found(Mutation::AreaOffByAFrame);
}

// promise: 1.41
#[test]
fn a_hole_without_its_slots_is_found() {
    is_found(Mutation::HoleWithoutSlots);
}

// promise: 1.41
#[test]
fn a_gap_without_its_slots_is_found() {
    is_found(Mutation::GapWithoutSlots);
}

// promise: 1.41
#[test]
fn positions_that_are_released_by_two_stores_are_found() {
    is_found(Mutation::ReleasedInTwoStores);
}

#[test]
fn a_reclaim_that_forgets_the_slots_of_long_frames_is_found() {
    is_found(Mutation::ReclaimForgetsLong);
}

// promise: 1.41
#[test]
fn metadata_that_is_read_twice_is_found() {
    is_found(Mutation::MetadataReadTwice);
}

// promise: 1.41
#[test]
fn segments_that_are_the_senders_word_are_found() {
    is_found(Mutation::SegmentsBelieved);
}

// promise: 1.41
#[test]
fn a_receiver_that_is_not_asked_is_found() {
    is_found(Mutation::CapabilityNotChecked);
}

#[test]
fn a_deposit_without_metadata_is_found() {
    is_found(Mutation::DepositWithoutMetadata);
}
