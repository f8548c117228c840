//! The service of a task driver.

use crate::config;
use crate::fingerprint;
use crate::follow::Follower;
use crate::hcl::{self, Settings};
use crate::instances;
use crate::links;
use crate::logs;
use crate::protocol::drivers::driver_capabilities::{FsIsolation, MountConfigs};
use crate::protocol::drivers::driver_server::Driver;
use crate::protocol::drivers::start_task_response::Result as Started;
use crate::protocol::drivers::{
    CapabilitiesRequest, CapabilitiesResponse, CreateNetworkRequest, CreateNetworkResponse,
    DestroyNetworkRequest, DestroyNetworkResponse, DestroyTaskRequest, DestroyTaskResponse,
    DriverCapabilities, DriverTaskEvent, ExecTaskRequest, ExecTaskResponse,
    ExecTaskStreamingIoOperation, ExecTaskStreamingRequest, ExecTaskStreamingResponse,
    FingerprintRequest, FingerprintResponse, InspectTaskRequest, InspectTaskResponse,
    NetworkIsolationMode, NetworkOverride, RecoverTaskRequest, RecoverTaskResponse,
    SignalTaskRequest, SignalTaskResponse, StartTaskRequest, StartTaskResponse, StopTaskRequest,
    StopTaskResponse, TaskConfigSchemaRequest, TaskConfigSchemaResponse, TaskDriverStatus,
    TaskEventsRequest, TaskState, TaskStatsRequest, TaskStatsResponse, TaskStatus, WaitTaskRequest,
    WaitTaskResponse,
};
use crate::protocol::{self, no_task, start_error};
use crate::stats::Meter;
use crate::succession::{self, Estate};
use crate::tasks::{Identity, Task, Tasks, of_handle};
use nfluid_api::client::{Client, ClientError};
use nfluid_api::types::{Capacity, STOP_WAIT_MS_MAX, StopRequest, Version};
use nfluid_control::access::StopSignal;
use nfluid_engine::requests::{is_taken, may_pass};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{broadcast, watch};
use tokio::task::JoinHandle;
use tokio_stream::wrappers::{BroadcastStream, ReceiverStream};
use tokio_stream::{Stream, StreamExt as _};
use tonic::{Request, Response, Status, Streaming};

/// Events that wait for Nomad; older ones are dropped.
const EVENTS_MAX: usize = 1024;
/// Interval at which a host's capacity is read again, and shortest interval of a task's figures.
const FINGERPRINT: Duration = Duration::from_secs(15);
const STATS_MIN: Duration = Duration::from_millis(100);
/// Most time that the driver takes to end.
const CLOSE: Duration = Duration::from_secs(10);

type Answer<T> = Result<Response<T>, Status>;
type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// A driver with its settings.
struct Configured {
    settings: Settings,
    follower: Follower,
    follows: JoinHandle<()>,
}

impl Drop for Configured {
    fn drop(&mut self) {
        self.follows.abort();
    }
}

/// The driver.
pub struct NfluidDriver {
    tasks: Arc<Tasks>,
    estate: Estate,
    events: broadcast::Sender<DriverTaskEvent>,
    configured: Mutex<Option<Configured>>,
}

impl NfluidDriver {
    /// Creates a driver that the agent has not given settings yet.
    pub fn new() -> Self {
        NfluidDriver {
            tasks: Arc::default(),
            estate: Estate::default(),
            events: broadcast::Sender::new(EVENTS_MAX),
            configured: Mutex::default(),
        }
    }

    /// Removes what waits for successors, before the driver ends.
    pub async fn close(&self) {
        if let Ok(follower) = self.follower() {
            let settled = self.estate.settle_all(&follower.client);
            if tokio::time::timeout(CLOSE, settled).await.is_err() {
                tracing::warn!("the daemon does not remove what waits for successors in time");
            }
        }
    }

    fn configured(&self) -> MutexGuard<'_, Option<Configured>> {
        self.configured
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the settings of the agent's configuration, and follows the daemon that they name.
    ///
    /// # Errors
    /// The bytes are no settings.
    pub fn set(&self, bytes: &[u8]) -> Result<(), Status> {
        let settings = hcl::settings(bytes)
            .map_err(|error| Status::invalid_argument(format!("plugin {error:#}")))?;
        let mut configured = self.configured();
        if configured
            .as_ref()
            .is_some_and(|known| known.settings == settings)
        {
            return Ok(());
        }
        let follower = Follower {
            client: Client::new(&settings.socket),
            tasks: Arc::clone(&self.tasks),
            trouble: watch::Sender::new(None),
            events: self.events.clone(),
        };
        let follows = tokio::spawn(follower.clone().run());
        *configured = Some(Configured {
            settings,
            follower,
            follows,
        });
        Ok(())
    }

    fn parts(&self) -> Result<(Follower, Settings), Status> {
        let configured = self.configured();
        let parts = configured
            .as_ref()
            .map(|it| (it.follower.clone(), it.settings.clone()));
        parts.ok_or_else(|| {
            Status::failed_precondition("the agent has not given the plugin its configuration")
        })
    }

    fn follower(&self) -> Result<Follower, Status> {
        Ok(self.parts()?.0)
    }

    /// Adds a task, and looks at its instance once: earlier events have reached no task.
    async fn admit(&self, follower: &Follower, task: &Arc<Task>) {
        self.tasks.add(Arc::clone(task));
        // A daemon that does not answer is asked later.
        let _ = follower.look(task).await;
    }

    fn task(&self, id: &str) -> Result<Arc<Task>, Status> {
        self.tasks.get(id).ok_or_else(no_task)
    }
}

fn network(address: Option<&String>) -> Option<NetworkOverride> {
    address.map(|address| NetworkOverride {
        addr: address.clone(),
        auto_advertise: true,
        ..NetworkOverride::default()
    })
}

#[tonic::async_trait]
impl Driver for NfluidDriver {
    type FingerprintStream = Answers<FingerprintResponse>;
    type TaskStatsStream = Answers<TaskStatsResponse>;
    type TaskEventsStream = Answers<DriverTaskEvent>;
    type ExecTaskStreamingStream = Answers<ExecTaskStreamingResponse>;

    async fn task_config_schema(
        &self,
        _: Request<TaskConfigSchemaRequest>,
    ) -> Answer<TaskConfigSchemaResponse> {
        Ok(Response::new(TaskConfigSchemaResponse {
            spec: Some(hcl::task_schema()),
        }))
    }

    async fn capabilities(&self, _: Request<CapabilitiesRequest>) -> Answer<CapabilitiesResponse> {
        Ok(Response::new(CapabilitiesResponse {
            capabilities: Some(DriverCapabilities {
                send_signals: true,
                exec: true,
                // Nomad builds no chroot.
                fs_isolation: FsIsolation::Image.into(),
                // Interfaces are in the task's configuration: Nomad's network block has one, and a driver does not see it.
                network_isolation_modes: [NetworkIsolationMode::Host, NetworkIsolationMode::None]
                    .map(i32::from)
                    .into(),
                mount_configs: MountConfigs::NoMounts.into(),
                disable_log_collection: true,
                ..DriverCapabilities::default()
            }),
        }))
    }

    async fn fingerprint(&self, _: Request<FingerprintRequest>) -> Answer<Self::FingerprintStream> {
        let follower = self.follower()?;
        let (sender, receiver) = tokio::sync::mpsc::channel(1);
        tokio::spawn(async move {
            let mut trouble = follower.trouble.subscribe();
            let mut told = None;
            loop {
                let why = trouble.borrow_and_update().clone();
                let fingerprint = match why {
                    Some(why) => fingerprint::unhealthy(why),
                    None => match capacity(&follower.client).await {
                        Ok((version, capacity)) => fingerprint::healthy(&version, &capacity),
                        Err(error) => fingerprint::unhealthy(error.to_string()),
                    },
                };
                if told.as_ref() != Some(&fingerprint) {
                    told = Some(fingerprint.clone());
                    if sender.send(Ok(fingerprint)).await.is_err() {
                        return;
                    }
                }
                tokio::select! {
                    _ = trouble.changed() => {}
                    () = tokio::time::sleep(FINGERPRINT) => {}
                    () = sender.closed() => return,
                }
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }

    async fn recover_task(
        &self,
        request: Request<RecoverTaskRequest>,
    ) -> Answer<RecoverTaskResponse> {
        let handle = request.into_inner().handle.unwrap_or_default();
        let (config, identity) =
            of_handle(&handle).map_err(|error| Status::invalid_argument(format!("{error:#}")))?;
        if self.tasks.get(&config.id).is_some() {
            return Ok(Response::new(RecoverTaskResponse {}));
        }
        let (follower, settings) = self.parts()?;
        let wanted = config::read(&config, &settings.host_volumes);
        // The instance was made from them: if they cannot be read now, it still runs.
        let terms = wanted.map(|wanted| wanted.terms).unwrap_or_default();
        let task = Arc::new(Task::new(config, identity, terms));
        // A daemon that does not answer yet is asked later: the task ends then if its instance is gone.
        if follower.look(&task).await.is_ok()
            && let Some(end) = task.end()
        {
            instances::remove(&follower.client, &task, None).await?;
            return Err(Status::not_found(format!(
                "{} cannot be taken over: {}",
                task.name, end.why
            )));
        }
        self.admit(&follower, &task).await;
        tokio::spawn(logs::copy(follower.client.clone(), Arc::clone(&task), None));
        tracing::info!(task = task.config.id, instance = task.name, "recovered");
        Ok(Response::new(RecoverTaskResponse {}))
    }

    async fn start_task(&self, request: Request<StartTaskRequest>) -> Answer<StartTaskResponse> {
        let config = request.into_inner().task.unwrap_or_default();
        if self.tasks.get(&config.id).is_some() {
            return Err(start_error(
                format!("the task {} was started already", config.id),
                false,
            ));
        }
        let (follower, settings) = self.parts()?;
        let client = &follower.client;
        let refused = |error: &ClientError, name: &str| {
            start_error(
                instances::words(error, name),
                may_pass(error) || is_taken(error),
            )
        };
        let wanted = config::read(&config, &settings.host_volumes);
        let wanted = wanted.map_err(|error| start_error(format!("{error:#}"), false))?;
        let since = logs::position(client, &wanted.name).await;
        self.estate
            .create(client, &self.tasks, &config, &wanted)
            .await
            .map_err(|error| refused(&error, &wanted.name))?;
        let instance = client
            .instance(&wanted.name)
            .await
            .map_err(|error| refused(&error, &wanted.name))?;
        let identity = Identity {
            name: wanted.name,
            started_ms: instance.started_ms,
        };
        let task = Arc::new(Task::new(config, identity, wanted.terms));
        self.admit(&follower, &task).await;
        if let Err(error) = links::connect(client, &self.tasks, &task.config.alloc_id).await {
            self.tasks.remove(&task.config.id);
            instances::remove(client, &task, None).await?;
            return Err(refused(&error, &task.name));
        }
        tokio::spawn(logs::copy(client.clone(), Arc::clone(&task), Some(since)));
        tracing::info!(task = task.config.id, instance = task.name, "started");
        Ok(Response::new(StartTaskResponse {
            result: Started::Success.into(),
            handle: Some(task.handle()),
            network_override: network(task.address.as_ref()),
            ..StartTaskResponse::default()
        }))
    }

    async fn wait_task(&self, request: Request<WaitTaskRequest>) -> Answer<WaitTaskResponse> {
        let task = self.task(&request.into_inner().task_id)?;
        let end = task.ended().await;
        Ok(Response::new(WaitTaskResponse {
            result: Some(end.result),
            err: end.why,
        }))
    }

    async fn stop_task(&self, request: Request<StopTaskRequest>) -> Answer<StopTaskResponse> {
        let request = request.into_inner();
        let task = self.task(&request.task_id)?;
        let client = self.follower()?.client;
        self.estate.end(&client, &task, &stop_of(&request)).await?;
        tracing::info!(task = task.config.id, instance = task.name, "stopped");
        Ok(Response::new(StopTaskResponse {}))
    }

    async fn destroy_task(
        &self,
        request: Request<DestroyTaskRequest>,
    ) -> Answer<DestroyTaskResponse> {
        let request = request.into_inner();
        let task = self.task(&request.task_id)?;
        let has_ended = task.end().is_some();
        if !has_ended && !request.force {
            return Err(protocol::error(format!(
                "the task {} runs",
                request.task_id
            )));
        }
        let client = self.follower()?.client;
        let at_once = StopRequest {
            wait_ms: Some(0),
            ..StopRequest::default()
        };
        if !self.estate.has(&task)
            && let Err(why) = succession::end_at_once(&client, &task, &at_once).await
        {
            if !has_ended {
                return Err(why);
            }
            // A chain of the host goes through it: the next start takes its place.
            tracing::warn!(
                task = task.config.id,
                instance = task.name,
                "the ended instance stays: {}",
                why.message()
            );
        }
        self.tasks.remove(&request.task_id);
        Ok(Response::new(DestroyTaskResponse {}))
    }

    async fn inspect_task(
        &self,
        request: Request<InspectTaskRequest>,
    ) -> Answer<InspectTaskResponse> {
        let task = self.task(&request.into_inner().task_id)?;
        let client = self.follower()?.client;
        let mut attributes =
            std::collections::HashMap::from([("instance".to_owned(), task.name.clone())]);
        if let Ok(snapshot) = client.instance_stats(&task.name).await {
            for port in snapshot.ports {
                let counters = port.counters;
                let traffic = [
                    ("rx_packets", counters.rx_packets),
                    ("tx_packets", counters.tx_packets),
                    ("dropped_packets", counters.dropped()),
                ];
                attributes.extend(
                    traffic
                        .map(|(what, count)| (format!("{}.{what}", port.name), count.to_string())),
                );
            }
        }
        let end = task.end();
        Ok(Response::new(InspectTaskResponse {
            task: Some(TaskStatus {
                id: task.config.id.clone(),
                name: task.config.name.clone(),
                state: if end.is_some() {
                    TaskState::Exited
                } else {
                    TaskState::Running
                }
                .into(),
                started_at: Some(task.started_at().into()),
                completed_at: end.as_ref().map(|end| end.at.into()),
                result: end.map(|end| end.result),
            }),
            driver: Some(TaskDriverStatus { attributes }),
            network_override: network(task.address.as_ref()),
        }))
    }

    async fn task_stats(
        &self,
        request: Request<TaskStatsRequest>,
    ) -> Answer<Self::TaskStatsStream> {
        let request = request.into_inner();
        let task = self.task(&request.task_id)?;
        let client = self.follower()?.client;
        let interval = request.collection_interval.unwrap_or_default();
        let interval = Duration::try_from(interval)
            .unwrap_or_default()
            .max(STATS_MIN);
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let (sender, receiver) = tokio::sync::mpsc::channel(1);
        tokio::spawn(async move {
            let mut meter = Meter::new(&task.config, cpus);
            while task.end().is_none() {
                if let Ok(snapshot) = client.instance_stats(&task.name).await {
                    let stats = Some(meter.measure(&snapshot));
                    if sender.send(Ok(TaskStatsResponse { stats })).await.is_err() {
                        return;
                    }
                }
                tokio::select! {
                    () = tokio::time::sleep(interval) => {}
                    _ = task.ended() => {}
                    () = sender.closed() => return,
                }
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }

    async fn task_events(&self, _: Request<TaskEventsRequest>) -> Answer<Self::TaskEventsStream> {
        let events = BroadcastStream::new(self.events.subscribe());
        // A reader that is too slow misses the oldest.
        let events = events.filter_map(|event| event.ok().map(Ok));
        Ok(Response::new(Box::pin(events)))
    }

    async fn signal_task(&self, request: Request<SignalTaskRequest>) -> Answer<SignalTaskResponse> {
        let request = request.into_inner();
        let task = self.task(&request.task_id)?;
        if !matches!(request.signal.as_str(), "SIGHUP" | "HUP") {
            return Err(protocol::error(format!(
                "an instance takes no {}; SIGHUP reads the files that its configuration names again",
                request.signal
            )));
        }
        let (follower, settings) = self.parts()?;
        let client = follower.client;
        let wanted = config::read(&task.config, &settings.host_volumes);
        let wanted = wanted.map_err(|error| protocol::error(format!("{error:#}")))?;
        let changed = client.create(&task.name, &wanted.request).await;
        changed.map_err(|error| instances::answered(&error, &task.name))?;
        Ok(Response::new(SignalTaskResponse {}))
    }

    async fn exec_task(&self, request: Request<ExecTaskRequest>) -> Answer<ExecTaskResponse> {
        let request = request.into_inner();
        let task = self.task(&request.task_id)?;
        let client = self.follower()?.client;
        Ok(Response::new(
            instances::run(&client, &task, &request.command).await,
        ))
    }

    async fn exec_task_streaming(
        &self,
        request: Request<Streaming<ExecTaskStreamingRequest>>,
    ) -> Answer<Self::ExecTaskStreamingStream> {
        let mut requests = request.into_inner();
        let first = requests.message().await?.and_then(|first| first.setup);
        let setup =
            first.ok_or_else(|| Status::invalid_argument("the first message names no command"))?;
        let task = self.task(&setup.task_id)?;
        let client = self.follower()?.client;
        let done = instances::run(&client, &task, &setup.command).await;
        let output = |data: Vec<u8>| Some(ExecTaskStreamingIoOperation { data, close: true });
        let told = [
            ExecTaskStreamingResponse {
                stdout: output(done.stdout),
                ..ExecTaskStreamingResponse::default()
            },
            ExecTaskStreamingResponse {
                stderr: output(done.stderr),
                ..ExecTaskStreamingResponse::default()
            },
            ExecTaskStreamingResponse {
                exited: true,
                result: done.result,
                ..ExecTaskStreamingResponse::default()
            },
        ];
        Ok(Response::new(Box::pin(tokio_stream::iter(told.map(Ok)))))
    }

    async fn create_network(
        &self,
        _: Request<CreateNetworkRequest>,
    ) -> Answer<CreateNetworkResponse> {
        Err(Status::unimplemented(
            "interfaces are in the task's configuration",
        ))
    }

    async fn destroy_network(
        &self,
        _: Request<DestroyNetworkRequest>,
    ) -> Answer<DestroyNetworkResponse> {
        Err(Status::unimplemented(
            "interfaces are in the task's configuration",
        ))
    }
}

/// Returns how a task's program is asked to end: by the job's `kill_signal`, within its `kill_timeout`. A signal by which no
/// program is asked to end is not the reason why a task stays: then the instance says which one is sent.
fn stop_of(request: &StopTaskRequest) -> StopRequest {
    let signal = StopSignal::find(&request.signal).map(|_| request.signal.clone());
    let wait = request
        .timeout
        .and_then(|it| std::time::Duration::try_from(it).ok());
    let wait = wait.and_then(|wait| u64::try_from(wait.as_millis()).ok());
    StopRequest {
        signal,
        wait_ms: wait.map(|wait| wait.min(STOP_WAIT_MS_MAX)),
    }
}

async fn capacity(client: &Client) -> Result<(Version, Capacity), ClientError> {
    Ok((
        client.get("/v1/version").await?,
        client.get("/v1/capacity").await?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    // promise: 24.2
    #[test]
    fn a_job_says_how_its_task_is_asked_to_end() {
        let stop = |signal: &str, seconds: i64| {
            stop_of(&StopTaskRequest {
                signal: signal.to_owned(),
                timeout: Some(prost_types::Duration { seconds, nanos: 0 }),
                ..StopTaskRequest::default()
            })
        };
        let request = |signal: Option<&str>, wait_ms| StopRequest {
            signal: signal.map(str::to_owned),
            wait_ms,
        };
        assert_eq!(stop("SIGUSR1", 5), request(Some("SIGUSR1"), Some(5000)));
        // Neither keeps a task that is to go.
        assert_eq!(stop("SIGSEGV", 3600), request(None, Some(90_000)));
        assert_eq!(stop("", -1), request(None, None));
    }
}
