//! A task of an updated job goes on in its successor's: where both say `hand_over`, the instance stays, with its flows, and becomes what the successor asks for.
//!
//! Nomad stops the one and starts the other at about the same time. Whoever comes first waits for the other.

use crate::config::Wanted;
use crate::ends::End;
use crate::instances;
use crate::protocol::drivers::TaskConfig;
use crate::tasks::{Task, Tasks};
use nfluid_api::client::{Client, ClientError};
use nfluid_api::types::{CreateRequest, StopRequest};
use nfluid_engine::requests::is_taken;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;
use tonic::Status;

/// Creates the instance of a task, or takes over that of the task's predecessor as soon as it is asked to end.
///
/// # Errors
/// The daemon refuses, or does not answer; somebody else has the name.
pub async fn create(
    client: &Client,
    tasks: &Tasks,
    task: &TaskConfig,
    wanted: &Wanted,
) -> Result<(), ClientError> {
    let taken = match instances::create(client, task, wanted).await {
        Err(error) if is_taken(&error) => error,
        created => return created,
    };
    let predecessor = predecessor(tasks, task, wanted);
    let (Some(patience), Some(predecessor)) = (wanted.terms.hand_over, predecessor) else {
        return Err(taken);
    };
    if timeout(patience, predecessor.asked_to_end()).await.is_err() {
        return Err(taken);
    }
    let _turn = predecessor.turn.lock().await;
    let request = CreateRequest {
        replaces: predecessor
            .end()
            .is_none()
            .then(|| predecessor.owner.clone()),
        ..wanted.request.clone()
    };
    client.create(&wanted.name, &request).await?;
    predecessor.note_end(End::stopped());
    tracing::info!(
        from = predecessor.config.id,
        to = task.id,
        instance = wanted.name,
        "handed over"
    );
    Ok(())
}

/// Returns the task of an earlier allocation whose place this one takes.
fn predecessor(tasks: &Tasks, task: &TaskConfig, wanted: &Wanted) -> Option<Arc<Task>> {
    let place = |it: &TaskConfig| {
        (
            it.namespace.clone(),
            it.job_id.clone(),
            it.task_group_name.clone(),
            it.name.clone(),
        )
    };
    let mut named = tasks.named(&wanted.name).into_iter();
    named.find(|it| {
        it.end().is_none()
            && it.hand_over.is_some()
            && it.config.alloc_id != task.alloc_id
            && place(&it.config) == place(task)
    })
}

/// Ends a task, by a successor that takes its instance over or by removing it. `stop` says how its program is asked to end.
///
/// # Errors
/// The daemon refuses, or does not answer.
pub async fn end(client: &Client, task: &Task, stop: &StopRequest) -> Result<(), Status> {
    task.set_ending(true);
    if let Some(patience) = task.hand_over {
        // What is to end at once waits for nobody.
        let allowed = stop.wait_ms.map_or(patience, Duration::from_millis);
        let _nobody_came = timeout(patience.min(allowed), task.ended()).await;
    }
    let _turn = task.turn.lock().await;
    // It is the successor's by now if there is one, and stays.
    let removed = instances::remove(client, task, Some(stop)).await;
    match &removed {
        Ok(()) => task.note_end(End::stopped()),
        Err(_) => task.set_ending(false),
    }
    removed
}
