use super::*;
use crate::waiting_frames::{BYTES_MAX, HEAD, MARK};
use rustix::event::{EventfdFlags, eventfd};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

struct Fake {
    resumed: Receiver<()>,
    frames: Receiver<(u8, Vec<u8>)>,
    empty: Sender<()>,
    waiting: Sender<u64>,
    wake: OwnedFd,
}

impl Surroundings for Fake {
    fn answer(&mut self, waiting: u64) -> bool {
        // The test may not read this.
        let _ = self.waiting.send(waiting);
        self.resumed.try_recv().is_ok()
    }

    fn take(&mut self, most: usize, see: &mut dyn FnMut(u8, &[u8])) -> bool {
        let mut left = most;
        while let Some(after) = left.checked_sub(60 + HEAD) {
            let Ok((port, frame)) = self.frames.try_recv() else {
                // The test may not read this.
                let _ = self.empty.send(());
                return true;
            };
            see(port, &frame);
            left = after;
        }
        false
    }

    fn wake(&self) -> &OwnedFd {
        &self.wake
    }
}

struct Daemon {
    way: Option<OwnedFd>,
    resume: Sender<()>,
    frames: Sender<(u8, Vec<u8>)>,
    empty: Receiver<()>,
    waiting: Receiver<u64>,
    wake: OwnedFd,
    instance: JoinHandle<anyhow::Result<WaitingFrames>>,
}

/// Creates an instance that has offered the state `state`.
fn offered() -> Daemon {
    let flags = SocketFlags::CLOEXEC;
    let (way, its_way) =
        socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).expect("a pair");
    let wake = eventfd(0, EventfdFlags::NONBLOCK).expect("an eventfd");
    let (resume, resumed) = channel();
    let (frames, waiting) = channel();
    let (found, empty) = channel();
    let (told, waiting_frames) = channel();
    let mut surroundings = Fake {
        resumed,
        frames: waiting,
        empty: found,
        waiting: told,
        wake: wake.try_clone().expect("a descriptor"),
    };
    let instance = std::thread::spawn(move || {
        depart(
            its_way,
            b"state",
            WaitingFrames::default(),
            &mut surroundings,
        )
    });
    let daemon = Daemon {
        way: Some(way),
        resume,
        frames,
        empty,
        waiting: waiting_frames,
        wake,
        instance,
    };
    assert_eq!(daemon.hear(13), b"\x05\0\0\0\0\0\0\0state");
    daemon
}

impl Daemon {
    fn say(&self, word: u8) {
        let way = self.way.as_ref().expect("it is open");
        send(way, &[word], SendFlags::NOSIGNAL).expect("it hears");
    }

    fn hear(&self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        let mut filled = 0;
        while filled < length {
            let way = self.way.as_ref().expect("it is open");
            let (read, _) = recv(way, &mut bytes[filled..], RecvFlags::empty()).expect("said");
            assert!(read > 0, "it has gone");
            filled += read;
        }
        bytes
    }

    /// Asserts that the instance goes on, and returns its frames.
    fn goes_on(self) -> Vec<(u8, Vec<u8>)> {
        let mut waiting_frames = self.instance.join().expect("ended").expect("goes on");
        std::iter::from_fn(|| waiting_frames.pop()).collect()
    }

    /// Waits until the rings were found empty.
    fn has_taken_all(&self) {
        self.empty.try_iter().count();
        for _ in 0..2 {
            self.empty.recv().expect("it looks again");
        }
    }

    /// Asserts that the instance stands still and answers, and then lets it go on.
    fn stands_still(self) {
        std::thread::sleep(Duration::from_millis(50));
        assert!(!self.instance.is_finished());
        self.resume.send(()).expect("it is there");
        rustix::io::write(&self.wake, &1u64.to_ne_bytes()).expect("an eventfd");
        self.goes_on();
    }
}

// promise: 5.36
#[test]
fn one_whose_daemon_dies_before_it_is_held_goes_on() {
    let mut daemon = offered();
    daemon.way = None;
    daemon.goes_on();
}

// promise: 5.36
#[test]
fn one_that_is_held_stands_still_when_its_daemon_dies() {
    let mut daemon = offered();
    daemon.say(b'H');
    daemon.way = None;
    daemon.stands_still();
    let mut daemon = offered();
    daemon.say(b'H');
    daemon.say(b'F');
    daemon.way = None;
    daemon.stands_still();
}

#[test]
fn one_that_is_held_goes_on_when_it_is_told() {
    let daemon = offered();
    daemon.say(b'H');
    daemon.say(b'G');
    daemon.goes_on();
}

// promise: 5.35
#[test]
fn what_comes_while_it_stands_still_comes_first_when_it_goes_on() {
    for word in [None, Some(b'G')] {
        let mut daemon = offered();
        let frames: Vec<_> = (0..3000u16)
            .map(|number| (2, number.to_le_bytes().repeat(30)))
            .collect();
        for frame in &frames {
            daemon.frames.send(frame.clone()).expect("it is there");
        }
        daemon.has_taken_all();
        match word {
            Some(word) => daemon.say(word),
            None => daemon.way = None,
        }
        assert!(daemon.goes_on() == frames);
    }
}

#[test]
fn how_many_frames_it_has_taken_and_not_handed_on_is_told() {
    let mut daemon = offered();
    daemon.say(b'H');
    for _ in 0..3 {
        daemon.frames.send((0, vec![2; 60])).expect("it is there");
    }
    let waits = |daemon: &Daemon, count| daemon.waiting.iter().any(|waiting| waiting == count);
    assert!(waits(&daemon, 3));
    daemon.say(b'F');
    daemon.hear(3 * 63 + HEAD);
    assert!(waits(&daemon, 0));
    // The connection to the other host is cut.
    daemon.way = None;
    daemon.frames.send((0, vec![2; 60])).expect("it is there");
    assert!(waits(&daemon, 1));
    daemon.stands_still();
}

// promise: 5.35
#[test]
fn what_it_has_no_room_for_is_handed_on_when_it_has_room_again() {
    let daemon = offered();
    let most = BYTES_MAX / (60 + HEAD);
    for _ in 0..most + 9 {
        daemon.frames.send((0, vec![2; 60])).expect("it is there");
    }
    daemon.say(b'H');
    daemon.say(b'F');
    for _ in 0..most + 9 {
        assert_eq!(daemon.hear(63)[..3], [0, 60, 0]);
    }
    assert_eq!(daemon.hear(HEAD), MARK);
    daemon.say(b'G');
    assert_eq!(daemon.goes_on(), []);
}

// promise: 5.35
#[test]
fn frames_are_handed_on_but_not_what_its_successor_has_heard_itself() {
    let mut daemon = offered();
    let mut group = vec![7; 60];
    group[0] = 0xff;
    let ours = announcement([2, 0, 0, 0, 0, 9]).to_vec();
    let single = vec![2; 60];
    let give = |daemon: &Daemon, frames: &[&Vec<u8>]| {
        for frame in frames {
            daemon
                .frames
                .send((1, (*frame).clone()))
                .expect("it is there");
        }
    };
    let told = |frame: &Vec<u8>| [&[1, 60, 0], frame.as_slice()].concat();
    give(&daemon, &[&group, &single]);
    daemon.say(b'H');
    daemon.say(b'F');
    assert_eq!(daemon.hear(63), told(&group), "it waited before");
    assert_eq!(daemon.hear(63), told(&single));
    assert_eq!(daemon.hear(HEAD), MARK, "that was all");
    let later = vec![4; 60];
    give(&daemon, &[&group, &ours, &later]);
    assert_eq!(daemon.hear(63), told(&later));
    daemon.has_taken_all();
    give(&daemon, &[&single]);
    daemon.say(b'E');
    assert_eq!(daemon.hear(63), told(&single), "the last one");
    let way = daemon.way.take().expect("it is open");
    assert_eq!(recv(&way, &mut [0][..], RecvFlags::empty()), Ok((0, 0)));
    daemon.stands_still();
}
