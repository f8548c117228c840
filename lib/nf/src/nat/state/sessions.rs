//! Sessions: the peers of mappings.

use super::*;

impl State {
    /// Under which peer a mapping keeps its session with `peer`; `None` if it needs none.
    #[inline]
    pub(in crate::nat) fn session_peer(
        &self,
        mapping: &Mapping,
        peer: Endpoint,
    ) -> Option<Endpoint> {
        if mapping.protocol == Protocol::Tcp {
            return Some(peer);
        }
        match self.config.filtering {
            _ if mapping.fixed => None,
            Filtering::EndpointIndependent => None,
            Filtering::AddressAndPort if mapping.protocol == Protocol::Udp => Some(peer),
            _ => Some(Endpoint::new(peer.address, 0)),
        }
    }

    /// The session of mapping `index` with `peer`, as [`State::session_peer`] names it.
    #[inline]
    pub(in crate::nat) fn find_session(&self, index: u32, peer: Endpoint) -> Option<u32> {
        let mapping = self.mappings.get(index)?;
        let is_it = |session: u32| {
            self.sessions
                .get(session)
                .is_some_and(|s| s.mapping == index && s.peer == peer)
        };
        if is_it(mapping.latest) {
            return Some(mapping.latest);
        }
        self.by_peer.find(self.hasher.session(index, peer), is_it)
    }

    /// True if the mapping has a live session with this address, at any port. Looks at the newest
    /// `steps` sessions.
    pub(in crate::nat) fn knows_address(
        &self,
        index: u32,
        address: u32,
        now: Tenths,
        steps: usize,
    ) -> bool {
        let mut at = self
            .mappings
            .get(index)
            .map_or(NONE, |mapping| mapping.newest);
        for _ in 0..steps {
            let Some(session) = self.sessions.get(at) else {
                return false;
            };
            if session.peer.address == address && now < session.expires {
                return true;
            }
            at = session.older;
        }
        false
    }

    /// Another filtering may keep peers otherwise; then the hosts have to send first.
    pub(in crate::nat) fn can_adopt_session(&self, mapping: u32, peer: Endpoint) -> bool {
        let kept = self.mappings.get(mapping);
        let kept = kept.and_then(|mapping| self.session_peer(mapping, peer));
        kept == Some(peer) && self.find_session(mapping, peer).is_none()
    }

    /// Adds a session that mapping `index` does not have yet.
    pub(in crate::nat) fn open_session(
        &mut self,
        now: Tenths,
        index: u32,
        peer: Endpoint,
    ) -> Result<u32, Refusal> {
        let host = self
            .mappings
            .get(index)
            .map_or(NONE, |mapping| mapping.host);
        let quota = self.config.host_sessions_max;
        let over_quota = self
            .hosts
            .get(host)
            .is_none_or(|host| host.sessions >= quota);
        if over_quota && !self.evict_session(now, index, Some(host), |_| true) {
            self.refused(host);
            return Err(Refusal::HostQuota);
        }
        if self.sessions.is_full() {
            self.reclaim(now, RECLAIM_STEPS);
        }
        if self.sessions.is_full() {
            self.evict_session(now, index, None, |_| true);
        }
        let opened = self.insert_session(index, peer, now);
        if opened.is_none() {
            self.refused(host);
        }
        opened.ok_or(Refusal::SessionsFull)
    }

    fn insert_session(&mut self, index: u32, peer: Endpoint, expires: Tenths) -> Option<u32> {
        let mapping = self.mappings.get_mut(index)?;
        let older = mapping.newest;
        let session = self.sessions.insert(Session {
            mapping: index,
            peer,
            tcp: Connection::default(),
            expires,
            newer: NONE,
            older,
        })?;
        mapping.newest = session;
        mapping.latest = session;
        mapping.sessions += 1;
        if let Some(host) = self.hosts.get_mut(mapping.host) {
            host.sessions += 1;
        }
        if let Some(older) = self.sessions.get_mut(older) {
            older.newer = session;
        }
        self.by_peer
            .insert(self.hasher.session(index, peer), session);
        self.opened += 1;
        Some(session)
    }

    /// Takes over a session of an earlier configuration.
    pub(in crate::nat) fn adopt_session(&mut self, index: u32, old: &Session) {
        if let Some(place) = self.insert_session(index, old.peer, old.expires)
            && let Some(session) = self.sessions.get_mut(place)
        {
            session.tcp = old.tcp;
            self.note_half_open(place, index, old.tcp.is_half_open());
        }
    }

    /// Notes if the TCP connection of a mapping's session is half-open.
    pub(in crate::nat) fn note_half_open(
        &mut self,
        session: u32,
        mapping: u32,
        is_half_open: bool,
    ) {
        self.half_open.set(session, is_half_open);
        let host = self.mappings.get(mapping).map_or(NONE, |it| it.host);
        self.half_open_of.set_in(host, session, is_half_open);
    }

    pub(in crate::nat) fn close_session(&mut self, index: u32) {
        let Some(session) = self.sessions.remove(index) else {
            return;
        };
        self.note_half_open(index, session.mapping, false);
        let hash = self.hasher.session(session.mapping, session.peer);
        self.by_peer.remove(hash, index);
        if let Some(newer) = self.sessions.get_mut(session.newer) {
            newer.older = session.older;
        }
        if let Some(older) = self.sessions.get_mut(session.older) {
            older.newer = session.newer;
        }
        if let Some(mapping) = self.mappings.get_mut(session.mapping) {
            mapping.sessions -= 1;
            if mapping.newest == index {
                mapping.newest = session.older;
            }
            if let Some(host) = self.hosts.get_mut(mapping.host) {
                host.sessions -= 1;
            }
        }
    }
}
