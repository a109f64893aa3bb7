//! What is wrong in a manifest, each problem with its line and field.
//!
//! A reason never repeats a value: it may be a secret, in `env` for one, and reasons go to the log and to whoever reads
//! `/readyz?verbose`. Where the value stands is enough to find it.

use std::fmt;

/// Problems that one manifest reports; the rest is only counted.
const MAX_PROBLEMS: usize = 16;
/// Characters of a map's key that a place repeats.
const MAX_KEY_CHARS: usize = 80;

/// One thing that is wrong in a manifest. Displayed as `LINE: FIELD: REASON`, without the parts that are unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The line of the value, from 1; 0 where the value stands in no line.
    pub line: u32,
    /// The field, such as `spec.containers[0].image`; empty where the problem is the whole text.
    pub field: String,
    /// What is wrong and what would be right.
    pub reason: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line != 0 {
            write!(f, "{}: ", self.line)?;
        }
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.reason)
    }
}

/// The problems found so far, bounded.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Problems {
    kept: Vec<Problem>,
    dropped: usize,
}

impl Problems {
    /// Adds one problem.
    pub(super) fn add(&mut self, line: u32, field: &At<'_>, reason: impl Into<String>) {
        if self.kept.len() == MAX_PROBLEMS {
            self.dropped += 1;
            return;
        }
        self.kept.push(Problem { line, field: field.to_string(), reason: reason.into() });
    }

    /// The problems in the order of the file, and how many more there were.
    pub(super) fn finish(mut self) -> (Vec<Problem>, usize) {
        self.kept.sort_by_key(|problem| problem.line);
        (self.kept, self.dropped)
    }
}

/// A key, which the user chooses, as a place has it: quoted, and cut when it is long.
fn quoted(key: &str) -> String {
    match key.char_indices().nth(MAX_KEY_CHARS) {
        None => format!("{key:?}"),
        Some((end, _)) => format!("{:?}...", &key[..end]),
    }
}

/// A place in the pod. Each step borrows the one before, so that walking costs nothing and only an error makes text.
#[derive(Clone, Copy)]
pub(super) struct At<'a> {
    before: Option<&'a At<'a>>,
    step: Step<'a>,
}

#[derive(Clone, Copy)]
enum Step<'a> {
    Field(&'a str),
    Index(usize),
    Key(&'a str),
}

impl<'a> At<'a> {
    /// The place of a top-level field.
    pub(super) fn root(field: &'a str) -> Self {
        Self { before: None, step: Step::Field(field) }
    }

    /// The place of a field of this message.
    pub(super) fn field(&'a self, name: &'a str) -> Self {
        Self { before: Some(self), step: Step::Field(name) }
    }

    /// The place of an element of this list.
    pub(super) fn index(&'a self, index: usize) -> Self {
        Self { before: Some(self), step: Step::Index(index) }
    }

    /// The place of an entry of this map, whose keys the user chooses.
    pub(super) fn key(&'a self, key: &'a str) -> Self {
        Self { before: Some(self), step: Step::Key(key) }
    }
}

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(before) = self.before {
            before.fmt(f)?;
        }
        match self.step {
            Step::Field(name) if self.before.is_some() => write!(f, ".{name}"),
            Step::Field(name) => f.write_str(name),
            Step::Index(index) => write!(f, "[{index}]"),
            Step::Key(key) => write!(f, "[{}]", quoted(key)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_reads_as_line_field_reason() {
        let mut problems = Problems::default();
        let spec = At::root("spec");
        let containers = spec.field("containers");
        let second = containers.index(1);
        problems.add(7, &second.field("image"), "an image is needed");
        let labels = At::root("metadata");
        let labels = labels.field("labels");
        problems.add(3, &labels.key("a b"), "not a key");
        let (problems, dropped) = problems.finish();
        let texts: Vec<_> = problems.iter().map(Problem::to_string).collect();
        assert_eq!(
            texts,
            [r#"3: metadata.labels["a b"]: not a key"#, "7: spec.containers[1].image: an image is needed"]
        );
        assert_eq!(dropped, 0);
    }

    #[test]
    fn the_number_of_problems_and_the_length_of_keys_are_bounded() {
        let mut problems = Problems::default();
        for line in 0..100 {
            problems.add(line, &At::root("x"), "bad");
        }
        let (kept, dropped) = problems.finish();
        assert_eq!((kept.len(), dropped), (16, 84));
        assert_eq!(quoted(&"x".repeat(1000)).len(), 80 + 5);
    }
}
