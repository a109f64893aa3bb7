use super::*;
use proptest::prelude::*;

/// Writes a description as a compiler would.
struct Writer {
    types: Vec<u8>,
    strings: Vec<u8>,
    count: u32,
}

impl Writer {
    fn new() -> Self {
        Self { types: Vec::new(), strings: vec![0], count: 0 }
    }

    fn name(&mut self, name: &str) -> u32 {
        if name.is_empty() {
            return 0;
        }
        let at = self.strings.len() as u32;
        self.strings.extend(name.as_bytes());
        self.strings.push(0);
        at
    }

    /// Adds a type; `rest` is what follows it, as words.
    fn add(&mut self, name: &str, kind: u8, count: u32, target: u32, rest: &[u32]) -> u32 {
        let name = self.name(name);
        for word in [name, u32::from(kind) << 24 | count, target].iter().chain(rest) {
            self.types.extend(word.to_ne_bytes());
        }
        self.count += 1;
        self.count
    }

    /// Adds a structure of members (name, type, bit offset).
    fn structure(&mut self, name: &str, members: &[(&str, u32, u32)]) -> u32 {
        let mut rest = Vec::new();
        for (member, kind, offset) in members {
            rest.extend([self.name(member), *kind, *offset]);
        }
        self.add(name, STRUCT, members.len() as u32, 64, &rest)
    }

    fn tracepoint(&mut self, name: &str, arguments: &[u32]) {
        let rest: Vec<u32> = [0].iter().chain(arguments).flat_map(|kind| [0, *kind]).collect();
        let function = self.add("", FUNCTION_PROTO, arguments.len() as u32 + 1, 0, &rest);
        let pointer = self.add("", POINTER, 0, function, &[]);
        self.add(&format!("btf_trace_{name}"), TYPEDEF, 0, pointer, &[]);
    }

    fn finish(self) -> Vec<u8> {
        let mut bytes = MAGIC.to_ne_bytes().to_vec();
        bytes.extend([1, 0]);
        let types = self.types.len() as u32;
        for word in [HEADER_BYTES as u32, 0, types, types, self.strings.len() as u32] {
            bytes.extend(word.to_ne_bytes());
        }
        bytes.extend(self.types);
        bytes.extend(self.strings);
        bytes
    }
}

/// `struct task_struct`, with its ID within an unnamed structure as where layouts are randomised, and a tracepoint.
fn description() -> Vec<u8> {
    let mut writer = Writer::new();
    let int = writer.add("int", INT, 0, 4, &[32]);
    let inner = writer.structure("", &[("pid", int, 0), ("tgid", int, 32)]);
    let task = writer.structure("task_struct", &[("state", int, 0), ("", inner, 64), ("bit", int, 129)]);
    let constant = writer.add("", CONST, 0, task, &[]);
    let pointer = writer.add("", POINTER, 0, constant, &[]);
    let character = writer.add("char", INT, 0, 1, &[8]);
    let text = writer.add("", POINTER, 0, character, &[]);
    writer.tracepoint("exec", &[pointer, text, int]);
    writer.finish()
}

#[test]
fn field_is_found_also_within_an_unnamed_structure() {
    let bytes = description();
    let btf = Btf::parse(&bytes).unwrap();
    assert_eq!(btf.offset("task_struct", "state"), Ok(0));
    assert_eq!(btf.offset("task_struct", "tgid"), Ok(12));
}

#[test]
fn field_that_is_absent_or_no_whole_byte_is_named() {
    let bytes = description();
    let btf = Btf::parse(&bytes).unwrap();
    for (structure, field) in [("task_struct", "signal"), ("task_struct", "bit"), ("cgroup", "kn")] {
        assert_eq!(btf.offset(structure, field), Err(BtfError::NoField { structure, field }));
    }
}

#[test]
fn arguments_are_told_apart() {
    let bytes = description();
    let btf = Btf::parse(&bytes).unwrap();
    let expected = vec![Argument::Structure("task_struct"), Argument::Pointer, Argument::Value];
    assert_eq!(btf.arguments("exec"), Ok(expected));
    assert_eq!(btf.arguments("exit"), Err(BtfError::NoTracepoint("exit")));
}

#[test]
fn structure_that_contains_itself_ends() {
    let mut writer = Writer::new();
    let members: Vec<_> = (0..60).map(|_| ("", 1, 0)).collect();
    writer.structure("loop", &members);
    let bytes = writer.finish();
    let btf = Btf::parse(&bytes).unwrap();
    assert!(btf.offset("loop", "field").is_err());
}

#[test]
fn chain_that_closes_upon_itself_ends() {
    let mut writer = Writer::new();
    writer.add("btf_trace_exec", TYPEDEF, 0, 1, &[]);
    let bytes = writer.finish();
    assert!(Btf::parse(&bytes).unwrap().arguments("exec").is_err());
}

#[test]
fn unknown_kind_is_named() {
    let mut writer = Writer::new();
    writer.add("", 25, 0, 0, &[]);
    assert_eq!(Btf::parse(&writer.finish()).unwrap_err(), BtfError::UnknownKind(25));
}

#[test]
fn every_cut_is_an_error() {
    let bytes = description();
    for end in 0..bytes.len() {
        assert!(Btf::parse(&bytes[..end]).is_err(), "{end}");
    }
}

proptest! {
    #[test]
    fn changed_bytes_never_panic(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8)) {
        let mut bytes = description();
        for (index, byte) in changes {
            let at = index.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(btf) = Btf::parse(&bytes) {
            let _ = btf.offset("task_struct", "tgid");
            let _ = btf.arguments("exec");
        }
    }
}
