//! gRPC status: codes, messages and details, and how they become trailers.
//!
//! Every error a client can see is made here or in the handler that names the rule; internals stay in the log.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use prost::Message;
use std::fmt;
use std::time::Duration;

/// A gRPC status code (grpc.io "Status codes and their use in gRPC").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Code {
    /// Success.
    Ok = 0,
    /// The caller cancelled the operation.
    Cancelled = 1,
    /// An error of another address space, or one without a better code.
    Unknown = 2,
    /// The request itself is wrong, whatever the server's state.
    InvalidArgument = 3,
    /// The deadline passed first.
    DeadlineExceeded = 4,
    /// The requested entity does not exist here.
    NotFound = 5,
    /// The entity exists already.
    AlreadyExists = 6,
    /// The caller may not do this.
    PermissionDenied = 7,
    /// A rate or a bound is used up.
    ResourceExhausted = 8,
    /// The server is not in the state the operation needs.
    FailedPrecondition = 9,
    /// The operation was aborted.
    Aborted = 10,
    /// Past the valid range.
    OutOfRange = 11,
    /// The server has no such method or encoding.
    Unimplemented = 12,
    /// An invariant of the server is broken.
    Internal = 13,
    /// The server is going away.
    Unavailable = 14,
    /// Unrecoverable loss.
    DataLoss = 15,
    /// No valid credentials.
    Unauthenticated = 16,
}

impl Code {
    /// How many codes there are; codes are `0..COUNT`.
    pub const COUNT: usize = 17;

    /// The code's Go name, as the kubelet's metrics spell it (rule E.3.4).
    #[must_use]
    pub fn go_name(self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::Cancelled => "Canceled",
            Self::Unknown => "Unknown",
            Self::InvalidArgument => "InvalidArgument",
            Self::DeadlineExceeded => "DeadlineExceeded",
            Self::NotFound => "NotFound",
            Self::AlreadyExists => "AlreadyExists",
            Self::PermissionDenied => "PermissionDenied",
            Self::ResourceExhausted => "ResourceExhausted",
            Self::FailedPrecondition => "FailedPrecondition",
            Self::Aborted => "Aborted",
            Self::OutOfRange => "OutOfRange",
            Self::Unimplemented => "Unimplemented",
            Self::Internal => "Internal",
            Self::Unavailable => "Unavailable",
            Self::DataLoss => "DataLoss",
            Self::Unauthenticated => "Unauthenticated",
        }
    }

    /// The code with this number, if there is one.
    #[must_use]
    pub fn known(number: usize) -> Option<Self> {
        const ALL: [Code; Code::COUNT] = [
            Code::Ok,
            Code::Cancelled,
            Code::Unknown,
            Code::InvalidArgument,
            Code::DeadlineExceeded,
            Code::NotFound,
            Code::AlreadyExists,
            Code::PermissionDenied,
            Code::ResourceExhausted,
            Code::FailedPrecondition,
            Code::Aborted,
            Code::OutOfRange,
            Code::Unimplemented,
            Code::Internal,
            Code::Unavailable,
            Code::DataLoss,
            Code::Unauthenticated,
        ];
        ALL.get(number).copied()
    }

    /// The decimal number, as `grpc-status` carries it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        const NUMBERS: [&str; Code::COUNT] =
            ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15", "16"];
        NUMBERS[self as usize]
    }
}

/// The outcome of one call other than success.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// What kind of failure.
    pub code: Code,
    /// What the caller reads.
    pub message: String,
    /// When a rejected call may be tried again (google.rpc.RetryInfo).
    pub retry_after: Option<Duration>,
}

impl Status {
    /// A status with a message.
    #[must_use]
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), retry_after: None }
    }

    /// `grpc-message`: the message percent-encoded as the gRPC protocol asks (bytes outside 0x20..=0x7e, and `%`).
    #[must_use]
    pub fn encoded_message(&self) -> String {
        utf8_percent_encode(&self.message, ENCODED_IN_MESSAGE).to_string()
    }

    /// `grpc-status-details-bin` before base64: a google.rpc.Status, where there is a detail to tell.
    #[must_use]
    pub fn details(&self) -> Option<Vec<u8>> {
        let delay = self.retry_after?;
        let info = RetryInfo {
            retry_delay: Some(prost_types::Duration {
                seconds: i64::try_from(delay.as_secs()).unwrap_or(i64::MAX),
                nanos: i32::try_from(delay.subsec_nanos()).expect("below 10^9"),
            }),
        };
        let status = RpcStatus {
            code: self.code as i32,
            message: self.message.clone(),
            details: vec![prost_types::Any {
                type_url: "type.googleapis.com/google.rpc.RetryInfo".into(),
                value: info.encode_to_vec(),
            }],
        };
        Some(status.encode_to_vec())
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code.go_name(), self.message)
    }
}

impl std::error::Error for Status {}

/// google.rpc.RetryInfo.
#[derive(Clone, PartialEq, Message)]
struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    retry_delay: Option<prost_types::Duration>,
}

/// google.rpc.Status.
#[derive(Clone, PartialEq, Message)]
struct RpcStatus {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
    #[prost(message, repeated, tag = "3")]
    details: Vec<prost_types::Any>,
}

/// What `grpc-message` may not carry as is, besides bytes outside ASCII (gRPC over HTTP/2, "Responses").
const ENCODED_IN_MESSAGE: &AsciiSet = &CONTROLS.add(b'%');

/// Senders may leave the padding out, receivers must take both (gRPC over HTTP/2, "Requests").
const BIN: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Base64 as the value of a `-bin` field carries it, unpadded.
#[must_use]
pub(super) fn encode_bin(bytes: &[u8]) -> String {
    BIN.encode(bytes)
}

/// Decodes the value of a `-bin` field, padded or not; `None` for what is not base64.
#[must_use]
pub(super) fn decode_bin(text: &[u8]) -> Option<Vec<u8>> {
    BIN.decode(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_percent_encoded() {
        let status = Status::new(Code::NotFound, "pod 100% \"é\"\n");
        assert_eq!(status.encoded_message(), "pod 100%25 \"%C3%A9\"%0A");
    }

    #[test]
    fn code_names_are_go_names() {
        // rule E.3.4
        assert_eq!(Code::Cancelled.go_name(), "Canceled");
        assert_eq!((Code::known(9), Code::known(17)), (Some(Code::FailedPrecondition), None));
        assert_eq!((Code::Unauthenticated as usize, Code::Unauthenticated.as_str()), (16, "16"));
    }

    #[test]
    fn bin_values_round_trip_and_padding_is_optional() {
        for length in 0..40u8 {
            let bytes: Vec<u8> = (0..length).map(|n| n.wrapping_mul(37)).collect();
            let text = encode_bin(&bytes);
            assert!(!text.contains('='));
            assert_eq!(decode_bin(text.as_bytes()).as_deref(), Some(&*bytes));
            let padded = format!("{text}{}", "=".repeat((4 - text.len() % 4) % 4));
            assert_eq!(decode_bin(padded.as_bytes()).as_deref(), Some(&*bytes));
        }
        for bad in ["A", "A===", "AA=A", "AA-A", "AAAAA", "\u{e9}"] {
            assert_eq!(decode_bin(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn a_retry_delay_becomes_retry_info() {
        let mut status = Status::new(Code::ResourceExhausted, "rejected by rate limit");
        assert_eq!(status.details(), None);
        status.retry_after = Some(Duration::from_millis(1500));
        let details = RpcStatus::decode(&*status.details().unwrap()).unwrap();
        assert_eq!((details.code, &*details.message), (8, "rejected by rate limit"));
        let info = RetryInfo::decode(&*details.details[0].value).unwrap();
        assert_eq!(info.retry_delay.unwrap(), prost_types::Duration { seconds: 1, nanos: 500_000_000 });
    }
}
