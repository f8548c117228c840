//! Makes the node's switches and uplinks what the cluster's objects say. As for pods, what there is to do follows from the objects and
//! from what the daemon has; nothing is kept.

use crate::cluster::{Place, unless_gone};
use crate::crds::parts::{Part, READY, SAID, Said, Saying, Switch, Uplink};
use crate::pods::Trouble;
use futures_util::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Node;
use kube::api::{GetParams, Patch, PatchParams};
use kube::runtime::reflector::{self, Store};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, ResourceExt as _};
use nfluid_api::client::{Client, ClientError};
use nfluid_api::types::PortState;
use nfluid_engine::requests::{merge, remove_owned, words};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// Interval at which the agent compares without an event: what the daemon has refused may be possible now.
const LOOK: Duration = Duration::from_secs(15);
/// Time after which a failed request is sent again.
const AGAIN: Duration = Duration::from_secs(1);

/// A switch or an uplink of the daemon's.
#[derive(Debug, Deserialize)]
struct Seen {
    name: String,
    owner: Option<String>,
    /// Of a switch, none.
    state: Option<PortState>,
    reason: Option<String>,
}

/// The switches and uplinks of a node.
pub struct Parts {
    kubernetes: kube::Client,
    daemon: Client,
    place: Place,
    node: String,
    switches: Store<Switch>,
    uplinks: Store<Uplink>,
    /// The documents that the daemon has taken last, by table and name.
    made: HashMap<(&'static str, String), Value>,
}

impl Parts {
    /// Follows the cluster's switches and uplinks for ever. `changed` is told by the daemon's events.
    pub async fn run(
        kubernetes: kube::Client,
        daemon: Client,
        place: Place,
        node: String,
        (changes, changed): (mpsc::Sender<()>, mpsc::Receiver<()>),
    ) {
        let (switches, switch_writer) = reflector::store();
        let (uplinks, uplink_writer) = reflector::store();
        let parts = Parts {
            kubernetes: kubernetes.clone(),
            daemon,
            place,
            node,
            switches,
            uplinks,
            made: HashMap::new(),
        };
        tokio::join!(
            watch(kubernetes.clone(), switch_writer, changes.clone()),
            watch(kubernetes, uplink_writer, changes),
            parts.keep(changed),
        );
    }

    async fn keep(mut self, mut changed: mpsc::Receiver<()>) {
        // Without the definitions there is nothing to compare with, and nothing may go.
        let (switches, uplinks) = (self.switches.clone(), self.uplinks.clone());
        let ready = (switches.wait_until_ready(), uplinks.wait_until_ready());
        if tokio::try_join!(ready.0, ready.1).is_err() {
            return;
        }
        loop {
            let pause = match self.look().await {
                Ok(()) => LOOK,
                Err(trouble) => {
                    tracing::warn!("switches and uplinks: {trouble}");
                    AGAIN
                }
            };
            tokio::select! {
                _ = changed.recv() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    async fn look(&mut self) -> Result<(), Trouble> {
        let nodes = Api::<Node>::all(self.kubernetes.clone());
        // From the API server's memory: what is older than the last look is told again.
        let node = match nodes.get_with(&self.node, &GetParams::any()).await {
            // The agent makes it first.
            Err(kube::Error::Api(error)) if error.code == 404 => return Ok(()),
            node => node?,
        };
        let labels = node.labels();
        let switches = on_node(self.switches.state(), labels);
        let uplinks = on_node(self.uplinks.state(), labels);
        // Uplinks are on switches: the first to go, and the last to come.
        self.remove(&uplinks).await?;
        self.remove(&switches).await?;
        let mut said = Said::new();
        self.make(&switches, &mut said).await?;
        self.make(&uplinks, &mut said).await?;
        let known = node.annotations().get(SAID);
        if known
            .and_then(|it| serde_json::from_str(it).ok())
            .unwrap_or_else(Said::new)
            == said
        {
            return Ok(());
        }
        let patch = json!({ "metadata": {
            // A node of the same name is another one.
            "uid": node.metadata.uid,
            "annotations": { SAID: json!(said).to_string() }
        } });
        let done = nodes
            .patch(&self.node, &PatchParams::default(), &Patch::Merge(patch))
            .await;
        unless_gone(done)?;
        Ok(())
    }

    async fn seen<P: Part>(&self) -> Result<Vec<Seen>, ClientError> {
        self.daemon.get(&format!("/v1/{}", P::TABLE)).await
    }

    fn owner<P: Part>(&self, name: &str) -> String {
        self.place.owner(P::TABLE, name)
    }

    /// Removes what this node has made and no object asks for.
    async fn remove<P: Part>(&mut self, wanted: &[Arc<P>]) -> Result<(), Trouble> {
        for seen in self.seen::<P>().await? {
            let owner = self.owner::<P>(&seen.name);
            let is_wanted = wanted.iter().any(|part| part.name_any() == seen.name);
            if is_wanted || seen.owner.as_ref() != Some(&owner) {
                continue;
            }
            self.made.remove(&(P::TABLE, seen.name.clone()));
            match remove_owned(&self.daemon, (P::KIND, &seen.name), &owner, false).await {
                Ok(()) => tracing::info!(name = seen.name, "removed: its object is gone"),
                Err(error @ ClientError::Problem(_)) => {
                    let why = words(&error, str::to_owned);
                    tracing::warn!(name = seen.name, why, "its object is gone, but it stays");
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    async fn make<P: Part>(&mut self, wanted: &[Arc<P>], said: &mut Said) -> Result<(), Trouble> {
        let present = self.seen::<P>().await?;
        for part in wanted {
            let name = part.name_any();
            let owner = self.owner::<P>(&name);
            let document = part.document(&owner);
            let key = (P::TABLE, name.clone());
            let mut own = present
                .iter()
                .filter(|it| it.owner.as_ref() == Some(&owner));
            let own = own.find(|it| it.name == name);
            let state = match own {
                Some(seen) if self.made.get(&key) == Some(&document) => state_of(seen),
                _ => match merge(&self.daemon, &document).await {
                    Ok(()) => {
                        self.made.insert(key, document);
                        READY.to_owned()
                    }
                    Err(error @ ClientError::Problem(_)) => {
                        words(&error, |path| place::<P>(path, &name))
                    }
                    Err(error) => return Err(error.into()),
                },
            };
            let saying = Saying {
                uid: part.meta().uid.clone().unwrap_or_default(),
                generation: part.meta().generation.unwrap_or_default(),
                state,
            };
            said.insert(part.key(), saying);
        }
        Ok(())
    }
}

/// Returns the objects that nodes with these labels are to have.
fn on_node<P: Part>(all: Vec<Arc<P>>, labels: &BTreeMap<String, String>) -> Vec<Arc<P>> {
    all.into_iter().filter(|part| part.is_on(labels)).collect()
}

fn state_of(seen: &Seen) -> String {
    match seen.state {
        Some(PortState::Down) => seen
            .reason
            .clone()
            .unwrap_or_else(|| "it is down".to_owned()),
        _ => READY.to_owned(),
    }
}

/// Returns the place of a deployment as a place in the object.
fn place<P: Part>(path: &str, name: &str) -> String {
    let own = format!("{}.{name}", P::TABLE);
    path.strip_prefix(&own)
        .map_or_else(|| path.to_owned(), |key| format!("spec{key}"))
}

/// Watches objects of a kind for ever.
async fn watch<P: Part>(
    kubernetes: kube::Client,
    writer: reflector::store::Writer<P>,
    changes: mpsc::Sender<()>,
) {
    let all = Api::<P>::all(kubernetes);
    let events = watcher(all, watcher::Config::default()).default_backoff();
    let events = events.reflect(writer).inspect_err(|error| {
        let kind = P::kind(&());
        tracing::warn!(%error, "watching objects of the kind {kind}; are nfluid's definitions installed?");
    });
    let told = events.for_each(|_| async {
        // One look is due already otherwise.
        let _ = changes.try_send(());
    });
    told.await;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uplink(spec: Value) -> Arc<Uplink> {
        let object = json!({ "metadata": { "name": "lan" }, "spec": spec });
        Arc::new(serde_json::from_value(object).expect("an uplink"))
    }

    // promise: 26.8
    #[test]
    fn an_object_is_on_the_nodes_with_its_labels() {
        let labels = BTreeMap::from([("site".to_owned(), "a".to_owned())]);
        let all = vec![
            uplink(json!({ "interface": "eth1" })),
            uplink(json!({ "interface": "eth2", "nodeSelector": { "site": "a" } })),
            uplink(json!({ "interface": "eth3", "nodeSelector": { "site": "b" } })),
            uplink(json!({ "interface": "eth4", "nodeSelector": { "site": "a", "x": "" } })),
        ];
        assert_eq!(on_node(all, &labels).len(), 2);
    }

    #[test]
    fn the_daemons_words_are_about_the_objects_keys() {
        assert_eq!(
            place::<Uplink>("uplinks.lan.interface", "lan"),
            "spec.interface"
        );
        let spec = json!({ "interface": "eth1", "switch": "s", "uplink": { "super": "off" } });
        let document = uplink(spec).document("o");
        let keys = json!({ "interface": "eth1", "switch": "s", "super": "off", "owner": "o" });
        assert_eq!(document["uplinks"]["lan"], keys);
    }
}
