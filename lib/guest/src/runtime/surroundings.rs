//! Random bits and the time of day for a server in a guest, from the device page.

use super::mailbox;
use nfluid_nf::Nanos;
use nfluid_server::Surroundings;
use nfluid_server::service::UnixTime;

/// Returns random bits and the time of day of this guest.
pub fn surroundings() -> Surroundings {
    Surroundings {
        seed: mailbox::device().entropy[0],
        time_of_day: |now: Nanos| {
            let since_epoch = mailbox::device().unix_epoch.saturating_add(now.0);
            UnixTime(since_epoch / 1_000_000_000)
        },
    }
}
