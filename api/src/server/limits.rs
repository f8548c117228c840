//! Bounds on what a client can make the daemon do.

use std::time::Duration;

/// Largest body of a request that carries a document. The document itself is at most 16 MiB; JSON
/// may escape it, and rule files come with it.
pub const BODY_BYTES_MAX: usize = 64 << 20;

/// Largest body of any other request.
pub(super) const SMALL_BODY_BYTES_MAX: usize = 1 << 20;

/// Requests that are served at the same time; more are answered with 503.
pub const CONCURRENT_REQUESTS_MAX: usize = 64;

/// Calls of the server that run at the same time, separately for reads and for changes. Other calls wait for a place,
/// as long as their clients wait. Each call has a thread: together with the functions they are fewer than the 512
/// threads that the runtime creates at most.
pub(super) const CALLS_MAX: usize = 64;

/// Clients that may wait for events at the same time.
pub(super) const CONCURRENT_WAITS_MAX: usize = 256;

/// Captures that may run at the same time.
pub(super) const CAPTURES_MAX: usize = 16;

/// Largest body of a request to run a function: program and input of 8 MiB each, in base64.
pub(super) const FUNCTION_BODY_BYTES_MAX: usize = 23 << 20;

/// Bytes of all bodies of requests to run functions that the daemon holds, in KiB; more are answered with 503.
pub(super) const FUNCTION_BODIES_KIB_MAX: usize = 256 << 10;

/// Functions that run at the same time; others wait for their turn.
pub(super) const FUNCTIONS_AT_ONCE_MAX: usize = 32;

/// Functions that wait; more are answered with 503.
pub(super) const FUNCTIONS_WAITING_MAX: usize = 1024;

/// Longest time that a function waits for its turn.
pub(super) const FUNCTION_WAIT_MAX: Duration = Duration::from_secs(60);

/// Longest time for a request, except streams. An apply that takes longer goes on.
pub const REQUEST_TIME_MAX: Duration = Duration::from_secs(120);

/// Longest time that a client may wait for an event.
pub const EVENT_WAIT_MAX: Duration = Duration::from_secs(60);

/// Most log lines in one answer.
pub(super) const LOG_LINES_MAX: usize = 10_000;

/// Largest position in a log or among the events: the document's integers are those of `int64`.
pub(super) const POSITION_MAX: u64 = i64::MAX as u64;
