//! Failures of a whole host.

use super::command::{must, run};
use super::platform::Platform;
use std::fs;

impl Platform {
    /// Ends everything of the platform at once, as a power cut would: only the files on the disk remain.
    ///
    /// # Panics
    /// If the daemon does not run.
    pub fn cut_power(&mut self) {
        self.kill_daemon();
        assert!(self.kill_all(), "not all of it has ended");
        let edge = self.edge();
        for line in must(&format!("ip -n {edge} -o link show")).lines() {
            // 2: NAME@PEER: <FLAGS> ...
            let name = line.split([':', '@', ' ']).nth(2).unwrap_or_default();
            run(&format!("ip -n {edge} link set dev {name} xdp off"));
        }
        self.remove_cgroups();
        for gone in [self.pins(), self.run_dir()] {
            fs::remove_dir_all(gone).expect("nobody has it open");
        }
    }

    /// Removes the marks of arrived instances that have not been written to disk, of a daemon that does not run.
    ///
    /// # Panics
    /// If there are no such marks.
    pub fn lose_marks(&self) {
        let moves = fs::read_dir(self.directory().join("state/moves")).expect("its ledger");
        let marks = moves.flatten().map(|entry| entry.path());
        let marks = marks.filter(|path| path.extension().is_some_and(|it| it == "taken"));
        let lost = marks.map(fs::remove_file).filter(Result::is_ok).count();
        assert!(lost > 0, "nothing has arrived");
    }
}
