//! The text of field masks: paths of JSON names, resolved against the schema.
//!
//! A path is names joined by points. `*` stands for the elements of a list or the entries of a map and may be left
//! out; a map's key stands in back quotes, because keys hold points and slashes (rule F.1.5). Names are
//! case-sensitive (rule F.2.3). Every path is checked before any pod is looked at (rule F.1.7).

use super::schema::{self, Cardinality, Field, Message};
use super::varint::{FieldValue, Fields};

/// The most paths one mask may have (rule F.2.8).
pub const MAX_MASK_PATHS: usize = 64;

/// The longest mask text.
pub const MAX_MASK_BYTES: usize = 8 << 10;

/// How much of a wrong path an error message shows.
const SHOWN_CHARS: usize = 128;

/// Why a text is not a field mask.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MaskError {
    /// A path that no Pod has.
    #[error("path \"{path}\": {reason}")]
    Path {
        /// The first bad path, cut if it is long.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
    /// More paths than allowed.
    #[error("more than {MAX_MASK_PATHS} paths")]
    TooManyPaths,
    /// A longer text than allowed.
    #[error("longer than {MAX_MASK_BYTES} bytes")]
    TooLong,
    /// `*` beside other paths: it is either redundant or not what was meant (rule F.1.6).
    #[error("\"*\" must be the only path")]
    WildcardNotAlone,
    /// Bytes that are not an encoded `google.protobuf.FieldMask`.
    #[error("not an encoded google.protobuf.FieldMask")]
    NotAFieldMask,
}

/// One step from a message towards a selected field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// Into the field of that number.
    Field(u32),
    /// To the entry of that key; always the last step, no map of a Pod holds messages that are not leaves.
    Key(Box<str>),
}

/// A mask's paths, resolved; `None` for the whole pod.
type Paths = Option<Vec<Vec<Step>>>;

/// Reads comma-separated paths.
pub(crate) fn parse_text(text: &str) -> Result<Paths, MaskError> {
    if text.len() > MAX_MASK_BYTES {
        return Err(MaskError::TooLong);
    }
    if text.trim_matches([' ', '\t']).is_empty() {
        return Ok(None);
    }
    resolve_all(split_unquoted(text, ','))
}

/// Reads an encoded `google.protobuf.FieldMask`, which is `repeated string paths = 1`.
pub(crate) fn parse_field_mask(encoded: &[u8]) -> Result<Paths, MaskError> {
    if encoded.len() > MAX_MASK_BYTES {
        return Err(MaskError::TooLong);
    }
    let mut paths = Vec::new();
    for field in Fields::new(encoded) {
        match field.map(|field| (field.number, field.value)) {
            Ok((1, FieldValue::Length(path))) => {
                paths.push(std::str::from_utf8(path).map_err(|_| MaskError::NotAFieldMask)?);
            }
            Ok((1, _)) | Err(_) => return Err(MaskError::NotAFieldMask),
            Ok(_) => {}
        }
    }
    if paths.is_empty() { Ok(None) } else { resolve_all(paths.into_iter()) }
}

fn resolve_all<'a>(paths: impl Iterator<Item = &'a str>) -> Result<Paths, MaskError> {
    let paths: Vec<&str> =
        paths.take(MAX_MASK_PATHS + 1).map(|path| path.trim_matches([' ', '\t'])).collect();
    if paths.len() > MAX_MASK_PATHS {
        return Err(MaskError::TooManyPaths);
    }
    match paths[..] {
        ["*"] => Ok(None),
        _ if paths.contains(&"*") => Err(MaskError::WildcardNotAlone),
        _ => paths.into_iter().map(parse_path).collect::<Result<_, _>>().map(Some),
    }
}

/// What the next segment of a path may name.
#[derive(Clone, Copy)]
enum Place {
    /// A field of this message; after a list also `*`, once.
    Message { message: &'static Message, of_list: bool },
    /// `*`, once: the elements of a list of scalars.
    Scalars,
    /// A key, or `*`.
    Map,
    /// Nothing.
    End,
}

/// Resolves one path to the steps that lead to it.
pub(crate) fn parse_path(path: &str) -> Result<Vec<Step>, MaskError> {
    let fail = |reason: String| MaskError::Path { path: clip(path), reason };
    let mut steps = Vec::new();
    let mut place = Place::Message { message: schema::pod(), of_list: false };
    let mut segments = split_unquoted(path, '.').peekable();
    while let Some(segment) = segments.next() {
        let is_last = segments.peek().is_none();
        if segment.is_empty() {
            return Err(fail("a name is missing".to_owned()));
        }
        place = match (place, segment) {
            (Place::Message { message, of_list: true }, "*") => Place::Message { message, of_list: false },
            // A message's own `*` selects it whole.
            (Place::Message { .. }, "*") if is_last && !steps.is_empty() => Place::End,
            (Place::Message { .. }, "*") => {
                return Err(fail("`*` stands for the elements of a list or the entries of a map".to_owned()));
            }
            (Place::Message { message, .. }, name) => {
                let (field, path_steps) = find_field(message, name).map_err(fail)?;
                steps.extend(path_steps);
                place_within(field)
            }
            (Place::Scalars, "*") | (Place::Map, "*") => Place::End,
            (Place::Map, key) => {
                steps.push(Step::Key(unquote(key).map_err(fail)?.into()));
                Place::End
            }
            (Place::Scalars | Place::End, name) => {
                return Err(fail(format!("nothing stands below a scalar, so not {:?}", clip(name))));
            }
        };
    }
    Ok(steps)
}

fn find_field(message: &'static Message, name: &str) -> Result<(&'static Field, Vec<Step>), String> {
    if let Some(at) = message.by_json_name(name) {
        let outer = &message.fields[usize::from(at.outer)];
        let mut steps = vec![Step::Field(outer.number)];
        let inner = at.inner.and_then(|inner| outer.message()?.fields.get(usize::from(inner)));
        steps.extend(inner.map(|field| Step::Field(field.number)));
        return Ok((inner.unwrap_or(outer), steps));
    }
    // The detour over an inlined message is accepted too (rule F.2.2).
    if let Some(field) = message.by_proto_name(name) {
        return Ok((field, vec![Step::Field(field.number)]));
    }
    let hint = match message.json_name_like(name) {
        Some(known) => format!("; did you mean {known:?}?"),
        None => String::new(),
    };
    Err(format!("{} has no field {:?}{hint}", message.name, clip(name)))
}

fn place_within(field: &'static Field) -> Place {
    let message = field.message().filter(|message| message.leaf.is_none());
    match (field.cardinality, message) {
        (Cardinality::Map, _) => Place::Map,
        (cardinality, Some(message)) => Place::Message { message, of_list: cardinality == Cardinality::Many },
        (Cardinality::Many, None) => Place::Scalars,
        (Cardinality::One, None) => Place::End,
    }
}

fn unquote(segment: &str) -> Result<&str, String> {
    let key = segment.strip_prefix('`').and_then(|rest| rest.strip_suffix('`'));
    match key {
        Some(key) if !key.is_empty() && !key.contains('`') => Ok(key),
        _ => Err(format!("a map's key stands in back quotes, as in `{}`", clip(segment.trim_matches('`')))),
    }
}

/// Splits at a separator outside of back quotes.
pub(crate) fn split_unquoted(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let mut is_quoted = false;
    text.split(move |char| {
        is_quoted ^= char == '`';
        char == separator && !is_quoted
    })
}

fn clip(text: &str) -> String {
    let mut clipped: String = text.chars().take(SHOWN_CHARS).collect();
    if clipped.len() < text.len() {
        clipped.push('…');
    }
    clipped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(path: &str) -> Vec<u32> {
        parse_path(path)
            .unwrap()
            .into_iter()
            .map(|step| match step {
                Step::Field(number) => number,
                Step::Key(key) => panic!("{key}"),
            })
            .collect()
    }

    fn error(path: &str) -> String {
        parse_text(path).unwrap_err().to_string()
    }

    #[test]
    fn paths_become_field_numbers() {
        assert_eq!(steps("metadata"), [1]);
        assert_eq!(steps("status.podIPs.ip"), [3, 12, 1]);
        // MASK-1
        assert_eq!(steps("spec.containers.name"), [2, 2, 1]);
        assert_eq!(steps("spec.containers.*.name"), [2, 2, 1]);
        assert_eq!(steps("spec.containers.*"), [2, 2]);
        assert_eq!(steps("spec.containers.args.*"), [2, 2, 4]);
        assert_eq!(steps("metadata.labels.*"), [1, 11]);
        // rule F.2.2
        assert_eq!(steps("spec.volumes.hostPath.path"), [2, 1, 2, 1, 1]);
        assert_eq!(steps("spec.volumes.volumeSource.hostPath.path"), [2, 1, 2, 1, 1]);
        assert_eq!(steps("spec.volumes.volumeSource"), [2, 1, 2]);
        assert_eq!(steps("spec.containers.envFrom.secretRef.name"), [2, 2, 19, 3, 1, 1]);
        // rule F.2.4
        assert_eq!(steps("status.containerStatuses.lastState"), [3, 8, 3]);
    }

    // MASK-3
    #[test]
    fn map_keys_stand_in_back_quotes() {
        let labels = vec![Step::Field(1), Step::Field(11), Step::Key("app.kubernetes.io/name".into())];
        assert_eq!(parse_path("metadata.labels.`app.kubernetes.io/name`"), Ok(labels));
        assert_eq!(parse_text("metadata.labels.`a,b`,spec").unwrap().unwrap().len(), 2);
        for path in [
            "metadata.labels.app",
            "metadata.labels.app.kubernetes.io/name",
            "metadata.labels[\"app\"]",
            "metadata.labels.`a",
            "metadata.labels.``",
            "metadata.labels.`a`b",
            "metadata.labels.`a`.b",
            "metadata.labels.`a``b`",
            "`metadata`",
            "metadata.`labels`",
        ] {
            assert!(parse_path(path).is_err(), "{path}");
        }
        assert_eq!(
            error("metadata.labels.app"),
            "path \"metadata.labels.app\": a map's key stands in back quotes, as in `app`"
        );
    }

    // MASK-2, MASK-4, MASK-5, rules F.1.7, F.2.3, F.2.5
    #[test]
    fn the_first_bad_path_is_named_with_the_reason() {
        for (paths, expected) in [
            ("spec.nope", "path \"spec.nope\": PodSpec has no field \"nope\""),
            (
                "status.podIPs,status.podIps,x",
                "path \"status.podIps\": PodStatus has no field \"podIps\"; did you mean \"podIPs\"?",
            ),
            (
                "status.pod_ips",
                "path \"status.pod_ips\": PodStatus has no field \"pod_ips\"; did you mean \"podIPs\"?",
            ),
            ("Metadata", "path \"Metadata\": Pod has no field \"Metadata\"; did you mean \"metadata\"?"),
            ("spec..x", "path \"spec..x\": a name is missing"),
            (".spec", "path \".spec\": a name is missing"),
            ("spec.", "path \"spec.\": a name is missing"),
            ("spec,,status", "path \"\": a name is missing"),
            ("spec,", "path \"\": a name is missing"),
            ("metadata.name.x", "path \"metadata.name.x\": nothing stands below a scalar, so not \"x\""),
            ("metadata.name.*", "path \"metadata.name.*\": nothing stands below a scalar, so not \"*\""),
            (
                "status.startTime.seconds",
                "path \"status.startTime.seconds\": nothing stands below a scalar, so not \"seconds\"",
            ),
            (
                "spec.overhead.`cpu`.string",
                "path \"spec.overhead.`cpu`.string\": nothing stands below a scalar, so not \"string\"",
            ),
            ("spec.containers.0.name", "path \"spec.containers.0.name\": Container has no field \"0\""),
            ("spec.foo-bar", "path \"spec.foo-bar\": PodSpec has no field \"foo-bar\""),
            ("spec. nodeName", "path \"spec. nodeName\": PodSpec has no field \" nodeName\""),
            ("*.name", "path \"*.name\": `*` stands for the elements of a list or the entries of a map"),
            (
                "spec.*.name",
                "path \"spec.*.name\": `*` stands for the elements of a list or the entries of a map",
            ),
            ("*,spec", "\"*\" must be the only path"),
            (
                "status.lastTerminationState",
                "path \"status.lastTerminationState\": PodStatus has no field \"lastTerminationState\"",
            ),
        ] {
            assert_eq!(error(paths), expected);
        }
        for path in ["spec.containers.*.*.name", "metadata.labels.*.x", "spec.containers.args.*.*"] {
            assert!(parse_path(path).is_err(), "{path}");
        }
    }

    // rules F.1.2, F.1.6
    #[test]
    fn nothing_and_a_wildcard_are_the_whole_pod() {
        for text in ["", "  ", "\t", "*", " * "] {
            assert_eq!(parse_text(text), Ok(None), "{text:?}");
        }
        assert_eq!(parse_field_mask(b""), Ok(None));
        assert_eq!(parse_field_mask(b"\x0a\x01*"), Ok(None));
    }

    // MASK-4, rule F.2.8
    #[test]
    fn size_is_bounded_and_errors_stay_short() {
        assert!(parse_text(&vec!["spec"; 64].join(",")).is_ok());
        assert_eq!(parse_text(&vec!["spec"; 65].join(",")), Err(MaskError::TooManyPaths));
        assert_eq!(parse_text(&"spec,".repeat(10_000)), Err(MaskError::TooLong));
        assert_eq!(parse_text(&",".repeat(8000)), Err(MaskError::TooManyPaths));
        assert!(error(&"x".repeat(8000)).len() < 500);
        assert_eq!(parse_field_mask(&b"\x0a\x04spec".repeat(65)), Err(MaskError::TooManyPaths));
        assert_eq!(parse_field_mask(&b"\x0a\x00".repeat(5000)), Err(MaskError::TooLong));
    }

    #[test]
    fn an_encoded_field_mask_is_read() {
        assert_eq!(
            parse_field_mask(b"\x0a\x08metadata\x0a\x0cstatus.phase"),
            parse_text("metadata,status.phase")
        );
        // A comma separates nothing here.
        assert!(parse_field_mask(b"\x0a\x0dmetadata,spec").is_err());
        for bytes in [&b"\x08\x01"[..], b"\x0a\x05spec", b"\x0a\x01\xff"] {
            assert_eq!(parse_field_mask(bytes), Err(MaskError::NotAFieldMask));
        }
    }
}
