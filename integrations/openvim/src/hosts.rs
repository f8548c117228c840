//! The daemons of the hosts.

use crate::fault::Fault;
use crate::objects::Host;
use nfluid_api::client::{Client, ClientError};
use nfluid_api::types::{Capacity, InstanceStatus};
use nfluid_engine::requests::found;
use nfluid_tls::mutual::Mutual;
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;
use tokio::net::lookup_host;
use tokio::time::timeout;

/// Time in which a host has to answer a question of how it is.
const PATIENCE: Duration = Duration::from_secs(2);

/// The way to the daemons of all hosts.
#[derive(Clone, Debug, Default)]
pub struct Hosts {
    /// Certificate, key and authority; absent: only daemons with a socket on this machine can be reached.
    pub mutual: Option<Mutual>,
}

impl Hosts {
    /// Returns a client of a host's daemon.
    ///
    /// # Errors
    /// Its address is none, or there are no certificates.
    pub fn client(&self, host: &Host) -> Result<Client, Fault> {
        let Some(address) = host.api_address() else {
            return Ok(Client::new(&host.ip_name));
        };
        let Some(mutual) = &self.mutual else {
            return Err(Fault::bad(format!(
                "host {}: {address} is reached over TLS: start this server with --cert, --key and --ca, or name the path of a daemon's socket on this machine",
                host.name
            )));
        };
        Client::remote(&address, mutual).map_err(|error| refused(host, &error))
    }

    /// Returns what a host has.
    ///
    /// # Errors
    /// The host does not answer in time.
    pub async fn capacity(&self, host: &Host) -> Result<Capacity, Fault> {
        let client = self.client(host)?;
        self.asked(host, client.get("/v1/capacity")).await
    }

    /// Returns the instances of a host by their names.
    ///
    /// # Errors
    /// The host does not answer in time.
    pub async fn instances(&self, host: &Host) -> Result<HashMap<String, InstanceStatus>, Fault> {
        let client = self.client(host)?;
        let all: Vec<InstanceStatus> = self.asked(host, client.get("/v1/instances")).await?;
        Ok(all.into_iter().map(|it| (it.name.clone(), it)).collect())
    }

    /// Returns an instance of a host, if it is there.
    ///
    /// # Errors
    /// The host does not answer in time.
    pub async fn instance(&self, host: &Host, name: &str) -> Result<Option<InstanceStatus>, Fault> {
        let client = self.client(host)?;
        let instance = async { found(client.instance(name).await) };
        self.asked(host, instance).await
    }

    /// Returns the address of a host for tunnels.
    ///
    /// # Errors
    /// The host has no such address, or its name leads to none.
    pub async fn address(&self, host: &Host) -> Result<IpAddr, Fault> {
        let Some(name) = host.tunnel_address() else {
            return Err(Fault::conflict(format!(
                "host {} has no tunnel_address",
                host.name
            )));
        };
        if let Ok(address) = name.parse() {
            return Ok(address);
        }
        let unknown = |why: String| {
            Fault::unavailable(format!("host {}: no address of {name}: {why}", host.name))
        };
        let looked_up = timeout(PATIENCE, lookup_host((name.as_str(), 0))).await;
        let found = looked_up.map_err(|_| unknown("nobody says it".to_owned()))?;
        let mut found = found.map_err(|error| unknown(error.to_string()))?;
        let first = found.next();
        Ok(first
            .ok_or_else(|| unknown("there is none".to_owned()))?
            .ip())
    }

    async fn asked<T>(
        &self,
        host: &Host,
        question: impl Future<Output = Result<T, ClientError>>,
    ) -> Result<T, Fault> {
        match timeout(PATIENCE, question).await {
            Ok(answer) => answer.map_err(|error| refused(host, &error)),
            Err(_) => Err(Fault::unavailable(format!(
                "host {}: no answer within {} s",
                host.name,
                PATIENCE.as_secs()
            ))),
        }
    }
}

/// The fault of a host whose daemon has refused something, or does not answer.
pub fn refused(host: &Host, error: &ClientError) -> Fault {
    Fault::of_daemon(error, &host.name, str::to_owned)
}

/// Asks all at once, and returns all answers in the order of the questions.
pub async fn at_once<T, F>(asked: impl IntoIterator<Item = F>) -> Vec<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let asked: Vec<_> = asked.into_iter().map(tokio::spawn).collect();
    let mut answers = Vec::with_capacity(asked.len());
    for answer in asked {
        match answer.await {
            Ok(answer) => answers.push(answer),
            Err(error) => {
                if let Ok(panic) = error.try_into_panic() {
                    std::panic::resume_unwind(panic);
                }
            }
        }
    }
    answers
}
