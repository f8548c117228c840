//! Throughput of NFs that share a core by weight, relative to the throughput of each NF alone and its promised share.

use nfluid_figures::statistics::Samples;

/// Frames per second of each NF of a set-up, and their CPU time, in one repetition.
#[derive(Clone, Debug)]
pub struct Repetition {
    /// Throughput alone, measured directly before and after, in millions per second.
    pub alone: Vec<f64>,
    /// Throughput together with the others.
    pub together: Vec<f64>,
    /// CPU time together with the others, in seconds.
    pub cpu: Vec<f64>,
    /// Frames per second of CPU time together with the others, relative to those alone.
    pub pace: Vec<f64>,
    /// Seconds of the kernel's reception for this NF that were charged to another process.
    pub charged: Vec<f64>,
}

/// Results of all repetitions with one division of the core.
#[derive(Clone, Debug)]
pub struct Fairness {
    /// Share of each NF, in percent of the core.
    pub shares: Vec<u32>,
    /// Results of each NF.
    pub nfs: Vec<Got>,
    /// Sum of the NFs' throughputs, each relative to its throughput alone, in percent.
    pub efficiency: Samples,
}

/// Results of an NF.
#[derive(Clone, Debug, Default)]
pub struct Got {
    pub alone: Samples,
    pub mpps: Samples,
    /// The literature's error: (goodput - baseline x share) / (baseline x share), in percent.
    pub raw: Samples,
    /// The NF's part of the sum of all throughputs, each relative to its throughput alone, compared with its share, in
    /// percent of the share. Changes of the machine that affect all NFs alike cancel out.
    pub corrected: Samples,
    /// The NF's part of the CPU time of all NFs, in percent.
    pub cpu: Samples,
    /// Frames per second of CPU time, in percent of those alone: the rest after cold caches and context switches.
    pub pace: Samples,
    /// CPU time that is charged back to the NF, in percent of its own CPU time.
    pub charged: Samples,
}

impl Fairness {
    /// Makes empty results of NFs with `shares`, in percent of the core.
    pub fn new(shares: Vec<u32>) -> Self {
        Fairness {
            nfs: vec![Got::default(); shares.len()],
            shares,
            efficiency: Samples::default(),
        }
    }

    /// Adds a repetition.
    pub fn push(&mut self, repetition: &Repetition) {
        let rates = repetition.together.iter().zip(&repetition.alone);
        let parts: Vec<f64> = rates.map(|(here, alone)| here / alone).collect();
        let (parts_sum, cpu_sum) = (
            parts.iter().sum::<f64>(),
            repetition.cpu.iter().sum::<f64>(),
        );
        let promised_sum = f64::from(self.shares.iter().sum::<u32>());
        self.efficiency.push(parts_sum * 100.0);
        for (at, got) in self.nfs.iter_mut().enumerate() {
            let share = f64::from(self.shares[at]) / promised_sum;
            got.alone.push(repetition.alone[at]);
            got.mpps.push(repetition.together[at]);
            got.raw.push((parts[at] / share - 1.0) * 100.0);
            got.corrected
                .push((parts[at] / parts_sum / share - 1.0) * 100.0);
            got.cpu.push(repetition.cpu[at] / cpu_sum * 100.0);
            got.pace.push(repetition.pace[at] * 100.0);
            let charged = repetition.charged[at] / repetition.cpu[at];
            got.charged.push(charged * 100.0);
        }
    }

    /// Returns the largest of the NFs' corrected errors, by the absolute values of the medians.
    pub fn error_max(&self) -> f64 {
        let errors = self.nfs.iter().map(|got| got.corrected.median().abs());
        errors.fold(0.0, f64::max)
    }

    /// Returns the name in figures and tables.
    pub fn name(&self) -> String {
        let shares: Vec<_> = self.shares.iter().map(u32::to_string).collect();
        shares.join("-")
    }
}

#[cfg(test)]
mod tests {
    use super::{Fairness, Repetition};

    #[test]
    fn a_slower_machine_is_in_the_raw_error_and_not_in_the_corrected_one() {
        let mut fairness = Fairness::new(vec![30, 70]);
        fairness.push(&Repetition {
            alone: vec![10.0, 2.0],
            together: vec![2.7, 1.26],
            cpu: vec![0.3, 0.7],
            pace: vec![0.9, 0.9],
            charged: vec![0.03, 0.0],
        });
        let [first, second] = &fairness.nfs[..] else {
            panic!("two NFs");
        };
        assert!((first.raw.median() + 10.0).abs() < 1e-9);
        assert!((second.raw.median() + 10.0).abs() < 1e-9);
        assert!(fairness.error_max() < 1e-9);
        assert!((fairness.efficiency.median() - 90.0).abs() < 1e-9);
        assert!((second.cpu.median() - 70.0).abs() < 1e-9);
        assert!((first.charged.median() - 10.0).abs() < 1e-9);
    }

    #[test]
    fn who_gets_more_than_its_share_has_it_from_the_other() {
        let mut fairness = Fairness::new(vec![50, 50]);
        fairness.push(&Repetition {
            alone: vec![1.0, 1.0],
            together: vec![0.6, 0.4],
            cpu: vec![0.6, 0.4],
            pace: vec![1.0, 1.0],
            charged: vec![0.0, 0.0],
        });
        let errors: Vec<_> = fairness
            .nfs
            .iter()
            .map(|got| got.corrected.median())
            .collect();
        assert!((errors[0] - 20.0).abs() < 1e-9 && (errors[1] + 20.0).abs() < 1e-9);
    }
}
