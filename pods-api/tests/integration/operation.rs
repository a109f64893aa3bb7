//! What an operator meets: exit codes, the log, the admin listener.

use std::os::unix::fs::symlink;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::Path;
use std::process::Output;

use crate::harness::{PATIENCE, Setup, binary, eventually};

/// Runs a server that is to end by itself, with these arguments and `socket`.
fn serve(socket: &Path, arguments: &[&str]) -> Output {
    let mut command = binary();
    command.args([
        "serve",
        "--admin",
        "none",
        "--cri-socket",
        "none",
        "--ebpf",
        "off",
        "--node-name",
        "node-1",
    ]);
    command.arg("--manifests").arg(socket.parent().unwrap()).arg("--socket").arg(socket).args(arguments);
    command.output().unwrap()
}

#[test]
fn what_another_start_would_not_change_exits_with_64() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    std::fs::create_dir(path("real")).unwrap();
    symlink(path("real"), path("link")).unwrap();
    std::fs::write(path("file"), "").unwrap();
    let group = ["--socket-group", "no-such-group", "--socket-mode", "0660"];
    for (socket, arguments, expected) in [
        (path("real/x.sock"), &group[..], "no group \"no-such-group\""),
        (path(&format!("real/{}", "n".repeat(81))), &[], "81 bytes"),
        (path("link/x.sock"), &[], "is a symbolic link"),
        (path("file/x.sock"), &[], "is not a directory"),
        (path("real/.."), &[], "not the path of a file"),
    ] {
        let output = serve(&socket, arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(64), "{said}");
        assert!(said.contains(expected), "{said}");
    }
}

// SOCK-2
#[test]
fn what_another_server_causes_exits_with_1() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("x.sock");
    let _other = UnixListener::bind(&socket).unwrap();
    let output = serve(&socket, &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("is already served by"));
}

// SOCK-5
#[test]
fn a_socket_taken_by_another_server_is_told_once_and_in_readyz() {
    let server = Setup::new().start();
    std::fs::remove_file(server.socket()).unwrap();
    let other = UnixListener::bind(server.socket()).unwrap();
    let report = eventually("the loss to be noticed", PATIENCE, || {
        let (code, report) = server.http("/readyz");
        (code == 503).then_some(report)
    });
    assert!(report.contains("[-]listener failed: clients cannot connect:"), "{report}");
    assert!(report.contains("is already served by"), "{report}");
    drop(other);
    eventually("the socket to be bound again", PATIENCE, || (server.http("/readyz").0 == 200).then_some(()));
    let log = server.log();
    assert_eq!(log.matches("socket cannot be bound again").count(), 1, "{log}");
    assert_eq!(log.matches("socket bound again").count(), 1, "{log}");
}

// MAN-5
#[test]
fn a_bad_manifest_is_named_once_with_its_line_and_without_its_values() {
    let text = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  containers:\n  - name: main\n    image: i\n    \
                env:\n    - name: PIN\n      value: 8675309\n";
    let server = Setup::new().manifest("web.yaml", text).start();
    let (_, report) = server.http("/readyz?verbose");
    let place =
        "web.yaml:10: spec.containers[0].env[0].value: expected a string (put it in quotes), found a number";
    assert!(report.contains(place), "{report}");
    assert_eq!(report.matches("web.yaml").count(), 1, "{report}");
    let log = server.log();
    let warned: Vec<_> = log.lines().filter(|line| line.contains("manifest is not valid")).collect();
    let [warning] = warned[..] else { panic!("{log}") };
    assert!(warning.contains(place) && warning.matches("web.yaml").count() == 1, "{warning}");
    for text in [report, log] {
        assert!(!text.contains("8675309"), "{text}");
    }
}

#[test]
fn metrics_can_be_scraped_as_open_metrics() {
    let server = Setup::new().examples().start();
    let (code, text) = server.http("/metrics");
    assert_eq!(code, 200);
    let last = text.lines().rfind(|line| line.starts_with("pods_api_publish_seconds_bucket{")).unwrap();
    let count = text.lines().find_map(|line| line.strip_prefix("pods_api_publish_seconds_count ")).unwrap();
    assert_eq!(last, format!("pods_api_publish_seconds_bucket{{le=\"+Inf\"}} {count}"));
    assert!(text.ends_with("# EOF\n"));
}

#[test]
fn a_misspelt_variable_is_warned_of_with_the_nearest() {
    let server =
        Setup::new().within(&["env", "PODS_API_SOKET=/run/x.sock", "PODS_API_BUILD_EBPF=auto"]).start();
    let log = server.log();
    let warned: Vec<_> = log.lines().filter(|line| line.contains("environment variable")).collect();
    let [warning] = warned[..] else { panic!("{log}") };
    assert!(warning.contains("PODS_API_SOKET") && warning.contains("PODS_API_SOCKET"), "{warning}");
}

#[test]
fn systemd_is_told_of_the_start_before_the_sources_have_delivered() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notify");
    let systemd = UnixDatagram::bind(&path).unwrap();
    systemd.set_read_timeout(Some(PATIENCE)).unwrap();
    let variable = format!("NOTIFY_SOCKET={}", path.display());
    let mut server = Setup::new().device_as_manifests().within(&["env", &variable]).spawn();
    let told = || {
        let mut buffer = [0; 1024];
        let length = systemd.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    };
    let started = told();
    assert!(started.contains("READY=1") && started.contains("STATUS=listening; not ready yet"), "{started}");
    assert_eq!(server.http("/readyz").0, 503);
    assert!(server.stop().success());
    assert!(told().contains("STOPPING=1"));
}
