//! Treatment of a flow once its application is known.

use crate::classifier::Flow;
use nfluid_evnf::inspector::Action;
use std::collections::HashMap;

/// Treatment of a decided flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Treatment {
    /// The flow continues as before: the kernel gets its packets, the classifier copies of them.
    Inspect,
    /// The fast path has it.
    Fast {
        /// The action on the flow's packets.
        action: Action,
        /// The DSCP that they get.
        dscp: Option<u8>,
    },
}

impl Treatment {
    /// The fast path only counts it.
    pub const COUNT: Treatment = Treatment::Fast {
        action: Action::Pass,
        dscp: None,
    };
}

/// The condition for offloading a flow to the fast path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// As soon as its application is known.
    Known,
    /// When it also has this size or, over its life, this rate: an elephant.
    Elephant {
        /// Bytes.
        bytes: u64,
        /// Bytes per second.
        rate: u64,
    },
    /// Never.
    Never,
}

/// Rule for an application's flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Until then they are inspected.
    pub when: When,
    /// The treatment of flows that match.
    pub treatment: Treatment,
}

/// A rule for each application that has one, and one for all others.
#[derive(Clone, Debug)]
pub struct Rules {
    /// By the application's number; that of what carries it (TLS, HTTP) counts where the application's own has none. 0:
    /// those of which nDPI knows nothing.
    pub by_application: HashMap<u16, Rule>,
    /// All others.
    pub others: Rule,
}

impl Default for Rules {
    fn default() -> Self {
        Rules {
            by_application: HashMap::new(),
            others: Rule {
                when: When::Known,
                treatment: Treatment::COUNT,
            },
        }
    }
}

impl Rules {
    /// Returns the treatment of a decided flow.
    pub fn decide(&self, flow: &Flow) -> Treatment {
        let known = flow.application();
        let own = self.by_application.get(&known.application);
        let rule = own.or_else(|| self.by_application.get(&known.master));
        // A flow that was an elephant stays an elephant.
        let size = if flow.is_taken_over() {
            u64::MAX
        } else {
            flow.counted().1
        };
        rule.unwrap_or(&self.others).of(size, flow.rate())
    }
}

impl Rule {
    fn of(&self, size: u64, speed: u64) -> Treatment {
        let goes = match self.when {
            When::Known => true,
            When::Elephant { bytes, rate } => size >= bytes || speed >= rate,
            When::Never => false,
        };
        if goes {
            self.treatment
        } else {
            Treatment::Inspect
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Rule, Treatment, When};

    #[test]
    fn elephants_are_large_or_fast() {
        let rule = |when| Rule {
            when,
            treatment: Treatment::COUNT,
        };
        let elephant = rule(When::Elephant {
            bytes: 1000,
            rate: 100,
        });
        assert_eq!(elephant.of(999, 99), Treatment::Inspect);
        assert_eq!(elephant.of(1000, 0), Treatment::COUNT);
        assert_eq!(elephant.of(0, 100), Treatment::COUNT);
        assert_eq!(rule(When::Known).of(0, 0), Treatment::COUNT);
        assert_eq!(rule(When::Never).of(u64::MAX, 0), Treatment::Inspect);
    }
}
