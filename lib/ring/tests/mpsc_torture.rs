//! The ring of many producers under processes that share a core, are preempted whenever a disturbing thread wakes up,
//! and are killed at any instruction: each value that a living producer pushes arrives once and in order, and no
//! process waits for a dead producer.

use nfluid_ring::memory::MpscMemory;
use nfluid_ring::mpsc::Mpsc;
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use rustix::thread::{CpuSet, sched_setaffinity, sched_yield};
use std::os::fd::{AsFd, AsRawFd};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const PRODUCERS: u32 = 12;
const KILLS: u32 = 200;
/// Values between two kills.
const BETWEEN: u32 = 5_000;
const ROLE: &str = "NFLUID_MPSC_PRODUCER";

/// Producer number and count: 8 and 24 bits.
fn value(producer: u32, count: u32) -> u32 {
    producer << 24 | count & 0x00ff_ffff
}

/// Pushes for as long as it lives. Not a test of its own: the one below starts it as a process.
#[test]
fn producer() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
    let numbers: Vec<i32> = role.split(' ').map(|word| word.parse().unwrap()).collect();
    if getppid().map(|pid| pid.as_raw_pid()) != Some(numbers[2]) {
        return;
    }
    pin();
    let fd = nfluid_ring::attach::inherited(numbers[1]).unwrap();
    let memory = MpscMemory::map(fd.as_fd()).unwrap();
    let ring: &Mpsc<{ MpscMemory::SLOTS }> = memory.ring();
    let mut count = 0;
    loop {
        if ring.push(value(numbers[0] as u32, count)).is_ok() {
            count += 1;
        } else {
            sched_yield();
        }
    }
}

/// To a core that all share.
fn pin() {
    let mut cpus = CpuSet::new();
    cpus.set(0);
    sched_setaffinity(None, &cpus).expect("pinning");
}

/// Ended when dropped.
struct Producer(Child);

impl Producer {
    fn start(memory: &MpscMemory, number: u32) -> Self {
        let fd = memory.fd();
        rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::empty()).expect("inheriting");
        let role = format!("{number} {} {}", fd.as_raw_fd(), std::process::id());
        let child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "producer", "--nocapture"])
            .env(ROLE, role)
            .stdout(Stdio::null())
            .spawn()
            .expect("a process");
        Producer(child)
    }

    fn kill(&mut self) {
        self.0.kill().expect("killing");
        self.0.wait().expect("waiting");
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Wakes up all the time and takes the core from the running producer.
fn pest(stop: &std::sync::atomic::AtomicBool) {
    pin();
    while !stop.load(std::sync::atomic::Ordering::Relaxed) {
        std::thread::sleep(Duration::from_micros(20));
    }
}

/// The values that have arrived from each producer.
struct Arrived([u32; PRODUCERS as usize]);

impl Arrived {
    /// Takes `count` values; each must be its producer's next.
    fn take(&mut self, ring: &Mpsc<{ MpscMemory::SLOTS }>, count: u32) {
        let mut taken = 0;
        while taken < count {
            let Some(got) = ring.pop() else {
                sched_yield();
                continue;
            };
            let producer = got >> 24;
            let next = &mut self.0[producer as usize];
            assert_eq!(got, value(producer, *next), "after {taken} values");
            *next += 1;
            taken += 1;
        }
    }
}

// promise: 1.20
#[test]
fn producers_that_are_preempted_and_killed_anywhere_hold_up_nobody() {
    let memory = MpscMemory::create().unwrap();
    let ring = memory.ring();
    let mut producers: Vec<_> = (0..PRODUCERS)
        .map(|n| Producer::start(&memory, n))
        .collect();
    let mut arrived = Arrived([0; PRODUCERS as usize]);
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| pest(&stop));
        for kill in 0..KILLS {
            arrived.take(ring, BETWEEN);
            let number = kill % PRODUCERS;
            producers[number as usize].kill();
            // The values that the killed producer had pushed come first; its successor begins anew.
            let left: Vec<u32> = std::iter::from_fn(|| ring.pop()).collect();
            for got in left {
                let next = &mut arrived.0[(got >> 24) as usize];
                assert_eq!(got, value(got >> 24, *next));
                *next += 1;
            }
            arrived.0[number as usize] = 0;
            producers[number as usize] = Producer::start(&memory, number);
        }
        arrived.take(ring, BETWEEN);
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}
