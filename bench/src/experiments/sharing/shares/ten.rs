//! Ten NFs of random shares and kinds on one core; the random numbers are the same in each run.

use super::variant::{Nf, Times, Variant};
use super::{FLOWS, measure, show};
use crate::io_model::Model;
use crate::report::Report;
use crate::workload::{Workload, Xorshift};
use nfluid_testbed::scratch::Scratch;

const NFS: usize = 10;
/// Smallest share of an NF, in percent of the core.
const SHARE_MIN: u32 = 4;
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;
/// Numbers of firewall rules; 0 means a bridge.
const RULES: [u32; 5] = [0, 10, 50, 200, 1000];
/// Lengths of frames.
const LENS: [usize; 5] = [64, 128, 512, 1024, 1472];

/// Runs this part of the experiment.
pub fn run(report: &mut Report, scratch: &mut Scratch) -> anyhow::Result<()> {
    let (rounds, alone, together) = report.effort((20, 0.04, 1.2), (2, 0.01, 0.8));
    let mut random = Xorshift::new(SEED);
    let nfs = (0..NFS)
        .map(|number| random_nf(number, &mut random))
        .collect();
    let divisions = [random_shares(&mut random)];
    let variant = Variant::new(scratch, "ten", Model::Inline, nfs, &divisions)?;
    let mut variants = [variant];
    measure(report, &mut variants, rounds, Times { alone, together })?;
    show(report, "Ten NFs that share a core by weight", &variants);
    let [variant] = &variants;
    let result = &variant.results[0];
    let conditions = format!("inline, shares {}, kinds at random", result.name());
    report.derived(
        "h8.ten.max_error_percent",
        result.error_max(),
        "%",
        &format!("{conditions}: largest corrected error of an NF, by its amount"),
    );
    report.figure(
        "h8.ten.efficiency_percent",
        &result.efficiency,
        "%",
        &conditions,
    );
    Ok(())
}

/// Returns an NF of a kind that forwards frames unchanged, so that they can circulate forever.
fn random_nf(number: usize, random: &mut Xorshift) -> Nf {
    let rules = RULES[random.next() as usize % RULES.len()];
    let flows = FLOWS;
    let (name, workload) = match rules {
        0 => ("bridge".to_owned(), Workload::Bridge),
        rules => (
            format!("firewall{rules}"),
            Workload::Firewall { rules, flows },
        ),
    };
    Nf {
        name: format!("{number}-{name}"),
        workload,
        len: LENS[random.next() as usize % LENS.len()],
    }
}

/// Returns the shares of all NFs, whose sum is the core: the rest beyond the smallest share is distributed by the
/// percent.
fn random_shares(random: &mut Xorshift) -> Vec<u32> {
    let mut shares = vec![SHARE_MIN; NFS];
    for _ in SHARE_MIN * NFS as u32..100 {
        shares[random.next() as usize % NFS] += 1;
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::{NFS, SEED, SHARE_MIN, random_shares};
    use crate::workload::Xorshift;

    #[test]
    fn shares_make_up_the_core() {
        let shares = random_shares(&mut Xorshift::new(SEED));
        assert_eq!((shares.len(), shares.iter().sum::<u32>()), (NFS, 100));
        assert!(shares.iter().all(|share| *share >= SHARE_MIN));
    }
}
