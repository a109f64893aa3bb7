//! Protobuf's tags, varints and lengths: the one reader and writer that everything on Pod bytes shares.
//!
//! Reads untrusted bytes: every length is checked against what is there, nothing is allocated. Any thread.

use std::borrow::Cow;

use bytes::BufMut;

/// Bytes that are no encoded Pod.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("malformed protobuf: {what} at byte {offset}")]
pub struct DecodeError {
    /// What is wrong.
    pub what: Cow<'static, str>,
    /// Where, counted in the message that was being read.
    pub offset: usize,
}

/// What a field holds, by wire type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldValue<'a> {
    /// Wire type 0.
    Varint(u64),
    /// Wire type 1.
    Fixed64([u8; 8]),
    /// Wire type 2: string, bytes, message or packed numbers.
    Length(&'a [u8]),
    /// Wire type 5.
    Fixed32([u8; 4]),
}

/// One occurrence of a field in a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field<'a> {
    /// The field's number.
    pub number: u32,
    /// Its value.
    pub value: FieldValue<'a>,
    /// Tag, length and value as they stand in the message.
    pub raw: &'a [u8],
}

impl<'a> Field<'a> {
    /// The bytes of a length-delimited field; `None` for the other wire types.
    #[must_use]
    pub fn bytes(&self) -> Option<&'a [u8]> {
        match self.value {
            FieldValue::Length(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// The value of a varint field; `None` for the other wire types.
    #[must_use]
    pub fn varint(&self) -> Option<u64> {
        match self.value {
            FieldValue::Varint(value) => Some(value),
            _ => None,
        }
    }
}

/// Iterates over the fields of one message, in the order they stand. Ends after the first error.
#[derive(Debug, Clone)]
pub struct Fields<'a> {
    message: &'a [u8],
    offset: usize,
}

impl<'a> Fields<'a> {
    /// Reads `message` from its first field.
    #[must_use]
    pub fn new(message: &'a [u8]) -> Self {
        Self { message, offset: 0 }
    }

    /// Where in the message the next field begins.
    pub(crate) fn offset(&self) -> usize {
        self.offset
    }

    #[cold]
    fn fail<T>(&mut self, what: &'static str) -> Result<T, DecodeError> {
        let offset = std::mem::replace(&mut self.offset, self.message.len());
        Err(DecodeError { what: what.into(), offset })
    }

    #[inline]
    fn take(&mut self, length: usize) -> Result<&'a [u8], DecodeError> {
        match self.message.get(self.offset..).and_then(|rest| rest.get(..length)) {
            Some(bytes) => {
                self.offset += length;
                Ok(bytes)
            }
            None => self.fail("value longer than the message"),
        }
    }

    #[inline]
    pub(crate) fn read_varint(&mut self) -> Result<u64, DecodeError> {
        // Nearly every tag and length is a single byte.
        match self.message.get(self.offset) {
            Some(&byte) if byte < 0x80 => {
                self.offset += 1;
                Ok(u64::from(byte))
            }
            _ => self.read_long_varint(),
        }
    }

    fn read_long_varint(&mut self) -> Result<u64, DecodeError> {
        let mut value = 0u64;
        for shift in (0..70).step_by(7) {
            let Some(&byte) = self.message.get(self.offset) else { return self.fail("truncated varint") };
            if shift == 63 && byte > 1 {
                break;
            }
            self.offset += 1;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        self.fail("varint of more than 64 bits")
    }

    #[inline]
    fn read_field(&mut self) -> Result<Field<'a>, DecodeError> {
        let start = self.offset;
        let tag = self.read_varint()?;
        let number = match u32::try_from(tag >> 3) {
            Ok(number @ 1..=0x1fff_ffff) => number,
            _ => return self.fail("field number out of range"),
        };
        let value = match tag & 7 {
            0 => FieldValue::Varint(self.read_varint()?),
            1 => FieldValue::Fixed64(self.take(8)?.try_into().expect("eight bytes were taken")),
            2 => {
                let length = self.read_varint()?;
                FieldValue::Length(self.take(usize::try_from(length).unwrap_or(usize::MAX))?)
            }
            5 => FieldValue::Fixed32(self.take(4)?.try_into().expect("four bytes were taken")),
            // Groups (3, 4) were never used by Kubernetes; 6 and 7 do not exist.
            _ => return self.fail("unsupported wire type"),
        };
        Ok(Field { number, value, raw: &self.message[start..self.offset] })
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<Field<'a>, DecodeError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        (self.offset < self.message.len()).then(|| self.read_field())
    }
}

/// The number of bytes [`put_varint`] writes.
#[must_use]
pub fn varint_len(value: u64) -> usize {
    (70 - (value | 1).leading_zeros() as usize) / 7
}

/// Writes a varint in its shortest form.
pub fn put_varint(out: &mut impl BufMut, mut value: u64) {
    while value >= 0x80 {
        out.put_u8(value as u8 | 0x80);
        value >>= 7;
    }
    out.put_u8(value as u8);
}

/// The number of bytes [`put_length_field`] writes.
#[must_use]
pub fn length_field_len(number: u32, value_len: usize) -> usize {
    varint_len(u64::from(number) << 3) + varint_len(value_len as u64) + value_len
}

/// Writes tag and length of a length-delimited field; the value follows.
pub fn put_length_head(out: &mut impl BufMut, number: u32, value_len: usize) {
    put_varint(out, (u64::from(number) << 3) | 2);
    put_varint(out, value_len as u64);
}

/// Writes a length-delimited field.
pub fn put_length_field(out: &mut impl BufMut, number: u32, value: &[u8]) {
    put_length_head(out, number, value.len());
    out.put_slice(value);
}

/// Writes a varint field.
pub fn put_varint_field(out: &mut impl BufMut, number: u32, value: u64) {
    put_varint(out, u64::from(number) << 3);
    put_varint(out, value);
}

/// Writes a signed number as protobuf's int32 and int64 do: a negative one takes ten bytes.
pub(crate) fn put_int_field(out: &mut impl BufMut, number: u32, value: i64) {
    put_varint_field(out, number, value.cast_unsigned());
}

/// Writes a length-delimited field whose content `write` appends.
pub(crate) fn put_nested<E>(
    out: &mut Vec<u8>,
    number: u32,
    write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
) -> Result<(), E> {
    put_varint(out, (u64::from(number) << 3) | 2);
    let content = begin_length(out);
    write(out)?;
    end_length(out, content);
    Ok(())
}

/// Keeps room for a length and returns where the content begins.
///
/// The length stands before a content whose size is not known yet: one byte is kept for it, and the content moved
/// on where it needs more. That is cheaper than measuring first or than a buffer for each message.
#[inline]
pub(crate) fn begin_length(out: &mut Vec<u8>) -> usize {
    out.push(0);
    out.len()
}

/// Writes the length of the content that began at `content` before it.
#[inline]
pub(crate) fn end_length(out: &mut Vec<u8>, content: usize) {
    let len = out.len() - content;
    let extra = varint_len(len as u64) - 1;
    if extra > 0 {
        out.resize(out.len() + extra, 0);
        out.copy_within(content..content + len, content + extra);
    }
    let mut head = &mut out[content - 1..content + extra];
    put_varint(&mut head, len as u64);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_lengths_of_every_width_are_written() {
        for len in [0_usize, 1, 127, 128, 16_383, 16_384, 2_097_152] {
            let mut out = Vec::new();
            put_nested::<DecodeError>(&mut out, 5, |out| {
                out.resize(out.len() + len, 7);
                Ok(())
            })
            .unwrap();
            let field = Fields::new(&out).next().unwrap().unwrap();
            assert_eq!((field.number, field.bytes(), field.raw), (5, Some(&*vec![7; len]), &*out));
        }
    }

    #[test]
    fn varint_survives_the_round_trip() {
        for value in [0, 1, 127, 128, 16_383, 16_384, u64::from(u32::MAX), u64::MAX >> 1, u64::MAX] {
            let mut out = Vec::new();
            put_varint_field(&mut out, 7, value);
            assert_eq!(out.len(), 1 + varint_len(value), "{value}");
            let field = Fields::new(&out).next().unwrap().unwrap();
            assert_eq!((field.number, field.varint(), field.raw), (7, Some(value), &*out));
        }
    }

    #[test]
    fn bad_input_is_an_error_once() {
        for bad in [
            &b"\x0a\x05abc"[..],
            b"\x0a",
            b"\x00\x01",
            b"\x0b",
            b"\x09\x01",
            b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02",
            b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        ] {
            let read: Vec<_> = Fields::new(bad).collect();
            assert_eq!(read.len(), 1, "{bad:?}");
            assert!(read[0].is_err(), "{bad:?}");
        }
    }
}
