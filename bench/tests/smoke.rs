//! The program itself: whole experiments with tiny counts, and what they leave behind.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

fn bench(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pods-bench")).args(arguments).output().unwrap()
}

fn stdout(output: &Output) -> String {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(output.status.success(), "{}{text}", String::from_utf8_lossy(&output.stderr));
    text
}

fn only_entry(directory: &Path) -> PathBuf {
    let entries: Vec<_> = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(entries.len(), 1, "{entries:?}");
    entries.into_iter().next().unwrap()
}

#[test]
fn comparison_is_kept_reported_and_checked() {
    let directory = tempfile::tempdir().unwrap();
    let results = directory.path().to_str().unwrap();
    let common = ["--smoke", "--pods", "10", "--pod-bytes", "3000", "--results", results];
    let only = ["--only", "get-1x1", "--only", "list", "--only", "fanout-100x1", "--only", "fanout-10x100"];
    stdout(&bench(&[&["compare"], &common[..], &only[..]].concat()));

    let kept = only_entry(directory.path());
    let run: Value = serde_json::from_slice(&std::fs::read(kept.join("run.json")).unwrap()).unwrap();
    let workloads = run["comparison"]["workloads"].as_array().unwrap();
    assert_eq!(workloads.len(), 6, "three of the names contain \"list\"");
    for workload in workloads {
        for entry in workload["entries"].as_array().unwrap() {
            assert_eq!(entry["failure"], Value::Null, "{entry}");
            let http2_only =
                ["fanout-10x100", "list-stock-windows"].contains(&workload["id"].as_str().unwrap());
            let samples = entry["samples"].as_array().unwrap();
            assert_eq!(samples.len(), usize::from(!(http2_only && entry["contender"] == "floor")), "{entry}");
            for sample in samples {
                assert_eq!(sample["failed"], 0);
                assert!(sample["operations"].as_u64().unwrap() > 0);
            }
        }
    }
    let fanout = workloads.iter().find(|workload| workload["id"] == "fanout-10x100").unwrap();
    let tonic =
        fanout["entries"].as_array().unwrap().iter().find(|entry| entry["contender"] == "tonic").unwrap();
    assert_eq!(tonic["samples"][0]["operations"], 2_000, "two changes to a thousand watches");

    // The same result as its own past: nothing changed beyond noise. Budgets of pods-api are not measured here.
    let kept = kept.to_str().unwrap();
    let budgets = concat!(env!("CARGO_MANIFEST_DIR"), "/budgets.toml");
    let text = stdout(&bench(&["report", kept, "--against", kept, "--budgets", budgets]));
    assert!(text.contains("within noise") && text.contains("not measured"), "{text}");
    let page = std::fs::read_to_string(Path::new(kept).join("index.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("tokio-uring"));
}

#[test]
fn missed_budget_is_named_and_fails_the_report() {
    let directory = tempfile::tempdir().unwrap();
    let results = directory.path().join("results");
    let arguments = ["compare", "--smoke", "--pods", "5", "--pod-bytes", "3000", "--only", "get-1x1"];
    stdout(&bench(&[&arguments[..], &["--results", results.to_str().unwrap()]].concat()));
    let budgets = directory.path().join("budgets.toml");
    let budget =
        "[[ratio]]\nworkload='get-1x1'\nof='tonic'\nto='floor'\nfigure='p50'\nat_most=0.0001\nwhy='test'\n";
    std::fs::write(&budgets, budget).unwrap();
    let kept = only_entry(&results);
    let output = bench(&["report", kept.to_str().unwrap(), "--budgets", budgets.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stdout).unwrap().contains("MISSED"));
}

#[test]
fn density_fits_growth_over_its_nodes() {
    let output = bench(&[
        "density", "--quick", "--json", "--server", "tonic", "--node", "10x6000", "--node", "40x6000",
        "--node", "5x15000",
    ]);
    let run: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(run["density"]["points"].as_array().unwrap().len(), 3);
    let series = run["density"]["series"].as_array().unwrap();
    for figure in ["list CPU µs", "get p50 µs", "event to one watch p50 µs", "resident MB"] {
        let series = series.iter().find(|series| series["figure"] == figure).unwrap();
        assert_eq!(series["points"].as_array().unwrap().len(), 2, "{series}");
        assert!(series["fit"]["exponent"].is_number());
    }
}

#[test]
fn nothing_is_left_behind() {
    let child = start_long_comparison();
    let pid = child.id();
    kill(&child, Signal::TERM);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stderr).unwrap().contains("interrupted"));
    assert_eq!((directories_of(pid), servers_of(pid)), (vec![], 0));
}

#[test]
fn servers_end_with_a_bench_that_is_killed() {
    let child = start_long_comparison();
    let pid = child.id();
    kill(&child, Signal::KILL);
    child.wait_with_output().unwrap();
    eventually("the servers end", || servers_of(pid) == 0);
    // Nobody was left to remove the directory.
    for directory in directories_of(pid) {
        std::fs::remove_dir_all(directory).unwrap();
    }
}

/// Starts a comparison of many rounds and waits until its servers run.
fn start_long_comparison() -> Child {
    let child = Command::new(env!("CARGO_BIN_EXE_pods-bench"))
        .args([
            "compare",
            "--smoke",
            "--rounds",
            "1000000",
            "--pods",
            "5",
            "--pod-bytes",
            "3000",
            "--only",
            "get-1x1",
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = child.id();
    eventually("the servers run", || servers_of(pid) == 3);
    child
}

fn kill(child: &Child, signal: Signal) {
    rustix::process::kill_process(rustix::process::Pid::from_child(child), signal).unwrap();
}

fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < deadline, "not within 30 s: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Temporary directories of the bench with this process ID, which is part of their name.
fn directories_of(pid: u32) -> Vec<PathBuf> {
    let prefix = format!("pods-bench-{pid}-");
    [PathBuf::from("/dev/shm"), std::env::temp_dir()]
        .iter()
        .filter_map(|parent| std::fs::read_dir(parent).ok())
        .flat_map(|entries| entries.flatten().map(|entry| entry.path()))
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&prefix)))
        .collect()
}

/// How many processes serve a socket in a directory of this bench.
fn servers_of(pid: u32) -> usize {
    let part = format!("pods-bench-{pid}-");
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter(|process| {
            let command = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
            let command = String::from_utf8_lossy(&command).into_owned();
            command.contains(&part) && command.contains("\0serve\0") && !command.contains("\0launch\0")
        })
        .count()
}

#[test]
fn wrong_usage_and_missing_servers_are_explained() {
    let output = bench(&["get", "--socket", "/nonexistent/pods.sock"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stderr).unwrap().contains("connecting to /nonexistent/pods.sock"));
    let output = bench(&["compare", "--smoke", "--only", "no-such-workload"]);
    assert!(String::from_utf8(output.stderr).unwrap().contains("no workload has such a name"));
    assert_eq!(bench(&["density", "--node", "0x5"]).status.code(), Some(2));
}

#[test]
fn quota_is_kept_beside_the_comparison() {
    let directory = tempfile::tempdir().unwrap();
    let results = directory.path().to_str().unwrap();
    let common = ["compare", "--smoke", "--pods", "5", "--pod-bytes", "3000", "--results", results];
    stdout(&bench(&[&common[..], &["--only", "get-1x1"]].concat()));
    let output = bench(&[&common[..], &["--only", "get-32x8", "--cpu-quota", "0.5"]].concat());
    if String::from_utf8_lossy(&output.stderr).contains("needs the right to create cgroups") {
        assert!(std::env::var_os("CI").is_none(), "cannot run: no cgroup with a CPU quota can be made");
        return;
    }
    stdout(&output);
    let run = std::fs::read(only_entry(directory.path()).join("run.json")).unwrap();
    let run: Value = serde_json::from_slice(&run).unwrap();
    assert_eq!(run["comparison"]["workloads"][0]["id"], "get-1x1");
    assert_eq!(run["limited"]["workloads"][0]["id"], "get-32x8");
    assert_eq!(run["limited"]["cpu_quota"], 0.5);
    assert!(run["limited"]["contenders"][0]["throttled"].is_number());
    assert_eq!(run["comparison"]["contenders"][0]["throttled"], Value::Null);
}

#[test]
fn detection_needs_a_server_that_follows_containers() {
    let output = bench(&["detect", "--ours", "/bin/true", "--deaths", "1"]);
    assert_eq!(output.status.code(), Some(1));
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.contains("does not follow a container runtime"), "{message}");
}
