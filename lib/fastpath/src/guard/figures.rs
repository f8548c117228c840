//! Metrics of a guard.

use nfluid_evnf::guard::Exit;

/// Returns the verdict of an exit of a guard. `up`: the guard has not fully checked the packet.
pub fn verdict(exit: Exit) -> &'static str {
    match exit {
        Exit::Answered => "send",
        Exit::NotIp | Exit::Group | Exit::Neighbour | Exit::Unreadable => "up",
        exit if exit.is_drop() => "drop",
        _ => "pass",
    }
}
