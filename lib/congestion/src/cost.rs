//! CPU cost of an instance per packet.
//!
//! The CPU time is the kernel's, of the instance's control group and of the I/O thread that works for it alone. The frames
//! are those that the switch delivered, less those that wait. Only the latter can an instance lie about, by at most its
//! rings: what it denies having consumed now is counted later, what it claims too early is not counted again.

/// Time constant of the recent cost.
const RECENT_NS: f64 = 1e9;
/// Number of samples without a delivery after which an instance is idle: its CPU time is then not spent on packets.
const QUIET_SAMPLES: u32 = 2;

/// Decayed or plain sums of one kind.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    cpu_ns: f64,
    frames: f64,
}

impl Sums {
    fn add(&mut self, cpu_ns: f64, frames: f64) {
        self.cpu_ns += cpu_ns;
        self.frames += frames;
    }

    fn cost_ns(self) -> Option<f64> {
        (self.frames >= 1.0).then(|| self.cpu_ns / self.frames)
    }
}

/// The values of the last reading.
#[derive(Clone, Copy, Debug)]
struct Sample {
    at_ns: u64,
    cpu_ns: u64,
}

/// The frames that a port has received and the CPU time that they took.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PortUse {
    /// CPU time of its instance, split among the ports by frames, nanoseconds.
    pub cpu_ns: f64,
    /// Frames consumed.
    pub frames: u64,
    /// As counted: no claim to have consumed them again counts.
    consumed: u64,
    delivered: u64,
}

/// The meter of one instance.
#[derive(Clone, Debug, Default)]
pub struct Meter {
    ports: Vec<PortUse>,
    quiet: u32,
    last: Option<Sample>,
    recent: Sums,
    total: Sums,
    known_ns: Option<f64>,
    /// CPU time that no frame has been found for yet.
    unsplit_ns: f64,
}

impl Meter {
    /// The meter of an instance with so many rings, queues counted.
    pub fn new(ports: usize) -> Self {
        Meter {
            ports: vec![PortUse::default(); ports],
            ..Meter::default()
        }
    }

    /// Measures an instance at `now_ns` of a monotonic clock. `delivered` is the total number of frames that the switch
    /// has delivered, by port. `read` is called only if there is something to measure: it returns the total CPU time of
    /// the instance in nanoseconds, and the number of waiting frames by port. Returns true if the instance is active.
    pub fn measure(
        &mut self,
        now_ns: u64,
        delivered: &[u64],
        read: impl FnOnce(&mut Vec<u32>) -> Option<u64>,
    ) -> bool {
        if self.note(delivered) {
            self.quiet = 0;
        } else {
            self.quiet = self.quiet.saturating_add(1);
        }
        if self.quiet >= QUIET_SAMPLES {
            self.last = None;
            return false;
        }
        let mut waiting = Vec::with_capacity(self.ports.len());
        let Some(cpu_ns) = read(&mut waiting) else {
            self.last = None;
            return true;
        };
        let consumed = self.consume(&waiting);
        let before = self.last.replace(Sample {
            at_ns: now_ns,
            cpu_ns,
        });
        let Some(before) = before else {
            // Counted from now on: what it did before was not seen from its beginning.
            return true;
        };
        // A counter that goes back has been made anew.
        let Some(cpu_ns) = cpu_ns.checked_sub(before.cpu_ns) else {
            return true;
        };
        let frames: u64 = consumed.iter().sum();
        self.count(
            now_ns.saturating_sub(before.at_ns),
            cpu_ns as f64,
            frames as f64,
        );
        self.split(&consumed, frames);
        true
    }

    /// Records the delivered frames. Returns true if frames were delivered since the last call.
    fn note(&mut self, delivered: &[u64]) -> bool {
        let mut any = false;
        for (port, now) in self.ports.iter_mut().zip(delivered) {
            any |= port.delivered != *now;
            if *now < port.delivered {
                port.consumed = 0;
                self.last = None;
            }
            port.delivered = *now;
        }
        any
    }

    /// By port, the frames consumed since the sample before.
    fn consume(&mut self, waiting: &[u32]) -> Vec<u64> {
        let ports = self.ports.iter_mut().zip(waiting);
        ports
            .map(|(port, waiting)| {
                let now = port.delivered.saturating_sub(u64::from(*waiting));
                let new = now.saturating_sub(port.consumed);
                port.consumed += new;
                new
            })
            .collect()
    }

    fn count(&mut self, elapsed_ns: u64, cpu_ns: f64, frames: f64) {
        let kept = RECENT_NS / (RECENT_NS + elapsed_ns as f64);
        self.recent.cpu_ns *= kept;
        self.recent.frames *= kept;
        self.recent.add(cpu_ns, frames);
        self.total.add(cpu_ns, frames);
        self.unsplit_ns += cpu_ns;
        self.known_ns = self.recent.cost_ns().or(self.known_ns);
    }

    fn split(&mut self, consumed: &[u64], frames: u64) {
        if frames == 0 {
            return;
        }
        let each_ns = std::mem::take(&mut self.unsplit_ns) / frames as f64;
        for (port, frames) in self.ports.iter_mut().zip(consumed) {
            port.frames += frames;
            port.cpu_ns += each_ns * *frames as f64;
        }
    }

    /// Mean CPU time of a packet of late, in nanoseconds; of an instance that idles, when it last did not. `None`: none
    /// was seen yet.
    pub fn cost_ns(&self) -> Option<f64> {
        self.known_ns
    }

    /// Mean CPU time of a packet since the meter began, in nanoseconds.
    pub fn mean_cost_ns(&self) -> Option<f64> {
        self.total.cost_ns()
    }

    /// By port.
    pub fn ports(&self) -> &[PortUse] {
        &self.ports
    }
}
