//! Requests to the daemon about the instances of tasks, and the daemon's errors in Nomad's words.

use crate::config::{self, Wanted};
use crate::protocol;
use crate::protocol::drivers::{ExecTaskResponse, ExitResult, TaskConfig};
use crate::tasks::Task;
use nfluid_api::client::{Client, ClientError};
use nfluid_api::types::{CommandRequest, CreateRequest, StopRequest};
use nfluid_engine::requests::{self, found, is_taken, place_in, remove_own};
use std::time::Duration;
use tonic::Status;

/// Time in which a daemon that restarts is waited for when a task has to end.
const PATIENCE: Duration = Duration::from_secs(30);
/// Interval of attempts meanwhile.
const AGAIN: Duration = Duration::from_millis(100);

/// Returns an error as Nomad shows it: all faults, at the task's keys.
pub fn words(error: &ClientError, name: &str) -> String {
    requests::words(error, |path| place_in("config", path, name))
}

pub fn answered(error: &ClientError, name: &str) -> Status {
    protocol::error(words(error, name))
}

/// Removes a task's instance; waits for a daemon that restarts.
pub async fn remove(
    client: &Client,
    task: &Task,
    stop: Option<&StopRequest>,
) -> Result<(), Status> {
    let begun = tokio::time::Instant::now();
    loop {
        let error = match remove_own(client, &task.name, &task.owner, stop).await {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        let is_refused = matches!(&error, ClientError::Problem(problem) if problem.status < 500);
        if is_refused || begun.elapsed() > PATIENCE {
            return Err(answered(&error, &task.name));
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// Creates the instance of a task. A start of the same task that nobody knows any more gives way; chains of the host through it stay.
pub async fn create(
    client: &Client,
    task: &TaskConfig,
    wanted: &Wanted,
) -> Result<(), ClientError> {
    let refused = match client.create(&wanted.name, &wanted.request).await {
        Err(error) if is_taken(&error) => error,
        created => return created.map(drop),
    };
    let present = found(client.instance(&wanted.name).await)?;
    let owner = present.and_then(|found| found.owner);
    if !owner
        .as_ref()
        .is_some_and(|owner| owner.starts_with(&config::owner_of_any_start(task)))
    {
        return Err(refused);
    }
    let request = CreateRequest {
        replaces: owner,
        ..wanted.request.clone()
    };
    client.create(&wanted.name, &request).await.map(drop)
}

/// Runs a command of a task's network function.
pub async fn run(client: &Client, task: &Task, command: &[String]) -> ExecTaskResponse {
    let Some((name, args)) = command.split_first() else {
        return ExecTaskResponse {
            stderr: b"no command\n".to_vec(),
            result: Some(ended_with(1)),
            ..ExecTaskResponse::default()
        };
    };
    let request = CommandRequest {
        name: name.clone(),
        args: args.to_vec(),
    };
    match client.command(&task.name, &request).await {
        Ok(answer) => ExecTaskResponse {
            stdout: format!("{:#}\n", answer.output).into_bytes(),
            result: Some(ended_with(0)),
            ..ExecTaskResponse::default()
        },
        Err(error) => ExecTaskResponse {
            stderr: format!("{}\n", words(&error, &task.name)).into_bytes(),
            result: Some(ended_with(1)),
            ..ExecTaskResponse::default()
        },
    }
}

fn ended_with(exit_code: i32) -> ExitResult {
    ExitResult {
        exit_code,
        ..ExitResult::default()
    }
}
