//! The agent: everything that runs for a node.

use crate::cluster::{Place, bound_to};
use crate::configs::Configs;
use crate::node::{self, Host, Known, NodeLease, RENEW, Registration};
use crate::parts::Parts;
use crate::pods::{Pods, Trouble};
use crate::service::Service;
use crate::settings::Settings;
use anyhow::Context;
use futures_util::{FutureExt as _, StreamExt as _, stream};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::runtime::controller::{Action, ReconcileRequest, applier};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::{WatchStreamExt as _, controller, reflector, watcher};
use kube::{Api, ResourceExt as _};
use nfluid_api::client::{Client, ClientError};
use nfluid_api::types::{Event, Kind};
use nfluid_engine::feed::{Feed, News};
use nfluid_engine::requests::found;
use std::future::ready;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout};
use tokio_stream::wrappers::UnboundedReceiverStream;

/// Time after which a failed request is sent again.
const AGAIN: Duration = Duration::from_secs(1);
/// Interval at which the agent looks for instances without a pod.
const LOOK: Duration = Duration::from_secs(15);
/// Interval at which Kubernetes is told the node's status although nothing has changed (a kubelet's).
const REPEAT: Duration = Duration::from_secs(300);
/// Time in which Kubernetes and the daemon answer what is asked for the node (a kubelet's).
const PATIENCE: Duration = Duration::from_secs(10);
/// Pods that are worked on at a time.
const AT_A_TIME: u16 = 16;

/// Runs an agent until it is cancelled.
///
/// # Errors
/// Kubernetes does not answer at the start, or the port of the agent's service is taken.
pub async fn run(kubernetes: kube::Client, settings: Settings) -> anyhow::Result<()> {
    let daemon = Client::new(&settings.socket);
    let namespaces = Api::<Namespace>::all(kubernetes.clone());
    let system = namespaces
        .get("kube-system")
        .await
        .context("asking Kubernetes for its namespace kube-system")?;
    let place = Place::new(&system.uid().unwrap_or_default(), &settings.node);
    let cpus = wait_for_daemon(&daemon).await;

    let (changed, changes) = mpsc::unbounded_channel();
    let configs = Arc::new(Configs::new(kubernetes.clone(), changed.clone()));
    let (store, writer) = reflector::store();
    let pods = Arc::new(Pods::new(
        kubernetes.clone(),
        daemon.clone(),
        place.clone(),
        cpus,
        configs,
        store.clone(),
        &settings,
    ));
    let service = Service::open(&settings, Arc::clone(&pods)).await?;
    let host = Host {
        name: settings.node.clone(),
        address: settings.address.clone(),
        port: service.port(),
        is_open: settings.is_open,
    };
    let lease = NodeLease::new(kubernetes.clone(), settings.node.clone());
    let registration = Registration::new(kubernetes.clone(), host);
    let trouble = watch::Sender::new(None);
    let looks = mpsc::channel(1);
    let look = looks.0.clone();
    let parts = Parts::run(
        kubernetes.clone(),
        daemon.clone(),
        place,
        settings.node.clone(),
        looks,
    );
    let swept = mpsc::channel(1);

    // As a kubelet does: a list from the API server's memory, however old, costs the store nothing, and the watch brings
    // what is new. A thousand agents that lost their watches would ask the store for ever.
    let bound = watcher::Config::default()
        .any_semantic()
        .fields(&bound_to(&settings.node));
    let all = Api::<Pod>::all(kubernetes);
    let gone = swept.0.clone();
    let bound = watcher(all, bound)
        .default_backoff()
        .reflect(writer)
        .inspect(move |event| match event {
            Ok(watcher::Event::Delete(_) | watcher::Event::InitDone) => {
                // One look is due already otherwise.
                let _ = gone.try_send(());
            }
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, "watching pods"),
        });
    let bound = controller::trigger_self(
        bound
            .applied_objects()
            .filter_map(|it| ready(it.ok().map(Ok))),
        (),
    );
    let told = UnboundedReceiverStream::new(changes)
        .map(|pod| Ok::<_, watcher::Error>(ReconcileRequest::from(pod)));
    let queue = stream::select(bound, told);
    let config = controller::Config::default().concurrency(AT_A_TIME);
    let reconcile = |pod, pods| Pods::reconcile(pod, pods).boxed();
    let work = applier(
        reconcile,
        on_trouble,
        Arc::clone(&pods),
        store.clone(),
        queue,
        config,
    );
    let work = work.for_each(|_| ready(()));

    tokio::select! {
        () = work => anyhow::bail!("the watch of pods has ended"),
        () = follow(&pods, &changed, &look, &trouble) => {}
        () = parts => {}
        () = keep_told(registration, &daemon, trouble.subscribe()) => {}
        () = keep_alive(lease) => {}
        () = sweep(&pods, swept.1) => {}
        served = service.serve() => served.context("the agent's service")?,
    }
    Ok(())
}

#[expect(clippy::needless_pass_by_value, reason = "as kube-rs calls it")]
fn on_trouble(pod: Arc<Pod>, trouble: &Trouble, _: Arc<Pods>) -> Action {
    tracing::warn!(pod = %ObjectRef::from_obj(&*pod), "{trouble}");
    Action::requeue(AGAIN)
}

/// Waits until the daemon answers; returns the number of CPUs of its host's instances.
async fn wait_for_daemon(daemon: &Client) -> usize {
    let mut has_said = false;
    loop {
        match node::capacity(daemon).await {
            Ok((_, capacity)) => return capacity.cpus.len().max(1),
            Err(error) if !has_said => tracing::warn!("{error}"),
            Err(_) => {}
        }
        has_said = true;
        tokio::time::sleep(AGAIN).await;
    }
}

/// Follows the daemon's events for ever: each says which pod to look at.
async fn follow(
    pods: &Pods,
    changed: &mpsc::UnboundedSender<ObjectRef<Pod>>,
    look: &mpsc::Sender<()>,
    trouble: &watch::Sender<Option<String>>,
) {
    let mut feed = Feed::new(pods.daemon.clone());
    loop {
        let done = match feed.next().await {
            Ok(news) => take(pods, changed, look, news).await,
            Err(error) => Err(error),
        };
        let why = done.err().map(|error| error.to_string());
        let is_silent = why.is_some();
        trouble.send_if_modified(|known| {
            let is_new = *known != why;
            if let (true, Some(why)) = (is_new, &why) {
                tracing::warn!("{why}");
            }
            *known = why;
            is_new
        });
        if is_silent {
            feed.begin_again();
            tokio::time::sleep(AGAIN).await;
        }
    }
}

async fn take(
    pods: &Pods,
    changed: &mpsc::UnboundedSender<ObjectRef<Pod>>,
    look: &mpsc::Sender<()>,
    news: News,
) -> Result<(), ClientError> {
    let (events, everything) = match news {
        News::Begun => (Vec::new(), true),
        News::Events { events, has_gap } => (events, has_gap),
    };
    let is_of_parts = |event: &Event| matches!(event.object, Some(Kind::Uplink | Kind::Switch));
    if everything || events.iter().any(is_of_parts) {
        // One look is due already otherwise.
        let _ = look.try_send(());
    }
    if everything {
        for pod in pods.store.state() {
            let _agent_ends = changed.send(ObjectRef::from_obj(&*pod));
        }
    }
    for event in events {
        relay(pods, changed, &event).await?;
    }
    Ok(())
}

async fn relay(
    pods: &Pods,
    changed: &mpsc::UnboundedSender<ObjectRef<Pod>>,
    event: &Event,
) -> Result<(), ClientError> {
    if event.object != Some(Kind::Instance) {
        return Ok(());
    }
    let found = match pods.named(&event.name) {
        Some(found) => Some(found),
        // Made by an earlier agent.
        None => {
            found(pods.daemon.instance(&event.name).await)?.and_then(|it| pods.of_instance(&it))
        }
    };
    if let Some((pod, container)) = found {
        pods.relay(&pod, &container, event).await;
        let _agent_ends = changed.send(ObjectRef::from_obj(&*pod));
    }
    Ok(())
}

/// This task tells Kubernetes what the node has, and whether its daemon answers.
async fn keep_told(
    mut registration: Registration,
    daemon: &Client,
    mut trouble: watch::Receiver<Option<String>>,
) {
    let mut told = None::<Instant>;
    loop {
        let known: Known = match timeout(PATIENCE, node::capacity(daemon)).await {
            Ok(known) => known.map_err(|error| error.to_string()),
            Err(_) => Err(format!(
                "the daemon has not answered for {} s",
                PATIENCE.as_secs()
            )),
        };
        let again = told.is_none_or(|it| it.elapsed() >= REPEAT);
        match timely(registration.tell(&known, again)).await {
            Ok(()) if again => told = Some(Instant::now()),
            Ok(()) => {}
            Err(why) => {
                told = None;
                tracing::warn!(why, "telling Kubernetes about the node");
            }
        }
        let pause = if told.is_some() { RENEW } else { AGAIN };
        tokio::select! {
            _ = trouble.changed() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// This task renews the node's lease, by which Kubernetes knows that the node lives.
async fn keep_alive(mut lease: NodeLease) {
    loop {
        let pause = match timely(lease.renew()).await {
            Ok(()) => RENEW,
            Err(why) => {
                tracing::warn!(why, "renewing the node's lease");
                AGAIN
            }
        };
        tokio::time::sleep(pause).await;
    }
}

/// Waits for an answer of Kubernetes, but not for ever: the next request may go to another server.
async fn timely(answer: impl Future<Output = kube::Result<()>>) -> Result<(), String> {
    match timeout(PATIENCE, answer).await {
        Ok(answer) => answer.map_err(|error| error.to_string()),
        Err(_) => Err(format!("no answer for {} s", PATIENCE.as_secs())),
    }
}

/// Looks for ever for instances whose pods are gone: when a pod is gone, and now and then.
async fn sweep(pods: &Pods, mut gone: mpsc::Receiver<()>) {
    if pods.store.wait_until_ready().await.is_err() {
        return;
    }
    loop {
        if let Err(error) = pods.sweep().await {
            tracing::debug!(%error, "looking for instances without a pod");
        }
        tokio::select! {
            _ = gone.recv() => {}
            () = tokio::time::sleep(LOOK) => {}
        }
    }
}
