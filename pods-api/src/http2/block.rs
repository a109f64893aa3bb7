//! Encoded field blocks.

use bytes::Bytes;

use super::hpack::Encoder;

/// A response's header or trailer section, encoded. It depends on no connection: what every response repeats is
/// encoded once per process, and cloning it copies nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldBlock(Bytes);

impl FieldBlock {
    /// Encodes a section. Names must be lower case; `:status` comes first in a header section.
    #[must_use]
    pub fn new<N: AsRef<[u8]>, V: AsRef<[u8]>>(fields: &[(N, V)]) -> Self {
        let mut encoder = Encoder::default();
        for (name, value) in fields {
            encoder.field(name.as_ref(), value.as_ref());
        }
        Self(encoder.finish().into())
    }

    /// Encodes a section that is used for as long as the process lives. Its clones share no reference count, so that
    /// workers do not contend for it; its memory is never freed.
    #[must_use]
    pub fn forever(fields: &[(&str, &str)]) -> Self {
        let block: &'static [u8] = Vec::leak(Self::new(fields).0.into());
        Self(Bytes::from_static(block))
    }

    pub(super) fn into_bytes(self) -> Bytes {
        self.0
    }

    /// The encoded bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_to_make_a_block_agree() {
        let fields = [(":status", "200"), ("content-type", "application/grpc")];
        let block = FieldBlock::forever(&fields);
        assert_eq!(block, FieldBlock::new(&fields));
        assert_eq!(block.as_bytes(), b"\x88\x0f\x10\x10application/grpc");
    }
}
