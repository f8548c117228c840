//! Bodies of requests and responses. JSON, `snake_case`, units in the name (`_ns`, `_bytes`, `_percent`); a missing
//! value is absent, never a magic number.

mod apply;
mod capacity;
mod congestion;
mod diagnostic;
mod doctor;
mod event;
mod fast;
mod function;
mod group;
mod io;
mod life;
mod pool;
mod rates;
mod slice_rates;
mod stats;
mod status;
mod template;

pub use apply::{
    ApplyRequest, ApplyResponse, Change, CreateRequest, DeleteRequest, Kind, ObjectName, Phase,
    STOP_WAIT_MS_MAX, StopRequest, Timeline, Verb,
};
pub use capacity::{Amount, Capacity};
pub use congestion::{CongestionStats, CoreSignal, PortSignal, WayStats};
pub use diagnostic::{Cause, Diagnostic, Problem, Severity};
pub use doctor::{Check, CheckStatus, DoctorReport};
pub use event::{Event, EventKind, EventPage};
pub use fast::{
    APPLICATIONS_MAX, FastApplication, FastInspection, FastInterface, FastLoad, FastPathStatus,
    FastRules, FastServer, FastService, KERNEL_RULES_MAX, KernelRule,
};
pub use function::{FunctionEnd, FunctionLimits, FunctionReport, FunctionRequest};
pub use group::{GroupStats, GroupStatus};
pub use io::{IoStats, IoStatus, IoThread};
pub use life::{
    MigrateReport, MigrateRequest, PauseRequest, PausedTraffic, RestoreReport, RestoreRequest,
    SAVED_BYTES_MAX, SavedInstance, ScaleReport, ScaleRequest, Took, UpgradeReport,
};
pub use pool::PoolStatus;
pub use rates::{
    ChainRates, GroupRates, InstanceRates, IoThreadRates, PortRates, Rates, UplinkRates,
};
pub use slice_rates::SliceRates;
pub use stats::{
    ChainStats, Counters, InstanceSnapshot, InstanceStats, PortStats, Stats, UplinkStats,
};
pub use status::{
    ChainStatus, CommandRequest, CommandResponse, ExitStatus, Health, HealthStatus, InstanceState,
    InstanceStatus, LinkStatus, Logs, PortState, PortStatus, SecurityGroupStatus, SteeringStatus,
    SwitchStatus, UplinkStatus, Version, WakeStatus,
};
pub use template::TemplateStatus;
