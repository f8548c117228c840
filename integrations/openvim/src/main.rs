//! The program.
#![forbid(unsafe_code)]

use anyhow::{Context, bail};
use axum::Router;
use clap::Parser;
use nfluid_engine::program::{run, until_asked_to_end};
use nfluid_engine::serve::{serve, speak};
use nfluid_openvim::hosts::Hosts;
use nfluid_openvim::http::router;
use nfluid_openvim::store::Store;
use nfluid_openvim::vim::Vim;
use nfluid_tls::mutual::{Files, Mutual};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::net::TcpListener;

/// A server with OpenVIM's interface, whose servers are instances of nfluid.
///
/// Add the hosts by POST to /openvim/hosts at the address of administrators. Nobody has to say who he is, as with OpenVIM: whoever reaches an address may use it.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// Address and port of users
    #[arg(long, default_value = "127.0.0.1:9080", value_name = "ADDR:PORT")]
    listen: SocketAddr,
    /// Address and port of administrators
    #[arg(long, default_value = "127.0.0.1:9085", value_name = "ADDR:PORT")]
    admin_listen: SocketAddr,
    /// The file in which everything is kept; made if there is none
    #[arg(
        long,
        default_value = "/var/lib/nfluid/openvim.redb",
        value_name = "FILE"
    )]
    database: PathBuf,
    /// Owner of the instances and switches that this server makes on hosts
    #[arg(long, default_value = "openvim", value_name = "NAME")]
    owner: String,
    /// Certificate that daemons on other hosts accept, PEM
    #[arg(long, value_name = "FILE", requires = "key", requires = "ca")]
    cert: Option<PathBuf>,
    /// Private key of that certificate, PEM
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// Authorities of the daemons' certificates, PEM
    #[arg(long, value_name = "FILE", requires = "cert")]
    ca: Option<PathBuf>,
}

fn main() -> anyhow::Result<()> {
    run(until_asked_to_end(perform(Arguments::parse())))
}

async fn perform(arguments: Arguments) -> anyhow::Result<()> {
    let store = match Store::open(&arguments.database) {
        Ok(store) => store,
        Err(fault) => bail!(fault.text),
    };
    let files = arguments.cert.zip(arguments.key).zip(arguments.ca);
    let mutual = files.map(|((certificate, key), authority)| {
        Mutual::load(&Files {
            certificate,
            key,
            authority,
            revoked: None,
        })
    });
    let hosts = Hosts {
        mutual: mutual.transpose()?,
    };
    let vim = Arc::new(Vim::new(store, hosts, arguments.owner));
    let users = open(arguments.listen).await?;
    let administrators = open(arguments.admin_listen).await?;
    tokio::select! {
        ended = answer(users, router(Arc::clone(&vim), false)) => Ok(ended?),
        ended = answer(administrators, router(Arc::clone(&vim), true)) => Ok(ended?),
        () = vim.keep_up() => Ok(()),
    }
}

async fn answer(listener: TcpListener, router: Router) -> io::Result<()> {
    serve(listener, |stream| speak(stream, router.clone())).await
}

async fn open(address: SocketAddr) -> anyhow::Result<TcpListener> {
    let listener = TcpListener::bind(address).await;
    let listener = listener.with_context(|| format!("listening at {address}"))?;
    tracing::info!(address = %listener.local_addr()?, "serves OpenVIM's interface");
    Ok(listener)
}
