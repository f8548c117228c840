//! The OpenAPI document.

use super::{change, function, handlers, life, stream};
use crate::types::Problem;
use utoipa::OpenApi;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "nfluid",
        description = "Runs many isolated network functions on one host.\n\n\
            Served over a UNIX socket, `/run/nfluid/nfluidd.sock`; a user who can open the socket \
            can make every request. Served over TCP with mutual TLS too, if the daemon is told to; a \
            client's role then says what it may ask for, and other requests get 403. Errors are problem details (RFC 9457).",
        license(name = "Apache-2.0 OR MIT", identifier = "Apache-2.0 OR MIT")
    ),
    servers((url = "http://localhost", description = "the UNIX socket")),
    components(schemas(Problem)),
    paths(
        change::apply,
        change::delete_objects,
        change::delete_deployment,
        change::create_instance,
        change::delete_instance,
        change::delete_switch,
        change::delete_security_group,
        change::delete_link,
        change::delete_chain,
        change::delete_uplink,
        change::delete_group,
        change::delete_flavor,
        change::delete_pool,
        change::delete_template,
        life::command,
        change::restart,
        life::pause,
        life::unpause,
        life::upgrade,
        life::scale,
        life::migrate,
        life::image,
        life::restore,
        function::run_function,
        handlers::version,
        handlers::capacity,
        handlers::health,
        handlers::deployment,
        handlers::instances,
        handlers::instance,
        handlers::logs,
        handlers::instance_stats,
        handlers::groups,
        handlers::group,
        handlers::ports,
        handlers::port,
        handlers::switches,
        handlers::switch,
        handlers::security_groups,
        handlers::security_group,
        handlers::links,
        handlers::link,
        handlers::chains,
        handlers::chain,
        handlers::uplinks,
        handlers::uplink,
        handlers::io,
        handlers::pools,
        handlers::pool,
        handlers::templates,
        handlers::template,
        handlers::stats,
        handlers::doctor,
        handlers::metrics,
        stream::events,
        stream::capture,
    ),
    tags(
        (name = "deployment", description = "The desired state"),
        (name = "instances", description = "Network functions"),
        (name = "groups", description = "Groups of tenants"),
        (name = "ports", description = "Ports of instances"),
        (name = "switches", description = "Learning bridges"),
        (name = "security-groups", description = "Rules for what passes the ports in a group"),
        (name = "links", description = "Point-to-point connections"),
        (name = "chains", description = "Ordered lists of NFs"),
        (name = "uplinks", description = "Ports backed by real interfaces"),
        (name = "flavors", description = "Ring sizes and memory by name"),
        (name = "pools", description = "Prepared instances"),
        (name = "templates", description = "Instances on demand"),
        (name = "functions", description = "Programs that run once"),
        (name = "daemon", description = "The daemon and its host"),
    )
)]
struct Document;

/// Returns the document as pretty-printed JSON with a final newline.
///
/// # Errors
/// Never in practice: the document consists of compile-time constants.
pub fn document() -> Result<String, serde_json::Error> {
    Document::openapi().to_pretty_json().map(|json| json + "\n")
}
