//! `nf: guard`: rate limits, and protected destinations.

mod config;
mod figures;

use crate::error::broken;
use crate::figures::{Exits, named};
use crate::function::{Changed, Context, Entry, FastFunction};
use config::GuardConfig;
use nfluid_control::apply::{PlatformError, PlatformErrorKind};
use nfluid_control::fast::{Attach, Direction};
use nfluid_control::host::NfAttachError;
use nfluid_control::model::XdpMode;
use nfluid_evnf::chain::Member;
use nfluid_evnf::guard::{Guard, Settings};
use nfluid_evnf::hook::Hook;
use serde_json::Value;
use std::path::Path;

/// The entry of the catalogue.
pub const ENTRY: Entry = Entry {
    name: "guard",
    has_slow_path: false,
    check_attach,
    parse: |config| Ok(Box::new(GuardConfig::read(config)?)),
};

fn check_attach(attach: &Attach) -> Result<(), NfAttachError> {
    let key = match attach.mode {
        _ if attach.direction == Direction::Egress => "direction",
        XdpMode::Tc => "mode",
        _ => return Ok(()),
    };
    Err(NfAttachError {
        key,
        message: "'guard' is for XDP: it has no form for tc".to_owned(),
        remedy:
            "remove 'mode: tc' and 'direction': it is at XDP then, natively where the driver can"
                .to_owned(),
    })
}

/// A running guard.
struct Guarding {
    guard: Guard,
    settings: Settings,
}

impl Guarding {
    /// Loads a guard on the tables in `folder`, or makes the tables there.
    ///
    /// # Errors
    /// When the kernel refuses the program, or the tables have another version.
    fn load(settings: &Settings, folder: &Path) -> Result<Self, PlatformError> {
        Ok(Guarding {
            guard: Guard::load_kept(settings, folder).map_err(broken)?,
            settings: settings.clone(),
        })
    }

    /// Makes the guard with other limits: another program on the same tables.
    fn successor(settings: &Settings, context: &Context<'_>) -> Changed {
        config::takes_cookies(settings, context.places)?;
        let successor = Guarding::load(settings, context.pins)?;
        Ok(Some(Box::new(successor)))
    }
}

impl FastFunction for Guarding {
    fn has_tc_form(&self) -> bool {
        false
    }

    fn member(&mut self, hook: Hook, _: usize, _: bool) -> Result<Member, PlatformError> {
        if !hook.is_xdp() {
            // Only for a specification recorded by an older daemon: a newer one refuses it earlier.
            let message = "it has no form for tc";
            return Err(PlatformError::new(PlatformErrorKind::Unsupported, message)
                .with_remedy("leave 'mode: tc' out"));
        }
        self.guard.member_at(hook).map_err(broken)
    }

    fn change(&mut self, config: &Value, context: &mut Context<'_>) -> Changed {
        let new = GuardConfig::read(config).map_err(crate::config::refused)?;
        Guarding::successor(new.settings(), context)
    }

    fn restart(&mut self, context: &mut Context<'_>) -> Changed {
        Guarding::successor(&self.settings, context)
    }

    fn exits(&self) -> Exits {
        let exits = self.guard.exits().ok();
        exits.map_or_else(Vec::new, |exits| named(exits, figures::verdict))
    }
}
