//! Pod bytes: the schema, JSON and YAML conversion, canonical form, splicing and field masks. No I/O.

mod encode;
mod json_text;
mod quantity;
mod schema;
pub mod splice;
mod text;
mod time;
mod tree;
pub mod varint;
mod yaml;

pub use encode::{FieldError, encode_pod};
pub use json_text::{MAX_TEXT_BYTES, parse_json};
pub use quantity::{Quantity, QuantityError};
pub use splice::PodView;
pub use text::TextError;
pub use tree::{Entry, Node, Value};
pub use varint::DecodeError;
pub use yaml::parse_yaml;
