//! Servers: what they are doing, and what can be done with them.

use crate::attached::visible;
use crate::fault::{Fault, id};
use crate::hosts::at_once;
use crate::objects::{self, Host, Image, Object, Server, Wanted};
use crate::render;
use crate::store::View as _;
use crate::vim::Vim;
use nfluid_api::types::{InstanceState, InstanceStatus};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use uuid::Uuid;

/// The status of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Status {
    /// The instance is being made.
    Creating,
    /// The instance runs.
    Active,
    /// The instance is paused.
    Paused,
    /// The server is off, or its program has ended.
    Inactive,
    /// The server is not as desired.
    Error,
    /// The server is being removed.
    Deleting,
}

impl Vim {
    /// Returns what servers are doing, and what is wrong with them.
    ///
    /// # Errors
    /// The database fails. A host that does not answer is told as an error of its servers.
    pub async fn statuses(
        &self,
        servers: &[Server],
    ) -> Result<HashMap<Uuid, (Status, Option<String>)>, Fault> {
        let mut by_host: BTreeMap<Uuid, Vec<Server>> = BTreeMap::new();
        for server in servers.iter().cloned() {
            by_host.entry(server.host).or_default().push(server);
        }
        let view = self.store.read()?;
        let asked = by_host.into_iter().map(|(host, servers)| {
            let host = view.find::<Host>(host)?;
            let names: Vec<_> = servers.iter().map(render::instance_of).collect();
            let reach = self.hosts.clone();
            Ok::<_, Fault>(async move {
                let found = match (&host, names.as_slice()) {
                    (Some(host), [name]) => {
                        let one = reach.instance(host, name).await;
                        one.map(|one| one.map(|it| (name.clone(), it)).into_iter().collect())
                    }
                    (Some(host), _) => reach.instances(host).await,
                    (None, _) => Ok(HashMap::new()),
                };
                (servers, found)
            })
        });
        let asked = asked.collect::<Result<Vec<_>, Fault>>()?;
        let mut statuses = HashMap::new();
        for (servers, found) in at_once(asked).await {
            for server in servers {
                let status = match &found {
                    Ok(all) => {
                        let instance = all.get(&render::instance_of(&server));
                        let is_own = |it: &&InstanceStatus| it.owner.as_ref() == Some(&self.owner);
                        status(&server, instance.filter(is_own))
                    }
                    Err(fault) => (out_of_sight(&server), Some(fault.text.clone())),
                };
                statuses.insert(server.id, status);
            }
        }
        Ok(statuses)
    }

    /// Does something with a server. Returns the image that was made of it, if that was the action.
    ///
    /// # Errors
    /// The action is none, or not possible now; the host refuses, or does not answer.
    pub async fn act(&self, server: Server, action: &Value) -> Result<Option<Image>, Fault> {
        let one = action.as_object().filter(|all| all.len() == 1);
        let Some((word, detail)) = one.and_then(|all| all.iter().next()) else {
            return Err(Fault::bad(
                "one action is expected: start, pause, resume, shutoff, shutdown, forceOff, terminate, reboot, rebuild or createImage",
            ));
        };
        let only = async |allowed: &[Status]| {
            let known = self.statuses(std::slice::from_ref(&server)).await?;
            let status = known.get(&server.id).map_or(Status::Error, |it| it.0);
            if allowed.contains(&status) {
                return Ok(());
            }
            Err(Fault::not_now(format!(
                "{word}: server {} is {}",
                server.id,
                serde_json::to_value(status).unwrap_or_default()
            )))
        };
        match word.as_str() {
            "start" if detail == "rebuild" => self.rebuild(&server, &Value::Null).await,
            "start" => self.want(&server, Wanted::Running).await,
            "pause" => {
                only(&[Status::Active, Status::Paused]).await?;
                self.want(&server, Wanted::Paused).await
            }
            "resume" => {
                only(&[Status::Active, Status::Paused]).await?;
                self.want(&server, Wanted::Running).await
            }
            "shutoff" | "shutdown" => self.want(&server, Wanted::Off).await,
            "forceOff" => {
                self.kill(&server).await?;
                self.want(&server, Wanted::Off).await
            }
            "terminate" => self.remove(&server).await,
            "reboot" => {
                only(&[Status::Active]).await?;
                self.restart(&server).await
            }
            "rebuild" => self.rebuild(&server, detail).await,
            "createImage" => {
                only(&[Status::Active]).await?;
                return self.save_as(&server, detail).await.map(Some);
            }
            other => Err(Fault::bad(format!("'{other}' is no action"))),
        }?;
        Ok(None)
    }

    /// Makes an image of a server: its program, and its present state.
    async fn save_as(&self, server: &Server, detail: &Value) -> Result<Image, Fault> {
        let source: Image = self.store.read()?.get(server.image)?;
        let mut metadata = source.metadata;
        if let Some(Value::Object(more)) = detail.get("metadata") {
            metadata.extend(more.clone());
        }
        let mut image: Image = objects::made(json!({ "image": {
            "name": detail["name"], "description": detail["description"], "path": source.path, "metadata": metadata,
        } }))?;
        image.has_state = true;
        image.tenants.insert(server.tenant_id);
        let state = self.save(server).await?;
        self.store.write(|all| {
            all.add(&image)?;
            all.put_state(image.id, &state)
        })?;
        Ok(image)
    }

    async fn want(&self, server: &Server, wanted: Wanted) -> Result<(), Fault> {
        self.store.write(|all| {
            let now: Server = all.get(server.id)?;
            if now.wanted == Wanted::Gone && wanted != Wanted::Gone {
                return Err(Fault::unknown(Server::WORD, server.id));
            }
            all.change::<Server>(server.id, |it| {
                it.wanted = wanted;
                it.told.unsettle();
            })
        })?;
        self.settle(server.id).await
    }

    /// Removes a server. If its host does not answer, it is removed later.
    ///
    /// # Errors
    /// The host refuses.
    pub async fn remove(&self, server: &Server) -> Result<(), Fault> {
        let removed = self.want(server, Wanted::Gone).await;
        match removed {
            Err(fault) if fault.may_pass() => {
                tracing::warn!(server = server.name, "{}", fault.text);
                Ok(())
            }
            removed => removed,
        }
    }

    /// Makes the instance of a server anew, of another image if the request names one.
    async fn rebuild(&self, server: &Server, detail: &Value) -> Result<(), Fault> {
        let image = match detail.get("imageRef") {
            None | Some(Value::Null) => server.image,
            Some(Value::String(text)) => id(Image::WORD, text)?,
            Some(_) => return Err(Fault::bad("rebuild.imageRef: an id is expected")),
        };
        self.store.write(|all| {
            visible::<Image>(all, image, server.tenant_id)?;
            all.change::<Server>(server.id, |it| it.image = image)
        })?;
        self.want(server, Wanted::Off).await?;
        self.want(server, Wanted::Running).await
    }
}

/// Returns the status of a server, and its error, from its instance.
fn status(server: &Server, instance: Option<&InstanceStatus>) -> (Status, Option<String>) {
    let own = server.last_error.clone();
    let Some(instance) = instance else {
        return match server.wanted {
            Wanted::Running | Wanted::Paused if server.told.is_settled => {
                let gone = "its instance is gone from its host: start or rebuild it".to_owned();
                (Status::Error, Some(own.unwrap_or(gone)))
            }
            _ => (unseen(server), own),
        };
    };
    let ended = || instance.last_exit.clone().or_else(|| own.clone());
    match (server.wanted, instance.state) {
        (Wanted::Gone, _) => (Status::Deleting, own),
        (_, InstanceState::Starting) => (Status::Creating, own),
        (_, InstanceState::Running) if server.last_error.is_some() => (Status::Error, own),
        (_, InstanceState::Running) => (Status::Active, None),
        (_, InstanceState::Unhealthy) => (Status::Error, instance.unhealthy.clone().or(own)),
        (_, InstanceState::Paused) => (Status::Paused, own),
        (_, InstanceState::Stopped) => (Status::Inactive, ended()),
        (_, InstanceState::Waiting | InstanceState::Failed) => (Status::Error, ended()),
    }
}

/// Returns the status of a server from the database alone.
fn unseen(server: &Server) -> Status {
    match server.wanted {
        Wanted::Gone => Status::Deleting,
        Wanted::Off => Status::Inactive,
        _ if server.last_error.is_some() => Status::Error,
        _ if !server.told.is_settled => Status::Creating,
        Wanted::Paused => Status::Paused,
        Wanted::Running => Status::Active,
    }
}

/// Returns the status of a server whose host does not answer.
fn out_of_sight(server: &Server) -> Status {
    match server.wanted {
        Wanted::Running | Wanted::Paused => Status::Error,
        Wanted::Off | Wanted::Gone => unseen(server),
    }
}
