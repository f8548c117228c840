//! A program that tries to break out, and tells what the kernel said. Tests run it inside the sandbox, where each
//! attempt must fail, and outside, where the same attempt must succeed: else the test would prove nothing.
//!
//! Every argument is one attempt, `name:argument:argument`, made in this order. About each, lines go to descriptor 3, or to
//! N after `report-to:N`: `begin name`, then `end name ok VALUE` or `end name errno NUMBER`. If the process is killed in the middle, the `begin`
//! without `end` tells by what.
//!
//! It makes bare system calls, so that the kernel is asked exactly this and no library is in between; hence the one
//! unsafe function of the tests, in [`kernel`].

mod attempts;
mod kernel;
mod lies;
mod resources;

use kernel::{Answer, Errno};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Where the answers go.
static REPORT_FD: AtomicUsize = AtomicUsize::new(3);

fn main() {
    for argument in std::env::args().skip(1) {
        if let Some(number) = argument.strip_prefix("report-to:") {
            let number = number.parse().expect("a descriptor's number");
            REPORT_FD.store(number, Ordering::Relaxed);
            continue;
        }
        let mut parts = argument.split(':');
        let name = parts.next().unwrap_or_default();
        let arguments: Vec<&str> = parts.collect();
        tell(&format!("begin {argument}\n"));
        let answer = attempt(name, &arguments);
        tell(&match answer {
            Ok(value) => format!("end {argument} ok {value}\n"),
            Err(Errno(errno)) => format!("end {argument} errno {errno}\n"),
        });
    }
}

fn tell(line: &str) {
    let report_fd = REPORT_FD.load(Ordering::Relaxed);
    // Who does not listen shall not stop the attempts.
    let _written = kernel::call(
        libc::SYS_write,
        [report_fd, line.as_ptr() as usize, line.len(), 0, 0, 0],
    );
}

fn attempt(name: &str, arguments: &[&str]) -> Answer {
    let table = attempts::TABLE.iter().chain(resources::TABLE);
    let table = table.chain(lies::TABLE);
    match table.into_iter().find(|(known, _)| *known == name) {
        Some((_, attempt)) => attempt(arguments),
        None => panic!("no attempt is called {name}"),
    }
}
