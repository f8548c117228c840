//! Instances of templates: they exist beside the desired state, which contains only their templates.

use crate::action::Action;
use crate::apply::{Platform, PlatformError, PlatformErrorKind, perform};
use crate::controller::Controller;
use crate::model::Deployment;
use crate::state::Store;
use crate::template::{Guest, Template};
use std::collections::BTreeMap;

/// The existing guests, by the name of the first instance of each.
pub(crate) type Guests = BTreeMap<String, Guest>;

/// Returns the actions that create the instances of a guest. Undone in reverse order, they end them.
fn actions_for(deployment: &Deployment, guest: &Guest) -> Result<Vec<Action>, PlatformError> {
    let refused = |why: String| PlatformError::new(PlatformErrorKind::Refused, why);
    let template = deployment.templates.get(&guest.template);
    let template = template.ok_or_else(|| refused("its template is gone".to_owned()))?;
    let resolved = template.resolve(deployment, guest);
    let made = resolved
        .map_err(|(_, unknown)| refused(format!("there is no variable '{}'", unknown.name)))?;
    let create = |(name, spec): (String, _)| Action::create_instance(name, spec);
    let wire = |(port, to)| Action::Wire {
        port,
        old: None,
        new: Some(to),
    };
    let instances = made.instances.into_iter().map(create);
    Ok(instances.chain(made.wires.into_iter().map(wire)).collect())
}

impl<P: Platform, S: Store> Controller<P, S> {
    /// Creates the instances of several guests in parallel, and returns a result for each guest. The instances are not
    /// part of the desired state, and are not saved.
    pub fn welcome(&mut self, guests: &[Guest]) -> Vec<Result<(), PlatformError>> {
        let planned: Vec<_> = {
            let deployment = self.deployment();
            let planned = guests.iter().map(|guest| actions_for(&deployment, guest));
            planned.collect()
        };
        let all: Vec<Action> = planned.iter().flatten().flatten().cloned().collect();
        if let Err(why) = self.platform.prepare(&all) {
            self.platform.finish();
            return guests.iter().map(|_| Err(why.clone())).collect();
        }
        let mut results = Vec::with_capacity(guests.len());
        for (guest, actions) in guests.iter().zip(planned) {
            let made = actions.and_then(|actions| self.make_guest(&actions));
            if made.is_ok() {
                self.guests.insert(guest.name(), guest.clone());
            }
            results.push(made);
        }
        self.platform.finish();
        results
    }

    /// Creates all instances of a guest, or none.
    fn make_guest(&mut self, actions: &[Action]) -> Result<(), PlatformError> {
        for (done, action) in actions.iter().enumerate() {
            if let Err(why) = perform(&mut self.platform, action) {
                for action in actions.iter().take(done).rev() {
                    if let Err(error) = perform(&mut self.platform, &action.inverse()) {
                        return Err(PlatformError::new(
                            why.kind,
                            format!("{why}; and it could not be undone: {error}"),
                        ));
                    }
                }
                return Err(why);
            }
        }
        Ok(())
    }

    /// Ends the instances of guests; guests that do not exist are skipped. Returns the failures: these instances still
    /// exist.
    pub fn farewell(&mut self, names: &[String]) -> Vec<(String, PlatformError)> {
        let mut failures = Vec::new();
        for name in names {
            let Some(guest) = self.guests.get(name) else {
                continue;
            };
            let actions = actions_for(&self.desired.read(), guest);
            let ended = actions.and_then(|actions| {
                let backwards = actions.iter().rev();
                backwards
                    .map(Action::inverse)
                    .try_for_each(|action| perform(&mut self.platform, &action))
            });
            match ended {
                Ok(()) => drop(self.guests.remove(name)),
                Err(why) => failures.push((name.clone(), why)),
            }
        }
        self.platform.finish();
        failures
    }

    /// Returns true if a guest has an instance of this name.
    pub fn has_guest(&self, name: &str) -> bool {
        self.guests.contains_key(name)
    }

    /// Returns the number of guests of a template.
    pub fn guests_of(&self, template: &str) -> usize {
        let of = |guest: &&Guest| guest.template == template;
        self.guests.values().filter(of).count()
    }

    /// Ends the guests whose template, or an object that it refers to, changes: their clients get new instances.
    pub(crate) fn end_outdated_guests(
        &mut self,
        desired: &Deployment,
    ) -> Result<(), PlatformError> {
        let present = self.desired();
        let present = present.read();
        let is_outdated = |guest: &Guest| {
            let of = |deployment: &Deployment| deployment.templates.get(&guest.template).cloned();
            let (Some(template), Some(wanted)) = (of(&present), of(desired)) else {
                return true;
            };
            // Changed limits apply only to new guests.
            let unlimited = Template {
                most: wanted.most,
                per_second: wanted.per_second,
                idle: wanted.idle,
                ..template.clone()
            };
            if unlimited != wanted {
                return true;
            }
            let uplink = |of: &Deployment, port: &crate::model::PortRef| {
                let name = port.to_string();
                of.uplinks.get(&name).cloned()
            };
            let ends = [&template.from, &template.to];
            let resolved = |of: &Deployment| template.resolve(of, guest).ok();
            ends.iter()
                .any(|end| uplink(&present, end) != uplink(desired, end))
                || resolved(&present) != resolved(desired)
        };
        let outdated: Vec<String> = self
            .guests
            .iter()
            .filter(|(_, guest)| is_outdated(guest))
            .map(|(name, _)| name.clone())
            .collect();
        drop(present);
        if outdated.is_empty() {
            return Ok(());
        }
        match self.farewell(&outdated).into_iter().next() {
            Some((_, why)) => Err(why),
            None => Ok(()),
        }
    }
}
