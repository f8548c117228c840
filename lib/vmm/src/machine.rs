//! A virtual machine with one virtual CPU.

use crate::end::{End, MachineError};
use crate::hypervisor::{Hypervisor, SLOTS_MAX, error_of};
use crate::image::Image;
use crate::memory::{Mapping, Memory};
use crate::tables::{PAGE, TABLES_BYTES, tables};
use crate::watchdog::Watch;
use kvm_bindings::{KVM_MEM_READONLY, kvm_regs, kvm_segment, kvm_userspace_memory_region};
use kvm_ioctls::{VcpuExit, VcpuFd, VmFd};
use nfluid_guest::abi::{
    DEVICE, DEVICE_BYTES, DOORBELL, Device, MEMORY, MEMORY_MAX, POOL, POOL_MAX, STACK_TOP, VERSION,
    ring,
};
use rustix::time::{ClockId, clock_gettime};

/// Least bytes of heap.
const HEAP_MIN: u64 = 256 << 10;
/// Long mode with paging, write protection and the floating-point unit.
const CR0: u64 = 0x8005_0033;
/// Large addresses in page tables, and the registers of SSE.
const CR4: u64 = 0x620;
/// Long mode, on, with system calls and pages that cannot be run.
const EFER: u64 = 0xd01;
/// Selector of 64-bit code of privilege level 3.
const CODE_SELECTOR: u16 = 0x33;
/// Selector of data of privilege level 3.
const DATA_SELECTOR: u16 = 0x2b;
/// Time between two looks at the host's clock.
const CLOCK_RENEWAL_NS: u64 = 1_000_000_000;
/// Flags of the processor: only the bit that is always set.
const RFLAGS: u64 = 2;

/// What a guest has rung for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rung {
    /// The reply to the last call is there.
    Ready,
    /// It has made frames.
    Made,
    /// It has a text for the log.
    Log,
}

/// The memory that a guest shares with the switch: start in this process, and bytes. It outlives the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolMemory {
    /// Address in this process.
    pub start: u64,
    /// Bytes, whole pages.
    pub bytes: u64,
}

/// Counters of a machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MachineStats {
    /// Exits to this process.
    pub exits: u64,
    /// Exits because of a signal.
    pub interrupted: u64,
}

/// A virtual machine that runs an image.
///
/// Fields are dropped in their order: KVM lets go of the memory before the memory is unmapped.
#[derive(Debug)]
pub struct Machine {
    cpu: VcpuFd,
    _vm: VmFd,
    memory: Memory,
    device_page: Mapping,
    _tables: Mapping,
    image: Image,
    pool: PoolMemory,
    device: Device,
    watch: Watch,
    /// Time of the monotonic clock at which the guest was told of the other one.
    clock_renewed: u64,
    stats: MachineStats,
}

impl Machine {
    /// Makes a machine that will run `image` with `bytes` bytes of memory and the frame slots in `pool`.
    ///
    /// # Errors
    /// See [`MachineError`].
    ///
    /// # Safety
    /// `pool` is memory that stays mapped for as long as the machine lives.
    pub unsafe fn new(
        hypervisor: &Hypervisor,
        image: Image,
        bytes: u64,
        pool: PoolMemory,
    ) -> Result<Self, MachineError> {
        let bytes = (bytes / PAGE * PAGE).min(MEMORY_MAX);
        if image.end() + HEAP_MIN > MEMORY + bytes {
            return Err(MachineError::NoHeap {
                end: image.end(),
                memory: bytes,
            });
        }
        if pool.bytes > POOL_MAX {
            return Err(MachineError::Pool(pool.bytes as usize));
        }
        let page_of = |what: u64| {
            Mapping::zeroed(what as usize).map_err(|source| MachineError::Memory {
                bytes: what,
                source,
            })
        };
        let mut memory = Memory::new(bytes)?;
        let mut table_memory = page_of(TABLES_BYTES)?;
        let segments = image.segments();
        let pages: Vec<_> = segments
            .iter()
            .map(|it| (it.address, it.end(), it.rights))
            .collect();
        let words = tables(&pages);
        for (at, word) in words.iter().enumerate().filter(|(_, word)| **word != 0) {
            table_memory.write(at * 8, &word.to_le_bytes());
        }
        for segment in segments.iter().filter(|it| it.shared_pages().is_none()) {
            let from = segment.at as usize;
            let content = image
                .bytes()
                .get(from..from + segment.file_bytes as usize)
                .unwrap_or_default();
            let write = memory.write(segment.address, content);
            write.map_err(MachineError::Ended)?;
        }
        let device_page = page_of(DEVICE_BYTES)?;
        let vm = hypervisor
            .0
            .create_vm()
            .map_err(refused("a virtual machine"))?;
        let mut slots = Slots { vm: &vm, number: 0 };
        slots.add(0, TABLES_BYTES, table_memory.address(), true)?;
        slots.add(DEVICE, DEVICE_BYTES, device_page.address(), true)?;
        add_memory(&mut slots, &memory, &image)?;
        if pool.bytes > 0 {
            slots.add(POOL, pool.bytes, pool.start, false)?;
        }
        let cpu = vm.create_vcpu(0).map_err(refused("a virtual CPU"))?;
        let mut machine = Machine {
            cpu,
            _vm: vm,
            device: Device {
                version: VERSION,
                heap: image.end(),
                memory_end: MEMORY + bytes,
                pool_bytes: pool.bytes,
                entropy: entropy(),
                unix_epoch: unix_epoch(),
                ..Device::default()
            },
            memory,
            device_page,
            _tables: table_memory,
            image,
            pool,
            watch: Watch::default(),
            clock_renewed: 0,
            stats: MachineStats::default(),
        };
        machine.write_device();
        machine.set_registers()?;
        Ok(machine)
    }

    /// Returns the memory of the guest, which stands still.
    pub(crate) fn memory(&mut self) -> &mut Memory {
        &mut self.memory
    }

    /// Returns the memory of the guest, to be read.
    pub(crate) fn memory_ref(&self) -> &Memory {
        &self.memory
    }

    /// Returns the bytes at an address that the guest has named: in its memory, or among its constants.
    ///
    /// # Errors
    /// They are in neither.
    pub(crate) fn bytes(&self, address: u64, length: u64) -> Result<&[u8], End> {
        match self.image.constants(address, length) {
            Some(bytes) => Ok(bytes),
            None => self.memory.bytes(address, length),
        }
    }

    /// Returns the memory that the guest shares with the switch.
    pub fn pool(&self) -> PoolMemory {
        self.pool
    }

    /// Returns the image.
    pub fn image(&self) -> &Image {
        &self.image
    }

    /// Returns the counters.
    pub fn stats(&self) -> MachineStats {
        self.stats
    }

    /// Notes that a call begins, which may take so many seconds of CPU time.
    pub(crate) fn begin_call(&mut self, patience_s: u32) {
        self.watch.begin(patience_s);
    }

    /// Looks at the host's clock, which somebody may set, and writes the device page. `now`: time of the monotonic clock in
    /// nanoseconds.
    pub(crate) fn follow_clock(&mut self, now: u64) {
        if now.saturating_sub(self.clock_renewed) >= CLOCK_RENEWAL_NS {
            self.clock_renewed = now;
            self.device.unix_epoch = unix_epoch();
            self.write_device();
        }
    }

    /// Runs the guest until it rings.
    ///
    /// # Errors
    /// The guest does not go on.
    pub fn run(&mut self) -> Result<Rung, End> {
        loop {
            match self.cpu.run() {
                Ok(VcpuExit::MmioWrite(DOORBELL, &[a, b, c, d])) => {
                    self.stats.exits += 1;
                    return match u32::from_le_bytes([a, b, c, d]) {
                        ring::READY => Ok(Rung::Ready),
                        ring::MADE => Ok(Rung::Made),
                        ring::LOG => Ok(Rung::Log),
                        ring::PANIC => Err(End::Panic(self.text())),
                        _ => Err(End::Protocol("it rings for something that does not exist")),
                    };
                }
                Ok(VcpuExit::MmioWrite(address, _)) => return Err(self.wild(address, true)),
                Ok(VcpuExit::MmioRead(address, _)) => return Err(self.wild(address, false)),
                Ok(VcpuExit::Shutdown | VcpuExit::InternalError) => {
                    return Err(End::Exception { rip: self.rip() });
                }
                Ok(VcpuExit::Intr) => {}
                Ok(other) => return Err(End::Kvm(format!("it exits with {other:?}"))),
                Err(error) => match error.errno() {
                    libc::EINTR => {
                        self.stats.interrupted += 1;
                        if let Some(patience_s) = self.watch.is_over() {
                            return Err(End::Endless(patience_s, self.rip()));
                        }
                    }
                    // KVM could not emulate an instruction, or has no memory for the guest's.
                    libc::EFAULT => return Err(End::Exception { rip: self.rip() }),
                    libc::EAGAIN => {}
                    _ => return Err(End::Kvm(error_of(error).to_string())),
                },
            }
        }
    }

    /// Returns the text that the reply names, at most a line of it.
    pub(crate) fn text(&self) -> String {
        const LONGEST: u64 = 1024;
        let reply = self.memory.reply();
        let length = reply.length.min(LONGEST);
        match self.bytes(reply.address, length) {
            Ok(bytes) => String::from_utf8_lossy(bytes)
                .chars()
                .map(|it| if it.is_control() { ' ' } else { it })
                .collect(),
            Err(_) => "a text outside of its memory".to_owned(),
        }
    }

    fn wild(&self, address: u64, is_write: bool) -> End {
        End::Wild {
            address,
            is_write,
            rip: self.rip(),
        }
    }

    fn rip(&self) -> u64 {
        self.cpu.get_regs().map_or(0, |registers| registers.rip)
    }

    fn write_device(&mut self) {
        let device = self.device;
        // SAFETY: a `Device` is plain numbers without padding, and is read for the time of the borrow.
        let bytes = unsafe {
            std::slice::from_raw_parts((&raw const device).cast::<u8>(), size_of::<Device>())
        };
        self.device_page.write(0, bytes);
    }

    fn set_registers(&mut self) -> Result<(), MachineError> {
        let mut special = self.cpu.get_sregs().map_err(refused("reading registers"))?;
        special.cr0 = CR0;
        special.cr3 = 0;
        special.cr4 = CR4;
        special.efer = EFER;
        special.cs = kvm_segment {
            selector: CODE_SELECTOR,
            type_: 11,
            l: 1,
            ..segment_of_user()
        };
        let data = kvm_segment {
            selector: DATA_SELECTOR,
            type_: 3,
            db: 1,
            ..segment_of_user()
        };
        (special.ds, special.es, special.fs) = (data, data, data);
        (special.gs, special.ss) = (data, data);
        self.cpu
            .set_sregs(&special)
            .map_err(refused("the state of user mode in long mode"))?;
        let registers = kvm_regs {
            rip: self.image.entry(),
            // As behind a call.
            rsp: STACK_TOP - 8,
            rflags: RFLAGS,
            ..kvm_regs::default()
        };
        self.cpu
            .set_regs(&registers)
            .map_err(refused("the registers of the first instruction"))
    }
}

/// A flat segment of privilege level 3.
fn segment_of_user() -> kvm_segment {
    kvm_segment {
        limit: u32::MAX,
        present: 1,
        dpl: 3,
        s: 1,
        g: 1,
        ..kvm_segment::default()
    }
}

/// Gives the guest its memory, and the pages of its image that nobody writes where the image lies.
fn add_memory(slots: &mut Slots<'_>, memory: &Memory, image: &Image) -> Result<(), MachineError> {
    let mut from = MEMORY;
    let at = |address: u64| memory.0.address() + (address - MEMORY);
    for segment in image.segments() {
        let Some((start, end)) = segment.shared_pages() else {
            continue;
        };
        if start > from {
            slots.add(from, start - from, at(from), false)?;
        }
        let place = image.bytes().as_ptr() as u64 + segment.at;
        slots.add(start, end - start, place, true)?;
        from = end;
    }
    slots.add(from, MEMORY + memory.len() - from, at(from), false)
}

/// The memory slots of a machine.
struct Slots<'a> {
    vm: &'a VmFd,
    number: u32,
}

impl Slots<'_> {
    fn add(
        &mut self,
        guest: u64,
        bytes: u64,
        own: u64,
        read_only: bool,
    ) -> Result<(), MachineError> {
        let region = kvm_userspace_memory_region {
            slot: self.number,
            flags: if read_only { KVM_MEM_READONLY } else { 0 },
            guest_phys_addr: guest,
            memory_size: bytes,
            userspace_addr: own,
        };
        assert!(
            (self.number as usize) < SLOTS_MAX,
            "an image has at most eight segments"
        );
        // SAFETY: the memory stays mapped for as long as the machine lives: `Machine` owns it and drops it behind the
        // virtual machine, or the caller of `Machine::new` promises it.
        unsafe { self.vm.set_user_memory_region(region) }
            .map_err(refused("memory for the guest"))?;
        self.number += 1;
        Ok(())
    }
}

fn refused(what: &'static str) -> impl Fn(kvm_ioctls::Error) -> MachineError {
    move |error| MachineError::Refused {
        what,
        source: error_of(error),
    }
}

/// Returns the nanoseconds since 1970-01-01 00:00 UTC at the zero of the monotonic clock.
fn unix_epoch() -> u64 {
    let now = clock_gettime(ClockId::Realtime);
    let now = now.tv_sec.max(0) as u64 * 1_000_000_000 + now.tv_nsec as u64;
    now.saturating_sub(nfluid_ring::clock::monotonic_ns())
}

/// Random bits of the kernel; zeros if it has none yet.
fn entropy() -> [u64; 4] {
    let mut words = [0u64; 4];
    for word in &mut words {
        let mut bytes = [0; 8];
        // SAFETY: the buffer has the length that is passed.
        unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), libc::GRND_NONBLOCK) };
        *word = u64::from_le_bytes(bytes);
    }
    words
}
