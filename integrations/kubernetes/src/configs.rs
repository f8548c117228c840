//! The ConfigMaps and Secrets that pods of the node refer to. Each is watched by its name: a node may read no others.

use crate::cluster::uid;
use crate::files::{Data, Kind, Reference};
use futures_util::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// An object, by its namespace.
type Key = (String, Reference);

/// The data of an object, or that there is no such object; `None`: the object was not read yet.
type Known = Option<Option<Data>>;

#[derive(Debug)]
struct Watched {
    known: Known,
    /// The pods that refer to it, by uid.
    users: HashMap<String, ObjectRef<Pod>>,
    watch: JoinHandle<()>,
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

/// The objects that are watched.
pub struct Configs {
    client: Client,
    all: Mutex<BTreeMap<Key, Watched>>,
    /// The channel that gets the pods whose objects have changed.
    changed: mpsc::UnboundedSender<ObjectRef<Pod>>,
}

impl Configs {
    /// Creates a table without objects, which tells `changed` about pods whose objects have changed.
    pub fn new(client: Client, changed: mpsc::UnboundedSender<ObjectRef<Pod>>) -> Self {
        Configs {
            client,
            all: Mutex::default(),
            changed,
        }
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<Key, Watched>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches the objects that a pod refers to. Returns true if all of them were read; else the pod is told of later.
    pub fn watch(self: &Arc<Self>, pod: &Pod, references: &[Reference]) -> bool {
        let namespace = pod.namespace().unwrap_or_default();
        let mut all = self.all();
        let mut are_known = true;
        for reference in references {
            let key = (namespace.clone(), reference.clone());
            let watched = all.entry(key.clone()).or_insert_with(|| Watched {
                known: None,
                users: HashMap::new(),
                watch: tokio::spawn(Arc::clone(self).follow(key)),
            });
            let user = ObjectRef::from_obj(pod);
            watched.users.insert(uid(pod).to_owned(), user);
            are_known &= watched.known.is_some();
        }
        are_known
    }

    /// Returns the data of an object; `None`: there is no such object.
    pub fn data(&self, namespace: &str, reference: &Reference) -> Option<Data> {
        let key = (namespace.to_owned(), reference.clone());
        self.all().get(&key)?.known.clone().flatten()
    }

    /// Forgets pods other than these, and the objects that no pod refers to any more.
    pub fn retain(&self, uids: &HashSet<String>) {
        self.all().retain(|_, watched| {
            watched.users.retain(|uid, _| uids.contains(uid));
            !watched.users.is_empty()
        });
    }

    async fn follow(self: Arc<Self>, key: Key) {
        let (namespace, reference) = &key;
        let fields =
            watcher::Config::default().fields(&format!("metadata.name={}", reference.name));
        let client = self.client.clone();
        match reference.kind {
            Kind::ConfigMap => {
                let api = Api::<ConfigMap>::namespaced(client, namespace);
                let data = |object: ConfigMap| {
                    let texts = object.data.unwrap_or_default().into_iter();
                    let texts = texts.map(|(key, text)| (key, text.into_bytes()));
                    let bytes = object.binary_data.unwrap_or_default().into_iter();
                    texts
                        .chain(bytes.map(|(key, bytes)| (key, bytes.0)))
                        .collect()
                };
                self.keep(&key, watcher(api, fields), data).await;
            }
            Kind::Secret => {
                let api = Api::<Secret>::namespaced(client, namespace);
                let data = |object: Secret| {
                    let bytes = object.data.unwrap_or_default().into_iter();
                    bytes.map(|(key, bytes)| (key, bytes.0)).collect()
                };
                self.keep(&key, watcher(api, fields), data).await;
            }
        }
    }

    /// Keeps what a watch of one object tells.
    async fn keep<K>(
        &self,
        key: &Key,
        events: impl Stream<Item = watcher::Result<watcher::Event<K>>> + Send,
        data: impl Fn(K) -> Data,
    ) {
        let mut events = std::pin::pin!(events.default_backoff());
        let mut found = None;
        while let Some(event) = events.next().await {
            match event {
                Ok(watcher::Event::Init) => found = None,
                Ok(watcher::Event::InitApply(object)) => found = Some(data(object)),
                Ok(watcher::Event::InitDone) => self.note(key, found.take()),
                Ok(watcher::Event::Apply(object)) => self.note(key, Some(data(object))),
                Ok(watcher::Event::Delete(_)) => self.note(key, None),
                Err(error) => {
                    let (namespace, Reference { kind, name }) = key;
                    tracing::warn!(namespace, name, %error, "watching a {}", kind.name());
                }
            }
        }
    }

    fn note(&self, key: &Key, data: Option<Data>) {
        let mut all = self.all();
        let Some(watched) = all.get_mut(key) else {
            return;
        };
        let data = Some(data);
        if watched.known == data {
            return;
        }
        watched.known = data;
        for user in watched.users.values() {
            // Nobody listens while the agent ends.
            let _ = self.changed.send(user.clone());
        }
    }
}
