//! Traffic of a host at full rate, while a test does something else.

use super::platform::Platform;
use rustix::net::sockopt::set_ip_tos;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

/// Datagrams from one host to another, as fast as a thread can, until it is dropped.
pub struct Flood {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Flood {
    /// Starts it, with this type of service; the far end's port is 9.
    ///
    /// # Panics
    /// Without root, or if there is no such host.
    pub fn start(platform: &Platform, from: &str, to: &str, tos: u8) -> Self {
        let namespace = File::open(platform.host_netns(from)).expect("the host is there");
        let to = format!("{to}:9");
        let ends = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&ends);
        let thread = thread::spawn(move || {
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
                .expect("root may enter it");
            let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
            set_ip_tos(&socket, tos).expect("any user may");
            while !told.load(Ordering::Relaxed) {
                // A full queue of the sender's own is none of ours.
                let _sent = socket.send_to(&[7; 200], &to);
            }
        });
        Flood {
            ends,
            thread: Some(thread),
        }
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ended = thread.join();
        }
    }
}
