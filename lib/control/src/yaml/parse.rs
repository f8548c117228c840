//! Parsing of text into a tree, within bounds.

use super::node::{Entry, Kind, Mark, Node, Scalar};
use saphyr_parser::{Event, Parser, ScalarStyle, Span};
use std::collections::HashMap;

/// Maximum length of a document in bytes.
pub const DOCUMENT_BYTES_MAX: usize = 16 << 20;

/// Maximum number of nodes of a document, expanded aliases included.
pub const NODES_MAX: usize = 2_000_000;

/// Maximum number of bytes of all scalars, expanded aliases included.
const TEXT_BYTES_MAX: usize = 4 * DOCUMENT_BYTES_MAX;

/// Maximum nesting depth.
pub const DEPTH_MAX: usize = 32;

/// The error of a text that is not a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyntaxError {
    /// The place.
    pub mark: Mark,
    /// The fault.
    pub message: String,
    /// The remedy.
    pub remedy: String,
}

impl SyntaxError {
    fn new(mark: Mark, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        SyntaxError {
            mark,
            message: message.into(),
            remedy: remedy.into(),
        }
    }
}

/// Reads one document, at most [`DOCUMENT_BYTES_MAX`] long.
///
/// # Errors
/// The first fault: a part that is not YAML, or that exceeds a bound.
pub fn parse(text: &str) -> Result<Node, SyntaxError> {
    if text.len() > DOCUMENT_BYTES_MAX {
        return Err(SyntaxError::new(
            Mark { line: 1, column: 1 },
            format!(
                "the document has {} MiB, more than the {} MiB that are read",
                text.len() >> 20,
                DOCUMENT_BYTES_MAX >> 20
            ),
            "keep long rule lists in files of their own (rules_file)",
        ));
    }
    let mut builder = Builder::default();
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| not_yaml(&error))?;
        builder.take(event, span)?;
    }
    builder.root.ok_or_else(|| {
        SyntaxError::new(
            Mark { line: 1, column: 1 },
            "the document is empty",
            "write at least 'version: 1'",
        )
    })
}

fn not_yaml(error: &saphyr_parser::ScanError) -> SyntaxError {
    SyntaxError::new(
        mark(*error.marker()),
        format!("this is not YAML: {}", error.info()),
        "check indentation, colons and quotes here and in the line above",
    )
}

fn mark(marker: saphyr_parser::Marker) -> Mark {
    let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    Mark {
        line: number(marker.line()),
        column: number(marker.col()).saturating_add(1),
    }
}

/// A container that is being filled.
struct Open {
    node: Node,
    /// The key whose value is expected next.
    key: Option<(String, Mark)>,
    anchor: usize,
}

/// The node of an anchor, and the cost of a copy.
struct Anchored {
    node: Node,
    size: Size,
}

#[derive(Clone, Copy, Default)]
struct Size {
    nodes: usize,
    bytes: usize,
    /// Number of levels, 1 for a scalar.
    depth: usize,
}

impl Size {
    const fn scalar(bytes: usize) -> Self {
        Size {
            nodes: 1,
            bytes,
            depth: 1,
        }
    }

    fn of(node: &Node) -> Self {
        let inner = match &node.kind {
            Kind::Scalar(scalar) => return Size::scalar(scalar.text.len()),
            Kind::Sequence(items) => items.iter().map(Size::of).fold(Size::default(), Size::with),
            Kind::Mapping(entries) => entries
                .iter()
                .flat_map(|entry| [Size::scalar(entry.key.len()), Size::of(&entry.value)])
                .fold(Size::default(), Size::with),
        };
        Size {
            nodes: inner.nodes.saturating_add(1),
            depth: inner.depth + 1,
            ..inner
        }
    }

    fn with(self, other: Size) -> Self {
        Size {
            nodes: self.nodes.saturating_add(other.nodes),
            bytes: self.bytes.saturating_add(other.bytes),
            depth: self.depth.max(other.depth),
        }
    }
}

#[derive(Default)]
struct Builder {
    root: Option<Node>,
    open: Vec<Open>,
    anchors: HashMap<usize, Anchored>,
    total: Size,
    documents: usize,
}

impl Builder {
    fn take(&mut self, event: Event<'_>, span: Span) -> Result<(), SyntaxError> {
        let place = mark(span.start);
        match event {
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => Ok(()),
            Event::DocumentStart(_) => self.start_document(place),
            Event::Alias(anchor) => self.repeat(anchor, place),
            Event::Scalar(text, style, anchor, tag) => {
                refuse_tag(tag.is_some(), place)?;
                // The parser's place is the first line that is not blank.
                let blank_lines = match style {
                    ScalarStyle::Literal | ScalarStyle::Folded => {
                        text.bytes().take_while(|byte| *byte == b'\n').count()
                    }
                    _ => 0,
                };
                let scalar = Scalar {
                    text: text.into_owned(),
                    plain: style == ScalarStyle::Plain,
                    first_line: place
                        .line
                        .saturating_sub(u32::try_from(blank_lines).unwrap_or(u32::MAX)),
                };
                self.spend(Size::scalar(scalar.text.len()), place)?;
                let kind = Kind::Scalar(scalar);
                self.put(Node { mark: place, kind }, anchor)
            }
            Event::SequenceStart(anchor, tag) => {
                refuse_tag(tag.is_some(), place)?;
                self.start(Kind::Sequence(Vec::new()), anchor, place)
            }
            Event::MappingStart(anchor, tag) => {
                refuse_tag(tag.is_some(), place)?;
                self.start(Kind::Mapping(Vec::new()), anchor, place)
            }
            Event::SequenceEnd | Event::MappingEnd => match self.open.pop() {
                Some(done) => self.put(done.node, done.anchor),
                None => Ok(()),
            },
        }
    }

    fn start_document(&mut self, place: Mark) -> Result<(), SyntaxError> {
        self.documents += 1;
        if self.documents > 1 {
            return Err(SyntaxError::new(
                place,
                "a second document starts here",
                "put everything into one document, or apply one file per document",
            ));
        }
        Ok(())
    }

    fn start(&mut self, kind: Kind, anchor: usize, place: Mark) -> Result<(), SyntaxError> {
        self.spend(Size::scalar(0), place)?;
        self.open.push(Open {
            node: Node { mark: place, kind },
            key: None,
            anchor,
        });
        Ok(())
    }

    /// Counts nodes before they are created, so that excessive aliases are refused before they are expanded.
    fn spend(&mut self, size: Size, place: Mark) -> Result<(), SyntaxError> {
        if self.open.len() + size.depth > DEPTH_MAX {
            return Err(SyntaxError::new(
                place,
                format!("the document is nested more than {DEPTH_MAX} levels deep"),
                "a deployment needs fewer than ten levels",
            ));
        }
        self.total = self.total.with(size);
        if self.total.nodes > NODES_MAX || self.total.bytes > TEXT_BYTES_MAX {
            return Err(SyntaxError::new(
                place,
                format!(
                    "the document has more than {NODES_MAX} values or {} MiB of text, counting \
                     what its aliases stand for",
                    TEXT_BYTES_MAX >> 20
                ),
                "use fewer aliases (*name), or keep long rule lists in files of their own",
            ));
        }
        Ok(())
    }

    fn repeat(&mut self, anchor: usize, place: Mark) -> Result<(), SyntaxError> {
        let Some(anchored) = self.anchors.get(&anchor) else {
            return Err(SyntaxError::new(
                place,
                "this alias stands for a value that it is itself a part of",
                "write the value out",
            ));
        };
        let size = anchored.size;
        self.spend(size, place)?;
        let copy = self.anchors.get(&anchor).map(|same| same.node.clone());
        copy.map_or(Ok(()), |node| self.put(node, 0))
    }

    /// Adds a finished node to its container.
    fn put(&mut self, node: Node, anchor: usize) -> Result<(), SyntaxError> {
        if anchor != 0 {
            let anchored = Anchored {
                size: Size::of(&node),
                node: node.clone(),
            };
            // The copy that is kept for the anchor counts like any other.
            self.spend(anchored.size, node.mark)?;
            self.anchors.insert(anchor, anchored);
        }
        let Some(parent) = self.open.last_mut() else {
            self.root = Some(node);
            return Ok(());
        };
        match &mut parent.node.kind {
            Kind::Sequence(items) => items.push(node),
            Kind::Mapping(entries) => match parent.key.take() {
                None => parent.key = Some(key_of(node)?),
                Some((key, key_mark)) => entries.push(Entry {
                    key,
                    key_mark,
                    value: node,
                }),
            },
            Kind::Scalar(_) => {}
        }
        Ok(())
    }
}

fn key_of(node: Node) -> Result<(String, Mark), SyntaxError> {
    match node.kind {
        Kind::Scalar(scalar) => Ok((scalar.text, node.mark)),
        _ => Err(SyntaxError::new(
            node.mark,
            "a key has to be a text",
            "quote it, or check the brackets",
        )),
    }
}

fn refuse_tag(tagged: bool, place: Mark) -> Result<(), SyntaxError> {
    if tagged {
        return Err(SyntaxError::new(
            place,
            "tags (!name) are not supported in a deployment",
            "remove the tag",
        ));
    }
    Ok(())
}
