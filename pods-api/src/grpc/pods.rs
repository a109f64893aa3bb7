//! ListPods, GetPod and the beginning of WatchPods. The answers are bytes as stored: nothing is encoded here.

use super::caller::Caller;
use super::counters::Api;
use super::head::Metadata;
use super::options::MaskCache;
use super::server::Shared;
use super::status::{Code, Status};
use crate::access::Grant;
use crate::watch::{Contract, SubscribeError, View, WatchOptions, Watcher};
use crate::wire::varint::Fields;
use bytes::Bytes;
use std::sync::Arc;

/// A whole answer: parts of one gRPC message, prefix included.
pub(super) type Body = smallvec::SmallVec<[Bytes; 4]>;

impl Shared {
    /// The pods, sorted by UID (rule E.4.3).
    pub(super) fn list(
        &self,
        metadata: &Metadata,
        masks: &mut MaskCache,
        grant: &Grant,
    ) -> Result<Body, Status> {
        self.require_ready()?;
        let (mask, selector) = (metadata.mask(masks, grant)?, metadata.selector(grant)?);
        let snapshot = self.store.load();
        let list = match selector {
            None => snapshot.masked_list_message(&mask),
            Some(selector) => snapshot.selected_list_message(&selector, &mask),
        };
        Ok(list.parts().iter().cloned().collect())
    }

    /// One pod by UID (rule E.4.4). The mask is judged first, so that it is refused whether or not the pod exists
    /// (rule F.1.7).
    pub(super) fn get(
        &self,
        metadata: &Metadata,
        masks: &mut MaskCache,
        grant: &Grant,
        message: &[u8],
    ) -> Result<Body, Status> {
        self.require_ready()?;
        let mask = metadata.mask(masks, grant)?;
        let uid = pod_uid(message)?;
        match self.store.load().get(uid).filter(|record| grant.shows_namespace(record.namespace())) {
            Some(record) => Ok(std::iter::once(record.masked_get_message(&mask)).collect()),
            None => Err(Status::new(Code::NotFound, format!("pod with UID {uid} not found"))),
        }
    }

    /// Begins a watch.
    pub(super) fn watch(
        &self,
        api: Api,
        metadata: &Metadata,
        masks: &mut MaskCache,
        caller: &Caller,
        grant: &Grant,
    ) -> Result<Watcher, Status> {
        self.require_ready()?;
        let contract = match api {
            Api::Documented => Contract::Documented,
            Api::V1alpha1 | Api::Node => Contract::V1alpha1,
        };
        let view = View::new(contract, &metadata.mask(masks, grant)?).below(&grant.ceiling);
        let options = WatchOptions {
            ring: self.watch_buffer,
            coalesce: metadata.coalesce()?,
            selector: metadata.selector(grant)?.map(Arc::new),
            caller: caller.for_display(),
        };
        self.hub.subscribe(view, options).map_err(|error| match error {
            SubscribeError::Closed => Status::new(Code::Unavailable, error.to_string()),
            SubscribeError::TooManyWatchers { .. } | SubscribeError::TooManyViews { .. } => {
                Status::new(Code::ResourceExhausted, error.to_string())
            }
        })
    }
}

/// The `podUID` of a GetPodRequest, borrowed: this is the hot path.
fn pod_uid(message: &[u8]) -> Result<&str, Status> {
    let malformed =
        |reason: String| Status::new(Code::Internal, format!("malformed GetPodRequest: {reason}"));
    let mut uid = "";
    for field in Fields::new(message) {
        let field = field.map_err(|error| malformed(error.to_string()))?;
        if let (1, Some(bytes)) = (field.number, field.bytes()) {
            uid = std::str::from_utf8(bytes).map_err(|_| malformed("podUID is not UTF-8".into()))?;
        }
    }
    Ok(uid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pods_api_proto::v1alpha1::GetPodRequest;
    use prost::Message as _;

    #[test]
    fn the_uid_of_a_request_is_read_as_prost_reads_it() {
        for uid in ["", "1e2d3c4b-0001-0002-0003-000000000004", "Ä"] {
            let request = GetPodRequest { pod_uid: uid.into() };
            assert_eq!(pod_uid(&request.encode_to_vec()), Ok(uid));
        }
        assert_eq!(pod_uid(&[0x12, 1, 0, 0x0a, 1, b'x']), Ok("x"), "an unknown field is passed over");
        assert_eq!(pod_uid(&[0x0a, 9]).unwrap_err().code, Code::Internal);
        assert_eq!(pod_uid(&[0x0a, 1, 0xff]).unwrap_err().code, Code::Internal);
    }
}
