//! What can go wrong for a client command, each with what to do next.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use prost::Message as _;
use tonic::{Code, Status};

/// Why a client command failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error(
        "no socket at {0}\nis the server running? its --socket (or PODS_API_SOCKET) and the one given here must be \
         the same; in a pod, mount the socket's directory"
    )]
    NoSocket(PathBuf),
    #[error(
        "nothing listens on {0}\nthe socket was left behind by a server that is gone; start pods-api serve"
    )]
    NoListener(PathBuf),
    #[error(
        "permission denied on {0}\nconnecting needs write permission on the socket (a read-only mount does not \
         matter, its mode does) and search permission on its directory: be root, or join the group that the server \
         was given by --socket-group, with --socket-mode 0660"
    )]
    Permission(PathBuf),
    #[error("connecting to {path}")]
    Connect { path: PathBuf, source: io::Error },
    #[error("{0} is not an HTTP/2 server's socket")]
    Handshake(PathBuf, #[source] tonic::transport::Error),
    #[error("{}", explain(.0))]
    Call(Box<Status>),
    #[error("the watch ended: {}", explain(.0))]
    WatchEnded(Box<Status>),
    #[error("the watch ended: the server closed it without saying why")]
    WatchClosed,
    #[error("no answer from the admin listener at {address}\nis the server running, and with this --admin?")]
    Admin { address: SocketAddr, source: io::Error },
    #[error(
        "the server has no admin listener to ask (PODS_API_ADMIN or --admin is none)\ngive serve and doctor the same \
         address, such as 127.0.0.1:9477"
    )]
    NoAdmin,
    #[error("the server is not ready")]
    NotReady,
    #[error("the server sent a pod that does not decode")]
    Decode(#[from] prost::DecodeError),
    #[error("the server sent a pod that cannot be shown")]
    Show(#[from] crate::wire::DecodeError),
    #[error("--fields cuts pods that are printed whole; add -o json or -o yaml")]
    FieldsNeedWholePods,
    #[error(
        "no resource {0:?} here: the server knows the pods of its node, and nothing else; pods-api get pods"
    )]
    Resource(String),
    #[error("no pod {name} in namespace {namespace} on this node; get pods -A shows every pod")]
    NoSuchPod { namespace: String, name: String },
    #[error(
        "no pod with UID {0}\nif that is a name, give its namespace too: pods-api get pods {0} -n NAMESPACE, or \
         pods-api lookup NAMESPACE/{0}"
    )]
    NoSuchUid(String),
    #[error("writing the output")]
    Output(#[from] io::Error),
}

impl Error {
    /// Whether the reader of our output has gone (`| head`), which is its right.
    pub(super) fn is_closed_pipe(&self) -> bool {
        matches!(self, Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }

    /// Whether the command itself is at fault, whatever the server would say.
    pub(super) fn is_usage(&self) -> bool {
        matches!(self, Self::FieldsNeedWholePods | Self::Resource(_))
    }

    pub(super) fn connect(path: PathBuf, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::NotFound => Self::NoSocket(path),
            io::ErrorKind::ConnectionRefused => Self::NoListener(path),
            io::ErrorKind::PermissionDenied => Self::Permission(path),
            _ => Self::Connect { path, source },
        }
    }
}

impl From<Status> for Error {
    fn from(status: Status) -> Self {
        Self::Call(Box::new(status))
    }
}

/// The status in words, and what to do about it.
fn explain(status: &Status) -> String {
    let message = match status.message() {
        "" => status.code().description(),
        message => message,
    };
    match status.code() {
        Code::FailedPrecondition => {
            format!("{message}\nthe server is up but not ready; its /readyz?verbose says what it waits for")
        }
        Code::ResourceExhausted => match retry_delay(status) {
            Some(delay) => format!("{message}\ntry again in {} ms", delay.as_millis().max(1)),
            None => message.to_owned(),
        },
        Code::OutOfRange => {
            format!("{message}\nask for fewer pods, or watch them: a watch sends one at a time")
        }
        Code::PermissionDenied => {
            format!("{message}\nthe server's --allow rules do not admit this caller to this operation")
        }
        Code::Unimplemented => {
            format!("the server does not know this operation: {message}\nlookups need pods-api itself")
        }
        Code::Unavailable => format!("the server went away: {message}"),
        _ => message.to_owned(),
    }
}

/// The google.rpc.RetryInfo in a status, if it carries one.
fn retry_delay(status: &Status) -> Option<Duration> {
    let details = RpcStatus::decode(status.details()).ok()?.details;
    let info = details.iter().find(|detail| detail.type_url.ends_with("/google.rpc.RetryInfo"))?;
    RetryInfo::decode(&*info.value).ok()?.retry_delay?.try_into().ok()
}

/// google.rpc.Status, as far as it is read here.
#[derive(Clone, PartialEq, prost::Message)]
struct RpcStatus {
    #[prost(message, repeated, tag = "3")]
    details: Vec<prost_types::Any>,
}

/// google.rpc.RetryInfo.
#[derive(Clone, PartialEq, prost::Message)]
struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    retry_delay: Option<prost_types::Duration>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_limit_error_says_when_to_try_again() {
        let info = RetryInfo { retry_delay: Some(prost_types::Duration { seconds: 0, nanos: 90_000_000 }) };
        let detail = prost_types::Any {
            type_url: "type.googleapis.com/google.rpc.RetryInfo".to_owned(),
            value: info.encode_to_vec(),
        };
        let details = RpcStatus { details: vec![detail] }.encode_to_vec();
        let status = Status::with_details(Code::ResourceExhausted, "rejected by rate limit", details.into());
        assert_eq!(Error::from(status).to_string(), "rejected by rate limit\ntry again in 90 ms");
    }

    // SOCK-6
    #[test]
    fn permission_error_names_write_permission_and_the_flags() {
        let error = Error::connect("/run/x.sock".into(), io::ErrorKind::PermissionDenied.into()).to_string();
        assert!(error.contains("write permission") && error.contains("--socket-group"), "{error}");
    }

    #[test]
    fn missing_socket_and_missing_listener_are_told_apart() {
        let missing = Error::connect("/run/x.sock".into(), io::ErrorKind::NotFound.into());
        let refused = Error::connect("/run/x.sock".into(), io::ErrorKind::ConnectionRefused.into());
        assert!(matches!(missing, Error::NoSocket(_)), "{missing}");
        assert!(matches!(refused, Error::NoListener(_)), "{refused}");
    }
}
