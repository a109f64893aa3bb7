//! What the header section of a request says: which method, for how long, and with which metadata.

use super::counters::{Api, Method};
use super::status::{Code, Status};
use super::timeout;
use std::time::Duration;

/// Where a call goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Route {
    /// A method that is answered on the worker.
    Pods(Api, Method),
    /// A service behind the tower adapter; it answers for unknown methods of its own.
    Tower,
}

/// A request that cannot become a gRPC call; answered with this HTTP status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// 405: gRPC is POST only.
    Method,
    /// 415: not `application/grpc`.
    ContentType,
}

/// A call's header section, understood.
#[derive(Debug)]
pub(super) struct CallHead {
    /// Where it goes.
    pub(super) route: Result<Route, Status>,
    /// How long the caller waits.
    pub(super) timeout: Option<Duration>,
    /// What it asks for beside the message.
    pub(super) metadata: Metadata,
}

/// Request metadata that means something to the Pods services. A field that occurs twice is kept as an error, since
/// which one counts would be a guess.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Metadata {
    /// `x-kubernetes-fieldmask`.
    pub(super) field_mask: Option<Box<[u8]>>,
    /// `x-kubernetes-fieldmask-bin`.
    pub(super) field_mask_bin: Option<Box<[u8]>>,
    /// `x-pods-api-namespace`.
    pub(super) namespace: Option<Box<[u8]>>,
    /// `x-pods-api-labels`.
    pub(super) labels: Option<Box<[u8]>>,
    /// `x-pods-api-slow`.
    pub(super) slow: Option<Box<[u8]>>,
    /// The first of these that occurred twice.
    pub(super) repeated: Option<&'static str>,
}

impl CallHead {
    /// Reads a header section.
    pub(super) fn read<'a>(
        method: &[u8],
        path: &[u8],
        fields: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    ) -> Result<Self, Refusal> {
        if method != b"POST" {
            return Err(Refusal::Method);
        }
        let mut head = Self { route: route(path), timeout: None, metadata: Metadata::default() };
        let mut is_grpc = false;
        for (name, value) in fields {
            match name {
                b"content-type" => is_grpc = is_grpc_content_type(value),
                b"grpc-timeout" => match timeout::parse(value) {
                    Some(timeout) => head.timeout = Some(timeout),
                    None => head.fail(Code::Internal, || {
                        format!("malformed grpc-timeout {:?}", String::from_utf8_lossy(value))
                    }),
                },
                b"grpc-encoding" if value != b"identity" => head.fail(Code::Unimplemented, || {
                    format!(
                        "grpc-encoding {:?} is not supported; this server takes identity",
                        String::from_utf8_lossy(value)
                    )
                }),
                name if name.starts_with(b"x-") => head.metadata.take(name, value),
                _ => {}
            }
        }
        if is_grpc { Ok(head) } else { Err(Refusal::ContentType) }
    }

    fn fail(&mut self, code: Code, message: impl FnOnce() -> String) {
        if self.route.is_ok() {
            self.route = Err(Status::new(code, message()));
        }
    }
}

impl Metadata {
    fn take(&mut self, name: &[u8], value: &[u8]) {
        let (name, place) = match name {
            b"x-kubernetes-fieldmask" => ("x-kubernetes-fieldmask", &mut self.field_mask),
            b"x-kubernetes-fieldmask-bin" => ("x-kubernetes-fieldmask-bin", &mut self.field_mask_bin),
            b"x-pods-api-namespace" => ("x-pods-api-namespace", &mut self.namespace),
            b"x-pods-api-labels" => ("x-pods-api-labels", &mut self.labels),
            b"x-pods-api-slow" => ("x-pods-api-slow", &mut self.slow),
            _ => return,
        };
        if place.replace(Box::from(value)).is_some() {
            self.repeated.get_or_insert(name);
        }
    }
}

/// `application/grpc`, alone or with a `+suffix` or `;parameter`.
fn is_grpc_content_type(value: &[u8]) -> bool {
    let prefix = b"application/grpc";
    value.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
        && matches!(value.get(prefix.len()), None | Some(b'+' | b';'))
}

fn route(path: &[u8]) -> Result<Route, Status> {
    let unknown = |text: String| Err(Status::new(Code::Unimplemented, text));
    let Some((service, method)) = path.strip_prefix(b"/").and_then(|path| {
        let slash = memchr::memrchr(b'/', path)?;
        Some((&path[..slash], &path[slash + 1..]))
    }) else {
        return unknown(format!("malformed method name {:?}", String::from_utf8_lossy(path)));
    };
    let api = match service {
        b"v1alpha1.Pods" => Api::V1alpha1,
        b"Pods" => Api::Documented,
        b"podsapi.v1.Node"
        | b"grpc.health.v1.Health"
        | b"grpc.reflection.v1.ServerReflection"
        | b"grpc.reflection.v1alpha.ServerReflection" => return Ok(Route::Tower),
        _ => return unknown(format!("unknown service {}", String::from_utf8_lossy(service))),
    };
    match method {
        b"ListPods" => Ok(Route::Pods(api, Method::List)),
        b"GetPod" => Ok(Route::Pods(api, Method::Get)),
        b"WatchPods" => Ok(Route::Pods(api, Method::Watch)),
        _ => unknown(format!(
            "unknown method {} for service {}",
            String::from_utf8_lossy(method),
            String::from_utf8_lossy(service)
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRPC: (&str, &str) = ("content-type", "application/grpc");

    fn read(method: &str, path: &str, fields: &[(&str, &str)]) -> Result<CallHead, Refusal> {
        let fields = fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        CallHead::read(method.as_bytes(), path.as_bytes(), fields)
    }

    #[test]
    fn paths_of_both_contracts_are_routed() {
        for (path, route) in [
            ("/v1alpha1.Pods/ListPods", Route::Pods(Api::V1alpha1, Method::List)),
            ("/v1alpha1.Pods/WatchPods", Route::Pods(Api::V1alpha1, Method::Watch)),
            ("/Pods/GetPod", Route::Pods(Api::Documented, Method::Get)),
            ("/podsapi.v1.Node/Nothing", Route::Tower),
            ("/grpc.health.v1.Health/Check", Route::Tower),
        ] {
            assert_eq!(read("POST", path, &[GRPC]).unwrap().route, Ok(route), "{path}");
        }
    }

    #[test]
    fn unknown_services_and_methods_are_unimplemented() {
        for (path, text) in [
            ("/v1.Pods/ListPods", "unknown service v1.Pods"),
            ("/Pods/List", "unknown method List for service Pods"),
            ("/ListPods", "malformed method name \"/ListPods\""),
            ("*", "malformed method name \"*\""),
            ("/", "malformed method name \"/\""),
        ] {
            let status = read("POST", path, &[GRPC]).unwrap().route.unwrap_err();
            assert_eq!((status.code, &*status.message), (Code::Unimplemented, text));
        }
    }

    #[test]
    fn what_is_not_grpc_is_refused() {
        let path = "/Pods/ListPods";
        assert_eq!(read("GET", path, &[GRPC]).unwrap_err(), Refusal::Method);
        for content_type in ["application/json", "application/grpcx", "application/grp", ""] {
            let fields = [("content-type", content_type)];
            assert_eq!(read("POST", path, &fields).unwrap_err(), Refusal::ContentType, "{content_type}");
        }
        assert_eq!(read("POST", path, &[]).unwrap_err(), Refusal::ContentType);
        for content_type in ["application/grpc+proto", "application/grpc;v=1", "Application/gRPC"] {
            assert!(read("POST", path, &[("content-type", content_type)]).is_ok(), "{content_type}");
        }
    }

    #[test]
    fn an_encoding_other_than_identity_is_unimplemented() {
        // GRPC-7
        let head = read("POST", "/Pods/ListPods", &[GRPC, ("grpc-encoding", "snappy")]).unwrap();
        assert_eq!(head.route.unwrap_err().code, Code::Unimplemented);
        assert!(
            read("POST", "/Pods/ListPods", &[GRPC, ("grpc-encoding", "identity")]).unwrap().route.is_ok()
        );
    }

    #[test]
    fn metadata_is_collected_and_repetition_noticed() {
        let fields = [
            GRPC,
            ("grpc-timeout", "1500m"),
            ("x-kubernetes-fieldmask", "metadata.name"),
            ("x-pods-api-namespace", "a"),
            ("x-pods-api-namespace", "b"),
            ("x-other", "c"),
        ];
        let head = read("POST", "/Pods/ListPods", &fields).unwrap();
        assert_eq!(head.timeout, Some(Duration::from_millis(1500)));
        assert_eq!(head.metadata.field_mask.as_deref(), Some(&b"metadata.name"[..]));
        assert_eq!(head.metadata.repeated, Some("x-pods-api-namespace"));
        let head = read("POST", "/Pods/ListPods", &[GRPC, ("grpc-timeout", "soon")]).unwrap();
        assert_eq!(head.route.unwrap_err().code, Code::Internal);
    }
}
