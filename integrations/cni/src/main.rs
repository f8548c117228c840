//! A CNI plugin (Container Network Interface, versions 0.3.0 to 1.1.0): a container gets an interface that is a port of nfluid's, on a
//! switch or linked to another port.
//!
//! The runtime starts the program once for each request: the request is in the environment (`request.rs`), the network's configuration
//! on the standard input (`network.rs`), and the answer goes to the standard output (`answer.rs`). What there is to do is in
//! `attachment.rs`; addresses come from another plugin (`ipam.rs`).
#![forbid(unsafe_code)]

mod answer;
mod attachment;
mod ipam;
mod network;
mod request;

use answer::Refusal;
use clap::Parser;
use request::{COMMAND, Request};
use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::process::ExitCode;

/// A CNI plugin: an interface of a container is a port of nfluid.
///
/// The container runtime starts this program. Put the program into the runtime's folder of plugins (/opt/cni/bin), and name it as the
/// type of a network in a file of /etc/cni/net.d, or in a NetworkAttachmentDefinition of Multus:
///
///     { "cniVersion": "1.0.0", "name": "clients", "type": "nfluid-cni", "switch": "lan" }
#[derive(Debug, Parser)]
#[command(version, verbatim_doc_comment)]
struct Arguments {}

fn main() -> ExitCode {
    let Arguments {} = Arguments::parse();
    if std::env::var_os(COMMAND).is_none() {
        eprintln!(
            "this program is a CNI plugin: a container runtime starts it; 'nfluid-cni --help' says more"
        );
        return ExitCode::FAILURE;
    }
    let mut text = Vec::new();
    let answer = match std::io::stdin().read_to_end(&mut text) {
        Ok(_) => perform(&text),
        Err(error) => Err(Refusal::system(format!(
            "reading the configuration: {error}"
        ))),
    };
    let (answer, code) = match answer {
        Ok(answer) => (answer, ExitCode::SUCCESS),
        Err(refusal) => (
            Some(refusal.json(&network::version_of(&text))),
            ExitCode::FAILURE,
        ),
    };
    match answer.map_or(Ok(()), |answer| write!(std::io::stdout(), "{answer}")) {
        Ok(()) => code,
        // Whoever has asked is gone.
        Err(_) => ExitCode::FAILURE,
    }
}

fn perform(text: &[u8]) -> Result<Option<Value>, Refusal> {
    let request = Request::of(|name| std::env::var(name).ok())?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.map_err(|error| Refusal::system(error.to_string()))?;
    runtime.block_on(attachment::perform(&request, text))
}
