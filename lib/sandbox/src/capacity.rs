//! For how many instances the limits of this host are wide enough, whatever memory it has.

use crate::probing::{Feature, Status};
use rustix::process::{Resource, getrlimit};

const NAME: &str = "room for instances";
/// Fewer than so many is worth a word.
const MANY: u64 = 1000;

/// A limit, and an instance's part of it.
struct Limit {
    /// The name of the setting that sets the limit.
    name: &'static str,
    most: u64,
    /// The part for the rest of the host.
    reserve: u64,
    /// The part of an idle instance of two ports.
    each: u64,
}

/// Files that show the limits, and the part of each limit that is used: reserve, and for each instance.
const FILES: [(&str, u64, u64); 10] = [
    ("kernel.pid_max", 1024, 1),
    ("kernel.threads-max", 1024, 1),
    ("fs.file-max", 10_000, 20),
    // The daemon's, of the rings of instances that are at work.
    ("vm.max_map_count", 1000, 4),
    ("user.max_user_namespaces", 100, 1),
    ("user.max_mnt_namespaces", 100, 1),
    ("user.max_pid_namespaces", 100, 1),
    ("user.max_ipc_namespaces", 100, 1),
    ("user.max_uts_namespaces", 100, 1),
    ("user.max_cgroup_namespaces", 100, 1),
];

impl Limit {
    fn room(&self) -> u64 {
        self.most.saturating_sub(self.reserve) / self.each
    }
}

/// Returns the narrowest limit.
pub(crate) fn room_for_instances() -> Feature {
    let of_file = |(name, reserve, each): (&'static str, u64, u64)| {
        let path = format!("/proc/sys/{}", name.replace('.', "/"));
        let text = std::fs::read_to_string(path).ok()?;
        Some(Limit {
            name,
            most: text.trim().parse().ok()?,
            reserve,
            each,
        })
    };
    let mut limits: Vec<Limit> = FILES.into_iter().filter_map(of_file).collect();
    limits.push(Limit {
        name: "the hard limit of open files (LimitNOFILE= of the service, ulimit -Hn)",
        most: getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX),
        reserve: 256,
        each: 1,
    });
    told(&limits)
}

fn told(limits: &[Limit]) -> Feature {
    let Some(narrowest) = limits.iter().min_by_key(|limit| limit.room()) else {
        return Feature::available(NAME, "no limit is known");
    };
    let (room, name) = (narrowest.room(), narrowest.name);
    let detail = format!("as far as memory goes, about {room}: then {name} is reached");
    if room >= MANY {
        return Feature::available(NAME, detail);
    }
    let remedy = format!("raise {name}, now {}, for more instances", narrowest.most);
    Feature::new(NAME, Status::Degraded, detail, remedy)
}

#[cfg(test)]
mod tests {
    use super::{Limit, room_for_instances, told};
    use crate::Status;

    fn limit(name: &'static str, most: u64, each: u64) -> Limit {
        Limit {
            name,
            most,
            reserve: 100,
            each,
        }
    }

    // promise: 5.19
    #[test]
    fn the_narrowest_limit_is_reported() {
        let wide = limit("wide", 1_000_000, 1);
        let feature = told(&[wide, limit("narrow", 20_100, 2)]);
        assert_eq!(feature.status, Status::Available);
        assert!(feature.detail.contains("10000") && feature.detail.contains("narrow"));
        let feature = told(&[limit("small", 90, 1), limit("narrow", 20_100, 2)]);
        assert_eq!(feature.status, Status::Degraded);
        assert!(feature.detail.contains("about 0") && feature.remedy.contains("small"));
        assert_eq!(told(&[]).status, Status::Available);
    }

    #[test]
    fn this_host_has_limits() {
        assert!(room_for_instances().detail.contains("about"));
    }
}
