//! Addresses of other plugins (CNI specification 1.1.0, section 4): such a plugin is started with the same environment and
//! configuration.

use crate::answer::{Code, Outcome, Refusal};
use crate::network::Network;
use crate::request::{COMMAND, Request};
use std::io::{ErrorKind, Write as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Asks the network's plugin for addresses to do `command`: `ADD`, `DEL`, `CHECK`, `GC` or `STATUS`. Without a plugin, there are
/// none.
///
/// # Errors
/// The plugin is not there, or refuses.
pub fn ask(
    command: &str,
    request: &Request,
    network: &Network,
    text: &[u8],
) -> Result<Outcome, Refusal> {
    // A plugin of an earlier version does not know these two.
    let is_unknown = matches!(command, "GC" | "STATUS") && network.version != "1.1.0";
    let Some(plugin) = network.ipam.as_ref().filter(|_| !is_unknown) else {
        return Ok(Outcome::default());
    };
    let program = find(plugin, request)?;
    let failed = |error: std::io::Error| Refusal::system(format!("{plugin}: {error}"));
    let mut child = Command::new(program)
        .env(COMMAND, command)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    if let Some(mut input) = child.stdin.take() {
        match input.write_all(text) {
            // It has not read all, and says why.
            Err(error) if error.kind() != ErrorKind::BrokenPipe => return Err(failed(error)),
            _ => {}
        }
    }
    let output = child.wait_with_output().map_err(failed)?;
    if !output.status.success() {
        return Err(Refusal::of_plugin(plugin, &output.stdout));
    }
    if command != "ADD" {
        return Ok(Outcome::default());
    }
    serde_json::from_slice(&output.stdout)
        .map_err(|error| Refusal::system(format!("{plugin} has answered with no result: {error}")))
}

fn find(plugin: &str, request: &Request) -> Result<PathBuf, Refusal> {
    let is_plain = !plugin.contains('/') && !plugin.starts_with('.');
    let folders = std::env::split_paths(&request.path);
    let mut programs = folders.map(|folder| folder.join(plugin));
    let found = programs.find(|program| is_plain && program.is_file());
    found.ok_or_else(|| {
        let folders = request.path.to_string_lossy();
        let message = format!("ipam.type: there is no plugin '{plugin}' in CNI_PATH ({folders})");
        Refusal::new(Code::Configuration, message)
    })
}
