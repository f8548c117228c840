//! What a guard has done.

use nfluid_evnf::guard::Exit;

/// What became of packets that left a guard like this. `up`: it has not been looked at as others are.
pub fn verdict(exit: Exit) -> &'static str {
    match exit {
        Exit::Answered => "send",
        Exit::NotIp | Exit::Group | Exit::Neighbour | Exit::Unreadable => "up",
        exit if exit.is_drop() => "drop",
        _ => "pass",
    }
}
