use super::*;
use proptest::prelude::*;

const RULES: Rules = Rules {
    gain_min: 0.15,
    dwell: Millis(5_000),
    fill: 0.7,
    full: 0.95,
};

fn placed(name: &str, core: u32, placement: Placement, load: f64) -> Placed {
    Placed {
        name: name.into(),
        core,
        width: 1,
        allowed: vec![0, 1],
        placement,
        load,
        promised: 0.0,
        guaranteed: 0.0,
        since: Millis(0),
    }
}

const LATER: Millis = Millis(10_000);

fn carry_out(placed: &mut [Placed], moves: &[Move], now: Millis) {
    for step in moves {
        let one = placed.iter_mut().find(|one| one.name == step.name).unwrap();
        assert_eq!(one.core, step.from);
        one.core = step.to;
        one.since = now;
    }
}

#[test]
fn an_instance_that_waits_is_moved_to_the_idle_core() {
    let all = [
        placed("a", 0, Placement::Spread, 1.0),
        placed("b", 0, Placement::Spread, 1.0),
    ];
    let found = moves(&all, LATER, RULES);
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].from, found[0].to), (0, 1));
}

#[test]
fn pinned_free_and_new_instances_are_not_moved() {
    for placement in [Placement::Pinned, Placement::Free] {
        let all = [
            placed("a", 0, placement, 1.0),
            placed("b", 0, placement, 1.0),
        ];
        assert!(moves(&all, LATER, RULES).is_empty());
    }
    let mut young = [
        placed("a", 0, Placement::Spread, 1.0),
        placed("b", 0, Placement::Spread, 1.0),
    ];
    young.iter_mut().for_each(|one| one.since = Millis(9_000));
    assert!(moves(&young, LATER, RULES).is_empty());
    assert_eq!(moves(&young, Millis(14_000), RULES).len(), 1);
}

#[test]
fn a_small_gain_does_not_pay() {
    let all = [
        placed("a", 0, Placement::Spread, 0.5),
        placed("b", 0, Placement::Spread, 0.1),
        placed("c", 1, Placement::Spread, 0.45),
    ];
    assert!(moves(&all, LATER, RULES).is_empty());
}

// promise: 4.11
#[test]
fn no_move_promises_more_than_a_core_has() {
    let mut all = [
        placed("a", 0, Placement::Spread, 1.0),
        placed("b", 0, Placement::Spread, 1.0),
        placed("idle", 1, Placement::Pinned, 0.0),
    ];
    for (one, promised) in all.iter_mut().zip([0.5, 0.5, 0.8]) {
        one.promised = promised;
    }
    assert!(moves(&all, LATER, RULES).is_empty());
    all[2].promised = 0.5;
    assert_eq!(moves(&all, LATER, RULES).len(), 1);
}

#[test]
fn packed_ones_leave_a_core_to_rest_and_part_when_it_is_full() {
    let mut all = [
        placed("a", 0, Placement::Packed, 0.3),
        placed("b", 1, Placement::Packed, 0.2),
    ];
    let found = moves(&all, LATER, RULES);
    assert_eq!((found.len(), found[0].to), (1, 0), "{found:?}");
    carry_out(&mut all, &found, LATER);
    assert!(moves(&all, Millis(20_000), RULES).is_empty());
    all[0].load = 0.85;
    assert_eq!(moves(&all, Millis(20_000), RULES).len(), 1);
}

#[test]
fn the_first_core_is_where_least_is_promised_or_for_packed_where_most_fits() {
    let mut all = [
        placed("a", 0, Placement::Pinned, 0.1),
        placed("b", 1, Placement::Pinned, 0.1),
    ];
    all[0].promised = 0.5;
    all[1].promised = 0.3;
    let coming = |placement, promised| Placed {
        promised,
        ..placed("new", 0, placement, 0.0)
    };
    let first = |placement, promised| first_core(&all, &coming(placement, promised), RULES);
    assert_eq!(first(Placement::Pinned, 0.1), Some(1));
    assert_eq!(first(Placement::Spread, 0.1), Some(1));
    assert_eq!(first(Placement::Packed, 0.1), Some(0));
    assert_eq!(
        first(Placement::Packed, 0.3),
        Some(1),
        "it fits nowhere else"
    );
    let mut elsewhere = coming(Placement::Packed, 0.1);
    elsewhere.allowed.clear();
    assert_eq!(first_core(&all, &elsewhere, RULES), None);
    elsewhere.allowed.push(7);
    assert_eq!(first_core(&all, &elsewhere, RULES), Some(7));
}

// promise: 4.15
#[test]
fn an_instance_with_several_threads_gets_a_core_for_each() {
    assert_eq!(window(&[0, 2, 5], 2, 2), [2, 5]);
    assert_eq!(window(&[0, 2, 5], 5, 2), [5, 0]);
    assert_eq!(window(&[0, 2, 5], 0, 9), [0, 2, 5]);
    assert_eq!(window(&[], 3, 2), [3]);
    let mut all = [
        placed("wide", 0, Placement::Spread, 1.8),
        placed("a", 0, Placement::Spread, 0.5),
        placed("b", 0, Placement::Spread, 0.5),
    ];
    all[0].width = 2;
    // The load of the instance is on both cores, and the instance stays.
    let found = moves(&all, LATER, RULES);
    assert_eq!((found.len(), found[0].name.as_str()), (1, "a"), "{found:?}");
    assert!((fullest(&all) - 1.9).abs() < 1e-9);
}

/// An instance on core 0 with this guarantee and promise.
fn promising(name: &str, placement: Placement, guaranteed: f64, promised: f64) -> Placed {
    Placed {
        guaranteed,
        promised,
        ..placed(name, 0, placement, 0.1)
    }
}

// promise: 4.15
#[test]
fn a_guarantee_that_its_core_does_not_give_is_found_and_kept_by_a_move() {
    let mut all = [
        promising("own", Placement::Pinned, 0.5, 0.5),
        promising("beside", Placement::Spread, 0.0, 0.8),
    ];
    let left: Vec<_> = violated_guarantees(&all)
        .iter()
        .map(|(one, _)| one.name.clone())
        .collect();
    assert_eq!(left, ["own"]);
    let found = moves(&all, LATER, RULES);
    assert_eq!(
        (found.len(), found[0].name.as_str(), found[0].to),
        (1, "beside", 1)
    );
    carry_out(&mut all, &found, LATER);
    assert!(violated_guarantees(&all).is_empty());
    assert!(moves(&all, Millis(20_000), RULES).is_empty());
}

// promise: 4.15
#[test]
fn no_move_breaks_a_guarantee() {
    let mut all = [
        promising("own", Placement::Pinned, 0.5, 0.5),
        promising("a", Placement::Spread, 0.0, 0.6),
        promising("b", Placement::Spread, 0.0, 0.6),
    ];
    // Both instances want the idle core; the guarantee there allows neither.
    for one in &mut all[1..] {
        one.core = 1;
        one.load = 1.0;
    }
    assert!(moves(&all, LATER, RULES).is_empty());
    let coming = promising("new", Placement::Pinned, 0.0, 0.6);
    assert_eq!(first_core(&all, &coming, RULES), Some(1));
    all[0].guaranteed = 0.0;
    assert_eq!(first_core(&all, &coming, RULES), Some(0));
}

fn any_placed() -> impl Strategy<Value = Vec<Placed>> {
    let placements = [
        Placement::Spread,
        Placement::Packed,
        Placement::Pinned,
        Placement::Free,
    ];
    let one = (0..4usize, 0.0..1.0f64, 0.0..0.5f64, 1..16u32, 0..4usize);
    proptest::collection::vec(one, 0..16).prop_map(move |all| {
        let each = all.into_iter().enumerate();
        each.map(|(i, (placement, load, promised, mask, core))| {
            let allowed: Vec<u32> = (0..4).filter(|core| mask & (1 << core) != 0).collect();
            Placed {
                name: format!("i{i}"),
                core: allowed[core % allowed.len()],
                width: 1,
                allowed,
                placement: placements[placement],
                load,
                promised,
                guaranteed: 0.0,
                since: Millis(0),
            }
        })
        .collect()
    })
}

/// Returns the load of the fullest core.
fn fullest(placed: &[Placed]) -> f64 {
    let cores = burdens(placed);
    cores.values().map(|burden| burden.load).fold(0.0, f64::max)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// With constant loads, moves come to an end. No instance is on a core that it must not use, and only movable
    /// instances move.
    // promise: 4.11
    #[test]
    fn balancing_converges_and_moves_only_what_it_may(mut all in any_placed()) {
        let before = all.clone();
        let mut now = Millis(10_000);
        let mut rounds = 0;
        loop {
            let found = moves(&all, now, RULES);
            if found.is_empty() {
                break;
            }
            for step in &found {
                let one = all.iter().find(|one| one.name == step.name).unwrap();
                prop_assert!(one.allowed.contains(&step.to) && one.placement.is_moved());
            }
            let was = fullest(&all);
            carry_out(&mut all, &found, now);
            let packed = fullest(&all) <= was.max(RULES.fill) + 1e-9;
            prop_assert!(packed, "no move makes the fullest core fuller than packing may");
            now.0 += RULES.dwell.0;
            rounds += 1;
            prop_assert!(rounds < 100, "it goes on and on: {:?}", all);
        }
        for (old, new) in before.iter().zip(&all) {
            prop_assert!(new.allowed.contains(&new.core));
            prop_assert!(old.core == new.core || new.placement.is_moved());
        }
    }

    /// Measurement errors of a few hundredths cause no moves.
    // promise: 4.11
    #[test]
    fn noise_moves_nobody(mut all in any_placed(), noise in proptest::collection::vec(-0.01..0.01f64, 16)) {
        all.retain(|one| one.placement == Placement::Spread);
        let mut now = Millis(10_000);
        for _ in 0..100 {
            let found = moves(&all, now, RULES);
            carry_out(&mut all, &found, now);
            now.0 += RULES.dwell.0;
        }
        // No move pays for these loads, even with a clearly smaller minimum gain.
        let strict = Rules { gain_min: RULES.gain_min - 0.1, ..RULES };
        prop_assume!(moves(&all, now, strict).is_empty());
        for (one, error) in all.iter_mut().zip(noise) {
            one.load = (one.load + error).max(0.0);
        }
        prop_assert!(moves(&all, now, RULES).is_empty());
    }

    /// No instance that has just moved moves again in the next round.
    // promise: 4.11
    #[test]
    fn a_move_is_not_taken_back_at_once(mut all in any_placed()) {
        let now = Millis(10_000);
        let found = moves(&all, now, RULES);
        carry_out(&mut all, &found, now);
        let again = moves(&all, Millis(now.0 + RULES.dwell.0 - 1), RULES);
        for step in &again {
            prop_assert!(found.iter().all(|moved| moved.name != step.name));
        }
    }
}
