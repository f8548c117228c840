//! Handlers of changes.

use super::problems::{Failed, Full, Invalid, Missing, Other, TooLarge, Unreadable};
use super::query::{ChangeQuery, RemovalQuery};
use super::respond::{Answer, JsonResult, PathResult, QueryResult, blocking};
use super::shared::Shared;
use super::{Caller, Server};
use crate::types::{
    ApplyRequest, ApplyResponse, CreateRequest, DeleteRequest, Kind, ObjectName, Problem,
};
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::{Extension, Json};

/// Applies a document: either completely, or not at all.
#[utoipa::path(
    post,
    path = "/v1/apply",
    tag = "deployment",
    request_body = ApplyRequest,
    responses(
        (status = 200, body = ApplyResponse),
        Unreadable,
        TooLarge,
        Invalid,
        Failed,
        Full,
        Other,
    )
)]
pub async fn apply<S: Server>(
    State(shared): State<Shared<S>>,
    request: JsonResult<ApplyRequest>,
) -> Answer<ApplyResponse> {
    let request = request?.0;
    blocking(shared.changes, move |server| server.apply(request))
        .await
        .map(Json)
}

/// Removes objects by name, or those that a document names.
#[utoipa::path(
    post,
    path = "/v1/delete",
    tag = "deployment",
    request_body = DeleteRequest,
    responses(
        (status = 200, body = ApplyResponse),
        Unreadable,
        Missing,
        Invalid,
        Other,
    )
)]
pub async fn delete_objects<S: Server>(
    State(shared): State<Shared<S>>,
    request: JsonResult<DeleteRequest>,
) -> Answer<ApplyResponse> {
    remove(shared, request?.0).await
}

/// Removes all objects.
#[utoipa::path(
    delete,
    path = "/v1/deployment",
    tag = "deployment",
    params(ChangeQuery),
    responses(
        (status = 200, body = ApplyResponse),
        Other,
    )
)]
pub async fn delete_deployment<S: Server>(
    State(shared): State<Shared<S>>,
    query: QueryResult<ChangeQuery>,
) -> Answer<ApplyResponse> {
    let Query(ChangeQuery { dry_run }) = query?;
    let request = DeleteRequest {
        everything: true,
        dry_run,
        ..DeleteRequest::default()
    };
    remove(shared, request).await
}

async fn remove<S: Server>(shared: Shared<S>, request: DeleteRequest) -> Answer<ApplyResponse> {
    blocking(shared.changes, move |server| server.delete(request))
        .await
        .map(Json)
}

/// Creates one instance with links of its ports, in a time that does not depend on the number of other instances. An
/// existing instance is changed to what the request describes.
#[utoipa::path(
    put,
    path = "/v1/instances/{name}",
    tag = "instances",
    params(("name" = String, Path, description = "Name of the object")),
    request_body = CreateRequest,
    responses(
        (status = 200, body = ApplyResponse),
        Unreadable,
        Invalid,
        Failed,
        Full,
        Other,
    )
)]
pub async fn create_instance<S: Server>(
    State(shared): State<Shared<S>>,
    caller: Option<Extension<Caller>>,
    name: PathResult<String>,
    request: JsonResult<CreateRequest>,
) -> Answer<ApplyResponse> {
    let (name, request) = (name?.0, request?.0);
    if let Some(Extension(caller)) = caller {
        caller.check_new(&request)?;
    }
    blocking(shared.changes, move |server| server.create(&name, request))
        .await
        .map(Json)
}

/// Removes an instance that no other object except links refers to.
#[utoipa::path(
    delete,
    path = "/v1/instances/{name}",
    tag = "instances",
    params(("name" = String, Path, description = "Name of the object"), RemovalQuery),
    responses(
        (status = 200, body = ApplyResponse),
        Missing,
        Invalid,
        Other,
    )
)]
pub async fn delete_instance<S: Server>(
    State(shared): State<Shared<S>>,
    name: PathResult<String>,
    query: QueryResult<RemovalQuery>,
) -> Answer<ApplyResponse> {
    let (name, Query(query)) = (name?.0, query?);
    let request = DeleteRequest {
        objects: vec![ObjectName {
            kind: Kind::Instance,
            name,
        }],
        with_links: query.with_links,
        dry_run: query.dry_run,
        stop_signal: query.stop_signal,
        stop_wait_ms: query.stop_wait_ms,
        ..DeleteRequest::default()
    };
    remove(shared, request).await
}

/// A handler that removes one object.
macro_rules! delete_one {
    ($(#[doc = $doc:tt])+ $handler:ident, $path:tt, $tag:tt, $kind:expr) => {
        $(#[doc = $doc])+
        #[utoipa::path(
            delete,
            path = $path,
            tag = $tag,
            params(("name" = String, Path, description = "Name of the object"), ChangeQuery),
            responses(
                (status = 200, body = ApplyResponse),
                Missing,
                Invalid,
                Other,
            )
        )]
        pub async fn $handler<S: Server>(
            State(shared): State<Shared<S>>,
            name: PathResult<String>,
            query: QueryResult<ChangeQuery>,
        ) -> Answer<ApplyResponse> {
            let (name, Query(ChangeQuery { dry_run })) = (name?.0, query?);
            let objects = vec![ObjectName { kind: $kind, name }];
            let request = DeleteRequest { objects, dry_run, ..DeleteRequest::default() };
            remove(shared, request).await
        }
    };
}

delete_one!(
    /// Removes a switch without ports.
    delete_switch, "/v1/switches/{name}", "switches", Kind::Switch
);
delete_one!(
    /// Removes a security group that no port and no rule names.
    delete_security_group, "/v1/security-groups/{name}", "security-groups", Kind::SecurityGroup
);
delete_one!(
    /// Removes a link.
    delete_link, "/v1/links/{name}", "links", Kind::Link
);
delete_one!(
    /// Removes a chain; its instances stay.
    delete_chain, "/v1/chains/{name}", "chains", Kind::Chain
);
delete_one!(
    /// Removes an uplink that no other object refers to.
    delete_uplink, "/v1/uplinks/{name}", "uplinks", Kind::Uplink
);
delete_one!(
    /// Removes a group of tenants without members.
    delete_group, "/v1/groups/{name}", "groups", Kind::Group
);
delete_one!(
    /// Removes a flavor that no instance uses.
    delete_flavor, "/v1/flavors/{name}", "flavors", Kind::Flavor
);
delete_one!(
    /// Removes a pool of prepared instances; instances that were taken from it stay.
    delete_pool, "/v1/pools/{name}", "pools", Kind::Pool
);
delete_one!(
    /// Removes a template, and the instances of its clients.
    delete_template, "/v1/templates/{name}", "templates", Kind::Template
);

/// Ends and starts an instance.
#[utoipa::path(
    post,
    path = "/v1/instances/{name}/restart",
    tag = "instances",
    params(("name" = String, Path, description = "Name of the instance")),
    responses(
        (status = 204, description = "The instance runs again"),
        Missing,
        Other,
    )
)]
pub async fn restart<S: Server>(
    State(shared): State<Shared<S>>,
    name: PathResult<String>,
) -> Result<StatusCode, Problem> {
    let name = name?.0;
    blocking(shared.changes, move |server| server.restart(&name)).await?;
    Ok(StatusCode::NO_CONTENT)
}
