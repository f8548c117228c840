//! Descriptors of this library: what a program has opened, and which rings it is for.

use crate::instance::{Instance, instance};
use crate::lane::{BadRing, Lane};
use crate::region::Ring;
use nfluid_ring::bells::Latch;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

/// A descriptor. Its number is that of its latch: it is readable when the instance's doorbell has rung.
#[derive(Debug)]
pub struct Descriptor {
    pub instance: &'static Instance,
    pub latch: Latch,
    binding: OnceLock<Binding>,
    /// Held while a request chooses the rings.
    pub registering: Mutex<()>,
}

/// The rings of a descriptor.
#[derive(Debug)]
pub struct Binding {
    /// Its interface in the region.
    pub interface: usize,
    /// Numbers of lanes.
    pub tx: Vec<usize>,
    pub rx: Vec<usize>,
    /// Extra buffers that it has.
    pub extra_buffers: u32,
    /// `poll` hands queued packets over only if it waits for room.
    pub no_tx_poll: bool,
    /// `poll` looks for packets also if it waits for room only.
    pub do_rx_poll: bool,
}

/// All descriptors. Few, and looked up at each call of the program.
static OPEN: RwLock<Vec<Arc<Descriptor>>> = RwLock::new(Vec::new());
/// Their number: programs without any look up nothing.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Opens one; `None`: the process has no ports, or no more descriptors, and that was said.
pub fn open() -> Option<RawFd> {
    let instance = instance()?;
    let latch = match instance.bells.latch() {
        Ok(latch) => latch,
        Err(error) => {
            crate::say(format_args!("opening /dev/netmap: {error}"));
            return None;
        }
    };
    let number = latch.as_raw_fd();
    let mut open = OPEN.write().unwrap_or_else(PoisonError::into_inner);
    open.push(Arc::new(Descriptor {
        instance,
        latch,
        binding: OnceLock::new(),
        registering: Mutex::new(()),
    }));
    COUNT.store(open.len(), Ordering::Release);
    Some(number)
}

/// The descriptor of this number, if it is one of this library.
#[inline]
pub fn find(number: RawFd) -> Option<Arc<Descriptor>> {
    if COUNT.load(Ordering::Acquire) == 0 {
        return None;
    }
    let open = OPEN.read().unwrap_or_else(PoisonError::into_inner);
    let found = open.iter().find(|it| it.latch.as_raw_fd() == number);
    found.cloned()
}

/// Takes the descriptor out; it closes when no thread is in a call on it.
pub fn take(number: RawFd) -> Option<Arc<Descriptor>> {
    if COUNT.load(Ordering::Acquire) == 0 {
        return None;
    }
    let mut open = OPEN.write().unwrap_or_else(PoisonError::into_inner);
    let at = open.iter().position(|it| it.latch.as_raw_fd() == number)?;
    let taken = open.swap_remove(at);
    COUNT.store(open.len(), Ordering::Release);
    Some(taken)
}

/// Is there a descriptor that maps the region?
pub fn is_region(address: usize) -> bool {
    if COUNT.load(Ordering::Acquire) == 0 {
        return false;
    }
    instance().is_some_and(|instance| instance.region.start().as_ptr() as usize == address)
}

/// The lanes of both directions, each once, in the order of their numbers.
pub fn in_order(tx: &[usize], rx: &[usize]) -> Vec<usize> {
    let mut lanes = [tx, rx].concat();
    lanes.sort_unstable();
    lanes.dedup();
    lanes
}

impl Descriptor {
    pub fn binding(&self) -> Option<&Binding> {
        self.binding.get()
    }

    /// Gives the descriptor its rings, once.
    pub fn bind(&self, binding: Binding) {
        let _bound = self.binding.set(binding);
    }

    /// Packets that the program has queued leave.
    pub fn send(&self) -> Result<(), BadRing> {
        self.each(|binding| &binding.tx, |lane, own| lane.send(&own.buffers))
    }

    /// Slots that the program has released go back to the switch.
    pub fn release(&self) -> Result<(), BadRing> {
        self.each(
            |binding| &binding.rx,
            |lane, own| lane.release(&own.buffers),
        )
    }

    /// Shows the program what has arrived.
    pub fn receive(&self) {
        let _no_error = self.each(
            |binding| &binding.rx,
            |lane, own| {
                lane.receive(&own.buffers);
                Ok(())
            },
        );
    }

    /// Runs `body` on all lanes of a direction; the last error.
    fn each(
        &self,
        lanes: impl Fn(&Binding) -> &Vec<usize>,
        mut body: impl FnMut(&mut Lane, &Instance) -> Result<(), BadRing>,
    ) -> Result<(), BadRing> {
        let mut result = Ok(());
        for lane in self.binding().into_iter().flat_map(&lanes) {
            result = body(&mut self.instance.lane(*lane), self.instance).and(result);
        }
        result
    }

    pub fn can_send(&self) -> bool {
        self.any(|binding| &binding.tx, Lane::can_send)
    }

    pub fn has_received(&self) -> bool {
        self.any(|binding| &binding.rx, Lane::has_received)
    }

    fn any(&self, lanes: impl Fn(&Binding) -> &Vec<usize>, is_so: impl Fn(&Lane) -> bool) -> bool {
        let mut all = self.binding().into_iter().flat_map(&lanes);
        all.any(|lane| is_so(&self.instance.lane(*lane)))
    }

    /// The rings of some lanes, and none for the others.
    pub fn rings(
        &self,
        all: &[usize],
        own: &[usize],
        ring: impl Fn(&Lane) -> Ring,
    ) -> Vec<Option<Ring>> {
        let of = |lane: &usize| own.contains(lane).then(|| ring(&self.instance.lane(*lane)));
        all.iter().map(of).collect()
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        let Some(binding) = self.binding.get() else {
            return;
        };
        let instance = self.instance;
        let first = instance.region.extra_buffers(binding.interface);
        let first = first.swap(0, Ordering::Relaxed);
        instance.buffers.unchain(first, binding.extra_buffers);
        for number in in_order(&binding.tx, &binding.rx) {
            let mut lane = instance.lane(number);
            lane.users -= 1;
            if lane.users == 0 {
                lane.close(&instance.buffers);
            }
        }
        instance.reset_if_unused();
        instance.give_interface_back(binding.interface);
    }
}
