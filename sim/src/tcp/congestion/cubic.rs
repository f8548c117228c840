//! CUBIC: RFC 9438. Names are those of the RFC, windows are in packets, times in seconds.

use super::{Avoidance, View};

/// Section 5: C.
const C: f64 = 0.4;
/// Section 4.6: beta_cubic.
const BETA: f64 = 0.7;
/// Section 4.3: alpha_cubic, with which the Reno-friendly window has Reno's rate.
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);
/// Section 4.2: the target is at most this many windows.
const TARGET_MAX: f64 = 1.5;

/// State of one subflow.
#[derive(Debug, Default)]
pub(super) struct Cubic {
    /// The window before the last reduction, lower by fast convergence.
    w_max: f64,
    /// The window before the last reduction.
    cwnd_prior: f64,
    epoch: Option<Epoch>,
}

/// Congestion avoidance since the last signal.
#[derive(Debug)]
struct Epoch {
    start_s: f64,
    k_s: f64,
    w_est: f64,
}

/// Section 4.2, figure 1: the window `t_s` after the reduction.
fn w_cubic(t_s: f64, k_s: f64, w_max: f64) -> f64 {
    C * (t_s - k_s).powi(3) + w_max
}

impl Avoidance for Cubic {
    fn increase(&mut self, view: &View<'_>) -> f64 {
        let own = view.own();
        let cwnd = own.window;
        if self.epoch.is_none() {
            // After slow start without a reduction the plateau is where the window is.
            self.w_max = self.w_max.max(cwnd);
        }
        let w_max = self.w_max;
        let epoch = self.epoch.get_or_insert_with(|| Epoch {
            start_s: view.now_s,
            k_s: ((w_max - cwnd) / C).cbrt(),
            w_est: cwnd,
        });
        let alpha = if epoch.w_est < self.cwnd_prior {
            ALPHA
        } else {
            1.0
        };
        epoch.w_est += alpha / cwnd;
        let t_s = view.now_s - epoch.start_s;
        if w_cubic(t_s, epoch.k_s, w_max) < epoch.w_est {
            return (epoch.w_est - cwnd).max(0.0);
        }
        let target = w_cubic(t_s + own.round_trip_s, epoch.k_s, w_max);
        (target.clamp(cwnd, TARGET_MAX * cwnd) - cwnd) / cwnd
    }

    /// Section 4.6, with fast convergence (4.7).
    fn decrease(&mut self, window: f64) -> f64 {
        self.w_max = if window < self.w_max {
            window * (1.0 + BETA) / 2.0
        } else {
            window
        };
        self.cwnd_prior = window;
        self.epoch = None;
        window * BETA
    }

    /// Section 4.8.
    fn restart(&mut self) {
        self.epoch = None;
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Avoidance, Subflow, View};
    use super::{ALPHA, BETA, C, Cubic};

    /// Acknowledges a window per round trip for so many seconds; returns the window.
    fn grow(cubic: &mut Cubic, mut window: f64, round_trip_s: f64, seconds: f64) -> f64 {
        let mut now_s = 100.0;
        while now_s < 100.0 + seconds {
            let subflows = [Subflow {
                window,
                round_trip_s,
                between_signals: 0.0,
            }];
            let view = View {
                now_s,
                subflows: &subflows,
                own: 0,
            };
            window += cubic.increase(&view);
            now_s += round_trip_s / window;
        }
        window
    }

    // promise: 14.2
    #[test]
    fn grows_along_the_formula_of_the_rfc() {
        let w_max = 1000.0;
        let k_s = (w_max * (1.0 - BETA) / C).cbrt();
        // Long round trips: the cubic function, not the Reno-friendly region, decides.
        for seconds in [0.5, 2.0, k_s, k_s + 3.0, k_s + 6.0] {
            let mut cubic = Cubic::default();
            let begin = cubic.decrease(w_max);
            assert_eq!(begin, 700.0);
            let window = grow(&mut cubic, begin, 0.05, seconds);
            let formula = C * (seconds - k_s).powi(3) + w_max;
            let error = (window - formula).abs() / formula;
            assert!(error < 0.01, "{seconds} s: {window} against {formula}");
        }
    }

    #[test]
    fn with_short_round_trips_it_is_as_fast_as_reno() {
        let mut cubic = Cubic::default();
        let begin = cubic.decrease(100.0);
        let window = grow(&mut cubic, begin, 0.001, 0.1);
        // ALPHA per round up to the window before the reduction, then one.
        let rounds_to_prior = (100.0 - begin) / ALPHA;
        let estimate = 100.0 + (100.0 - rounds_to_prior);
        assert!(
            (window - estimate).abs() < 2.0,
            "{window} against {estimate}"
        );
    }

    #[test]
    fn a_flow_that_loses_before_its_old_plateau_gives_way() {
        let mut cubic = Cubic::default();
        cubic.decrease(1000.0);
        cubic.decrease(800.0);
        assert_eq!(cubic.w_max, 800.0 * 0.85);
    }
}
