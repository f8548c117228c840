//! Metrics of pools and templates.

use super::family::Family;
use crate::types::{PoolStatus, TemplateStatus};

pub(super) fn templates(out: &mut String, templates: &[TemplateStatus]) {
    type Read = fn(&TemplateStatus) -> u64;
    let families: [(&'static str, &'static str, &str, Read); 3] = [
        (
            "nfluid_template_clients",
            "gauge",
            "Clients of the template that have an instance.",
            |template| template.clients.into(),
        ),
        (
            "nfluid_template_made_total",
            "counter",
            "Instances that were created when the first frame of a client arrived.",
            |template| template.made,
        ),
        (
            "nfluid_template_ended_total",
            "counter",
            "Instances of clients that were ended.",
            |template| template.ended,
        ),
    ];
    for (name, kind, help, read) in families {
        let mut family = Family::new(out, name, kind, help);
        for template in templates {
            family.sample(&[("template", &template.name)], read(template));
        }
    }
    let name = "nfluid_template_refused_total";
    let help = "Frames of clients without an instance that were refused, by reason.";
    let mut family = Family::new(out, name, "counter", help);
    for template in templates {
        for (reason, frames) in &template.refused {
            family.sample(&[("template", &template.name), ("reason", reason)], *frames);
        }
    }
}

pub(super) fn pools(out: &mut String, pools: &[PoolStatus]) {
    type Read = fn(&PoolStatus) -> u64;
    let families: [(&'static str, &'static str, &str, Read); 4] = [
        (
            "nfluid_pool_wanted",
            "gauge",
            "Shells that the pool is to keep.",
            |pool| pool.wanted.into(),
        ),
        (
            "nfluid_pool_ready",
            "gauge",
            "Shells that are ready.",
            |pool| pool.ready.into(),
        ),
        (
            "nfluid_pool_taken_total",
            "counter",
            "Instances that were created from a shell.",
            |pool| pool.taken,
        ),
        (
            "nfluid_pool_missed_total",
            "counter",
            "Instances that were created without a shell because none was ready.",
            |pool| pool.missed,
        ),
    ];
    for (name, kind, help, read) in families {
        let mut family = Family::new(out, name, kind, help);
        for pool in pools {
            family.sample(&[("pool", &pool.name)], read(pool));
        }
    }
}
