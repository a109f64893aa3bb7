//! Reads a YAML text into the located tree, with the meaning the kubelet gives it.
//!
//! The kubelet converts YAML to JSON with sigs.k8s.io/yaml, that is with go-yaml v2: YAML 1.1 booleans and
//! octals, the first document only (rule A.2.2), the last of equal keys, merge keys in place. `scalar` holds those
//! rules; the grammar is saphyr-parser's (YAML 1.2), which differs only in corners that no manifest uses. Its
//! events carry positions, which serde based readers lose.
//!
//! The text is untrusted: depth and the size of the tree, aliases expanded, are bounded. Nothing recurses. Runs on
//! whatever thread reads the manifest.

mod encoding;
mod scalar;

use super::text::TextError;
use super::tree::{Entry, Node, Value};
use saphyr_parser::{Event, Marker, Parser, ScalarStyle, ScanError, Span, StrInput, Tag};
use std::borrow::Cow;
use std::collections::HashMap;

/// A pod's own fields nest some 15 deep. The bound protects whoever walks the tree recursively.
pub(crate) const MAX_DEPTH: usize = 128;

/// Memory that one text may cost, in bytes: 10 MiB of text (rule A.1.7) and 500,000 values fit.
const MAX_TREE_BYTES: usize = 32 << 20;

/// `key:<tab>value` is good YAML and the kubelet reads it; the parser refuses some of it, at a place where the tab is
/// known to be white space. So that tab is replaced and the text read again, this often at most.
const MAX_TAB_REPAIRS: usize = 64;
const TAB_REFUSED: &str = "':' must be followed by a valid YAML whitespace";

/// Reads the first document of a YAML text. Accepts UTF-8, and UTF-16 with a byte order mark, as the kubelet does.
///
/// # Errors
/// The text is not YAML, has no value, or exceeds a bound; the error says where and why.
pub fn parse_yaml(bytes: &[u8]) -> Result<Node, TextError> {
    let mut text = encoding::decode(bytes)?;
    for _ in 0..MAX_TAB_REPAIRS {
        let mut loader = Loader::new(&text);
        let result = loader.run();
        let Some(at) = loader.tab_after_colon else { return result };
        text = Cow::Owned(without_tabs_before(&text, at));
    }
    Loader::new(&text).run()
}

/// Replaces the tabs that end at the character `at` by spaces.
fn without_tabs_before(text: &str, at: usize) -> String {
    let end = text.char_indices().nth(at).map_or(text.len(), |(index, _)| index);
    let (before, after) = text.split_at(end);
    let kept = before.trim_end_matches('\t');
    format!("{kept}{}{after}", " ".repeat(before.len() - kept.len()))
}

/// A collection whose end has not come yet.
struct Frame {
    line: u32,
    anchor: usize,
    kind: Kind,
}

enum Kind {
    List(Vec<Node>),
    Map { entries: Vec<Entry>, key: Option<Key> },
}

/// The key that waits for its value.
enum Key {
    Name(Box<str>),
    /// `<<`: the value's members are taken over in place.
    Merge,
}

/// A finished value that an alias may repeat.
struct Anchored {
    node: Node,
    bytes: usize,
    depth: usize,
}

/// Where a value came from; go-yaml takes a list of mappings to merge only if it stands there itself.
#[derive(Clone, Copy, PartialEq)]
enum Origin {
    Text,
    Alias,
}

struct Loader<'text> {
    text: &'text str,
    parser: Parser<'text, StrInput<'text>>,
    frames: Vec<Frame>,
    /// By the parser's anchor number. An anchor that is still open is absent: an alias to it contains itself.
    anchors: HashMap<usize, Anchored>,
    tree_bytes: usize,
    /// The character after the tab that [`TAB_REFUSED`] is about.
    tab_after_colon: Option<usize>,
}

impl<'text> Loader<'text> {
    fn new(text: &'text str) -> Self {
        Self {
            text,
            parser: Parser::new_from_str(text),
            frames: Vec::new(),
            anchors: HashMap::new(),
            tree_bytes: 0,
            tab_after_colon: None,
        }
    }

    fn run(&mut self) -> Result<Node, TextError> {
        while let Some(event) = self.parser.next_event() {
            let (event, span) = event.map_err(|error| self.grammar_error(&error))?;
            if let Event::StreamEnd = event {
                break;
            }
            // The document ends with its root value: what follows is never read (rule A.2.2).
            if let Some(root) = self.on_event(event, &span)? {
                if root.value == Value::Null {
                    return Err(error_at(&span.start, "the first document is empty"));
                }
                return Ok(root);
            }
        }
        Err(TextError::new(1, 1, "the file has no document"))
    }

    /// Takes one event; gives the root value when it is complete.
    fn on_event(&mut self, event: Event<'text>, span: &Span) -> Result<Option<Node>, TextError> {
        let at = &span.start;
        let line = line_of(at);
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                if let Some(frame) = self.frames.last_mut()
                    && let Kind::Map { key: key @ None, .. } = &mut frame.kind
                {
                    let plain = style == ScalarStyle::Plain && tag.is_none();
                    if text == "<<" && (plain || tag.as_deref().is_some_and(|tag| is_core(tag, "merge"))) {
                        *key = Some(Key::Merge);
                        return Ok(None);
                    }
                }
                let value = scalar::resolve(&text, style, tag.as_deref()).map_err(|why| error_at(at, why))?;
                self.attach(Node { line, value }, anchor, Origin::Text, at)
            }
            Event::SequenceStart(anchor, _) => self.open(line, anchor, Kind::List(Vec::new()), at),
            Event::MappingStart(anchor, _) => {
                self.open(line, anchor, Kind::Map { entries: Vec::new(), key: None }, at)
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let frame = self.frames.pop().expect("the parser ends only collections that it began");
                let value = match frame.kind {
                    Kind::List(items) => Value::List(items),
                    Kind::Map { entries, .. } => Value::Map(entries),
                };
                self.attach(Node { line: frame.line, value }, frame.anchor, Origin::Text, at)
            }
            Event::Alias(anchor) => {
                let Some(anchored) = self.anchors.get(&anchor) else {
                    return Err(error_at(at, "the alias stands inside the value that it repeats"));
                };
                if self.frames.len() + anchored.depth > MAX_DEPTH {
                    return Err(too_deep(at));
                }
                // Counted before it is copied: this is what stops "billion laughs".
                self.tree_bytes = self.tree_bytes.saturating_add(anchored.bytes);
                if self.tree_bytes > MAX_TREE_BYTES {
                    return Err(too_large(at));
                }
                let node = anchored.node.clone();
                self.attach(node, 0, Origin::Alias, at)
            }
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd => Ok(None),
        }
    }

    fn open(&mut self, line: u32, anchor: usize, kind: Kind, at: &Marker) -> Result<Option<Node>, TextError> {
        if self.frames.len() >= MAX_DEPTH {
            return Err(too_deep(at));
        }
        self.frames.push(Frame { line, anchor, kind });
        Ok(None)
    }

    /// Puts a finished value where it belongs: key, value, element or root.
    fn attach(
        &mut self,
        node: Node,
        anchor: usize,
        origin: Origin,
        at: &Marker,
    ) -> Result<Option<Node>, TextError> {
        self.tree_bytes = self.tree_bytes.saturating_add(own_bytes(&node));
        if self.tree_bytes > MAX_TREE_BYTES {
            return Err(too_large(at));
        }
        if anchor != 0 {
            self.remember(anchor, &node, at)?;
        }
        let Some(frame) = self.frames.last_mut() else { return Ok(Some(node)) };
        match &mut frame.kind {
            Kind::List(items) => items.push(node),
            Kind::Map { key: key @ None, .. } => {
                let name = scalar::key_text(&node.value).map_err(|why| error_at(at, why))?;
                *key = Some(Key::Name(name));
            }
            Kind::Map { entries, key } => match key.take() {
                Some(Key::Name(name)) => entries.push(Entry { key: name, value: node }),
                Some(Key::Merge) => merge(entries, node, origin).map_err(|why| error_at(at, why))?,
                None => unreachable!("a mapping without a key was matched above"),
            },
        }
        Ok(None)
    }

    /// Keeps a copy of an anchored value. The copy counts too, else a chain of nested anchors would cost its square.
    fn remember(&mut self, anchor: usize, node: &Node, at: &Marker) -> Result<(), TextError> {
        let (bytes, depth) = measure(node);
        self.tree_bytes = self.tree_bytes.saturating_add(bytes);
        if self.tree_bytes > MAX_TREE_BYTES {
            return Err(too_large(at));
        }
        self.anchors.insert(anchor, Anchored { node: node.clone(), bytes, depth });
        Ok(())
    }

    /// The parser's complaint in our form; tabs, the commonest cause, are named.
    fn grammar_error(&mut self, error: &ScanError) -> TextError {
        let at = error.marker();
        if error.info() == TAB_REFUSED {
            self.tab_after_colon = Some(at.index());
            return error_at(at, "a tab after ':'; put a space there");
        }
        let indentation = |line: &str| line.chars().take_while(|c| c.is_whitespace()).any(|c| c == '\t');
        if self.text.lines().nth(at.line().saturating_sub(1)).is_some_and(indentation) {
            return error_at(at, "a tab in the indentation; YAML takes spaces only");
        }
        error_at(at, error.info())
    }
}

/// Takes the members of a merge key's value over. As in go-yaml v2 they stand where `<<` stands: they override
/// members before it and are overridden by members after it, and of several mappings the first one wins.
fn merge(entries: &mut Vec<Entry>, node: Node, origin: Origin) -> Result<(), &'static str> {
    const WANTED: &str = "a merge key (<<) takes a mapping or a list of mappings";
    match node.value {
        Value::Map(members) => entries.extend(members),
        Value::List(items) if origin == Origin::Text => {
            for item in items.into_iter().rev() {
                let Value::Map(members) = item.value else { return Err(WANTED) };
                entries.extend(members);
            }
        }
        _ => return Err(WANTED),
    }
    Ok(())
}

/// The memory of one value without what it contains.
fn own_bytes(node: &Node) -> usize {
    size_of::<Node>()
        + match &node.value {
            Value::Number(text) | Value::String(text) => text.len(),
            Value::Null | Value::Bool(_) | Value::List(_) | Value::Map(_) => 0,
        }
}

/// The memory of a value with all that it contains, and how deep it nests.
fn measure(root: &Node) -> (usize, usize) {
    let mut bytes = 0;
    let mut deepest = 0;
    let mut open = vec![(root, 0)];
    while let Some((node, depth)) = open.pop() {
        bytes += own_bytes(node);
        deepest = deepest.max(depth);
        match &node.value {
            Value::List(items) => open.extend(items.iter().map(|item| (item, depth + 1))),
            Value::Map(entries) => {
                bytes += entries.iter().map(|entry| size_of::<Entry>() + entry.key.len()).sum::<usize>();
                open.extend(entries.iter().map(|entry| (&entry.value, depth + 1)));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    (bytes, deepest)
}

/// Whether a tag is `!!NAME`.
fn is_core(tag: &Tag, name: &str) -> bool {
    tag.is_yaml_core_schema() && tag.suffix == name
}

fn line_of(at: &Marker) -> u32 {
    u32::try_from(at.line()).unwrap_or(u32::MAX)
}

fn error_at(at: &Marker, message: impl Into<String>) -> TextError {
    TextError::new(line_of(at), u32::try_from(at.col() + 1).unwrap_or(u32::MAX), message)
}

fn too_deep(at: &Marker) -> TextError {
    error_at(at, format!("values nest more than {MAX_DEPTH} deep"))
}

fn too_large(at: &Marker) -> TextError {
    error_at(at, format!("the text, its aliases expanded, takes more than {} MiB", MAX_TREE_BYTES >> 20))
}

#[cfg(test)]
mod tests;
