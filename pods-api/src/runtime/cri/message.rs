//! Termination messages: what a container left in its message file, or last wrote to its log (rule C.2.7).
//!
//! The files belong to the kubelet, their content to the container: read at most a few KiB, from a regular file,
//! following no link, on a thread that may hang without anybody waiting for it.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pods_api_proto::runtime::v1 as cri;
use rustix::fs::OFlags;

const PATH_ANNOTATION: &str = "io.kubernetes.container.terminationMessagePath";
const POLICY_ANNOTATION: &str = "io.kubernetes.container.terminationMessagePolicy";
const FALLBACK_POLICY: &str = "FallbackToLogsOnError";
const CANNOT_RUN: &str = "ContainerCannotRun";
const MAX_MESSAGE_BYTES: u64 = 4096;
const MAX_LOG_BYTES: usize = 2048;
const MAX_LOG_LINES: usize = 80;
/// Enough log for the last 80 lines of 2 KiB in all, with the runtime's prefix on each of them.
const MAX_RAW_LOG_BYTES: u64 = 16 << 10;

/// The runtime's message and the container's own, joined. What cannot be read in time is left out.
pub(super) async fn termination_message(status: &cri::ContainerStatus, deadline: Duration) -> String {
    let runtime = status.message.clone();
    if status.state != cri::ContainerState::ContainerExited as i32 {
        return runtime;
    }
    let file = message_file(status);
    let log = is_log_wanted(status).then(|| PathBuf::from(&status.log_path));
    if file.is_none() && log.is_none() {
        return runtime;
    }
    let reading = tokio::task::spawn_blocking(move || {
        let message = file.and_then(|file| tail(&file, MAX_MESSAGE_BYTES).ok()).unwrap_or_default();
        if !message.is_empty() {
            return String::from_utf8_lossy(&message).into_owned();
        }
        let log = log.and_then(|log| tail(&log, MAX_RAW_LOG_BYTES).ok()).unwrap_or_default();
        last_lines(&log)
    });
    let own = match tokio::time::timeout(deadline, reading).await {
        Ok(Ok(own)) => own,
        Ok(Err(_)) | Err(_) => String::new(),
    };
    match (runtime.is_empty(), own.is_empty()) {
        (false, false) => format!("{runtime}: {own}"),
        (true, _) => own,
        (false, true) => runtime,
    }
}

/// Where on this host the container's message file is: what is mounted at the path that the pod named.
fn message_file(status: &cri::ContainerStatus) -> Option<PathBuf> {
    let path = status.annotations.get(PATH_ANNOTATION).filter(|path| !path.is_empty())?;
    let mount = status.mounts.iter().find(|mount| mount.container_path == *path)?;
    Some(PathBuf::from(&mount.host_path))
}

fn is_log_wanted(status: &cri::ContainerStatus) -> bool {
    status.annotations.get(POLICY_ANNOTATION).is_some_and(|policy| policy == FALLBACK_POLICY)
        && status.exit_code != 0
        && status.reason != CANNOT_RUN
        && !status.log_path.is_empty()
}

/// The last bytes of a regular file.
fn tail(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    // Without waiting for a writer where someone put a pipe, and without following where someone put a link.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let mut file = File::options().read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    file.seek(SeekFrom::Start(metadata.len().saturating_sub(max)))?;
    let mut content = Vec::new();
    file.take(max).read_to_end(&mut content)?;
    Ok(content)
}

/// The end of a log without the runtime's prefixes (`TIME STREAM TAG CONTENT`).
fn last_lines(log: &[u8]) -> String {
    let log = String::from_utf8_lossy(log);
    let lines: Vec<&str> = log.lines().collect();
    let mut text = String::new();
    for line in &lines[lines.len().saturating_sub(MAX_LOG_LINES)..] {
        let mut parts = line.splitn(4, ' ');
        let is_partial = parts.nth(2).is_some_and(|tag| tag.starts_with('P'));
        // A line cut off at the front has no content to show.
        let Some(content) = parts.next() else { continue };
        text.push_str(content);
        if !is_partial {
            text.push('\n');
        }
    }
    let start = text.ceil_char_boundary(text.len().saturating_sub(MAX_LOG_BYTES));
    text.split_off(start)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exited(directory: &Path, policy: &str, code: i32) -> cri::ContainerStatus {
        let path = |name: &str| directory.join(name).to_str().unwrap().to_owned();
        cri::ContainerStatus {
            state: cri::ContainerState::ContainerExited as i32,
            exit_code: code,
            annotations: [
                (PATH_ANNOTATION.to_owned(), "/dev/termination-log".to_owned()),
                (POLICY_ANNOTATION.to_owned(), policy.to_owned()),
            ]
            .into(),
            mounts: vec![cri::Mount {
                container_path: "/dev/termination-log".to_owned(),
                host_path: path("message"),
                ..Default::default()
            }],
            log_path: path("log"),
            ..Default::default()
        }
    }

    fn message(status: &cri::ContainerStatus) -> String {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(termination_message(status, Duration::from_secs(5)))
    }

    #[test]
    fn message_file_then_log() {
        // Rule C.2.7.
        let directory = tempfile::tempdir().unwrap();
        let write =
            |name: &str, content: &[u8]| std::fs::write(directory.path().join(name), content).unwrap();
        let status = |policy, code| exited(directory.path(), policy, code);
        assert_eq!(message(&status("File", 1)), "", "nothing there");
        write("log", b"2026-01-01T00:00:00Z stderr P half \n2026-01-01T00:00:00Z stderr F line\n");
        assert_eq!(message(&status("File", 1)), "");
        assert_eq!(message(&status(FALLBACK_POLICY, 0)), "");
        assert_eq!(message(&status(FALLBACK_POLICY, 1)), "half line\n");
        let cannot_run = cri::ContainerStatus { reason: CANNOT_RUN.to_owned(), ..status(FALLBACK_POLICY, 1) };
        assert_eq!(message(&cannot_run), "");
        write("message", b"out of ideas");
        assert_eq!(message(&status(FALLBACK_POLICY, 1)), "out of ideas");
        let both = cri::ContainerStatus { message: "oops".to_owned(), ..status("File", 0) };
        assert_eq!(message(&both), "oops: out of ideas");
        let running = cri::ContainerStatus { state: cri::ContainerState::ContainerRunning as i32, ..both };
        assert_eq!(message(&running), "oops");
    }

    #[test]
    fn only_the_end_is_read_and_only_of_a_regular_file() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("message");
        std::fs::write(&file, [vec![b'a'; 10_000], vec![b'z'; 4096]].concat()).unwrap();
        assert_eq!(message(&exited(directory.path(), "File", 1)), "z".repeat(4096));
        let secret = directory.path().join("secret");
        std::fs::rename(&file, &secret).unwrap();
        std::os::unix::fs::symlink(&secret, &file).unwrap();
        assert_eq!(message(&exited(directory.path(), "File", 1)), "");
        std::fs::remove_file(&file).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &file,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
            0,
        )
        .unwrap();
        assert_eq!(message(&exited(directory.path(), "File", 1)), "");
    }

    #[test]
    fn log_is_bounded_by_lines_and_bytes() {
        let line = |content: &str| format!("2026-01-01T00:00:00Z stdout F {content}\n");
        let many: String = (0..200).map(|number| line(&number.to_string())).collect();
        let text = last_lines(many.as_bytes());
        assert_eq!((text.lines().count(), text.lines().next()), (80, Some("120")));
        let long = last_lines(line(&"ä".repeat(5_000)).as_bytes());
        assert!(long.len() <= MAX_LOG_BYTES && long.starts_with('ä'));
        assert_eq!(last_lines(b"cut off"), "");
    }
}
