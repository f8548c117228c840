//! The subflows of a multipath connection: together they take what one flow would take, on the paths
//! with the fewest signals. Both halve the window of the subflow that a signal came on.

use super::{Avoidance, Subflow, View};

/// Two windows that differ by less are alike.
const ALIKE: f64 = 1e-9;

/// RFC 6356, section 3.
#[derive(Debug)]
pub(super) struct Lia;

impl Avoidance for Lia {
    fn increase(&mut self, view: &View<'_>) -> f64 {
        let total: f64 = view.subflows.iter().map(|flow| flow.window).sum();
        let best = view
            .subflows
            .iter()
            .map(|flow| flow.window / flow.round_trip_s.powi(2))
            .fold(0.0, f64::max);
        let alpha = total * best / rate(view.subflows).powi(2);
        (alpha / total).min(1.0 / view.own().window)
    }
}

/// Khalili, Gast, Popovic, Le Boudec: "MPTCP is not Pareto-optimal", CoNEXT '12, and
/// draft-khalili-mptcp-congestion-control-05.
#[derive(Debug)]
pub(super) struct Olia;

impl Avoidance for Olia {
    fn increase(&mut self, view: &View<'_>) -> f64 {
        let own = view.own();
        let shared = own.window / own.round_trip_s.powi(2) / rate(view.subflows).powi(2);
        shared + alpha(view) / own.window
    }
}

/// OLIA's alpha: moves window from the largest subflows to the best ones, if those are others.
fn alpha(view: &View<'_>) -> f64 {
    if view.subflows.len() < 2 {
        return 0.0;
    }
    let largest = highest(view.subflows, |flow| flow.window);
    let best = highest(view.subflows, quality);
    let is_collected = |flow: &Subflow| is_at(quality(flow), best) && !is_at(flow.window, largest);
    let count = |chosen: &dyn Fn(&Subflow) -> bool| {
        view.subflows.iter().filter(|flow| chosen(flow)).count() as f64
    };
    let collected = count(&is_collected);
    let own = view.own();
    let part = 1.0 / view.subflows.len() as f64;
    if collected == 0.0 {
        0.0
    } else if is_collected(&own) {
        part / collected
    } else if is_at(own.window, largest) {
        -part / count(&|flow| is_at(flow.window, largest))
    } else {
        0.0
    }
}

/// How good a path is: the rate that a flow of its own would have there, squared.
fn quality(flow: &Subflow) -> f64 {
    flow.between_signals.powi(2) / flow.round_trip_s
}

fn highest(subflows: &[Subflow], of: impl Fn(&Subflow) -> f64) -> f64 {
    subflows.iter().map(of).fold(0.0, f64::max)
}

fn is_at(value: f64, highest: f64) -> bool {
    value >= highest * (1.0 - ALIKE)
}

/// Packets per second of all.
fn rate(subflows: &[Subflow]) -> f64 {
    let rates = subflows.iter().map(|flow| flow.window / flow.round_trip_s);
    rates.sum()
}

#[cfg(test)]
mod tests {
    use super::super::{Avoidance, Subflow, View};
    use super::{Lia, Olia};

    fn subflow(window: f64, round_trip_s: f64, between_signals: f64) -> Subflow {
        Subflow {
            window,
            round_trip_s,
            between_signals,
        }
    }

    fn increases(avoidance: &mut dyn Avoidance, subflows: &[Subflow]) -> Vec<f64> {
        let increase = |own| {
            avoidance.increase(&View {
                now_s: 1.0,
                subflows,
                own,
            })
        };
        (0..subflows.len()).map(increase).collect()
    }

    #[test]
    fn alone_both_are_reno() {
        let one = [subflow(20.0, 0.01, 100.0)];
        for avoidance in [&mut Lia as &mut dyn Avoidance, &mut Olia] {
            let increase = increases(avoidance, &one)[0];
            assert!((increase - 0.05).abs() < 1e-12, "{increase}");
        }
    }

    #[test]
    fn lia_takes_with_two_equal_paths_what_one_flow_takes() {
        let two = [subflow(10.0, 0.01, 100.0), subflow(10.0, 0.01, 100.0)];
        // RFC 6356: alpha = 20 x (10 / rtt^2) / (20 / rtt)^2 = 1 / 2.
        assert_eq!(increases(&mut Lia, &two), [0.025, 0.025]);
    }

    #[test]
    fn lia_is_never_faster_than_reno() {
        let two = [subflow(10.0, 0.001, 1.0), subflow(100.0, 0.1, 1.0)];
        let increase = increases(&mut Lia, &two);
        assert!(increase[0] <= 0.1 && increase[1] <= 0.01, "{increase:?}");
    }

    #[test]
    fn olia_moves_window_from_the_largest_path_to_the_best() {
        let alike = [subflow(10.0, 0.01, 100.0), subflow(10.0, 0.01, 100.0)];
        assert_eq!(increases(&mut Olia, &alike), [0.025, 0.025]);
        let other = [subflow(30.0, 0.01, 50.0), subflow(10.0, 0.01, 100.0)];
        let shared = |window: f64| window / 1600.0;
        let increase = increases(&mut Olia, &other);
        assert!((increase[0] - (shared(30.0) - 0.5 / 30.0)).abs() < 1e-12);
        assert!((increase[1] - (shared(10.0) + 0.5 / 10.0)).abs() < 1e-12);
    }
}
