//! Attaching fast paths to interfaces, detaching them, and changing their order, with the programs on the interfaces.

use super::chain::{Attached, InterfaceChain, Wanted};
use super::placement::{direction, hook, mode, places, priority};
use super::{FastPath, FastPaths};
use nfluid_api::types::EventKind;
use nfluid_control::apply::{PlatformError, PlatformErrorKind, no_instance};
use nfluid_control::fast::Direction;
use nfluid_evnf::chain::Member;
use nfluid_evnf::hook::Hook;
use nfluid_netdev::{Mode, Place};

impl FastPaths {
    /// Returns the keys of the interface chains that a fast path is attached to, or has a reserved position in.
    pub(super) fn chains_of(&self, name: &str) -> Vec<String> {
        let is_there = |chain: &InterfaceChain| chain.attached().iter().any(|one| one.name == name);
        let chains = self.chains.iter().filter(|(_, chain)| is_there(chain));
        chains.map(|(key, _)| key.clone()).collect()
    }

    fn direction_of(&self, name: &str) -> Direction {
        let fast = self.instances.get(name);
        fast.map_or_else(Direction::default, |fast| direction(&fast.spec))
    }

    /// Returns the key of the chain of an interface that a fast path belongs to.
    pub(super) fn key_at(&self, name: &str, place: &Place) -> String {
        InterfaceChain::key_of(place, self.direction_of(name))
    }

    /// Attaches a fast path to an interface, at its position in the chain there.
    ///
    /// # Errors
    /// When the fast path cannot be attached. The rest of the chain is as before.
    pub(super) fn attach_to(
        &mut self,
        name: &str,
        place: &Place,
        order: Option<u16>,
    ) -> Result<(), PlatformError> {
        let key = self.key_at(name, place);
        let (paths, direction) = (&self.paths, self.direction_of(name));
        let chain = self
            .chains
            .entry(key.clone())
            .or_insert_with(|| InterfaceChain::new(place, direction, paths));
        let before = chain.attached().to_vec();
        let mut attached = before.clone();
        attached.retain(|one| one.name != name);
        attached.push(Attached {
            order,
            name: name.to_owned(),
            reserved: false,
        });
        let taken = chain
            .set_attached(attached)
            .and_then(|()| self.renew_chain(&key));
        taken.inspect_err(|_| self.restore_attached(&key, before))
    }

    /// Restores the record of a chain after a refused change: a refused change has changed nothing but the record.
    fn restore_attached(&mut self, key: &str, before: Vec<Attached>) {
        let Some(chain) = self.chains.get_mut(key) else {
            return;
        };
        let none = before.is_empty();
        let mut put = chain.set_attached(before);
        if none {
            put = chain.remove();
            self.chains.remove(key);
        }
        if let Err(error) = put {
            tracing::warn!(%error, "writing down who is on an interface");
        }
    }

    /// Detaches a fast path from all its interfaces. The fast paths behind it get the packets that it would have
    /// passed.
    ///
    /// # Errors
    /// When the fast path is still attached.
    pub(super) fn detach(&mut self, name: &str) -> Result<(), PlatformError> {
        for key in self.chains_of(name) {
            self.change_attached(&key, |attached| attached.retain(|one| one.name != name))?;
        }
        Ok(())
    }

    /// Removes the program of a fast path from all its interfaces, but reserves its positions: no fast path behind a
    /// reserved position gets packets that the missing fast path has not processed.
    fn reserve_positions(&mut self, name: &str) -> Result<(), PlatformError> {
        for key in self.chains_of(name) {
            self.change_attached(&key, |attached| {
                let own = attached.iter_mut().filter(|one| one.name == name);
                own.for_each(|one| one.reserved = true);
            })?;
        }
        Ok(())
    }

    /// Ends a fast path and reserves its positions for its replacement.
    ///
    /// # Errors
    /// When the fast path is still attached.
    pub fn reserve(&mut self, name: &str) -> Result<(), PlatformError> {
        self.reserve_positions(name)?;
        self.clear(name)?;
        self.instances.remove(name);
        Ok(())
    }

    /// Gives up the reserved positions of a fast path that were not taken again.
    pub fn release_reserved(&mut self, name: &str) {
        for key in self.chains_of(name) {
            let given = self.change_attached(&key, |attached| {
                attached.retain(|one| one.name != name || !one.reserved);
            });
            if let Err(error) = given {
                tracing::warn!(instance = name, %error, "leaving an interface");
            }
        }
    }

    /// Removes fast paths from a chain. If the remaining fast paths cannot be attached without them, the interface has
    /// no program, and the kernel gets all packets, until they can be attached.
    fn change_attached(
        &mut self,
        key: &str,
        change: impl FnOnce(&mut Vec<Attached>),
    ) -> Result<(), PlatformError> {
        let Some(chain) = self.chains.get_mut(key) else {
            return Ok(());
        };
        let mut attached = chain.attached().to_vec();
        change(&mut attached);
        if attached == chain.attached() {
            return Ok(());
        }
        if attached.is_empty() {
            chain.remove()?;
            self.chains.remove(key);
            return Ok(());
        }
        chain.set_attached(attached)?;
        if !chain.is_attached() {
            return Ok(());
        }
        if let Err(why) = self.renew_chain(key)
            && let Some(chain) = self.chains.get_mut(key)
        {
            chain.release()?;
            chain.note_problem(Some(why.message));
        }
        Ok(())
    }

    /// Installs on an interface the programs of all fast paths in its chain.
    pub(super) fn renew_chain(&mut self, key: &str) -> Result<(), PlatformError> {
        let Some(chain) = self.chains.get(key) else {
            return Ok(());
        };
        let (place, names) = (chain.place().clone(), chain.members());
        let first = names.first().and_then(|name| self.instances.get(name));
        let hook = chain.hook(first.map_or_else(Hook::default, |first| hook(&first.spec)));
        let hands_up = |name: &String| self.instances.get(name).is_some_and(|it| it.slow.is_some());
        let needs_driver = names.iter().any(hands_up);
        if needs_driver && chain.is_attached() && chain.mode().0 != "native" {
            return Err(not_in_the_driver(&place.interface));
        }
        let mut members = Vec::new();
        let mut rewrites = false;
        for name in names.iter().rev() {
            let member = self.member(name, &place, hook, rewrites)?;
            rewrites |= self
                .instances
                .get(name)
                .is_some_and(|it| it.function.rewrites());
            members.push((name.clone(), member));
        }
        members.reverse();
        let first = names.first().and_then(|name| self.instances.get(name));
        let wanted = Wanted {
            members,
            hook,
            mode: match first {
                _ if needs_driver => Mode::Native,
                Some(first) => mode(&first.spec),
                None => Mode::default(),
            },
            // A slow path gets packets unchanged, so packets need full checksums and must not be aggregated.
            rewrites: rewrites || needs_driver,
            may_be_at_tc: !needs_driver
                && names.iter().all(|name| {
                    let fast = self.instances.get(name);
                    fast.is_some_and(FastPath::may_be_at_tc)
                }),
            priority: first.and_then(|first| priority(&first.spec)),
            beside: self
                .beside(key)
                .and_then(InterfaceChain::filter_seat)
                .cloned(),
        };
        match self.chains.get_mut(key) {
            Some(chain) => chain.install(wanted),
            None => Ok(()),
        }
    }

    /// Returns the chain of the same interface for the other direction.
    fn beside(&self, key: &str) -> Option<&InterfaceChain> {
        let place = self.chains.get(key)?.place();
        let mut chains = self.chains.iter();
        let found = chains.find(|(other, chain)| *other != key && chain.place() == place);
        found.map(|(_, chain)| chain)
    }

    /// Replaces the program of a fast path on an interface by a new one.
    pub(super) fn renew_member(&mut self, name: &str, place: &Place) -> Result<(), PlatformError> {
        let key = self.key_at(name, place);
        let Some(chain) = self.chains.get(&key).filter(|chain| chain.is_attached()) else {
            // The new program is installed when the interface returns.
            return Ok(());
        };
        let Some(at) = chain.position(name) else {
            return self.renew_chain(&key);
        };
        let wanted = self.instances.get(name).map(|fast| hook(&fast.spec));
        let hook = chain.hook(wanted.unwrap_or_default());
        let member = self.member(name, place, hook, self.sends_behind(name, place))?;
        match self.chains.get_mut(&key) {
            Some(chain) => chain.replace(at, member),
            None => Ok(()),
        }
    }

    /// Returns true if a fast path behind this one on an interface forwards packets that this one passes.
    pub(super) fn sends_behind(&self, name: &str, place: &Place) -> bool {
        let chain = self.chains.get(&self.key_at(name, place));
        let attached = chain.map_or(&[][..], InterfaceChain::attached).iter();
        let mut behind = attached.skip_while(|one| one.name != name).skip(1);
        behind.any(|one| {
            let fast = self.instances.get(&one.name);
            fast.is_some_and(|fast| fast.function.rewrites())
        })
    }

    fn member(
        &mut self,
        name: &str,
        place: &Place,
        hook: Hook,
        before_senders: bool,
    ) -> Result<Member, PlatformError> {
        let Some(fast) = self.instances.get_mut(name) else {
            let message = format!("instance '{name}' is not there yet");
            return Err(PlatformError::new(PlatformErrorKind::NotFound, message));
        };
        let number = places(&fast.spec).iter().position(|other| other == place);
        let number = number.unwrap_or(usize::MAX);
        let member = fast.function.member(hook, number, before_senders);
        member.map_err(|why| PlatformError {
            message: format!("instance '{name}': {}", why.message),
            ..why
        })
    }

    /// Changes the position of a fast path in its chains. Each packet passes the old order or the new order.
    ///
    /// # Errors
    /// When the interfaces refuse. Then the old order is in force.
    pub fn set_order(&mut self, name: &str, order: Option<u16>) -> Result<(), PlatformError> {
        let Some(fast) = self.instances.get(name) else {
            return Err(no_instance(name));
        };
        let before = fast.spec.order();
        self.note_order(name, order)?;
        let mut done: Vec<String> = Vec::new();
        for key in self.chains_of(name) {
            if let Err(why) = self.reorder(&key, name, order) {
                for key in done {
                    if let Err(error) = self.reorder(&key, name, before) {
                        tracing::warn!(instance = name, %error, "going back to the old order");
                    }
                }
                self.note_order(name, before)?;
                return Err(why);
            }
            done.push(key);
        }
        Ok(())
    }

    fn reorder(&mut self, key: &str, name: &str, order: Option<u16>) -> Result<(), PlatformError> {
        let Some(chain) = self.chains.get_mut(key) else {
            return Ok(());
        };
        let (before, were) = (chain.attached().to_vec(), chain.members());
        let mut attached = before.clone();
        let own = attached.iter_mut().filter(|one| one.name == name);
        own.for_each(|one| one.order = order);
        chain.set_attached(attached)?;
        if chain.members() == were || !chain.is_attached() {
            return Ok(());
        }
        let renewed = self.renew_chain(key);
        renewed.inspect_err(|_| self.restore_attached(key, before))
    }

    /// Attaches a fast path again to interfaces that have returned. Returns true if an interface has returned since the
    /// last call.
    pub fn attach_again(&mut self, name: &str) -> bool {
        self.attach_missing(name);
        self.update_slow_path(name);
        for key in self.chains_of(name) {
            if let Some(chain) = self.chains.get_mut(&key)
                && let Err(error) = chain.notify_peer()
            {
                tracing::warn!(instance = name, %error, "redirecting to the other end");
            }
            let Some(chain) = self.chains.get_mut(&key) else {
                continue;
            };
            let is_gone = chain.is_gone();
            if !is_gone && chain.is_attached() && !chain.is_left() {
                continue;
            }
            let (place, was_there) = (chain.place().clone(), chain.is_attached() && !is_gone);
            if is_gone {
                let _gone_with_it = chain.forget();
                self.report_to_members(&key, EventKind::Warning, "is gone");
            }
            if place.look().is_err() {
                continue;
            }
            let renewed = self.renew_chain(&key);
            let Some(chain) = self.chains.get_mut(&key) else {
                continue;
            };
            match renewed {
                Ok(()) if chain.is_attached() && !was_there => {
                    for name in chain.members() {
                        if let Some(fast) = self.instances.get_mut(&name) {
                            fast.regained = true;
                        }
                    }
                    self.report_to_members(&key, EventKind::Started, "has it again");
                }
                Ok(()) => {}
                Err(why) => chain.note_problem(Some(why.message)),
            }
        }
        let fast = self.instances.get_mut(name);
        fast.is_some_and(|fast| std::mem::take(&mut fast.regained))
    }

    /// Checks the taps of a fast path's slow path, and has the fast path hand packets up to the tap that exists.
    pub(super) fn update_slow_path(&mut self, name: &str) {
        let Some(fast) = self.instances.get_mut(name) else {
            return;
        };
        let Some(slow) = &mut fast.slow else {
            return;
        };
        let before = slow.problem().map(str::to_owned);
        let has_changed = slow.update();
        let now = slow.problem().map(str::to_owned);
        if has_changed {
            fast.lead_to_slow_path(name);
        }
        if now != before {
            let (kind, message) = match now {
                Some(why) => (EventKind::Unhealthy, why),
                None => (
                    EventKind::Healthy,
                    "its slow path is there again".to_owned(),
                ),
            };
            self.event(kind, name, message);
        }
    }

    /// Attaches a fast path to those of its interfaces from which it is missing: an interface may have been gone when
    /// the fast path was adopted or made.
    fn attach_missing(&mut self, name: &str) {
        let Some(fast) = self.instances.get(name) else {
            return;
        };
        let (places, order) = (places(&fast.spec), fast.spec.order());
        let there = self.chains_of(name);
        for place in places {
            if !there.contains(&self.key_at(name, &place))
                && place.look().is_ok()
                && let Err(error) = self.attach_to(name, &place, order)
            {
                tracing::debug!(instance = name, interface = place.interface, %error, "not on it");
            }
        }
    }

    fn report_to_members(&mut self, key: &str, kind: EventKind, what: &str) {
        let Some(chain) = self.chains.get(key) else {
            return;
        };
        let message = format!("{} {what}", chain.place().interface);
        for name in chain.members() {
            self.event(kind, &name, message.clone());
        }
    }
}

/// Error for a slow path with generic XDP: packets that the slow path returns would pass the program again.
fn not_in_the_driver(interface: &str) -> PlatformError {
    let message = format!("the programs on {interface} are not in its driver");
    PlatformError::new(PlatformErrorKind::Unsupported, message).with_remedy(
        "a slow path of its own needs native XDP: leave 'slow' out, or use another interface",
    )
}
