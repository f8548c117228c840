//! The tables by which the switch divides flows.

use super::errors::switch_failed;
use nfluid_control::apply::PlatformError;
use nfluid_lifecycle::scaling::{FlowTables, Table};
use nfluid_switch::Switch;
use std::sync::Arc;
use std::time::Duration;

/// The tables of this switch.
pub(super) struct SwitchTables(pub(super) Arc<Switch>);

impl FlowTables for SwitchTables {
    fn get(&self, port: u32) -> Result<Option<Table>, PlatformError> {
        self.0.spread(port).map_err(switch_failed)
    }

    fn begin(&self, port: u32) -> Result<(), PlatformError> {
        self.0.begin_spread(port).map_err(switch_failed)
    }

    fn set(&self, port: u32, table: &Table) -> Result<(), PlatformError> {
        self.0.set_spread(port, table).map_err(switch_failed)
    }

    fn await_change(
        &self,
        port: u32,
        senders: &[u32],
        patience: Duration,
    ) -> Result<bool, PlatformError> {
        self.0
            .await_spread(port, senders, patience)
            .map_err(switch_failed)
    }

    fn end(&self, port: u32) -> Result<(), PlatformError> {
        self.0.end_spread(port).map_err(switch_failed)
    }

    fn reserved_to(&self, port: u32) -> u32 {
        self.0.reserved_to(port)
    }
}
