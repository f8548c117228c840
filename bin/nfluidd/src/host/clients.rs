//! Clients of templates: whose frames go to which instance.

use super::Host;
use super::errors::failed;
use nfluid_control::apply::{PlatformError, PlatformErrorKind};
use nfluid_control::model::PortRef;
use nfluid_control::template::ClientBy;
use nfluid_switch::client::Client;

/// The numbers of the two ports at the ends of a client's instance, or of its chain of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientPorts {
    /// For frames of the client.
    pub entry: u32,
    /// For frames to it.
    pub back: u32,
}

impl Host {
    /// The template of that number, and what tells its clients apart.
    pub fn template_of(&self, number: u32) -> Option<(String, ClientBy)> {
        self.wires.templates().template_of(number)
    }

    /// From now on a client's frames go to the instance that was made for it, or to the first of several; what is for it, to the
    /// last. `ends` are their ports.
    ///
    /// # Errors
    /// One of them is not there, or the switch has no room.
    pub fn admit(
        &mut self,
        instance: &str,
        (input, output): &(PortRef, PortRef),
        client: &Client,
    ) -> Result<ClientPorts, PlatformError> {
        let id = |port: &PortRef| {
            let missing = || {
                PlatformError::new(
                    PlatformErrorKind::NotFound,
                    format!("there is no port {port}"),
                )
            };
            self.port_id(port).ok_or_else(missing)
        };
        let ports = ClientPorts {
            entry: id(input)?,
            back: id(output)?,
        };
        self.switch
            .set_client(client, ports.entry, ports.back)
            .map_err(failed)?;
        self.clients.insert(instance.to_owned(), *client);
        Ok(ports)
    }

    /// Whether an instance is there, of a client.
    pub fn has_client(&self, instance: &str) -> bool {
        self.clients.contains_key(instance)
    }

    /// Gives an instance frames that waited for it, in their order. Returns how many it had room for.
    pub fn give_waiting(&self, instance: &str, entry: u32, frames: &[&[u8]]) -> usize {
        let Some(running) = self.instances.get(instance) else {
            return 0;
        };
        let mut ports = running.workload.ports().iter();
        let Some(index) = ports.position(|port| port.number == entry) else {
            return 0;
        };
        match running.workload.deposit(index, frames) {
            Ok(count) => count,
            Err(error) => {
                tracing::warn!(instance, "giving it what waited for it: {error:#}");
                0
            }
        }
    }

    /// Ends that frames go to an instance of a client.
    pub(super) fn dismiss_client(&mut self, instance: &str) {
        let Some(client) = self.clients.remove(instance) else {
            return;
        };
        if let Err(error) = self.switch.remove_client(&client) {
            tracing::warn!(instance, %error, "removing its client");
        }
    }
}
