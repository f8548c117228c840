//! A program that tries to break out of the sandbox and reports the kernel's results. Tests run the program inside the
//! sandbox, where each attempt must fail, and outside, where the same attempt must succeed: otherwise the test would
//! prove nothing.
//!
//! Every argument is one attempt, `name:argument:argument`; attempts run in order. For each attempt, lines go to
//! descriptor 3, or to N after `report-to:N`: `begin name`, then `end name ok VALUE` or `end name errno NUMBER`. If an
//! attempt kills the process, its `begin` line has no `end` line.
//!
//! The program makes bare system calls, so that the kernel gets exactly these arguments without a library in between;
//! hence the one unsafe function of the tests, in [`kernel`].

mod attempts;
mod kernel;
mod lies;
mod resources;

use kernel::{Answer, Errno};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The descriptor of the report.
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
        write_report(&format!("begin {argument}\n"));
        let answer = attempt(name, &arguments);
        write_report(&match answer {
            Ok(value) => format!("end {argument} ok {value}\n"),
            Err(Errno(errno)) => format!("end {argument} errno {errno}\n"),
        });
    }
}

fn write_report(line: &str) {
    let report_fd = REPORT_FD.load(Ordering::Relaxed);
    // The attempts continue if nobody reads the report.
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
