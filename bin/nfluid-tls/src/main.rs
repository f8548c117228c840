//! The program that runs inside an instance that terminates TLS, with one tenant's certificate and key, the listening
//! sockets, and the backend or the fixed answer.
//!
//! The daemon hands the program everything that it has. The program can create no socket and open no file:
//! connections to its backend come from its connector, a second process of this program in a sandbox of its own
//! ([`connector`]), which reads none of their bytes.
#![forbid(unsafe_code)]

mod alone;
mod answer;
mod backend;
mod connection;
mod connector;
mod control;
mod counts;
mod deadlines;
mod inheritance;
mod server;
mod turn;

#[cfg(test)]
mod tests;

use anyhow::bail;
use std::process::ExitCode;

const USAGE: &str = "\
nfluid-tls is started by nfluidd. By itself:
  nfluid-tls alone LISTEN-ADDRESS:PORT CONFIGURATION.json   serves without a sandbox, for comparison";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("nfluid-tls: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        [] if inheritance::is_there() => inheritance::server()?.run(),
        ["connector", address, most] => connector::run(
            inheritance::connector_end()?,
            address.parse()?,
            most.parse()?,
        ),
        ["alone", address, file] => alone::server(address.parse()?, file.as_ref())?.run(),
        _ => bail!("{USAGE}"),
    }
}
