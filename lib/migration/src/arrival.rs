//! An instance that arrives, until this host has it.

use crate::ledger::{Arrival, Found, is_id};
use crate::migration::{Arriving, Migration};
use crate::site::{Instances, Site};
use crate::wires;
use anyhow::{Context, bail};
use nfluid_api::types::{Kind, ObjectName, Problem};
use nfluid_formats::message::{Hello, PROTOCOL};
use nfluid_sandbox::ProcessIdentity;
use serde_json::{Map, Value};

/// Most instances that arrive at a time: each may bring `SAVED_BYTES_MAX` bytes of state.
const ARRIVALS_MAX: usize = 4;

/// An instance that arrives. Dropped before [`Guest::take`], nothing of the instance is left.
pub(crate) struct Guest<'a, S: Site> {
    migration: &'a Migration,
    site: &'a S,
    arrival: Arrival,
    /// The instance was created by this arrival. Before that, an instance of this name belongs to another party and is
    /// not touched.
    is_made: bool,
    /// The process that takes the state in; absent until the ports are closed.
    process: Option<ProcessIdentity>,
}

impl<'a, S: Site> Guest<'a, S> {
    /// Makes an instance and all that leads to it, with its ports closed.
    ///
    /// # Errors
    /// The peer asks for something that is refused or not there. Nothing is left.
    pub fn prepare(migration: &'a Migration, site: &'a S, hello: Hello) -> anyhow::Result<Self> {
        if hello.protocol != PROTOCOL {
            bail!(
                "this daemon speaks version {PROTOCOL} of the protocol of moves, not version {}",
                hello.protocol
            );
        }
        if !is_id(&hello.id) {
            bail!("'{}' is no name of a move", hello.id.escape_debug());
        }
        wires::check(&hello)?;
        check_free(site, &hello)?;
        let mut guest = Guest {
            migration,
            site,
            arrival: migration.enter(site, &hello)?,
            is_made: false,
            process: None,
        };
        guest.make(hello)?;
        Ok(guest)
    }

    /// Returns the instance's name.
    pub fn name(&self) -> &str {
        &self.arrival.name
    }

    /// Returns the move's id.
    pub fn id(&self) -> &str {
        &self.arrival.id
    }

    /// Returns the instance's process.
    ///
    /// # Errors
    /// The instance was not made.
    pub fn process(&self) -> anyhow::Result<&ProcessIdentity> {
        self.process.as_ref().context("it was not made")
    }

    fn make(&mut self, hello: Hello) -> anyhow::Result<()> {
        let (site, name) = (self.site, &hello.name);
        let mut document = hello.document.clone();
        let mut wires = hello.wires;
        if wires::detach(&mut document) {
            wires["instances"] = hello.document["instances"].clone();
        }
        let until_durable = site.make(name, &mut document)?;
        self.is_made = true;
        until_durable()?;
        self.process = Some(site.instances().close_ports(name)?);
        if wires.as_object().is_some_and(|wires| wires.len() > 1) {
            site.apply(&wires)?;
        }
        Ok(())
    }

    /// Records that this host has the instance, and opens the ports.
    ///
    /// # Errors
    /// The source was told that the move will not be completed, or the process has ended. This host does not have the instance.
    pub fn take(&mut self) -> anyhow::Result<()> {
        let ledger = &self.migration.ledger;
        // While this is locked, no source is told that the move will not be completed.
        let mut arriving = self.migration.arriving();
        let (name, id) = (&self.arrival.name, &self.arrival.id);
        if arriving.get(id).is_none_or(|it| it.is_cancelled) {
            bail!("the source was told that it keeps the instance");
        }
        let instances = self.site.instances();
        instances.open_ports(name, self.process()?, || ledger.take(id))?;
        arriving.remove(id);
        drop(arriving);
        self.arrival.taken = true;
        Ok(())
    }

    /// Removes the objects of an arrival that are there. Flavors that other instances use by now stay.
    fn remove(&self) {
        let present = self.site.deployment();
        let mut objects = Vec::new();
        let mut add = |kind, name: &String| {
            let name = name.clone();
            objects.push(ObjectName { kind, name });
        };
        let chains = self.arrival.chains.iter();
        for chain in chains.filter(|chain| present.chains.contains(chain)) {
            add(Kind::Chain, chain);
        }
        if present.instances.contains(self.name()) {
            add(Kind::Instance, &self.arrival.name);
        }
        let is_unused = |flavor: &&String| {
            let mut instances = present.instances.iter();
            present.flavors.contains(flavor)
                && !instances.any(|(name, it)| name != self.name() && it.flavor == **flavor)
        };
        for flavor in self.arrival.flavors.iter().filter(is_unused) {
            add(Kind::Flavor, flavor);
        }
        if objects.is_empty() {
            return;
        }
        if let Err(problem) = self.site.delete(objects) {
            let name = self.name();
            tracing::warn!(instance = name, %problem, "removing what has not arrived whole");
        }
    }
}

impl<S: Site> Drop for Guest<'_, S> {
    fn drop(&mut self) {
        if self.arrival.taken {
            return;
        }
        if self.is_made {
            self.site.instances().settle(&self.arrival.name);
            self.remove();
        }
        self.migration.ledger.forget_arrival(&self.arrival.id);
        self.migration.arriving().remove(&self.arrival.id);
    }
}

/// Checks that this host has no object with a name that the arrival brings.
fn check_free(site: &impl Site, hello: &Hello) -> anyhow::Result<()> {
    let deployment = site.deployment();
    if deployment.instances.contains(&hello.name) {
        bail!(
            Problem::conflict(format!("there is an instance '{}' already", hello.name))
                .with_remedy("remove or rename it there first")
        );
    }
    let mut chains = hello.chains.iter();
    if let Some(chain) = chains.find(|chain| deployment.chains.contains(chain)) {
        bail!(
            Problem::conflict(format!("there is a chain '{chain}' already"))
                .with_remedy("remove or rename it there first")
        );
    }
    Ok(())
}

impl Migration {
    /// Records that an instance arrives, if there is room for one more.
    fn enter(&self, site: &impl Site, hello: &Hello) -> anyhow::Result<Arrival> {
        let present = site.deployment();
        let flavors = hello.document.get("flavors").and_then(Value::as_object);
        let flavors = flavors.into_iter().flat_map(Map::keys);
        let is_new = |flavor: &&String| !present.flavors.contains(flavor);
        let arrival = Arrival {
            id: hello.id.clone(),
            name: hello.name.clone(),
            chains: hello.chains.clone(),
            flavors: flavors.filter(is_new).cloned().collect(),
            taken: false,
        };
        let mut arriving = self.arriving();
        if arriving.len() >= ARRIVALS_MAX {
            bail!(
                Problem::unavailable(format!("{ARRIVALS_MAX} instances are arriving already"))
                    .with_remedy("try again in a moment")
            );
        }
        if arriving.values().any(|it| it.name == arrival.name) {
            bail!(
                Problem::conflict(format!(
                    "an instance '{}' is arriving already",
                    arrival.name
                ))
                .with_remedy("try again in a moment")
            );
        }
        if self.ledger.arrival(&arrival.id) != Found::Nothing {
            bail!("this move was asked for before");
        }
        // Reading all arrivals deletes the oldest ones without a known outcome.
        self.ledger.arrivals();
        self.ledger.arrive(&arrival)?;
        let it = Arriving {
            name: arrival.name.clone(),
            is_cancelled: false,
        };
        arriving.insert(arrival.id.clone(), it);
        Ok(arrival)
    }
}
