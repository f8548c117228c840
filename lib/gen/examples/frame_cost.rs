//! Cost of a frame for the generator and the receiver, without a port: nanoseconds of this thread's CPU time per
//! frame, median of the repeats.
//!
//! ```text
//! cargo run --release -p nfluid-gen --example frame_cost
//! ```

use std::hint::black_box;

use nfluid_gen::io::{IoError, SLOT_MIN, Sender};
use nfluid_gen::receive::Inspector;
use nfluid_gen::send::Generator;
use nfluid_gen::spec::{Content, FlowSpec, Sizes, SpecError, TrafficSpec};
use nix::time::{ClockId, clock_gettime};

const SLOTS: usize = 256;
const SLOT_SIZE: usize = 2048;
const BURST: usize = 64;
const ROUNDS: usize = 20_000;
const REPEATS: usize = 9;

const _: () = assert!(SLOT_SIZE >= SLOT_MIN);

/// A ring of slots, as a port has, without a receiver that takes the frames.
struct Slots {
    bytes: Vec<u8>,
    lengths: Vec<usize>,
    head: usize,
}

impl Slots {
    fn new() -> Self {
        Slots {
            bytes: vec![0; SLOTS * SLOT_SIZE],
            lengths: vec![0; SLOTS],
            head: 0,
        }
    }

    fn frame(&self, index: usize) -> &[u8] {
        &self.bytes[index * SLOT_SIZE..][..self.lengths[index]]
    }
}

impl Sender for Slots {
    #[inline]
    fn send(
        &mut self,
        count: usize,
        mut fill: impl FnMut(usize, &mut [u8]) -> usize,
    ) -> Result<usize, IoError> {
        for position in 0..count {
            let start = self.head * SLOT_SIZE;
            let slot = &mut self.bytes[start..start + SLOT_SIZE];
            self.lengths[self.head] = fill(position, slot);
            self.head = (self.head + 1) % SLOTS;
        }
        Ok(count)
    }

    fn flush(&mut self) -> Result<(), IoError> {
        Ok(())
    }

    fn prefill(&mut self, write: impl FnMut(&mut [u8])) -> bool {
        self.bytes.chunks_exact_mut(SLOT_SIZE).for_each(write);
        true
    }
}

/// CPU time of this thread in nanoseconds: others on the machine do not count.
fn cpu_ns() -> f64 {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("Linux has this clock");
    time.tv_sec() as f64 * 1e9 + time.tv_nsec() as f64
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn measure(sizes: &str, flows: u32, content: Content) -> Result<(f64, f64), SpecError> {
    let traffic = TrafficSpec {
        sizes: sizes.parse::<Sizes>()?,
        flows: FlowSpec {
            count: flows,
            ..FlowSpec::default()
        },
        content,
        ..TrafficSpec::default()
    };
    let mut slots = Slots::new();
    let mut generator = Generator::new(&traffic, &mut slots)?;
    let send_ns = (0..REPEATS).map(|_| {
        let start_ns = cpu_ns();
        for now_ns in 0..ROUNDS as u64 {
            black_box(generator.burst(&mut slots, BURST, now_ns)).ok();
        }
        (cpu_ns() - start_ns) / (ROUNDS * BURST) as f64
    });
    let send_ns = median(send_ns.collect());
    // The receiver sees each sequence number once, as it would behind a port.
    let mut inspector = Inspector::new(65_536);
    let check_ns = (0..ROUNDS / 8).map(|_| {
        for _ in 0..SLOTS / BURST {
            generator.burst(&mut slots, BURST, 0).ok();
        }
        let start_ns = cpu_ns();
        for index in 0..SLOTS {
            inspector.inspect(slots.frame((slots.head + index) % SLOTS), 1000);
        }
        (cpu_ns() - start_ns) / SLOTS as f64
    });
    let check_ns = median(check_ns.collect());
    black_box(inspector.check());
    Ok((send_ns, check_ns))
}

fn main() -> Result<(), SpecError> {
    println!(
        "{:>6} {:>6} {:>9} {:>9} {:>9}",
        "size", "flows", "content", "send ns", "check ns"
    );
    for (sizes, flows, content) in [
        ("64", 1, Content::Constant),
        ("64", 1, Content::Stamped),
        ("64", 1000, Content::Stamped),
        ("64", 100_000, Content::Stamped),
        ("imix", 1000, Content::Stamped),
        ("1514", 1, Content::Constant),
        ("1514", 1000, Content::Stamped),
    ] {
        let (send_ns, check_ns) = measure(sizes, flows, content)?;
        let name = if content == Content::Stamped {
            "stamped"
        } else {
            "constant"
        };
        println!("{sizes:>6} {flows:>6} {name:>9} {send_ns:>9.1} {check_ns:>9.1}");
    }
    Ok(())
}
