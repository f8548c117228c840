//! Threads for whose next step an instance stands still.

/// Priority of such a thread, on the scale of nice(1).
const NICE: i32 = -15;

/// While it lives the calling thread runs before ordinary ones that are ready.
pub struct Hurry {
    before: i32,
}

impl Hurry {
    /// From now on.
    pub fn begin() -> Self {
        let before = rustix::process::getpriority_process(None).unwrap_or(0);
        set(before.min(NICE));
        Hurry { before }
    }
}

impl Drop for Hurry {
    fn drop(&mut self) {
        set(self.before);
    }
}

fn set(nice: i32) {
    if let Err(error) = rustix::process::setpriority_process(None, nice) {
        tracing::debug!(%error, "a thread that is in a hurry runs as any other");
    }
}

#[cfg(test)]
mod tests {
    use super::{Hurry, NICE};
    use rustix::process::getpriority_process;

    #[test]
    fn who_was_in_a_hurry_is_as_before() {
        let before = getpriority_process(None).expect("a priority");
        let hurry = Hurry::begin();
        let meanwhile = getpriority_process(None).expect("a priority");
        // Who is not root may not.
        assert!(meanwhile == before.min(NICE) || meanwhile == before);
        drop(hurry);
        assert_eq!(getpriority_process(None).expect("a priority"), before);
    }
}
