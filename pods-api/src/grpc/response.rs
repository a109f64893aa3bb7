//! The header sections of answers.

use super::status::{Code, Status, encode_bin};
use crate::http2::FieldBlock;
use http::HeaderMap;
use std::sync::LazyLock;

const OK_HEAD: [(&str, &str); 2] = [(":status", "200"), ("content-type", "application/grpc")];

/// The head of a successful answer.
pub(super) static HEAD: LazyLock<FieldBlock> = LazyLock::new(|| FieldBlock::forever(&OK_HEAD));

/// The trailers of a call that succeeded.
pub(super) static OK_TRAILERS: LazyLock<FieldBlock> =
    LazyLock::new(|| FieldBlock::forever(&[("grpc-status", "0")]));

/// The trailers of a call that failed.
pub(super) fn trailers(status: &Status) -> FieldBlock {
    FieldBlock::new(&status_fields(status))
}

/// A whole answer without a body ("Trailers-Only" in gRPC over HTTP/2).
pub(super) fn trailers_only(status: &Status) -> FieldBlock {
    let mut fields: Vec<_> = OK_HEAD.into_iter().map(|(name, value)| (name, value.to_owned())).collect();
    fields.extend(status_fields(status));
    if status.code == Code::Unimplemented {
        // Lets a client that sent an encoding we lack find one that we have (GRPC-7).
        fields.push(("grpc-accept-encoding", "identity".into()));
    }
    FieldBlock::new(&fields)
}

/// An HTTP error for what is not gRPC.
pub(super) fn http_error(status: &str, extra: Option<(&str, &str)>) -> FieldBlock {
    let mut fields = vec![(":status", status), ("content-type", "text/plain; charset=utf-8")];
    fields.extend(extra);
    FieldBlock::new(&fields)
}

/// The head that a tower service gave.
pub(super) fn tower_head(headers: &HeaderMap) -> FieldBlock {
    let mut fields: Vec<(&[u8], &[u8])> = vec![(b":status", b"200")];
    fields.extend(headers.iter().map(|(name, value)| (name.as_ref(), value.as_bytes())));
    FieldBlock::new(&fields)
}

/// The trailers that a tower service gave.
pub(super) fn tower_trailers(headers: &HeaderMap) -> FieldBlock {
    FieldBlock::new(&headers.iter().collect::<Vec<_>>())
}

fn status_fields(status: &Status) -> Vec<(&'static str, String)> {
    let mut fields = vec![("grpc-status", status.code.as_str().to_owned())];
    if !status.message.is_empty() {
        fields.push(("grpc-message", status.encoded_message()));
    }
    fields.extend(status.details().map(|details| ("grpc-status-details-bin", encode_bin(&details))));
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_without_a_body_is_one_section() {
        let status = Status::new(Code::NotFound, "pod with UID x not found");
        let expected = FieldBlock::new(&[
            (":status", "200"),
            ("content-type", "application/grpc"),
            ("grpc-status", "5"),
            ("grpc-message", "pod with UID x not found"),
        ]);
        assert_eq!(trailers_only(&status), expected);
    }

    #[test]
    fn an_unimplemented_encoding_names_what_there_is() {
        // GRPC-7
        let block = trailers_only(&Status::new(Code::Unimplemented, ""));
        let text = String::from_utf8_lossy(block.as_bytes()).into_owned();
        assert!(text.contains("grpc-accept-encoding") && text.ends_with("identity"), "{text:?}");
    }
}
