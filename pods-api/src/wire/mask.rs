//! Field masks: which fields of a Pod a caller wants, or may see.
//!
//! A mask is a tree over field numbers. It is parsed once per call ([`super::mask_parse`]), reduced to one form
//! per meaning, so that callers who ask for the same share what is made for them, and compiled to tables that
//! [`super::project`] walks pod bytes with. Set operations serve policy: a ceiling is an intersection.

use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::mask_parse::{self, MaskError, Step};
use super::project::Tables;
use super::schema::{self, Field, Message};
use super::varint::DecodeError;

/// A set of fields of a Pod. Equal masks select the same fields, however they were written.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Mask {
    /// The whole pod, fields that this build does not know included.
    All,
    /// Some fields, or none.
    Some(Arc<Selection>),
}

/// The fields that a mask selects, in the form for comparing and in the form for projecting.
#[derive(Debug)]
pub struct Selection {
    /// The canonical text; names the selection completely.
    text: Box<str>,
    tree: Picks,
    tables: Tables,
}

/// What is selected below one field, or one pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Pick {
    /// Everything.
    Whole,
    /// Some fields of a message, or of each message of a list.
    Fields(Picks),
    /// Some entries of a map.
    Keys(BTreeSet<Box<str>>),
    /// All entries of a map but these, at least one. Not written by clients: what a policy leaves.
    AllBut(BTreeSet<Box<str>>),
}

/// Selected fields of one message by number.
pub(crate) type Picks = BTreeMap<u32, Pick>;

impl Mask {
    /// Reads comma-separated JSON paths, such as `metadata.name, status.podIPs`. Nothing, or `*` alone, is the
    /// whole pod (rules F.1.2, F.1.6).
    ///
    /// # Errors
    /// Naming the first path that no Pod has; more than 64 paths or 8 KiB.
    pub fn parse(paths: &str) -> Result<Self, MaskError> {
        mask_parse::parse_text(paths).map(Self::from_paths)
    }

    /// Reads an encoded `google.protobuf.FieldMask`, whose paths are written as for [`Mask::parse`].
    ///
    /// # Errors
    /// As [`Mask::parse`], and where the bytes are not a FieldMask.
    pub fn from_field_mask(encoded: &[u8]) -> Result<Self, MaskError> {
        mask_parse::parse_field_mask(encoded).map(Self::from_paths)
    }

    /// The fields that tell one pod from another: every watch event carries them under any mask (rule F.2.6).
    #[must_use]
    pub fn identity() -> Self {
        Self::parse("metadata.name,metadata.namespace,metadata.uid").expect("these are fields of a Pod")
    }

    /// The fields by which the documented contract tells that a pod has left the node.
    #[must_use]
    pub fn deletion() -> Self {
        Self::parse("metadata.deletionTimestamp,metadata.annotations.`pods-api/deleted`")
            .expect("these are fields of a Pod")
    }

    /// Whether this mask selects the whole pod.
    #[must_use]
    pub fn is_all(&self) -> bool {
        matches!(self, Self::All)
    }

    /// Whether everything at the path is selected; false for a path that no Pod has.
    #[must_use]
    pub fn contains(&self, path: &str) -> bool {
        match (self, mask_parse::parse_path(path)) {
            (_, Err(_)) => false,
            (Self::All, Ok(_)) => true,
            (Self::Some(selection), Ok(steps)) => contains(&selection.tree, &steps),
        }
    }

    /// The fields that one of the two selects.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let (Self::Some(a), Self::Some(b)) = (self, other) else { return Self::All };
        let mut tree = a.tree.clone();
        b.tree.iter().for_each(|(number, pick)| unite(&mut tree, *number, pick));
        Self::from_tree(tree)
    }

    /// The fields that both select: what a caller gets who asks for one and may see the other.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::All, mask) | (mask, Self::All) => mask.clone(),
            (Self::Some(a), Self::Some(b)) => Self::from_tree(intersect(&a.tree, &b.tree)),
        }
    }

    /// The fields that this mask selects and the other does not. Fields that this build does not know are left out
    /// of every message from which something is taken: nobody can tell that they are not what was to be hidden.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        let Self::Some(other) = other else { return Self::from_tree(Picks::new()) };
        let tree = match self {
            Self::All => every_field(schema::pod()),
            Self::Some(selection) => selection.tree.clone(),
        };
        Self::from_tree(subtract(tree, &other.tree, schema::pod()))
    }

    /// Appends the selected fields of an encoded Pod to `out`, which grows by no more than the pod's length.
    ///
    /// Elements of a list keep their count and order (rule F.1.9); any other message of which nothing is selected
    /// is left out. Fields that this build does not know stay in messages that are selected whole.
    ///
    /// # Errors
    /// Where the bytes are no protobuf message at a level that the mask looks into; `out` is then as before.
    pub fn project(&self, pod: &[u8], out: &mut Vec<u8>) -> Result<(), DecodeError> {
        match self {
            Self::All => {
                out.extend_from_slice(pod);
                Ok(())
            }
            Self::Some(selection) => selection.tables.project(pod, out),
        }
    }

    fn from_paths(paths: Option<Vec<Vec<Step>>>) -> Self {
        let Some(paths) = paths else { return Self::All };
        let mut tree = Picks::new();
        paths.iter().for_each(|steps| insert(&mut tree, steps));
        Self::from_tree(tree)
    }

    fn from_tree(tree: Picks) -> Self {
        let mut text = String::new();
        write_paths(&mut text, "", &tree, schema::pod());
        let tables = Tables::compile(&tree);
        Self::Some(Arc::new(Selection { text: text.into(), tree, tables }))
    }
}

impl fmt::Display for Mask {
    /// Writes the canonical text: paths by field number, none contained in another; `*` for the whole pod.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::All => "*",
            Self::Some(selection) => &selection.text,
        })
    }
}

impl PartialEq for Selection {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Selection {}

impl Hash for Selection {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

fn insert(tree: &mut Picks, steps: &[Step]) {
    let Some((Step::Field(number), rest)) = steps.split_first() else { return };
    let pick = match rest {
        [] => Pick::Whole,
        [Step::Key(key), ..] => Pick::Keys([key.clone()].into()),
        [Step::Field(_), ..] => {
            let mut below = Picks::new();
            insert(&mut below, rest);
            Pick::Fields(below)
        }
    };
    unite(tree, *number, &pick);
}

/// Adds one pick to a tree; a whole field covers whatever is selected below it (rule F.1.3).
fn unite(tree: &mut Picks, number: u32, pick: &Pick) {
    match tree.entry(number) {
        Entry::Vacant(vacant) => {
            vacant.insert(pick.clone());
        }
        Entry::Occupied(mut known) => match (known.get_mut(), pick) {
            (Pick::Fields(known), Pick::Fields(new)) => {
                new.iter().for_each(|(number, pick)| unite(known, *number, pick));
            }
            (Pick::Keys(known), Pick::Keys(new)) => known.extend(new.iter().cloned()),
            (known, Pick::Whole) => *known = Pick::Whole,
            (Pick::Whole, _) => {}
            (Pick::AllBut(hidden), Pick::Keys(shown)) => *known.get_mut() = all_but(&*hidden - shown),
            (Pick::Keys(shown), Pick::AllBut(hidden)) => *known.get_mut() = all_but(hidden - shown),
            (Pick::AllBut(one), Pick::AllBut(other)) => *known.get_mut() = all_but(&*one & other),
            (Pick::Fields(_), Pick::Keys(_) | Pick::AllBut(_))
            | (Pick::Keys(_) | Pick::AllBut(_), Pick::Fields(_)) => {
                unreachable!("{MAP_OR_MESSAGES}")
            }
        },
    }
}

fn intersect(a: &Picks, b: &Picks) -> Picks {
    let common = a.iter().filter_map(|(number, a)| Some((*number, a, b.get(number)?)));
    common
        .filter_map(|(number, a, b)| {
            let pick = match (a, b) {
                (Pick::Whole, pick) | (pick, Pick::Whole) => pick.clone(),
                (Pick::Fields(a), Pick::Fields(b)) => Pick::Fields(intersect(a, b)),
                (Pick::Keys(a), Pick::Keys(b)) => Pick::Keys(a & b),
                (Pick::Keys(shown), Pick::AllBut(hidden)) | (Pick::AllBut(hidden), Pick::Keys(shown)) => {
                    Pick::Keys(shown - hidden)
                }
                (Pick::AllBut(a), Pick::AllBut(b)) => Pick::AllBut(a | b),
                _ => unreachable!("{MAP_OR_MESSAGES}"),
            };
            (!pick.is_empty()).then_some((number, pick))
        })
        .collect()
}

const MAP_OR_MESSAGES: &str = "a field is either a map or holds messages";

fn all_but(hidden: BTreeSet<Box<str>>) -> Pick {
    if hidden.is_empty() { Pick::Whole } else { Pick::AllBut(hidden) }
}

fn every_field(message: &Message) -> Picks {
    message.fields.iter().map(|field| (field.number, Pick::Whole)).collect()
}

fn subtract(tree: Picks, other: &Picks, message: &Message) -> Picks {
    tree.into_iter()
        .filter_map(|(number, pick)| {
            let Some(taken) = other.get(&number) else { return Some((number, pick)) };
            let below = message.by_number(number).and_then(Field::message);
            let pick = match (pick, taken, below) {
                (_, Pick::Whole, _) => return None,
                (Pick::Fields(below), Pick::Fields(taken), Some(message)) => {
                    Pick::Fields(subtract(below, taken, message))
                }
                (Pick::Whole, Pick::Fields(taken), Some(message)) => {
                    Pick::Fields(subtract(every_field(message), taken, message))
                }
                (Pick::Keys(keys), Pick::Keys(taken), _) => Pick::Keys(&keys - taken),
                (Pick::Keys(keys), Pick::AllBut(left), _) => Pick::Keys(&keys & left),
                (Pick::AllBut(hidden), Pick::Keys(taken), _) => Pick::AllBut(&hidden | taken),
                (Pick::AllBut(hidden), Pick::AllBut(left), _) => Pick::Keys(left - &hidden),
                (Pick::Whole, Pick::Keys(taken), _) => Pick::AllBut(taken.clone()),
                (Pick::Whole, Pick::AllBut(left), _) => Pick::Keys(left.clone()),
                _ => unreachable!("{MAP_OR_MESSAGES}"),
            };
            (!pick.is_empty()).then_some((number, pick))
        })
        .collect()
}

impl Pick {
    fn is_empty(&self) -> bool {
        match self {
            Self::Whole => false,
            Self::Fields(fields) => fields.is_empty(),
            Self::Keys(keys) => keys.is_empty(),
            Self::AllBut(_) => false,
        }
    }
}

fn contains(tree: &Picks, steps: &[Step]) -> bool {
    let Some((Step::Field(number), rest)) = steps.split_first() else { return false };
    match (tree.get(number), rest) {
        (None, _) => false,
        (Some(Pick::Whole), _) => true,
        (Some(Pick::Fields(below)), rest) => contains(below, rest),
        (Some(Pick::Keys(keys)), [Step::Key(key), ..]) => keys.contains(key),
        (Some(Pick::AllBut(hidden)), [Step::Key(key), ..]) => !hidden.contains(key),
        (Some(Pick::Keys(_) | Pick::AllBut(_)), _) => false,
    }
}

fn write_paths(out: &mut String, prefix: &str, tree: &Picks, message: &Message) {
    for (number, pick) in tree {
        let field = message.by_number(*number).expect("a mask is made of fields of the schema");
        let path =
            if prefix.is_empty() { field.name.to_string() } else { format!("{prefix}.{}", field.name) };
        let mut write_path = |path: &str| {
            if !out.is_empty() {
                out.push(',');
            }
            out.push_str(path);
        };
        match (pick, field.message()) {
            (Pick::Whole, _) => write_path(&path),
            (Pick::Keys(keys), _) => keys.iter().for_each(|key| write_path(&format!("{path}.`{key}`"))),
            (Pick::AllBut(hidden), _) => {
                let hidden: String = hidden.iter().map(|key| format!("!`{key}`")).collect();
                write_path(&format!("{path}.{hidden}"));
            }
            // JSON does not name inlined messages, so neither do canonical paths through them (rule F.2.2).
            (Pick::Fields(below), Some(inlined)) if field.is_inlined => {
                write_paths(out, prefix, below, inlined);
            }
            (Pick::Fields(below), Some(message)) => write_paths(out, &path, below, message),
            (Pick::Fields(_), None) => unreachable!("only messages have fields"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mask(paths: &str) -> Mask {
        Mask::parse(paths).unwrap()
    }

    // rules F.1.3, F.2.2
    #[test]
    fn masks_that_select_the_same_are_equal() {
        for (a, b) in [
            ("status.phase,metadata.name", "metadata.name,status.phase"),
            ("status, status.phase", "status"),
            ("status.phase,status", "status"),
            ("spec.containers.*.name", "spec.containers.name"),
            ("spec.volumes.volumeSource.hostPath", "spec.volumes.hostPath"),
            ("spec.containers.livenessProbe.handler.httpGet", "spec.containers.livenessProbe.httpGet"),
            ("metadata.labels.`b`,metadata.labels.`a`", "metadata.labels.`a`,metadata.labels.`b`"),
            ("metadata.labels.`a`,metadata.labels", "metadata.labels.*"),
            ("spec.*", "spec"),
            (" status.phase ,\tstatus.phase", "status.phase"),
        ] {
            assert_eq!(mask(a), mask(b), "{a}");
            assert_eq!(mask(a).to_string(), mask(b).to_string());
        }
        assert_ne!(mask("status.podIP"), mask("status.podIPs"));
        assert_ne!(mask("metadata"), Mask::All);
    }

    #[test]
    fn the_text_is_canonical_and_parses_to_the_same_mask() {
        let written = "status.podIPs,spec.volumes.volumeSource,spec.containers.readinessProbe.handler.exec.command,\
            metadata.labels.`app.kubernetes.io/name`,metadata.labels.`a,b`,spec.ephemeralContainers.image";
        let canonical = "metadata.labels.`a,b`,metadata.labels.`app.kubernetes.io/name`,spec.volumes.volumeSource,\
            spec.containers.readinessProbe.exec.command,spec.ephemeralContainers.image,status.podIPs";
        assert_eq!(mask(written).to_string(), canonical);
        assert_eq!(mask(canonical), mask(written));
        assert_eq!(Mask::All.to_string(), "*");
    }

    #[test]
    fn contains_looks_through_parents() {
        let mask = mask("status,spec.containers.name,metadata.labels.`a`");
        for path in
            ["status", "status.phase", "status.podIPs.ip", "spec.containers.name", "metadata.labels.`a`"]
        {
            assert!(mask.contains(path), "{path}");
        }
        for path in [
            "spec",
            "spec.containers",
            "spec.containers.image",
            "metadata.labels",
            "metadata.labels.`b`",
            "x",
        ] {
            assert!(!mask.contains(path), "{path}");
        }
        assert!(Mask::All.contains("spec") && !Mask::All.contains("nope"));
    }

    #[test]
    fn union_and_intersection_are_those_of_sets() {
        let (a, b) = (
            mask("status,metadata.labels.`a`,spec.containers.name"),
            mask("status.phase,metadata.labels,spec.nodeName"),
        );
        assert_eq!(a.union(&b), mask("status,metadata.labels,spec.containers.name,spec.nodeName"));
        assert_eq!(a.intersection(&b), mask("status.phase,metadata.labels.`a`"));
        assert_eq!(a.union(&Mask::All), Mask::All);
        assert_eq!(a.intersection(&Mask::All), a);
        assert_eq!(Mask::All.intersection(&b), b);
        let nothing = mask("spec").intersection(&mask("status"));
        assert_eq!(nothing.to_string(), "");
        assert_ne!(nothing, Mask::All);
        assert_eq!(nothing.union(&a), a);
    }

    #[test]
    fn difference_takes_fields_away() {
        let env = mask("spec.containers.env,spec.initContainers.env,spec.ephemeralContainers.env");
        let rest = Mask::All.difference(&env);
        for path in
            ["metadata", "status", "spec.containers.name", "spec.nodeName", "spec.ephemeralContainers.image"]
        {
            assert!(rest.contains(path), "{path}");
        }
        for path in ["spec.containers.env", "spec.containers", "spec.ephemeralContainers.env", "spec"] {
            assert!(!rest.contains(path), "{path}");
        }
        assert_eq!(rest.union(&env).intersection(&env), env);
        assert_eq!(mask("status").difference(&mask("metadata")), mask("status"));
        assert_eq!(mask("status").difference(&mask("status")).to_string(), "");
        assert_eq!(
            mask("metadata.labels.`a`,metadata.labels.`b`").difference(&mask("metadata.labels.`a`")),
            mask("metadata.labels.`b`")
        );
        assert_eq!(Mask::All.difference(&Mask::All).to_string(), "");
    }

    #[test]
    fn entries_of_a_map_are_taken_away_by_key() {
        let all = mask("metadata.labels,spec.nodeName");
        let (a, ab, b) = (
            mask("metadata.labels.`a`"),
            mask("metadata.labels.`a`,metadata.labels.`b`"),
            mask("metadata.labels.`b`"),
        );
        let rest = all.difference(&a);
        assert_eq!(rest.to_string(), "metadata.labels.!`a`,spec.nodeName");
        assert!(rest.contains("metadata.labels.`b`") && rest.contains("spec.nodeName"));
        assert!(!rest.contains("metadata.labels.`a`") && !rest.contains("metadata.labels"));
        assert_eq!(rest.union(&a), all);
        assert_eq!(rest.union(&b), rest);
        assert_eq!(b.union(&rest), rest);
        assert_eq!(rest.union(&all), all);
        assert_eq!(rest.intersection(&ab), b);
        assert_eq!(ab.intersection(&rest), b);
        assert_eq!(rest.intersection(&a).to_string(), "");
        assert_eq!(all.difference(&rest), a);
        assert_eq!(ab.difference(&rest), a);
        assert_eq!(rest.difference(&b), all.difference(&ab));
        assert_eq!(rest.difference(&all.difference(&ab)), b);
        assert_eq!(rest.intersection(&all.difference(&b)), all.difference(&ab));
        assert_eq!(rest.union(&all.difference(&b)), all);
        assert_eq!(rest.union(&all.difference(&ab)), rest);
        assert_ne!(rest, all);
    }

    #[test]
    fn built_in_masks_are_fields_of_a_pod() {
        assert!(Mask::identity().contains("metadata.uid"));
        assert!(Mask::deletion().contains("metadata.annotations.`pods-api/deleted`"));
    }
}
