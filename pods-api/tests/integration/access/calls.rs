//! Calls of every service on one connection, with the answers decoded.

use pods_api_proto::k8s::io::api::core::v1::Pod;
use pods_api_proto::podsapi::v1::lookup_request::Key;
use pods_api_proto::podsapi::v1::{
    LookupRequest, LookupResponse, WatchersRequest, WatchersResponse, WhoAmIRequest, WhoAmIResponse,
};
use pods_api_proto::v1alpha1::{EventType, GetPodRequest, GetPodResponse, ListPodsResponse, WatchPodsEvent};
use prost::Message;
use std::collections::HashMap;
use std::path::Path;

use crate::raw::{Answer, Raw};

/// Request metadata.
pub(super) type Fields<'a> = &'a [(&'a str, &'a str)];

/// What a call ended with when it was no success: the number of the status and its message.
pub(super) type Refused = (u32, String);

/// Both names of the service; List and Get have the same messages under both.
pub(super) const CONTRACTS: [&str; 2] = ["v1alpha1.Pods", "Pods"];

pub(super) struct Calls {
    raw: Raw,
    streams: HashMap<u32, Answer>,
}

/// One message of a watch: what kind of event, and the pod. The documented contract has no kinds.
#[derive(Debug)]
pub(super) struct Event {
    pub(super) kind: Option<EventType>,
    pub(super) pod: Pod,
}

impl Calls {
    pub(super) fn connect(socket: &Path) -> Self {
        Self::over(Raw::connect(socket))
    }

    pub(super) fn over(raw: Raw) -> Self {
        Self { raw, streams: HashMap::new() }
    }

    /// A call with one answer.
    pub(super) fn unary(
        &mut self,
        path: &str,
        message: &[u8],
        fields: Fields<'_>,
    ) -> Result<Vec<u8>, Refused> {
        let answer = self.raw.run(path, message, fields);
        match answer.field("grpc-status") {
            "0" => Ok(answer.messages().swap_remove(0)),
            code => Err((code.parse().unwrap(), answer.field("grpc-message").to_owned())),
        }
    }

    pub(super) fn list(&mut self, contract: &str, fields: Fields<'_>) -> Result<Vec<Pod>, Refused> {
        let bytes = self.unary(&format!("/{contract}/ListPods"), &[], fields)?;
        let pods = ListPodsResponse::decode(&*bytes).unwrap().pods;
        Ok(pods.iter().map(|pod| Pod::decode(&**pod).unwrap()).collect())
    }

    pub(super) fn get(&mut self, contract: &str, uid: &str, fields: Fields<'_>) -> Result<Pod, Refused> {
        let request = GetPodRequest { pod_uid: uid.into() }.encode_to_vec();
        let bytes = self.unary(&format!("/{contract}/GetPod"), &request, fields)?;
        Ok(Pod::decode(&*GetPodResponse::decode(&*bytes).unwrap().pod).unwrap())
    }

    pub(super) fn lookup(&mut self, key: Key) -> Result<LookupResponse, Refused> {
        let request = LookupRequest { key: Some(key), wait: None }.encode_to_vec();
        let bytes = self.unary("/podsapi.v1.Node/Lookup", &request, &[])?;
        Ok(LookupResponse::decode(&*bytes).unwrap())
    }

    pub(super) fn who_am_i(&mut self) -> WhoAmIResponse {
        let request = WhoAmIRequest {}.encode_to_vec();
        let bytes = self.unary("/podsapi.v1.Node/WhoAmI", &request, &[]).unwrap();
        WhoAmIResponse::decode(&*bytes).unwrap()
    }

    pub(super) fn watchers(&mut self) -> Result<WatchersResponse, Refused> {
        let request = WatchersRequest {}.encode_to_vec();
        let bytes = self.unary("/podsapi.v1.Node/Watchers", &request, &[])?;
        Ok(WatchersResponse::decode(&*bytes).unwrap())
    }

    /// Begins a watch.
    pub(super) fn watch(&mut self, contract: &str, fields: Fields<'_>) -> u32 {
        self.raw.call(&format!("/{contract}/WatchPods"), &[], fields)
    }

    /// Waits until a watch has had so many messages in all, and returns them all.
    #[track_caller]
    pub(super) fn events(&mut self, contract: &str, stream: u32, count: usize) -> Vec<Event> {
        self.raw.read_until(&[stream], count, &mut self.streams);
        let messages = self.streams[&stream].messages();
        assert_eq!(messages.len(), count, "a message too many");
        messages.into_iter().map(|bytes| Event::read(contract, &bytes)).collect()
    }
}

impl Event {
    fn read(contract: &str, bytes: &[u8]) -> Self {
        let (kind, pod) = if contract == "Pods" {
            (None, GetPodResponse::decode(bytes).unwrap().pod)
        } else {
            let event = WatchPodsEvent::decode(bytes).unwrap();
            (Some(event.r#type()), event.pod)
        };
        Self { kind, pod: Pod::decode(&*pod).unwrap() }
    }
}
