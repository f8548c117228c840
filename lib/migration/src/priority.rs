//! The priority of threads for whose next step an instance stands still.

/// Priority of such a thread, on the scale of nice(1).
const NICE: i32 = -15;

/// As long as this value lives, the calling thread runs before ordinary threads that are ready.
pub struct RaisedPriority {
    before: i32,
}

impl RaisedPriority {
    /// Raises the priority of the calling thread.
    pub fn begin() -> Self {
        let before = rustix::process::getpriority_process(None).unwrap_or(0);
        set(before.min(NICE));
        RaisedPriority { before }
    }
}

impl Drop for RaisedPriority {
    fn drop(&mut self) {
        set(self.before);
    }
}

fn set(nice: i32) {
    if let Err(error) = rustix::process::setpriority_process(None, nice) {
        tracing::debug!(%error, "a thread of a move has no priority");
    }
}

#[cfg(test)]
mod tests {
    use super::{NICE, RaisedPriority};
    use rustix::process::getpriority_process;

    #[test]
    fn a_thread_has_its_former_priority_afterwards() {
        let before = getpriority_process(None).expect("a priority");
        let raised = RaisedPriority::begin();
        let meanwhile = getpriority_process(None).expect("a priority");
        // Only root may raise the priority.
        assert!(meanwhile == before.min(NICE) || meanwhile == before);
        drop(raised);
        assert_eq!(getpriority_process(None).expect("a priority"), before);
    }
}
