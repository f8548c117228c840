//! `nfluid apply` and `nfluid delete`.

use crate::args::{ApplyArgs, DeleteArgs, Format};
use crate::failure::Failure;
use crate::screen::{Screen, Style, printable};
use nfluid_api::client::Client;
use nfluid_api::types::{ApplyRequest, ApplyResponse, DeleteRequest, Diagnostic, ObjectName, Verb};
use nfluid_control::attachments::attached_files;
use nfluid_control::document::ATTACHMENT_BYTES_MAX;
use nfluid_control::yaml::{DOCUMENT_BYTES_MAX, parse};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

pub async fn apply(client: &Client, screen: Screen, args: &ApplyArgs) -> Result<(), Failure> {
    let text = read_document(&args.file)?;
    let request = ApplyRequest {
        attachments: read_attachments(&args.file, &text)?,
        text,
        file: Some(args.file.display().to_string()),
        dry_run: args.dry_run,
        merge: args.add,
        ..ApplyRequest::default()
    };
    let response = client.apply(&request).await?;
    print_changes(screen, args.output, &response)
}

pub async fn delete(client: &Client, screen: Screen, args: &DeleteArgs) -> Result<(), Failure> {
    let objects = args.kind.map_or_else(Vec::new, |kind| {
        let named = args.name.iter().map(|name| ObjectName {
            kind: kind.into(),
            name: name.clone(),
        });
        named.collect()
    });
    let request = DeleteRequest {
        objects,
        text: args.file.as_deref().map(read_document).transpose()?,
        file: args.file.as_deref().map(|file| file.display().to_string()),
        with_links: args.with_links,
        everything: args.all,
        dry_run: args.dry_run,
        stop_signal: None,
        stop_wait_ms: None,
    };
    let response = client.delete(&request).await?;
    print_changes(screen, args.output, &response)
}

fn print_changes(screen: Screen, format: Format, response: &ApplyResponse) -> Result<(), Failure> {
    screen.diagnostics(&response.warnings);
    screen.object(format, response, || {
        for change in &response.changes {
            let (sign, style) = match change.verb {
                Verb::Created => ("+", Style::Green),
                Verb::Changed => ("~", Style::Yellow),
                Verb::Replaced => ("!", Style::Yellow),
                Verb::Removed => ("-", Style::Red),
            };
            let text = printable(change.to_string());
            screen.line(&format!("{} {text}", screen.styled(style, sign)))?;
        }
        if response.changes.is_empty() {
            screen.line("nothing to change")?;
        } else if response.dry_run {
            screen.line("dry run: nothing was changed")?;
        }
        Ok(())
    })
}

/// Reads a document, or standard input for `-`. Refuses a file that is too large without reading it.
fn read_document(file: &Path) -> Result<String, Failure> {
    let bytes = if file == Path::new("-") {
        read_bounded(std::io::stdin().lock(), DOCUMENT_BYTES_MAX, file)?
    } else {
        read_file(file, DOCUMENT_BYTES_MAX)?
    };
    String::from_utf8(bytes).map_err(|error| {
        let before = error.as_bytes().get(..error.utf8_error().valid_up_to());
        let lines = before
            .unwrap_or_default()
            .iter()
            .filter(|byte| **byte == b'\n');
        let line = lines.count() + 1;
        Failure::operation(
            format!("{}:{line}: this is not UTF-8 text", file.display()),
            "save the file as UTF-8",
        )
    })
}

fn read_file(file: &Path, bytes_max: usize) -> Result<Vec<u8>, Failure> {
    let opened = File::open(file).map_err(|error| cannot_read(file, &error))?;
    let length = opened.metadata().map_or(0, |metadata| metadata.len());
    if length > bytes_max as u64 {
        return Err(too_large(file, bytes_max));
    }
    read_bounded(opened, bytes_max, file)
}

fn read_bounded(from: impl Read, bytes_max: usize, file: &Path) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let mut bounded = from.take(bytes_max as u64 + 1);
    bounded
        .read_to_end(&mut bytes)
        .map_err(|error| cannot_read(file, &error))?;
    if bytes.len() > bytes_max {
        return Err(too_large(file, bytes_max));
    }
    Ok(bytes)
}

fn cannot_read(file: &Path, error: &std::io::Error) -> Failure {
    Failure::operation(format!("cannot read {}: {error}", file.display()), "")
}

fn too_large(file: &Path, bytes_max: usize) -> Failure {
    Failure::operation(
        format!(
            "{} is larger than the {} MiB that are read; nothing was changed",
            file.display(),
            bytes_max >> 20
        ),
        "keep long rule lists in files of their own (rules_file)",
    )
}

/// Reads the files that a document names, relative to the document's folder. A document that is not YAML names none;
/// the daemon reports its faults.
fn read_attachments(document: &Path, text: &str) -> Result<BTreeMap<String, String>, Failure> {
    let mut attachments = BTreeMap::new();
    let Ok(root) = parse(text) else {
        return Ok(attachments);
    };
    let folder = document.parent().unwrap_or(Path::new(""));
    let mut problems = Vec::new();
    for (path, file) in attached_files(&root) {
        if attachments.contains_key(&file) {
            continue;
        }
        let read = read_file(&folder.join(&file), ATTACHMENT_BYTES_MAX).and_then(|bytes| {
            String::from_utf8(bytes)
                .map_err(|_| Failure::Operation(format!("{file} is not UTF-8 text")))
        });
        match read {
            Ok(text) => {
                attachments.insert(file, text);
            }
            Err(failure) => {
                let mark = root.locate(&path);
                problems.push(Diagnostic {
                    file: Some(document.display().to_string()),
                    line: Some(mark.line),
                    column: Some(mark.column),
                    path,
                    message: match failure {
                        Failure::Operation(message) => message,
                        other => format!("{other:?}"),
                    },
                    remedy: "name the file relative to the deployment's folder".into(),
                    ..Diagnostic::default()
                });
            }
        }
    }
    if problems.is_empty() {
        return Ok(attachments);
    }
    let message = "files that the deployment names cannot be read; nothing was changed";
    Err(Failure::Diagnostics(message.into(), problems))
}
