//! Guests of tests: machines with a pool, and images of machine code.

use nfluid_guest::abi::{DEVICE, DOORBELL, IMAGE, MEMORY};
use nfluid_vmm::machine::PoolMemory;
use nfluid_vmm::{End, Guest, Hypervisor, Image};
use rustix::fs::{MemfdFlags, memfd_create};
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Memory of a guest in bytes.
pub const MEMORY_BYTES: u64 = 64 << 20;

/// Returns KVM, or says that the test is skipped.
pub fn hypervisor() -> Option<Hypervisor> {
    match Hypervisor::open() {
        Ok(hypervisor) => Some(hypervisor),
        Err(why) => {
            println!("skipped: {why}");
            None
        }
    }
}

/// Slots of frames, at the beginning of a page. They stay mapped.
pub fn pool(slots: usize) -> &'static mut [u8] {
    let layout = std::alloc::Layout::from_size_align(slots * 2048, 4096).expect("a layout");
    // SAFETY: the layout is not empty, and the memory is never freed.
    unsafe { std::slice::from_raw_parts_mut(std::alloc::alloc_zeroed(layout), layout.size()) }
}

/// Describes such slots for a machine.
pub fn pool_memory(pool: &[u8]) -> PoolMemory {
    PoolMemory {
        start: pool.as_ptr() as u64,
        bytes: pool.len() as u64,
    }
}

/// The end of a guest, thrown to [`end_of`].
struct Ended(End);

fn at_end(end: &End) -> ! {
    println!("{end}");
    resume_unwind(Box::new(Ended(end.clone())))
}

/// Starts a guest with such slots.
pub fn start(image: Image, pool: &[u8]) -> Option<Result<Guest, nfluid_vmm::end::MachineError>> {
    let hypervisor = hypervisor()?;
    // SAFETY: the slots of `pool` are never freed.
    Some(unsafe { Guest::start(&hypervisor, image, MEMORY_BYTES, pool_memory(pool), at_end) })
}

/// Does something with a guest that ends it, and returns how.
pub fn end_of(what: impl FnOnce()) -> End {
    let thrown = catch_unwind(AssertUnwindSafe(what)).expect_err("the guest goes on");
    thrown.downcast::<Ended>().expect("the end of a guest").0
}

/// Does something with a guest that may end it. Everything else that fails fails.
pub fn surviving(what: impl FnOnce()) {
    if let Err(thrown) = catch_unwind(AssertUnwindSafe(what))
        && !thrown.is::<Ended>()
    {
        resume_unwind(thrown);
    }
}

/// An ELF file with one segment of code.
pub fn elf(code: &[u8]) -> Vec<u8> {
    let mut file = Vec::new();
    file.extend_from_slice(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    file.extend_from_slice(&2u16.to_le_bytes());
    file.extend_from_slice(&62u16.to_le_bytes());
    file.extend_from_slice(&1u32.to_le_bytes());
    file.extend_from_slice(&IMAGE.to_le_bytes());
    file.extend_from_slice(&64u64.to_le_bytes());
    file.extend_from_slice(&[0; 12]);
    for half in [64u16, 56, 1, 64, 0, 0] {
        file.extend_from_slice(&half.to_le_bytes());
    }
    file.extend_from_slice(&1u32.to_le_bytes());
    file.extend_from_slice(&5u32.to_le_bytes());
    let length = code.len() as u64;
    for word in [4096, IMAGE, IMAGE, length, length, 4096] {
        file.extend_from_slice(&u64::to_le_bytes(word));
    }
    file.resize(4096, 0);
    file.extend_from_slice(code);
    file
}

/// Returns an image of machine code.
pub fn image_of(code: &[u8]) -> Image {
    image_in(&elf(code)).expect("an image")
}

/// Returns the image in a file with these bytes.
pub fn image_in(bytes: &[u8]) -> Result<Image, nfluid_vmm::image::ImageError> {
    let file = memfd_create("image", MemfdFlags::CLOEXEC).expect("a memory file");
    let mut file = std::fs::File::from(file);
    file.write_all(bytes).expect("written");
    Image::from_file(file.into())
}

/// Machine code that stores a 32-bit number at an address below 2 GiB.
pub fn store(address: u64, value: u32) -> Vec<u8> {
    let mut code = vec![0xc7, 0x04, 0x25];
    code.extend_from_slice(&(address as u32).to_le_bytes());
    code.extend_from_slice(&value.to_le_bytes());
    code
}

/// Machine code that says that the guest has started, for a version.
pub fn ready() -> Vec<u8> {
    let version = std::mem::offset_of!(nfluid_guest::abi::Mailbox, reply)
        + std::mem::offset_of!(nfluid_guest::abi::Reply, version);
    let mut code = store(MEMORY + version as u64, nfluid_guest::abi::VERSION);
    code.extend(store(DOORBELL, nfluid_guest::abi::ring::READY));
    code
}

/// An address that a guest can only read.
pub const READ_ONLY: u64 = DEVICE;
