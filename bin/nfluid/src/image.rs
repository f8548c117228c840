//! `nfluid image`: the container images of this host, which instances run. It works on the images' directory itself: no daemon
//! need run.

use crate::args::{Format, ImageCommand};
use crate::failure::Failure;
use crate::screen::{Screen, Table, short_bytes, short_time};
use nfluid_image::{ImageError, Record, Reference, Store};
use serde_json::{Value, json};
use std::path::Path;
use std::time::SystemTime;

/// Digits of an image's number that a table shows.
const DIGITS: usize = 12;

pub fn run(screen: Screen, directory: &Path, command: &ImageCommand) -> Result<(), Failure> {
    let store = Store::new(directory);
    match command {
        ImageCommand::Import(args) => import(screen, &store, &args.image, args.output),
        ImageCommand::List(args) => {
            let records = store.list().map_err(failed)?;
            let all: Vec<Value> = records.iter().map(value).collect();
            screen.object(args.output, &all, || screen.table(&table(&records)))
        }
        ImageCommand::Inspect(args) => {
            let found = value(&store.inspect(&args.image).map_err(failed)?);
            let format = match args.output {
                Format::Table => Format::Yaml,
                format => format,
            };
            screen.object(format, &found, || Ok(()))
        }
        ImageCommand::Prune(args) => {
            let pruned = store.prune().map_err(failed)?;
            let summary =
                json!({ "removed": pruned.images, "kept": pruned.kept, "bytes": pruned.bytes });
            screen.object(args.output, &summary, || {
                for id in &pruned.images {
                    screen.line(&format!("removed {id}"))?;
                }
                let (removed, kept) = (pruned.images.len(), pruned.kept.len());
                screen.line(&format!(
                    "{removed} images removed, {kept} kept for instances that run them"
                ))
            })
        }
    }
}

fn import(screen: Screen, store: &Store, image: &str, output: Format) -> Result<(), Failure> {
    let here = std::env::current_dir()?;
    let reference = Reference::parse_near(image, &here).map_err(failed)?;
    let imported = store.import(&reference).map_err(failed)?;
    let record = &imported.record;
    screen.object(output, &value(record), || {
        let layers = record.layers().count();
        screen.line(&format!("{reference} is {}", record.id()))?;
        screen.line(&format!(
            "{layers} layers, {} of them new",
            imported.new_layers
        ))?;
        let left_out = record.left_out;
        for (count, what) in [
            (left_out.devices, "device nodes"),
            (left_out.setuid, "setuid bits"),
        ] {
            if count > 0 {
                screen.line(&format!("{count} {what} were left out"))?;
            }
        }
        Ok(())
    })
}

/// Returns an image as programs read it: the output of `-o json`.
fn value(record: &Record) -> Value {
    json!({
        "id": record.id(),
        "names": record.names,
        "bytes": record.bytes,
        "imported": record.imported,
        "layers": record.layers().collect::<Vec<_>>(),
        "left_out": record.left_out,
        "settings": record.settings,
    })
}

fn table(records: &[Record]) -> Table {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = since.map_or(0, |since| since.as_secs());
    let mut table = Table::new(&["NAME", "ID", "LAYERS", "SIZE", "AGE"]);
    for record in records {
        let names = record.names.iter().map(String::as_str);
        let id = record.id();
        let digits = id.strip_prefix("sha256:").unwrap_or(&id);
        for name in names.chain(record.names.is_empty().then_some("-")) {
            table.row([
                name.to_owned(),
                digits.chars().take(DIGITS).collect(),
                record.layers().count().to_string(),
                short_bytes(record.bytes),
                short_time(now.saturating_sub(record.imported).saturating_mul(1_000)),
            ]);
        }
    }
    table
}

fn failed(error: ImageError) -> Failure {
    let is_forbidden = matches!(&error, ImageError::Io { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied);
    let remedy = match is_forbidden {
        true => {
            "images belong to root: run this as root, or name another directory with --image-dir"
        }
        false => "",
    };
    Failure::operation(error, remedy)
}
