//! Lost frames of a move: by the counters of the platforms and the kernel, and by the phase in which the frames were
//! sent.

use nfluid_api::types::Timeline;
use nfluid_testbed::api::Api;
use nfluid_testbed::namespace::Namespace;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Counters of dropped frames, by place and reason.
#[derive(Clone, Debug, Default)]
pub struct DropCounters(BTreeMap<String, u64>);

impl DropCounters {
    /// Adds the drops of all ports of a platform; `host` is the platform's name in the result.
    ///
    /// # Errors
    /// The daemon does not answer.
    pub fn add_platform(&mut self, host: &str, requests: &mut Api) -> anyhow::Result<()> {
        let stats = requests.get("/v1/stats")?;
        for port in stats["ports"].as_array().into_iter().flatten() {
            let name = port["name"].as_str().unwrap_or_default();
            let drops = port["counters"]["drops"].as_object();
            for (reason, count) in drops.into_iter().flatten() {
                self.add(format!("{host} {name} {reason}"), count.as_u64());
            }
        }
        Ok(())
    }

    /// Adds the frames that the interfaces of a namespace did not send or did not accept.
    ///
    /// # Errors
    /// `ip` fails.
    pub fn add_interfaces(&mut self, place: &str, namespace: &Namespace) -> anyhow::Result<()> {
        let links: Value = serde_json::from_str(&namespace.run("ip -s -j link")?)?;
        for link in links.as_array().into_iter().flatten() {
            let name = link["ifname"].as_str().unwrap_or_default();
            for way in ["rx", "tx"] {
                let dropped = link["stats64"][way]["dropped"].as_u64();
                self.add(format!("{place} {name} {way}_dropped"), dropped);
            }
        }
        Ok(())
    }

    /// Adds the frames that were dropped because the kernel's queues between interfaces were full, of all CPUs
    /// (proc(5), `softnet_stat`).
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn add_backlog(&mut self) -> anyhow::Result<()> {
        let table = std::fs::read_to_string("/proc/net/softnet_stat")?;
        let dropped = table.lines().filter_map(|line| {
            let word = line.split_whitespace().nth(1)?;
            u64::from_str_radix(word, 16).ok()
        });
        self.add("kernel's backlog".to_owned(), Some(dropped.sum()));
        Ok(())
    }

    /// Returns the sum of all counters.
    pub fn sum(&self) -> u64 {
        self.0.values().sum()
    }

    /// Adds `count` frames to a counter.
    pub fn add(&mut self, what: String, count: Option<u64>) {
        *self.0.entry(what).or_default() += count.unwrap_or(0);
    }

    /// Returns the increase of each counter since `before`. A new or recreated counter counts from 0.
    pub fn since(&self, before: &DropCounters) -> DropCounters {
        let grown = self.0.iter().map(|(what, count)| {
            let known = before.0.get(what).copied().unwrap_or(0);
            let more = count.checked_sub(known).unwrap_or(*count);
            (what.clone(), more)
        });
        DropCounters(grown.filter(|(_, count)| *count > 0).collect())
    }

    /// Adds the counters of `others`.
    pub fn merge(&mut self, others: &DropCounters) {
        for (what, count) in &others.0 {
            *self.0.entry(what.clone()).or_default() += count;
        }
    }

    /// Returns a row per counter, the largest first.
    pub fn rows(&self) -> Vec<Vec<String>> {
        let mut rows: Vec<_> = self.0.iter().collect();
        rows.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let row = |(what, count): (&String, &u64)| vec![what.clone(), count.to_string()];
        rows.into_iter().map(row).collect()
    }
}

/// Lost frames by the phase of a move in which they were due, in the order of the phases.
#[derive(Debug, Default)]
pub struct LossesByPhase(Vec<(String, u64)>);

impl LossesByPhase {
    /// Adds the lost frames of a move that was requested at `asked`.
    pub fn note(&mut self, asked: Instant, took: &Timeline, lost_at: &[Instant]) {
        let mut until = asked;
        let mut ends = vec![("before".to_owned(), asked)];
        for phase in &took.phases {
            until += Duration::from_nanos(phase.took_ns);
            ends.push((phase.what.clone(), until));
        }
        let parts = ends.iter().map(|(what, _)| what.as_str());
        parts.chain(["after"]).for_each(|part| self.count(part, 0));
        for at in lost_at {
            let part = ends.iter().find(|(_, end)| at < end);
            self.count(part.map_or("after", |(what, _)| what), 1);
        }
    }

    fn count(&mut self, part: &str, frames: u64) {
        match self.0.iter_mut().find(|(what, _)| what == part) {
            Some((_, count)) => *count += frames,
            None => self.0.push((part.to_owned(), frames)),
        }
    }

    /// Returns a row per phase.
    pub fn rows(&self) -> Vec<Vec<String>> {
        let row = |(what, count): &(String, u64)| vec![what.clone(), count.to_string()];
        self.0.iter().map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{DropCounters, LossesByPhase};
    use nfluid_api::types::{Phase, Timeline};
    use std::time::{Duration, Instant};

    #[test]
    fn what_was_made_again_counts_from_nothing() {
        let counters = |counts: &[(&str, u64)]| {
            let mut counters = DropCounters::default();
            for (what, count) in counts {
                counters.add((*what).to_owned(), Some(*count));
            }
            counters
        };
        let before = counters(&[("a", 5), ("b", 7), ("c", 2)]);
        let after = counters(&[("a", 5), ("b", 9), ("c", 1), ("d", 4)]);
        let rows = after.since(&before).rows();
        assert_eq!(rows, [["d", "4"], ["b", "2"], ["c", "1"]]);
    }

    #[test]
    fn what_is_lost_is_of_the_part_in_which_it_was_sent() {
        let asked = Instant::now();
        let phase = |what: &str, ms: u64| Phase {
            what: what.to_owned(),
            took_ns: ms * 1_000_000,
        };
        let took = Timeline {
            begun_ns: 0,
            phases: vec![phase("prepare", 30), phase("stop", 2)],
        };
        let before = asked - Duration::from_millis(1);
        let at = |ms| asked + Duration::from_millis(ms);
        let mut by_phase = LossesByPhase::default();
        by_phase.note(asked, &took, &[at(31), before, at(29), at(40), at(41)]);
        by_phase.note(asked, &took, &[at(31)]);
        let expected = [
            ["before", "1"],
            ["prepare", "1"],
            ["stop", "2"],
            ["after", "2"],
        ];
        assert_eq!(by_phase.rows(), expected);
    }
}
