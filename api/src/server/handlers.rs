//! Handlers of reads.

use super::Server;
use super::limits::{LOG_LINES_MAX, POSITION_MAX};
use super::problems::{Missing, Other};
use super::query::LogQuery;
use super::respond::{Answer, PathResult, QueryResult, answer, blocking, too_much};
use super::shared::Shared;
use crate::types::{
    Capacity, ChainStatus, DoctorReport, GroupStatus, Health, InstanceSnapshot, InstanceStatus,
    IoStatus, LinkStatus, Logs, PoolStatus, PortStatus, Problem, SecurityGroupStatus, Stats,
    SwitchStatus, TemplateStatus, UplinkStatus, Version,
};
use axum::Json;
use axum::extract::{Query, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde_json::Value;

/// A handler that responds with the result of a method of the server.
macro_rules! view {
    ($(#[doc = $doc:tt])+ $handler:ident, $path:tt, $tag:tt, $answer:ty) => {
        $(#[doc = $doc])+
        #[utoipa::path(
            get,
            path = $path,
            tag = $tag,
            responses(
                (status = 200, body = $answer),
                Other,
            )
        )]
        pub async fn $handler<S: Server>(State(shared): State<Shared<S>>) -> Answer<$answer> {
            answer(shared.views, |server| server.$handler()).await
        }
    };
}

/// A handler that responds with the object of that name in a list of the server.
macro_rules! view_one {
    ($(#[doc = $doc:tt])+ $handler:ident, $list:ident, $path:tt, $tag:tt, $answer:ty) => {
        $(#[doc = $doc])+
        #[utoipa::path(
            get,
            path = $path,
            tag = $tag,
            params(("name" = String, Path, description = "Name of the object")),
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
            blocking(shared.views, move |server| {
                server
                    .$list()
                    .into_iter()
                    .find(|object| object.name == name)
                    .ok_or_else(|| nothing_named($tag, &name))
            })
            .await
            .map(Json)
        }
    };
}

fn nothing_named(kinds: &str, name: &str) -> Problem {
    Problem::not_found(format!("there is nothing named '{name}' among the {kinds}"))
        .with_remedy(format!("'nfluid get {kinds}' lists them"))
}

view!(
    /// The version of the daemon.
    version, "/v1/version", "daemon", Version
);
view!(
    /// The health of the daemon: all desired objects exist, or some are missing.
    health, "/v1/health", "daemon", Health
);
view!(
    /// The capacity of the host, its promised part, and the tiers and network functions that the host can run. Engines that
    /// schedule ask for it.
    capacity, "/v1/capacity", "daemon", Capacity
);
view!(
    /// The deployment in force, in the syntax of a deployment file.
    deployment, "/v1/deployment", "deployment", Value
);
view!(
    /// All instances.
    instances, "/v1/instances", "instances", Vec<InstanceStatus>
);
view!(
    /// All groups of tenants.
    groups, "/v1/groups", "groups", Vec<GroupStatus>
);
view_one!(
    /// A group of tenants.
    group, groups, "/v1/groups/{name}", "groups", GroupStatus
);
view!(
    /// All ports of instances.
    ports, "/v1/ports", "ports", Vec<PortStatus>
);
view_one!(
    /// A port, `instance.port`.
    port, ports, "/v1/ports/{name}", "ports", PortStatus
);
view!(
    /// All switches.
    switches, "/v1/switches", "switches", Vec<SwitchStatus>
);
view_one!(
    /// A switch.
    switch, switches, "/v1/switches/{name}", "switches", SwitchStatus
);
view!(
    /// All security groups.
    security_groups, "/v1/security-groups", "security-groups", Vec<SecurityGroupStatus>
);
view_one!(
    /// A security group.
    security_group, security_groups, "/v1/security-groups/{name}", "security-groups", SecurityGroupStatus
);
view!(
    /// All links.
    links, "/v1/links", "links", Vec<LinkStatus>
);
view_one!(
    /// A link, `a--b`.
    link, links, "/v1/links/{name}", "links", LinkStatus
);
view!(
    /// All chains.
    chains, "/v1/chains", "chains", Vec<ChainStatus>
);
view_one!(
    /// A chain.
    chain, chains, "/v1/chains/{name}", "chains", ChainStatus
);
view!(
    /// The I/O threads, which execute the switch for instances that do not do so themselves.
    io, "/v1/io", "daemon", IoStatus
);
view!(
    /// All pools of shells: prepared instances, which new instances are created from.
    pools, "/v1/pools", "pools", Vec<PoolStatus>
);
view_one!(
    /// A pool.
    pool, pools, "/v1/pools/{name}", "pools", PoolStatus
);
view!(
    /// All templates: each client of a template gets an instance when its first frame arrives.
    templates, "/v1/templates", "templates", Vec<TemplateStatus>
);
view_one!(
    /// A template.
    template, templates, "/v1/templates/{name}", "templates", TemplateStatus
);
view!(
    /// All uplinks.
    uplinks, "/v1/uplinks", "uplinks", Vec<UplinkStatus>
);
view_one!(
    /// An uplink.
    uplink, uplinks, "/v1/uplinks/{name}", "uplinks", UplinkStatus
);
view!(
    /// A snapshot of all counters and gauges.
    stats, "/v1/stats", "daemon", Stats
);
view!(
    /// Checks of the host.
    doctor, "/v1/doctor", "daemon", DoctorReport
);

/// An instance.
#[utoipa::path(
    get,
    path = "/v1/instances/{name}",
    tag = "instances",
    params(("name" = String, Path, description = "Name of the object")),
    responses(
        (status = 200, body = InstanceStatus),
        Missing,
        Other,
    )
)]
pub async fn instance<S: Server>(
    State(shared): State<Shared<S>>,
    name: PathResult<String>,
) -> Answer<InstanceStatus> {
    let name = name?.0;
    blocking(shared.views, move |server| {
        let found = server.instance(&name);
        found.ok_or_else(|| nothing_named("instances", &name))
    })
    .await
    .map(Json)
}

/// A snapshot of the counters and gauges of one instance. Clients that ask often for a few instances ask here.
#[utoipa::path(
    get,
    path = "/v1/instances/{name}/stats",
    tag = "instances",
    params(("name" = String, Path, description = "Name of the instance")),
    responses(
        (status = 200, body = InstanceSnapshot),
        Missing,
        Other,
    )
)]
pub async fn instance_stats<S: Server>(
    State(shared): State<Shared<S>>,
    name: PathResult<String>,
) -> Answer<InstanceSnapshot> {
    let name = name?.0;
    blocking(shared.views, move |server| server.instance_stats(&name))
        .await
        .map(Json)
}

/// The last lines of an instance's log.
#[utoipa::path(
    get,
    path = "/v1/instances/{name}/logs",
    tag = "instances",
    params(("name" = String, Path, description = "Name of the instance"), LogQuery),
    responses(
        (status = 200, body = Logs),
        Missing,
        Other,
    )
)]
pub async fn logs<S: Server>(
    State(shared): State<Shared<S>>,
    name: PathResult<String>,
    query: QueryResult<LogQuery>,
) -> Answer<Logs> {
    let (name, Query(query)) = (name?.0, query?);
    let tail = query.tail.map_or(LOG_LINES_MAX, |tail| tail as usize);
    if tail > LOG_LINES_MAX {
        return Err(too_much("tail", LOG_LINES_MAX));
    }
    if query.since > POSITION_MAX {
        return Err(too_much("since", POSITION_MAX));
    }
    blocking(shared.views, move |server| {
        server.logs(&name, query.since, tail)
    })
    .await
    .map(Json)
}

/// All metrics in Prometheus' text format.
#[utoipa::path(
    get,
    path = "/metrics",
    tag = "daemon",
    responses((status = 200, body = String, content_type = "text/plain"))
)]
pub async fn metrics<S: Server>(State(shared): State<Shared<S>>) -> Result<Response, Problem> {
    let text = blocking(shared.views, |server| Ok(server.metrics())).await?;
    let kind = [(
        header::CONTENT_TYPE,
        "text/plain; version=0.0.4; charset=utf-8",
    )];
    Ok((kind, text).into_response())
}
