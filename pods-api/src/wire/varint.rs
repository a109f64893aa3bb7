//! Protobuf's tags, varints and lengths: the one reader and writer that everything on Pod bytes shares.
//!
//! Reads untrusted bytes: every length is checked against what is there, nothing is allocated. Any thread.

use bytes::BufMut;

/// Pod bytes that are no protobuf message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("malformed protobuf: {what} at byte {offset}")]
pub struct DecodeError {
    /// What is wrong.
    pub what: &'static str,
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

    fn fail<T>(&mut self, what: &'static str) -> Result<T, DecodeError> {
        let offset = std::mem::replace(&mut self.offset, self.message.len());
        Err(DecodeError { what, offset })
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], DecodeError> {
        match self.message.get(self.offset..).and_then(|rest| rest.get(..length)) {
            Some(bytes) => {
                self.offset += length;
                Ok(bytes)
            }
            None => self.fail("value longer than the message"),
        }
    }

    fn read_varint(&mut self) -> Result<u64, DecodeError> {
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

#[cfg(test)]
mod tests {
    use super::*;

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
