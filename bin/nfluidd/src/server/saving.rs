//! Instances that are saved, and restored from what was saved.

use super::{Daemon, ENVIRONMENT, problem, took, wait_for};
use crate::host::{self, Moved};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use nfluid_api::server::Server;
use nfluid_api::types::{
    ApplyRequest, DeleteRequest, Kind, ObjectName, Problem, RestoreReport, RestoreRequest,
    SavedInstance,
};
use nfluid_control::controller::{Stepped, not_desired};
use nfluid_control::single::proposal::Proposal;
use nfluid_control::stopwatch::Stopwatch;
use nfluid_formats::saved::{Image, SavedError};
use nfluid_migration::guarded::Guarded;
use nfluid_ring::clock::monotonic_ns;
use serde_json::{Value, json};
use std::panic::resume_unwind;
use std::time::Instant;

impl Daemon {
    /// Exports an instance: its document, its state and its frames, as one image.
    pub(super) fn save_instance(&self, instance: &str) -> Result<SavedInstance, Problem> {
        self.require_process(instance)?;
        let begun = Instant::now();
        let document = Self::document_of(&self.deployment(), instance)?;
        let moved = host::export(&self.host, instance);
        let moved = moved.map_err(|error| problem(instance, error))?;
        let (state_bytes, frames) = (moved.state.len() as u64, moved.frames.len() as u64);
        let image = Image {
            document,
            state: moved.state,
            frames: moved.frames,
            addresses: moved.addresses,
        };
        let bytes = image.to_bytes();
        let bytes = bytes.map_err(|why| Problem::failed(format!("{instance}: {why}")))?;
        Ok(SavedInstance {
            image: STANDARD.encode(bytes),
            took_us: took(begun).took_us,
            state_bytes,
            frames,
        })
    }

    /// Makes an instance from the image of a saved one.
    pub(super) fn restore_instance(
        &self,
        request: RestoreRequest,
    ) -> Result<RestoreReport, Problem> {
        let mut watch = Stopwatch::start();
        let refused = |why: SavedError| {
            let why = anyhow::Error::from(why);
            Problem::bad_request(format!("{why:#}; nothing was made"))
        };
        let bytes = STANDARD.decode(&request.image);
        let bytes = bytes.map_err(|why| Problem::bad_request(format!("not base64: {why}")))?;
        let mut image = Image::parse(&bytes).map_err(refused)?;
        drop(bytes);
        match (&request.name, request.instance) {
            (Some(name), Some(instance)) if request.config.is_none() => {
                image.become_another(name, instance);
            }
            (_, Some(_)) => {
                let detail =
                    "keys of its own are for a clone, and say its configuration; nothing was made";
                return Err(Problem::bad_request(detail)
                    .with_remedy("give it a name, and no 'config' beside them"));
            }
            (Some(name), None) => {
                let renamed = image.rename(name, request.config.clone());
                renamed.map_err(|why| {
                    refused(why).with_remedy(
                        "give the clone a configuration of its own (--config), or restore it under its own name",
                    )
                })?;
            }
            (None, None) if request.config.is_some() => {
                let detail = "only a clone gets another configuration; nothing was made";
                return Err(Problem::bad_request(detail).with_remedy("give it a name as well"));
            }
            (None, None) => {}
        }
        let name = image.name().map_err(refused)?.to_owned();
        watch.lap("read");
        let made = self.make_from(&name, &mut image.document)?;
        let moved = Moved {
            state: image.state,
            frames: image.frames,
            addresses: image.addresses,
        };
        let give = || host::give(&self.host, &name, &moved, request.paused);
        let (given, kept) = match made {
            None => {
                watch.lap("apply");
                (give(), Ok(()))
            }
            Some(Stepped {
                durable,
                watch: made,
                ..
            }) => {
                watch.absorb(made);
                // The write to the disk and the creation of the instance are independent.
                std::thread::scope(|scope| {
                    let kept = scope.spawn(|| wait_for(durable));
                    (
                        give(),
                        kept.join().unwrap_or_else(|panic| resume_unwind(panic)),
                    )
                })
            }
        };
        let mut given = given.map_err(|error| {
            let why = problem(&name, error);
            self.unmake(&name);
            Problem {
                detail: format!("{}; nothing was made", why.detail),
                ..why
            }
        })?;
        kept?;
        watch.extend(given.laps.drain(..));
        watch.lap("disk");
        let report = RestoreReport {
            name,
            took_us: took(watch.begun).took_us,
            state_taken: given.taken,
            state_left_out: given.left_out,
            frames: given.frames,
            frames_left_out: given.frames_left_out,
            took: watch.timeline(monotonic_ns()),
        };
        // It may have come from another host.
        if !request.paused && !moved.addresses.is_empty() {
            let guarded = Guarded::of(&self.desired.read(), &report.name);
            guarded.announce_here(&self.instances, moved.addresses);
        }
        Ok(report)
    }

    /// Returns a document with one instance of the deployment `all`, and the instance's flavor if the deployment defines the flavor.
    pub(crate) fn document_of(all: &Value, instance: &str) -> Result<Value, Problem> {
        let found = all.get("instances").and_then(|all| all.get(instance));
        let found = found.ok_or_else(|| not_desired(instance))?;
        if found.get("replicas").is_some_and(|several| *several != 1) {
            let several = host::one_of_several(instance, "saved or moved as one");
            return Err(problem(instance, several));
        }
        let mut document = json!({ "version": 1, "instances": { instance: found } });
        let flavor = found.get("flavor").and_then(Value::as_str);
        let own = flavor.and_then(|name| Some((name, all.get("flavors")?.get(name)?)));
        if let Some((name, flavor)) = own {
            document["flavors"] = json!({ name: flavor });
        }
        Ok(document)
    }

    /// Adds a saved instance to the deployment. If the change concerns this instance alone, it may still be on its
    /// way to the disk.
    pub(crate) fn make_from(
        &self,
        name: &str,
        document: &mut Value,
    ) -> Result<Option<Stepped>, Problem> {
        let mut controller = self.controller();
        let present = controller.deployment();
        if present.instances.contains(name) {
            return Err(Problem::bad_request(format!(
                "there is an instance '{name}' already; nothing was made"
            ))
            .with_remedy("give the restored one another name (--name)"));
        }
        if let Some(flavors) = document.get_mut("flavors").and_then(Value::as_object_mut) {
            // This host's own definition of a flavor takes precedence.
            flavors.retain(|flavor, _| !present.flavors.contains(flavor));
        }
        drop(present);
        let request = ApplyRequest {
            text: document.to_string(),
            file: Some("the saved instance".to_owned()),
            merge: true,
            ..ApplyRequest::default()
        };
        let proposal = Proposal::of(&request);
        let added = proposal.and_then(|proposal| controller.add(proposal, ENVIRONMENT));
        drop(controller);
        match added {
            Some(added) => self.report_step("create", added).map(Some),
            None => self.apply(request).map(|_made| None),
        }
    }

    /// Removes the instance that [`Daemon::make_from`] has added.
    fn unmake(&self, name: &str) {
        let request = DeleteRequest {
            objects: vec![ObjectName {
                kind: Kind::Instance,
                name: name.to_owned(),
            }],
            ..DeleteRequest::default()
        };
        if let Err(problem) = self.delete(request) {
            tracing::warn!(instance = name, %problem, "removing what could not be restored");
        }
    }
}
