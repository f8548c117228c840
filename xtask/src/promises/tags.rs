//! Tags: the comments that name the promises of a test.
//!
//! In Rust a tag is above the attributes of the test. In C a test is a file, and its tag may be on any line.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::specification::Number;

/// Prefix of a tag in Rust; numbers follow, separated by commas.
pub const RUST: &str = "// promise:";
/// Prefix of a tag in C.
const C: &str = "/* promise:";

/// A test with a tag.
#[derive(Debug, PartialEq, Eq)]
pub struct Test {
    /// Path from the project's folder.
    pub file: String,
    /// Function in Rust, file name in C.
    pub name: String,
    pub promises: Vec<Number>,
}

/// Reads the tags of all sources below `root`. Returns the tests and the complaints about tags.
///
/// # Errors
/// A folder or a file cannot be read.
pub fn read(root: &Path) -> Result<(Vec<Test>, Vec<String>)> {
    let (mut tests, mut complaints) = (Vec::new(), Vec::new());
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries =
            fs::read_dir(&folder).with_context(|| format!("reading {}", folder.display()))?;
        for entry in entries {
            let entry = entry?;
            let path = entry.path();
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if entry.file_type()?.is_dir() {
                if name != "target" && !name.starts_with('.') {
                    folders.push(path);
                }
            } else if name.ends_with(".rs") || name.ends_with(".c") {
                let text = fs::read_to_string(&path)
                    .with_context(|| format!("reading {}", path.display()))?;
                let file = path.strip_prefix(root)?.to_string_lossy();
                parse(&file, &text, &mut tests, &mut complaints);
            }
        }
    }
    complaints.sort();
    Ok((tests, complaints))
}

/// Appends the tests of a file, and the complaints about its tags.
fn parse(file: &str, text: &str, tests: &mut Vec<Test>, complaints: &mut Vec<String>) {
    let mut lines = text.lines().enumerate();
    while let Some((at, line)) = lines.next() {
        let Some(numbers) = tag(line) else {
            continue;
        };
        let mut complain = |what: &str| complaints.push(format!("{file}:{}: {what}", at + 1));
        let promises: Option<Vec<Number>> = numbers.split(", ").map(Number::parse).collect();
        let Some(promises) = promises else {
            complain("a tag has numbers like `1.6, 1.35`");
            continue;
        };
        let rest = lines.clone().map(|(_, line)| line);
        let name = if file.ends_with(".c") {
            file.rsplit('/').next()
        } else {
            function(rest)
        };
        match name {
            Some(name) => tests.push(Test {
                file: file.to_owned(),
                name: name.to_owned(),
                promises,
            }),
            None => complain("no function follows the tag"),
        }
    }
}

/// Returns the numbers of a tag as written.
fn tag(line: &str) -> Option<&str> {
    let line = line.trim();
    if let Some(numbers) = line.strip_prefix(RUST) {
        return Some(numbers.trim());
    }
    let numbers = line.strip_prefix(C)?;
    Some(numbers.strip_suffix("*/").unwrap_or(numbers).trim())
}

/// Returns the name of the function that follows; attributes and comments may come before it.
fn function<'a>(lines: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let is_before = |line: &&str| line.starts_with("#[") || line.starts_with("//");
    let line = lines.map(str::trim).find(|line| !is_before(line))?;
    let (before, rest) = line.split_once("fn ")?;
    let is_modifier = |word: &str| matches!(word, "async" | "unsafe") || word.starts_with("pub");
    if !before.split_whitespace().all(is_modifier) {
        return None;
    }
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_')?;
    rest.get(..end).filter(|name| !name.is_empty())
}

/// A test in `file` with these tags.
#[cfg(test)]
pub fn tagged(file: &str, name: &str, promises: &[&str]) -> Test {
    let promises = promises.iter().filter_map(|text| Number::parse(text));
    Test {
        file: file.to_owned(),
        name: name.to_owned(),
        promises: promises.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(file: &str, text: &str) -> (Vec<Test>, Vec<String>) {
        let (mut tests, mut complaints) = (Vec::new(), Vec::new());
        parse(file, text, &mut tests, &mut complaints);
        (tests, complaints)
    }

    #[test]
    fn a_tag_belongs_to_the_function_below_its_attributes() {
        let text = format!(
            "fn untagged() {{}}\n    {RUST} 1.6, 1.35\n    #[test]\n    /// Why.\n    fn first() {{}}\n{RUST} 2.1\n#[tokio::test]\nasync fn second() {{}}\n"
        );
        let (tests, complaints) = parsed("a.rs", &text);
        assert!(complaints.is_empty(), "{complaints:?}");
        let expected = [
            tagged("a.rs", "first", &["1.6", "1.35"]),
            tagged("a.rs", "second", &["2.1"]),
        ];
        assert_eq!(tests, expected);
    }

    #[test]
    fn a_test_in_c_is_its_file() {
        let (tests, _) = parsed(
            "lib/a/tests/x.c",
            &format!("int main;\n{C} 11.1, 11.2 */\n"),
        );
        assert_eq!(tests, [tagged("lib/a/tests/x.c", "x.c", &["11.1", "11.2"])]);
    }

    #[test]
    fn tags_without_a_function_or_with_wrong_numbers_are_complaints() {
        let text = format!(
            "{RUST} 1.6\n\nfn apart() {{}}\n{RUST} 1.6 and 1.7\nfn a() {{}}\n{RUST} 1.1\nlet f = fn_of(1);\n{RUST} 1.2\n"
        );
        let (tests, complaints) = parsed("a.rs", &text);
        assert!(tests.is_empty(), "{tests:?}");
        let expected = [
            "a.rs:1: no function follows the tag",
            "a.rs:4: a tag has numbers like `1.6, 1.35`",
            "a.rs:6: no function follows the tag",
            "a.rs:8: no function follows the tag",
        ];
        assert_eq!(complaints, expected);
    }
}
