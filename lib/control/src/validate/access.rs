//! Checks that a program on a network stack of its own asks for volumes, capabilities and settings that exist.

use crate::access::{Access, CAPABILITIES, Volume};
use crate::quantity::Millis;
use crate::report::{Report, did_you_mean};
use std::path::{Component, Path};

/// Directories of the host that are no volumes.
const HIDDEN: [&str; 3] = ["/proc", "/sys", "/dev"];
/// Longest time in which a program ends by itself: a change waits meanwhile.
const WAIT_MAX: Millis = Millis::secs(60);

/// `is_image`: the program is that of an image.
pub fn check(access: &Access, is_image: bool, path: &str, report: &mut Report<'_>) {
    check_capabilities(access, path, report);
    for (i, volume) in access.volumes.iter().enumerate() {
        if let Err(why) = check_volume(volume, is_image) {
            report.error(
                &format!("{path}.volumes[{i}]"),
                format!("'{}' cannot be a volume: {why}", volume.from.escape_debug()),
                "name a directory with an absolute path, such as '/srv/web'",
            );
        }
    }
    for (i, variable) in access.environment.iter().enumerate() {
        let is_named = variable
            .split_once('=')
            .is_some_and(|(name, _)| !name.is_empty());
        if !is_named || variable.contains('\0') {
            report.error(
                &format!("{path}.environment[{i}]"),
                format!("'{}' is no variable with a value", variable.escape_debug()),
                "write 'NAME=value'",
            );
        }
    }
    let of_images = [
        ("user", access.user.is_some()),
        ("writable", access.writable.is_some()),
    ];
    for (key, _) in of_images
        .iter()
        .filter(|(_, is_said)| *is_said && !is_image)
    {
        report.error(
            &format!("{path}.{key}"),
            format!("a program of the host has no '{key}'"),
            format!("remove '{key}'; instances with an 'image' have it"),
        );
    }
    if let Some(directory) = &access.directory
        && !is_tidy(Path::new(directory))
    {
        report.error(
            &format!("{path}.directory"),
            format!("'{}' is no working directory", directory.escape_debug()),
            "write an absolute path without '..'",
        );
    }
    if let Some(wait) = access.stop.and_then(|stop| stop.wait)
        && wait > WAIT_MAX
    {
        report.error(
            &format!("{path}.stop.wait"),
            format!("{wait} is longer than a change of the deployment may wait"),
            format!("write at most {WAIT_MAX}"),
        );
    }
}

fn check_capabilities(access: &Access, path: &str, report: &mut Report<'_>) {
    for (i, name) in access.capabilities.iter().enumerate() {
        if !CAPABILITIES.contains(&name.as_str()) {
            let remedy = did_you_mean(name, CAPABILITIES, "capabilities");
            let message = format!("the capability '{}' cannot be had", name.escape_debug());
            report.error(&format!("{path}.capabilities[{i}]"), message, remedy);
        }
    }
}

fn is_tidy(path: &Path) -> bool {
    let is_tidy = |part| matches!(part, Component::RootDir | Component::Normal(_));
    path.is_absolute() && path.components().all(is_tidy)
}

fn check_volume(volume: &Volume, is_image: bool) -> Result<(), String> {
    let (from, at) = (Path::new(&volume.from), Path::new(volume.place()));
    for path in [from, at] {
        if !is_tidy(path) {
            return Err("its path is not absolute, or has '..' in it".to_owned());
        }
        if path.parent().is_none() {
            return Err("it is all that there is".to_owned());
        }
        for directory in HIDDEN.map(Path::new) {
            if path.starts_with(directory) {
                let hidden = directory.display();
                return Err(format!("instances see nothing of the host's '{hidden}'"));
            }
        }
    }
    // The host's libraries are there.
    let is_covered = ["/lib", "/lib32", "/lib64", "/usr/lib"]
        .iter()
        .any(|own| at.starts_with(own));
    if !is_image && from != at && is_covered {
        return Err(format!("{} has the host's libraries", at.display()));
    }
    Ok(())
}
