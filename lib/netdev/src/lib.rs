//! Network interfaces: looking for them, changing them, attaching programs to them.
//!
//! - [`Netlink`], [`Monitor`]: requests to the kernel, and its announcements.
//! - [`NetNs`]: network namespaces.
//! - [`Place`]: an interface by the names that users write.
//! - [`hook`]: attaching an XDP program by netlink: natively or generically.
//! - [`PinnedProgram`], [`FilteredProgram`], [`DispatchedProgram`]: programs that stay on an interface when the process ends.
//! - [`program_time`], [`TimeKeeping`]: what programs cost.
//! - [`offload`], [`features`]: work on a frame that a driver would leave undone: none of it ([`offload::Undone::Nothing`]), or as
//!   much as a `virtio_net_hdr` has words for; and the longest frames that are made of several.
//! - [`Nic`], [`Flow`]: flow rules of a NIC.
//! - [`tap`]: tap interfaces, with a `virtio_net_hdr` before each frame. [`packet`]: sockets that send frames out of an interface.
//! - [`tunnel`]: interfaces whose other end is on another host.
//! - [`own_stack`]: the interfaces of a program that has a network stack alone. [`leg`]: an interface of a container's.
//!
//! Functions that name an interface without a namespace mean the calling thread's namespace.

mod dispatched;
mod error;
pub mod features;
mod filter;
mod flow;
pub mod hook;
mod kernel;
pub mod leg;
mod libxdp;
mod metering;
mod netlink;
mod netns;
pub mod nic;
pub mod offload;
pub mod own_stack;
pub mod packet;
mod peer;
mod pinned;
mod place;
mod program;
pub mod tap;
pub mod tunnel;

pub use dispatched::DispatchedProgram;
pub use error::NetdevError;
pub use filter::{FilterSeat, FilteredProgram};
pub use flow::{Flow, IpFlow, PortMask};
pub use hook::{AttachedProgram, Mode, ReceivePath, XdpHook};
pub use kernel::kernel_is_at_least;
pub use metering::{ProgramTime, TimeKeeping, program_time};
pub use netlink::tc::Side;
pub use netlink::{Link, MaxSizes, Monitor, Netlink, Prefix};
pub use netns::{NetNs, interface_names};
pub use nic::{ANYWHERE, FlowTable, Nic, Steering};
pub use offload::ChangedFeatures;
pub use pinned::{PinnedProgram, programs_at_tc};
pub use place::Place;
pub use program::{program_by_id, program_id, program_name};
