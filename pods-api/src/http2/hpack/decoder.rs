//! Decodes field blocks (RFC 7541 sections 3 and 6).

use super::table::{DynamicTable, STATIC};
use super::{DEFAULT_TABLE_SIZE, Error, huffman, integer};

/// A buffer for a Huffman-coded string is kept for the next one up to this size.
const KEPT_BUFFER: usize = 4096;

/// Takes the fields of a block, in order.
pub trait Sink {
    /// What the sink finds out about a field by looking at it. It is kept with the table entry, so that a field
    /// which is sent by its index is not examined again.
    type Mark: Copy;

    /// Looks at a field for the first time.
    fn examine(&self, name: &[u8], value: &[u8]) -> Self::Mark;

    /// Takes a field.
    fn field(&mut self, name: &[u8], value: &[u8], mark: Self::Mark);
}

/// The decoding side of a connection's compression state.
#[derive(Debug)]
pub struct Decoder<M> {
    table: DynamicTable<M>,
    /// The marks of static entries that were used.
    static_marks: [Option<M>; STATIC.len()],
    /// The largest table size that the encoder may choose.
    limit: usize,
    /// The limit was lowered below the table's size: the next block must begin with a size update.
    must_shrink: bool,
    /// Counts the changes of the table.
    generation: u64,
    /// Name and value of the literal that is decoded, where they are not in the input as they are.
    name: Vec<u8>,
    value: Vec<u8>,
}

impl<M: Copy> Decoder<M> {
    /// A decoder whose table may take `limit` bytes; the default limit holds until SETTINGS say otherwise.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            table: DynamicTable::new(DEFAULT_TABLE_SIZE),
            static_marks: [None; STATIC.len()],
            limit: limit.max(DEFAULT_TABLE_SIZE),
            must_shrink: false,
            generation: 0,
            name: Vec::new(),
            value: Vec::new(),
        }
    }

    /// Sets the limit of the table size, once the encoder has acknowledged it (section 4.2).
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
        self.generation += 1;
        self.must_shrink = self.table.max_size() > limit;
    }

    /// Names the state of the table: while it stays the same, the same block means the same.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Bytes of memory that the state takes.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.table.held_bytes() + self.name.capacity() + self.value.capacity()
    }

    /// Decodes a whole field block.
    ///
    /// # Errors
    /// After an error the table no longer agrees with the encoder's, so the connection cannot go on.
    pub fn decode<S: Sink<Mark = M>>(&mut self, block: &[u8], sink: &mut S) -> Result<(), Error> {
        let mut input = self.size_updates(block)?;
        while let Some(&first) = input.first() {
            input = if first & 0x80 != 0 {
                self.indexed(input, sink)?
            } else if first & 0x40 != 0 {
                self.literal(input, 6, true, sink)?
            } else if first & 0x20 != 0 {
                return Err(Error::SizeUpdate);
            } else {
                // Never-indexed (0x10) matters to those who encode the field again, which this server does not.
                self.literal(input, 4, false, sink)?
            };
        }
        for buffer in [&mut self.name, &mut self.value] {
            if buffer.capacity() > KEPT_BUFFER {
                *buffer = Vec::new();
            }
        }
        Ok(())
    }

    /// Takes the size updates, which come at the beginning: at most the smallest since the last block, then the
    /// last (section 4.2).
    fn size_updates<'a>(&mut self, mut input: &'a [u8]) -> Result<&'a [u8], Error> {
        let mut updates = 0;
        while let Some(&first) = input.first()
            && first & 0xe0 == 0x20
        {
            let (size, rest) = integer::decode(input, 5)?;
            updates += 1;
            if size > self.limit || updates > 2 {
                return Err(Error::SizeUpdate);
            }
            self.table.set_max_size(size);
            self.generation += 1;
            self.must_shrink = false;
            input = rest;
        }
        if self.must_shrink { Err(Error::SizeUpdate) } else { Ok(input) }
    }

    #[inline]
    fn indexed<'a, S: Sink<Mark = M>>(&mut self, input: &'a [u8], sink: &mut S) -> Result<&'a [u8], Error> {
        let (index, rest) = integer::decode(input, 7)?;
        if let Some(dynamic) = index.checked_sub(STATIC.len() + 1) {
            let (name, value, mark) = self.table.get(dynamic).ok_or(Error::Index)?;
            sink.field(name, value, mark);
        } else {
            let at = index.wrapping_sub(1);
            let &(name, value) = STATIC.get(at).ok_or(Error::Index)?;
            let mark = *self.static_marks[at].get_or_insert_with(|| sink.examine(name, value));
            sink.field(name, value, mark);
        }
        Ok(rest)
    }

    fn literal<'a, S: Sink<Mark = M>>(
        &mut self,
        input: &'a [u8],
        prefix_bits: u32,
        insert: bool,
        sink: &mut S,
    ) -> Result<&'a [u8], Error> {
        let (index, mut rest) = integer::decode(input, prefix_bits)?;
        // None: the name is in the dynamic table.
        let outside = if index == 0 {
            let (name, tail) = string(rest, &mut self.name)?;
            rest = tail;
            Some(name)
        } else {
            STATIC.get(index - 1).map(|&(name, _)| name)
        };
        let (value, rest) = string(rest, &mut self.value)?;
        let dynamic = index.wrapping_sub(STATIC.len() + 1);
        let name = match outside {
            Some(name) => name,
            None => self.table.get(dynamic).ok_or(Error::Index)?.0,
        };
        let mark = sink.examine(name, value);
        sink.field(name, value, mark);
        if insert {
            self.generation += 1;
            match outside {
                Some(name) => self.table.insert(name, value, mark),
                None => self.table.insert_with_name_of(dynamic, value, mark),
            }
        }
        Ok(rest)
    }
}

/// Reads a string (section 5.2) and returns it with the bytes behind it; a Huffman-coded one is decoded into
/// `buffer`.
fn string<'s, 'a: 's>(input: &'a [u8], buffer: &'s mut Vec<u8>) -> Result<(&'s [u8], &'a [u8]), Error> {
    let is_huffman = input.first().is_some_and(|first| first & 0x80 != 0);
    let (length, rest) = integer::decode(input, 7)?;
    let (text, rest) = rest.split_at_checked(length).ok_or(Error::Truncated)?;
    if !is_huffman {
        return Ok((text, rest));
    }
    buffer.clear();
    huffman::decode(text, buffer)?;
    Ok((buffer, rest))
}
