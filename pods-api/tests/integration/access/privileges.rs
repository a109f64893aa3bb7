//! What the server can still do once it serves. Needs root: others have nothing to give up.

use rustix::fs::{Gid, Mode, Uid, chmod, chown};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use super::manifest;
use crate::harness::{PATIENCE, Server, Setup, cannot_run, eventually, succeed};

const CHOWN: u64 = 1 << 0;
const SYS_PTRACE: u64 = 1 << 19;
const BPF: u64 = 1 << 39;
const NOBODY: u32 = 65534;

fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        cannot_run("only root has capabilities to give up");
    }
    is_root
}

/// The value of a field in the status of each thread.
fn of_each_thread(server: &Server, field: &str) -> BTreeSet<String> {
    let tasks = fs::read_dir(format!("/proc/{}/task", server.pid())).unwrap();
    let read = |task: fs::DirEntry| {
        let status = fs::read_to_string(task.path().join("status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
        line.trim_start_matches(':').trim().to_owned()
    };
    let values: Vec<_> = tasks.map(|task| read(task.unwrap())).collect();
    assert!(values.len() > 3, "workers, store, manifest and control");
    values.into_iter().collect()
}

#[test]
fn every_thread_keeps_only_the_capabilities_that_are_needed() {
    if !is_root() {
        return;
    }
    for (arguments, kept) in
        [(&[][..], SYS_PTRACE), (&["--socket-group=65534", "--socket-mode=0660"], SYS_PTRACE | CHOWN)]
    {
        for driver in ["--transport=io_uring", "--transport=epoll"] {
            let mut setup = Setup::new().examples().argument(driver);
            for argument in arguments {
                setup = setup.argument(argument);
            }
            let server = setup.start();
            succeed(&mut server.client_command(&["get", "pods", "-A"]));
            let only = |value: String| BTreeSet::from([value]);
            // Where the kernel programs are loaded, and their maps cannot be used without.
            let (_, report) = server.http("/readyz?verbose");
            let needs_bpf = report.contains("[+]ebpf ok: attached")
                && pods_api::kernel::does_map_access_need_capability();
            let kept = if needs_bpf { kept | BPF } else { kept };
            for set in ["CapPrm", "CapEff", "CapBnd"] {
                assert_eq!(of_each_thread(&server, set), only(format!("{kept:016x}")), "{set}");
            }
            for set in ["CapInh", "CapAmb"] {
                assert_eq!(of_each_thread(&server, set), only(format!("{:016x}", 0)), "{set}");
            }
            assert_eq!(of_each_thread(&server, "NoNewPrivs"), only("1".to_owned()));
            assert!(server.log().contains("capabilities given up"), "{}", server.log());
        }
    }
}

#[test]
fn the_socket_is_bound_again_with_its_group() {
    if !is_root() {
        return;
    }
    let server =
        Setup::new().examples().argument("--socket-group=65534").argument("--socket-mode=0660").start();
    let owned = |path: &Path| fs::metadata(path).ok().map(|status| (status.gid(), status.mode() & 0o777));
    assert_eq!(owned(&server.socket()), Some((NOBODY, 0o660)));
    fs::remove_file(server.socket()).unwrap();
    eventually("a new socket", PATIENCE, || owned(&server.socket()));
    assert_eq!(owned(&server.socket()), Some((NOBODY, 0o660)));
    succeed(&mut server.client_command(&["get", "pods", "-A"]));
}

#[test]
fn manifests_of_root_are_read_and_those_of_others_need_to_be_readable() {
    if !is_root() {
        return;
    }
    let server = Setup::new().start();
    let write = |file: &str, uid: &str, owner: u32, mode: u32| {
        // Moved in whole, so that it is never seen with another owner.
        let path = server.manifests().join(format!(".{file}"));
        fs::write(&path, manifest(uid, file.trim_end_matches(".json"), "s3cr3t", "1")).unwrap();
        chown(&path, Some(Uid::from_raw(owner)), Some(Gid::from_raw(owner))).unwrap();
        chmod(&path, Mode::from_raw_mode(mode)).unwrap();
        fs::rename(path, server.manifests().join(file)).unwrap();
    };
    write("of-root.json", "7c0f6a52-0000-4000-8000-0000000000d1", 0, 0o600);
    write("readable.json", "7c0f6a52-0000-4000-8000-0000000000d2", NOBODY, 0o644);
    write("secret.json", "7c0f6a52-0000-4000-8000-0000000000d3", NOBODY, 0o600);
    eventually("two of three", PATIENCE, || {
        let list = succeed(&mut server.client_command(&["get", "pods", "-A"]));
        (list.contains("of-root") && list.contains("readable")).then_some(())
    });
    eventually("the third to be reported", PATIENCE, || {
        let (_, checks) = server.http("/readyz?verbose");
        (checks.contains("secret.json") && checks.to_lowercase().contains("permission denied")).then_some(())
    });
}
