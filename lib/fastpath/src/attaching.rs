//! Who is on which interface: fast paths take seats there, leave them, change them, and the interface's program follows.

use super::chain::{Row, Seat, Wanted};
use super::placement::{direction, hook, mode, places, priority};
use super::{FastPath, FastPaths};
use nfluid_api::types::EventKind;
use nfluid_control::apply::{PlatformError, PlatformErrorKind, no_instance};
use nfluid_control::fast::Direction;
use nfluid_evnf::chain::Member;
use nfluid_evnf::hook::Hook;
use nfluid_netdev::{Mode, Place};

impl FastPaths {
    /// The interfaces on which a fast path has a seat, by key.
    pub(super) fn rows_of(&self, name: &str) -> Vec<String> {
        let is_there = |row: &Row| row.seats().iter().any(|seat| seat.name == name);
        let rows = self.rows.iter().filter(|(_, row)| is_there(row));
        rows.map(|(key, _)| key.clone()).collect()
    }

    fn direction_of(&self, name: &str) -> Direction {
        let fast = self.instances.get(name);
        fast.map_or_else(Direction::default, |fast| direction(&fast.spec))
    }

    /// The row of an interface that a fast path is to be in.
    pub(super) fn key_at(&self, name: &str, place: &Place) -> String {
        Row::key_of(place, self.direction_of(name))
    }

    /// Puts a fast path on an interface, at its place among those that are there.
    ///
    /// # Errors
    /// When it cannot be there; the others are as before.
    pub(super) fn take_seat(
        &mut self,
        name: &str,
        place: &Place,
        order: Option<u16>,
    ) -> Result<(), PlatformError> {
        let key = self.key_at(name, place);
        let (paths, direction) = (&self.paths, self.direction_of(name));
        let row = self
            .rows
            .entry(key.clone())
            .or_insert_with(|| Row::new(place, direction, paths));
        let before = row.seats().to_vec();
        let mut seats = before.clone();
        seats.retain(|seat| seat.name != name);
        seats.push(Seat {
            order,
            name: name.to_owned(),
            vacant: false,
        });
        let taken = row.set_seats(seats).and_then(|()| self.renew_row(&key));
        taken.inspect_err(|_| self.put_seats_back(&key, before))
    }

    /// What was refused has changed nothing but the record.
    fn put_seats_back(&mut self, key: &str, before: Vec<Seat>) {
        let Some(row) = self.rows.get_mut(key) else {
            return;
        };
        let none = before.is_empty();
        let mut put = row.set_seats(before);
        if none {
            put = row.end();
            self.rows.remove(key);
        }
        if let Err(error) = put {
            tracing::warn!(%error, "writing down who is on an interface");
        }
    }

    /// Takes a fast path off all its interfaces; those behind it get what it would have let pass.
    ///
    /// # Errors
    /// When it is there still.
    pub(super) fn leave_seats(&mut self, name: &str) -> Result<(), PlatformError> {
        for key in self.rows_of(name) {
            self.change_seats(&key, |seats| seats.retain(|seat| seat.name != name))?;
        }
        Ok(())
    }

    /// Takes the program of a fast path off all its interfaces, but keeps its seats: nobody behind it gets what it has not seen.
    fn vacate_seats(&mut self, name: &str) -> Result<(), PlatformError> {
        for key in self.rows_of(name) {
            self.change_seats(&key, |seats| {
                let own = seats.iter_mut().filter(|seat| seat.name == name);
                own.for_each(|seat| seat.vacant = true);
            })?;
        }
        Ok(())
    }

    /// Ends a fast path for another in its place.
    ///
    /// # Errors
    /// When it is there still.
    pub fn vacate(&mut self, name: &str) -> Result<(), PlatformError> {
        self.vacate_seats(name)?;
        self.clear(name)?;
        self.instances.remove(name);
        Ok(())
    }

    /// Gives up seats that a fast path has not taken again.
    pub fn give_up_seats(&mut self, name: &str) {
        for key in self.rows_of(name) {
            let given = self.change_seats(&key, |seats| {
                seats.retain(|seat| seat.name != name || !seat.vacant);
            });
            if let Err(error) = given {
                tracing::warn!(instance = name, %error, "leaving an interface");
            }
        }
    }

    /// Has fewer be on an interface. If the others cannot be there without them, all is the kernel's until they can.
    fn change_seats(
        &mut self,
        key: &str,
        change: impl FnOnce(&mut Vec<Seat>),
    ) -> Result<(), PlatformError> {
        let Some(row) = self.rows.get_mut(key) else {
            return Ok(());
        };
        let mut seats = row.seats().to_vec();
        change(&mut seats);
        if seats == row.seats() {
            return Ok(());
        }
        if seats.is_empty() {
            row.end()?;
            self.rows.remove(key);
            return Ok(());
        }
        row.set_seats(seats)?;
        if !row.holds() {
            return Ok(());
        }
        if let Err(why) = self.renew_row(key)
            && let Some(row) = self.rows.get_mut(key)
        {
            row.let_go()?;
            row.note_problem(Some(why.message));
        }
        Ok(())
    }

    /// Puts on an interface those who are to be there.
    pub(super) fn renew_row(&mut self, key: &str) -> Result<(), PlatformError> {
        let Some(row) = self.rows.get(key) else {
            return Ok(());
        };
        let (place, names) = (row.place().clone(), row.members());
        let first = names.first().and_then(|name| self.instances.get(name));
        let hook = row.hook(first.map_or_else(Hook::default, |first| hook(&first.spec)));
        let hands_up = |name: &String| self.instances.get(name).is_some_and(|it| it.slow.is_some());
        let needs_driver = names.iter().any(hands_up);
        if needs_driver && row.holds() && row.mode().0 != "native" {
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
            // A slow path of one's own gets packets as they are: they have to be whole.
            rewrites: rewrites || needs_driver,
            may_be_at_tc: !needs_driver
                && names.iter().all(|name| {
                    let fast = self.instances.get(name);
                    fast.is_some_and(FastPath::may_be_at_tc)
                }),
            priority: first.and_then(|first| priority(&first.spec)),
            beside: self.beside(key).and_then(Row::filter_seat).cloned(),
        };
        match self.rows.get_mut(key) {
            Some(row) => row.stand(wanted),
            None => Ok(()),
        }
    }

    /// Those of the same interface whom packets meet the other way.
    fn beside(&self, key: &str) -> Option<&Row> {
        let place = self.rows.get(key)?.place();
        let mut rows = self.rows.iter();
        let found = rows.find(|(other, row)| *other != key && row.place() == place);
        found.map(|(_, row)| row)
    }

    /// Puts another program of a fast path in the place of the one that is on an interface.
    pub(super) fn renew_member(&mut self, name: &str, place: &Place) -> Result<(), PlatformError> {
        let key = self.key_at(name, place);
        let Some(row) = self.rows.get(&key).filter(|row| row.holds()) else {
            // It is put there when the interface returns.
            return Ok(());
        };
        let Some(at) = row.position(name) else {
            return self.renew_row(&key);
        };
        let wanted = self.instances.get(name).map(|fast| hook(&fast.spec));
        let hook = row.hook(wanted.unwrap_or_default());
        let member = self.member(name, place, hook, self.sends_behind(name, place))?;
        match self.rows.get_mut(&key) {
            Some(row) => row.replace(at, member),
            None => Ok(()),
        }
    }

    /// Whether somebody behind a fast path on an interface sends on what it lets pass.
    pub(super) fn sends_behind(&self, name: &str, place: &Place) -> bool {
        let row = self.rows.get(&self.key_at(name, place));
        let seats = row.map_or(&[][..], Row::seats).iter();
        let mut behind = seats.skip_while(|seat| seat.name != name).skip(1);
        behind.any(|seat| {
            let fast = self.instances.get(&seat.name);
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

    /// Changes the place of a fast path among the others: packets meet them in the old order, or in the new one.
    ///
    /// # Errors
    /// When that cannot be; they are in the old one.
    pub fn set_order(&mut self, name: &str, order: Option<u16>) -> Result<(), PlatformError> {
        let Some(fast) = self.instances.get(name) else {
            return Err(no_instance(name));
        };
        let before = fast.spec.order();
        self.note_order(name, order)?;
        let mut done: Vec<String> = Vec::new();
        for key in self.rows_of(name) {
            if let Err(why) = self.move_seat(&key, name, order) {
                for key in done {
                    if let Err(error) = self.move_seat(&key, name, before) {
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

    fn move_seat(
        &mut self,
        key: &str,
        name: &str,
        order: Option<u16>,
    ) -> Result<(), PlatformError> {
        let Some(row) = self.rows.get_mut(key) else {
            return Ok(());
        };
        let (before, were) = (row.seats().to_vec(), row.members());
        let mut seats = before.clone();
        let own = seats.iter_mut().filter(|seat| seat.name == name);
        own.for_each(|seat| seat.order = order);
        row.set_seats(seats)?;
        if row.members() == were || !row.holds() {
            return Ok(());
        }
        let renewed = self.renew_row(key);
        renewed.inspect_err(|_| self.put_seats_back(key, before))
    }

    /// Takes hold again of interfaces that have come back. Returns whether there was one since it was asked last.
    pub fn hold_again(&mut self, name: &str) -> bool {
        self.sit_down(name);
        self.settle_slow(name);
        for key in self.rows_of(name) {
            if let Some(row) = self.rows.get_mut(&key)
                && let Err(error) = row.settle()
            {
                tracing::warn!(instance = name, %error, "redirecting to the other end");
            }
            let Some(row) = self.rows.get_mut(&key) else {
                continue;
            };
            let is_gone = row.is_gone();
            if !is_gone && row.holds() && !row.is_left() {
                continue;
            }
            let (place, was_there) = (row.place().clone(), row.holds() && !is_gone);
            if is_gone {
                let _gone_with_it = row.lose();
                self.tell_members(&key, EventKind::Warning, "is gone");
            }
            if place.look().is_err() {
                continue;
            }
            let renewed = self.renew_row(&key);
            let Some(row) = self.rows.get_mut(&key) else {
                continue;
            };
            match renewed {
                Ok(()) if row.holds() && !was_there => {
                    for name in row.members() {
                        if let Some(fast) = self.instances.get_mut(&name) {
                            fast.regained = true;
                        }
                    }
                    self.tell_members(&key, EventKind::Started, "has it again");
                }
                Ok(()) => {}
                Err(why) => row.note_problem(Some(why.message)),
            }
        }
        let fast = self.instances.get_mut(name);
        fast.is_some_and(|fast| std::mem::take(&mut fast.regained))
    }

    /// Has a fast path hand up to its slow path, if that is one of its own and is there.
    pub(super) fn settle_slow(&mut self, name: &str) {
        let Some(fast) = self.instances.get_mut(name) else {
            return;
        };
        let Some(slow) = &mut fast.slow else {
            return;
        };
        let before = slow.problem().map(str::to_owned);
        let has_changed = slow.settle();
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

    /// Has a fast path be on all its interfaces: one may have been gone when it was adopted, or it was being made.
    fn sit_down(&mut self, name: &str) {
        let Some(fast) = self.instances.get(name) else {
            return;
        };
        let (places, order) = (places(&fast.spec), fast.spec.order());
        let there = self.rows_of(name);
        for place in places {
            if !there.contains(&self.key_at(name, &place))
                && place.look().is_ok()
                && let Err(error) = self.take_seat(name, &place, order)
            {
                tracing::debug!(instance = name, interface = place.interface, %error, "not on it");
            }
        }
    }

    fn tell_members(&mut self, key: &str, kind: EventKind, what: &str) {
        let Some(row) = self.rows.get(key) else {
            return;
        };
        let message = format!("{} {what}", row.place().interface);
        for name in row.members() {
            self.event(kind, &name, message.clone());
        }
    }
}

/// What a slow path gives back would meet a program again that is not in the driver.
fn not_in_the_driver(interface: &str) -> PlatformError {
    let message = format!("the programs on {interface} are not in its driver");
    PlatformError::new(PlatformErrorKind::Unsupported, message).with_remedy(
        "a slow path of its own needs native XDP: leave 'slow' out, or use another interface",
    )
}
