//! A JSON value that remembers on which line of its text each part stood.
//!
//! JSON and YAML manifests are read into this tree, defaulted on it, and converted to Pod bytes from it, so that an
//! error of any stage can name file, line and field. Runs on whatever thread reads the manifest.

/// One value and the 1-based line of the source text it began on; 0 where it did not come from a text (a default).
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// Where the value began.
    pub line: u32,
    /// The value.
    pub value: Value,
}

/// A JSON value. Numbers keep their text: int64 and quantities must not pass through a float.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// `null`; the same as absent (rule E.9.9).
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// The number as written, in JSON syntax.
    Number(Box<str>),
    /// A string.
    String(Box<str>),
    /// An array.
    List(Vec<Node>),
    /// An object, in source order. A key may occur twice; the last one counts (rule A.2.5).
    Map(Vec<Entry>),
}

/// One member of an object.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The member's name.
    pub key: Box<str>,
    /// Its value.
    pub value: Node,
}

impl Node {
    /// A value that stands in no text.
    #[must_use]
    pub fn new(value: Value) -> Self {
        Self { line: 0, value }
    }

    /// A string that stands in no text.
    #[must_use]
    pub fn string(text: impl Into<Box<str>>) -> Self {
        Self::new(Value::String(text.into()))
    }

    /// The member `key` of an object; `None` for `null`, a missing member or another kind of value.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Node> {
        let Value::Map(entries) = &self.value else { return None };
        let node = entries.iter().rev().find(|entry| &*entry.key == key).map(|entry| &entry.value)?;
        (node.value != Value::Null).then_some(node)
    }

    /// As [`Node::get`], for changing the member in place.
    pub fn get_mut(&mut self, key: &str) -> Option<&mut Node> {
        let Value::Map(entries) = &mut self.value else { return None };
        let node = entries.iter_mut().rev().find(|entry| &*entry.key == key).map(|entry| &mut entry.value)?;
        (node.value != Value::Null).then_some(node)
    }

    /// Sets the member `key` of an object, replacing every earlier one. Does nothing to other kinds of value.
    pub fn set(&mut self, key: &str, node: Node) {
        let Value::Map(entries) = &mut self.value else { return };
        entries.retain(|entry| &*entry.key != key);
        entries.push(Entry { key: key.into(), value: node });
    }

    /// The text of a string value.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        match &self.value {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    /// The elements of an array; empty for any other kind of value.
    #[must_use]
    pub fn items(&self) -> &[Node] {
        match &self.value {
            Value::List(items) => items,
            _ => &[],
        }
    }

    /// As [`Node::items`], for changing elements in place.
    pub fn items_mut(&mut self) -> &mut [Node] {
        match &mut self.value {
            Value::List(items) => items,
            _ => &mut [],
        }
    }
}
