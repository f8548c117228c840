//! Status and metrics of an eDPI, read from the ledger, with or without a running slow path.

use super::Edpi;
use crate::record::SlowRecord;
use nfluid_api::types::{APPLICATIONS_MAX, FastApplication, FastInspection};
use nfluid_dpi::ledger::Entry;
use nfluid_evnf::inspector::Exit;
use std::collections::BTreeMap;

/// Returns the verdict of an exit of an eDPI. `up` packets go to the kernel; the classifier inspects them, or would
/// have inspected them.
pub fn verdict(exit: Exit) -> &'static str {
    match exit {
        Exit::Passed => "pass",
        Exit::Forwarded => "send",
        Exit::Dropped => "drop",
        Exit::Copied | Exit::Unreadable | Exit::Unseen | Exit::NotIp => "up",
    }
}

/// Returns the name of an application: nDPI's name, or its number while the name is unknown.
fn name_of(names: &[String], application: u16) -> String {
    let name = names.get(usize::from(application));
    name.filter(|name| !name.is_empty())
        .cloned()
        .unwrap_or_else(|| application.to_string())
}

impl Edpi {
    /// Returns the status. The applications with the most bytes come first.
    pub(super) fn describe(&self, record: &SlowRecord) -> FastInspection {
        let accounts = self.accounts();
        let application = |(id, total): (&u16, &nfluid_dpi::classifier::Total)| FastApplication {
            name: name_of(&record.applications, *id),
            flows: total.flows,
            packets: total.packets,
            bytes: total.bytes,
        };
        let mut applications: Vec<_> = accounts.applications.iter().map(application).collect();
        applications.sort_by(|one, other| {
            let by_bytes = other.bytes.cmp(&one.bytes);
            by_bytes.then_with(|| one.name.cmp(&other.name))
        });
        applications.truncate(APPLICATIONS_MAX);
        FastInspection {
            library: record.library.clone(),
            pid: self.slow.pid(),
            deaths: record.deaths,
            flows: self.ledger.get(Entry::Flows),
            flows_fast: self.ledger.get(Entry::Fast),
            flows_refused: accounts.refused,
            unseen: accounts.unseen.packets,
            applications,
        }
    }

    /// Adds the metrics, by name with labels.
    pub(super) fn add_figures(&self, names: &[String], metrics: &mut BTreeMap<String, f64>) {
        let accounts = self.accounts();
        for (id, total) in &accounts.applications {
            let application = name_of(names, *id);
            let labels = format!("{{application=\"{application}\"}}");
            let figures = [
                ("dpi_flows", total.flows),
                ("dpi_packets", total.packets),
                ("dpi_bytes", total.bytes),
            ];
            for (name, figure) in figures {
                metrics.insert(format!("{name}{labels}"), figure as f64);
            }
        }
        let outside = accounts.outside;
        let without = [
            ("not_ip", outside.not_ip),
            ("fragment", outside.fragment),
            ("malformed", outside.malformed),
            ("full", outside.full),
        ];
        for (reason, total) in without {
            let name = format!("dpi_unclassified_packets{{reason=\"{reason}\"}}");
            metrics.insert(name, total.packets as f64);
        }
        let figures = [
            ("dpi_remembered_flows", self.ledger.get(Entry::Flows)),
            ("dpi_fast_flows", self.ledger.get(Entry::Fast)),
            ("dpi_refused_flows", accounts.refused),
            ("dpi_looked_again_flows", accounts.again.0),
            ("dpi_changed_flows", accounts.again.1),
            ("dpi_skipped_packets", self.ledger.get(Entry::Skipped)),
            ("dpi_slow_path_up", u64::from(self.slow.runs())),
        ];
        for (name, figure) in figures {
            metrics.insert(name.to_owned(), figure as f64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::name_of;

    #[test]
    fn an_application_without_a_name_has_its_number() {
        let names = ["Unknown".to_owned(), String::new()];
        assert_eq!(name_of(&names, 0), "Unknown");
        assert_eq!(
            (name_of(&names, 1), name_of(&names, 7)),
            ("1".into(), "7".into())
        );
    }
}
