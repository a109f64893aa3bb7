//! The thread `ingest`: takes changed pods out of a directory into which they are moved.

use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use rustix::fs::inotify;

use super::Pods;

/// Starts the thread; the directory is watched before this returns, so no later change is missed.
pub(super) fn spawn(directory: &Path, pods: Arc<Pods>) -> anyhow::Result<()> {
    let watched = directory.to_owned();
    let notifications = inotify::init(inotify::CreateFlags::CLOEXEC).context("starting inotify")?;
    inotify::add_watch(&notifications, directory, inotify::WatchFlags::MOVED_TO)
        .with_context(|| format!("watching {}", directory.display()))?;
    std::thread::Builder::new().name("ingest".to_owned()).spawn(move || {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(notifications, &mut buffer);
        while let Ok(event) = reader.next() {
            let Some(name) = event.file_name() else { continue };
            let path = watched.join(OsStr::from_bytes(name.to_bytes()));
            let uid = path.file_stem().and_then(OsStr::to_str).map(str::to_owned);
            // A file already replaced by its next revision reads as that revision; a removed one is skipped.
            if let (Some(uid), Ok(pod)) = (uid, std::fs::read(&path)) {
                pods.change(&uid, pod.into());
            }
        }
    })?;
    Ok(())
}
