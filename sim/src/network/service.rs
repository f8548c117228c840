//! The order in which functions are served at a core.

/// How the rings of a core take turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// The functions take turns. A turn ends with the batch, as of processes that yield the CPU after each batch
    /// (`sched_yield`, or sleep), or when it has taken longer than the quantum, as of processes that the kernel
    /// preempts. Batches below the quantum: packet-fair; above: fair in CPU time; one below and one above: neither
    /// (R3). Without a quantum always packet-fair.
    Turns {
        /// The longest turn, nanoseconds.
        quantum_ns: Option<u64>,
    },
    /// Start-time fair queueing (Goyal, Vin, Cheng, SIGCOMM '96): a turn belongs to the ring that has had
    /// least CPU time; time that it did not ask for is not saved. A turn ends as above: what a kernel's fair
    /// scheduler does with its slice.
    CpuFair {
        /// The longest turn, nanoseconds.
        quantum_ns: Option<u64>,
    },
}

/// The scheduler, which records each function's turns.
#[derive(Clone, Debug)]
pub(super) struct Scheduler {
    service: Service,
    last: usize,
    /// CPU time that each has had, or was given up, nanoseconds.
    had_ns: Vec<u64>,
    /// Of the ring that had the last turn, when it began.
    now_ns: u64,
}

impl Scheduler {
    pub(super) fn new(service: Service, rings: usize) -> Self {
        Scheduler {
            service,
            last: 0,
            had_ns: vec![0; rings],
            now_ns: 0,
        }
    }

    /// A ring without packets gets one.
    pub(super) fn wakes(&mut self, ring: usize) {
        self.had_ns[ring] = self.had_ns[ring].max(self.now_ns);
    }

    /// The ring whose turn it is, among those that have packets.
    pub(super) fn choose(&mut self, has_packets: impl Fn(usize) -> bool) -> Option<usize> {
        let rings = self.had_ns.len();
        let mut in_turn = (1..=rings).map(|step| (self.last + step) % rings);
        let chosen = match self.service {
            Service::Turns { .. } => in_turn.find(|&ring| has_packets(ring)),
            Service::CpuFair { .. } => in_turn
                .filter(|&ring| has_packets(ring))
                .min_by_key(|&ring| self.had_ns[ring]),
        }?;
        self.last = chosen;
        self.now_ns = self.had_ns[chosen];
        Some(chosen)
    }

    /// A turn of `ring` takes `ns`.
    pub(super) fn charge(&mut self, ring: usize, ns: u64) {
        self.had_ns[ring] += ns;
    }

    /// The longest turn.
    pub(super) fn turn_ns_max(&self) -> u64 {
        match self.service {
            Service::Turns { quantum_ns } | Service::CpuFair { quantum_ns } => {
                quantum_ns.unwrap_or(u64::MAX)
            }
        }
    }
}
