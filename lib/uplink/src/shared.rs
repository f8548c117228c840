//! State that an uplink's thread shares with the other threads of its process.

use crate::error::UplinkError;
use crate::spec::{Levels, UplinkPath, UplinkStatus};
use crate::steering::Steered;
use nfluid_netdev::ReceivePath;
use nfluid_ring::Level;
use nfluid_switch::classifier::Rule;
use nfluid_switch::{DropReason, Interface, PortAccount};
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::mpsc::Sender;
use std::sync::{Mutex, PoisonError};

/// Rules for the NIC, which replace the former ones, and the party that waits for the result.
#[derive(Debug)]
pub struct SteeringOrder {
    /// The rules; none: it steers nothing.
    pub rules: Vec<Rule>,
    /// The sender to the thread that waits.
    pub answer: Sender<Result<Steered, UplinkError>>,
}

/// Levels, which replace the former ones, and the party that waits for the result.
#[derive(Debug)]
pub struct LevelsOrder {
    /// The levels.
    pub levels: Levels,
    /// The sender to the thread that waits.
    pub answer: Sender<Result<(), UplinkError>>,
}

/// Orders to an uplink's thread: at most one of each kind.
#[derive(Debug, Default)]
pub struct Orders {
    /// To steer.
    pub steering: Option<SteeringOrder>,
    /// To change the levels.
    pub levels: Option<LevelsOrder>,
}

/// Counters and state of an uplink.
#[derive(Debug)]
pub struct Shared {
    account: PortAccount,
    /// The inode of the namespace in which the interface always is, if it is.
    netns: Option<u32>,
    /// The thread is to end.
    pub stop: AtomicBool,
    /// ... and to leave XDP program and settings as they are.
    pub leave: AtomicBool,
    /// Frames that the interface has taken.
    pub sent_frames: AtomicU64,
    /// Bytes handed to the interface.
    pub sent_bytes: AtomicU64,
    /// Frames that it refused.
    pub refused_frames: AtomicU64,
    /// System calls to make it send.
    pub kicks: AtomicU64,
    /// Times that the interface vanished.
    pub vanished: AtomicU64,
    /// Times that it came back.
    pub returned: AtomicU64,
    path: Mutex<Option<UplinkPath>>,
    steering: Mutex<Option<Steered>>,
    orders: Mutex<Orders>,
    /// There may be an order: the thread of a tap, which has no time to look otherwise, looks here.
    pub is_ordered: AtomicBool,
    /// Readable when the path has changed.
    pub changed: OwnedFd,
    /// Readable when there is an order.
    pub ordered: OwnedFd,
}

impl Shared {
    /// Creates the shared state of the uplink whose port has this account. `netns`: the inode of the namespace in which the
    /// interface always is, if it is.
    ///
    /// # Errors
    /// When the kernel has no descriptor left.
    pub fn new(account: PortAccount, netns: Option<u32>) -> Result<Self, UplinkError> {
        let event = || {
            eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
                .map_err(UplinkError::system("making an event descriptor"))
        };
        Ok(Shared {
            changed: event()?,
            ordered: event()?,
            account,
            netns,
            stop: AtomicBool::new(false),
            leave: AtomicBool::new(false),
            sent_frames: AtomicU64::new(0),
            sent_bytes: AtomicU64::new(0),
            refused_frames: AtomicU64::new(0),
            kicks: AtomicU64::new(0),
            vanished: AtomicU64::new(0),
            returned: AtomicU64::new(0),
            path: Mutex::new(None),
            steering: Mutex::new(None),
            orders: Mutex::default(),
            is_ordered: AtomicBool::new(false),
        })
    }

    /// Counts frames that the interface refused, here and on the port.
    pub fn refuse(&self, frames: u64) {
        if frames > 0 {
            self.refused_frames.fetch_add(frames, Relaxed);
            self.count(DropReason::Uplink, frames);
        }
    }

    /// Counts frames that the port's owner dropped as their sender.
    pub fn count(&self, reason: DropReason, frames: u64) {
        self.account.dropped(reason, frames);
    }

    /// Counts frames that entered, but not through the switch.
    pub fn entered(&self, frames: u64) {
        self.account.entered(frames);
    }

    /// Notes how the uplink works now. Frames from interfaces beside it go out of it at once from now on, or no longer.
    pub fn set_path(&self, path: Option<UplinkPath>) {
        // What goes out of a tap comes in on it for its thread.
        let network = path.as_ref().filter(|it| it.receive != ReceivePath::Tap);
        let interface = network.zip(self.netns).map(|(path, netns)| Interface {
            index: path.index,
            netns,
        });
        self.account.set_interface(interface);
        let mut now = self.path.lock().unwrap_or_else(PoisonError::into_inner);
        if *now != path {
            *now = path;
            self.notify();
        }
    }

    /// Notes the rules that the NIC classifies now.
    pub fn set_steering(&self, steering: Option<Steered>) {
        let mut now = self.steering.lock().unwrap_or_else(PoisonError::into_inner);
        if *now != steering {
            *now = steering;
            self.notify();
        }
    }

    /// Leaves an order for the uplink's thread by `put`. An order of the same kind that the thread has not seen yet is
    /// forgotten, and the thread that waits for that order gets an error.
    pub fn leave_order(&self, put: impl FnOnce(&mut Orders)) {
        put(&mut self.orders.lock().unwrap_or_else(PoisonError::into_inner));
        self.is_ordered.store(true, Release);
        // The write can only fail when the descriptor is readable already.
        let _readable = rustix::io::write(&self.ordered, &1u64.to_ne_bytes());
    }

    /// The orders that the thread has not seen.
    pub fn take_orders(&self) -> Orders {
        self.is_ordered.store(false, Release);
        // The read fails if there is no order.
        let _read = rustix::io::read(&self.ordered, &mut [0u8; 8]);
        std::mem::take(&mut self.orders.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Sets what the port takes of frames to which something is still to be done.
    pub fn set_level(&self, level: Level) {
        self.account.set_level(level);
    }

    /// Notes that the interface is back.
    pub fn has_returned(&self) {
        self.returned.fetch_add(1, Relaxed);
        self.notify();
    }

    fn notify(&self) {
        // The write can only fail when the descriptor is readable already.
        let _readable = rustix::io::write(&self.changed, &1u64.to_ne_bytes());
    }

    /// State and counters.
    pub fn status(&self) -> UplinkStatus {
        UplinkStatus {
            path: self
                .path
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone(),
            sent_frames: self.sent_frames.load(Relaxed),
            sent_bytes: self.sent_bytes.load(Relaxed),
            refused_frames: self.refused_frames.load(Relaxed),
            kicks: self.kicks.load(Relaxed),
            vanished: self.vanished.load(Relaxed),
            returned: self.returned.load(Relaxed),
            steering: self
                .steering
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone(),
        }
    }
}
