//! `WhoAmI`: what the server knows of its caller. Every caller may ask, also one that no rule admits: it is told about
//! nobody but itself.

use super::caller::Caller;
use super::server::Shared;
use crate::access::Identity;
use crate::pod::{ContainerId, Record};
use pods_api_proto::k8s::io::api::core::v1::Pod;
use pods_api_proto::podsapi::v1::WhoAmIResponse;
use prost::Message as _;

/// The answer to `caller`.
pub(super) fn answer(shared: &Shared, caller: &Caller) -> WhoAmIResponse {
    let (peer, pods) = (&caller.peer, shared.store.load());
    let mut answer = WhoAmIResponse {
        pid: peer.pid.map_or(0, |pid| pid.as_raw()),
        uid: peer.uid,
        gid: peer.gid,
        known: peer.is_known(),
        executable: peer.executable.as_deref().unwrap_or_default().to_owned(),
        rule: caller
            .grant(&shared.policy, &shared.store)
            .map(|grant| grant.rule.to_string())
            .unwrap_or_default(),
        ..Default::default()
    };
    if let Identity::Pod { uid, container } = &peer.identity {
        answer.pod_uid = uid.to_string();
        if let Some(record) = pods.get(uid.as_str()) {
            answer.pod_namespace = record.namespace().to_string();
            answer.pod_name = record.name().to_string();
            if let Some(container) = container {
                answer.container_name = container_name(record, container).unwrap_or_default();
            }
        }
        answer.container_id = container.as_ref().map(ToString::to_string).unwrap_or_default();
    }
    answer
}

/// The name of the container with that ID in the pod's status, whose IDs begin with the runtime's scheme.
fn container_name(record: &Record, id: &ContainerId) -> Option<String> {
    let status = Pod::decode(record.pod_bytes()).ok()?.status?;
    let is_it = |full: &Option<String>| {
        full.as_deref().and_then(|full| full.split_once("://")).is_some_and(|(_, own)| own == id.as_str())
    };
    [status.init_container_statuses, status.container_statuses, status.ephemeral_container_statuses]
        .into_iter()
        .flatten()
        .find(|container| is_it(&container.container_id))
        .and_then(|container| container.name)
}
