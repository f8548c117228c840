//! Makes pods of network functions and chains: as many as are wanted, on nodes that the scheduler chooses, and other ones where nodes are lost. It
//! keeps nothing, and touches only pods that are the object's own.

use crate::child::Child;
use crate::children::Children;
use crate::cluster::{delete, unless_gone};
use crate::crds::parts::{Switch, Uplink};
use crate::crds::{NetworkFunction, REPLICAS_MAX, ServiceChain, Status};
use crate::latest::Latest;
use crate::render::{self, FIXED, Owner, Runs};
use crate::summary;
use anyhow::Context;
use futures_util::{FutureExt as _, StreamExt as _, stream};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::core::PartialObjectMeta;
use kube::runtime::controller::{Action, Config, applier, trigger_self};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::{WatchStreamExt as _, reflector, watcher};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashMap};
use std::fmt::Debug;
use std::future::ready;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{broadcast, mpsc};
use tokio_stream::wrappers::{BroadcastStream, UnboundedReceiverStream};

/// Time until a request that Kubernetes refused is sent again.
pub const AGAIN: Duration = Duration::from_secs(2);
/// Time until a pod is asked for again that Kubernetes does not let in.
const LATER: Duration = Duration::from_secs(30);

/// An object that runs as pods.
pub trait Object:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + Debug
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
    /// Returns what it asks for.
    fn spec(&self) -> &(impl Runs + Sync);
    /// Returns what Kubernetes was told of it.
    fn status(&self) -> Option<&Status>;
}

impl Object for NetworkFunction {
    fn spec(&self) -> &(impl Runs + Sync) {
        &self.spec
    }

    fn status(&self) -> Option<&Status> {
        self.status.as_ref()
    }
}

impl Object for ServiceChain {
    fn spec(&self) -> &(impl Runs + Sync) {
        &self.spec
    }

    fn status(&self) -> Option<&Status> {
        self.status.as_ref()
    }
}

/// Runs the controller until it is cancelled.
///
/// # Errors
/// The definitions of the objects are not installed.
pub async fn run(client: Client) -> anyhow::Result<()> {
    let one = ListParams::default().limit(1);
    let chains = Api::<ServiceChain>::all(client.clone()).list(&one).await;
    chains.context("asking Kubernetes for service chains; are nfluid's definitions installed ('nfluid-kubernetes definitions')?")?;
    tracing::info!("network functions, chains, switches and uplinks are looked after");
    let (nodes, writer) = reflector::store();
    let changes = broadcast::Sender::new(1);
    let changed = || BroadcastStream::new(changes.subscribe()).map(|_| ());
    let all = Api::<PartialObjectMeta<Node>>::all(client.clone());
    let all = watcher(all, watcher::Config::default()).default_backoff();
    let all = all.modify(|node| node.metadata.managed_fields = None);
    let watch = all.reflect(writer).for_each(|event| {
        match event {
            // Nobody looks at switches yet otherwise.
            Ok(watcher::Event::Apply(_) | watcher::Event::Delete(_) | watcher::Event::InitDone) => {
                let _ = changes.send(());
            }
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, "watching nodes"),
        }
        ready(())
    });
    tokio::join!(
        control::<NetworkFunction>(client.clone()),
        control::<ServiceChain>(client.clone()),
        summary::control::<Switch>(client.clone(), nodes.clone(), changed()),
        summary::control::<Uplink>(client, nodes, changed()),
        watch,
    );
    Ok(())
}

/// Time for which a status that says "not ready" waits for a better one: most objects are ready by then.
const PATIENCE: Duration = Duration::from_millis(250);

/// A turn has this at hand.
struct Turn<K> {
    client: Client,
    children: Children,
    /// Since when statuses wait, by uid of the object.
    waiting: Mutex<HashMap<String, Instant>>,
    /// Objects as this controller has told them last.
    latest: Latest<K>,
}

impl<K> Turn<K> {
    /// Returns the time for which a status has to wait; `None`: it is told now.
    fn delay(&self, uid: &str, is_ready: bool) -> Option<Duration> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if is_ready {
            waiting.remove(uid);
            return None;
        }
        // An object may be gone before it is told of.
        waiting.retain(|_, since| since.elapsed() < LATER);
        let since = *waiting.entry(uid.to_owned()).or_insert_with(Instant::now);
        let left = PATIENCE.saturating_sub(since.elapsed());
        if left.is_zero() {
            waiting.remove(uid);
            return None;
        }
        Some(left)
    }
}

async fn control<K: Object>(client: Client) {
    let (changed, changes) = mpsc::unbounded_channel();
    let children = Children::new(&K::kind(&()), changed);
    let turn = Arc::new(Turn {
        client: client.clone(),
        children,
        waiting: Mutex::default(),
        latest: Latest::default(),
    });
    let (objects, writer) = reflector::store();
    let all = watcher(Api::<K>::all(client.clone()), watcher::Config::default());
    let all = all
        .default_backoff()
        .modify(|object| object.meta_mut().managed_fields = None)
        .reflect(writer)
        .applied_objects();
    let all = all.filter_map(|object| {
        if let Err(error) = &object {
            tracing::warn!(kind = %K::kind(&()), %error, "watching objects");
        }
        ready(object.ok().map(Ok::<_, watcher::Error>))
    });
    let changes = UnboundedReceiverStream::new(changes)
        .map(|(namespace, name)| Ok(ObjectRef::<K>::new(&name).within(&namespace).into()));
    let queue = stream::select(trigger_self(all, ()), changes);
    let work = applier(
        |object, turn| reconcile::<K>(object, turn).boxed(),
        on_error,
        Arc::clone(&turn),
        objects,
        queue,
        Config::default(),
    );
    let work = async {
        turn.children.wait_until_ready().await;
        work.for_each(|_| ready(())).await;
    };
    tokio::join!(work, turn.children.follow(client));
}

#[expect(clippy::needless_pass_by_value, reason = "as kube-rs calls it")]
fn on_error<K: Object>(object: Arc<K>, error: &kube::Error, _: Arc<Turn<K>>) -> Action {
    tracing::warn!(kind = %K::kind(&()), name = object.name_any(), %error);
    Action::requeue(AGAIN)
}

/// The state of an object's pods together.
struct Known {
    wanted: u32,
    ready: u32,
    /// The reason why not all are ready.
    why: Option<String>,
    selector: String,
    nodes: String,
}

/// The pods of a slot.
#[derive(Debug, Default)]
struct Slot<'a> {
    /// The pod that runs, or will.
    current: Option<&'a Child>,
    /// The uids of those that are about to go, in order.
    going: BTreeSet<&'a str>,
    /// Pods that the controller has to remove.
    superfluous: Vec<&'a Child>,
}

impl<'a> Slot<'a> {
    fn of(pods: &'a [Arc<Child>], slot: u32) -> Self {
        let mut this = Slot::default();
        let pods = pods.iter().map(Arc::as_ref);
        for pod in pods.filter(|pod| pod.slot == Some(slot)) {
            if pod.is_going {
                this.going.insert(&pod.uid);
            } else if pod.is_over || this.current.is_some() {
                this.going.insert(&pod.uid);
                this.superfluous.push(pod);
            } else {
                this.current = Some(pod);
            }
        }
        this
    }
}

fn is_of(pod: &Pod, owner: &Owner) -> bool {
    let mut owners = pod.owner_references().iter();
    owners.any(|it| it.uid == owner.reference.uid)
}

async fn reconcile<K: Object>(object: Arc<K>, turn: Arc<Turn<K>>) -> Result<Action, kube::Error> {
    let client = &turn.client;
    let object = turn.latest.newer(object);
    if object.meta().deletion_timestamp.is_some() {
        // Kubernetes removes its pods.
        return Ok(Action::await_change());
    }
    let Some(reference) = object.controller_owner_ref(&()) else {
        return Ok(Action::await_change());
    };
    let owner = Owner {
        reference,
        namespace: object.namespace().unwrap_or_default(),
    };
    let api = Api::<Pod>::namespaced(client.clone(), &owner.namespace);
    let pods = turn.children.of(&owner.reference.uid);
    let spec = object.spec();
    let wanted = spec.place().replicas.min(REPLICAS_MAX);
    for pod in pods.iter().filter(|pod| !pod.is_going) {
        if pod.slot.is_none_or(|slot| slot >= wanted) {
            delete(&api, (&pod.name, &pod.uid), None).await?;
        }
    }
    let slots: Vec<_> = (0..wanted).map(|slot| Slot::of(&pods, slot)).collect();
    let mut others_are_ready = slots
        .iter()
        .all(|slot| slot.current.is_some_and(Child::is_ready));
    let mut why = None;
    let mut again = Action::await_change();
    let mut ready = 0;
    let mut nodes = BTreeSet::new();
    for (number, slot) in (0..).zip(&slots) {
        for pod in &slot.superfluous {
            delete(&api, (&pod.name, &pod.uid), None).await?;
        }
        let beside: Vec<_> = slot.going.iter().copied().collect();
        let rendered = render::pod(&owner, spec, number, &beside);
        let Some(current) = slot.current else {
            let making = turn.children.begin();
            let made = api.create(&PostParams::default(), &rendered).await;
            why.get_or_insert(format!("{}: it is being made", rendered.name_any()));
            match made {
                Ok(pod) => making.note(&owner.reference.uid, &pod),
                Err(kube::Error::Api(error)) if error.code == 409 => {
                    // An answer may have been lost, and the watch not have told of the pod yet.
                    let present = api.get_opt(&rendered.name_any()).await?;
                    if present.is_some_and(|pod| !is_of(&pod, &owner)) {
                        why = Some(format!(
                            "{}: another pod has this name",
                            rendered.name_any()
                        ));
                    }
                }
                // A quota, a policy, or a name that is too long.
                Err(kube::Error::Api(error)) if error.code < 500 => {
                    why = Some(format!("{}: {}", rendered.name_any(), error.message));
                    again = Action::requeue(LATER);
                }
                Err(error) => return Err(error),
            }
            continue;
        };
        nodes.extend(current.node.as_deref());
        if current.annotations.get(FIXED) != rendered.annotations().get(FIXED) {
            // One after the other; what is not ready loses nothing.
            if others_are_ready || !current.is_ready() {
                others_are_ready = false;
                delete(&api, (&current.name, &current.uid), None).await?;
            }
            why.get_or_insert(format!("{}: it is replaced", current.name));
            continue;
        }
        if let Some(patch) = change(current, &rendered) {
            let patch = Patch::Strategic(patch);
            let parameters = PatchParams::default();
            let changed = api.patch(&current.name, &parameters, &patch).await?;
            turn.children.note(&changed);
            why.get_or_insert(format!("{}: it is changed", current.name));
        } else if let Some(reason) = &current.why {
            why.get_or_insert(format!("{}: {reason}", current.name));
        } else {
            ready += 1;
        }
    }
    let known = Known {
        wanted,
        ready,
        why,
        selector: owner.selector(),
        nodes: nodes.into_iter().collect::<Vec<_>>().join(","),
    };
    let is_ready = known.ready == known.wanted && known.why.is_none();
    let status = told(&*object, known, Timestamp::now());
    if object.status() != Some(&status) {
        if let Some(delay) = turn.delay(&owner.reference.uid, is_ready) {
            return Ok(Action::requeue(delay));
        }
        let objects = Api::<K>::namespaced(client.clone(), &owner.namespace);
        let patch =
            Patch::Merge(json!({ "metadata": { "uid": owner.reference.uid }, "status": status }));
        let done = objects
            .patch_status(&object.name_any(), &PatchParams::default(), &patch)
            .await;
        unless_gone(done)?
            .into_iter()
            .for_each(|it| turn.latest.note(it));
    }
    Ok(again)
}

/// Returns what of a pod has to be changed in place: its annotations and the images of its containers.
fn change(current: &Child, rendered: &Pod) -> Option<Value> {
    let after = Child::of(rendered);
    let are_same = after
        .annotations
        .iter()
        .all(|(key, value)| current.annotations.get(key) == Some(value));
    if are_same && current.images == after.images {
        return None;
    }
    let images = after.images.iter();
    let containers: Vec<_> = images
        .map(|(name, image)| json!({ "name": name, "image": image }))
        .collect();
    Some(
        json!({ "metadata": { "annotations": after.annotations }, "spec": { "containers": containers } }),
    )
}

/// Returns the status of an object, given what is known of its pods.
fn told<K: Object>(object: &K, known: Known, now: Timestamp) -> Status {
    let functions: Vec<_> = object.spec().parts().into_iter().map(|it| it.0).collect();
    let generation = object.meta().generation.unwrap_or_default();
    let before = object
        .status()
        .and_then(|it| it.conditions.iter().find(|it| it.type_ == "Ready"));
    let is_short = known.ready < known.wanted;
    let why = known.why.or_else(|| is_short.then(String::new));
    Status {
        observed_generation: generation,
        ready: known.ready,
        functions: functions.join(","),
        selector: known.selector,
        nodes: known.nodes,
        conditions: vec![ready_condition(before, why, generation, now)],
    }
}

/// Returns the condition `Ready` of an object; `why` is the reason why it is not, and `before` what Kubernetes knows.
pub fn ready_condition(
    before: Option<&Condition>,
    why: Option<String>,
    generation: i64,
    now: Timestamp,
) -> Condition {
    let (status, reason) = match &why {
        None => ("True", "AllReady"),
        Some(_) => ("False", "NotReady"),
    };
    let since = before.filter(|it| it.status == status);
    Condition {
        type_: "Ready".to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: why.unwrap_or_default(),
        observed_generation: Some(generation),
        last_transition_time: since.map_or(Time(now), |it| it.last_transition_time.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::SLOT;

    fn pod(uid: &str, slot: &str, phase: &str, is_going: bool) -> Arc<Child> {
        let gone = is_going.then_some("2026-01-01T00:00:00Z");
        let pod = json!({
            "metadata": { "name": uid, "uid": uid, "labels": { SLOT: slot }, "deletionTimestamp": gone },
            "status": { "phase": phase }
        });
        Arc::new(Child::of(&serde_json::from_value(pod).expect("a pod")))
    }

    // promise: 26.7
    #[test]
    fn a_slot_has_one_pod_and_what_is_over_goes() {
        let pods = [
            pod("a", "0", "Failed", false),
            pod("b", "0", "Running", true),
            pod("c", "0", "Running", false),
            pod("d", "0", "Pending", false),
            pod("e", "1", "Running", false),
            pod("f", "x", "Running", false),
        ];
        let slot = Slot::of(&pods, 0);
        assert_eq!(slot.current.map(|pod| pod.name.as_str()), Some("c"));
        assert_eq!(
            slot.going.iter().copied().collect::<Vec<_>>(),
            ["a", "b", "d"]
        );
        let superfluous = slot.superfluous.iter().map(|pod| &pod.name);
        assert_eq!(superfluous.collect::<Vec<_>>(), ["a", "d"]);
        assert!(Slot::of(&pods, 2).current.is_none());
    }
}
