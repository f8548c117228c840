//! Tells whether switches and uplinks are ready on all their nodes, and forgets nodes that are gone.

use crate::cluster::unless_gone;
use crate::controller::{AGAIN, ready_condition};
use crate::crds::parts::{Part, READY, States};
use futures_util::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::core::PartialObjectMeta;
use kube::runtime::controller::{Action, Controller};
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use std::future::ready;
use std::sync::Arc;

/// What the controller knows.
struct Context {
    client: Client,
    /// The nodes that there are, as far as their names go.
    nodes: Store<PartialObjectMeta<Node>>,
}

/// Looks after objects of a kind, until it is cancelled. `gone` has an item for each change of the nodes.
pub async fn control<P: Part>(
    client: Client,
    nodes: Store<PartialObjectMeta<Node>>,
    gone: impl stream::Stream<Item = ()> + Send + Sync + 'static,
) {
    if nodes.wait_until_ready().await.is_err() {
        return;
    }
    let all = Api::<P>::all(client.clone());
    let work = Controller::new(all, watcher::Config::default())
        .reconcile_all_on(gone)
        .run(
            reconcile::<P>,
            on_error,
            Arc::new(Context { client, nodes }),
        );
    work.for_each(|_| ready(())).await;
}

#[expect(clippy::needless_pass_by_value, reason = "as kube-rs calls it")]
fn on_error<P: Part>(part: Arc<P>, error: &kube::Error, _: Arc<Context>) -> Action {
    tracing::warn!(kind = %P::kind(&()), name = part.name_any(), %error);
    Action::requeue(AGAIN)
}

async fn reconcile<P: Part>(part: Arc<P>, context: Arc<Context>) -> Result<Action, kube::Error> {
    let states = part.states().cloned().unwrap_or_default();
    let is_there = |node: &str| context.nodes.get(&ObjectRef::new(node)).is_some();
    let generation = part.meta().generation.unwrap_or_default();
    let Some(patch) = patch(&states, generation, is_there, Timestamp::now()) else {
        return Ok(Action::await_change());
    };
    let patch = json!({ "metadata": { "uid": part.meta().uid }, "status": patch });
    let all = Api::<P>::all(context.client.clone());
    let patch = Patch::Merge(patch);
    let done = all
        .patch_status(&part.name_any(), &PatchParams::default(), &patch)
        .await;
    unless_gone(done)?;
    Ok(Action::await_change())
}

/// Returns what has to be changed of the states of an object; `None`: nothing.
fn patch(
    states: &States,
    generation: i64,
    is_there: impl Fn(&str) -> bool,
    now: Timestamp,
) -> Option<Value> {
    let mut why = None;
    let (mut lost, mut count) = (Vec::new(), 0);
    for (node, state) in &states.nodes {
        if !is_there(node) {
            lost.push(node);
            continue;
        }
        count += 1;
        let is_current = states.generations.get(node) == Some(&generation);
        if state != READY {
            why.get_or_insert(format!("{node}: {state}"));
        } else if !is_current {
            why.get_or_insert(format!("{node}: it is changed"));
        }
    }
    if count == 0 {
        why.get_or_insert("no node has it".to_owned());
    }
    let before = states.conditions.iter().find(|it| it.type_ == "Ready");
    let condition = ready_condition(before, why, generation, now);
    if lost.is_empty() && before == Some(&condition) {
        return None;
    }
    let nothing: serde_json::Map<_, _> = lost
        .into_iter()
        .map(|node| (node.clone(), Value::Null))
        .collect();
    Some(json!({ "nodes": nothing, "generations": nothing, "conditions": [condition] }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn states(nodes: &[(&str, &str, i64)]) -> States {
        let mut states = States::default();
        for (node, state, generation) in nodes {
            states.nodes.insert((*node).to_owned(), (*state).to_owned());
            states.generations.insert((*node).to_owned(), *generation);
        }
        states
    }

    // promise: 26.8
    #[test]
    fn an_object_is_ready_where_all_its_nodes_have_it_as_it_is_now() {
        let summary = |nodes: &[_]| {
            let patch = patch(&states(nodes), 2, |node| node != "gone", Timestamp::now());
            let patch = patch.expect("it has no condition");
            let condition = &patch["conditions"][0];
            (
                condition["status"].clone(),
                condition["message"].clone(),
                patch["nodes"].clone(),
            )
        };
        let fine = ("a", READY, 2);
        assert_eq!(
            summary(&[fine, ("b", READY, 2)]),
            (json!("True"), json!(""), json!({}))
        );
        assert_eq!(summary(&[fine, ("b", READY, 1)]).1, "b: it is changed");
        assert_eq!(
            summary(&[fine, ("b", "no such interface", 2)]).1,
            "b: no such interface"
        );
        assert_eq!(summary(&[]).1, "no node has it");
        assert_eq!(
            summary(&[fine, ("gone", "x", 2)]),
            (json!("True"), json!(""), json!({ "gone": null }))
        );
    }

    #[test]
    fn nothing_is_told_twice() {
        let mut states = states(&[("a", READY, 1)]);
        let told = patch(&states, 1, |_| true, Timestamp::now()).expect("it is new");
        states.conditions = serde_json::from_value(told["conditions"].clone()).expect("conditions");
        assert_eq!(patch(&states, 1, |_| true, Timestamp::now()), None);
    }
}
