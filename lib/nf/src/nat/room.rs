//! Displacement when there is no room: the oldest TCP connection that was never established gives way.
//!
//! Attackers make such connections with forged SYNs to a forward. Such connections would keep the table full, for
//! hosts inside too.

use super::clock::Tenths;
use super::state::{Mapping, State};
use crate::table::NONE;

/// Half-open connections that are examined for one that frees the needed place: bounded work for the packet that
/// needs it.
const STEPS: usize = 32;

impl State {
    /// Makes room for a session: closes the oldest half-open one, of this host if one is given, whose mapping `fits`, and
    /// that mapping if this was its last session and the mapping is not `kept`. Returns false if there is none.
    pub(super) fn evict_session(
        &mut self,
        now: Tenths,
        kept: u32,
        host: Option<u32>,
        fits: impl Fn(&Mapping) -> bool,
    ) -> bool {
        let fitting = |session| {
            let mapping = self.sessions.get(session)?.mapping;
            fits(self.mappings.get(mapping)?).then_some((session, mapping))
        };
        let (queues, queue) = host.map_or((&self.half_open, 0), |host| (&self.half_open_of, host));
        let found = queues.iter_in(queue).take(STEPS).find_map(fitting);
        let Some((session, mapping)) = found else {
            return false;
        };
        self.close_session(session);
        if mapping != kept {
            self.close_mapping(now, mapping);
        }
        self.evicted += 1;
        true
    }

    /// Makes room for a mapping, in the place of one that `fits`, of this host if one is given.
    pub(super) fn evict_mapping(
        &mut self,
        now: Tenths,
        host: Option<u32>,
        fits: impl Fn(&Mapping) -> bool,
    ) -> bool {
        let goes = |mapping: &Mapping| !mapping.fixed && mapping.sessions == 1 && fits(mapping);
        self.evict_session(now, NONE, host, goes)
    }
}
