//! The API over TCP: options, certificates, and the separation from daemons that move instances.

use crate::server::Daemon;
use anyhow::{Context, anyhow, bail};
use clap::Args;
use nfluid_api::server::remote::Listener;
use nfluid_api::server::{Clients, Role};
use nfluid_tls::mutual::{Files, Mutual, certificates};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The options of the API over TCP.
#[derive(Debug, Args)]
pub struct Options {
    /// Address and port on which the API is served over TCP, to clients with certificates.
    #[arg(long, value_name = "ADDR:PORT", requires_all = ["api_cert", "api_client"])]
    api_listen: Option<SocketAddr>,
    /// This host's certificate for clients of the API, PEM.
    #[arg(long, value_name = "FILE", requires_all = ["api_key", "api_ca", "api_listen"])]
    api_cert: Option<PathBuf>,
    /// Private key of that certificate, PEM.
    #[arg(long, value_name = "FILE", requires = "api_cert")]
    api_key: Option<PathBuf>,
    /// Certificates of the authorities that sign the clients' certificates, PEM. Not those of --migrate-ca.
    #[arg(long, value_name = "FILE", requires = "api_cert")]
    api_ca: Option<PathBuf>,
    /// Revocation lists of these authorities, PEM.
    #[arg(long, value_name = "FILE", requires = "api_cert")]
    api_crl: Option<PathBuf>,
    /// A client, by a DNS name in its certificate, and its role: reader (looks), engine (also manages the instances whose
    /// 'owner' begins with NAME) or operator (everything); the option can be repeated.
    #[arg(long = "api-client", value_name = "NAME=ROLE", value_parser = client, requires = "api_listen")]
    api_client: Vec<(String, Role)>,
}

fn client(text: &str) -> Result<(String, Role), String> {
    let (name, role) = text
        .split_once('=')
        .ok_or("write NAME=ROLE, such as 'nomad=engine'")?;
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    if name.is_empty() || !name.chars().all(is_of_name) {
        return Err(format!(
            "'{name}' is no DNS name; a client is named as in its certificate, without '*'"
        ));
    }
    Ok((name.to_owned(), role.parse()?))
}

impl Options {
    /// Reads the certificates and opens the port, if the API is to be served over TCP.
    ///
    /// # Errors
    /// A file is missing or wrong, the port is taken, a client is named twice, or an authority also signs certificates of
    /// daemons that move instances here: its clients could do that too.
    pub fn open(self, movers: Option<&Path>) -> anyhow::Result<Option<Listener>> {
        let (Some(address), Some(certificate), Some(key), Some(authority)) =
            (self.api_listen, self.api_cert, self.api_key, self.api_ca)
        else {
            return Ok(None);
        };
        if let Some(movers) = movers {
            refuse_common(&authority, movers)?;
        }
        let clients = Clients::new(self.api_client)
            .map_err(|twice| anyhow!("--api-client names '{twice}' twice"))?;
        let files = Files {
            certificate,
            key,
            authority,
            revoked: self.api_crl,
        };
        let mutual = Mutual::load(&files).context("the certificates of the API")?;
        let socket = TcpListener::bind(address)
            .with_context(|| format!("listening for clients of the API at {address}"))?;
        tracing::info!(address = %socket.local_addr()?, "clients of the API may call");
        Ok(Some(Listener {
            socket,
            tls: mutual.server,
            clients,
        }))
    }
}

/// Refuses an authority that signs certificates of both clients and daemons.
fn refuse_common(clients: &Path, movers: &Path) -> anyhow::Result<()> {
    let of_movers = certificates(movers)?;
    if certificates(clients)?
        .iter()
        .any(|one| of_movers.contains(one))
    {
        bail!(
            "{} and {} have a certificate in common: each client of the API could move instances here, whatever its role; \
             use an authority of its own for --api-ca",
            clients.display(),
            movers.display()
        );
    }
    Ok(())
}

/// Serves the API over TCP, if it is to be served; else waits for ever.
///
/// # Errors
/// The listener cannot be used.
pub async fn serve(daemon: Arc<Daemon>, listener: Option<Listener>) -> std::io::Result<()> {
    match listener {
        Some(listener) => listener.serve(daemon).await,
        None => std::future::pending().await,
    }
}
