//! With `hand_over`, an instance outlives its task for a while, and the task of an updated job takes it over, with its flows. Nomad starts that task once the old one has ended, never before.

use crate::config::{Wanted, is_owner_of_task_named};
use crate::ends::End;
use crate::instances;
use crate::protocol::drivers::TaskConfig;
use crate::tasks::{Task, Tasks};
use nfluid_api::client::{Client, ClientError};
use nfluid_api::types::{CreateRequest, StopRequest};
use nfluid_engine::requests::{found, is_taken, remove_own};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tonic::Status;

/// Time until the next attempt to remove an instance that nobody has taken over.
const AGAIN: Duration = Duration::from_secs(5);

/// The ended tasks whose instances wait for successors, by the instances' names.
#[derive(Clone, Debug, Default)]
pub struct Estate(Arc<Mutex<HashMap<String, Arc<Task>>>>);

impl Estate {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Task>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, name: &str) -> Option<Arc<Task>> {
        self.lock().get(name).cloned()
    }

    /// Returns true while the instance of an ended task waits for a successor.
    pub fn has(&self, task: &Task) -> bool {
        let left = self.get(&task.name);
        left.is_some_and(|left| left.owner == task.owner)
    }

    /// Creates the instance of a task, or takes over the one that its predecessor has left.
    ///
    /// # Errors
    /// The daemon refuses, or does not answer; somebody else has the name.
    pub async fn create(
        &self,
        client: &Client,
        tasks: &Tasks,
        task: &TaskConfig,
        wanted: &Wanted,
    ) -> Result<(), ClientError> {
        let left = self.get(&wanted.name);
        // Whoever removes the instance at this moment does so first.
        let _turn = match &left {
            Some(left) => Some(left.turn.lock().await),
            None => None,
        };
        let created = match instances::create(client, task, wanted).await {
            Err(error) if is_taken(&error) => {
                let left = left.as_deref();
                let taken = take(client, tasks, left, task, wanted).await;
                taken.unwrap_or(Err(error))
            }
            created => created,
        };
        if created.is_ok() && left.is_some() {
            self.lock().remove(&wanted.name);
        }
        created
    }

    /// Ends a task. Its instance is removed, at once or when no successor has come. `stop` says how its program is asked to end.
    ///
    /// # Errors
    /// The daemon refuses, or does not answer.
    pub async fn end(
        &self,
        client: &Client,
        task: &Arc<Task>,
        stop: &StopRequest,
    ) -> Result<(), Status> {
        let Some(patience) = task.hand_over else {
            return end_at_once(client, task, stop).await;
        };
        self.lock().insert(task.name.clone(), Arc::clone(task));
        task.note_end(End::stopped());
        let (estate, client) = (self.clone(), client.clone());
        let (task, stop) = (Arc::clone(task), stop.clone());
        tokio::spawn(async move {
            tokio::time::sleep(patience).await;
            while let Err(why) = estate.settle(&client, &task, Some(&stop)).await {
                let (task, instance) = (&task.config.id, &task.name);
                tracing::warn!(
                    task,
                    instance,
                    "nobody has taken the instance over, and it stays: {}",
                    why.message()
                );
                tokio::time::sleep(AGAIN).await;
            }
        });
        Ok(())
    }

    /// Removes all instances that wait for successors.
    pub async fn settle_all(&self, client: &Client) {
        let all: Vec<_> = self.lock().values().cloned().collect();
        for task in all {
            if let Err(why) = self.settle(client, &task, None).await {
                tracing::warn!(instance = task.name, "it stays: {}", why.message());
            }
        }
    }

    /// Removes the instance of an ended task unless it has been taken over.
    async fn settle(
        &self,
        client: &Client,
        task: &Arc<Task>,
        stop: Option<&StopRequest>,
    ) -> Result<(), Status> {
        let _turn = task.turn.lock().await;
        if !self.has(task) {
            return Ok(());
        }
        instances::remove(client, task, stop).await?;
        self.lock().remove(&task.name);
        Ok(())
    }
}

/// Takes over the instance that has a task's name, or removes it if the job does not hand over any more. `None`: it is somebody else's.
async fn take(
    client: &Client,
    tasks: &Tasks,
    left: Option<&Task>,
    task: &TaskConfig,
    wanted: &Wanted,
) -> Option<Result<(), ClientError>> {
    let is_patient = wanted.terms.hand_over.is_some();
    let present = match found(client.instance(&wanted.name).await) {
        Ok(present) => present?,
        Err(error) => return Some(Err(error)),
    };
    let owner = present.owner?;
    let is_its = match left.filter(|left| left.owner == owner) {
        Some(left) => place(&left.config) == place(task),
        // A driver that was killed has left it.
        None => {
            is_patient && is_owner_of_task_named(&owner, &task.name) && !tasks.has_running(&owner)
        }
    };
    if !is_its {
        return None;
    }
    if !is_patient {
        let removed = remove_own(client, &wanted.name, &owner, None).await;
        return Some(match removed {
            Ok(()) => instances::create(client, task, wanted).await,
            Err(error) => Err(error),
        });
    }
    tracing::info!(
        from = owner,
        to = task.id,
        instance = wanted.name,
        "taking over"
    );
    let request = CreateRequest {
        replaces: Some(owner),
        ..wanted.request.clone()
    };
    Some(client.create(&wanted.name, &request).await.map(drop))
}

/// Ends a task by removing its instance.
///
/// # Errors
/// The daemon refuses, or does not answer.
pub async fn end_at_once(client: &Client, task: &Task, stop: &StopRequest) -> Result<(), Status> {
    task.set_ending(true);
    let removed = instances::remove(client, task, Some(stop)).await;
    match &removed {
        Ok(()) => task.note_end(End::stopped()),
        Err(_) => task.set_ending(false),
    }
    removed
}

/// Returns what a task and its successor have in common.
fn place(task: &TaskConfig) -> [&str; 4] {
    [
        &task.namespace,
        &task.job_id,
        &task.task_group_name,
        &task.name,
    ]
}
