//! Makes the instances that the node's pods ask for, and tells what has become of them.
//!
//! What there is to do with a pod follows from the pod and from the daemon's instances, whatever happened before: a lost event, an agent that was
//! killed and a request that was sent twice lead to the same end.

use crate::cluster::{Place, bound_to, containers, delete, uid, unless_gone};
use crate::configs::Configs;
use crate::events::{Events, Severity};
use crate::files;
use crate::latest::Latest;
use crate::settings::Settings;
use crate::status::{self, CONFIG_ERROR, REFUSED, Seen, View};
use crate::wanted::{self, Wanted};
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use k8s_openapi::jiff::Timestamp;
use kube::api::{ListParams, Patch, PatchParams};
use kube::runtime::controller::Action;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::{Api, ResourceExt as _};
use nfluid_api::client::{Client, ClientError};
use nfluid_api::types::{InstanceStatus, STOP_WAIT_MS_MAX, StopRequest};
use nfluid_engine::requests::{found, is_taken, may_pass, remove_own, words};
use serde_json::json;
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use thiserror::Error;

/// Time until something that may pass is tried again.
const SOON: Duration = Duration::from_secs(1);
/// Time until something that the daemon refuses is tried again: the host may have changed.
const LATER: Duration = Duration::from_secs(20);

/// The reason why nothing can be said about a pod now.
#[derive(Debug, Error)]
pub enum Trouble {
    /// Kubernetes does not answer, or refuses.
    #[error("Kubernetes: {0}")]
    Kubernetes(#[from] kube::Error),
    /// The daemon does not answer.
    #[error("{0}")]
    Daemon(#[from] ClientError),
}

/// What the agent remembers of a pod. It may forget it at any time.
#[derive(Debug, Default)]
struct Memory {
    /// The instances, with the requests that made them what they are.
    made: HashMap<String, Wanted>,
    /// What Kubernetes was told last of each subject.
    told: HashMap<String, String>,
}

/// The pods of the node.
pub struct Pods {
    /// Kubernetes.
    pub kubernetes: kube::Client,
    /// The daemon.
    pub daemon: Client,
    /// The node's name.
    pub node: String,
    /// The node.
    pub place: Place,
    /// The node's address.
    pub address: String,
    /// Folders of the host below which pods may have volumes.
    pub host_volumes: Vec<PathBuf>,
    /// CPUs of the host.
    pub cpus: usize,
    /// The objects that pods refer to.
    pub configs: Arc<Configs>,
    /// The pods that are bound to the node, as Kubernetes has them.
    pub store: Store<Pod>,
    /// Where events are told.
    pub events: Events,
    /// By uid of the pod.
    memory: Mutex<HashMap<String, Memory>>,
    /// Pods as this agent has told them last.
    latest: Latest<Pod>,
}

impl Pods {
    /// Creates the pods of a node, none of which was looked at.
    pub fn new(
        kubernetes: kube::Client,
        daemon: Client,
        place: Place,
        cpus: usize,
        configs: Arc<Configs>,
        store: Store<Pod>,
        settings: &Settings,
    ) -> Self {
        Pods {
            events: Events::new(kubernetes.clone(), settings.node.clone()),
            kubernetes,
            daemon,
            node: settings.node.clone(),
            place,
            address: settings.address.clone(),
            host_volumes: settings.host_volumes.clone(),
            cpus,
            configs,
            store,
            memory: Mutex::default(),
            latest: Latest::default(),
        }
    }

    fn memory(&self) -> MutexGuard<'_, HashMap<String, Memory>> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn api(&self, pod: &Pod) -> Api<Pod> {
        let namespace = pod.namespace().unwrap_or_default();
        Api::namespaced(self.kubernetes.clone(), &namespace)
    }

    /// Returns the pod of an instance, and its container.
    pub fn of_instance(&self, instance: &InstanceStatus) -> Option<(Arc<Pod>, String)> {
        let (uid_, container) = self.place.pod_of(instance.owner.as_deref()?)?;
        let pod = self.store.find(|pod| uid(pod) == uid_)?;
        Some((pod, container.to_owned()))
    }

    /// Returns the pod whose instance this agent has made by this name, and its container.
    pub fn named(&self, instance: &str) -> Option<(Arc<Pod>, String)> {
        let (uid_, container) = {
            let memory = self.memory();
            let mut all = memory
                .iter()
                .flat_map(|(uid, it)| it.made.values().map(move |it| (uid, it)));
            let (uid, it) = all.find(|(_, it)| it.name == instance)?;
            (uid.clone(), it.container.clone())
        };
        let pod = self.store.find(|pod| uid(pod) == uid_)?;
        Some((pod, container))
    }

    /// Makes of a pod's instances what the pod asks for, and tells Kubernetes.
    ///
    /// # Errors
    /// Kubernetes or the daemon does not answer.
    pub async fn reconcile(pod: Arc<Pod>, this: Arc<Self>) -> Result<Action, Trouble> {
        let pod = this.latest.newer(pod);
        if pod.metadata.deletion_timestamp.is_some() {
            return this.end(&pod).await;
        }
        if status::is_over(&pod) {
            // Kubernetes has given away what it was promised. Its log stays.
            let are_gone = this.remove_instances(&pod).await?;
            return Ok(if are_gone {
                Action::await_change()
            } else {
                Action::requeue(SOON)
            });
        }
        let references = files::references(&pod);
        if !this.configs.watch(&pod, &references) {
            // It comes again when they are known.
            return Ok(Action::await_change());
        }
        let namespace = pod.namespace().unwrap_or_default();
        let look = |reference: &files::Reference| this.configs.data(&namespace, reference);
        let wanted = wanted::read(&pod, &this.place, look, &this.host_volumes, this.cpus);
        let view = match wanted {
            Ok(all) => this.make(&pod, &all).await?,
            Err(faults) => {
                let why = faults.join("; ");
                let mut view = this.unread(&pod, &why).await?;
                view.note("pod", Severity::Warning, "Refused", why);
                view
            }
        };
        // Whoever waits for the pod does not wait for its events.
        this.report(&pod, &view).await?;
        for (subject, severity, reason, note) in &view.notes {
            this.tell(&pod, subject, *severity, reason, note).await;
        }
        Ok(view
            .again
            .map_or_else(Action::await_change, Action::requeue))
    }

    /// What there is of a pod that cannot be read: instances that it had before go on.
    async fn unread(&self, pod: &Pod, why: &str) -> Result<View, Trouble> {
        let mut view = View::default();
        for container in containers(pod) {
            let name = wanted::name_of(pod, &container.name);
            let owner = self.place.owner(uid(pod), &container.name);
            let present = self.present(&name, &owner).await?;
            if present.is_some() {
                view.refused = Some(why.to_owned());
            }
            let waits = || Seen::Waiting(CONFIG_ERROR, why.to_owned());
            view.seen
                .push(present.map_or_else(waits, |it| Seen::Present(Box::new(it))));
        }
        let known = pod
            .status
            .as_ref()
            .and_then(|status| status.pod_ips.as_ref());
        view.addresses = known
            .into_iter()
            .flatten()
            .map(|it| it.ip.clone())
            .collect();
        Ok(view)
    }

    /// Makes instances in their order.
    async fn make(&self, pod: &Pod, all: &[Wanted]) -> Result<View, Trouble> {
        let mut view = View {
            addresses: all.iter().flat_map(|it| it.addresses.clone()).collect(),
            ..View::default()
        };
        for wanted in all {
            let seen = self.make_one(pod, wanted, &mut view).await?;
            view.seen.push(seen);
        }
        if !view.made.is_empty() {
            // One event for all: each is a request.
            let note = format!("instances {}", view.made.join(", "));
            view.note("pod", Severity::Normal, "Started", note);
        }
        Ok(view)
    }

    async fn make_one(&self, pod: &Pod, wanted: &Wanted, view: &mut View) -> Result<Seen, Trouble> {
        let is_made = {
            let memory = self.memory();
            let made = memory
                .get(uid(pod))
                .and_then(|it| it.made.get(&wanted.container));
            made == Some(wanted)
        };
        let has_ended_for_good =
            wanted::policy(pod) == "never" && has_begun(pod, &wanted.container);
        if is_made || has_ended_for_good {
            match self.present(&wanted.name, &wanted.owner).await? {
                Some(instance) if is_made => return Ok(Seen::Present(Box::new(instance))),
                None if has_ended_for_good => {
                    return Ok(Seen::Lost(format!(
                        "the instance {} is gone, and restartPolicy is Never",
                        wanted.name
                    )));
                }
                _ => {}
            }
        }
        let made = self.daemon.create(&wanted.name, &wanted.request).await;
        let present = self.present(&wanted.name, &wanted.owner).await?;
        let error = match made {
            Ok(_) => {
                self.remember(pod, wanted);
                view.made.push(wanted.name.clone());
                let Some(instance) = present else {
                    view.look_again(SOON);
                    let why = "somebody has removed the instance";
                    return Ok(Seen::Waiting(REFUSED, why.to_owned()));
                };
                return Ok(Seen::Present(Box::new(instance)));
            }
            Err(error @ ClientError::Problem(_)) => error,
            Err(error) => return Err(error.into()),
        };
        // Whoever has the name may be about to go.
        let is_brief = may_pass(&error) || is_taken(&error);
        view.look_again(if is_brief { SOON } else { LATER });
        let why = words(&error, |path| wanted.place(path));
        view.note(&wanted.container, Severity::Warning, "Refused", why.clone());
        let Some(instance) = present else {
            return Ok(Seen::Waiting(REFUSED, why));
        };
        view.refused = Some(why);
        Ok(Seen::Present(Box::new(instance)))
    }

    /// Returns the instance `name`, if it belongs to `owner`.
    async fn present(
        &self,
        name: &str,
        owner: &str,
    ) -> Result<Option<InstanceStatus>, ClientError> {
        let instance = found(self.daemon.instance(name).await)?;
        Ok(instance.filter(|it| it.owner.as_deref() == Some(owner)))
    }

    fn remember(&self, pod: &Pod, wanted: &Wanted) {
        let mut memory = self.memory();
        let memory = memory.entry(uid(pod).to_owned()).or_default();
        memory.made.insert(wanted.container.clone(), wanted.clone());
    }

    /// Removes the instances of a pod; returns whether all are gone.
    async fn remove_instances(&self, pod: &Pod) -> Result<bool, Trouble> {
        let mut names: Vec<_> = containers(pod)
            .iter()
            .map(|it| {
                let owner = self.place.owner(uid(pod), &it.name);
                (wanted::name_of(pod, &it.name), owner)
            })
            .collect();
        if let Some(memory) = self.memory().get(uid(pod)) {
            let made = memory.made.values();
            names.extend(made.map(|it| (it.name.clone(), it.owner.clone())));
        }
        let stop = pod.metadata.deletion_grace_period_seconds.map(|seconds| {
            let wait = u64::try_from(seconds).unwrap_or(0).saturating_mul(1000);
            StopRequest {
                wait_ms: Some(wait.min(STOP_WAIT_MS_MAX)),
                ..StopRequest::default()
            }
        });
        for (name, owner) in names {
            match remove_own(&self.daemon, &name, &owner, stop.as_ref()).await {
                Ok(()) => {}
                Err(error @ ClientError::Problem(_)) => {
                    let why = words(&error, str::to_owned);
                    self.tell(pod, &name, Severity::Warning, "FailedKillPod", &why)
                        .await;
                    return Ok(false);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }

    /// Ends a pod: its instances first, then the pod itself.
    async fn end(&self, pod: &Pod) -> Result<Action, Trouble> {
        if !self.remove_instances(pod).await? {
            return Ok(Action::requeue(SOON));
        }
        self.memory().remove(uid(pod));
        delete(&self.api(pod), (&pod.name_any(), uid(pod)), Some(0)).await?;
        Ok(Action::await_change())
    }

    /// Removes instances of pods that the node no longer has, or no longer has by that name, and forgets those pods.
    ///
    /// # Errors
    /// The daemon does not answer.
    pub async fn sweep(&self) -> Result<(), Trouble> {
        let instances: Vec<InstanceStatus> = self.daemon.get("/v1/instances").await?;
        // Read after the instances: whatever is made meanwhile is not among these.
        let pods = self.store.state();
        let by_uid: HashMap<_, _> = pods.iter().map(|pod| (uid(pod), pod)).collect();
        let mut newest = None;
        for instance in instances {
            let Some(owner) = &instance.owner else {
                continue;
            };
            let Some((uid, container)) = self.place.pod_of(owner) else {
                continue;
            };
            let is_wanted = by_uid.get(uid).is_some_and(|pod| {
                if status::is_over(pod) {
                    return false;
                }
                let is_known = containers(pod).iter().any(|it| it.name == container);
                is_known && wanted::name_of(pod, container) == instance.name
            });
            if is_wanted {
                continue;
            }
            // The agent's list of pods may be older than this one: the API server's memory may be behind its store.
            if !by_uid.contains_key(uid) {
                let newest = match &mut newest {
                    Some(newest) => newest,
                    unread => unread.insert(self.newest().await?),
                };
                if newest.contains(uid) {
                    continue;
                }
            }
            match remove_own(&self.daemon, &instance.name, owner, None).await {
                Ok(()) => tracing::info!(instance = instance.name, "removed: its pod is gone"),
                Err(error @ ClientError::Problem(_)) => {
                    let why = words(&error, str::to_owned);
                    tracing::warn!(
                        instance = instance.name,
                        why,
                        "its pod is gone, but it stays"
                    );
                }
                Err(error) => return Err(error.into()),
            }
        }
        let uids: HashSet<_> = by_uid.keys().map(|uid| (*uid).to_owned()).collect();
        self.memory().retain(|uid, _| uids.contains(uid));
        self.configs.retain(&uids);
        Ok(())
    }

    /// Asks for the uids of the pods that the node has now.
    async fn newest(&self) -> Result<HashSet<String>, kube::Error> {
        let own = ListParams::default().fields(&bound_to(&self.node));
        let all = Api::<Pod>::all(self.kubernetes.clone());
        let pods = all.list_metadata(&own).await?;
        Ok(pods.into_iter().filter_map(|pod| pod.uid()).collect())
    }

    async fn report(&self, pod: &Pod, view: &View) -> Result<(), Trouble> {
        let status = status::of(pod, view, &self.address, Timestamp::now());
        if pod.status.as_ref() == Some(&status) {
            return Ok(());
        }
        let patch = patch(pod, &status);
        let done = self
            .api(pod)
            .patch_status(&pod.name_any(), &PatchParams::default(), &patch)
            .await;
        unless_gone(done)?
            .into_iter()
            .for_each(|it| self.latest.note(it));
        Ok(())
    }

    /// Tells what an event of the daemon says about a pod's instance.
    pub async fn relay(&self, pod: &Pod, container: &str, event: &nfluid_api::types::Event) {
        use nfluid_api::types::EventKind::{
            CrashLoop, Crashed, Exited, Healthy, LimitHit, Unhealthy, Warning,
        };
        let (severity, reason) = match event.kind {
            Crashed => (Severity::Warning, "Crashed"),
            CrashLoop => (Severity::Warning, "BackOff"),
            Unhealthy => (Severity::Warning, "Unhealthy"),
            LimitHit => (Severity::Warning, "LimitHit"),
            Warning => (Severity::Warning, "Warning"),
            Healthy => (Severity::Normal, "Healthy"),
            Exited => (Severity::Normal, "Exited"),
            _ => return,
        };
        self.publish(pod, container, severity, reason, &event.message)
            .await;
    }

    /// Tells something about a pod, unless it was told last of this subject.
    async fn tell(&self, pod: &Pod, subject: &str, severity: Severity, reason: &str, note: &str) {
        let said = format!("{reason}: {note}");
        {
            let mut memory = self.memory();
            let told = &mut memory.entry(uid(pod).to_owned()).or_default().told;
            if told.insert(subject.to_owned(), said.clone()) == Some(said) {
                return;
            }
        }
        self.publish(pod, subject, severity, reason, note).await;
    }

    async fn publish(
        &self,
        pod: &Pod,
        container: &str,
        severity: Severity,
        reason: &str,
        note: &str,
    ) {
        tracing::info!(pod = %ObjectRef::from_obj(pod), container, reason, note);
        if let Err(error) = self
            .events
            .tell(pod, container, severity, reason, note)
            .await
        {
            tracing::warn!(%error, "an event could not be told");
        }
    }
}

/// The whole status. What others have written into it (the scheduler's condition) is in it already.
fn patch(pod: &Pod, status: &PodStatus) -> Patch<serde_json::Value> {
    // A pod of the same name is another pod.
    Patch::Merge(json!({ "metadata": { "uid": pod.metadata.uid }, "status": status }))
}

/// Returns true if Kubernetes was told of an instance of this container.
fn has_begun(pod: &Pod, container: &str) -> bool {
    let known = pod
        .status
        .as_ref()
        .and_then(|it| it.container_statuses.as_ref());
    let mut known = known.into_iter().flatten();
    known.any(|it| it.name == container && it.container_id.is_some())
}
