//! Timeouts of each end for the answers of the other end.

use crate::channel::Patience;
use std::time::Duration;

const fn patience(idle_s: u64, whole_s: u64) -> Patience {
    Patience {
        idle: Duration::from_secs(idle_s),
        whole: Duration::from_secs(whole_s),
    }
}

/// The source: the target makes the instance.
pub const PREPARE: Patience = patience(60, 60);
/// The source: the target reads and imports a state. The ports are not served meanwhile.
pub const IMPORT: Patience = patience(5, 12);
/// The source: any other answer.
pub const ANSWER: Patience = patience(5, 10);
/// The source: the target finds room for frames.
pub const FRAMES: Patience = patience(10, 20);
/// The target: a caller says what the caller wants.
pub const FIRST: Patience = patience(5, 20);
/// The target: the state of the instance comes.
pub const STATE: Patience = patience(10, 60);
/// The target: any other step of the source.
pub const STEP: Patience = patience(10, 20);
