//! Frame lengths, scratch files and DPDK, which the set-ups of an experiment share.

use crate::dpdk::Dpdk;
use nfluid_testbed::CannotRun;
use nfluid_testbed::directory::ScratchDirectory;
use nfluid_testbed::scratch::Scratch;

/// Resources that the set-ups of an experiment share; they outlive the set-ups.
pub struct Resources {
    /// Frame lengths for which set-ups are prepared.
    pub sizes: Vec<usize>,
    pub directory: ScratchDirectory,
    pub scratch: Scratch,
    pub dpdk: anyhow::Result<Dpdk>,
}

impl Resources {
    /// Prepares set-ups for frames of these lengths, with `dpdk_processes` DPDK processes at a time. `label` is unique
    /// among the live resources of this process.
    pub fn new(label: &str, sizes: &[usize], dpdk_processes: usize) -> anyhow::Result<Self> {
        Ok(Resources {
            sizes: sizes.to_vec(),
            directory: ScratchDirectory::new()?,
            scratch: Scratch::new(label)?,
            dpdk: Dpdk::prepare(dpdk_processes),
        })
    }

    /// Returns DPDK.
    ///
    /// # Errors
    /// The reason why DPDK is not available.
    pub fn dpdk(&mut self) -> anyhow::Result<&mut Dpdk> {
        match &mut self.dpdk {
            Ok(dpdk) => Ok(dpdk),
            Err(why) => match why.downcast_ref::<CannotRun>() {
                Some(CannotRun(why)) => Err(CannotRun(why.clone()).into()),
                None => anyhow::bail!("{why:#}"),
            },
        }
    }
}
