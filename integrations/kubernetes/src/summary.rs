//! Switches and uplinks say on how many of their nodes they are ready. The controller counts this from the annotations that agents write at their nodes.

use crate::cluster::unless_gone;
use crate::controller::{AGAIN, ready_condition};
use crate::crds::parts::{Part, READY, REASONS_MAX, SAID, Said, States};
use crate::latest::Latest;
use crate::node::NODE;
use futures_util::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::core::PartialObjectMeta;
use kube::runtime::controller::{Action, Config, Controller};
use kube::runtime::reflector::Store;
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;
use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

/// Time for which changes are collected: a thousand agents say something within a second, and what is told of it goes to all of them.
const PAUSE: Duration = Duration::from_millis(500);

/// The nodes that there are, as far as their labels and annotations go.
pub type Nodes = Store<PartialObjectMeta<Node>>;

/// A turn has this at hand.
struct Context<P> {
    client: Client,
    nodes: Nodes,
    /// Objects as this controller has told them last.
    latest: Latest<P>,
}

/// Looks after objects of a kind, until it is cancelled. `changed` has an item for each change of the nodes.
pub async fn control<P: Part>(
    client: Client,
    nodes: Nodes,
    changed: impl stream::Stream<Item = ()> + Send + Sync + 'static,
) {
    if nodes.wait_until_ready().await.is_err() {
        return;
    }
    let all = Api::<P>::all(client.clone());
    let work = Controller::new(all, watcher::Config::default())
        .with_config(Config::default().debounce(PAUSE))
        .reconcile_all_on(changed)
        .run(
            reconcile::<P>,
            on_error,
            Arc::new(Context {
                client,
                nodes,
                latest: Latest::default(),
            }),
        );
    work.for_each(|_| ready(())).await;
}

#[expect(clippy::needless_pass_by_value, reason = "as kube-rs calls it")]
fn on_error<P: Part>(part: Arc<P>, error: &kube::Error, _: Arc<Context<P>>) -> Action {
    tracing::warn!(kind = %P::kind(&()), name = part.name_any(), %error);
    Action::requeue(AGAIN)
}

async fn reconcile<P: Part>(part: Arc<P>, context: Arc<Context<P>>) -> Result<Action, kube::Error> {
    let part = context.latest.newer(part);
    let states = states(&*part, &context.nodes.state(), Timestamp::now());
    if part.states() == Some(&states) {
        return Ok(Action::await_change());
    }
    let mut told = json!(states);
    // Reasons that there are no longer.
    for node in part.states().iter().flat_map(|it| it.reasons.keys()) {
        if !states.reasons.contains_key(node) {
            told["reasons"][node] = serde_json::Value::Null;
        }
    }
    let patch = Patch::Merge(json!({ "metadata": { "uid": part.meta().uid }, "status": told }));
    let all = Api::<P>::all(context.client.clone());
    let done = all
        .patch_status(&part.name_any(), &PatchParams::default(), &patch)
        .await;
    unless_gone(done)?
        .into_iter()
        .for_each(|it| context.latest.note(it));
    Ok(Action::await_change())
}

/// Returns what is to be told of an object.
fn states<P: Part>(part: &P, nodes: &[Arc<PartialObjectMeta<Node>>], now: Timestamp) -> States {
    let generation = part.meta().generation.unwrap_or_default();
    let mut states = States::default();
    let (mut why, mut more) = (None, 0);
    let is_nfluids = |node: &&Arc<PartialObjectMeta<Node>>| node.labels().contains_key(NODE);
    for node in nodes.iter().filter(is_nfluids) {
        if !part.is_on(node.labels()) {
            continue;
        }
        states.wanted += 1;
        let said = node.annotations().get(SAID);
        let said = said.and_then(|it| serde_json::from_str::<Said>(it).ok());
        let mut said = said.unwrap_or_default();
        let saying = said
            .remove(&part.key())
            .filter(|it| Some(&it.uid) == part.meta().uid.as_ref());
        let reason = match saying {
            Some(saying) if saying.state != READY => saying.state,
            Some(saying) if saying.generation == generation => {
                states.ready += 1;
                continue;
            }
            Some(_) => "it is changed".to_owned(),
            None => "its agent has said nothing yet".to_owned(),
        };
        let name = node.name_any();
        if why.is_some() {
            more += 1;
        } else {
            why = Some(format!("{name}: {reason}"));
        }
        if states.reasons.len() < REASONS_MAX {
            states.reasons.insert(name, reason);
        }
    }
    if states.wanted == 0 {
        why = Some("no node has it".to_owned());
    }
    if let (Some(why), 1..) = (&mut why, more) {
        why.push_str(&format!(" (and {more} more nodes)"));
    }
    let before = part
        .states()
        .and_then(|it| it.conditions.iter().find(|it| it.type_ == "Ready"));
    states.conditions = vec![ready_condition(before, why, generation, now)];
    states
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crds::parts::{Saying, Switch, SwitchSpec};

    fn object(selector: &[(&str, &str)]) -> Switch {
        let selector = selector
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let mut object = Switch::new(
            "lan",
            SwitchSpec {
                node_selector: selector.collect(),
                ..SwitchSpec::default()
            },
        );
        object.metadata.uid = Some("u".to_owned());
        object.metadata.generation = Some(2);
        object
    }

    /// A node of nfluid, whose agent says this of the object with that uid.
    fn node(name: &str, said: Option<(&str, i64, &str)>) -> Arc<PartialObjectMeta<Node>> {
        let said = said.map(|(uid, generation, state)| {
            let saying = Saying {
                uid: uid.to_owned(),
                generation,
                state: state.to_owned(),
            };
            json!(Said::from([("switches/lan".to_owned(), saying)])).to_string()
        });
        let labels = json!({ NODE: "true", "site": "a" });
        let node = json!({ "metadata": { "name": name, "labels": labels, "annotations": { SAID: said.unwrap_or_default() } } });
        Arc::new(serde_json::from_value(node).expect("a node"))
    }

    // promise: 26.8
    #[test]
    fn an_object_is_ready_where_all_its_nodes_have_it_as_it_is_now() {
        let summary = |nodes: &[_]| {
            let states = states(&object(&[]), nodes, Timestamp::now());
            let condition = &states.conditions[0];
            assert_eq!(condition.status == "True", condition.message.is_empty());
            (states.ready, states.wanted, condition.message.clone())
        };
        let fine = || node("a", Some(("u", 2, READY)));
        assert_eq!(
            summary(&[fine(), node("b", Some(("u", 2, READY)))]),
            (2, 2, String::new())
        );
        for (said, why) in [
            (Some(("u", 1, READY)), "b: it is changed"),
            (Some(("u", 2, "no such interface")), "b: no such interface"),
            (
                Some(("earlier", 2, READY)),
                "b: its agent has said nothing yet",
            ),
            (None, "b: its agent has said nothing yet"),
        ] {
            assert_eq!(summary(&[fine(), node("b", said)]), (1, 2, why.to_owned()));
        }
        assert_eq!(summary(&[]), (0, 0, "no node has it".to_owned()));
        let mut other = (*node("b", None)).clone();
        other.metadata.labels = None;
        assert_eq!(
            summary(&[fine(), Arc::new(other)]),
            (1, 1, String::new()),
            "it is not nfluid's"
        );
    }

    // promise: 26.8
    #[test]
    fn a_thousand_nodes_make_no_long_state() {
        let nodes: Vec<_> = (0..1000).map(|at| node(&format!("n{at}"), None)).collect();
        let told = states(&object(&[("site", "a")]), &nodes, Timestamp::now());
        assert_eq!(
            (told.ready, told.wanted, told.reasons.len()),
            (0, 1000, REASONS_MAX)
        );
        assert!(told.conditions[0].message.ends_with("(and 999 more nodes)"));
        assert!(json!(told).to_string().len() < 2000);
        let elsewhere = states(&object(&[("site", "b")]), &nodes, Timestamp::now());
        assert_eq!(elsewhere.wanted, 0);
    }

    #[test]
    fn nothing_is_told_twice() {
        let nodes = [node("a", Some(("u", 2, READY)))];
        let mut object = object(&[]);
        object.status = Some(states(&object, &nodes, Timestamp::now()));
        let later = Timestamp::now() + Duration::from_secs(5);
        assert_eq!(Some(states(&object, &nodes, later)), object.status);
    }
}
