//! Pod bytes: the schema, JSON and YAML conversion, canonical form, splicing and field masks. No I/O.

pub mod splice;
mod text;
mod tree;
pub mod varint;
mod yaml;

pub use splice::PodView;
pub use text::TextError;
pub use tree::{Entry, Node, Value};
pub use varint::DecodeError;
pub use yaml::parse_yaml;
