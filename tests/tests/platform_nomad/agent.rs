//! A double of the agent's side of Nomad's plugin protocol: it starts the driver, as an agent does, and calls it.

use nfluid_nomad::protocol::base::base_plugin_client::BasePluginClient;
use nfluid_nomad::protocol::base::{ConfigSchemaRequest, PluginInfoRequest, SetConfigRequest};
use nfluid_nomad::protocol::drivers::driver_client::DriverClient;
use nfluid_nomad::protocol::drivers::{
    DestroyTaskRequest, ExecTaskRequest, FingerprintRequest, FingerprintResponse, LinuxResources,
    RecoverTaskRequest, Resources, SignalTaskRequest, StartTaskRequest, StopTaskRequest,
    TaskConfig, TaskHandle, WaitTaskRequest, WaitTaskResponse,
};
use nfluid_nomad::protocol::go_plugin::Empty;
use nfluid_nomad::protocol::go_plugin::grpc_controller_client::GrpcControllerClient;
use nfluid_nomad::serve::COOKIE;
use nfluid_testbed::program::built;
use nfluid_tests::harness::patience::PATIENCE;
use nfluid_tests::harness::platform::Platform;
use rmpv::Value as Packed;
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use tokio::runtime::Runtime;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

/// A running driver; ended when dropped.
pub struct Agent {
    plugin: Child,
    channel: Channel,
    runtime: Runtime,
    folder: PathBuf,
    starts: AtomicU32,
}

/// Returns a value as Nomad sends it.
fn packed(value: &Value) -> Packed {
    match value {
        Value::Null => Packed::Nil,
        Value::Bool(value) => (*value).into(),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => whole.into(),
            (None, number) => number.unwrap_or(0.0).into(),
        },
        Value::String(text) => text.as_str().into(),
        Value::Array(items) => Packed::Array(items.iter().map(packed).collect()),
        Value::Object(keys) => {
            let keys = keys.iter();
            Packed::Map(
                keys.map(|(key, value)| (key.as_str().into(), packed(value)))
                    .collect(),
            )
        }
    }
}

/// Returns a task's configuration as Nomad sends it: each key with its type, and maps as lists of blocks.
fn configuration(keys: &Value) -> Vec<u8> {
    let keys = keys.as_object().expect("keys").iter();
    let typed = keys.map(|(key, value)| {
        let block = match value {
            Value::Object(_) => json!([value]),
            other => other.clone(),
        };
        let of_any_type = Packed::Binary(b"\"dynamic\"".to_vec());
        let pair = Packed::Array(vec![of_any_type, packed(&block)]);
        (key.as_str().into(), pair)
    });
    bytes(&Packed::Map(typed.collect()))
}

fn bytes(value: &Packed) -> Vec<u8> {
    let mut bytes = Vec::new();
    rmpv::encode::write_value(&mut bytes, value).expect("room");
    bytes
}

impl Agent {
    /// Starts the driver for a platform's daemon. Its allocations are in a folder of the platform.
    pub fn start(platform: &Platform) -> Self {
        let program = built("nfluid-nomad", "nfluid-nomad").expect("it was built");
        let folder = platform.directory().join("allocations");
        fs::create_dir_all(&folder).expect("a folder");
        let mut plugin = Command::new(program)
            .env(COOKIE.0, COOKIE.1)
            .env("PLUGIN_UNIX_SOCKET_DIR", platform.directory())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            // As after the end of the agent that has started it: nobody reads its log.
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        drop(plugin.stderr.take());
        let mut line = String::new();
        let mut said = BufReader::new(plugin.stdout.take().expect("piped"));
        said.read_line(&mut line).expect("a line");
        let parts: Vec<_> = line.trim().split('|').collect();
        let [core, app, network, socket, protocol] = parts[..] else {
            panic!("the handshake is '{line}'");
        };
        assert_eq!([core, app, network, protocol], ["1", "2", "unix", "grpc"]);
        let runtime = Runtime::new().expect("a runtime");
        let endpoint = Endpoint::from_shared(format!("unix:{socket}")).expect("a path");
        let channel = runtime.block_on(endpoint.connect()).expect("it listens");
        let agent = Agent {
            plugin,
            channel,
            runtime,
            folder,
            starts: AtomicU32::new(0),
        };
        agent.introduce(&platform.socket());
        agent
    }

    /// Asks who the driver is, and gives it its settings.
    fn introduce(&self, socket: &Path) {
        let mut base = BasePluginClient::new(self.channel.clone());
        self.runtime.block_on(async {
            let info = base.plugin_info(PluginInfoRequest {}).await;
            assert_eq!(info.expect("an answer").into_inner().name, "nfluid");
            let schema = base.config_schema(ConfigSchemaRequest {}).await;
            assert!(schema.expect("an answer").into_inner().spec.is_some());
            let settings = json!({ "socket": socket.display().to_string(), "host_volumes": null });
            let set = |version: &str| SetConfigRequest {
                msgpack_config: bytes(&packed(&settings)),
                plugin_api_version: version.to_owned(),
            };
            let other = base.set_config(set("9.9.9")).await;
            other.expect_err("another version of the interface");
            base.set_config(set("0.1.0")).await.expect("settings");
        });
    }

    /// The driver's process.
    pub fn pid(&self) -> u32 {
        self.plugin.id()
    }

    fn driver(&self) -> DriverClient<Channel> {
        DriverClient::new(self.channel.clone())
    }

    /// Makes a task, with the folders that Nomad makes. Each call is another start.
    pub fn task(&self, allocation: &str, name: &str, config: &Value) -> TaskConfig {
        let alloc_dir = self.folder.join(allocation);
        for folder in [
            "alloc/logs",
            &format!("{name}/local"),
            &format!("{name}/secrets"),
        ] {
            fs::create_dir_all(alloc_dir.join(folder)).expect("a folder");
        }
        let start = self.starts.fetch_add(1, Ordering::Relaxed);
        let given = LinuxResources {
            cpu_shares: 100,
            percent_ticks: 0.025,
            memory_limit_bytes: 16 << 20,
        };
        TaskConfig {
            id: format!("{allocation}/{name}/{}-{start}", self.pid()),
            name: name.to_owned(),
            alloc_id: allocation.to_owned(),
            alloc_dir: alloc_dir.display().to_string(),
            msgpack_driver_config: configuration(config),
            resources: Some(Resources {
                linux_resources: Some(given),
                ..Resources::default()
            }),
            ..TaskConfig::default()
        }
    }

    /// Where a task's own files are.
    pub fn local(&self, task: &TaskConfig) -> PathBuf {
        Path::new(&task.alloc_dir).join(&task.name).join("local")
    }

    /// What `nomad alloc logs` would show.
    pub fn log(&self, task: &TaskConfig) -> String {
        let file = format!("{}/alloc/logs/{}.stdout.0", task.alloc_dir, task.name);
        fs::read_to_string(file).unwrap_or_default()
    }

    /// Returns the host's present attributes and health.
    pub fn fingerprint(&self) -> FingerprintResponse {
        self.runtime.block_on(async {
            let stream = self.driver().fingerprint(FingerprintRequest {}).await;
            let first = stream.expect("a stream").into_inner().message().await;
            first.expect("an answer").expect("a fingerprint")
        })
    }

    /// Starts a task.
    pub fn run(&self, task: &TaskConfig) -> Result<TaskHandle, Status> {
        let task = Some(task.clone());
        let started = self
            .runtime
            .block_on(self.driver().start_task(StartTaskRequest { task }));
        Ok(started?.into_inner().handle.expect("a handle"))
    }

    /// Asks for the end of a task, as long as a test is patient.
    pub fn wait(&self, id: &str) -> Result<WaitTaskResponse, Status> {
        let mut request = Request::new(WaitTaskRequest {
            task_id: id.to_owned(),
        });
        request.set_timeout(PATIENCE);
        let ended = self.runtime.block_on(self.driver().wait_task(request));
        Ok(ended?.into_inner())
    }

    /// Stops a task.
    pub fn stop(&self, id: &str) -> Result<(), Status> {
        let request = StopTaskRequest {
            task_id: id.to_owned(),
            ..StopTaskRequest::default()
        };
        self.runtime
            .block_on(self.driver().stop_task(request))
            .map(drop)
    }

    /// Forgets a task.
    pub fn destroy(&self, id: &str, force: bool) -> Result<(), Status> {
        let task_id = id.to_owned();
        let request = DestroyTaskRequest { task_id, force };
        self.runtime
            .block_on(self.driver().destroy_task(request))
            .map(drop)
    }

    /// Hands a task of an earlier driver over.
    pub fn recover(&self, handle: &TaskHandle) -> Result<(), Status> {
        let task_id = handle.config.as_ref().map(|config| config.id.clone());
        let request = RecoverTaskRequest {
            task_id: task_id.unwrap_or_default(),
            handle: Some(handle.clone()),
        };
        self.runtime
            .block_on(self.driver().recover_task(request))
            .map(drop)
    }

    /// Sends a signal to a task.
    pub fn signal(&self, id: &str, signal: &str) -> Result<(), Status> {
        let (task_id, signal) = (id.to_owned(), signal.to_owned());
        let request = SignalTaskRequest { task_id, signal };
        self.runtime
            .block_on(self.driver().signal_task(request))
            .map(drop)
    }

    /// Runs a command in a task. Returns its exit code and all that it says.
    pub fn exec(&self, id: &str, command: &[&str]) -> (i32, String) {
        let request = ExecTaskRequest {
            task_id: id.to_owned(),
            command: command.iter().map(|word| (*word).to_owned()).collect(),
            timeout: None,
        };
        let done = self.runtime.block_on(self.driver().exec_task(request));
        let done = done.expect("an answer").into_inner();
        let said = [done.stdout, done.stderr].concat();
        (
            done.result.expect("a result").exit_code,
            String::from_utf8_lossy(&said).into_owned(),
        )
    }

    /// Makes other calls.
    pub fn call<T>(&self, call: impl AsyncFnOnce(DriverClient<Channel>) -> T) -> T {
        self.runtime.block_on(call(self.driver()))
    }

    /// Ends the driver as a crash would.
    pub fn kill(mut self) {
        self.plugin.kill().expect("killed");
        self.plugin.wait().expect("gone");
    }

    /// Ends the driver as an agent does. Returns true if it ended in order.
    pub fn end(mut self) -> bool {
        let mut controller = GrpcControllerClient::new(self.channel.clone());
        // The connection may end before the answer.
        let _answer = self.runtime.block_on(controller.shutdown(Empty {}));
        self.plugin.wait().expect("gone").success()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _gone = self.plugin.kill();
        let _status = self.plugin.wait();
    }
}
