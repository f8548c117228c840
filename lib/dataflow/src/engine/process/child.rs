//! The process of a PE: takes away from itself what it does not need, and runs units.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once, OnceLock};

use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

use super::Tenant;
use super::form;
use super::maker::Request;
use super::places::{HEAD, Head, Parts, Places};
use super::seat::{Seat, Word};
use crate::engine::arena::{Arena, Layout};
use crate::engine::array::{Array, Part, WORDS_PER_LINE, load};
use crate::engine::pe::{Pe, Surroundings, pin};
use crate::engine::work::{External, Work};
use crate::message::GraphSlot;
use crate::plan::Gathered;

/// The first descriptor that a process closes: it keeps the standard streams.
const FIRST_CLOSED: u32 = 3;
/// The status of a process that could not take everything away from itself, or did not find its queues.
const NOT_SETTLED: i32 = 2;
const PANICKED: i32 = 101;
/// Graphs that are kept after their last interval.
const GRAPHS: usize = 2;

/// This process is a PE's.
static IS_PE: AtomicBool = AtomicBool::new(false);

/// Has panics in PEs' processes print nothing: why a task failed goes to the core manager. To be called before a process is
/// forked: in it, the hook may be in the hands of a thread that it does not have.
pub fn quiet_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !IS_PE.load(Ordering::Relaxed) {
                before(panic);
            }
        }));
    });
}

/// Runs units until the process ends. Never returns into what the process was forked from.
pub fn run(request: &Request, parent: Pid) -> ! {
    let ended = catch_unwind(AssertUnwindSafe(|| settle(request, parent)));
    let status = match ended {
        Ok(Some(())) => 0,
        Ok(None) => NOT_SETTLED,
        Err(_) => PANICKED,
    };
    // SAFETY: ends the process at once. Nothing is dropped or flushed, which is the parent's to do.
    unsafe { libc::_exit(status) }
}

/// Takes away what the process does not need, and runs.
fn settle(request: &Request, parent: Pid) -> Option<()> {
    IS_PE.store(true, Ordering::Relaxed);
    // In a sandbox this is refused, and needless: all processes of its namespace end with the first.
    let _or_in_sandbox = set_parent_process_death_signal(Some(Signal::KILL));
    if getppid() != Some(parent) {
        return None;
    }
    // SAFETY: nothing in this process uses any of these descriptors.
    unsafe { libc::syscall(libc::SYS_close_range, FIRST_CLOSED, u32::MAX, 0) };
    let (pe, seat) = (&request.pe, &request.seat);
    let name = format!("pe-{} {}", pe.index, request.tenant.name);
    let name = std::ffi::CString::new(name);
    // The kernel keeps 15 bytes of it.
    let _unnamed = name.map(|name| rustix::thread::set_name(&name));
    pin(pe.core);
    if let Some(confine) = pe.confine {
        confine().ok()?;
    }
    #[cfg(test)]
    everything::set(&request.tenant.region);
    let (commands, reports) = seat.pe()?;
    Pe {
        index: pe.index,
        clock: pe.clock,
        commands,
        reports,
        surroundings: Surrounding {
            word: seat.word()?,
            tenant: &request.tenant,
            seat,
            graphs: VecDeque::new(),
        },
    }
    .run();
    Some(())
}

struct Surrounding<'a> {
    word: Word,
    tenant: &'a Tenant,
    seat: &'a Seat,
    /// Graphs by the numbers of their shapes, the last one first.
    graphs: VecDeque<(u64, Arc<Gathered>, Arc<Layout>)>,
}

impl Surrounding<'_> {
    fn graph(&mut self, head: &Head) -> Option<(Arc<Gathered>, Arc<Layout>)> {
        let known = self.graphs.iter().find(|known| known.0 == head.shape);
        if let Some((_, gathered, layout)) = known {
            return Some((Arc::clone(gathered), Arc::clone(layout)));
        }
        let lines = head.form_words.div_ceil(WORDS_PER_LINE);
        let block = self.tenant.region.at(head.form, lines)?;
        let words = Part::of(&block, 0, head.form_words)?;
        let words: Vec<u64> = load(&words).collect();
        let gathered = Arc::new(form::read(&words)?);
        let layout = Arc::new(Layout::of(gathered.tasks()).ok()?);
        self.graphs.truncate(GRAPHS - 1);
        let known = (head.shape, Arc::clone(&gathered), Arc::clone(&layout));
        self.graphs.push_front(known);
        Some((gathered, layout))
    }
}

impl Surroundings for Surrounding<'_> {
    fn is_awake(&self) -> bool {
        self.word.is_awake()
    }

    fn sleep(&self) {
        self.word.sleep();
    }

    fn work(&mut self, _slot: GraphSlot, line: u32) -> Option<Arc<Work>> {
        let region = &self.tenant.region;
        let words = Part::of(&region.at(line, 1)?, 0, HEAD)?;
        let head = Head::of(load(&words).collect::<Vec<_>>().try_into().ok()?)?;
        let (gathered, layout) = self.graph(&head)?;
        let places = Places::of(&gathered, &layout, head.input_bytes)?;
        let block = self.tenant.region.at(line, places.lines)?;
        let parts = Parts::of(&block, &places, &gathered)?;
        Some(Arc::new(Work {
            external: External::Shared(parts.input, head.input_bytes),
            arena: Some(Arena::shared(
                layout,
                Array::Part(parts.outputs),
                Array::Part(parts.states),
            )),
            spare: None,
            records: Array::Part(parts.records),
            task_times: head.measures.then_some(Array::Part(parts.times)),
            failure: OnceLock::new(),
            application: Arc::clone(&self.tenant.application),
            gathered,
        }))
    }

    fn failed(&self, work: &Work) {
        self.seat
            .tell(work.failure.get().map_or("", String::as_str));
    }
}

/// For tests: all that a kernel that has got loose can write to.
#[cfg(test)]
pub mod everything {
    use super::super::region::{Block, Region};
    use std::sync::{Arc, OnceLock};

    static EVERYTHING: OnceLock<Arc<Block>> = OnceLock::new();

    /// Keeps where it is.
    pub fn set(region: &Arc<Region>) {
        let lines = super::super::REGION_BYTES / crate::engine::array::ALIGNMENT;
        if let Some(block) = region.at(0, lines) {
            let _first = EVERYTHING.set(block);
        }
    }

    /// The region's first byte, and its length; `None` in a process that is no PE's.
    pub fn get() -> Option<(*mut u8, usize)> {
        let block = EVERYTHING.get()?;
        Some((block.start().as_ptr(), block.bytes()))
    }
}
