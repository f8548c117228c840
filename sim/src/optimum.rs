//! Expected results, by equations (docs/simulation.md derives them).

/// How far a share of a core is from half of it, in percent of that half.
pub fn distance_from_half_percent(share_percent: f64) -> f64 {
    (share_percent - 50.0).abs() / 50.0 * 100.0
}

/// How far `value` stays from `optimum`, in percent of it.
pub fn distance_percent(value: f64, optimum: f64) -> f64 {
    (value - optimum).abs() / optimum * 100.0
}

/// The line of `n` cores: what all flows together get, in cores. Proportionally fair is the multipath flow on its
/// plain path alone, and each short flow with a core of its own.
pub fn line_total(n: usize) -> f64 {
    n as f64 + 1.0
}

/// The total for senders with linked increases (LIA), which leave a part on the worse path: the fixed point of x =
/// ((1 - x) / (1 + x))^2 / n is their rate on the line.
pub fn line_total_lia(n: usize) -> f64 {
    let excess = |x: f64| ((1.0 - x) / (1.0 + x)).powi(2) / n as f64 - x;
    let on_line = root(excess);
    1.0 + on_line + n as f64 * (1.0 - on_line)
}

/// Two resources of capacity 1, `first` and `second` flows of one path each on them, and a multipath flow over
/// both: what it gets of each if the sharing is proportionally fair.
pub fn pooled(first: usize, second: usize) -> (f64, f64) {
    let fair = 2.0 / (1.0 + first as f64 + second as f64);
    let left = |flows: usize| 1.0 - flows as f64 * fair;
    let alone = |flows: usize| 1.0 / (1.0 + flows as f64);
    if left(first) < 0.0 {
        (0.0, alone(second))
    } else if left(second) < 0.0 {
        (alone(first), 0.0)
    } else {
        (left(first), left(second))
    }
}

/// Where a function that falls from above 0 at 0 to below 0 at 1 is 0.
fn root(function: impl Fn(f64) -> f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if function(middle) > 0.0 {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::{distance_from_half_percent, line_total, line_total_lia, pooled};

    #[test]
    fn the_line_is_worth_less_to_linked_increases() {
        assert_eq!(line_total(4), 5.0);
        assert!(
            (line_total_lia(4) - 4.58).abs() < 0.01,
            "{}",
            line_total_lia(4)
        );
        assert!(line_total_lia(100) > 100.0);
    }

    #[test]
    fn a_share_of_nothing_or_all_is_a_whole_half_away() {
        assert_eq!(
            [50.0, 0.0, 100.0].map(distance_from_half_percent),
            [0.0, 100.0, 100.0]
        );
    }

    #[test]
    fn nothing_can_be_moved_to_make_the_sharing_fairer() {
        assert_eq!(pooled(0, 4), (1.0, 0.0));
        assert_eq!(pooled(4, 0), (0.0, 1.0));
        let (first, second) = pooled(2, 2);
        assert!((first - 0.2).abs() < 1e-9 && (second - 0.2).abs() < 1e-9);
        for flows in 0..10 {
            let (first, second) = pooled(flows, 5);
            assert!(first >= 0.0 && second >= 0.0 && first + second > 0.0);
        }
    }
}
