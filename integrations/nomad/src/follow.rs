//! Follows the daemon's events. An event only says where to look: what has become of a task is what the daemon says of its instance.

use crate::ends::End;
use crate::protocol::drivers::DriverTaskEvent;
use crate::tasks::{Task, Tasks};
use nfluid_api::client::{Client, ClientError};
use nfluid_api::types::{Event, InstanceState, InstanceStatus, Kind};
use nfluid_engine::feed::{Feed, News};
use nfluid_engine::requests::found;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{broadcast, watch};

/// Time until the next attempt to reach a daemon that does not answer.
const AGAIN: Duration = Duration::from_millis(200);

/// A follower of a daemon.
#[derive(Clone, Debug)]
pub struct Follower {
    /// The daemon.
    pub client: Client,
    /// The tasks.
    pub tasks: Arc<Tasks>,
    /// The reason why the daemon does not answer; absent: it does.
    pub trouble: watch::Sender<Option<String>>,
    /// Events of tasks, for Nomad.
    pub events: broadcast::Sender<DriverTaskEvent>,
}

impl Follower {
    /// Follows the daemon for ever.
    pub async fn run(self) {
        let mut feed = Feed::new(self.client.clone());
        loop {
            if let Err(error) = self.next(&mut feed).await {
                self.note_trouble(Some(error.to_string()));
                feed.begin_again();
                tokio::time::sleep(AGAIN).await;
            }
        }
    }

    /// Waits for news, and looks at the tasks that they concern.
    async fn next(&self, feed: &mut Feed) -> Result<(), ClientError> {
        let (events, has_gap) = match feed.next().await? {
            News::Begun => {
                self.note_trouble(None);
                return self.look_at(self.tasks.all()).await;
            }
            News::Events { events, has_gap } => (events, has_gap),
        };
        let mut seen = HashSet::new();
        for event in events
            .iter()
            .filter(|event| event.object == Some(Kind::Instance))
        {
            for task in self.tasks.named(&event.name) {
                self.tell(&task, event);
                seen.insert(task.config.id.clone());
            }
        }
        let changed = if has_gap {
            self.tasks.all()
        } else {
            seen.iter().filter_map(|id| self.tasks.get(id)).collect()
        };
        self.look_at(changed).await
    }

    fn note_trouble(&self, trouble: Option<String>) {
        self.trouble.send_if_modified(|known| {
            let is_new = *known != trouble;
            if is_new {
                match &trouble {
                    Some(why) => tracing::warn!("{why}"),
                    None => tracing::info!(socket = %self.client.place(), "the daemon answers"),
                }
            }
            *known = trouble;
            is_new
        });
    }

    fn tell(&self, task: &Task, event: &Event) {
        if task.end().is_some() {
            return;
        }
        let of_task = DriverTaskEvent {
            task_id: task.config.id.clone(),
            alloc_id: task.config.alloc_id.clone(),
            task_name: task.config.name.clone(),
            timestamp: Some(std::time::SystemTime::now().into()),
            message: format!("{}: {}", event.kind, event.message),
            annotations: [("instance".to_owned(), task.name.clone())].into(),
        };
        // Nobody may listen.
        let _ = self.events.send(of_task);
    }

    async fn look_at(&self, tasks: Vec<Arc<Task>>) -> Result<(), ClientError> {
        for task in tasks {
            self.look(&task).await?;
        }
        Ok(())
    }

    /// Notes the end of a task if its instance has ended.
    ///
    /// # Errors
    /// The daemon does not answer.
    pub async fn look(&self, task: &Task) -> Result<(), ClientError> {
        if task.end().is_some() {
            return Ok(());
        }
        let found = found(self.client.instance(&task.name).await)?;
        if let Some(end) = end_of(task, found)
            && !task.is_ending()
        {
            task.note_end(end);
        }
        Ok(())
    }
}

/// Returns the end of a task, given what the daemon says of its instance. `None`: the task runs.
fn end_of(task: &Task, found: Option<InstanceStatus>) -> Option<End> {
    let found = found.filter(|found| found.owner.as_deref() == Some(&task.owner));
    let Some(found) = found else {
        return Some(End::lost(format!(
            "somebody has removed the instance {}",
            task.name
        )));
    };
    if found.started_ms != task.started_ms {
        return Some(End::lost(format!(
            "the instance {} was started again, without its state",
            task.name
        )));
    }
    match found.state {
        InstanceState::Stopped | InstanceState::Failed => {
            Some(End::of_instance(found.exit, found.last_exit))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::drivers::TaskConfig;
    use crate::tasks::{Identity, Terms};
    use nfluid_api::types::ExitStatus;

    fn task() -> Task {
        let config = TaskConfig {
            id: "a/fw/1".to_owned(),
            name: "fw".to_owned(),
            alloc_id: "a".to_owned(),
            ..TaskConfig::default()
        };
        let identity = Identity {
            name: "fw-a".to_owned(),
            started_ms: Some(7),
        };
        Task::new(config, identity, Terms::default())
    }

    #[test]
    fn a_task_is_its_own_instance_and_no_later_one() {
        let task = task();
        let own = InstanceStatus {
            owner: Some("nomad:a/fw/1".to_owned()),
            started_ms: Some(7),
            state: InstanceState::Running,
            ..InstanceStatus::default()
        };
        let paused = InstanceStatus {
            state: InstanceState::Paused,
            ..own.clone()
        };
        for runs in [own.clone(), paused] {
            assert_eq!(end_of(&task, Some(runs)), None);
        }
        let later = InstanceStatus {
            owner: Some("nomad:a/fw/2".to_owned()),
            ..own.clone()
        };
        let again = InstanceStatus {
            started_ms: Some(8),
            ..own.clone()
        };
        for (lost, why) in [
            (None, "removed"),
            (Some(later), "removed"),
            (Some(again), "started again"),
        ] {
            let end = end_of(&task, lost).expect("an end");
            assert!(
                end.why.contains(why) && end.result.exit_code == 1,
                "{end:?}"
            );
        }
        let ended = InstanceStatus {
            state: InstanceState::Stopped,
            exit: Some(ExitStatus {
                status: Some(3),
                ..ExitStatus::default()
            }),
            ..own
        };
        assert_eq!(
            end_of(&task, Some(ended)).expect("an end").result.exit_code,
            3
        );
    }
}
