//! Whatever a hostile NF does with its own ports, CPU time and memory, a pair of well-behaved neighbours loses no frame
//! and gets the CPU time that it was promised.

use nfluid_ring::attach::Attached;
use nfluid_ring::doorbell::{AGEING, SPURIOUS_MAX, Woken};
use nfluid_ring::port::{Port, WhenFull};
use nfluid_ring::table::{ATTACH_ENV, Table};
use nfluid_sandbox::cgroup::{Cgroup, Controller, Share};
use nfluid_switch::Destination;
use nfluid_testbed::scratch::{Scratch, ScratchInstance};
use nfluid_tests::harness::measure::{one_holds, part_of};
use nfluid_tests::harness::patience::eventually;
use nfluid_tests::harness::sandboxed::Sandboxes;
use nfluid_tests::harness::skip::{is_root, skip};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity, sched_yield};
use std::io::{BufReader, Read, Write};
use std::os::fd::AsFd;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Environment variable with the role of this program when it is started again.
const ROLE: &str = "NFLUID_TEST_ROLE";
const FRAME_BYTES: usize = 200;

fn send(port: &mut Port, number: u64) -> bool {
    port.send(|slot| {
        slot[..FRAME_BYTES].fill(2);
        slot[14..22].copy_from_slice(&number.to_le_bytes());
        FRAME_BYTES
    })
}

/// A frame's number.
fn number(frame: &[u8]) -> u64 {
    assert_eq!(frame.len(), FRAME_BYTES);
    u64::from_le_bytes(frame[14..22].try_into().expect("eight bytes"))
}

/// Plays a role when this program was started as one; otherwise does nothing.
#[test]
fn neighbour_process() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    // The parent has put this program into its cgroup when it sends the byte.
    std::io::stdin().read_exact(&mut [0]).expect("a go");
    if role == "opens again" {
        open_for_ever();
    }
    let mut attached = Attached::from_env().expect("attach");
    match role.as_str() {
        "sender" => send_until_stopped(&mut attached.ports[0]),
        "receiver" => receive_until_stopped(attached),
        "spins" => loop {
            std::hint::spin_loop();
        },
        "rings" => ring_for_ever(&mut attached.ports[0]),
        "fills its memory" => fill_memory(),
        _ => panic!("no role {role}"),
    }
}

/// Sends numbered frames, none of which a full ring may cost, until standard input ends. Always wants CPU time.
fn send_until_stopped(port: &mut Port) {
    let stdin = std::io::stdin();
    rustix::io::ioctl_fionbio(&stdin, true).expect("a pipe");
    let mut next = 0;
    let is_stopped = || rustix::io::read(&stdin, &mut [0]) == Ok(0);
    while !is_stopped() {
        for _ in 0..32 {
            next += u64::from(send(port, next));
        }
        port.flush(WhenFull::Keep).expect("flush");
        sched_yield();
    }
    while port.queued() > 0 {
        port.flush(WhenFull::Keep).expect("flush");
        sched_yield();
    }
    println!("COUNT {next}");
}

/// Receives until standard input says how many frames there were; sleeps when there is none.
fn receive_until_stopped(mut attached: Attached) {
    let stdin = std::io::stdin();
    let told = stdin.as_fd().try_clone_to_owned().expect("a descriptor");
    let (mut next, mut total) = (0, None);
    loop {
        let check = |frame: &mut [u8]| {
            assert_eq!(number(frame), next, "a frame is lost");
            next += 1;
        };
        if attached.ports[0].receive(64, check) > 0 {
            continue;
        }
        if total.is_some() {
            break;
        }
        let woken = attached
            .doorbell
            .wait(&mut attached.ports, Some(&told), AGEING);
        if woken.expect("wait") == Woken::Other {
            let mut line = String::new();
            stdin.read_line(&mut line).expect("a line");
            total = Some(line.trim().parse::<u64>().expect("a number"));
        }
    }
    assert_eq!(Some(next), total, "the last frames are lost");
    println!("COUNT {next}");
}

/// Rings its peer, and enters the switch with something and with nothing.
fn ring_for_ever(port: &mut Port) {
    let doorbell = port.entry().peer_doorbell_fd;
    loop {
        send(port, 0);
        let _full = port.flush(WhenFull::Drop);
        let _nothing = port.call_empty();
        // SAFETY: the port owns the descriptor and lives; the byte lives during the call.
        unsafe { libc::write(doorbell, [1_u8].as_ptr().cast(), 1) };
    }
}

/// Opens its port again and again, uses it, fills it with garbage and closes it.
fn open_for_ever() -> ! {
    let number = std::env::var(ATTACH_ENV).expect("it is an instance");
    let bytes = std::fs::read(format!("/proc/self/fd/{number}")).expect("the table");
    let table = Table::parse(&bytes).expect("it was right");
    loop {
        let mut again = Attached::from_table(&duplicated(&table)).expect("it is open");
        let port = &mut again.ports[0];
        for number in 0..40 {
            send(port, number);
        }
        let _full = port.flush(WhenFull::Drop);
        port.queue_raw(9, u32::MAX);
        let ring = port.raw_ring();
        ring.receiver.rx_released.fetch_add(77, Ordering::Relaxed);
        ring.sender.tx_head.fetch_add(77, Ordering::Relaxed);
    }
}

/// The table with descriptors of its own, to be closed.
fn duplicated(table: &Table) -> Table {
    let mut copy = table.clone();
    let head = &mut copy.head;
    let of_head = [
        &mut head.pool_fd,
        &mut head.doorbell_fd,
        &mut head.kernel_doorbell_fd,
        &mut head.io_doorbell_fd,
    ];
    let of_ports = copy.ports.iter_mut().flat_map(|port| {
        [
            &mut port.socket_fd,
            &mut port.ring_fd,
            &mut port.peer_doorbell_fd,
        ]
    });
    for fd in of_head.into_iter().chain(of_ports).filter(|fd| **fd >= 0) {
        // SAFETY: duplicates a number; whether it is open is checked below.
        *fd = unsafe { libc::dup(*fd) };
        assert!(*fd >= 0, "it is open");
    }
    copy
}

fn fill_memory() {
    let mut all = Vec::new();
    loop {
        all.push(vec![1_u8; 1 << 20]);
    }
}

/// Starts a program that never was on another CPU: the kernel (6.18) weighs a group by the load that it last had on
/// other CPUs too, and does not look again while a member that yields is never there at a tick.
fn on_first_cpu<T>(start: impl FnOnce() -> T) -> T {
    let before = sched_getaffinity(None).expect("this thread has CPUs");
    let mut first = CpuSet::new();
    first.set(0);
    sched_setaffinity(None, &first).expect("there is a first CPU");
    let started = start();
    sched_setaffinity(None, &before).expect("it had them before");
    started
}

/// A process that plays a role in a cgroup, on the first CPU; killed when dropped.
struct Player {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Player {
    fn start(instance: &ScratchInstance, role: &str, cgroup: &Cgroup) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("own path"));
        command
            .args(["--exact", "neighbour_process", "--nocapture"])
            .env(ROLE, role)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = on_first_cpu(|| instance.spawn(&mut command).expect("it starts"));
        cgroup.attach(child.id()).expect("it is there");
        let mut stdin = child.stdin.take().expect("it is piped");
        stdin.write_all(b"!").expect("it listens");
        let stdout = BufReader::new(child.stdout.take().expect("it is piped"));
        Self {
            child,
            stdin: Some(stdin),
            stdout,
        }
    }

    /// Returns the count, when the program has ended well.
    fn finish(mut self) -> u64 {
        self.stdin = None;
        let mut said = String::new();
        self.stdout.read_to_string(&mut said).expect("text");
        let status = self.child.wait().expect("it is our child");
        assert!(status.success(), "{status}: {said}");
        let (_, count) = said.split_once("COUNT ").expect("it counted");
        let digits: String = count.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().expect("a number")
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// Two instances that are linked.
fn linked(scratch: &mut Scratch) -> (ScratchInstance, ScratchInstance) {
    let mut make = || scratch.instance(1, 64, 64).expect("instance");
    let (mut a, mut b) = (make(), make());
    scratch.link((&mut a, 0), (&mut b, 0)).expect("link");
    (a, b)
}

/// A pair of neighbours beside a hostile instance with the same weight on the same CPU, which has 32 MiB: the pair
/// loses no frame, and has half of the CPU time.
fn beside(test: &str, role: &str) {
    let Some(sandboxes) = Sandboxes::new(test) else {
        return;
    };
    let missing = sandboxes.cgroups().missing();
    let needed = [Controller::Cpu, Controller::Memory];
    if let Some(controller) = needed.iter().find(|it| missing.contains(it)) {
        let why = format!("this host has no cgroup controller {controller}");
        skip(test, &why);
        return;
    }
    let mut scratch = Scratch::new("neighbours").expect("scratch platform");
    let (hostile, _its_peer) = linked(&mut scratch);
    let (from, to) = linked(&mut scratch);
    let [good, bad] = [(); 2].map(|()| sandboxes.next_cgroup().0);
    for cgroup in [&good, &bad] {
        let half = Share::from_percent(50).expect("a share");
        cgroup.set_weight(half).expect("a weight");
    }
    bad.set_memory(32 << 20).expect("a limit");

    let receiver = Player::start(&to, "receiver", &good);
    let sender = Player::start(&from, "sender", &good);
    let enemy = Player::start(&hostile, role, &bad);
    if role == "fills its memory" {
        killed_by_its_limit(enemy, &hostile, &bad);
    } else {
        let half = |part: &f64| (0.4..=0.6).contains(part);
        one_holds("half of a CPU became", || part_of(&good, &bad), half);
        drop(enemy);
    }
    // On a slow machine its program may still have been starting.
    let counters = |instance: &ScratchInstance| scratch.switch.counters(instance.id(0));
    eventually("the sender sends", || counters(&from).tx_frames > 0);
    let sent = sender.finish();
    let mut receiver = receiver;
    let told = receiver.stdin.as_mut().expect("it is open");
    writeln!(told, "{sent}").expect("it listens");
    assert_eq!(receiver.finish(), sent, "none is lost, to the frame");
    let [out, into] = [&from, &to].map(counters);
    assert_eq!((out.tx_frames, into.rx_frames), (sent, sent));
    assert_eq!((out.dropped_total(), into.dropped_total()), (0, 0));
}

/// Three of them, one after the other.
fn killed_by_its_limit(first: Player, instance: &ScratchInstance, cgroup: &Cgroup) {
    let mut enemy = first;
    for round in 1..=3 {
        let status = enemy.child.wait().expect("it is our child");
        assert!(!status.success(), "{status}");
        let kills = cgroup.stats().expect("statistics").oom_kills;
        assert!(kills.expect("the limit counts") >= round, "{kills:?}");
        if round < 3 {
            enemy = Player::start(instance, "fills its memory", cgroup);
        }
    }
}

// promise: 3.14
#[test]
fn beside_one_that_spins_neighbours_keep_their_frames_and_their_half_of_a_cpu() {
    beside(
        "beside_one_that_spins_neighbours_keep_their_frames_and_their_half_of_a_cpu",
        "spins",
    );
}

// promise: 3.14
#[test]
fn beside_one_that_always_rings_neighbours_keep_their_frames_and_their_half_of_a_cpu() {
    beside(
        "beside_one_that_always_rings_neighbours_keep_their_frames_and_their_half_of_a_cpu",
        "rings",
    );
}

// promise: 3.14
#[test]
fn beside_one_that_opens_its_port_again_and_again_neighbours_keep_their_frames() {
    beside(
        "beside_one_that_opens_its_port_again_and_again_neighbours_keep_their_frames",
        "opens again",
    );
}

// promise: 3.14
#[test]
fn beside_one_that_fills_its_memory_neighbours_keep_their_frames() {
    let test = "beside_one_that_fills_its_memory_neighbours_keep_their_frames";
    beside(test, "fills its memory");
}

// promise: 3.15
#[test]
fn a_peer_that_rings_for_nothing_is_not_listened_to_after_sixteen_times() {
    if !is_root("a_peer_that_rings_for_nothing_is_not_listened_to_after_sixteen_times") {
        return;
    }
    let mut scratch = Scratch::new("spurious").expect("scratch platform");
    let (from, to) = linked(&mut scratch);
    let (mut peer, mut own) = (from.attach().expect("attach"), to.attach().expect("attach"));
    let doorbell = peer.ports[0].entry().peer_doorbell_fd;
    // Sixteen are heard, one is not, and from then on every other one.
    let others = (SPURIOUS_MAX..SPURIOUS_MAX + 5).flat_map(|heard| [heard; 2]);
    let heard: Vec<u32> = (1..SPURIOUS_MAX).chain(others).collect();
    let mut unheard = Vec::new();
    for (wait, heard) in (1..).zip(heard) {
        // SAFETY: the peer's port owns the descriptor and lives; the byte lives during the call.
        let rung = unsafe { libc::write(doorbell, [1_u8].as_ptr().cast(), 1) };
        assert_eq!(rung, 1);
        let before = own.doorbell.stats().spurious;
        let began = Instant::now();
        let woken = own
            .doorbell
            .wait(&mut own.ports, None, AGEING)
            .expect("wait");
        assert_eq!(woken, Woken::Nothing);
        let stats = own.doorbell.stats();
        assert_eq!(stats.sleeps, wait);
        assert_eq!(stats.spurious, u64::from(heard));
        if stats.spurious == before {
            unheard.push(began.elapsed());
        }
    }
    // The shortest of five: this thread may have been late after others.
    assert_eq!(unheard.len(), 5);
    assert!(
        unheard.iter().min() < Some(&AGEING),
        "others who ring meanwhile would not be heard: {unheard:?}"
    );
    // A peer that has rung for nothing is heard again with a frame.
    assert!(send(&mut peer.ports[0], 5));
    assert_eq!(peer.ports[0].flush(WhenFull::Drop).expect("flush"), 1);
    let woken = own
        .doorbell
        .wait(&mut own.ports, None, AGEING)
        .expect("wait");
    assert_eq!(woken, Woken::Frame);
    let count = own.ports[0].receive(2, |frame| assert_eq!(number(frame), 5));
    assert_eq!(count, 1);
}

// promise: 3.15
#[test]
fn frames_of_a_peer_that_never_rings_are_found() {
    if !is_root("frames_of_a_peer_that_never_rings_are_found") {
        return;
    }
    let mut scratch = Scratch::new("silent").expect("scratch platform");
    let mut make = || scratch.instance(1, 64, 64).expect("instance");
    let (from, to) = (make(), make());
    // Joined without doorbells: the sender has nothing to ring with.
    for (one, other) in [(&from, &to), (&to, &from)] {
        let link = Destination::Link(other.id(0));
        scratch.switch.connect(one.id(0), link).expect("connect");
    }
    let watched = to.attach().expect("attach");
    let (mut peer, mut own) = (from.attach().expect("attach"), to.attach().expect("attach"));
    std::thread::scope(|scope| {
        let receiver = scope.spawn(move || {
            let mut next = 0;
            while next < 3 {
                let _woken = own
                    .doorbell
                    .wait(&mut own.ports, None, AGEING)
                    .expect("wait");
                own.ports[0].receive(64, |frame| {
                    assert_eq!(number(frame), next);
                    next += 1;
                });
            }
            own.doorbell.stats().sleeps
        });
        for number in 0..3 {
            // Each is sent while the receiver sleeps.
            while watched.ports[0]
                .raw_ring()
                .receiver
                .rx_sleep
                .load(Ordering::Acquire)
                == 0
            {
                std::thread::yield_now();
            }
            assert!(send(&mut peer.ports[0], number));
            assert_eq!(peer.ports[0].flush(WhenFull::Drop).expect("flush"), 1);
        }
        assert!(receiver.join().expect("receiver") >= 1);
    });
}
