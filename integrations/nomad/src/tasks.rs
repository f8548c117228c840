//! The tasks that the driver knows.

use crate::config;
use crate::ends::End;
use crate::protocol::drivers::{TaskConfig, TaskHandle, TaskState};
use anyhow::Context;
use nfluid_engine::links::Wish;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};
use tokio::sync::watch;

/// Version of the handles.
const HANDLE_VERSION: i32 = 1;

/// Which instance a task is. Nomad keeps it for a driver that starts anew.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Name of the instance.
    pub name: String,
    /// Time of its start (`started_ms` of the instance): another time is another process without the first one's state.
    pub started_ms: Option<u64>,
}

/// What a task's configuration says besides the instance.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Terms {
    /// Links to other tasks.
    pub wishes: Vec<Wish>,
    /// Its address, for services.
    pub address: Option<String>,
    /// How long its instance waits for a successor after its end; `None`: the instance ends with the task.
    pub hand_over: Option<Duration>,
}

/// A task: an instance that the driver has created.
#[derive(Debug)]
pub struct Task {
    /// The task as Nomad describes it.
    pub config: TaskConfig,
    /// Name of its instance.
    pub name: String,
    /// Time of the instance's start.
    pub started_ms: Option<u64>,
    /// Its owner there.
    pub owner: String,
    /// Links to other tasks.
    pub wishes: Vec<Wish>,
    /// Its address, for services.
    pub address: Option<String>,
    /// How long its instance waits for a successor after its end.
    pub hand_over: Option<Duration>,
    /// Held by whoever removes the instance that the task has left, or takes it over.
    pub turn: tokio::sync::Mutex<()>,
    end: watch::Sender<Option<End>>,
    /// The driver removes the instance: that it is gone is no loss.
    is_ending: AtomicBool,
}

impl Task {
    /// Creates a task that runs.
    pub fn new(config: TaskConfig, identity: Identity, terms: Terms) -> Self {
        Task {
            owner: config::owner(&config),
            config,
            name: identity.name,
            started_ms: identity.started_ms,
            wishes: terms.wishes,
            address: terms.address,
            hand_over: terms.hand_over,
            turn: tokio::sync::Mutex::new(()),
            end: watch::Sender::new(None),
            is_ending: AtomicBool::new(false),
        }
    }

    /// Notes that the driver removes the instance, or that it could not.
    pub fn set_ending(&self, is_ending: bool) {
        self.is_ending.store(is_ending, Ordering::SeqCst);
    }

    /// Returns true while the driver removes the instance.
    pub fn is_ending(&self) -> bool {
        self.is_ending.load(Ordering::SeqCst)
    }

    /// Returns what Nomad keeps for a driver that starts anew.
    pub fn handle(&self) -> TaskHandle {
        let identity = Identity {
            name: self.name.clone(),
            started_ms: self.started_ms,
        };
        TaskHandle {
            version: HANDLE_VERSION,
            config: Some(self.config.clone()),
            state: TaskState::Running.into(),
            driver_state: serde_json::to_vec(&identity).unwrap_or_default(),
        }
    }

    /// Notes the end of the task; its first end counts.
    pub fn note_end(&self, end: End) {
        self.end.send_if_modified(|known| {
            let is_new = known.is_none();
            known.get_or_insert(end);
            is_new
        });
    }

    /// Returns the end of the task, if it has ended.
    pub fn end(&self) -> Option<End> {
        self.end.borrow().clone()
    }

    /// Waits for the end of the task.
    pub async fn ended(&self) -> End {
        let mut end = self.end.subscribe();
        match end.wait_for(Option::is_some).await {
            Ok(end) => end.clone().unwrap_or_else(End::stopped),
            // The sender lives as long as the task.
            Err(_) => End::stopped(),
        }
    }

    /// Returns the time of its start.
    pub fn started_at(&self) -> SystemTime {
        let started = Duration::from_millis(self.started_ms.unwrap_or(0));
        SystemTime::UNIX_EPOCH + started
    }
}

/// Reads a handle.
///
/// # Errors
/// The handle is not one of this driver's.
pub fn of_handle(handle: &TaskHandle) -> anyhow::Result<(TaskConfig, Identity)> {
    let config = handle.config.clone().context("the handle has no task")?;
    anyhow::ensure!(
        handle.version == HANDLE_VERSION,
        "the handle is of version {}, this driver writes {HANDLE_VERSION}",
        handle.version
    );
    let identity = serde_json::from_slice(&handle.driver_state).context("the handle's state")?;
    Ok((config, identity))
}

/// All tasks, by the number that Nomad gives each start.
#[derive(Debug, Default)]
pub struct Tasks(Mutex<HashMap<String, Arc<Task>>>);

impl Tasks {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Task>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a task.
    pub fn add(&self, task: Arc<Task>) {
        self.lock().insert(task.config.id.clone(), task);
    }

    /// Returns a task.
    pub fn get(&self, id: &str) -> Option<Arc<Task>> {
        self.lock().get(id).cloned()
    }

    /// Forgets a task.
    pub fn remove(&self, id: &str) {
        self.lock().remove(id);
    }

    /// Returns all tasks.
    pub fn all(&self) -> Vec<Arc<Task>> {
        self.lock().values().cloned().collect()
    }

    /// Returns the tasks whose instance has this name. Those that have ended are among them.
    pub fn named(&self, name: &str) -> Vec<Arc<Task>> {
        self.all_where(|task| task.name == name)
    }

    /// Returns true if a task that runs has the instances of this owner.
    pub fn has_running(&self, owner: &str) -> bool {
        let all = self.lock();
        let mut all = all.values();
        all.any(|task| task.owner == owner && task.end().is_none())
    }

    /// Returns the tasks of an allocation that run, one of each name.
    pub fn of_allocation(&self, alloc_id: &str) -> Vec<Arc<Task>> {
        self.all_where(|task| task.config.alloc_id == alloc_id && task.end().is_none())
    }

    fn all_where(&self, is_wanted: impl Fn(&Task) -> bool) -> Vec<Arc<Task>> {
        let all = self.lock();
        all.values()
            .filter(|task| is_wanted(task))
            .cloned()
            .collect()
    }
}
