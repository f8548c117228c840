//! nDPI's own program on an interface, which inspects every packet.

use anyhow::Context;
use nfluid_testbed::namespace::Namespace;
use std::process::{Child, Stdio};
use std::time::Duration;

/// Start time of ndpiReader.
const BEGINNING: Duration = Duration::from_millis(700);

/// A reader; killed when dropped.
pub struct Reader(Child);

/// Starts a reader that runs longer than `time`.
pub fn start(host: &Namespace, interface: &str, time: Duration) -> anyhow::Result<Reader> {
    let seconds = (time.as_secs() + 60).to_string();
    let mut command = host.command("ndpiReader");
    command.args(["-q", "-i", interface, "-s", &seconds]);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let reader = Reader(command.spawn().context("starting ndpiReader")?);
    std::thread::sleep(BEGINNING);
    Ok(reader)
}

impl Reader {
    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // An error means that ndpiReader has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
