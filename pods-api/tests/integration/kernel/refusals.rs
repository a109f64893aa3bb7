//! What the kernel or its surroundings may refuse: the server runs all the same, and says why in one line (BPF-2 to
//! BPF-6).

use super::can_load;
use crate::harness::{Server, Setup};

/// A server that was started through `script`, a shell command that ends in `exec "$@"`, in mounts of its own.
fn start(script: &str) -> Server {
    let wrapper = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh"];
    Setup::new().within(&wrapper).argument("--ebpf").argument("auto").start()
}

/// The one line of readiness about the kernel programs, which the log, the metric and `doctor` have to agree with.
#[track_caller]
fn verdict(server: &Server, state: &str) -> String {
    let (code, report) = server.http("/readyz?verbose");
    assert_eq!(code, 200, "it runs without: {report}");
    let lines: Vec<_> = report.lines().filter(|line| line.starts_with("[+]ebpf ok: ")).collect();
    assert_eq!(lines.len(), 1, "{report}");
    let verdict = lines[0].trim_start_matches("[+]ebpf ok: ").to_owned();
    let metric = format!("pods_api_kernel_ebpf_info{{state=\"{state}\"}} 1");
    let (_, metrics) = server.http("/metrics");
    assert!(metrics.contains(&metric), "{metrics}");
    if let Some(reason) = verdict.strip_prefix("not used: ") {
        let told = server.log().lines().filter(|line| line.contains(reason)).count();
        assert_eq!(told, 1, "{}", server.log());
        let doctor = server.client_of_admin(&["doctor"]);
        assert!(String::from_utf8_lossy(&doctor.stdout).contains(reason));
    }
    verdict
}

#[test]
fn without_capabilities_those_missing_are_named() {
    if !can_load() {
        return;
    }
    let server = start("exec setpriv --bounding-set=-sys_admin,-bpf,-perfmon \"$@\"");
    let verdict = verdict(&server, "capability");
    assert!(verdict.contains("CAP_BPF and CAP_PERFMON are missing"), "{verdict}");
}

#[test]
fn without_btf_its_file_is_named() {
    if !can_load() {
        return;
    }
    let server = start("mount -t tmpfs none /sys/kernel/btf && exec \"$@\"");
    let verdict = verdict(&server, "btf");
    assert!(verdict.contains("/sys/kernel/btf/vmlinux is absent"), "{verdict}");
}

#[test]
fn btf_of_something_else_is_no_panic() {
    if !can_load() {
        return;
    }
    let server = start(
        "mount -t tmpfs none /sys/kernel/btf && head -c 100000 /dev/urandom > /sys/kernel/btf/vmlinux && exec \"$@\"",
    );
    let verdict = verdict(&server, "btf");
    assert!(verdict.contains("is not understood"), "{verdict}");
}

#[test]
fn lockdown_is_seen_beforehand() {
    if !can_load() {
        return;
    }
    let server = start(
        "mount -t tmpfs none /sys/kernel/security && \
         echo 'none integrity [confidentiality]' > /sys/kernel/security/lockdown && exec \"$@\"",
    );
    let verdict = verdict(&server, "lockdown");
    assert!(verdict.contains("boot with lockdown=integrity"), "{verdict}");
}

#[test]
fn without_cgroup2_the_node_is_called_pure_v1() {
    if !can_load() {
        return;
    }
    let mount = super::pod::cgroup2_mount();
    let server = start(&format!("umount -R -l {} && exec \"$@\"", mount.display()));
    let verdict = verdict(&server, "cgroup_v1");
    assert!(verdict.contains("pure cgroup v1"), "{verdict}");
}

#[test]
fn tracefs_is_not_needed() {
    if !can_load() {
        return;
    }
    let script = "for each in /sys/kernel/tracing /sys/kernel/debug; do umount -l $each 2>/dev/null; done; exec \"$@\"";
    let server = start(script);
    let verdict = verdict(&server, "attached");
    assert!(verdict.starts_with("attached"), "{verdict}");
}

#[test]
fn small_memory_limit_for_locked_pages_is_raised_or_not_needed() {
    if !can_load() {
        return;
    }
    // Kernels before 5.11 count maps against it; `cargo xtask vm --kernel 5.10` has one.
    let server = start("ulimit -l 64 && exec \"$@\"");
    let verdict = verdict(&server, "attached");
    assert!(verdict.starts_with("attached"), "{verdict}");
}

#[test]
fn required_and_refused_is_a_failed_start() {
    if !can_load() {
        return;
    }
    let script = "mount -t tmpfs none /sys/kernel/btf && exec \"$@\"";
    let wrapper = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh"];
    let mut server = Setup::new().within(&wrapper).argument("--ebpf").argument("require").spawn();
    let status = server.wait();
    assert_eq!(status.code(), Some(1));
    let log = server.log();
    let last = log.lines().last().unwrap_or_default();
    assert!(last.starts_with("error: --ebpf require: /sys/kernel/btf/vmlinux is absent"), "{log}");
}

#[test]
fn switched_off_is_said_so() {
    let server = Setup::new().argument("--ebpf").argument("off").start();
    let verdict = verdict(&server, "off");
    assert_eq!(verdict, "not used: switched off by --ebpf off");
}
