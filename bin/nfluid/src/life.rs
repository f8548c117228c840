//! `nfluid pause`, `unpause`, `upgrade`, `scale`, `migrate`, `save`, `restore`.

use crate::args::{
    MigrateArgs, PauseArgs, RestoreArgs, SaveArgs, ScaleArgs, Traffic, UnpauseArgs, UpgradeArgs,
};
use crate::failure::Failure;
use crate::screen::Screen;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use nfluid_api::client::Client;
use nfluid_api::types::{
    MigrateRequest, PauseRequest, PausedTraffic, RestoreRequest, SAVED_BYTES_MAX, ScaleRequest,
};
use std::io::{Read, Write};
use std::path::Path;

impl From<Traffic> for PausedTraffic {
    fn from(traffic: Traffic) -> PausedTraffic {
        match traffic {
            Traffic::Hold => PausedTraffic::Hold,
            Traffic::Drop => PausedTraffic::Drop,
            Traffic::Bypass => PausedTraffic::Bypass,
        }
    }
}

pub async fn pause(client: &Client, screen: Screen, args: &PauseArgs) -> Result<(), Failure> {
    let how = PauseRequest {
        traffic: args.traffic.into(),
    };
    client.pause(&args.instance, &how).await?;
    let meanwhile = match args.traffic {
        Traffic::Hold => "frames for it wait in its rings",
        Traffic::Drop => "frames for it are dropped",
        Traffic::Bypass => "frames go past it",
    };
    screen.line(&format!("instance {} paused; {meanwhile}", args.instance))
}

pub async fn unpause(client: &Client, screen: Screen, args: &UnpauseArgs) -> Result<(), Failure> {
    client.unpause(&args.instance).await?;
    screen.line(&format!("instance {} goes on", args.instance))
}

pub async fn upgrade(client: &Client, screen: Screen, args: &UpgradeArgs) -> Result<(), Failure> {
    let report = client.upgrade(&args.instance).await?;
    screen.line(&format!(
        "instance {} upgraded in {:.1} ms; its ports were silent for {:.2} ms; state: {}",
        args.instance,
        report.took_us as f64 / 1000.0,
        report.silent_us as f64 / 1000.0,
        entries(report.state_taken, report.state_left_out),
    ))
}

pub async fn scale(client: &Client, screen: Screen, args: &ScaleArgs) -> Result<(), Failure> {
    let request = ScaleRequest {
        replicas: args.replicas,
    };
    let report = client.scale(&args.instance, &request).await?;
    let members = match args.replicas {
        1 => "one instance has".to_owned(),
        several => format!("{several} instances have"),
    };
    screen.line(&format!(
        "{members} the flows of {}, after {:.1} ms; those that moved waited for {:.2} ms; state: {}",
        args.instance,
        report.took_us as f64 / 1000.0,
        report.held_us as f64 / 1000.0,
        entries(report.state_taken, report.state_left_out),
    ))
}

pub async fn migrate(client: &Client, screen: Screen, args: &MigrateArgs) -> Result<(), Failure> {
    let request = MigrateRequest {
        to: args.to.clone(),
        keep: args.keep,
    };
    let report = client.migrate(&args.instance, &request).await?;
    let Some(to) = &args.to else {
        return screen.line(&format!("instance {} goes on here", args.instance));
    };
    if report.took_us == 0 {
        return screen.line(&format!(
            "instance {} moved to {to}; the connection broke at the end: the time for which its ports were silent is not known",
            args.instance
        ));
    }
    let mut frames = format!("{} frames handed on", report.frames);
    if report.frames_left_out > 0 {
        frames.push_str(&format!(", {} found no room", report.frames_left_out));
    }
    if report.frames_dropped > 0 {
        let dropped = format!(
            ", {} dropped before, as the rings were full",
            report.frames_dropped
        );
        frames.push_str(&dropped);
    }
    screen.line(&format!(
        "instance {} moved to {to} in {:.1} ms; its ports were silent for {:.2} ms; state: {}; {frames}",
        args.instance,
        report.took_us as f64 / 1000.0,
        report.blocked_us as f64 / 1000.0,
        entries(report.state_taken, report.state_left_out),
    ))
}

pub async fn save(client: &Client, screen: Screen, args: &SaveArgs) -> Result<(), Failure> {
    let saved = client.save(&args.instance).await?;
    let image = STANDARD
        .decode(&saved.image)
        .map_err(|error| Failure::Operation(format!("the daemon's answer is damaged: {error}")))?;
    if args.file == Path::new("-") {
        return screen.bytes(&image);
    }
    write_whole(&args.file, &image).map_err(|error| about(&args.file, "writing", &error))?;
    screen.line(&format!(
        "instance {} saved in {}: {} bytes, of which {} of state; {} frames",
        args.instance,
        args.file.display(),
        image.len(),
        saved.state_bytes,
        saved.frames,
    ))
}

pub async fn restore(client: &Client, screen: Screen, args: &RestoreArgs) -> Result<(), Failure> {
    let image = read(&args.file).map_err(|error| about(&args.file, "reading", &error))?;
    if image.len() > SAVED_BYTES_MAX {
        return Err(Failure::Operation(format!(
            "{} is longer than the {SAVED_BYTES_MAX} bytes that a saved instance may have",
            args.file.display()
        )));
    }
    let config = args.config.as_deref().map(configuration).transpose()?;
    let request = RestoreRequest {
        image: STANDARD.encode(image),
        name: args.name.clone(),
        config,
        paused: args.paused,
        ..RestoreRequest::default()
    };
    let report = client.restore(&request).await?;
    let mut frames = format!("{} frames in its rings", report.frames);
    if report.frames_left_out > 0 {
        frames.push_str(&format!(", {} found no room", report.frames_left_out));
    }
    let state = entries(report.state_taken, report.state_left_out);
    let how = if args.paused { ", paused" } else { "" };
    screen.line(&format!(
        "instance {} restored{how}; state: {state}; {frames}; nothing leads to it before a link, chain or switch names it",
        report.name
    ))
}

/// Writes a file either completely or not at all.
fn write_whole(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let is_other = std::fs::metadata(path).is_ok_and(|there| !there.is_file());
    if is_other {
        // A pipe, or a device.
        return std::fs::write(path, bytes);
    }
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}.part", std::process::id()));
    let written = std::fs::File::create_new(&beside).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&beside, path)
    });
    if written.is_err() {
        let _none = std::fs::remove_file(&beside);
    }
    written
}

/// Reads a configuration in the syntax of a deployment.
fn configuration(path: &Path) -> Result<serde_json::Value, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| about(path, "reading", &error))?;
    let root = nfluid_control::yaml::parse(&text).map_err(|error| {
        let (line, column) = (error.mark.line, error.mark.column);
        let file = path.display();
        Failure::Operation(format!(
            "{file}:{line}:{column}: {}; {}",
            error.message, error.remedy
        ))
    })?;
    Ok(root.to_json())
}

fn entries(taken: u64, left_out: u64) -> String {
    match left_out {
        0 => format!("{taken} entries"),
        left_out => format!("{taken} entries, {left_out} left out"),
    }
}

fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if path == Path::new("-") {
        let input = std::io::stdin();
        input
            .take(SAVED_BYTES_MAX as u64 + 1)
            .read_to_end(&mut bytes)?;
    } else {
        let file = std::fs::File::open(path)?;
        file.take(SAVED_BYTES_MAX as u64 + 1)
            .read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

fn about(path: &Path, what: &str, error: &std::io::Error) -> Failure {
    Failure::Operation(format!("{what} {}: {error}", path.display()))
}
