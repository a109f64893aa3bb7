//! Pod bytes: the schema, JSON and YAML conversion, canonical form, splicing and field masks. No I/O.

mod canonical;
mod encode;
mod json;
mod json_text;
mod quantity;
mod schema;
pub mod splice;
mod text;
mod time;
mod tree;
pub mod varint;
mod view;
mod yaml;
mod yaml_text;

pub use canonical::canonical_pod;
pub use encode::{FieldError, encode_pod};
pub use json::pod_to_json;
pub use json_text::{MAX_TEXT_BYTES, parse_json};
pub use quantity::{Quantity, QuantityError};
pub use splice::PodEdit;
pub use text::TextError;
pub use tree::{Entry, Node, Value};
pub use varint::DecodeError;
pub use view::PodView;
pub use yaml::parse_yaml;
pub use yaml_text::{json_to_yaml, pod_to_yaml};
