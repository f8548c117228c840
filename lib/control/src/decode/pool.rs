//! Pools of shells.

use super::access::access;
use super::fields::{Fields, integer, name};
use crate::model::{DEFAULT_FLAVOR, PORTS_MAX};
use crate::pool::{MOST_DEFAULT, PORTS_DEFAULT, Pool, PooledImage, Purpose, SIZE_MAX, Size};
use crate::report::Report;
use crate::yaml::Node;

pub fn pool(node: &Node, path: &str, report: &mut Report<'_>) -> Pool {
    let mut pool = Pool {
        flavor: DEFAULT_FLAVOR.into(),
        ports: PORTS_DEFAULT,
        purpose: Purpose::default(),
        image: None,
        group: None,
        trust: None,
        size: Size::Fixed(0),
    };
    let Some(mut fields) = Fields::new(node, path, report) else {
        return pool;
    };
    if let Some(flavor) = fields.text("flavor", report) {
        pool.flavor = flavor;
    }
    let ports = fields.integer("ports", (1, PORTS_MAX as i64), report);
    pool.ports = ports.map_or(PORTS_DEFAULT, |ports| ports as u32);
    if let Some(purpose) = fields.choice("for", &Purpose::WORDS, report) {
        pool.purpose = purpose;
    }
    pool.image = image(&mut fields, pool.purpose, path, report);
    for (key, place) in [("group", &mut pool.group), ("trust", &mut pool.trust)] {
        if let Some((node, path)) = fields.get(key) {
            *place = name(node, &path, report);
        }
    }
    let most = fields.get("most");
    let bounds = (1, SIZE_MAX.into());
    match fields.get("size") {
        None => report.error(
            path,
            "the pool has no size",
            "add 'size: NUMBER', or 'size: rate' to follow the rate of creations",
        ),
        Some((node, _)) if node.as_scalar().is_some_and(|it| it.text == "rate") => {
            let most = most.map(|(node, path)| integer(node, &path, bounds, report));
            let most = most.flatten().map_or(MOST_DEFAULT, |most| most as u32);
            pool.size = Size::Rate { most };
        }
        Some((node, size_path)) => {
            let count = integer(node, &size_path, bounds, report);
            pool.size = Size::Fixed(count.map_or(0, |count| count as u32));
            if let Some((node, path)) = most {
                let message = "'most' has no effect for a pool of a fixed size";
                report.error_at(
                    node.mark,
                    &path,
                    message,
                    "remove it, or write 'size: rate'",
                );
            }
        }
    }
    fields.finish(report);
    pool
}

/// Reads the image of a pool, which one 'for: images' has, and what its sandboxes are made with.
fn image(
    fields: &mut Fields<'_>,
    purpose: Purpose,
    path: &str,
    report: &mut Report<'_>,
) -> Option<PooledImage> {
    let image = fields.text("image", report);
    let access = access(fields, report);
    let is_for_images = purpose == Purpose::Images;
    let has_access = access.is_some();
    let access = access.unwrap_or_default();
    if !is_for_images && (image.is_some() || has_access) {
        report.error(
            path,
            format!(
                "a pool 'for: {}' has no 'image', and nothing that instances of an image have",
                purpose.word()
            ),
            "write 'for: images', or remove it",
        );
    } else if is_for_images && image.is_none() {
        report.error(
            path,
            "the pool has no image",
            "add 'image: oci:/DIR', as its instances have it",
        );
    }
    if access != access.of_sandbox() {
        report.error(
            path,
            "'environment', 'directory' and 'forwarding' have no effect for a pool",
            "remove them; each instance of the pool has its own",
        );
    }
    let image = image.filter(|_| is_for_images)?;
    Some(PooledImage { image, access })
}
