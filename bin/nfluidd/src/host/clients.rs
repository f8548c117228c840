//! Clients of templates: the instance that each client's frames go to.

use super::Host;
use super::errors::switch_failed;
use nfluid_control::apply::{PlatformError, PlatformErrorKind};
use nfluid_control::model::PortRef;
use nfluid_control::template::ClientBy;
use nfluid_switch::client::Client;

/// The numbers of the two ports at the ends of a client's instance, or of the client's chain of instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientPorts {
    /// Receives frames from the client.
    pub entry: u32,
    /// Receives frames for the client.
    pub back: u32,
}

impl Host {
    /// Returns the template with that number, and the key that distinguishes its clients.
    pub fn template_of(&self, number: u32) -> Option<(String, ClientBy)> {
        self.wires.templates().template_of(number)
    }

    /// Leads a client's frames to the instance that was created for the client, or to the first of several. Frames
    /// for the client go to the last instance. `ends` are the ports of the two.
    ///
    /// # Errors
    /// A port does not exist, or the switch has no room.
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
            .map_err(switch_failed)?;
        self.clients.insert(instance.to_owned(), *client);
        Ok(ports)
    }

    /// Returns true if an instance exists and belongs to a client.
    pub fn has_client(&self, instance: &str) -> bool {
        self.clients.contains_key(instance)
    }

    /// Puts frames that waited for an instance into its ring, in their order. Returns the number of frames that had
    /// room.
    pub fn put_waiting(&self, instance: &str, entry: u32, frames: &[&[u8]]) -> usize {
        let Some(running) = self.instances.get(instance) else {
            return 0;
        };
        let mut ports = running.workload.ports().iter();
        let Some(index) = ports.position(|port| port.number == entry) else {
            return 0;
        };
        match running.workload.put_frames(index, frames) {
            Ok(count) => count,
            Err(error) => {
                tracing::warn!(
                    instance,
                    "delivering the frames that waited for the instance: {error:#}"
                );
                0
            }
        }
    }

    /// Stops leading frames to an instance of a client.
    pub(super) fn dismiss_client(&mut self, instance: &str) {
        let Some(client) = self.clients.remove(instance) else {
            return;
        };
        if let Err(error) = self.switch.remove_client(&client) {
            tracing::warn!(instance, %error, "removing the client of the instance");
        }
    }
}
