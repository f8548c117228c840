//! A pool: its shells, the instances that can use them, and the number of shells to keep.

use crate::making::Making;
use nfluid_api::types::PoolStatus;
use nfluid_control::model::Program;
use nfluid_control::pool::{PoolSpec, Purpose, Size};
use nfluid_control::spec::InstanceSpec;
use nfluid_sandbox::Linkage;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Smallest size of a pool that follows the rate of creations.
const LEAST: u32 = 4;
/// Window over which the rate is measured.
pub const WINDOW: Duration = Duration::from_secs(1);

/// A pool.
pub struct Lane {
    pub spec: PoolSpec,
    pub ready: VecDeque<Making>,
    pub taken: u64,
    pub missed: u64,
    pub problem: Option<String>,
    /// After a failure, no shell is created before this time.
    pub rests_until: Option<Instant>,
    pub recent: Recent,
}

/// The recent demand.
#[derive(Default)]
pub struct Recent {
    since: Option<Instant>,
    now: u32,
    before: u32,
}

impl Recent {
    fn turn(&mut self, now: Instant) {
        let passed = self.since.map(|since| now.duration_since(since));
        if passed.is_none_or(|passed| passed >= WINDOW) {
            let is_next = passed.is_some_and(|passed| passed < 2 * WINDOW);
            self.before = if is_next { self.now } else { 0 };
            self.now = 0;
            self.since = Some(now);
        }
    }

    pub fn count(&mut self, now: Instant) {
        self.turn(now);
        self.now += 1;
    }

    fn rate(&mut self, now: Instant) -> u32 {
        self.turn(now);
        self.now.max(self.before)
    }
}

impl Lane {
    pub fn new(spec: &PoolSpec) -> Self {
        Lane {
            spec: spec.clone(),
            ready: VecDeque::new(),
            taken: 0,
            missed: 0,
            problem: None,
            rests_until: None,
            recent: Recent::default(),
        }
    }

    /// Returns the number of shells to keep now.
    pub fn wanted(&mut self, now: Instant) -> u32 {
        match self.spec.size {
            Size::Fixed(count) => count,
            Size::Rate { most } => self.recent.rate(now).clamp(LEAST.min(most), most),
        }
    }

    /// Returns true if no shell is created because of a recent failure.
    pub fn is_resting(&self, now: Instant) -> bool {
        self.rests_until.is_some_and(|until| now < until)
    }

    /// Returns true if half of the shells are gone: then new shells are created at once.
    pub fn is_half_empty(&mut self, now: Instant) -> bool {
        self.ready.len() <= self.wanted(now) as usize / 2
    }

    /// Returns the reason why no shell of this pool can become such an instance with such a linkage. `None` if a
    /// shell can.
    pub fn misfit(&self, spec: &InstanceSpec, linkage: Option<&Linkage>) -> Option<&'static str> {
        let by_linkage = match (self.spec.purpose, linkage) {
            (Purpose::BuiltIn | Purpose::MicroVms | Purpose::Images, _)
            | (Purpose::Programs, Some(Linkage::Dynamic { .. }))
            | (Purpose::StaticPrograms, Some(Linkage::Static)) => None,
            (Purpose::Programs, Some(Linkage::Static)) => Some(
                "the program is linked statically; a pool 'for: static-programs' serves it, with an empty root directory",
            ),
            (Purpose::StaticPrograms, Some(Linkage::Dynamic { .. })) => {
                Some("the program needs a loader; a pool 'for: programs' serves it")
            }
            (_, None) => Some("its program cannot be opened"),
        };
        self.spec.misfit(spec).or(by_linkage)
    }

    /// Returns true if a shell may become such an instance, depending on the linkage of its program.
    pub fn depends_on_linkage(&self, spec: &InstanceSpec) -> bool {
        matches!(spec.program, Program::Path { .. }) && self.spec.suits(spec)
    }

    /// Returns the pool's state.
    pub fn status(&mut self, name: &str, now: Instant) -> PoolStatus {
        PoolStatus {
            name: name.to_owned(),
            flavor: self.spec.flavor.clone(),
            ports: self.spec.ports,
            purpose: self.spec.purpose.word().to_owned(),
            image: self.spec.image.as_ref().map(|pooled| pooled.image.clone()),
            group: self.spec.group.clone(),
            trust: self.spec.trust.clone(),
            wanted: self.wanted(now),
            ready: self.ready.len() as u32,
            taken: self.taken,
            missed: self.missed,
            problem: self.problem.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Lane, Recent, WINDOW};
    use nfluid_control::model::{PortApi, Program};
    use nfluid_control::pool::{PoolSpec, Purpose, Size};
    use nfluid_control::quantity::Bytes;
    use nfluid_control::spec::InstanceSpec;
    use nfluid_control::tier::Tier;
    use nfluid_sandbox::Linkage;
    use std::time::Instant;

    // promise: 5.20
    #[test]
    fn a_program_needs_a_shell_with_what_its_loader_needs_and_no_more() {
        let lane = |purpose| {
            Lane::new(&PoolSpec {
                flavor: "small".to_owned(),
                ring: 0,
                memory: Bytes(16 << 20),
                ports: 0,
                long: 0,
                purpose,
                image: None,
                group: None,
                trust: None,
                size: Size::Fixed(1),
            })
        };
        let program = Program::Path {
            program: "/bin/nf".to_owned(),
            args: Vec::new(),
            api: PortApi::Library,
        };
        let spec = InstanceSpec::bare(program, Tier::PROCESS);
        let interpreter = "/lib64/ld.so".into();
        let dynamic = Linkage::Dynamic { interpreter };
        let [loader, empty] = [Purpose::Programs, Purpose::StaticPrograms].map(lane);
        assert_eq!(loader.misfit(&spec, Some(&dynamic)), None);
        assert_eq!(empty.misfit(&spec, Some(&Linkage::Static)), None);
        let why = |lane: &Lane, linkage| lane.misfit(&spec, linkage).expect("it does not suit");
        assert!(why(&loader, Some(&Linkage::Static)).contains("static-programs"));
        assert!(why(&empty, Some(&dynamic)).contains("loader"));
        assert!(why(&loader, None).contains("opened"));
        let built_in = Lane::new(&PoolSpec {
            purpose: Purpose::BuiltIn,
            ..loader.spec.clone()
        });
        assert!(!built_in.depends_on_linkage(&spec) && loader.depends_on_linkage(&spec));
    }

    #[test]
    fn the_rate_is_that_of_the_last_window_and_is_forgotten() {
        let mut recent = Recent::default();
        let start = Instant::now();
        assert_eq!(recent.rate(start), 0);
        for _ in 0..7 {
            recent.count(start);
        }
        assert_eq!(recent.rate(start), 7);
        assert_eq!(recent.rate(start + WINDOW), 7);
        assert_eq!(recent.rate(start + 2 * WINDOW), 0);
        recent.count(start + 9 * WINDOW);
        assert_eq!(recent.rate(start + 9 * WINDOW), 1);
    }
}
