//! Maps of the kernel: making, pinning and opening them.

use crate::SwitchError;
use libbpf_rs::{MapHandle, MapType};
use nfluid_ring::layout::{BLOCK_SLOTS, Ring, SLOT_SIZE};
use std::ffi::OsStr;
use std::path::Path;

pub(crate) fn create_map(
    kind: MapType,
    name: &str,
    sizes: (u32, u32, u32),
    flags: u32,
) -> Result<MapHandle, SwitchError> {
    let (key, value, entries) = sizes;
    let options = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
        map_flags: flags,
        ..Default::default()
    };
    MapHandle::create(kind, Some(OsStr::new(name)), key, value, entries, &options)
        .map_err(SwitchError::bpf(format!("making map {name}")))
}

/// Pins maps by their names in `directory`, which is made.
pub(crate) fn pin_maps<'a, N: AsRef<Path>>(
    directory: &Path,
    maps: impl IntoIterator<Item = (&'a mut MapHandle, N)>,
) -> Result<(), SwitchError> {
    std::fs::create_dir_all(directory).map_err(SwitchError::system(format!(
        "creating {}",
        directory.display()
    )))?;
    maps.into_iter()
        .try_for_each(|(map, name)| map.pin(directory.join(name)))
        .map_err(SwitchError::bpf(format!(
            "pinning maps in {}",
            directory.display()
        )))
}

/// The map that is pinned at `path`.
pub(crate) fn open_pinned(path: &Path) -> Result<MapHandle, SwitchError> {
    MapHandle::from_pinned_path(path)
        .map_err(SwitchError::bpf(format!("opening {}", path.display())))
}

pub(crate) fn create_ring() -> Result<MapHandle, SwitchError> {
    create_map(
        MapType::Array,
        "nfl_ring",
        (4, size_of::<Ring>() as u32, 1),
        libbpf_sys::BPF_F_MMAPABLE,
    )
}

pub(crate) fn create_pool(slots: u32) -> Result<MapHandle, SwitchError> {
    let block = (BLOCK_SLOTS * SLOT_SIZE) as u32;
    let flags = libbpf_sys::BPF_F_MMAPABLE | libbpf_sys::BPF_F_INNER_MAP;
    create_map(
        MapType::Array,
        "nfl_pool",
        (4, block, slots.div_ceil(BLOCK_SLOTS as u32)),
        flags,
    )
}

pub(crate) fn create_doorbell() -> Result<MapHandle, SwitchError> {
    create_map(MapType::RingBuf, "nfl_bell", (0, 0, 4096), 0)
}

/// Maps in the place of those of removed instances: a deletion would wait for a grace period
/// each.
#[derive(Debug)]
pub(crate) struct Placeholders {
    pub(crate) ring: MapHandle,
    pub(crate) doorbell: MapHandle,
    pub(crate) pool: MapHandle,
}

impl Placeholders {
    pub(crate) fn create() -> Result<Self, SwitchError> {
        Ok(Placeholders {
            ring: create_ring()?,
            doorbell: create_doorbell()?,
            pool: create_pool(BLOCK_SLOTS as u32)?,
        })
    }
}
