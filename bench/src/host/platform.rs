//! Platforms of experiments: with the run directory in memory, as `/run` is.

use anyhow::Context;
use nfluid_sandbox::cgroup::{Cgroup, CgroupRoot};
use nfluid_testbed::cgroups;
use nfluid_testbed::namespace::Namespace;
use nfluid_testbed::platform::Platform;

/// Starts a platform and waits until its daemon serves.
///
/// # Errors
/// As [`Platform::new`] and [`Platform::start`].
pub fn start() -> anyhow::Result<Platform> {
    start_with("", &[])
}

/// Starts a platform with this ending of its name and more arguments for its daemon, which is in this namespace, as a host's is where its NICs are.
///
/// # Errors
/// As [`start`].
pub fn start_within(
    ending: &str,
    namespace: &Namespace,
    arguments: &[String],
) -> anyhow::Result<Platform> {
    let mut platform = make(ending)?;
    platform.set_arguments(arguments.to_vec());
    platform.set_daemon_netns(namespace.name().to_owned());
    platform.start()?;
    Ok(platform)
}

/// Starts a further platform with this ending of its name and more arguments for the daemon.
///
/// # Errors
/// As [`start`].
pub fn start_with(ending: &str, arguments: &[String]) -> anyhow::Result<Platform> {
    let mut platform = make(ending)?;
    platform.set_arguments(arguments.to_vec());
    platform.start()?;
    Ok(platform)
}

fn make(ending: &str) -> anyhow::Result<Platform> {
    let name = format!("nfluid-test-bench-{}{ending}", std::process::id());
    let mut platform = Platform::new(&name)?;
    platform.set_run_dir_in_memory()?;
    Ok(platform)
}

/// Opens the cgroup of an instance.
///
/// # Errors
/// When the instance has no cgroup.
pub fn cgroup(platform: &Platform, instance: &str) -> anyhow::Result<Cgroup> {
    let root = CgroupRoot::new(platform.name())?;
    let group = root.open(&format!("i-{instance}"));
    group.with_context(|| format!("the cgroup of {instance}"))
}

/// Gives the instances of a platform together the same weight as [`cgroups::Cgroups`].
///
/// # Errors
/// The kernel refuses.
pub fn outweigh_others(platform: &Platform) -> anyhow::Result<()> {
    cgroups::outweigh_others(&CgroupRoot::new(platform.name())?)
}
