//! Cores of NFs, their I/O threads and their traffic, when many NFs share few cores.

use crate::io_model::Model;
use crate::roles::work::Waits;
use crate::roles::{Role, Task};
use crate::setups::fleet::NFS_PER_TRAFFIC;

/// NF cores of the literature's machine.
const CORES_MAX: usize = 6;

/// Cores by purpose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The cores among which the NFs are distributed.
    pub nfs: Vec<usize>,
    /// The cores of the traffic; each has one process or several.
    pub traffic: Vec<usize>,
    /// Behaviour of the traffic while no NF takes or gives frames.
    pub waits: Waits,
    /// Core of a split's I/O thread.
    pub io: usize,
}

impl Layout {
    /// Returns the layout for a machine of `cores` cores. From four on, half of them, up to the literature's six, are
    /// for NFs and I/O threads, of which a split's thread has its own; as many are for traffic. With fewer cores the
    /// layout is that of the experiments with one NF.
    pub fn new(model: Model, cores: usize) -> Self {
        let half = (cores / 2).min(CORES_MAX);
        if half < 2 {
            let (traffic, waits) = model.traffic();
            return Layout {
                nfs: vec![Model::nf_core()],
                traffic: vec![traffic],
                waits,
                io: Model::io_core(),
            };
        }
        let nfs = if model.is_split() { half - 1 } else { half };
        Layout {
            nfs: (0..nfs).collect(),
            traffic: (half..2 * half).collect(),
            waits: model.traffic().1,
            io: half - 1,
        }
    }

    /// Returns the layout for this machine.
    pub fn here(model: Model) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Layout::new(model, cores)
    }

    /// Returns the process of the I/O threads, if the model has any.
    pub fn io_role(&self, model: Model) -> Option<Role> {
        let task = Task::Io { model };
        (model != Model::Inline).then_some(Role {
            core: self.io,
            task,
        })
    }

    /// Returns the traffic processes that `nfs` NFs need, each with the task `task`. Processes that share a core yield
    /// to each other.
    pub fn traffic_roles(&self, nfs: usize, task: impl Fn(Waits) -> Task) -> Vec<Role> {
        let count = nfs
            .div_ceil(NFS_PER_TRAFFIC)
            .max(self.traffic.len().min(nfs));
        let waits = if count > self.traffic.len() {
            Waits::Yielding
        } else {
            self.waits
        };
        let cores = self.traffic.iter().cycle().take(count);
        cores
            .map(|&core| Role {
                core,
                task: task(waits),
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Layout;
    use crate::io_model::Model;

    #[test]
    fn a_split_gives_one_of_the_cores_to_its_thread() {
        let split = Layout::new(Model::Split { polls: false }, 12);
        assert_eq!(split.nfs, [0, 1, 2, 3, 4]);
        assert_eq!(
            (split.io, &split.traffic[..]),
            (5, &[6, 7, 8, 9, 10, 11][..])
        );
        let inline = Layout::new(Model::Inline, 4);
        assert_eq!((inline.nfs, inline.traffic), (vec![0, 1], vec![2, 3]));
        assert_eq!(Layout::new(Model::Merge, 2).nfs, [0]);
    }
}
