//! What requests and answers carry. JSON, `snake_case`, units in the name (`_ns`, `_bytes`,
//! `_percent`); a missing value is absent, never a magic number.

mod apply;
mod diagnostic;
mod doctor;
mod event;
mod rates;
mod stats;
mod status;

pub use apply::{ApplyRequest, ApplyResponse, Change, DeleteRequest, Kind, ObjectName, Verb};
pub use diagnostic::{Diagnostic, Problem, Severity};
pub use doctor::{Check, CheckStatus, DoctorReport};
pub use event::{Event, EventKind, EventPage};
pub use rates::{ChainRates, InstanceRates, PortRates, Rates};
pub use stats::{ChainStats, Counters, InstanceStats, PortStats, Stats};
pub use status::{
    ChainStatus, CommandRequest, CommandResponse, Health, HealthStatus, InstanceState,
    InstanceStatus, LinkStatus, Logs, PortState, PortStatus, SwitchStatus, UplinkStatus, Version,
};
