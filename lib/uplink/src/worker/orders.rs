//! The orders that an uplink's thread carries out: the NIC classifies; the levels change.

use super::Worker;
use crate::connection::{LevelsError, Means};
use crate::error::UplinkError;
use crate::spec::Levels;
use crate::steering::{DRAIN, Steered};
use std::time::Instant;

impl Worker {
    /// Has the NIC classify by the requested rules.
    pub(super) fn steer(&mut self) -> Result<Steered, UplinkError> {
        self.drained = None;
        let steered = match &mut self.connection {
            Some(connection) => {
                let means = Means {
                    netlink: &self.netlink,
                    spec: &self.spec,
                    receiver: &self.receiver,
                    slots: &self.slots,
                    shared: &self.shared,
                };
                connection.steer(means, &self.wanted)
            }
            None => {
                let mut nothing = Steered::default();
                nothing.leave(self.wanted.len() as u32, "the interface is gone");
                Ok(nothing)
            }
        };
        let known = match &steered {
            Ok(steered) => steered.clone(),
            Err(error) => {
                let mut nothing = Steered::default();
                nothing.leave(self.wanted.len() as u32, &error.to_string());
                nothing
            }
        };
        if !known.queues.is_empty() {
            self.drained = Some((Instant::now() + DRAIN, known.clone()));
        }
        let asked = !self.wanted.is_empty();
        self.shared.set_steering(asked.then_some(known));
        steered
    }

    /// The frames that were in the queues before have left them.
    pub(super) fn enter_queues(&mut self) {
        let Some((due, steered)) = self.drained.take() else {
            return;
        };
        if Instant::now() < due {
            self.drained = Some((due, steered));
        } else if let Err(error) = self.receiver.queues().set(&steered.queues) {
            self.complain(&error.into());
        }
    }

    /// Carries out the orders that were left. A caller that does not wait any more looks at the status later.
    pub(super) fn obey(&mut self) {
        let orders = self.shared.take_orders();
        if let Some(order) = orders.levels {
            let _heard = order.answer.send(self.set_levels(order.levels));
        }
        if let Some(order) = orders.steering {
            self.wanted = order.rules;
            let _heard = order.answer.send(self.steer());
        }
    }

    /// Changes the levels; those of an interface that is away when it returns.
    fn set_levels(&mut self, levels: Levels) -> Result<(), UplinkError> {
        let before = std::mem::replace(&mut self.levels, levels);
        let Some(connection) = &mut self.connection else {
            return Ok(());
        };
        let means = Means {
            netlink: &self.netlink,
            spec: &self.spec,
            receiver: &self.receiver,
            slots: &self.slots,
            shared: &self.shared,
        };
        let changed = connection.set_levels(means, &mut self.ring.ports[0], levels);
        self.shared.set_path(Some(connection.path()));
        match changed {
            Ok(()) => Ok(()),
            Err(LevelsError::Refused(error)) => {
                self.levels = connection.record().levels;
                Err(error)
            }
            Err(LevelsError::Half(error)) => {
                self.levels = before;
                self.renew_outlet("the levels of the uplink could not be changed");
                Err(error)
            }
        }
    }

    /// No queue belongs to a port: the interface is not the one that was configured.
    pub(super) fn forget_queues(&mut self) {
        self.drained = None;
        if let Err(error) = self.receiver.queues().clear() {
            self.complain(&error.into());
        }
        if !self.wanted.is_empty() {
            let mut nothing = Steered::default();
            nothing.leave(self.wanted.len() as u32, "the interface is gone");
            self.shared.set_steering(Some(nothing));
        }
    }
}
