//! Lists of CPUs.

use super::fields::{integer, list};
use crate::report::Report;
use crate::yaml::{Kind, Node};

/// Bounds of valid CPU numbers.
const CPU_BOUNDS: (i64, i64) = (0, 8191);

/// Reads a list of at least one CPU. An empty list would mean all CPUs, which no user intends.
pub fn cpus(node: &Node, path: &str, report: &mut Report<'_>) -> Vec<u32> {
    let mut cpus = Vec::new();
    if matches!(&node.kind, Kind::Sequence(items) if items.is_empty()) {
        let remedy = "name at least one CPU, or remove the key";
        report.error_at(node.mark, path, "the list is empty", remedy);
    }
    for (i, item) in list(node, path, report).iter().enumerate() {
        let path = format!("{path}[{i}]");
        let Some(cpu) = integer(item, &path, CPU_BOUNDS, report) else {
            continue;
        };
        let cpu = u32::try_from(cpu).unwrap_or(u32::MAX);
        if cpus.contains(&cpu) {
            let message = format!("CPU {cpu} is in the list already");
            report.error_at(item.mark, &path, message, "remove one of them");
        } else {
            cpus.push(cpu);
        }
    }
    cpus
}
