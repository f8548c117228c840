//! The nodes of a document's tree.

use serde_json::{Map, Number, Value};

/// A place in a document.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark {
    /// Line, 1-based.
    pub line: u32,
    /// Column, 1-based, in characters.
    pub column: u32,
}

/// A value and its place.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Start of the value.
    pub mark: Mark,
    /// The value.
    pub kind: Kind,
}

/// The value of a node.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// A text, number, boolean or null.
    Scalar(Scalar),
    /// A list.
    Sequence(Vec<Node>),
    /// Keys and values, in order, duplicates included.
    Mapping(Vec<Entry>),
}

/// A scalar as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scalar {
    /// The text.
    pub text: String,
    /// The scalar is written without quotes, and can be a number, boolean or null.
    pub plain: bool,
    /// Line of the text's first line, which in a block scalar comes after the `|`.
    pub first_line: u32,
}

/// A key and its value.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// Start of the key.
    pub key_mark: Mark,
    /// The value.
    pub value: Node,
}

impl Scalar {
    /// Returns true for null: absent, `~` or `null`.
    pub fn is_null(&self) -> bool {
        self.plain && matches!(self.text.as_str(), "" | "~" | "null" | "Null" | "NULL")
    }

    /// Returns the boolean, if the scalar is one (YAML 1.2 core schema: no `yes` or `on`).
    pub fn as_bool(&self) -> Option<bool> {
        match self.text.as_str() {
            "true" | "True" | "TRUE" if self.plain => Some(true),
            "false" | "False" | "FALSE" if self.plain => Some(false),
            _ => None,
        }
    }

    /// Returns the whole number, if the scalar is one: decimal, `0x` or `0o`.
    pub fn as_integer(&self) -> Option<i64> {
        if !self.plain {
            return None;
        }
        if let Some(hex) = self.text.strip_prefix("0x") {
            return digits(hex, 16);
        }
        if let Some(octal) = self.text.strip_prefix("0o") {
            return digits(octal, 8);
        }
        self.text.parse().ok()
    }

    /// Returns the number, if the scalar is a finite one.
    pub fn as_float(&self) -> Option<f64> {
        let looks_like_one = self
            .text
            .bytes()
            .all(|b| b.is_ascii_digit() || b"+-.eE".contains(&b));
        if !self.plain || !looks_like_one {
            return None;
        }
        self.text.parse().ok().filter(|n: &f64| n.is_finite())
    }

    fn to_json(&self) -> Value {
        if self.is_null() {
            return Value::Null;
        }
        if let Some(flag) = self.as_bool() {
            return Value::Bool(flag);
        }
        if let Some(n) = self.as_integer() {
            return Value::Number(n.into());
        }
        if self.plain
            && let Ok(n) = self.text.parse::<u64>()
        {
            return Value::Number(n.into());
        }
        if let Some(n) = self.as_float().and_then(Number::from_f64) {
            return Value::Number(n);
        }
        Value::String(self.text.clone())
    }
}

fn digits(text: &str, radix: u32) -> Option<i64> {
    let unsigned = !text.starts_with(['+', '-']);
    unsigned
        .then(|| i64::from_str_radix(text, radix).ok())
        .flatten()
}

impl Node {
    /// Returns the type in words, for "is a ..., not a ...".
    pub fn type_name(&self) -> &'static str {
        match &self.kind {
            Kind::Sequence(_) => "a list",
            Kind::Mapping(_) => "a mapping",
            Kind::Scalar(scalar) if scalar.is_null() => "empty",
            Kind::Scalar(scalar) if scalar.as_bool().is_some() => "a boolean",
            Kind::Scalar(scalar) if scalar.as_integer().is_some() => "a whole number",
            Kind::Scalar(scalar) if scalar.as_float().is_some() => "a number",
            Kind::Scalar(_) => "a text",
        }
    }

    /// Returns the scalar, if the node is one.
    pub fn as_scalar(&self) -> Option<&Scalar> {
        match &self.kind {
            Kind::Scalar(scalar) => Some(scalar),
            _ => None,
        }
    }

    /// Returns true if the node is null.
    pub fn is_null(&self) -> bool {
        self.as_scalar().is_some_and(Scalar::is_null)
    }

    /// Returns the value of a key of this mapping, the first of duplicates.
    pub fn get(&self, key: &str) -> Option<&Node> {
        match &self.kind {
            Kind::Mapping(entries) => entries
                .iter()
                .find(|entry| entry.key == key)
                .map(|entry| &entry.value),
            _ => None,
        }
    }

    /// Returns the same value as JSON. Of duplicate keys the last counts.
    pub fn to_json(&self) -> Value {
        match &self.kind {
            Kind::Scalar(scalar) => scalar.to_json(),
            Kind::Sequence(items) => items.iter().map(Node::to_json).collect(),
            Kind::Mapping(entries) => {
                let pairs = entries
                    .iter()
                    .map(|entry| (entry.key.clone(), entry.value.to_json()));
                Value::Object(pairs.collect::<Map<_, _>>())
            }
        }
    }

    /// Returns the place of the value at `path` (`instances.fw1.rules[3].from`) or, if it does not exist, of the
    /// innermost value on the way to it. The place of a mapping or list is its key.
    pub fn locate(&self, path: &str) -> Mark {
        self.follow(path).0.mark
    }

    /// Follows `path` as far as values exist. Returns the last step, and the number of steps.
    pub(crate) fn follow<'a>(&self, path: &'a str) -> (Step<'_, 'a>, usize) {
        let mut end = Step {
            node: self,
            mark: self.mark,
            rest: path,
        };
        let mut count = 0;
        while let Some(next) = end.node.step(end.rest) {
            end = next;
            count += 1;
        }
        (end, count)
    }

    /// Returns the value at `path`.
    pub fn at(&self, path: &str) -> Option<&Node> {
        let (end, _) = self.follow(path);
        end.rest.is_empty().then_some(end.node)
    }

    /// Returns the first step of `path`. Keys can contain dots and brackets: the longest key that fits is used.
    fn step<'a>(&self, path: &'a str) -> Option<Step<'_, 'a>> {
        if path.is_empty() {
            return None;
        }
        match &self.kind {
            Kind::Mapping(entries) => {
                let path = path.strip_prefix('.').unwrap_or(path);
                let fits = entries.iter().filter_map(|entry| {
                    let rest = path.strip_prefix(entry.key.as_str())?;
                    (rest.is_empty() || rest.starts_with(['.', '['])).then_some((entry, rest))
                });
                let (entry, rest) = fits.min_by_key(|(_, rest)| rest.len())?;
                let mark = match &entry.value.kind {
                    Kind::Scalar(scalar) if !scalar.is_null() => entry.value.mark,
                    _ => entry.key_mark,
                };
                Some(Step {
                    node: &entry.value,
                    mark,
                    rest,
                })
            }
            Kind::Sequence(items) => {
                let (index, rest) = path.strip_prefix('[')?.split_once(']')?;
                let node = items.get(index.parse::<usize>().ok()?)?;
                Some(Step {
                    node,
                    mark: node.mark,
                    rest,
                })
            }
            Kind::Scalar(_) => None,
        }
    }
}

/// The result of one step of a path: the node, and the rest of the path.
pub(crate) struct Step<'n, 'a> {
    node: &'n Node,
    pub(crate) mark: Mark,
    rest: &'a str,
}

impl Node {
    /// Returns a scalar without quotes and without a place.
    pub(super) fn plain_text(text: &str) -> Node {
        Node {
            mark: Mark::default(),
            kind: Kind::Scalar(Scalar {
                text: text.to_owned(),
                plain: true,
                first_line: 0,
            }),
        }
    }

    /// Converts a JSON value to a tree. Every place is unknown (line 0).
    pub fn from_json(value: &Value) -> Node {
        let scalar = |text: String, plain: bool| {
            Kind::Scalar(Scalar {
                text,
                plain,
                first_line: 0,
            })
        };
        let kind = match value {
            Value::Null => scalar(String::new(), true),
            Value::Bool(flag) => scalar(flag.to_string(), true),
            Value::Number(number) => scalar(number.to_string(), true),
            Value::String(text) => scalar(text.clone(), false),
            Value::Array(items) => Kind::Sequence(items.iter().map(Node::from_json).collect()),
            Value::Object(map) => {
                let entries = map.iter().map(|(key, value)| Entry {
                    key: key.clone(),
                    key_mark: Mark::default(),
                    value: Node::from_json(value),
                });
                Kind::Mapping(entries.collect())
            }
        };
        Node {
            mark: Mark::default(),
            kind,
        }
    }
}
