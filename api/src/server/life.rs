//! Handlers that pause, upgrade, save and restore instances.

use super::Server;
use super::respond::{Answer, JsonResult, PathResult, blocking};
use super::router::Shared;
use crate::types::{
    MigrateReport, MigrateRequest, PauseRequest, Problem, RestoreReport, RestoreRequest,
    SavedInstance, ScaleReport, ScaleRequest, Took, UpgradeReport,
};
use axum::Json;
use axum::extract::State;

/// Stops an instance where it is.
#[utoipa::path(
    post,
    path = "/v1/instances/{name}/pause",
    tag = "instances",
    params(("name" = String, Path, description = "The instance")),
    request_body = PauseRequest,
    responses(
        (status = 200, body = Took),
        (status = 404, body = Problem, content_type = "application/problem+json"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn pause<S: Server>(
    State(shared): State<Shared<S>>,
    name: PathResult<String>,
    request: JsonResult<PauseRequest>,
) -> Answer<Took> {
    let (name, request) = (name?.0, request?.0);
    blocking(shared.server, move |server| server.pause(&name, request))
        .await
        .map(Json)
}

/// Divides the flows of an instance among another number of instances.
#[utoipa::path(
    post,
    path = "/v1/instances/{name}/scale",
    tag = "instances",
    params(("name" = String, Path, description = "The instance")),
    request_body = ScaleRequest,
    responses(
        (status = 200, body = ScaleReport),
        (status = 404, body = Problem, content_type = "application/problem+json"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn scale<S: Server>(
    State(shared): State<Shared<S>>,
    name: PathResult<String>,
    request: JsonResult<ScaleRequest>,
) -> Answer<ScaleReport> {
    let (name, request) = (name?.0, request?.0);
    blocking(shared.server, move |server| server.scale(&name, request))
        .await
        .map(Json)
}

/// Moves an instance to another daemon, with its state and the frames in its rings.
#[utoipa::path(
    post,
    path = "/v1/instances/{name}/migrate",
    tag = "instances",
    params(("name" = String, Path, description = "The instance")),
    request_body = MigrateRequest,
    responses(
        (status = 200, body = MigrateReport),
        (status = 404, body = Problem, content_type = "application/problem+json"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn migrate<S: Server>(
    State(shared): State<Shared<S>>,
    name: PathResult<String>,
    request: JsonResult<MigrateRequest>,
) -> Answer<MigrateReport> {
    let (name, request) = (name?.0, request?.0);
    blocking(shared.server, move |server| server.migrate(&name, request))
        .await
        .map(Json)
}

/// A handler of a request that is about one instance and says nothing else.
macro_rules! of_instance {
    ($(#[doc = $doc:tt])+ $method:ident, $handler:ident, $call:ident, $path:tt, $answer:ty) => {
        $(#[doc = $doc])+
        #[utoipa::path(
            $method,
            path = $path,
            tag = "instances",
            params(("name" = String, Path, description = "The instance")),
            responses(
                (status = 200, body = $answer),
                (status = 404, body = Problem, content_type = "application/problem+json"),
                (status = "default", body = Problem, content_type = "application/problem+json"),
            )
        )]
        pub async fn $handler<S: Server>(
            State(shared): State<Shared<S>>,
            name: PathResult<String>,
        ) -> Answer<$answer> {
            let name = name?.0;
            blocking(shared.server, move |server| server.$call(&name))
                .await
                .map(Json)
        }
    };
}

of_instance!(
    /// Lets a paused instance go on.
    post, unpause, unpause, "/v1/instances/{name}/unpause", Took
);

of_instance!(
    /// Starts the installed version of an instance's NF on its ports, with its state, in place of the running one.
    post, upgrade, upgrade, "/v1/instances/{name}/upgrade", UpgradeReport
);

of_instance!(
    /// An instance as it is now, to be restored: specification, state of its NF, frames in its rings.
    get, image, save, "/v1/instances/{name}/image", SavedInstance
);

/// Makes an instance from an image.
#[utoipa::path(
    post,
    path = "/v1/restore",
    tag = "instances",
    request_body = RestoreRequest,
    responses(
        (status = 200, body = RestoreReport),
        (status = 400, body = Problem, content_type = "application/problem+json"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn restore<S: Server>(
    State(shared): State<Shared<S>>,
    request: JsonResult<RestoreRequest>,
) -> Answer<RestoreReport> {
    let request = request?.0;
    blocking(shared.server, move |server| server.restore(request))
        .await
        .map(Json)
}
