//! Encodes field blocks, without a dynamic table: a block means the same on every connection and at any time, so the
//! blocks that each response repeats are encoded once per process.

use super::{integer, table};

/// Writes one field block. Strings are sent plain: on a local socket the bytes that Huffman coding saves are cheaper
/// than the work it makes on both sides (`docs/decisions/hpack.md`).
#[derive(Debug, Default)]
pub struct Encoder {
    block: Vec<u8>,
}

impl Encoder {
    /// Appends a field. The name must be lower case; pseudo-header fields come first.
    pub fn field(&mut self, name: &[u8], value: &[u8]) {
        if let Some(index) = table::static_field(name, value) {
            integer::encode(&mut self.block, 0x80, 7, index);
            return;
        }
        match table::static_name(name) {
            Some(index) => integer::encode(&mut self.block, 0x00, 4, index),
            None => {
                self.block.push(0x00);
                self.string(name);
            }
        }
        self.string(value);
    }

    /// The block.
    #[must_use]
    pub fn finish(self) -> Vec<u8> {
        self.block
    }

    fn string(&mut self, text: &[u8]) {
        integer::encode(&mut self.block, 0x00, 7, text.len());
        self.block.extend_from_slice(text);
    }
}
