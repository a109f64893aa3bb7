//! Cuts pod bytes down to the fields of a mask, without decoding them.
//!
//! The walk reads the tags of those messages of which a part is selected, and of no others: what is selected whole
//! is copied as one range together with its neighbours, what is not is skipped by its length. On a pod of usual
//! size that is little more than the copying itself. Runs wherever a frame is made.

use std::collections::BTreeSet;
use std::ops::Range;

use super::mask::{Pick, Picks};
use super::schema::{self, Cardinality, Message};
use super::varint::{DecodeError, Fields, begin_length, end_length, put_varint};

/// What to do with a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Skip,
    Copy,
    /// Look into the message, or each message of the list, with the table of that index. An element of a list is
    /// kept even if nothing is left of it (rule F.1.9).
    Enter {
        table: u16,
        keeps_empty: bool,
    },
    /// Copy the map entry if its key is in the set of that index.
    CopyKeys(u16),
    /// Copy the map entry unless its key is in that set.
    CopyAllBut(u16),
}

/// A mask compiled for walking: for each message of which a part is selected, what to do by field number.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    /// Indexed by field number, up to the highest that is selected. The first table is that of Pod.
    messages: Vec<Box<[Action]>>,
    key_sets: Vec<BTreeSet<Box<[u8]>>>,
}

impl Tables {
    pub(crate) fn compile(tree: &Picks) -> Self {
        let mut tables = Self::default();
        tables.add(tree, schema::pod());
        tables
    }

    /// Adds the table of one message and those below it; returns its index. A mask has at most 64 paths of a few
    /// steps, and the union of some masks not many more, so that indexes fit in 16 bits.
    fn add(&mut self, tree: &Picks, message: &'static Message) -> u16 {
        let index = self.messages.len();
        self.messages.push(Box::default());
        let highest = tree.last_key_value().map_or(0, |(number, _)| *number as usize);
        let mut actions = vec![Action::Skip; highest + 1];
        for (number, pick) in tree {
            let field = message.by_number(*number).expect("a mask is made of fields of the schema");
            actions[*number as usize] = match (pick, field.message()) {
                (Pick::Whole, _) => Action::Copy,
                (Pick::Fields(below), Some(message)) => Action::Enter {
                    table: self.add(below, message),
                    keeps_empty: field.cardinality == Cardinality::Many,
                },
                (Pick::Fields(_), None) => unreachable!("only messages have fields"),
                (Pick::Keys(keys), _) => Action::CopyKeys(self.add_keys(keys)),
                (Pick::AllBut(hidden), _) => Action::CopyAllBut(self.add_keys(hidden)),
            };
        }
        self.messages[index] = actions.into();
        index_16(index)
    }

    fn add_keys(&mut self, keys: &BTreeSet<Box<str>>) -> u16 {
        self.key_sets.push(keys.iter().map(|key| key.as_bytes().into()).collect());
        index_16(self.key_sets.len() - 1)
    }

    /// See [`super::Mask::project`].
    pub(crate) fn project(&self, pod: &[u8], out: &mut Vec<u8>) -> Result<(), DecodeError> {
        let before = out.len();
        self.walk(0, pod, out).inspect_err(|_| out.truncate(before))
    }

    fn walk(&self, table: u16, message: &[u8], out: &mut Vec<u8>) -> Result<(), DecodeError> {
        let actions = &self.messages[usize::from(table)];
        let mut fields = Fields::new(message);
        let mut copy = PendingCopy { message, range: 0..0 };
        loop {
            let start = fields.offset();
            let Some(field) = fields.next() else { break };
            let field = field?;
            match actions.get(field.number as usize).copied().unwrap_or(Action::Skip) {
                Action::Skip => {}
                Action::Copy => copy.extend(start..fields.offset(), out),
                Action::Enter { table, keeps_empty } => {
                    let Some(content) = field.bytes() else { continue };
                    copy.flush(out);
                    let head = out.len();
                    put_varint(out, (u64::from(field.number) << 3) | 2);
                    let begin = begin_length(out);
                    self.walk(table, content, out)?;
                    if out.len() > begin || keeps_empty {
                        end_length(out, begin);
                    } else {
                        out.truncate(head);
                    }
                }
                Action::CopyKeys(set) => {
                    let Some(entry) = field.bytes() else { continue };
                    if self.key_sets[usize::from(set)].contains(entry_key(entry)?) {
                        copy.extend(start..fields.offset(), out);
                    }
                }
                Action::CopyAllBut(set) => {
                    let Some(entry) = field.bytes() else { continue };
                    if !self.key_sets[usize::from(set)].contains(entry_key(entry)?) {
                        copy.extend(start..fields.offset(), out);
                    }
                }
            }
        }
        copy.flush(out);
        Ok(())
    }
}

/// A range of the message that is selected and not yet copied; grows while its neighbours are selected too.
struct PendingCopy<'a> {
    message: &'a [u8],
    range: Range<usize>,
}

impl PendingCopy<'_> {
    #[inline]
    fn extend(&mut self, range: Range<usize>, out: &mut Vec<u8>) {
        if range.start == self.range.end {
            self.range.end = range.end;
        } else {
            self.flush(out);
            self.range = range;
        }
    }

    /// Copies what is pending. A message that is entered is written next; nothing is joined over it, because its own
    /// bytes lie between the end of this range and whatever is copied later.
    #[inline]
    fn flush(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.message[self.range.clone()]);
        self.range.start = self.range.end;
    }
}

/// The key of a map entry; the last one, should there be two.
fn entry_key(entry: &[u8]) -> Result<&[u8], DecodeError> {
    let mut key = &[][..];
    for field in Fields::new(entry) {
        let field = field?;
        if let (1, Some(bytes)) = (field.number, field.bytes()) {
            key = bytes;
        }
    }
    Ok(key)
}

fn index_16(index: usize) -> u16 {
    u16::try_from(index).expect("a mask has far fewer than 65,536 messages")
}

#[cfg(test)]
mod tests {
    use crate::wire::testing::encode;
    use crate::wire::varint::{put_length_field, put_varint_field};
    use crate::wire::{Mask, pod_to_json};
    use serde_json::{Value, json};

    fn project(mask: &str, pod: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        Mask::parse(mask).unwrap().project(pod, &mut out).unwrap();
        out
    }

    fn projected(mask: &str, pod: &Value) -> Value {
        let mut json = pod_to_json(&project(mask, &encode(pod))).unwrap();
        let object = json.as_object_mut().unwrap();
        object.retain(|key, _| key != "apiVersion" && key != "kind");
        json
    }

    fn pod() -> Value {
        json!({
            "metadata": {"name": "web", "labels": {"app.kubernetes.io/name": "web", "b": "2"}},
            "spec": {"volumes": [{"name": "v", "hostPath": {"path": "/v"}}, {"name": "w", "emptyDir": {}}],
                "containers": [{"name": "a", "image": "i", "ports": [{"containerPort": 80}]}, {"name": "b"}],
                "securityContext": {"fsGroup": 1}},
            "status": {"phase": "Running", "podIPs": [{"ip": "10.0.0.7"}], "startTime": "2026-07-01T12:30:15Z"}
        })
    }

    #[test]
    fn selected_fields_are_all_that_is_left() {
        let cases = [
            ("status.phase", json!({"status": {"phase": "Running"}})),
            (
                "status.podIPs.ip,metadata.name",
                json!({"metadata": {"name": "web"}, "status": {"podIPs": [{"ip": "10.0.0.7"}]}}),
            ),
            ("status.startTime", json!({"status": {"startTime": "2026-07-01T12:30:15Z"}})),
            (
                "metadata.labels.`app.kubernetes.io/name`",
                json!({"metadata": {"labels": {"app.kubernetes.io/name": "web"}}}),
            ),
            ("spec.volumes.hostPath.path", json!({"spec": {"volumes": [{"hostPath": {"path": "/v"}}, {}]}})),
            (
                "spec.volumes.volumeSource",
                json!({"spec": {"volumes": [{"hostPath": {"path": "/v"}}, {"emptyDir": {}}]}}),
            ),
        ];
        for (mask, expected) in cases {
            assert_eq!(projected(mask, &pod()), expected, "{mask}");
        }
    }

    // rules F.1.8, F.1.9
    #[test]
    fn list_elements_keep_their_count_and_other_empty_messages_go() {
        let expected = json!({"spec": {"containers": [{"ports": [{"containerPort": 80}]}, {}]}});
        assert_eq!(projected("spec.containers.ports.containerPort", &pod()), expected);
        assert_eq!(projected("spec.containers.tty", &pod()), json!({"spec": {"containers": [{}, {}]}}));
        assert_eq!(
            projected("spec.securityContext.runAsUser,metadata.uid,metadata.labels.`c`", &pod()),
            json!({})
        );
        assert_eq!(project("metadata", b""), b"");
    }

    #[test]
    fn hidden_entries_of_a_map_are_left_out() {
        let mask = Mask::parse("metadata").unwrap().difference(&Mask::parse("metadata.labels.`b`").unwrap());
        let mut out = Vec::new();
        mask.project(&encode(&pod()), &mut out).unwrap();
        let expected = json!({"metadata": {"name": "web", "labels": {"app.kubernetes.io/name": "web"}}});
        assert_eq!(out, encode(&expected));
    }

    // PROTO-1
    #[test]
    fn unknown_fields_stay_where_their_message_is_selected_whole() {
        let mut port = b"\x18\x50".to_vec();
        put_length_field(&mut port, 100, b"in port");
        let mut container = b"\x0a\x01c".to_vec();
        put_length_field(&mut container, 6, &port);
        put_varint_field(&mut container, 101, 1);
        let mut spec = Vec::new();
        put_length_field(&mut spec, 2, &container);
        put_length_field(&mut spec, 102, b"in spec");
        let mut pod = Vec::new();
        put_length_field(&mut pod, 2, &spec);
        put_length_field(&mut pod, 103, b"in pod");
        let has = |mask: &str, text: &[u8]| project(mask, &pod).windows(text.len()).any(|part| part == text);
        assert!(has("*", b"in pod") && has("*", b"in spec") && has("*", b"in port"));
        assert!(!has("spec", b"in pod") && has("spec", b"in spec") && has("spec", b"in port"));
        assert!(!has("spec.containers", b"in spec") && has("spec.containers", b"in port"));
        assert!(has("spec.containers.ports", b"in port"));
        assert!(!has("spec.containers.ports.containerPort", b"in port"));
    }

    #[test]
    fn neighbours_of_a_skipped_or_entered_message_are_copied_apart() {
        let mask = "spec.volumes,spec.containers.name,spec.restartPolicy,spec.nodeName,spec.hostNetwork";
        let spec = json!({"spec": {"volumes": [{"name": "v"}], "containers": [{"name": "a", "image": "i"}],
            "restartPolicy": "Always", "dnsPolicy": "Default", "nodeName": "n", "hostNetwork": true}});
        let expected = json!({"spec": {"volumes": [{"name": "v"}], "containers": [{"name": "a"}],
            "restartPolicy": "Always", "nodeName": "n", "hostNetwork": true}});
        assert_eq!(project(mask, &encode(&spec)), encode(&expected));
    }

    #[test]
    fn a_failed_projection_leaves_the_output_as_it_was() {
        let mut out = b"before".to_vec();
        let mask = Mask::parse("metadata.name,spec.containers.name").unwrap();
        assert!(mask.project(b"\x0a\x03\x0a\x01a\x12\x04\x12\x02\x0a\x05", &mut out).is_err());
        assert_eq!(out, b"before");
        // What the mask does not look into is not checked.
        assert!(Mask::parse("spec").unwrap().project(b"\x12\x01\xff", &mut out).is_ok());
    }
}
