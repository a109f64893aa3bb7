//! Reads what is needed of a kernel's own type description (BTF, the kernel's Documentation/bpf/btf.rst): where a
//! field lies in a structure, and what a tracepoint passes.
//!
//! A reader of our own, 200 lines, because the known crates are under a copyleft licence or keep the types to
//! themselves; it builds one table of positions and nothing else of the five megabytes. Pure; malformed input ends in
//! an error, never in a panic or a long run.

use std::fmt;

const MAGIC: u16 = 0xEB9F;
const HEADER_BYTES: usize = 24;
/// Unnamed structures within structures, as deep as they are followed; the kernel has three.
const MAX_NESTING: u32 = 8;
/// Modifiers and type definitions in a row.
const MAX_CHAIN: u32 = 32;
/// Members looked at for one field, against descriptions that contain themselves.
const MAX_MEMBERS: u32 = 100_000;

const INT: u8 = 1;
const POINTER: u8 = 2;
const ARRAY: u8 = 3;
const STRUCT: u8 = 4;
const UNION: u8 = 5;
const TYPEDEF: u8 = 8;
const VOLATILE: u8 = 9;
const CONST: u8 = 10;
const RESTRICT: u8 = 11;
const FUNCTION_PROTO: u8 = 13;
const TYPE_TAG: u8 = 18;

/// Why a type description cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BtfError {
    /// It does not follow the format.
    #[error("it is malformed at byte {0}")]
    Malformed(usize),
    /// It has a kind of type that is newer than this program.
    #[error("it has types of the unknown kind {0}")]
    UnknownKind(u8),
    /// The structure has no such field.
    #[error("it has no field {structure}.{field}")]
    NoField {
        /// The structure.
        structure: &'static str,
        /// Its field.
        field: &'static str,
    },
    /// The kernel has no such tracepoint.
    #[error("it has no tracepoint {0}")]
    NoTracepoint(&'static str),
}

/// What an argument of a tracepoint is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Argument<'a> {
    /// A pointer to the structure of this name.
    Structure(&'a str),
    /// A pointer to anything else.
    Pointer,
    /// No pointer.
    Value,
}

/// A type description.
pub struct Btf<'a> {
    bytes: &'a [u8],
    strings: &'a [u8],
    /// Where each type begins; the first is type 1.
    positions: Vec<u32>,
}

impl fmt::Debug for Btf<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Btf").field("types", &self.positions.len()).finish_non_exhaustive()
    }
}

/// A type as it is stored.
#[derive(Clone, Copy)]
struct Type {
    name: u32,
    kind: u8,
    /// Of members or parameters.
    count: u32,
    /// Whether the members' offsets also hold the width of bit fields.
    has_bit_fields: bool,
    /// The type pointed to, or changed, or named.
    target: u32,
    /// Where what follows it begins.
    rest: usize,
}

impl<'a> Btf<'a> {
    /// Reads the table of types.
    ///
    /// # Errors
    /// When the bytes do not follow the format.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, BtfError> {
        let malformed = BtfError::Malformed;
        let magic = u16_at(bytes, 0)?;
        if magic != MAGIC {
            return Err(malformed(0));
        }
        let header = u32_at(bytes, 4)? as usize;
        if header < HEADER_BYTES {
            return Err(malformed(4));
        }
        let section = |field: usize| {
            let start = header.checked_add(u32_at(bytes, field)? as usize).ok_or(malformed(field))?;
            let end = start.checked_add(u32_at(bytes, field + 4)? as usize).ok_or(malformed(field))?;
            bytes.get(start..end).map(|_| start..end).ok_or(malformed(field))
        };
        let types = section(8)?;
        let strings = &bytes[section(16)?];
        let mut btf = Self { bytes: &bytes[..types.end], strings, positions: Vec::new() };
        let mut at = types.start;
        while at < types.end {
            let found = btf.type_at(at)?;
            let position = u32::try_from(at).map_err(|_| malformed(at))?;
            btf.positions.push(position);
            let count = found.count as usize;
            at = found.rest
                + match found.kind {
                    INT | 14 | 17 => 4,
                    ARRAY => 12,
                    STRUCT | UNION | 15 | 19 => count * 12,
                    6 | FUNCTION_PROTO => count * 8,
                    POINTER | 7 | TYPEDEF | VOLATILE | CONST | RESTRICT | 12 | 16 | TYPE_TAG => 0,
                    unknown => return Err(BtfError::UnknownKind(unknown)),
                };
        }
        if at != types.end {
            return Err(malformed(at));
        }
        Ok(btf)
    }

    /// The byte offset of a field, also within unnamed structures of the structure.
    ///
    /// # Errors
    /// When there is no such structure with such a field at a whole byte.
    pub fn offset(&self, structure: &'static str, field: &'static str) -> Result<u32, BtfError> {
        let no_field = BtfError::NoField { structure, field };
        let mut budget = MAX_MEMBERS;
        // A name may occur twice, should one of them be private to a file.
        for position in self.named(structure, STRUCT) {
            let found = self.type_at(position)?;
            if let Some(bits) = self.find(found, field, 0, &mut budget)? {
                return if bits % 8 == 0 { Ok(bits / 8) } else { Err(no_field) };
            }
        }
        Err(no_field)
    }

    /// What a tracepoint passes, in order.
    ///
    /// # Errors
    /// When the kernel has no such tracepoint.
    pub fn arguments(&self, tracepoint: &'static str) -> Result<Vec<Argument<'a>>, BtfError> {
        let none = || BtfError::NoTracepoint(tracepoint);
        // The kernel defines `typedef void (*btf_trace_NAME)(void *, ARGUMENTS)` for each.
        let name = format!("btf_trace_{tracepoint}");
        let definition = self.named(&name, TYPEDEF).next().ok_or_else(none)?;
        let pointer = self.resolve(self.type_at(definition)?.target)?.ok_or_else(none)?;
        let function = self.resolve(pointer.target)?.ok_or_else(none)?;
        if pointer.kind != POINTER || function.kind != FUNCTION_PROTO {
            return Err(none());
        }
        // The first parameter is the tracepoint's own.
        (1..function.count as usize)
            .map(|index| self.argument(u32_at(self.bytes, function.rest + index * 8 + 4)?))
            .collect()
    }

    fn argument(&self, id: u32) -> Result<Argument<'a>, BtfError> {
        let Some(found) = self.resolve(id)? else { return Ok(Argument::Value) };
        if found.kind != POINTER {
            return Ok(Argument::Value);
        }
        Ok(match self.resolve(found.target)? {
            Some(target) if target.kind == STRUCT => Argument::Structure(self.text(target.name)),
            _ => Argument::Pointer,
        })
    }

    /// Where the types of this name and kind begin.
    fn named(&self, name: &str, kind: u8) -> impl Iterator<Item = usize> {
        self.positions.iter().map(|position| *position as usize).filter(move |position| {
            let found = self.type_at(*position).expect("every position was read when the table was made");
            found.kind == kind && self.text(found.name) == name
        })
    }

    /// The bit offset of `field` in a structure that begins at bit `base`.
    fn find(
        &self,
        structure: Type,
        field: &str,
        nesting: u32,
        budget: &mut u32,
    ) -> Result<Option<u32>, BtfError> {
        for index in 0..structure.count as usize {
            let Some(left) = budget.checked_sub(1) else { return Ok(None) };
            *budget = left;
            let at = structure.rest + index * 12;
            let name = u32_at(self.bytes, at)?;
            let offset = u32_at(self.bytes, at + 8)?;
            let offset = if structure.has_bit_fields { offset & 0x00FF_FFFF } else { offset };
            if name != 0 {
                if self.text(name) == field {
                    return Ok(Some(offset));
                }
                continue;
            }
            let inner = self.resolve(u32_at(self.bytes, at + 4)?)?;
            let inner = inner.filter(|inner| matches!(inner.kind, STRUCT | UNION) && nesting < MAX_NESTING);
            if let Some(inner) = inner
                && let Some(found) = self.find(inner, field, nesting + 1, budget)?
            {
                return Ok(offset.checked_add(found));
            }
        }
        Ok(None)
    }

    /// The type behind modifiers and type definitions; `None` for `void`.
    fn resolve(&self, mut id: u32) -> Result<Option<Type>, BtfError> {
        for _ in 0..MAX_CHAIN {
            let Some(index) = (id as usize).checked_sub(1) else { return Ok(None) };
            let position = *self.positions.get(index).ok_or(BtfError::Malformed(self.bytes.len()))?;
            let found = self.type_at(position as usize)?;
            if !matches!(found.kind, TYPEDEF | VOLATILE | CONST | RESTRICT | TYPE_TAG) {
                return Ok(Some(found));
            }
            id = found.target;
        }
        Err(BtfError::Malformed(self.bytes.len()))
    }

    fn type_at(&self, at: usize) -> Result<Type, BtfError> {
        let info = u32_at(self.bytes, at + 4)?;
        Ok(Type {
            name: u32_at(self.bytes, at)?,
            kind: (info >> 24 & 0x1F) as u8,
            count: info & 0xFFFF,
            has_bit_fields: info >> 31 == 1,
            target: u32_at(self.bytes, at + 8)?,
            rest: at + 12,
        })
    }

    /// A name; empty if it is none.
    fn text(&self, offset: u32) -> &'a str {
        let rest = self.strings.get(offset as usize..).unwrap_or_default();
        let end = memchr::memchr(0, rest).unwrap_or(0);
        std::str::from_utf8(&rest[..end]).unwrap_or_default()
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Result<u16, BtfError> {
    let found = bytes.get(at..).and_then(|rest| rest.first_chunk());
    found.map(|chunk| u16::from_ne_bytes(*chunk)).ok_or(BtfError::Malformed(at))
}

fn u32_at(bytes: &[u8], at: usize) -> Result<u32, BtfError> {
    let found = bytes.get(at..).and_then(|rest| rest.first_chunk());
    found.map(|chunk| u32::from_ne_bytes(*chunk)).ok_or(BtfError::Malformed(at))
}

#[cfg(test)]
#[path = "btf_tests.rs"]
mod tests;
