//! Frame lengths, scratch files and DPDK, which the ways of an experiment share.

use crate::dpdk::Dpdk;
use nfluid_testbed::CannotRun;
use nfluid_testbed::directory::ScratchDirectory;
use nfluid_testbed::scratch::Scratch;

/// Resources that the ways of an experiment share; they outlive the ways.
pub struct Resources {
    /// Lengths of frames that ways are prepared for.
    pub sizes: Vec<usize>,
    pub directory: ScratchDirectory,
    pub scratch: Scratch,
    pub dpdk: anyhow::Result<Dpdk>,
}

impl Resources {
    /// Prepares ways that take frames of these lengths, with so many processes on DPDK at a time. `label`
    /// is unique among what this process has at a time.
    pub fn new(label: &str, sizes: &[usize], dpdk_processes: usize) -> anyhow::Result<Self> {
        Ok(Resources {
            sizes: sizes.to_vec(),
            directory: ScratchDirectory::new()?,
            scratch: Scratch::new(label)?,
            dpdk: Dpdk::prepare(dpdk_processes),
        })
    }

    /// DPDK.
    ///
    /// # Errors
    /// Why it is not there.
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
