//! The pods of the objects that the controller looks after, as a watch tells them. Asked for in each turn, they would cost the API server a look at all pods of
//! the namespace.
//!
//! The watch tells of a change a moment later. A turn that acts on an old state does no harm: it removes pods by their uids, and the pods that it makes are known at once.

use crate::child::Child;
use crate::render::KIND;
use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::mem::{replace, take};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{mpsc, watch};

/// Namespace and name of an object.
pub type Place = (String, String);

#[derive(Debug)]
struct Family {
    of: Place,
    /// By uid.
    pods: BTreeMap<String, Arc<Child>>,
}

impl Family {
    fn of(place: Place) -> Self {
        Family {
            of: place,
            pods: BTreeMap::new(),
        }
    }
}

#[derive(Debug, Default)]
struct State {
    /// By uid of the object.
    families: HashMap<String, Family>,
    /// The pods of a list that is not complete yet.
    listed: HashMap<String, Family>,
    /// Pods that the controller has made and the watch has not told yet, by uid.
    made: HashMap<String, Made>,
    /// Pods that are being made.
    making: usize,
    /// The uids of pods that have gone meanwhile: an answer may come later than the watch's word of the pod's end.
    gone: BTreeSet<String>,
}

/// A pod is being made.
#[derive(Debug)]
pub struct Making<'a>(&'a Children);

impl Making<'_> {
    /// Notes the pod that was made, for the object with the uid `owner`.
    pub fn note(&self, owner: &str, pod: &Pod) {
        let child = Arc::new(Child::of(pod));
        let mut state = self.0.state();
        let family = state.families.get(owner);
        let is_known = family.is_some_and(|family| family.pods.contains_key(&child.uid));
        if is_known || state.gone.contains(&child.uid) {
            return;
        }
        let made = Made {
            owner: owner.to_owned(),
            child,
            is_in_lists: false,
        };
        state.made.insert(made.child.uid.clone(), made);
    }
}

impl Drop for Making<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.making -= 1;
        if state.making == 0 {
            state.gone.clear();
        }
    }
}

/// A pod that the controller has made.
#[derive(Debug)]
struct Made {
    /// The uid of its object.
    owner: String,
    child: Arc<Child>,
    /// A list has begun since: if it has not the pod, the pod is gone.
    is_in_lists: bool,
}

/// The pods of all objects of a kind.
#[derive(Debug)]
pub struct Children {
    kind: String,
    state: Mutex<State>,
    is_ready: watch::Sender<bool>,
    /// The objects whose pods have changed.
    changed: mpsc::UnboundedSender<Place>,
}

impl Children {
    /// Creates the pods of objects of the kind `kind`, of which nothing is known yet. What has changed goes to `changed`.
    pub fn new(kind: &str, changed: mpsc::UnboundedSender<Place>) -> Self {
        Children {
            kind: kind.to_owned(),
            state: Mutex::default(),
            is_ready: watch::Sender::new(false),
            changed,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the pods of an object, in the order of their uids.
    pub fn of(&self, uid: &str) -> Vec<Arc<Child>> {
        let state = self.state();
        let pods = state.families.get(uid).map(|family| &family.pods);
        let mut all: Vec<_> = pods
            .into_iter()
            .flat_map(|it| it.values().cloned())
            .collect();
        let made = state.made.values().filter(|made| made.owner == uid);
        all.extend(made.map(|made| Arc::clone(&made.child)));
        all.sort_by(|one, other| one.uid.cmp(&other.uid));
        all
    }

    /// Notes what Kubernetes has answered to a change of a pod: it is known before the watch tells of it.
    pub fn note(&self, pod: &Pod) {
        let Some((owner, _)) = self.owner(pod) else {
            return;
        };
        let mut state = self.state();
        let child = Arc::new(Child::of(pod));
        if let Some(made) = state.made.get_mut(&child.uid) {
            made.child = child;
            return;
        }
        let family = state.families.get_mut(&owner);
        // A pod that is not known any more is gone.
        if let Some(known) = family.and_then(|family| family.pods.get_mut(&child.uid))
            && child.version > known.version
        {
            *known = child;
        }
    }

    /// Begins to make a pod. The answer must be noted before the result is dropped.
    pub fn begin(&self) -> Making<'_> {
        self.state().making += 1;
        Making(self)
    }

    /// Waits until all pods are known.
    pub async fn wait_until_ready(&self) {
        let mut is_ready = self.is_ready.subscribe();
        // The sender lives as long as this.
        let _ready = is_ready.wait_for(|it| *it).await;
    }

    /// Follows the pods for ever.
    pub async fn follow(&self, client: Client) {
        let of_kind = watcher::Config::default().labels(&format!("{KIND}={}", self.kind));
        let events = watcher(Api::<Pod>::all(client), of_kind).default_backoff();
        let mut events = pin!(events);
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => self.take(event),
                Err(error) => tracing::warn!(%error, "watching pods"),
            }
        }
    }

    fn take(&self, event: watcher::Event<Pod>) {
        let mut state = self.state();
        let State {
            families,
            listed,
            made,
            making,
            gone,
        } = &mut *state;
        if let watcher::Event::InitApply(pod)
        | watcher::Event::Apply(pod)
        | watcher::Event::Delete(pod) = &event
        {
            let uid = pod.uid().unwrap_or_default();
            let noted = made.remove(&uid).map(|made| made.child);
            // What was noted may be more than what the watch tells now.
            if let (Some(noted), watcher::Event::Apply(_)) = (noted, &event)
                && let Some((owner, place)) = self.owner(pod)
            {
                let family = families.entry(owner).or_insert_with(|| Family::of(place));
                family.pods.insert(uid, noted);
            }
        }
        match event {
            watcher::Event::Init => {
                listed.clear();
                made.values_mut().for_each(|it| it.is_in_lists = true);
            }
            watcher::Event::InitApply(pod) => {
                self.put(listed, &pod);
            }
            watcher::Event::InitDone => {
                made.retain(|_, it| !it.is_in_lists);
                let before = replace(families, take(listed));
                let objects = before.values().chain(families.values());
                let objects: BTreeSet<_> = objects.map(|family| family.of.clone()).collect();
                objects.into_iter().for_each(|it| self.tell(it));
                self.is_ready.send_replace(true);
            }
            watcher::Event::Apply(pod) => {
                let place = self.put(families, &pod);
                place.into_iter().for_each(|it| self.tell(it));
            }
            watcher::Event::Delete(pod) => {
                if *making > 0 {
                    gone.extend(pod.uid());
                }
                let Some((owner, place)) = self.owner(&pod) else {
                    return;
                };
                if let Some(family) = families.get_mut(&owner) {
                    family.pods.remove(pod.uid().as_deref().unwrap_or_default());
                    if family.pods.is_empty() {
                        families.remove(&owner);
                    }
                }
                self.tell(place);
            }
        }
    }

    fn tell(&self, place: Place) {
        // Nobody listens when the controller ends.
        let _ends = self.changed.send(place);
    }

    fn put(&self, families: &mut HashMap<String, Family>, pod: &Pod) -> Option<Place> {
        let (owner, place) = self.owner(pod)?;
        let family = families
            .entry(owner)
            .or_insert_with(|| Family::of(place.clone()));
        let child = Child::of(pod);
        let known = family.pods.get(&child.uid);
        if known.is_none_or(|known| known.version <= child.version) {
            family.pods.insert(child.uid.clone(), Arc::new(child));
        }
        Some(place)
    }

    /// Returns the uid of the object that a pod is of, and its place.
    fn owner(&self, pod: &Pod) -> Option<(String, Place)> {
        let mut owners = pod.owner_references().iter();
        let owner = owners.find(|it| it.kind == self.kind)?;
        let place = (pod.namespace()?, owner.name.clone());
        Some((owner.uid.clone(), place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use watcher::Event::{Apply, Delete, Init, InitApply, InitDone};

    fn pod(uid: &str, owner: &str) -> Pod {
        let owner = json!({ "apiVersion": "v", "kind": "ServiceChain", "name": format!("chain-{owner}"), "uid": owner });
        let pod = json!({ "metadata": { "name": uid, "namespace": "n", "uid": uid, "ownerReferences": [owner] } });
        serde_json::from_value(pod).expect("a pod")
    }

    // promise: 26.10
    #[test]
    fn pods_are_known_by_their_object_and_each_change_tells_which() {
        let (changed, mut changes) = mpsc::unbounded_channel();
        let children = Children::new("ServiceChain", changed);
        let names = |owner: &str| -> Vec<String> {
            children
                .of(owner)
                .iter()
                .map(|pod| pod.name.clone())
                .collect()
        };
        let mut told = || {
            let mut all = Vec::new();
            while let Ok((_, name)) = changes.try_recv() {
                all.push(name);
            }
            all.sort();
            all
        };
        children.take(Init);
        children.take(InitApply(pod("p1", "a")));
        assert!(names("a").is_empty(), "the list is not complete");
        assert!(!*children.is_ready.borrow());
        children.take(InitDone);
        assert!(*children.is_ready.borrow());
        assert_eq!(
            (names("a"), told()),
            (vec!["p1".to_owned()], vec!["chain-a".to_owned()])
        );
        children.take(Apply(pod("p2", "a")));
        children.take(Apply(pod("p3", "b")));
        children.take(Delete(pod("p1", "a")));
        assert_eq!(names("a"), ["p2"]);
        assert_eq!(told(), ["chain-a", "chain-a", "chain-b"]);
        // A watch that was interrupted: what has gone meanwhile is gone, and its object is told of.
        children.take(Init);
        children.take(InitApply(pod("p4", "c")));
        assert_eq!(names("a"), ["p2"], "still the old state");
        children.take(InitDone);
        assert!(names("a").is_empty() && names("b").is_empty());
        assert_eq!(told(), ["chain-a", "chain-b", "chain-c"]);
        children.take(Apply(Pod::default()));
        assert!(told().is_empty(), "it is of no object");
    }

    // promise: 26.10
    #[test]
    fn what_was_changed_is_known_though_the_watch_tells_older_things() {
        let (changed, _changes) = mpsc::unbounded_channel();
        let children = Children::new("ServiceChain", changed);
        let state = |version: &str, image: &str| {
            let mut pod = pod("p1", "a");
            pod.metadata.resource_version = Some(version.to_owned());
            pod.metadata.annotations = Some([("image".to_owned(), image.to_owned())].into());
            pod
        };
        let image = || children.of("a")[0].annotations["image"].clone();
        [Init, InitDone]
            .into_iter()
            .for_each(|it| children.take(it));
        // Changed before the watch has told of it at all, and after.
        children.begin().note("a", &state("1", "made"));
        children.note(&state("3", "changed"));
        assert_eq!(image(), "changed");
        children.take(Apply(state("1", "made")));
        children.take(Apply(state("2", "bound")));
        assert_eq!(image(), "changed");
        children.note(&state("5", "again"));
        children.take(Apply(state("3", "changed")));
        assert_eq!(image(), "again");
        children.take(Apply(state("10", "later")));
        children.note(&state("5", "again"));
        assert_eq!(image(), "later");
        children.take(Delete(state("11", "later")));
        children.note(&state("5", "again"));
        assert!(children.of("a").is_empty());
    }

    // promise: 26.10
    #[test]
    fn what_was_made_is_known_until_the_watch_tells_more() {
        let (changed, _changes) = mpsc::unbounded_channel();
        let children = Children::new("ServiceChain", changed);
        let names = || {
            children
                .of("a")
                .iter()
                .map(|it| it.name.clone())
                .collect::<Vec<_>>()
        };
        let make = |name| children.begin().note("a", &pod(name, "a"));
        [Init, InitDone]
            .into_iter()
            .for_each(|it| children.take(it));
        make("p1");
        assert!(children.of("b").is_empty());
        children.take(Apply(pod("p2", "a")));
        assert_eq!(names(), ["p1", "p2"]);
        children.take(Apply(pod("p1", "a")));
        assert_eq!(names(), ["p1", "p2"]);
        children.take(Delete(pod("p1", "a")));
        // The answer comes later than the watch's word.
        make("p2");
        assert_eq!(names(), ["p2"]);
        let making = children.begin();
        children.take(Delete(pod("p2", "a")));
        making.note("a", &pod("p2", "a"));
        drop(making);
        assert!(names().is_empty());
        assert!(children.state().gone.is_empty());
        // A watch that was interrupted: p3 was removed meanwhile, p4 was made during the list.
        make("p3");
        children.take(Init);
        make("p4");
        assert_eq!(names(), ["p3", "p4"], "the list is not complete");
        children.take(InitDone);
        assert_eq!(names(), ["p4"]);
        // What the watch tells of nothing else makes p4 no older.
        children.take(Init);
        children.take(InitApply(pod("p4", "a")));
        children.take(InitDone);
        children.take(Delete(pod("p4", "a")));
        assert!(names().is_empty());
    }
}
