//! Tunings of a cloud, and what each of them gains alone.

use super::super::orchestrated::row;
use super::{Cloud, OURS, check};
use crate::report::{Report, table};
use nfluid_figures::statistics::Samples;
use nfluid_testbed::interrupt;
use serde_json::json;

/// Lines by which a service keeps tokens that it has checked.
const TOKENS: &str = "[keystone_authtoken]\nmemcached_servers=127.0.0.1:11211\n";
/// Lines by which a service keeps what it has read.
const CACHE: &str =
    "[cache]\nenabled=true\nbackend=dogpile.cache.pymemcache\nmemcache_servers=127.0.0.1:11211\n";

/// A change of a cloud's configuration.
pub struct Tuning {
    /// Its name in figures.
    name: &'static str,
    /// Its meaning for readers.
    what: &'static str,
    /// Lines by the configuration file of a service.
    pub lines: &'static [(&'static str, &'static str)],
}

/// All of them together are the tuned cloud. No image is copied, nobody polls a server, and no server waits for a disk in a stock cloud either.
pub const TUNINGS: [Tuning; 6] = [
    Tuning {
        name: "tokens",
        what: "services keep tokens that Keystone has checked",
        lines: &[
            ("glance.conf", TOKENS),
            ("placement.conf", TOKENS),
            ("nova.conf", TOKENS),
            ("neutron.conf", TOKENS),
        ],
    },
    Tuning {
        name: "caches",
        what: "Keystone and Nova keep what they have read",
        lines: &[("keystone.conf", CACHE), ("nova.conf", CACHE)],
    },
    Tuning {
        name: "notifications",
        what: "Nova tells nobody of its servers",
        lines: &[(
            "nova.conf",
            "[oslo_messaging_notifications]\ndriver=noop\n[notifications]\nnotification_format=unversioned\n",
        )],
    },
    Tuning {
        name: "scheduler",
        what: "the scheduler has one filter, and Placement is asked once for what a host has",
        lines: &[(
            "nova.conf",
            "[filter_scheduler]\nenabled_filters=ComputeFilter\ntrack_instance_changes=false\n\
             [compute]\nresource_provider_association_refresh=0\n",
        )],
    },
    Tuning {
        name: "quotas",
        what: "Nova and Neutron have none",
        lines: &[
            ("nova.conf", "[quota]\ndriver=nova.quota.NoopQuotaDriver\n"),
            (
                "neutron.conf",
                "[QUOTAS]\nquota_driver=neutron.db.quota.driver_null.DbQuotaDriverNull\n",
            ),
        ],
    },
    Tuning {
        name: "events",
        what: "Neutron tells Nova nothing of ports, for which the driver does not wait",
        lines: &[(
            "neutron.conf",
            "[DEFAULT]\nnotify_nova_on_port_status_changes=false\nnotify_nova_on_port_data_changes=false\n\
             dhcp_agent_notification=false\n",
        )],
    },
];

/// Measures a cloud with one tuning beside one without any, one tuning after the other.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    check(report)?;
    let rounds = report.effort(10, 2);
    let mut stock = Cloud::start("stock", &[])?;
    let mut rows = Vec::new();
    for tuning in &TUNINGS {
        let mut tuned = Cloud::start(tuning.name, std::slice::from_ref(tuning))?;
        let [mut with, mut without] = <[Samples; 2]>::default();
        // The first of each makes what the others find.
        for round in 0..=rounds {
            interrupt::check()?;
            for (cloud, samples) in [(&mut stock, &mut without), (&mut tuned, &mut with)] {
                let network = json!(cloud.lan);
                let made = cloud.make(OURS[0], std::slice::from_ref(&network))?;
                cloud.remove(&made.id)?;
                if round > 0 {
                    samples.push(made.active_ms);
                }
            }
        }
        let conditions = format!(
            "{}; POST until ACTIVE, {rounds} in turn with a stock cloud beside it",
            tuning.what
        );
        let id = format!("v1.nova.tuning.{}", tuning.name);
        report.figure(format!("{id}_ms"), &with, "ms", &conditions);
        let share = with.median() / without.median();
        report.derived(format!("{id}.vs_stock"), share, "", &conditions);
        let mut cells = row(tuning.name, &with);
        cells.extend([
            format!("{:.0}", without.median()),
            format!("{share:.3}"),
            tuning.what.to_owned(),
        ]);
        rows.push(cells);
    }
    table(
        "A server of Nova until it is ACTIVE, with one tuning",
        &[
            "tuning",
            "median ms",
            "mean ms",
            "stock",
            "of stock",
            "what",
        ],
        &rows,
    );
    Ok(())
}
