//! SPECIFICATION.md names the test of each promise: whether those tests are there.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

/// Looks for every test that SPECIFICATION.md names, and tells what is missing with the promise's number.
///
/// # Errors
/// Something is missing, or there is no specification.
pub fn check(root: &Path) -> Result<()> {
    let path = root.join("SPECIFICATION.md");
    let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let complaints = complaints(root, &text);
    for complaint in &complaints {
        eprintln!("SPECIFICATION.md: {complaint}");
    }
    if !complaints.is_empty() {
        bail!("{} promises without their test", complaints.len());
    }
    Ok(())
}

fn complaints(root: &Path, text: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut numbers = BTreeSet::new();
    for (number, rest) in text.lines().filter_map(promise) {
        if !numbers.insert(number) {
            complaints.push(format!("{number}: the number is given twice"));
        }
        let tests = links(rest);
        if tests.is_empty() {
            complaints.push(format!("{number}: no test is named"));
        }
        for (test, file) in tests {
            if let Some(why) = missing(root, test, file) {
                complaints.push(format!("{number}: {why}"));
            }
        }
    }
    complaints
}

/// Number and rest of a row `| 1.2 | promise | tests |`.
fn promise(line: &str) -> Option<(&str, &str)> {
    let (number, rest) = line.strip_prefix("| ")?.split_once(" |")?;
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let (section, place) = number.split_once('.')?;
    (is_number(section) && is_number(place)).then_some((number, rest))
}

/// Names and files of all [`name`](file) in a row.
fn links(row: &str) -> Vec<(&str, &str)> {
    let link = |part| -> Option<(&str, &str)> {
        let (name, rest) = str::split_once(part, "`](")?;
        Some((name, rest.split_once(')')?.0))
    };
    row.split("[`").skip(1).filter_map(link).collect()
}

/// Why a test is not there. A test in C is a file, one in Rust a function.
fn missing(root: &Path, test: &str, file: &str) -> Option<String> {
    let Ok(text) = fs::read_to_string(root.join(file)) else {
        return Some(format!("there is no file {file}"));
    };
    let is_there = if file.ends_with(".rs") {
        text.contains(&format!("fn {test}("))
    } else {
        file.ends_with(test)
    };
    (!is_there).then(|| format!("there is no test {test} in {file}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_told_with_the_number() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("a.rs"), "#[test]\nfn is_so() {}\n").unwrap();
        fs::write(root.path().join("b.c"), "int main(void);\n").unwrap();
        let text = "| | promise | checked by |\n\
            | 1.1 | Right. | [`is_so`](a.rs), [`b.c`](b.c) |\n\
            | 1.2 | No such test. | [`is_so`](a.rs), [`is`](a.rs) |\n\
            | 1.3 | No such file. | [`is_so`](c.rs) |\n\
            | 1.3 | No test, twice. | |\n";
        assert_eq!(
            complaints(root.path(), text),
            [
                "1.2: there is no test is in a.rs",
                "1.3: there is no file c.rs",
                "1.3: the number is given twice",
                "1.3: no test is named",
            ]
        );
    }
}
