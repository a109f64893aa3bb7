//! Asks a server for its pods: their UIDs are what GetPod load needs.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use bytes::Bytes;
use pods_api_proto::k8s::io::api::core::v1::Pod;
use pods_api_proto::v1alpha1::ListPodsResponse;
use prost::Message as _;

use super::channels::{Channels, Target};
use crate::client::{Call, Event};

const LIMIT: Duration = Duration::from_secs(20);

/// Returns the server's pods, as ListPods gives them.
pub(crate) fn list_pods(target: &Target) -> anyhow::Result<Vec<Bytes>> {
    let mut target = target.clone();
    target.settings.capture_bytes = usize::MAX;
    let mut channels = Channels::connect(&target, 1)?;
    if !channels.start(0, &Call::list(), 0) {
        bail!("no room for a ListPods");
    }
    channels.flush(0)?;
    let (mut response, mut ended) = (None, None);
    let deadline = Instant::now() + LIMIT;
    while ended.is_none() {
        let left = deadline.checked_duration_since(Instant::now()).context("no answer to ListPods")?;
        let ready = channels.wait(Some(left))?;
        if !ready.is_empty() {
            channels.read(0, &mut |event| match event {
                Event::Message { head, .. } => response = Some(Bytes::copy_from_slice(head)),
                Event::End { status, message, .. } => ended = Some((status, message.to_owned())),
            })?;
            channels.flush(0)?;
        }
        channels.done_with(ready);
    }
    if let Some((status, message)) = ended.filter(|(status, _)| *status != 0) {
        bail!("ListPods failed: code {status}, {message}");
    }
    let response = response.context("ListPods returned no message")?;
    Ok(ListPodsResponse::decode(response).context("decoding the ListPodsResponse")?.pods)
}

/// Returns the UID of an encoded pod.
pub(crate) fn uid_of(pod: &Bytes) -> anyhow::Result<String> {
    let decoded = Pod::decode(pod.clone()).context("decoding a pod")?;
    decoded.metadata.and_then(|metadata| metadata.uid).context("pod without a UID")
}
