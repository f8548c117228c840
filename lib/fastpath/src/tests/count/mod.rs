//! `nf: count`: passes and counts all packets. For tests only.
//!
//! Its program is that of a guard without limits. A function of the catalogue has its program in `bpf/evnf`, and the
//! user half of the program in `lib/evnf`.

mod config;
mod figures;

use crate::error::broken;
use crate::figures::{Exits, named};
use crate::function::{Changed, Context, Entry, FastFunction};
use crate::placement::ingress_only;
use crate::record::Record;
use config::{CountConfig, Unit};
use nfluid_control::apply::PlatformError;
use nfluid_control::fast::Direction;
use nfluid_evnf::chain::Member;
use nfluid_evnf::guard::{Guard, Settings, Sizes};
use nfluid_evnf::hook::Hook;
use nfluid_netdev::Place;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// The entry of the catalogue.
pub const ENTRY: Entry = Entry {
    name: "count",
    has_slow_path: false,
    check_attach: |attach| match attach.direction {
        Direction::Egress => Err(ingress_only("count")),
        Direction::Ingress => Ok(()),
    },
    parse: |config| Ok(Box::new(config::parse(config)?)),
};

struct Count {
    program: Guard,
    config: CountConfig,
}

impl Count {
    fn load(config: &CountConfig, pins: &Path) -> Result<Self, PlatformError> {
        let settings = Settings {
            sizes: Sizes {
                sources: config.entries,
                ..Sizes::default()
            },
            ..Settings::default()
        };
        Ok(Count {
            program: Guard::load_kept(&settings, pins).map_err(broken)?,
            config: config.clone(),
        })
    }
}

impl FastFunction for Count {
    fn rewrites(&self) -> bool {
        false
    }

    fn has_tc_form(&self) -> bool {
        false
    }

    fn member(&mut self, hook: Hook, _: usize, _: bool) -> Result<Member, PlatformError> {
        self.program.member_at(hook).map_err(broken)
    }

    /// Makes another program on the same tables, so that tests see the replacement of this one.
    fn change(&mut self, config: &Value, context: &mut Context<'_>) -> Changed {
        let new = config::parse(config).map_err(crate::config::refused)?;
        Ok(Some(Box::new(Count::load(&new, context.pins)?)))
    }

    fn restart(&mut self, _: &mut Context<'_>) -> Changed {
        Ok(None)
    }

    fn exits(&self) -> Exits {
        let exits = self.program.exits().ok();
        exits.map_or_else(Vec::new, |exits| named(exits, figures::verdict))
    }

    fn add_metrics(&self, _: &Record, _: &[Place], metrics: &mut BTreeMap<String, f64>) {
        let counted = self.exits().into_iter().map(|(.., counts)| counts);
        let total: u64 = match self.config.unit {
            Unit::Packets => counted.map(|counts| counts.packets).sum(),
            Unit::Bytes => counted.map(|counts| counts.bytes).sum(),
        };
        metrics.insert("count_total".to_owned(), total as f64);
    }
}
