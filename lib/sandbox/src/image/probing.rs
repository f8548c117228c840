//! What this host offers to container images, for `doctor`.

use super::Owners;
use super::tree::view;
use crate::identity::KernelIdRange;
use crate::probing::{Feature, Status};
use std::path::Path;

/// Where images are by default.
const DIRECTORY: &str = "/var/lib/nfluid/images";
const NAME: &str = "container images";

/// Looks whether images can be merged, and their files given to an instance.
pub(crate) fn container_images() -> Feature {
    let degraded =
        |detail: String, remedy: &str| Feature::new(NAME, Status::Degraded, detail, remedy);
    if !rustix::process::geteuid().is_root() {
        return degraded(
            "not looked at without root".to_owned(),
            "run doctor as root",
        );
    }
    let known = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
    if !known
        .lines()
        .any(|line| line.trim_start_matches("nodev").trim() == "overlay")
    {
        let remedy = "'modprobe overlay', for instances with an 'image'";
        return degraded("the kernel has no overlayfs".to_owned(), remedy);
    }
    let mut places = Path::new(DIRECTORY).ancestors();
    let place = places
        .find(|place| place.is_dir())
        .unwrap_or(Path::new("/"));
    let range = KernelIdRange::DEFAULT;
    let owners = range.get(0).map(|id| Owners::new((0, 0), id)).transpose();
    let shown = owners.and_then(|owners| owners.map(|owners| view(place, &owners)).transpose());
    match shown {
        Ok(_) => Feature::available(
            NAME,
            format!("overlayfs; idmapped mounts at {}", place.display()),
        ),
        Err(why) => degraded(
            why.to_string(),
            "put images on ext4, xfs or btrfs: nfluidd --image-dir, for instances with an 'image'",
        ),
    }
}
