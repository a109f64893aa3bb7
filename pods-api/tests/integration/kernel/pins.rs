//! What others find in the bpf filesystem while an agent runs, and after it.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::can_load;
use super::pod::PodCgroups;
use crate::harness::{PATIENCE, Server, Setup, cannot_run, eventually};

const MAPS: [&str; 6] =
    ["pods_cgroups", "pods_counters", "pods_events", "pods_processes", "pods_scratch", "pods_tracked"];
const PROGRAMS: [&str; 7] =
    ["pods_attach", "pods_exec", "pods_exit", "pods_mkdir", "pods_oom", "pods_populated", "pods_rmdir"];

/// Mounts that one or more servers share, with a bpf filesystem of their own: what is pinned there is gone with them.
struct Mounts(std::process::Child);

impl Mounts {
    fn new() -> Self {
        let script = "mount -t bpf bpf /sys/fs/bpf && echo ready && read line";
        let mut child = Command::new("unshare")
            .args(["--mount", "--propagation", "private", "sh", "-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = String::new();
        let output = child.stdout.as_mut().unwrap();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut ready).unwrap();
        assert_eq!(ready, "ready\n");
        Self(child)
    }

    /// The directory of the pins, as seen from here.
    fn pins(&self) -> PathBuf {
        format!("/proc/{}/root/sys/fs/bpf/pods-api", self.0.id()).into()
    }

    fn pinned(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.pins()) else { return Vec::new() };
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// A server within them.
    fn server(&self) -> Server {
        self.setup().start()
    }

    fn setup(&self) -> Setup {
        let target = format!("--mount=/proc/{}/ns/mnt", self.0.id());
        Setup::new().within(&["nsenter", &target, "--"]).argument("--ebpf").argument("require")
    }

    fn run(&self, program: &str, arguments: &[&str]) -> String {
        let target = format!("--mount=/proc/{}/ns/mnt", self.0.id());
        let output = Command::new("nsenter").args([&target, "--", program]).args(arguments).output().unwrap();
        assert!(
            output.status.success(),
            "{program} {arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

impl Drop for Mounts {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// A text as bpftool shows it: by the name of its field, and as numbers, because Rust's bytes are no `char`s.
fn field(name: &str, text: &str) -> String {
    let numbers: Vec<_> = text.bytes().map(|byte| byte.to_string()).collect();
    format!("\"{name}\": [{},0", numbers.join(","))
}

fn all_names() -> Vec<String> {
    let mut names: Vec<_> = MAPS.iter().chain(&PROGRAMS).map(|name| (*name).to_owned()).collect();
    names.sort();
    names
}

#[test]
fn pins_are_there_while_the_server_runs_and_gone_after() {
    if !can_load() {
        return;
    }
    let mounts = Mounts::new();
    let mut server = mounts.server();
    assert_eq!(mounts.pinned(), all_names(), "programs and maps, and no attachment");
    assert!(server.stop().success());
    assert!(!mounts.pins().exists());
}

#[test]
fn second_server_runs_beside_the_pins_of_the_first() {
    if !can_load() {
        return;
    }
    let mounts = Mounts::new();
    let first = mounts.server();
    let mut second = mounts.server();
    let (_, report) = second.http("/readyz?verbose");
    assert!(report.contains("not pinned: another pods-api has its pins in /sys/fs/bpf/pods-api"), "{report}");
    assert!(second.stop().success());
    assert_eq!(mounts.pinned(), all_names(), "the first one's are untouched");
    let (_, report) = first.http("/readyz?verbose");
    assert!(report.contains("[+]ebpf ok: attached") && !report.contains("not pinned"), "{report}");
}

#[test]
fn pins_of_a_killed_server_are_replaced() {
    if !can_load() {
        return;
    }
    let mounts = Mounts::new();
    drop(mounts.server());
    assert_eq!(mounts.pinned(), all_names(), "it could not remove them");
    let mut server = mounts.server();
    let (_, report) = server.http("/readyz?verbose");
    assert!(!report.contains("not pinned"), "{report}");
    assert!(server.stop().success());
    assert!(!mounts.pins().exists());
}

#[test]
fn bpftool_shows_whose_a_cgroup_is() {
    if !can_load() {
        return;
    }
    let Some(bpftool) =
        ["/usr/sbin/bpftool", "/usr/bin/bpftool"].into_iter().find(|path| fs::exists(path).unwrap())
    else {
        // The virtual machines of other kernels have none, and need none.
        if !fs::exists("/etc/debian_version").unwrap() {
            return;
        }
        return cannot_run("no bpftool");
    };
    let mounts = Mounts::new();
    let server = mounts.setup().start();
    let cgroups = PodCgroups::new("bpftool");
    let mut child = cgroups.shell("read line");
    let uid = cgroups.pod().file_name().unwrap().to_string_lossy().trim_start_matches("pod").to_owned();
    let container = cgroups.container().file_name().unwrap().to_string_lossy().into_owned();
    let dump = ["map", "dump", "pinned", "/sys/fs/bpf/pods-api/pods_cgroups"];
    eventually("the container to be in the map", PATIENCE, || {
        mounts.run(bpftool, &dump).contains(&field("container_id", &container)).then_some(())
    });
    let text = mounts.run(bpftool, &dump);
    assert!(text.contains(&field("pod_uid", &uid)), "{text}");
    assert!(text.contains("\"version\": 1"), "{text}");
    let list = mounts.run(bpftool, &["prog", "list"]);
    assert!(PROGRAMS.iter().all(|name| list.contains(name)), "{list}");
    drop(child.stdin.take());
    child.wait().unwrap();
    cgroups.remove();
    eventually("the entry to go with its cgroup", PATIENCE, || {
        (!mounts.run(bpftool, &dump).contains(&field("container_id", &container))).then_some(())
    });
    drop(server);
}

#[test]
fn documented_reader_finds_the_pod() {
    use aya::maps::{HashMap, Map, MapData};
    use pods_api_common::{CgroupEntry, FLAG_CONTAINER};

    if !can_load() {
        return;
    }
    let mounts = Mounts::new();
    let server = mounts.server();
    let pinned = MapData::from_pin(mounts.pins().join("pods_cgroups")).unwrap();
    let map: HashMap<_, u64, CgroupEntry> = HashMap::try_from(Map::HashMap(pinned)).unwrap();
    let cgroups = PodCgroups::new("reader");
    let id = super::pod::id(cgroups.container()).0;
    let entry = eventually("the container to be in the map", PATIENCE, || map.get(&id, 0).ok());
    let container = cgroups.container().file_name().unwrap().to_string_lossy().into_owned();
    let uid = cgroups.pod().file_name().unwrap().to_string_lossy().trim_start_matches("pod").to_owned();
    let expected = CgroupEntry::new(&uid, Some(&container), None).unwrap();
    assert_eq!((entry, entry.flags), (expected, FLAG_CONTAINER));
    drop(server);
}
