//! Collects all faults of a document.

use crate::quantity::ValueError;
use crate::yaml::{Mark, Node};
use nfluid_api::types::{Cause, Diagnostic, Severity};

/// Maximum number of errors that are kept; further errors are only counted.
const ERRORS_MAX: usize = 100;

/// The faults found so far, with their places in the document.
#[derive(Debug)]
pub struct Report<'n> {
    file: Option<String>,
    root: Option<&'n Node>,
    errors: Vec<Diagnostic>,
    warnings: Vec<Diagnostic>,
    left_out: usize,
}

impl<'n> Report<'n> {
    /// Creates an empty report on the document that the user knows as `file`.
    pub fn new(file: Option<&str>, root: Option<&'n Node>) -> Self {
        Report {
            file: file.map(str::to_owned),
            root,
            errors: Vec::new(),
            warnings: Vec::new(),
            left_out: 0,
        }
    }

    /// Adds an error at a key path.
    pub fn error(&mut self, path: &str, message: impl Into<String>, remedy: impl Into<String>) {
        let mark = self.locate(path);
        self.push(mark, path, message.into(), remedy.into());
    }

    /// Adds an error at a key path, with its cause for programs.
    pub fn error_because(
        &mut self,
        cause: Cause,
        path: &str,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        let mark = self.locate(path);
        let found = self.diagnostic(mark, path, message.into(), remedy.into());
        self.add(Diagnostic {
            cause: Some(cause),
            ..found
        });
    }

    /// Returns the place of `path`, if its object is in this document. Checks also cover objects that are in force
    /// already, which the document does not contain.
    fn locate(&self, path: &str) -> Option<Mark> {
        let root = self.root?;
        let (end, steps) = root.follow(path);
        let is_here = steps >= 2 || !path.contains(['.', '[']);
        is_here.then_some(end.mark)
    }

    /// Returns true if the document has a value at a key path.
    pub fn has(&self, path: &str) -> bool {
        self.root.is_some_and(|root| root.at(path).is_some())
    }

    /// Adds an error at a known place.
    pub fn error_at(
        &mut self,
        mark: Mark,
        path: &str,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        self.push(Some(mark), path, message.into(), remedy.into());
    }

    /// Adds an error about a value that cannot be read.
    pub fn bad_value(&mut self, mark: Mark, path: &str, error: ValueError) {
        self.push(Some(mark), path, error.message, error.remedy);
    }

    /// Adds an error in another file than the document.
    pub fn error_in_file(&mut self, file: &str, line: Option<u32>, path: &str, message: &str) {
        self.add(Diagnostic {
            severity: Severity::Error,
            file: Some(file.into()),
            line,
            path: path.into(),
            message: message.into(),
            ..Diagnostic::default()
        });
    }

    /// Adds a warning: the value is accepted, but is probably a mistake.
    pub fn warning(&mut self, path: &str, message: impl Into<String>, remedy: impl Into<String>) {
        if self.warnings.len() < ERRORS_MAX {
            let mark = self.locate(path);
            let found = self.diagnostic(mark, path, message.into(), remedy.into());
            self.warnings.push(Diagnostic {
                severity: Severity::Warning,
                ..found
            });
        }
    }

    fn push(&mut self, mark: Option<Mark>, path: &str, message: String, remedy: String) {
        let found = self.diagnostic(mark, path, message, remedy);
        self.add(found);
    }

    fn add(&mut self, found: Diagnostic) {
        if self.errors.len() < ERRORS_MAX {
            self.errors.push(found);
        } else {
            self.left_out += 1;
        }
    }

    fn diagnostic(
        &self,
        mark: Option<Mark>,
        path: &str,
        message: String,
        remedy: String,
    ) -> Diagnostic {
        // A document that was not read from a text has no line numbers.
        let mark = mark.filter(|mark| mark.line > 0);
        Diagnostic {
            severity: Severity::Error,
            file: mark.and(self.file.clone()),
            line: mark.map(|mark| mark.line),
            column: mark.map(|mark| mark.column),
            path: path.into(),
            cause: None,
            message,
            remedy,
        }
    }

    /// Returns true if an error was found at or below `path`. Errors that follow from it would only confuse.
    pub fn is_spoilt(&self, path: &str) -> bool {
        self.errors.iter().any(|error| {
            error
                .path
                .strip_prefix(path)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        })
    }

    /// Returns true if no errors were found.
    pub fn is_clean(&self) -> bool {
        self.errors.is_empty()
    }

    /// Returns the warnings. If there are errors, returns errors and warnings in the order of the document.
    ///
    /// # Errors
    /// The errors and warnings.
    pub fn finish(mut self) -> Result<Vec<Diagnostic>, Vec<Diagnostic>> {
        if self.errors.is_empty() {
            return Ok(self.warnings);
        }
        self.errors.sort_by_key(|error| (error.line, error.column));
        if self.left_out > 0 {
            self.errors.push(Diagnostic {
                file: self.file.clone(),
                message: format!("and {} more errors", self.left_out),
                remedy: "correct these first".into(),
                ..Diagnostic::default()
            });
        }
        Err(self.errors)
    }
}

/// Returns the word of `known` that the user probably meant: at most one typing error in three letters.
pub fn closest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Comparing is quadratic in the length, and longer names are rarely misspelled words.
    let length = word.chars().count();
    if length > 64 {
        return None;
    }
    known
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(word, candidate), candidate))
        .filter(|(distance, _)| *distance <= length / 3)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Returns a remedy that names the closest of the known words or, if none is close, some of them.
pub fn did_you_mean<'a>(
    word: &str,
    known: impl IntoIterator<Item = &'a str>,
    what: &str,
) -> String {
    const NAMED_MAX: usize = 20;
    let known: Vec<&str> = known.into_iter().collect();
    if let Some(candidate) = closest(word, known.iter().copied()) {
        return format!("did you mean '{candidate}'?");
    }
    let named = known.get(..NAMED_MAX).unwrap_or(&known).join(", ");
    let more = if known.len() > NAMED_MAX { ", ..." } else { "" };
    if known.is_empty() {
        return format!("{what}: none");
    }
    format!("{what}: {named}{more}")
}
