//! Scripted rates: a file with the rate of each second.
//!
//! ```text
//! # one line is one second, unless it says for how many
//! 10kpps
//! 20kpps
//! 5 1Mpps      # five seconds
//! 0            # a second of silence
//! ```

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use crate::spec::{Rate, SpecError};

/// Most lines of a script: 11 days of single seconds.
const LINES_MAX: usize = 1_000_000;
/// Longest line in bytes.
const LINE_BYTES_MAX: usize = 4096;
/// Longest a line may last, in seconds.
const STEP_SECONDS_MAX: u32 = 8_640_000;

/// A rate and for how many seconds it holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// Seconds, at least 1.
    pub seconds: u32,
    /// Offered rate.
    pub rate: Rate,
}

/// The steps of a script, at least one.
#[derive(Clone, Debug, PartialEq)]
pub struct Script {
    steps: Vec<Step>,
}

/// The reason why a script cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// The file cannot be read.
    #[error("{file}: {cause}")]
    Unreadable {
        /// Name of the file.
        file: String,
        /// The cause.
        cause: io::Error,
    },
    /// A line is wrong.
    #[error("{file}:{line}: {cause}")]
    Line {
        /// Name of the file.
        file: String,
        /// Line, counted from 1.
        line: usize,
        /// The defect.
        cause: SpecError,
    },
    /// The script contains no rate.
    #[error("{file}: no rate in it; write one rate per line, such as 10kpps")]
    Empty {
        /// Name of the file.
        file: String,
    },
}

impl Script {
    /// Reads the script in `path`.
    ///
    /// # Errors
    /// See [`ScriptError`].
    pub fn load(path: &Path) -> Result<Self, ScriptError> {
        let name = path.display().to_string();
        let file = File::open(path).map_err(|cause| ScriptError::Unreadable {
            file: name.clone(),
            cause,
        })?;
        Script::read(BufReader::new(file), &name)
    }

    /// Reads a script from `source`, called `name` in errors.
    ///
    /// # Errors
    /// See [`ScriptError`].
    pub fn read(mut source: impl BufRead, name: &str) -> Result<Self, ScriptError> {
        let mut steps = Vec::new();
        let mut text = Vec::new();
        for line in 1.. {
            text.clear();
            let read = (&mut source)
                .take(LINE_BYTES_MAX as u64 + 1)
                .read_until(b'\n', &mut text)
                .map_err(|cause| ScriptError::Unreadable {
                    file: name.to_owned(),
                    cause,
                })?;
            if read == 0 {
                break;
            }
            let step = if line > LINES_MAX {
                Err(SpecError::new(
                    "line",
                    "",
                    format!("more than {LINES_MAX} lines"),
                ))
            } else {
                parse_line(&text)
            };
            let fail = |cause| ScriptError::Line {
                file: name.to_owned(),
                line,
                cause,
            };
            steps.extend(step.map_err(fail)?);
        }
        if steps.is_empty() {
            return Err(ScriptError::Empty {
                file: name.to_owned(),
            });
        }
        Ok(Script { steps })
    }

    /// A script of the given steps.
    pub fn new(steps: Vec<Step>) -> Option<Self> {
        (!steps.is_empty()).then_some(Script { steps })
    }

    /// The steps in their order.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Returns the duration of the script, in seconds.
    pub fn seconds(&self) -> u64 {
        self.steps.iter().map(|step| u64::from(step.seconds)).sum()
    }

    /// The rate in each second.
    pub fn rates(&self) -> impl Iterator<Item = Rate> + '_ {
        self.steps
            .iter()
            .flat_map(|step| std::iter::repeat_n(step.rate, step.seconds as usize))
    }
}

/// Reads one line; `None` for one without a rate.
fn parse_line(line: &[u8]) -> Result<Option<Step>, SpecError> {
    if line.len() > LINE_BYTES_MAX {
        let reason = format!("longer than {LINE_BYTES_MAX} bytes");
        return Err(SpecError::new(
            "line",
            &String::from_utf8_lossy(&line[..40]),
            reason,
        ));
    }
    let text = std::str::from_utf8(line)
        .map_err(|_| SpecError::new("line", &String::from_utf8_lossy(line), "not UTF-8"))?;
    let content = text.split('#').next().unwrap_or_default();
    let mut words = content.split_whitespace();
    let step = match (words.next(), words.next(), words.next()) {
        (None, ..) => return Ok(None),
        (Some(rate), None, _) => Step {
            seconds: 1,
            rate: rate.parse()?,
        },
        (Some(seconds), Some(rate), None) => Step {
            seconds: parse_seconds(seconds)?,
            rate: rate.parse()?,
        },
        _ => {
            let reason = "write a rate, or seconds and a rate";
            return Err(SpecError::new("line", content.trim(), reason));
        }
    };
    Ok(Some(step))
}

fn parse_seconds(text: &str) -> Result<u32, SpecError> {
    match text.parse() {
        Ok(seconds @ 1..=STEP_SECONDS_MAX) => Ok(seconds),
        _ => {
            let reason = format!("write a whole number from 1 to {STEP_SECONDS_MAX}");
            Err(SpecError::new("seconds", text, reason))
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &[u8]) -> Result<Script, ScriptError> {
        Script::read(text, "rates.txt")
    }

    #[test]
    fn lines_comments_and_repetition() {
        let script = read(b"# ramp\n1000\n\n  2 20kpps # two\nmax\n0").unwrap();
        assert_eq!(script.seconds(), 5);
        let rates: Vec<_> = script.rates().collect();
        assert_eq!(rates[0], Rate::Packets(1000.0));
        assert_eq!(rates[1..3], [Rate::Packets(20e3); 2]);
        assert_eq!(rates[3..], [Rate::Max, Rate::Packets(0.0)]);
    }

    #[test]
    fn errors_name_file_and_line() {
        for (text, wanted) in [
            (&b"10\n20\nfast\n"[..], "rates.txt:3: rate \"fast\""),
            (b"0 10kpps", "rates.txt:1: seconds \"0\""),
            (b"1 2 3", "rates.txt:1: line \"1 2 3\""),
            (b"\xff\n", "rates.txt:1: line"),
            (b"# nothing\n", "no rate"),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(
                error.starts_with(wanted) || error.contains("no rate"),
                "{error}"
            );
        }
        let error = read(&[b'1'; 10_000]).unwrap_err().to_string();
        assert!(error.contains("longer than"), "{error}");
        let missing = Script::load(Path::new("/nonexistent/rates"))
            .unwrap_err()
            .to_string();
        assert!(missing.contains("/nonexistent/rates"), "{missing}");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = read(&bytes);
        }
    }
}
