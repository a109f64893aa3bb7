use super::super::cgroups::{Cgroup, CgroupTable};
use super::super::processes::ProcessTable;
use super::super::view::Tables;
use super::*;
use crate::pod::testing::{PodSketch, snapshot_of};
use crate::pod::{ByteMeter, PodStore, Published, StoreConfig};
use std::process::{Child, Command, Stdio};

const UID: &str = "1e2d3c4b-0001-0002-0003-000000000004";

fn membership(text: &str, pods: &[&str]) -> Membership {
    let sketches: Vec<_> = pods.iter().map(|uid| PodSketch::new(uid)).collect();
    let (root, namespace) = (CgroupRoot::default(), CgroupNamespace::default());
    Membership::of(&text.replace("<uid>", UID), &root, &namespace, &snapshot_of(&sketches))
}

fn is_in(uid: &str, container: &str) -> Membership {
    Membership::In(Place { pod: uid.into(), container: Some(container.into()) })
}

#[test]
fn hierarchies_are_asked_in_their_order() {
    // Rules D.1.7 and D.3.1, CG-6: v2, then v1 by controller; the first that names a pod counts.
    let pod = is_in(UID, "c1");
    assert_eq!(membership("0::/kubepods/pod<uid>/c1\n", &[]), pod);
    assert_eq!(membership("4:memory:/kubepods/pod<uid>/c1\n1:cpu,cpuacct:/\n0::/\n", &[]), pod);
    let both = "9:name=systemd:/kubepods/podother/x\n3:pids:/kubepods/pod<uid>/c1\n0::/user.slice\n";
    assert_eq!(membership(both, &["other"]), pod);
    // A hierarchy that is not asked names nobody.
    assert_eq!(membership("5:freezer:/kubepods/pod<uid>/c1\n0::/\n", &[]), Membership::Outside("/".into()));
}

#[test]
fn what_cannot_be_made_sure_is_not_taken_for_the_host() {
    let host = "0::/system.slice/sshd.service\n1:cpu:/\n";
    assert_eq!(membership(host, &[]), Membership::Outside("/system.slice/sshd.service".into()));
    let cut_off = "/../../system.slice/sshd.service";
    assert_eq!(membership(&format!("0::{cut_off}\n"), &[]), Membership::Unsure(cut_off.into()));
    let odd = "/kubepods/pododd/c1";
    assert_eq!(membership(&format!("0::{odd}\n"), &[]), Membership::Unsure(odd.into()));
    assert_eq!(membership(&format!("0::{odd}\n"), &["odd"]), is_in("odd", "c1"));
    for nothing in ["", "nonsense", "5:freezer:/\n"] {
        assert_eq!(membership(nothing, &[]), Membership::Unsure(String::new()), "{nothing}");
    }
    let deep = format!("/kubepods/pod{UID}{}", "/x".repeat(2048));
    assert_eq!(membership(&format!("0::{deep}\n"), &[]), Membership::Unsure(deep));
}

#[test]
fn cgroup_that_a_user_named_like_a_pods_makes_nobody_of_that_pod() {
    let theirs = "/user.slice/user-1000.slice/user@1000.service";
    let forged = format!("{theirs}/kubepods/pod{UID}/c1");
    let unsure = Membership::Unsure(forged.clone());
    assert_eq!(membership(&format!("0::{forged}\n"), &[UID]), unsure);
    // In a hierarchy of v1, too, and whatever the others say.
    assert_eq!(membership(&format!("1:name=systemd:{forged}\n0::/\n"), &[UID]), unsure);
    assert_eq!(membership(&format!("4:memory:/kubepods/pod{UID}/c1\n0::{forged}\n"), &[UID]), unsure);
    // What is not named so is the host's.
    let session = format!("{theirs}/app.slice/shell.scope");
    assert_eq!(membership(&format!("0::{session}\n"), &[UID]), Membership::Outside(session));
}

struct Fixture {
    locator: Locator,
    view: Arc<KernelView>,
}

impl Fixture {
    fn new() -> Self {
        let published = Arc::new(Published::new(Arc::default()));
        let (store, thread) =
            PodStore::spawn(&StoreConfig::default(), published, ByteMeter::default(), ()).unwrap();
        thread.stop().unwrap();
        let view = KernelView::new().unwrap();
        Self { locator: Locator::new(CgroupRoot::default(), view.clone(), store), view }
    }

    fn process(&self, number: u32) -> Located {
        self.locator.process(Pid::new(number.cast_signed()).unwrap(), &Snapshot::default())
    }
}

/// Ends and waits for the child, also when the test fails.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn process_of_no_pod_and_thread_are_told_apart() {
    let fixture = Fixture::new();
    let Located::NotYet(reason) = fixture.process(std::process::id()) else { panic!("no pod") };
    assert!(reason.contains("runs in no pod: its cgroup is /"), "{reason}");
    let (said, tid) = std::sync::mpsc::channel();
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        said.send(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
        let _ = stopped.recv();
    });
    let tid = tid.recv().unwrap();
    let expected = format!("{tid} is a thread of process {}; look that one up", std::process::id());
    assert_eq!(fixture.process(tid.cast_unsigned()), Located::Never(expected));
    drop(stop);
    thread.join().unwrap();
}

#[test]
fn ended_process_is_answered_from_what_events_told() {
    let fixture = Fixture::new();
    let mut child = Ended(Command::new("true").stdin(Stdio::null()).spawn().unwrap());
    child.0.wait().unwrap();
    let number = child.0.id();
    let gone = format!("there is no process {number} in this server's PID namespace");
    assert_eq!(fixture.process(number), Located::Never(gone));
    let pid = Pid::new(number.cast_signed()).unwrap();
    let (mut cgroups, mut processes) = (CgroupTable::default(), ProcessTable::default());
    let path = format!("/kubepods/pod{UID}/c1");
    cgroups.insert(CgroupId(3), Cgroup::of(&path, &CgroupRoot::default()).unwrap());
    processes.insert(pid, CgroupId(3));
    let (cgroups, processes) = (cgroups.cgroups().clone(), processes.processes().clone());
    fixture.view.publish(Tables { cgroups, processes, is_v2: true });
    let place = Place { pod: UID.into(), container: Some("c1".into()) };
    assert_eq!(fixture.process(number), Located::In(place.clone()));
    assert_eq!(fixture.locator.cgroup(CgroupId(3), &Snapshot::default()), Located::In(place));
    assert!(matches!(fixture.locator.cgroup(CgroupId(4), &Snapshot::default()), Located::NotYet(_)));
    assert!(fixture.view.take_scan_wish(), "one that nobody told of is looked for");
}

// PID-1
#[test]
fn process_that_ends_during_the_look_is_unknown() {
    let fixture = Fixture::new();
    let mut child = Ended(Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().unwrap());
    let pid = Pid::new(child.0.id().cast_signed()).unwrap();
    let pidfd =
        pidfd_open(rustix::process::Pid::from_raw(pid.as_raw()).unwrap(), PidfdFlags::empty()).unwrap();
    assert_ne!(fixture.locator.identify(pid, pidfd.as_fd()), Identity::Unknown);
    child.0.kill().unwrap();
    child.0.wait().unwrap();
    // Its number may be this test's own by now, as far as the pidfd tells.
    let own = Pid::new(std::process::id().cast_signed()).unwrap();
    assert_eq!(fixture.locator.identify(own, pidfd.as_fd()), Identity::Unknown);
}

#[test]
fn path_that_names_no_pod_never_will() {
    let fixture = Fixture::new();
    let locate = |path: &str| fixture.locator.cgroup_path(path, &Snapshot::default());
    assert!(matches!(locate("/system.slice"), Located::Never(_)));
    let theirs = format!("/user.slice/user-1000.slice/user@1000.service/kubepods/pod{UID}");
    let Located::Never(reason) = locate(&theirs) else { panic!("a user's") };
    assert!(reason.contains("--cgroup-root must say where"), "{reason}");
    assert!(matches!(locate("/kubepods/pododd"), Located::NotYet(_)));
    let pod = Place { pod: UID.into(), container: None };
    assert_eq!(locate(&format!("0::/kubepods/pod{UID}")), Located::In(pod));
}
