//! The run-time of a guest: everything between the monitor and a network function.

mod calls;
mod heap;
mod mailbox;
mod outbox;
mod panic;
mod start;
mod surroundings;

pub use calls::Build;
pub use mailbox::{device, log};
pub use surroundings::surroundings;

use crate::abi::Reply;
use calls::Guest;

/// Answers the monitor's calls with the network function that `build` makes.
pub fn serve(build: Build) -> ! {
    heap::start();
    let mut guest = Guest::new(build);
    // The first reply says for which version this image was built.
    mailbox::put_reply(&Reply::default());
    loop {
        let call = mailbox::next_call();
        let reply = guest.answer(&call);
        mailbox::put_reply(&reply);
    }
}
