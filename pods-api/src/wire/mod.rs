//! Pod bytes: the schema, JSON and YAML conversion, canonical form, splicing and field masks. No I/O.

mod text;
mod tree;
mod yaml;

pub use text::TextError;
pub use tree::{Entry, Node, Value};
pub use yaml::parse_yaml;
