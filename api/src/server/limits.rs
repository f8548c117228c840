//! Bounds on what a client can make the daemon do.

use std::time::Duration;

/// Maximum body of a request that carries a document. The document itself is at most 16 MiB; JSON may escape it, and
/// rule files are sent with it.
pub const BODY_BYTES_MAX: usize = 64 << 20;

/// Maximum body of any other request.
pub(super) const SMALL_BODY_BYTES_MAX: usize = 1 << 20;

/// Maximum number of requests that are served at the same time; further requests get 503.
pub const CONCURRENT_REQUESTS_MAX: usize = 64;

/// Maximum number of calls of the server that run at the same time, separately for reads and for changes. Other calls
/// wait for a place as long as their clients wait. Each call has a thread: the sum of these calls and the functions is
/// below the maximum of 512 threads of the runtime.
pub(super) const CALLS_MAX: usize = 64;

/// Maximum number of clients that wait for events at the same time.
pub(super) const CONCURRENT_WAITS_MAX: usize = 256;

/// Maximum number of captures at the same time.
pub(super) const CAPTURES_MAX: usize = 16;

/// Maximum body of a request to run a function: program and input of 8 MiB each, in base64.
pub(super) const FUNCTION_BODY_BYTES_MAX: usize = 23 << 20;

/// Maximum size of all bodies of requests to run functions that the daemon holds, in KiB; further requests get 503.
pub(super) const FUNCTION_BODIES_KIB_MAX: usize = 256 << 10;

/// Maximum number of functions that run at the same time; further functions wait.
pub(super) const FUNCTIONS_AT_ONCE_MAX: usize = 32;

/// Maximum number of functions that wait; further requests get 503.
pub(super) const FUNCTIONS_WAITING_MAX: usize = 1024;

/// Maximum time that a function waits.
pub(super) const FUNCTION_WAIT_MAX: Duration = Duration::from_secs(60);

/// Maximum time of a request, except streams. An apply that takes longer continues.
pub const REQUEST_TIME_MAX: Duration = Duration::from_secs(120);

/// Maximum number of connections over TCP; further ones are closed.
pub(super) const CONNECTIONS_MAX: usize = 256;

/// Maximum time of a TLS handshake.
pub(super) const HANDSHAKE_MAX: Duration = Duration::from_secs(5);

/// Maximum time until a client over TCP has sent the head of its next request.
pub(super) const IDLE_MAX: Duration = Duration::from_secs(60);

/// Maximum time that a client can wait for an event.
pub const EVENT_WAIT_MAX: Duration = Duration::from_secs(60);

/// Maximum number of log lines in one response.
pub(super) const LOG_LINES_MAX: usize = 10_000;

/// Maximum position in a log or among the events: the integers of the OpenAPI document are those of `int64`.
pub(super) const POSITION_MAX: u64 = i64::MAX as u64;
