//! The sections and numbers of SPECIFICATION.md.

use std::collections::BTreeSet;
use std::fmt;

/// Number of a promise: section and place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Number(u32, u32);

impl Number {
    /// Reads `1.6`.
    pub fn parse(text: &str) -> Option<Self> {
        let part = |text: &str| {
            let digits = text.bytes().all(|byte| byte.is_ascii_digit());
            digits.then(|| text.parse().ok()).flatten()
        };
        let (section, place) = text.split_once('.')?;
        Some(Self(part(section)?, part(place)?))
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

/// A section with promises.
pub struct Section {
    /// For example `1. Data plane`.
    pub title: String,
    pub numbers: Vec<Number>,
}

/// The sections that have promises, in file order.
pub struct Specification {
    pub sections: Vec<Section>,
}

impl Specification {
    /// Reads headings `## title` and rows `| 1.2 | promise |`.
    pub fn parse(text: &str) -> Self {
        let mut sections = Vec::<Section>::new();
        for line in text.lines() {
            if let Some(title) = line.strip_prefix("## ") {
                sections.push(Section {
                    title: title.to_owned(),
                    numbers: Vec::new(),
                });
            } else if let (Some(section), Some(number)) = (sections.last_mut(), row(line)) {
                section.numbers.push(number);
            }
        }
        sections.retain(|section| !section.numbers.is_empty());
        Self { sections }
    }

    pub fn numbers(&self) -> BTreeSet<Number> {
        self.all().collect()
    }

    /// Returns the numbers of more than one promise.
    pub fn repeated(&self) -> Vec<Number> {
        let mut seen = BTreeSet::new();
        self.all().filter(|number| !seen.insert(*number)).collect()
    }

    fn all(&self) -> impl Iterator<Item = Number> {
        self.sections
            .iter()
            .flat_map(|section| section.numbers.iter().copied())
    }
}

fn row(line: &str) -> Option<Number> {
    let (number, _) = line.strip_prefix("| ")?.split_once(" |")?;
    Number::parse(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_with_promises_are_read_with_their_numbers() {
        let text = "# All\n## 1. One\n| | promise |\n|---|---|\n| 1.1 | A. |\n| 1.12 | B, see 1.1. |\n## Rest\n| x.1 | C. |\n";
        let Specification { sections } = Specification::parse(text);
        assert_eq!(sections.len(), 1);
        assert_eq!(sections[0].title, "1. One");
        assert_eq!(sections[0].numbers, [Number(1, 1), Number(1, 12)]);
    }

    #[test]
    fn a_number_has_a_section_and_a_place() {
        assert_eq!(Number::parse("10.2"), Some(Number(10, 2)));
        for text in ["", "1", "1.", ".1", "1.2.3", "+1.2", "1.a"] {
            assert_eq!(Number::parse(text), None, "{text}");
        }
    }
}
