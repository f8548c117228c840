//! The services that every plugin has.

use crate::driver::NfluidDriver;
use crate::hcl;
use crate::protocol::base::base_plugin_server::BasePlugin;
use crate::protocol::base::{
    ConfigSchemaRequest, ConfigSchemaResponse, PluginInfoRequest, PluginInfoResponse, PluginType,
    SetConfigRequest, SetConfigResponse,
};
use crate::protocol::go_plugin::grpc_broker_server::GrpcBroker;
use crate::protocol::go_plugin::grpc_controller_server::GrpcController;
use crate::protocol::go_plugin::grpc_stdio_server::GrpcStdio;
use crate::protocol::go_plugin::{ConnInfo, Empty, StdioData};
use crate::protocol::health::health_check_response::ServingStatus;
use crate::protocol::health::{HealthCheckRequest, HealthCheckResponse};
use std::sync::Arc;
use tokio::sync::Notify;
use tokio_stream::{Pending, StreamExt as _, once, pending};
use tonic::{Request, Response, Status, Streaming};

/// The driver's name in jobs.
pub const NAME: &str = "nfluid";

/// Version of the interface between Nomad and its drivers.
const API_VERSION: &str = "0.1.0";

/// The service that names the plugin and takes its settings.
pub struct Base(Arc<NfluidDriver>);

impl Base {
    /// Creates the service of a driver.
    pub fn new(driver: Arc<NfluidDriver>) -> Self {
        Base(driver)
    }
}

#[tonic::async_trait]
impl BasePlugin for Base {
    async fn plugin_info(
        &self,
        _: Request<PluginInfoRequest>,
    ) -> Result<Response<PluginInfoResponse>, Status> {
        Ok(Response::new(PluginInfoResponse {
            r#type: PluginType::Driver.into(),
            plugin_api_versions: vec![API_VERSION.to_owned()],
            plugin_version: env!("CARGO_PKG_VERSION").to_owned(),
            name: NAME.to_owned(),
        }))
    }

    async fn config_schema(
        &self,
        _: Request<ConfigSchemaRequest>,
    ) -> Result<Response<ConfigSchemaResponse>, Status> {
        Ok(Response::new(ConfigSchemaResponse {
            spec: Some(hcl::settings_schema()),
        }))
    }

    async fn set_config(
        &self,
        request: Request<SetConfigRequest>,
    ) -> Result<Response<SetConfigResponse>, Status> {
        let request = request.into_inner();
        if request.plugin_api_version != API_VERSION {
            return Err(Status::invalid_argument(format!(
                "this driver speaks version {API_VERSION}, the agent asks for {}",
                request.plugin_api_version
            )));
        }
        self.0.set(&request.msgpack_config)?;
        Ok(Response::new(SetConfigResponse {}))
    }
}

/// The end of the plugin.
pub struct Controller(Arc<Notify>);

impl Controller {
    /// Creates the service, which notifies when the agent asks the plugin to end.
    pub fn new(ended: Arc<Notify>) -> Self {
        Controller(ended)
    }
}

#[tonic::async_trait]
impl GrpcController for Controller {
    async fn shutdown(&self, _: Request<Empty>) -> Result<Response<Empty>, Status> {
        self.0.notify_one();
        Ok(Response::new(Empty {}))
    }
}

/// The service for the plugin's output. The output is empty: the log is on the standard error output.
pub struct Stdio;

#[tonic::async_trait]
impl GrpcStdio for Stdio {
    type StreamStdioStream = Pending<Result<StdioData, Status>>;

    async fn stream_stdio(
        &self,
        _: Request<()>,
    ) -> Result<Response<Self::StreamStdioStream>, Status> {
        Ok(Response::new(pending()))
    }
}

/// Further connections between agent and plugin: there are none.
pub struct Broker;

#[tonic::async_trait]
impl GrpcBroker for Broker {
    type StartStreamStream = Pending<Result<ConnInfo, Status>>;

    async fn start_stream(
        &self,
        _: Request<Streaming<ConnInfo>>,
    ) -> Result<Response<Self::StartStreamStream>, Status> {
        Ok(Response::new(pending()))
    }
}

/// The service by which the agent checks that the plugin answers.
pub struct Health;

fn serving() -> HealthCheckResponse {
    HealthCheckResponse {
        status: ServingStatus::Serving.into(),
    }
}

type HealthStream =
    std::pin::Pin<Box<dyn tokio_stream::Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;

#[tonic::async_trait]
impl crate::protocol::health::health_server::Health for Health {
    type WatchStream = HealthStream;

    async fn check(
        &self,
        _: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        Ok(Response::new(serving()))
    }

    async fn watch(
        &self,
        _: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        Ok(Response::new(Box::pin(
            once(Ok(serving())).chain(pending()),
        )))
    }
}
