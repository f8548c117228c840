//! From what the daemon says of the instances to the status of their pod.

use crate::cluster::containers;
use crate::events::Severity;
use crate::wanted;
use k8s_openapi::api::core::v1::{
    ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting,
    ContainerStatus, HostIP, Pod, PodCondition, PodIP, PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use nfluid_api::types::{ExitStatus, InstanceState, InstanceStatus};
use std::time::Duration;

/// The reason of a pod whose instances cannot be made from it.
pub const CONFIG_ERROR: &str = "CreateContainerConfigError";
/// The reason of an instance that the daemon refuses to make.
pub const REFUSED: &str = "CreateContainerError";

/// The condition of a pod whose instances are what it was last asked to be; `False` while a change is refused and the instances go on.
pub const CURRENT: &str = "nfluid.io/Current";

/// What is known of a container's instance.
#[derive(Clone, Debug, PartialEq)]
pub enum Seen {
    /// The instance exists.
    Present(Box<InstanceStatus>),
    /// The instance does not exist: a reason of Kubernetes', and the daemon's or the agent's words.
    Waiting(&'static str, String),
    /// The instance is gone, and is not made again.
    Lost(String),
}

/// What is known of a pod.
#[derive(Debug, Default)]
pub struct View {
    /// Of each container's instance, in their order.
    pub seen: Vec<Seen>,
    /// The pod's addresses.
    pub addresses: Vec<String>,
    /// The reason why instances go on as they were before the pod's last change.
    pub refused: Option<String>,
    /// Time until it is to be looked at again; absent: when something changes.
    pub again: Option<Duration>,
    /// Instances that were made in this turn.
    pub made: Vec<String>,
    /// Events to tell: subject, severity, reason, and words.
    pub notes: Vec<(String, Severity, &'static str, String)>,
}

impl View {
    /// Has an event told.
    pub fn note(&mut self, subject: &str, severity: Severity, reason: &'static str, words: String) {
        self.notes
            .push((subject.to_owned(), severity, reason, words));
    }

    /// Has the pod looked at again after this time, or before.
    pub fn look_again(&mut self, after: Duration) {
        self.again = Some(self.again.map_or(after, |known| known.min(after)));
    }
}

/// Returns the identity of an instance, as the id of a container: another start has another one.
fn container_id(instance: &InstanceStatus) -> String {
    format!(
        "nfluid://{}/{}",
        instance.name,
        instance.started_ms.unwrap_or_default()
    )
}

fn time(ms: Option<u64>) -> Option<Time> {
    let ms = i64::try_from(ms?).ok()?;
    Timestamp::from_millisecond(ms).ok().map(Time)
}

/// Returns the end of a process as Kubernetes has it; a signal is told as a shell tells it.
fn terminated(exit: Option<ExitStatus>, how: &str, now: Timestamp) -> ContainerStateTerminated {
    let exit = exit.unwrap_or_default();
    let code = match (exit.status, exit.signal) {
        (Some(code), _) => code,
        (None, Some(signal)) => 128 + signal,
        (None, None) => 1,
    };
    let reason = match code {
        _ if exit.out_of_memory => "OOMKilled",
        0 => "Completed",
        _ => "Error",
    };
    ContainerStateTerminated {
        exit_code: code,
        signal: exit.signal,
        reason: Some(reason.to_owned()),
        message: (!how.is_empty()).then(|| how.to_owned()),
        finished_at: Some(Time(now)),
        ..ContainerStateTerminated::default()
    }
}

/// Returns true if two ends differ in nothing but the time at which they were seen.
fn is_same(one: &ContainerStateTerminated, other: &ContainerStateTerminated) -> bool {
    one.exit_code == other.exit_code && one.message == other.message
}

/// Returns the status of a container. `before` is what Kubernetes has.
fn container(
    name: &str,
    image: &str,
    seen: &Seen,
    before: Option<&ContainerStatus>,
    now: Timestamp,
) -> ContainerStatus {
    let mut status = ContainerStatus {
        name: name.to_owned(),
        image: image.to_owned(),
        restart_count: before.map_or(0, |it| it.restart_count),
        last_state: before.and_then(|it| it.last_state.clone()),
        started: Some(false),
        ..ContainerStatus::default()
    };
    let waiting = |reason: &str, message: Option<String>| ContainerState {
        waiting: Some(ContainerStateWaiting {
            reason: Some(reason.to_owned()),
            message,
        }),
        ..ContainerState::default()
    };
    // An end is told with the time at which it was seen first.
    let ended = |end: ContainerStateTerminated| {
        let known = before
            .and_then(|it| it.state.as_ref()?.terminated.as_ref())
            .filter(|known| is_same(known, &end));
        ContainerState {
            terminated: Some(known.cloned().unwrap_or(end)),
            ..ContainerState::default()
        }
    };
    let instance = match seen {
        Seen::Waiting(reason, message) => {
            status.state = Some(waiting(reason, Some(message.clone())));
            return status;
        }
        Seen::Lost(why) => {
            status.container_id = before.and_then(|it| it.container_id.clone());
            status.state = Some(ended(terminated(None, why, now)));
            return status;
        }
        Seen::Present(instance) => instance,
    };
    let id = container_id(instance);
    let known = before.and_then(|it| it.container_id.as_ref());
    let restarts = i32::try_from(instance.restarts).unwrap_or(i32::MAX);
    let is_another = known.is_some_and(|known| *known != id);
    status.restart_count = if is_another && restarts <= status.restart_count {
        // The daemon counts the restarts of this instance alone; it was made anew.
        status.restart_count.saturating_add(1)
    } else {
        status.restart_count.max(restarts)
    };
    status.container_id = Some(id);
    let how = instance.last_exit.as_deref().unwrap_or_default();
    let last = || terminated(instance.exit, how, now);
    status.state = Some(match instance.state {
        InstanceState::Starting => waiting("ContainerCreating", None),
        InstanceState::Running | InstanceState::Unhealthy | InstanceState::Paused => {
            status.started = Some(true);
            status.ready = instance.state == InstanceState::Running;
            ContainerState {
                running: Some(ContainerStateRunning {
                    started_at: time(instance.started_ms),
                }),
                ..ContainerState::default()
            }
        }
        InstanceState::Waiting => waiting("CrashLoopBackOff", Some(how.to_owned())),
        InstanceState::Stopped | InstanceState::Failed => ended(last()),
    });
    let is_over = status
        .state
        .as_ref()
        .is_some_and(|it| it.terminated.is_some());
    if instance.exit.is_some() && !is_over {
        let last = last();
        let known = before.and_then(|it| it.last_state.as_ref()?.terminated.as_ref());
        let is_known = known.is_some_and(|known| is_same(known, &last));
        if !is_known || is_another {
            status.last_state = Some(ContainerState {
                terminated: Some(last),
                ..ContainerState::default()
            });
        }
    }
    status
}

/// Returns the status of a pod, given what is known of it. The node has the address `host`.
pub fn of(pod: &Pod, view: &View, host: &str, now: Timestamp) -> PodStatus {
    let before = pod.status.clone().unwrap_or_default();
    let known = before.container_statuses.as_deref().unwrap_or_default();
    let all: Vec<_> = containers(pod)
        .iter()
        .zip(&view.seen)
        .map(|(it, seen)| {
            let before = known.iter().find(|known| known.name == it.name);
            let image = it.image.as_deref().unwrap_or_default();
            container(&it.name, image, seen, before, now)
        })
        .collect();
    let is_ready = all.iter().all(|it| it.ready);
    let unready: Vec<_> = all
        .iter()
        .filter(|it| !it.ready)
        .map(|it| it.name.clone())
        .collect();
    let phase = phase(pod, &all);
    let not_ready = (!is_ready).then(|| {
        let message = format!("containers with unready status: [{}]", unready.join(" "));
        let reason = match phase {
            "Succeeded" => "PodCompleted",
            "Failed" => "PodFailed",
            _ => "ContainersNotReady",
        };
        (reason, message)
    });
    let exist = all.iter().all(|it| it.container_id.is_some());
    let refused = view.refused.clone().map(|why| ("Refused", why));
    let mut conditions = before.conditions.clone().unwrap_or_default();
    for (kind, is_true, why) in [
        ("PodReadyToStartContainers", exist, None),
        ("Initialized", true, None),
        ("ContainersReady", is_ready, not_ready.clone()),
        ("Ready", is_ready, not_ready),
        (CURRENT, refused.is_none(), refused),
    ] {
        set(&mut conditions, pod, kind, is_true, why, now);
    }
    PodStatus {
        phase: Some(phase.to_owned()),
        observed_generation: pod.metadata.generation,
        conditions: Some(conditions),
        container_statuses: Some(all),
        host_ip: Some(host.to_owned()),
        host_ips: Some(vec![HostIP {
            ip: host.to_owned(),
        }]),
        pod_ip: view.addresses.first().cloned(),
        pod_ips: (!view.addresses.is_empty()).then(|| {
            view.addresses
                .iter()
                .map(|ip| PodIP { ip: ip.clone() })
                .collect()
        }),
        start_time: before.start_time.clone().or(Some(Time(now))),
        ..before
    }
}

/// Sets a condition; the time of its last change stays if it does not change.
fn set(
    conditions: &mut Vec<PodCondition>,
    pod: &Pod,
    kind: &str,
    is_true: bool,
    why: Option<(&str, String)>,
    now: Timestamp,
) {
    let status = if is_true { "True" } else { "False" };
    let known = conditions.iter().position(|it| it.type_ == kind);
    let since = known
        .filter(|at| conditions[*at].status == status)
        .and_then(|at| conditions[at].last_transition_time.clone());
    let (reason, message) = why.unzip();
    let condition = PodCondition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: reason.map(str::to_owned),
        message,
        last_transition_time: since.or(Some(Time(now))),
        observed_generation: pod.metadata.generation,
        ..PodCondition::default()
    };
    match known {
        Some(at) => conditions[at] = condition,
        None => conditions.push(condition),
    }
}

fn phase(pod: &Pod, all: &[ContainerStatus]) -> &'static str {
    let state = |it: &ContainerStatus| it.state.clone().unwrap_or_default();
    let ends: Vec<_> = all.iter().filter_map(|it| state(it).terminated).collect();
    if ends.len() == all.len() && wanted::policy(pod) != "always" {
        let is_good = ends.iter().all(|end| end.exit_code == 0);
        return if is_good { "Succeeded" } else { "Failed" };
    }
    let has_begun = |it: &ContainerStatus| it.container_id.is_some();
    if all.iter().all(has_begun) {
        "Running"
    } else {
        "Pending"
    }
}

/// Returns a condition of a pod.
pub fn condition<'a>(pod: &'a Pod, kind: &str) -> Option<&'a PodCondition> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|it| it.type_ == kind)
}

/// Returns true if a pod has ended for good.
pub fn is_over(pod: &Pod) -> bool {
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(policy: &str) -> Pod {
        let pod = json!({
            "metadata": { "generation": 2 },
            "spec": { "restartPolicy": policy, "containers": [{ "name": "fw", "image": "i" }] }
        });
        serde_json::from_value(pod).expect("a pod")
    }

    fn present(
        state: InstanceState,
        restarts: u64,
        started_ms: u64,
        exit: Option<ExitStatus>,
    ) -> Seen {
        Seen::Present(Box::new(InstanceStatus {
            name: "fw-1".to_owned(),
            state,
            restarts,
            started_ms: Some(started_ms),
            exit,
            last_exit: exit.map(|_| "how".to_owned()),
            ..InstanceStatus::default()
        }))
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    /// Takes a pod through what is seen of it, one second after the other.
    fn through(policy: &str, all: &[Seen]) -> PodStatus {
        let mut pod = pod(policy);
        for (second, seen) in all.iter().enumerate() {
            let view = View {
                seen: vec![seen.clone()],
                ..View::default()
            };
            let status = of(&pod, &view, "h", at(second as i64));
            pod.status = Some(status);
        }
        pod.status.expect("at least one")
    }

    fn told(status: &PodStatus) -> (&str, bool, i32) {
        let container = &status.container_statuses.as_ref().expect("one")[0];
        (
            status.phase.as_deref().expect("a phase"),
            container.ready,
            container.restart_count,
        )
    }

    fn signal(signal: i32) -> Option<ExitStatus> {
        Some(ExitStatus {
            signal: Some(signal),
            ..ExitStatus::default()
        })
    }

    // promise: 26.2
    #[test]
    fn a_pod_tells_what_its_instance_does() {
        use InstanceState::{Paused, Running, Starting, Unhealthy, Waiting};
        let refused = Seen::Waiting(REFUSED, "no memory".to_owned());
        assert_eq!(told(&through("Always", &[refused])), ("Pending", false, 0));
        for (state, ready) in [
            (Starting, false),
            (Running, true),
            (Unhealthy, false),
            (Paused, false),
            (Waiting, false),
        ] {
            let status = through("Always", &[present(state, 0, 5, None)]);
            assert_eq!(told(&status), ("Running", ready, 0), "{state}");
            let conditions = status.conditions.expect("some");
            let is_ready = conditions
                .iter()
                .find(|it| it.type_ == "Ready")
                .expect("one");
            assert_eq!(is_ready.status == "True", ready);
        }
    }

    // promise: 26.2
    #[test]
    fn restarts_are_counted_over_instances_that_were_made_anew() {
        use InstanceState::Running;
        let runs = |restarts, started| present(Running, restarts, started, None);
        let count = |all: &[Seen]| told(&through("Always", all)).2;
        assert_eq!(count(&[runs(0, 1), runs(0, 1)]), 0);
        assert_eq!(count(&[runs(0, 1), runs(1, 2), runs(2, 3)]), 2);
        assert_eq!(count(&[runs(2, 1), runs(0, 2)]), 3);
        assert_eq!(count(&[runs(2, 1), runs(0, 2), runs(1, 3)]), 4);
    }

    #[test]
    fn an_end_keeps_its_code_and_the_time_at_which_it_was_seen() {
        let code = |status| {
            Some(ExitStatus {
                status: Some(status),
                ..ExitStatus::default()
            })
        };
        for (exit, phase, expected, reason) in [
            (code(0), "Succeeded", 0, "Completed"),
            (code(3), "Failed", 3, "Error"),
            (signal(9), "Failed", 137, "Error"),
        ] {
            let end = present(InstanceState::Stopped, 0, 1, exit);
            let status = through(
                "Never",
                &[
                    present(InstanceState::Running, 0, 1, None),
                    end.clone(),
                    end,
                ],
            );
            assert_eq!(told(&status).0, phase);
            let container = &status.container_statuses.expect("one")[0];
            let end = container
                .state
                .as_ref()
                .and_then(|it| it.terminated.as_ref())
                .expect("an end");
            assert_eq!(
                (end.exit_code, end.reason.as_deref()),
                (expected, Some(reason))
            );
            assert_eq!(end.finished_at, Some(Time(at(1))));
        }
        let lost = through("Never", &[Seen::Lost("gone".to_owned())]);
        assert_eq!(told(&lost).0, "Failed");
    }

    #[test]
    fn a_crash_stays_as_the_last_state_when_it_runs_again() {
        let crash = present(InstanceState::Waiting, 0, 1, signal(11));
        let again = present(InstanceState::Running, 1, 2, None);
        let status = through("Always", &[crash.clone(), crash, again]);
        let container = &status.container_statuses.expect("one")[0];
        let last = container
            .last_state
            .as_ref()
            .and_then(|it| it.terminated.as_ref())
            .expect("an end");
        assert_eq!(
            (last.exit_code, &last.finished_at),
            (139, &Some(Time(at(0))))
        );
        assert_eq!(container.restart_count, 1);
    }
}
