//! How many requests there are, and when.

use anyhow::{Context, bail, ensure};
use std::str::FromStr;
use std::time::Duration;

/// Most requests of a load.
const REQUESTS_MAX: f64 = 1e6;

/// Requests at rates that follow each other.
#[derive(Clone, Debug, PartialEq)]
pub struct Load(Vec<(f64, Duration)>);

impl Load {
    /// Returns when each request is due, from the beginning.
    pub fn due(&self) -> Vec<Duration> {
        let mut all = Vec::new();
        let mut begun = Duration::ZERO;
        for (rate, time) in &self.0 {
            // Counted from the beginning of the step: nothing adds up.
            let times = (0u32..).map(|number| Duration::from_secs_f64(f64::from(number) / rate));
            all.extend(times.take_while(|it| it < time).map(|it| begun + it));
            begun += *time;
        }
        all
    }
}

impl FromStr for Load {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let mut steps = Vec::new();
        let mut count = 0.0;
        for step in text.split(',') {
            let (rate, time) = step
                .split_once('x')
                .with_context(|| format!("'{step}': write 20x10s, for 20 per second over 10 s"))?;
            let rate: f64 = rate
                .trim()
                .parse()
                .with_context(|| format!("'{rate}' is no rate"))?;
            let Some(seconds) = time.trim().strip_suffix('s') else {
                bail!("'{time}': the time is in seconds: 10s");
            };
            let seconds: f64 = seconds
                .parse()
                .with_context(|| format!("'{time}' is no time"))?;
            ensure!(
                rate.is_finite() && rate > 0.0 && seconds.is_finite() && seconds > 0.0,
                "'{step}': both are more than nothing"
            );
            count += rate * seconds;
            ensure!(
                count <= REQUESTS_MAX,
                "these are more than {REQUESTS_MAX} requests"
            );
            steps.push((rate, Duration::from_secs_f64(seconds)));
        }
        Ok(Load(steps))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // promise: 28.2
    #[test]
    fn a_load_says_when_each_request_is_due() {
        let load: Load = "2x1s,10x0.3s".parse().expect("a load");
        let due: Vec<_> = load.due().iter().map(|it| it.as_millis()).collect();
        assert_eq!(due, [0, 500, 1000, 1100, 1200]);
        for wrong in [
            "", "20", "20x10", "x1s", "0x1s", "1x0s", "-1x1s", "1e9x1s", "infx1s", "1x1s,",
            "1xNaNs",
        ] {
            wrong.parse::<Load>().expect_err(wrong);
        }
    }
}
