use super::config::FORBIDDEN_MAX;
use super::{build, signature};
use crate::function::{CommandError, Nanos, NetworkFunction};
use crate::testing::{ports, run, run_one};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use proptest::prelude::*;
use serde_json::{Value, json};

fn metric(nf: &dyn NetworkFunction, name: &str) -> f64 {
    let mut sum = 0.0;
    nf.metrics(&mut |m| {
        if m.name == name {
            sum += m.value;
        }
    });
    sum
}

/// The XXH64 specification word for word, for inputs of whole 32-byte stripes only.
fn reference(input: &[u8]) -> u64 {
    const P: [u64; 5] = [
        11_400_714_785_074_694_791,
        14_029_467_366_897_019_727,
        1_609_587_929_392_839_161,
        9_650_029_242_287_828_579,
        2_870_177_450_012_600_261,
    ];
    assert_eq!(input.len() % 32, 0);
    let mut acc = [P[0].wrapping_add(P[1]), P[1], 0, 0u64.wrapping_sub(P[0])];
    let round = |acc: u64, lane: u64| {
        acc.wrapping_add(lane.wrapping_mul(P[1]))
            .rotate_left(31)
            .wrapping_mul(P[0])
    };
    for stripe in input.chunks(32) {
        for (acc, lane) in acc.iter_mut().zip(stripe.chunks(8)) {
            *acc = round(*acc, u64::from_le_bytes(lane.try_into().unwrap()));
        }
    }
    let mut h = [1, 7, 12, 18]
        .iter()
        .zip(acc)
        .fold(0u64, |h, (&bits, acc)| {
            h.wrapping_add(acc.rotate_left(bits))
        });
    for acc in acc {
        h = (h ^ round(0, acc)).wrapping_mul(P[0]).wrapping_add(P[3]);
    }
    h = h.wrapping_add(input.len() as u64);
    h = (h ^ (h >> 33)).wrapping_mul(P[1]);
    h = (h ^ (h >> 29)).wrapping_mul(P[2]);
    h ^ (h >> 32)
}

#[test]
fn a_signed_frame_passes_to_the_other_port_unchanged() {
    let mut nf = build(&Value::Null, &ports(2)).unwrap();
    let frames = [(0, vec![1; 60]), (1, vec![2; 1514]), (0, vec![3; 14])];
    let sent = run(&mut *nf, Nanos(0), &frames);
    assert_eq!(
        sent,
        [(1, vec![1; 60]), (0, vec![2; 1514]), (1, vec![3; 14])]
    );
    assert_eq!(metric(&*nf, "packets_forwarded_total"), 3.0);
    assert_eq!(metric(&*nf, "packets_dropped_total"), 0.0);
}

#[test]
fn a_forbidden_signature_is_dropped_and_counted() {
    let bad = vec![0x66; 100];
    let config = json!({"forbidden": ["0x1", format!("{:#x}", signature(&bad))]});
    let mut nf = build(&config, &ports(2)).unwrap();
    assert_eq!(run_one(&mut *nf, Nanos(0), 0, &bad), []);
    assert_eq!(metric(&*nf, "packets_dropped_total"), 1.0);
    nf.reconfigure(&json!({"forbidden": []}), &ports(2))
        .unwrap();
    assert_eq!(run_one(&mut *nf, Nanos(0), 0, &bad).len(), 1);
}

#[test]
fn the_last_signature_and_the_fold_are_shown() {
    let mut nf = build(&Value::Null, &ports(2)).unwrap();
    let (a, b) = (vec![1; 64], vec![2; 64]);
    run(&mut *nf, Nanos(0), &[(0, a.clone()), (0, b.clone())]);
    let shown = nf.command(Nanos(0), "signature", &[]).unwrap();
    assert_eq!(shown["last"], format!("{:#018x}", signature(&b)));
    assert_eq!(
        shown["fold"],
        format!("{:#018x}", signature(&a) ^ signature(&b))
    );
    let low_48_bits = signature(&b) & 0xffff_ffff_ffff;
    assert_eq!(metric(&*nf, "signature_last"), low_48_bits as f64);
    let unknown = nf.command(Nanos(0), "sign", &[]).unwrap_err();
    assert_eq!(unknown, CommandError::Unknown(&["signature"]));
}

#[test]
fn bad_configurations_name_the_key() {
    let path = |config: Value| build(&config, &ports(2)).err().expect("refused").path;
    assert_eq!(path(json!({"forbidden": ["12", "xyz"]})), "forbidden[1]");
    assert_eq!(path(json!({"forbidden": ["0x+1"]})), "forbidden[0]");
    assert_eq!(
        path(json!({"forbidden": ["0x11112222333344445"]})),
        "forbidden[0]"
    );
    assert_eq!(path(json!({"forbidden": [7]})), "forbidden[0]");
    let many: Vec<String> = (0..=FORBIDDEN_MAX).map(|i| format!("{i:x}")).collect();
    assert_eq!(path(json!({ "forbidden": many })), "forbidden");
}

proptest! {
    // promise: 10.19
    #[test]
    fn only_the_first_64_bytes_count(frame in proptest::collection::vec(any::<u8>(), 14..200)) {
        let mut block = frame.clone();
        block.resize(64, 0);
        prop_assert_eq!(signature(&frame), reference(&block));
        prop_assert_eq!(signature(&frame), signature(&frame[..frame.len().min(64)]));
    }

    #[test]
    fn one_flipped_bit_changes_the_signature(mut block: [u8; 32], bit in 0usize..256) {
        let before = signature(&block);
        block[bit / 8] ^= 1 << (bit % 8);
        prop_assert_ne!(signature(&block), before);
    }
}

#[test]
fn rounds_cost_time_and_change_nothing_else() {
    let frames = [(0, vec![1; 60]), (1, vec![2; 1514]), (0, vec![3; 14])];
    let mut once = build(&Value::Null, &ports(2)).unwrap();
    let mut often = build(&json!({ "rounds": 1000 }), &ports(2)).unwrap();
    assert_eq!(
        run(&mut *once, Nanos(0), &frames),
        run(&mut *often, Nanos(0), &frames)
    );
    let folded = |nf: &mut dyn NetworkFunction| nf.command(Nanos(0), "signature", &[]).unwrap();
    assert_eq!(folded(&mut *once), folded(&mut *often));
    for rounds in [0, 1_000_001] {
        let refused = often.reconfigure(&json!({ "rounds": rounds }), &ports(2));
        assert_eq!(refused.unwrap_err().path, "rounds");
    }
}
