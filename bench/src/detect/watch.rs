//! A watch that notes when it was told what of each container.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use pods_api_proto::k8s::io::api::core::v1::Pod;
use pods_api_proto::v1alpha1::{EventType, WatchPodsEvent};
use prost::Message as _;

use super::judge::{Claim, Said};
use crate::client::{Call, Event};
use crate::load::{Channels, Target};

/// Whole pods of this bench are smaller.
const CAPTURE_BYTES: usize = 64 * 1024;
const STOP_CHECK: Duration = Duration::from_millis(100);

/// The watch, on a thread of its own that does nothing else, so that a claim is noted when it arrives.
pub(super) struct ClaimWatch {
    stop: Arc<AtomicBool>,
    claims: Receiver<Claim>,
    thread: Option<JoinHandle<anyhow::Result<()>>>,
}

impl ClaimWatch {
    pub(super) fn open(target: &Target) -> anyhow::Result<Self> {
        let mut target = target.clone();
        target.settings.capture_bytes = CAPTURE_BYTES;
        let stop = Arc::new(AtomicBool::new(false));
        let (sender, claims) = std::sync::mpsc::channel();
        let thread = std::thread::Builder::new().name("watch".to_owned()).spawn({
            let stop = Arc::clone(&stop);
            move || run(&target, &stop, &sender)
        })?;
        Ok(Self { stop, claims, thread: Some(thread) })
    }

    /// The next claim, if one comes before `deadline`.
    pub(super) fn next(&mut self, deadline: Instant) -> anyhow::Result<Option<Claim>> {
        match self.claims.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(claim) => Ok(Some(claim)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => {
                let ended = self.thread.take().context("the watch has failed before")?.join();
                ended.ok().context("the watch's thread has panicked")??;
                anyhow::bail!("the watch has ended")
            }
        }
    }
}

impl Drop for ClaimWatch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(target: &Target, stop: &AtomicBool, claims: &Sender<Claim>) -> anyhow::Result<()> {
    let mut channels = Channels::connect(target, 1)?;
    anyhow::ensure!(channels.start(0, &Call::watch(), 0), "no room for a watch");
    channels.flush(0)?;
    while !stop.load(Ordering::Relaxed) {
        let ready = channels.wait(Some(STOP_CHECK))?;
        for channel in &ready {
            let mut ended = None;
            channels.read(*channel, &mut |event| match event {
                // Err: nobody asks any more.
                Event::Message { head, .. } => {
                    claims_of(head, Instant::now()).into_iter().for_each(|claim| drop(claims.send(claim)));
                }
                Event::End { status, message, .. } => ended = Some((status, message.to_owned())),
            })?;
            if let Some((status, message)) = ended {
                anyhow::bail!("the watch ended: code {status}, {message}");
            }
            channels.flush(*channel)?;
        }
        channels.done_with(ready);
    }
    Ok(())
}

/// What an event says of the containers that its pod has, or had.
fn claims_of(message: &[u8], at: Instant) -> Vec<Claim> {
    let Ok(event) = WatchPodsEvent::decode(message) else { return Vec::new() };
    let Ok(pod) = Pod::decode(event.pod.clone()) else { return Vec::new() };
    let uid = pod.metadata.unwrap_or_default().uid.unwrap_or_default();
    let claim = |container, said| Claim { at, uid: uid.clone(), container, said };
    if event.r#type() == EventType::Deleted {
        return vec![claim(String::new(), Said::PodIsGone)];
    }
    let statuses = pod.status.unwrap_or_default().container_statuses;
    let claims = statuses.into_iter().filter_map(|status| {
        let id = |id: Option<String>| {
            let id = id.unwrap_or_default();
            id.rsplit("://").next().unwrap_or_default().to_owned()
        };
        let state = status.state?;
        match (state.running, state.terminated) {
            (Some(_), _) => Some(claim(id(status.container_id), Said::Runs)),
            (None, Some(ended)) => {
                Some(claim(id(ended.container_id.or(status.container_id)), Said::HasEnded))
            }
            (None, None) => None,
        }
    });
    claims.collect()
}
