//! Label selectors in Kubernetes' syntax, and the filter that a call makes of them.
//!
//! `key`, `!key`, `key=value`, `key==value`, `key!=value`, `key in (a,b)`, `key notin (a,b)`, `key>1`, `key<1`, joined
//! by commas that mean "and" (kubernetes.io "Labels and Selectors").

use super::id::Namespace;
use std::fmt;
use std::sync::Arc;

/// The longest selector taken, and the most requirements in one.
const MAX_BYTES: usize = 8 * 1024;
const MAX_REQUIREMENTS: usize = 64;

/// Which pods a call is about.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Selector {
    namespace: Option<Namespace>,
    /// What the caller may see at most; `None` for all namespaces.
    within: Option<Arc<[Namespace]>>,
    requirements: Vec<Requirement>,
}

/// What is wrong with a selector.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid label selector at byte {offset}: {reason}")]
pub struct SelectorError {
    /// Where in the text.
    pub offset: usize,
    /// What is wrong there.
    pub reason: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Requirement {
    key: Box<str>,
    operator: Operator,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Operator {
    Exists,
    DoesNotExist,
    In(Vec<Box<str>>),
    NotIn(Vec<Box<str>>),
    GreaterThan(i64),
    LessThan(i64),
}

impl Selector {
    /// Reads a label selector; an empty one selects everything.
    ///
    /// # Errors
    /// The first place that the syntax does not allow.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let mut parser = Parser { text, offset: 0 };
        if text.len() > MAX_BYTES {
            return Err(parser.error(format!("longer than {MAX_BYTES} bytes")));
        }
        let mut requirements = Vec::new();
        parser.skip_blanks();
        while !parser.rest().is_empty() {
            requirements.push(parser.requirement()?);
            if requirements.len() > MAX_REQUIREMENTS {
                return Err(parser.error(format!("more than {MAX_REQUIREMENTS} requirements")));
            }
            parser.skip_blanks();
            if parser.rest().is_empty() {
                break;
            }
            if !parser.take(",") {
                return Err(parser.error("expected `,` between requirements".into()));
            }
            parser.skip_blanks();
            if parser.rest().is_empty() {
                return Err(parser.error("expected a requirement after `,`".into()));
            }
        }
        Ok(Self { namespace: None, within: None, requirements })
    }

    /// Restricts the selection to one namespace.
    #[must_use]
    pub fn in_namespace(mut self, namespace: Option<Namespace>) -> Self {
        self.namespace = namespace;
        self
    }

    /// Restricts the selection to what a caller may see: pods of these namespaces, sorted.
    #[must_use]
    pub fn within(mut self, namespaces: Arc<[Namespace]>) -> Self {
        self.within = Some(namespaces);
        self
    }

    /// The namespace, where the selection is restricted to one.
    #[must_use]
    pub fn namespace(&self) -> Option<&Namespace> {
        self.namespace.as_ref()
    }

    /// Whether every pod is selected.
    #[must_use]
    pub fn is_everything(&self) -> bool {
        self.namespace.is_none() && self.within.is_none() && self.requirements.is_empty()
    }

    /// The label keys that the selection depends on.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.requirements.iter().map(|requirement| &*requirement.key)
    }

    /// Whether a pod is selected; `label` finds the value of a label.
    pub fn matches<'a>(&self, namespace: &Namespace, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.namespace.as_ref().is_none_or(|wanted| wanted == namespace)
            && self.within.as_ref().is_none_or(|shown| shown.binary_search(namespace).is_ok())
            && self
                .requirements
                .iter()
                .all(|requirement| requirement.operator.matches(label(&requirement.key)))
    }
}

/// Writes the label requirements, as they can be read again.
impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, Requirement { key, operator }) in self.requirements.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            match operator {
                Operator::Exists => write!(f, "{comma}{key}")?,
                Operator::DoesNotExist => write!(f, "{comma}!{key}")?,
                Operator::In(values) => write!(f, "{comma}{key} in ({})", values.join(","))?,
                Operator::NotIn(values) => write!(f, "{comma}{key} notin ({})", values.join(","))?,
                Operator::GreaterThan(bound) => write!(f, "{comma}{key}>{bound}")?,
                Operator::LessThan(bound) => write!(f, "{comma}{key}<{bound}")?,
            }
        }
        Ok(())
    }
}

impl Operator {
    fn matches(&self, value: Option<&str>) -> bool {
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        match self {
            Self::Exists => value.is_some(),
            Self::DoesNotExist => value.is_none(),
            Self::In(values) => value.is_some_and(|value| values.iter().any(|wanted| &**wanted == value)),
            // A pod without the label is not in the set.
            Self::NotIn(values) => value.is_none_or(|value| values.iter().all(|wanted| &**wanted != value)),
            Self::GreaterThan(bound) => number().is_some_and(|number| number > *bound),
            Self::LessThan(bound) => number().is_some_and(|number| number < *bound),
        }
    }
}

struct Parser<'a> {
    text: &'a str,
    offset: usize,
}

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.offset..]
    }

    fn skip_blanks(&mut self) {
        self.offset = self.text.len() - self.rest().trim_ascii_start().len();
    }

    fn take(&mut self, token: &str) -> bool {
        let found = self.rest().starts_with(token);
        if found {
            self.offset += token.len();
        }
        found
    }

    fn error(&self, reason: String) -> SelectorError {
        SelectorError { offset: self.offset, reason }
    }

    /// The characters up to the next one with a meaning of its own.
    fn word(&mut self) -> &'a str {
        let rest = self.rest();
        let end = rest
            .find(|c: char| c.is_ascii_whitespace() || matches!(c, ',' | '=' | '!' | '(' | ')' | '<' | '>'))
            .unwrap_or(rest.len());
        self.offset += end;
        &rest[..end]
    }

    fn requirement(&mut self) -> Result<Requirement, SelectorError> {
        let is_negated = self.take("!");
        self.skip_blanks();
        let start = self.offset;
        let key = self.word();
        if !is_qualified_name(key) {
            self.offset = start;
            return Err(self.error(format!("{key:?} is not a label key")));
        }
        self.skip_blanks();
        let operator = if is_negated { Operator::DoesNotExist } else { self.operator()? };
        Ok(Requirement { key: key.into(), operator })
    }

    fn operator(&mut self) -> Result<Operator, SelectorError> {
        if self.rest().is_empty() || self.rest().starts_with(',') {
            return Ok(Operator::Exists);
        }
        if self.take("==") || self.take("=") {
            return Ok(Operator::In(vec![self.value()?]));
        }
        if self.take("!=") {
            return Ok(Operator::NotIn(vec![self.value()?]));
        }
        if self.take(">") {
            return Ok(Operator::GreaterThan(self.bound()?));
        }
        if self.take("<") {
            return Ok(Operator::LessThan(self.bound()?));
        }
        let start = self.offset;
        match self.word() {
            "in" => Ok(Operator::In(self.values()?)),
            "notin" => Ok(Operator::NotIn(self.values()?)),
            other => {
                self.offset = start;
                let found = if other.is_empty() { &self.rest()[..1] } else { other };
                Err(self.error(format!("found {found:?}, expected one of = == != in notin < >")))
            }
        }
    }

    fn value(&mut self) -> Result<Box<str>, SelectorError> {
        self.skip_blanks();
        let start = self.offset;
        let value = self.word();
        if is_label_value(value) {
            return Ok(value.into());
        }
        self.offset = start;
        Err(self.error(format!(
            "{value:?} is not a label value (at most 63 letters, digits, `-`, `_`, `.`, beginning and ending with a letter or digit)"
        )))
    }

    fn bound(&mut self) -> Result<i64, SelectorError> {
        self.skip_blanks();
        let start = self.offset;
        let word = self.word();
        word.parse().map_err(|_| {
            self.offset = start;
            self.error(format!("{word:?} is not an integer"))
        })
    }

    fn values(&mut self) -> Result<Vec<Box<str>>, SelectorError> {
        self.skip_blanks();
        if !self.take("(") {
            return Err(self.error("expected `(` and a list of values".into()));
        }
        let mut values = Vec::new();
        loop {
            values.push(self.value()?);
            self.skip_blanks();
            if self.take(")") {
                return Ok(values);
            }
            if !self.take(",") {
                return Err(self.error("expected `,` or `)` in the list of values".into()));
            }
        }
    }
}

/// A label key: an optional DNS subdomain and `/`, then a name like a label value, but not empty.
fn is_qualified_name(key: &str) -> bool {
    let (prefix, name) = key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    let is_prefix = |prefix: &str| {
        !prefix.is_empty()
            && prefix.len() <= 253
            && prefix
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'.'))
    };
    prefix.is_none_or(is_prefix) && !name.is_empty() && is_label_value(name)
}

fn is_label_value(value: &str) -> bool {
    let is_edge = |byte: Option<&u8>| byte.is_none_or(u8::is_ascii_alphanumeric);
    value.len() <= 63
        && is_edge(value.as_bytes().first())
        && is_edge(value.as_bytes().last())
        && value.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(selector: &str, labels: &[(&str, &str)]) -> bool {
        let selector = Selector::parse(selector).unwrap();
        selector.matches(&Namespace::from("default"), |key| {
            labels.iter().find(|(name, _)| *name == key).map(|(_, value)| *value)
        })
    }

    #[test]
    fn every_operator_decides_as_in_kubernetes() {
        let labels = [("app", "web"), ("k8s.io/tier", "front"), ("size", "5"), ("empty", "")];
        for selector in [
            "",
            " ",
            "app",
            "app=web",
            "app == web , k8s.io/tier!=back",
            "app in (db,web)",
            "app notin (db)",
            "missing notin (db)",
            "missing!=x",
            "!missing",
            "! missing",
            "size>4,size<6",
            "empty=",
            "empty in (a,)",
        ] {
            assert!(matches(selector, &labels), "{selector}");
        }
        for selector in
            ["app!=web", "!app", "missing", "app in (db)", "app notin (db,web)", "size>5", "app>1"]
        {
            assert!(!matches(selector, &labels), "{selector}");
        }
    }

    #[test]
    fn what_is_written_reads_the_same() {
        for text in ["", "a", "!a", "a=b,c!=d", "a in (b,c),d notin (e),f>1,g<-2,h="] {
            let selector = Selector::parse(text).unwrap();
            assert_eq!(Selector::parse(&selector.to_string()), Ok(selector), "{text}");
        }
    }

    #[test]
    fn keys_may_be_named_like_operators() {
        assert!(matches("in in (x),notin", &[("in", "x"), ("notin", "")]));
    }

    #[test]
    fn a_namespace_is_matched_whole() {
        let selector = Selector::default().in_namespace(Some("kube-system".into()));
        assert!(selector.matches(&"kube-system".into(), |_| None));
        assert!(!selector.matches(&"kube".into(), |_| None));
        assert!(!selector.is_everything() && Selector::default().is_everything());
    }

    #[test]
    fn mistakes_are_named_with_their_place() {
        for (text, offset, reason) in [
            ("app=web,", 8, "expected a requirement"),
            ("app web", 4, "expected one of"),
            ("a=b c=d", 4, "expected `,`"),
            ("=x", 0, "not a label key"),
            ("app in web", 7, "expected `(`"),
            ("app in (a b)", 10, "expected `,` or `)`"),
            ("app in (a", 9, "expected `,` or `)`"),
            ("app=-x", 4, "not a label value"),
            ("size>big", 5, "not an integer"),
            ("Ä=x", 0, "not a label key"),
            ("a/b/c=x", 0, "not a label key"),
            ("app(x)", 3, "expected one of"),
            ("!a=b", 2, "expected `,`"),
        ] {
            let error = Selector::parse(text).unwrap_err();
            assert!(error.reason.contains(reason), "{text}: {error}");
            assert_eq!(error.offset, offset, "{text}: {error}");
        }
        assert!(Selector::parse(&"a,".repeat(5000)).is_err());
        assert!(Selector::parse(&"a,".repeat(100)).unwrap_err().reason.contains("requirements"));
    }
}
