//! The memory of a guest, and the calls by which its monitor uses it.
//!
//! Guest-physical addresses are virtual addresses:
//!
//! | from | what | the guest may |
//! |---|---|---|
//! | 0 | page tables; not mapped, so that a null pointer traps | nothing |
//! | [`DEVICE`] | the device page: who the guest is and what it has ([`Device`]) | read |
//! | [`MEMORY`] | memory; it begins with the mailbox ([`Mailbox`]) | read, write |
//! | [`STACK`] | the stack; the page below is not mapped, so that a stack that is too long traps | read, write |
//! | [`IMAGE`] | the image's segments, with the rights that its headers state; then the heap | |
//! | [`DOORBELL`] | the doorbell: no memory, each write is an exit to the monitor | write |
//! | [`POOL`] | the frame slots of the instance, the same memory that the switch copies to and from | read, write |
//!
//! **A call.** The monitor puts a [`Call`] into the mailbox and runs the guest. The guest carries the call out, puts a
//! [`Reply`] into the mailbox, and writes [`ring::READY`] to the doorbell. The monitor reads the reply while the guest
//! stands still. Texts and lists go through the guest's memory: the guest names addresses in its reply, and the
//! monitor checks them. A request longer than [`REQUEST_BYTES`] goes where the guest has made room ([`op::ROOM`]).
//!
//! **Frames stay where they are.** A batch is a list of [`FrameWords`] in the mailbox that say where in the pool each
//! frame lies. The guest changes frames in place, and writes its decisions into the list.
//!
//! Numbers are little-endian; structures are those of C.

/// Version of these definitions. The monitor refuses an image of another version.
pub const VERSION: u32 = 1;

/// The device page: one [`Device`].
pub const DEVICE: u64 = 0x20_0000;
/// Bytes of the device page.
pub const DEVICE_BYTES: u64 = 0x1000;
/// The memory of the guest, which begins with the mailbox.
pub const MEMORY: u64 = 0x40_0000;
/// Lowest address of the stack. The page below is not mapped.
pub const STACK: u64 = MEMORY + 0x10_0000;
/// First address above the stack.
pub const STACK_TOP: u64 = MEMORY + 0x20_0000;
/// Lowest address of an image's segments.
pub const IMAGE: u64 = STACK_TOP;
/// The page to which a guest writes to reach its monitor.
pub const DOORBELL: u64 = 0x3fe0_0000;
/// Most bytes of memory: up to the doorbell.
pub const MEMORY_MAX: u64 = DOORBELL - MEMORY;
/// The frame slots of the instance.
pub const POOL: u64 = 0x4000_0000;
/// Most bytes of the pool.
pub const POOL_MAX: u64 = 0x4000_0000;

/// Most frames in a batch.
pub const BATCH_MAX: usize = 64;
/// Most frames that a guest makes between two looks of its monitor.
pub const MADE_MAX: usize = 64;
/// Bytes of the frames that a guest makes between two looks of its monitor: the longest frame, and many short ones.
pub const MADE_BYTES: usize = 128 << 10;
/// Room for a frame that does not lie in the pool.
pub const COPY_BYTES: usize = 64 << 10;
/// Longest request that goes through the mailbox.
pub const REQUEST_BYTES: usize = 16 << 10;
/// Words that describe the offload of a frame, as in [`nfluid_ring`'s](../../nfluid_ring/offload/index.html) metadata.
pub const OFFLOAD_BYTES: usize = 16;

/// Values that a guest writes to its doorbell, as 32 bits.
pub mod ring {
    /// The reply to the last call is in the mailbox. The first one says that the guest has started.
    pub const READY: u32 = 1;
    /// Frames that the guest has made are in the mailbox, and more will come: send them, and let the guest go on.
    pub const MADE: u32 = 2;
    /// The reply names a text for the instance's log. The guest goes on.
    pub const LOG: u32 = 3;
    /// The reply names the text of a panic. The guest does not go on.
    pub const PANIC: u32 = 4;
}

/// Operations of [`Call::op`].
pub mod op {
    /// Makes room for a request of [`super::Call::length`] bytes. The reply names it.
    pub const ROOM: u32 = 1;
    /// Builds the network function. Request and reply: [`crate::message::Build`], [`crate::message::Built`].
    pub const BUILD: u32 = 2;
    /// Handles a batch of [`super::Call::count`] frames.
    pub const PROCESS: u32 = 3;
    /// Does the work that time drives.
    pub const TICK: u32 = 4;
    /// Reports counters. Reply: a list of [`crate::message::Metric`] in JSON.
    pub const METRICS: u32 = 5;
    /// Runs an operator's command. Request: [`crate::message::Command`]; reply: JSON.
    pub const COMMAND: u32 = 6;
    /// Takes a new configuration. Request and reply as for [`BUILD`].
    pub const RECONFIGURE: u32 = 7;
    /// Writes the state. Reply: records.
    pub const EXPORT: u32 = 8;
    /// Adds a state to its own. Request: records of version [`super::Call::count`]; reply: [`crate::message::Taken`].
    pub const IMPORT: u32 = 9;
    /// Adds a part of a state: the request begins with the set of flows (32 bytes) and a byte: with counters.
    pub const IMPORT_PART: u32 = 10;
    /// Ends all flows but those in the set that is the request (32 bytes). Reply value: ended flows.
    pub const PART_WITH: u32 = 11;
    /// Imports a state and forgets it. Request as for [`IMPORT`].
    pub const REHEARSE: u32 = 12;
    /// Touches memory that will be needed: [`super::Call::count`] bytes of each part of the heap.
    pub const WARM: u32 = 13;
}

/// Values of [`Reply::status`].
pub mod status {
    /// Done.
    pub const OK: u32 = 0;
    /// Not done; the reply names a text that says why.
    pub const FAILED: u32 = 1;
    /// Not done: the guest has no such operation.
    pub const UNKNOWN: u32 = 2;
}

/// What a guest is told without asking. Only the monitor writes it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// [`VERSION`] of the monitor.
    pub version: u32,
    /// Zero.
    pub reserved: u32,
    /// Random bits.
    pub entropy: [u64; 4],
    /// First address behind the segments of the image: the heap begins here.
    pub heap: u64,
    /// First address behind the memory.
    pub memory_end: u64,
    /// Bytes of the pool at [`POOL`].
    pub pool_bytes: u64,
    /// Nanoseconds since 1970-01-01 00:00 UTC at the zero of the monotonic clock. The monitor looks after it once a second.
    pub unix_epoch: u64,
}

/// A call of the monitor.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// One of [`op`].
    pub op: u32,
    /// A number that belongs to the operation.
    pub count: u32,
    /// Nanoseconds of the monotonic clock: the clock of the guest.
    pub now: u64,
    /// Address of the request.
    pub address: u64,
    /// Bytes of the request.
    pub length: u64,
}

/// The reply of the guest.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// One of [`status`].
    pub status: u32,
    /// [`VERSION`] that the guest was built for.
    pub version: u32,
    /// Address of bytes in the guest's memory that belong to the reply.
    pub address: u64,
    /// The number of these bytes.
    pub length: u64,
    /// A number that belongs to the operation.
    pub value: u64,
    /// Next time at which a tick has work, in nanoseconds; `u64::MAX`: nothing waits for time to pass.
    pub next_tick: u64,
    /// Frames in [`Mailbox::made`].
    pub made: u32,
    /// Frames of the batch about which the guest has decided, and which leave before further made frames.
    pub decided: u32,
}

/// A frame of a batch.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameWords {
    /// Address of the first byte.
    pub address: u64,
    /// Bytes that there are for the frame at this address.
    pub capacity: u32,
    /// Length in bytes; the guest may change it up to the capacity.
    pub length: u16,
    /// Port on which the frame has arrived.
    pub in_port: u8,
    /// Set by the guest: the port by which the frame leaves plus 1; 0: dropped.
    pub out: u8,
    /// What is still to be done to the frame; the guest may change it. Zeros: nothing.
    pub offload: [u8; OFFLOAD_BYTES],
}

/// A frame that the guest has made.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MadeWords {
    /// Position of its bytes in [`Mailbox::bytes`].
    pub at: u32,
    /// Length in bytes.
    pub length: u16,
    /// Port by which it leaves.
    pub port: u8,
    /// Frames of the batch that leave before it.
    pub decided: u8,
    /// What is still to be done to the frame. Zeros: nothing.
    pub offload: [u8; OFFLOAD_BYTES],
}

/// The beginning of a guest's memory.
#[repr(C)]
pub struct Mailbox {
    /// From the monitor.
    pub call: Call,
    /// From the guest.
    pub reply: Reply,
    /// The batch.
    pub frames: [FrameWords; BATCH_MAX],
    /// Frames that the guest has made.
    pub made: [MadeWords; MADE_MAX],
    /// Requests of the monitor.
    pub request: [u8; REQUEST_BYTES],
    /// The bytes of the frames that the guest has made.
    pub bytes: [u8; MADE_BYTES],
    /// A frame that does not lie in the pool.
    pub copy: [u8; COPY_BYTES],
}

const _: () = assert!(size_of::<Device>() == 72 && size_of::<Device>() <= DEVICE_BYTES as usize);
const _: () = assert!(size_of::<Call>() == 32 && size_of::<Reply>() == 48);
const _: () = assert!(size_of::<FrameWords>() == 32 && size_of::<MadeWords>() == 24);
const _: () = assert!(size_of::<Mailbox>() <= (STACK - MEMORY - 4096) as usize);
