//! Handlers of operations on an instance: commands of its NF, and changes of its state.

use super::Server;
use super::problems::{Missing, Other, Unreadable};
use super::respond::{Answer, JsonResult, PathResult, blocking};
use super::shared::Shared;
use crate::types::{
    CommandRequest, CommandResponse, MigrateReport, MigrateRequest, PauseRequest, RestoreReport,
    RestoreRequest, SavedInstance, ScaleReport, ScaleRequest, Took, UpgradeReport,
};
use axum::Json;
use axum::extract::State;

/// A handler of an operation on one instance, with or without a body. A handler with a body lists the statuses beside
/// those of all operations.
macro_rules! of_instance {
    ($(#[doc = $doc:tt])+ $method:ident, $handler:ident, $call:ident, $path:tt, $answer:ty) => {
        $(#[doc = $doc])+
        #[utoipa::path(
            $method,
            path = $path,
            tag = "instances",
            params(("name" = String, Path, description = "Name of the instance")),
            responses(
                (status = 200, body = $answer),
                Missing,
                Other,
            )
        )]
        pub async fn $handler<S: Server>(
            State(shared): State<Shared<S>>,
            name: PathResult<String>,
        ) -> Answer<$answer> {
            let name = name?.0;
            blocking(shared.changes, move |server| server.$call(&name))
                .await
                .map(Json)
        }
    };
    (
        $(#[doc = $doc:tt])+
        $method:ident, $handler:ident, $path:tt, $request:ty => $answer:ty $(, $status:tt)*
    ) => {
        $(#[doc = $doc])+
        #[utoipa::path(
            $method,
            path = $path,
            tag = "instances",
            params(("name" = String, Path, description = "Name of the instance")),
            request_body = $request,
            responses(
                (status = 200, body = $answer),
                $($status,)*
                Missing,
                Other,
            )
        )]
        pub async fn $handler<S: Server>(
            State(shared): State<Shared<S>>,
            name: PathResult<String>,
            request: JsonResult<$request>,
        ) -> Answer<$answer> {
            let (name, request) = (name?.0, request?.0);
            blocking(shared.changes, move |server| server.$handler(&name, request))
                .await
                .map(Json)
        }
    };
}

of_instance!(
    /// Pauses an instance.
    post, pause, "/v1/instances/{name}/pause", PauseRequest => Took
);

of_instance!(
    /// Divides the flows of an instance among another number of members.
    post, scale, "/v1/instances/{name}/scale", ScaleRequest => ScaleReport
);

of_instance!(
    /// Moves an instance to another daemon, with its state and the frames in its rings.
    post, migrate, "/v1/instances/{name}/migrate", MigrateRequest => MigrateReport
);

of_instance!(
    /// Runs a command of an instance's NF.
    post, command, "/v1/instances/{name}/command", CommandRequest => CommandResponse, Unreadable
);

of_instance!(
    /// Resumes a paused instance.
    post, unpause, unpause, "/v1/instances/{name}/unpause", Took
);

of_instance!(
    /// Upgrades an instance in place: the installed version of its NF replaces the running one, with its ports and
    /// state.
    post, upgrade, upgrade, "/v1/instances/{name}/upgrade", UpgradeReport
);

of_instance!(
    /// The present state of an instance as an image for a restore: specification, state of its NF, frames in its rings.
    get, image, save, "/v1/instances/{name}/image", SavedInstance
);

/// Creates an instance from an image.
#[utoipa::path(
    post,
    path = "/v1/restore",
    tag = "instances",
    request_body = RestoreRequest,
    responses(
        (status = 200, body = RestoreReport),
        Unreadable,
        Other,
    )
)]
pub async fn restore<S: Server>(
    State(shared): State<Shared<S>>,
    request: JsonResult<RestoreRequest>,
) -> Answer<RestoreReport> {
    let request = request?.0;
    blocking(shared.changes, move |server| server.restore(request))
        .await
        .map(Json)
}
