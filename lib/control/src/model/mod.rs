//! The desired state, as a user writes it. `docs/guide/deployment.md` is its manual.
//!
//! A [`Deployment`] serializes into the same syntax that [`decode`](crate::decode) reads: there is
//! one format for the user's file, the state on disk and `nfluid get deployment`.
//!
//! Each value is valid in itself here (a share is a share). [`validate`](crate::validate) checks that the values are
//! consistent with each other.

mod chain;
mod deployment;
mod flavor;
mod frames;
mod instance;
mod name;
mod owner;
mod port;
mod program;
mod restart;
mod security_group;
mod switch;
mod uplink;

pub use chain::{Chain, Hop, Link};
pub use deployment::{Deployment, FORMAT_VERSION};
pub use flavor::{BUILT_IN_FLAVORS, DEFAULT_FLAVOR, Flavor};
pub use frames::Frames;
pub use instance::Instance;
pub use name::{NAME_MAX, check_name};
pub use owner::Owned;
pub use port::{DEFAULT_MTU, DEFAULT_PORTS, PORTS_MAX, Port, PortRef, QUEUES_MAX, UPLINK_DOORBELL};
pub use program::{PortApi, Program};
pub use restart::{Backoff, Restart, RestartPolicy};
pub use security_group::{Direction, Family, IcmpKind, Remote, SecurityGroup, SecurityRule};
pub use switch::{Attachment, Switch};
pub use uplink::{Steering, SuperFrames, Tunnel, Uplink, UplinkKind, VXLAN_PORT, XdpMode};

/// Returns true if a value is the default of its type. Such a key is not serialized.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
