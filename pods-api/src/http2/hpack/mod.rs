//! HPACK, the field compression of HTTP/2 (RFC 7541): no I/O, no unsafe, runs on the connection's thread.
//!
//! Memory is bounded by the table limit and by the field block, which the caller holds and bounds.

mod decoder;
mod encoder;
pub mod huffman;
mod integer;
mod table;
#[cfg(test)]
mod tests;

pub use decoder::{Decoder, Sink};
pub use encoder::Encoder;

/// The table size that both sides assume until SETTINGS say otherwise (RFC 9113 section 6.5.2).
pub const DEFAULT_TABLE_SIZE: usize = 4096;

/// Why a field block cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The block ends inside a field.
    #[error("the field block ends inside a field")]
    Truncated,
    /// An integer takes more bytes than any legal one.
    #[error("an integer is too large")]
    IntegerOverflow,
    /// A string is not valid Huffman code.
    #[error("a string is not valid Huffman code")]
    Huffman,
    /// An index points to no entry.
    #[error("an index points to no table entry")]
    Index,
    /// A table size update is too large, out of place or missing.
    #[error("a table size update is too large, out of place or missing")]
    SizeUpdate,
}
