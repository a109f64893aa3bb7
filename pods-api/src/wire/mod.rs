//! Pod bytes: the schema, JSON and YAML conversion, canonical form, splicing and field masks. No I/O.

mod canonical;
mod encode;
mod json;
mod json_text;
mod mask;
mod mask_parse;
mod project;
#[cfg(test)]
mod properties;
mod quantity;
mod schema;
pub mod splice;
#[doc(hidden)]
pub mod testing;
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
pub use mask::{Mask, Selection};
pub(crate) use mask_parse::split_unquoted;
pub use mask_parse::{MAX_MASK_BYTES, MAX_MASK_PATHS, MaskError};
pub use quantity::{Quantity, QuantityError};
pub use splice::PodEdit;
pub use text::TextError;
pub use tree::{Entry, Node, Value};
pub use varint::DecodeError;
pub use view::{PodView, without_scheme};
pub use yaml::parse_yaml;
pub use yaml_text::{json_to_yaml, pod_to_yaml};
