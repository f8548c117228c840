//! Congestion signals.

use super::fields::{Fields, integer, join, mapping, read, text};
use crate::congestion::{AVERAGE_DEFAULT, Congestion, Law, TARGET_DEFAULT};
use crate::quantity::{Micros, Share, ValueError};
use crate::report::{Report, did_you_mean};
use crate::yaml::Node;
use nfluid_marking::{LawError, Pie, Red};
use std::collections::BTreeMap;

const FRAMES_BOUNDS: (i64, i64) = (1, Red::FRAMES_MAX as i64);
/// Default probability at `max`, as a percentage of the frames.
const PROBABILITY_DEFAULT: &str = "10%";

/// The law that a document names, without its numbers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Word {
    Off,
    SelfTuning,
    Red4,
}

/// `on` stands for the self-tuning law.
const WORDS: [(&str, Word); 4] = [
    ("off", Word::Off),
    ("on", Word::SelfTuning),
    ("self-tuning", Word::SelfTuning),
    ("red4", Word::Red4),
];

/// Reads the word of a law, or a mapping.
pub fn congestion(node: &Node, path: &str, report: &mut Report<'_>) -> Congestion {
    if node.as_scalar().is_some() {
        let law = law_of_word(node, path, report);
        return match law {
            Law::Off => Congestion::none(),
            law => Congestion::everywhere(law),
        };
    }
    let Some(mut fields) = Fields::new(node, path, report) else {
        return Congestion::none();
    };
    let law = law(&mut fields, node, path, report);
    let cores = fields.get("cores");
    let congestion = Congestion {
        law,
        cores: cores.map_or_else(BTreeMap::new, |(node, path)| cores_of(node, &path, report)),
        backpressure: fields.flag("backpressure", report).unwrap_or(true),
    };
    fields.finish(report);
    congestion
}

fn cores_of(node: &Node, path: &str, report: &mut Report<'_>) -> BTreeMap<u32, Law> {
    let mut cores = BTreeMap::new();
    for entry in mapping(node, path, report).unwrap_or(&[]) {
        let path = join(path, &entry.key);
        match entry.key.parse::<u32>() {
            Ok(core) => drop(cores.insert(core, core_law(&entry.value, &path, report))),
            Err(_) => report.error_at(
                entry.key_mark,
                &path,
                format!("'{}' is not a core's number", entry.key.escape_debug()),
                "write the numbers of cores, for example {0: on, 1: off}",
            ),
        }
    }
    cores
}

fn core_law(node: &Node, path: &str, report: &mut Report<'_>) -> Law {
    if node.as_scalar().is_some() {
        return law_of_word(node, path, report);
    }
    let Some(mut fields) = Fields::new(node, path, report) else {
        return Law::Off;
    };
    let law = law(&mut fields, node, path, report);
    fields.finish(report);
    law
}

fn word(node: &Node, path: &str, report: &mut Report<'_>) -> Option<Word> {
    let found = text(node, path, report)?;
    let known = WORDS.iter().find(|(word, _)| *word == found);
    if known.is_none() {
        report.error_at(
            node.mark,
            path,
            format!("there is no law '{}'", found.escape_debug()),
            did_you_mean(found, WORDS.iter().map(|(word, _)| *word), "there are"),
        );
    }
    known.map(|(_, word)| *word)
}

/// Returns a law without numbers.
fn law_of_word(node: &Node, path: &str, report: &mut Report<'_>) -> Law {
    match word(node, path, report) {
        Some(Word::SelfTuning) => Law::SelfTuning {
            target: TARGET_DEFAULT,
        },
        Some(Word::Red4) => {
            report.error_at(
                node.mark,
                path,
                "'red4' needs thresholds",
                "write {law: red4, min: 64, max: 256}, or 'on', which tunes itself",
            );
            Law::Off
        }
        Some(Word::Off) | None => Law::Off,
    }
}

fn probability(text: &str) -> Result<Share, ValueError> {
    let remedy = "write a percentage of frames from 0.01% to 100%, for example 10%";
    text.parse()
        .map_err(|error: ValueError| ValueError::new(error.message, remedy))
}

/// Reads the law from the keys of a mapping. A mapping that names no law means the self-tuning law.
fn law(fields: &mut Fields<'_>, node: &Node, path: &str, report: &mut Report<'_>) -> Law {
    let word = match fields.get("law") {
        Some((node, path)) => word(node, &path, report),
        None => Some(Word::SelfTuning),
    };
    let target: Option<Micros> = fields.parsed("target", report);
    let mut frames = |key, report: &mut Report<'_>| {
        let (node, path) = fields.get(key)?;
        let frames = integer(node, &path, FRAMES_BOUNDS, report)?;
        u32::try_from(frames).ok()
    };
    let (min, max) = (frames("min", report), frames("max", report));
    let probability = fields
        .get("probability")
        .and_then(|(node, path)| read(node, &path, report, probability));
    let average: Option<Micros> = fields.parsed("average", report);
    let Some(word) = word else {
        return Law::Off;
    };
    refuse_foreign(fields, word, report);
    let law = match word {
        Word::Off => Law::Off,
        Word::SelfTuning => Law::SelfTuning {
            target: target.unwrap_or(TARGET_DEFAULT),
        },
        Word::Red4 => {
            let (Some(min), Some(max)) = (min, max) else {
                if !report.is_spoilt(path) {
                    let remedy = "add 'min' and 'max', in frames that wait for the core";
                    report.error_at(node.mark, path, "'red4' needs thresholds", remedy);
                }
                return Law::Off;
            };
            Law::Red4 {
                min,
                max,
                probability: probability
                    .or_else(|| PROBABILITY_DEFAULT.parse().ok())
                    .unwrap_or(Share::FULL),
                average: average.unwrap_or(AVERAGE_DEFAULT),
            }
        }
    };
    match law.checked() {
        Ok(_) => law,
        Err(error) => {
            report_law(&error, node, path, report);
            Law::Off
        }
    }
}

/// Reports numbers that the law does not use: their author expected an effect.
fn refuse_foreign(fields: &mut Fields<'_>, word: Word, report: &mut Report<'_>) {
    for (key, of) in [
        ("target", Word::SelfTuning),
        ("min", Word::Red4),
        ("max", Word::Red4),
        ("probability", Word::Red4),
        ("average", Word::Red4),
    ] {
        if of == word {
            continue;
        }
        if let Some((node, path)) = fields.get(key) {
            let remedy = match of {
                Word::Red4 => "write 'law: red4', or remove it",
                _ => "write 'law: self-tuning', or remove it",
            };
            let message = format!("'{key}' has no effect with this law");
            report.error_at(node.mark, &path, message, remedy);
        }
    }
}

fn report_law(error: &LawError, node: &Node, path: &str, report: &mut Report<'_>) {
    let (key, message, remedy) = match error {
        LawError::ThresholdsReversed { min, max } => (
            "min",
            format!("a lower threshold of {min} frames is not below the upper one of {max}"),
            "exchange 'min' and 'max', or lower 'min'".to_owned(),
        ),
        LawError::Time { what: "target", .. } => {
            let (least, most) = Pie::TARGET_NS;
            (
                "target",
                "such a delay cannot be aimed at".to_owned(),
                format!(
                    "write {} to {}",
                    Micros(least / 1_000),
                    Micros(most / 1_000)
                ),
            )
        }
        LawError::Time { .. } => (
            "average",
            "the averaging time is out of range".to_owned(),
            format!("write up to {}", Micros(Red::AVERAGE_NS_MAX / 1_000)),
        ),
        other => ("law", other.to_string(), String::new()),
    };
    let place = node.get(key).unwrap_or(node);
    report.error_at(place.mark, &join(path, key), message, remedy);
}
