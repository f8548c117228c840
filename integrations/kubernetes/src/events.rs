//! Events of pods, as `kubectl describe pod` shows them.
//!
//! kube-rs has a recorder, which counts events of one reason as one and keeps the text of the first: a second refusal would show the first's text.

use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::{Api, Client, Resource as _, ResourceExt as _};

/// The program, as a reporter of events.
const REPORTER: &str = "nfluid-kubernetes";
/// Maximum length of an event's text in characters; Kubernetes allows 1024 bytes.
const NOTE_CHARS_MAX: usize = 250;

/// How an event is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// Something that was to happen.
    Normal,
    /// Something to look at.
    Warning,
}

/// Where events are told.
pub struct Events {
    client: Client,
    node: String,
}

impl Events {
    /// Creates the events of a node.
    pub fn new(client: Client, node: String) -> Self {
        Events { client, node }
    }

    /// Tells an event of a pod's container.
    ///
    /// # Errors
    /// Kubernetes refuses, or does not answer.
    pub async fn tell(
        &self,
        pod: &Pod,
        container: &str,
        severity: Severity,
        reason: &str,
        note: &str,
    ) -> kube::Result<()> {
        let namespace = pod.namespace().unwrap_or_default();
        let regarding = ObjectReference {
            field_path: Some(format!("spec.containers{{{container}}}")),
            ..pod.object_ref(&())
        };
        let event = Event {
            metadata: ObjectMeta {
                generate_name: Some(format!("{}-", pod.name_any())),
                namespace: Some(namespace.clone()),
                ..ObjectMeta::default()
            },
            action: Some("Reconcile".to_owned()),
            event_time: Some(MicroTime(Timestamp::now())),
            note: Some(short(container, note)),
            reason: Some(reason.to_owned()),
            regarding: Some(regarding),
            reporting_controller: Some(REPORTER.to_owned()),
            reporting_instance: Some(self.node.clone()),
            type_: Some(format!("{severity:?}")),
            ..Event::default()
        };
        let events = Api::<Event>::namespaced(self.client.clone(), &namespace);
        events
            .create(&PostParams::default(), &event)
            .await
            .map(drop)
    }
}

fn short(container: &str, note: &str) -> String {
    let all = format!("{container}: {note}");
    let mut characters = all.chars();
    let mut text: String = characters.by_ref().take(NOTE_CHARS_MAX).collect();
    if characters.next().is_some() {
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_shorter_than_kubernetes_allows() {
        assert_eq!(short("fw", "no memory"), "fw: no memory");
        let long = short("fw", &"ä€𝄞".repeat(1000));
        assert!(long.len() <= 1024 && long.ends_with('…'));
    }
}
