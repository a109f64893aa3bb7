//! Pod bytes: the schema, JSON and YAML conversion, canonical form, splicing and field masks. No I/O.

mod tree;

pub use tree::{Entry, Node, Value};
