//! The part of an uplink's thread that has the NIC classify.

use super::Worker;
use crate::error::UplinkError;
use crate::shared::SteeringOrder;
use crate::steering::{DRAIN, Steered};
use std::time::Instant;

impl Worker {
    /// Has the NIC classify by the requested rules.
    pub(super) fn steer(&mut self) -> Result<Steered, UplinkError> {
        self.drained = None;
        let steered = match &mut self.connection {
            Some(connection) => connection.steer(&self.spec, &self.receiver, &self.wanted),
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

    pub(super) fn obey(&mut self, order: SteeringOrder) {
        self.wanted = order.rules;
        // A caller that does not wait any more looks at the status later.
        let _heard = order.answer.send(self.steer());
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
