//! The end of a program that runs beside a monitor: it is asked by a signal of its own, and has some time for it.
//!
//! The environment of the monitor says how: a daemon that has adopted the instance finds it there.

use nfluid_control::access::{Access, STOP_WAIT, Stop, StopSignal};
use nfluid_control::quantity::Millis;
use nfluid_lifecycle::workload::Farewell;
use nfluid_protocol::environment;
use nfluid_sandbox::Instance;
use nfluid_sandbox::cgroup::Cgroup;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::time::Duration;

/// Returns how the program is to be asked, for the monitor's environment. `of_image` is what an image says.
pub(super) fn order(access: &Access, of_image: &str) -> String {
    let stop = access.stop.unwrap_or_default();
    let signal = stop.signal.or_else(|| StopSignal::find(of_image));
    let signal = signal.unwrap_or(StopSignal::TERM).number();
    let wait = stop.wait.unwrap_or(STOP_WAIT);
    format!("{signal},{}", wait.0)
}

/// Returns what asks the program beside a monitor to end, and waits until it has, or its time is over. `None` if there is no
/// program, or if the signal means nothing to it: the kernel then does not end the first process of a pid namespace.
/// `stop` goes before what the environment says.
pub(crate) fn farewell(monitor: &Instance, cgroup: &Cgroup, stop: Stop) -> Option<Farewell> {
    let order = super::variable_of(monitor, environment::STOP)?;
    let (signal, wait) = parse(&order)?;
    let asked = stop
        .signal
        .and_then(|it| Signal::from_named_raw(it.number()));
    let signal = asked.unwrap_or(signal);
    let wait = stop.wait.map_or(wait, Millis::duration);
    let processes = cgroup.processes().unwrap_or_default().into_iter();
    let first = processes.filter(|pid| *pid != monitor.pid());
    let program = first
        .filter_map(open_if_first)
        .find_map(|(pid, process)| handles(pid, signal).then_some(process))?;
    let wait = Timespec::try_from(wait).unwrap_or_default();
    Some(Box::new(move || {
        if pidfd_send_signal(&program, signal).is_ok() {
            // Whatever the answer is, what is left is killed.
            let _ = poll(&mut [PollFd::new(&program, PollFlags::IN)], Some(&wait));
        }
    }))
}

fn parse(text: &str) -> Option<(Signal, Duration)> {
    let (signal, wait) = text.split_once(',')?;
    let signal = Signal::from_named_raw(signal.parse().ok()?)?;
    Some((signal, Duration::from_millis(wait.parse().ok()?)))
}

/// Opens a process that is the first of its pid namespace.
fn open_if_first(pid: u32) -> Option<(u32, std::os::fd::OwnedFd)> {
    let process = pidfd_open(
        Pid::from_raw(i32::try_from(pid).ok()?)?,
        PidfdFlags::empty(),
    )
    .ok()?;
    let numbers = status(pid, "NSpid:")?;
    (numbers.split_whitespace().last() == Some("1")).then_some((pid, process))
}

/// Returns true if a process has a handler for a signal.
fn handles(pid: u32, signal: Signal) -> bool {
    let caught = status(pid, "SigCgt:").and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    let bit = u32::try_from(signal.as_raw() - 1).unwrap_or(63);
    caught.is_some_and(|mask| mask.checked_shr(bit).unwrap_or(0) & 1 == 1)
}

/// A line of a process' status (proc(5)).
fn status(pid: u32, key: &str) -> Option<String> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    text.lines()
        .find_map(|line| line.strip_prefix(key))
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_says_how_it_ends_or_its_image_does() {
        let access = Access::default();
        assert_eq!(order(&access, ""), "15,5000");
        assert_eq!(order(&access, "SIGQUIT"), "3,5000");
        assert_eq!(order(&access, "nonsense"), "15,5000");
        let stop = Stop {
            signal: StopSignal::find("INT"),
            wait: Some(Millis(20)),
        };
        let access = Access {
            stop: Some(stop),
            ..access
        };
        assert_eq!(order(&access, "SIGQUIT"), "2,20");
        assert_eq!(
            parse("3,20"),
            Some((Signal::QUIT, Duration::from_millis(20)))
        );
        assert_eq!(parse("99,20"), None);
    }
}
