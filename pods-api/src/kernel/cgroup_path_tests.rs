//! The vectors of rule D.3.12 and of cases CG-*, and what must hold of any path.

use super::*;
use proptest::prelude::*;

const UID: &str = "1e2d3c4b-0001-0002-0003-000000000004";
const ESCAPED: &str = "1e2d3c4b_0001_0002_0003_000000000004";
const HASH: &str = "0123456789abcdef0123456789abcdef";
const ID: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaabbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";
const NODE: &str = "ccccccccccccccccccccccccccccccccdddddddddddddddddddddddddddddddd";

type Named = (String, Option<QosClass>, Option<String>);

fn named_below(root: &str, path: &str) -> Option<Named> {
    let path = path
        .replace("<uid>", UID)
        .replace("<u_>", ESCAPED)
        .replace("<hash>", HASH)
        .replace("<id>", ID)
        .replace("<node>", NODE);
    let pod = PodPath::parse(&path, &CgroupRoot::new(root))?;
    let uid = pod.uid.certain().map(|uid| uid.to_string()).unwrap_or_default();
    Some((uid, pod.qos, pod.container.map(str::to_owned)))
}

fn named(path: &str) -> Option<Named> {
    named_below("/", path)
}

fn is(uid: &str, qos: QosClass, container: Option<&str>) -> Option<Named> {
    Some((uid.to_owned(), Some(qos), container.map(str::to_owned)))
}

#[test]
fn vectors_of_the_rule_are_read() {
    // Rule D.3.12.
    use QosClass::{BestEffort, Burstable, Guaranteed};
    for (path, expected) in [
        (
            "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod<u_>.slice/cri-containerd-<id>.scope",
            is(UID, BestEffort, Some(ID)),
        ),
        ("/kubepods/burstable/pod<uid>/<id>", is(UID, Burstable, Some(ID))),
        (
            "/kubepods.slice/kubepods-pod<hash>.slice/crio-<id>.scope/container",
            is(HASH, Guaranteed, Some(ID)),
        ),
        ("/kubepods.slice/kubepods-pod<hash>.slice/crio-conmon-<id>.scope", is(HASH, Guaranteed, None)),
        (
            "/system.slice/docker-<node>.scope/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod<u_>.slice/cri-containerd-<id>.scope",
            is(UID, Guaranteed, Some(ID)),
        ),
        ("/system.slice/containerd.service", None),
        ("/kubepods.slice", None),
        ("/user.slice/podman-123.scope", None),
        (
            "/my_root.slice/my_root-kubepods.slice/my_root-kubepods-burstable.slice/my_root-kubepods-burstable-pod<u_>.slice",
            is(UID, Burstable, None),
        ),
        (
            "/../../kubepods-burstable.slice/kubepods-burstable-pod<u_>.slice/cri-containerd-<id>.scope",
            is(UID, Burstable, Some(ID)),
        ),
    ] {
        assert_eq!(named(path), expected, "{path}");
    }
}

#[test]
fn guaranteed_pods_have_no_qos_level() {
    // CG-4.
    assert_eq!(named("/kubepods.slice/kubepods-pod<u_>.slice"), is(UID, QosClass::Guaranteed, None));
    assert_eq!(named("/kubepods/pod<uid>"), is(UID, QosClass::Guaranteed, None));
    // Rule D.1.8: another partition between.
    assert_eq!(named("/kubepods/system/pod<uid>/<id>"), is(UID, QosClass::Guaranteed, Some(ID)));
}

#[test]
fn paths_seen_on_other_distributions_are_read() {
    // CG-2, CG-3, rule D.3.9.
    let burstable = is(UID, QosClass::Burstable, Some(ID));
    for path in [
        "/docker/<node>/kubelet/kubepods/burstable/pod<uid>/<id>",
        "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/kubelet-kubepods-burstable-pod<u_>.slice/cri-containerd-<id>.scope",
        "/k3s/kubepods/burstable/pod<uid>/<id>",
        "/system.slice/run-r1.service/kubepods/burstable/pod<uid>/<id>",
        "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<u_>.slice/docker-<id>.scope",
        "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<u_>.slice/<id>",
        "/foo.slice/foo-bar.slice/foo-bar-kubepods.slice/foo-bar-kubepods-burstable.slice/foo-bar-kubepods-burstable-pod<u_>.slice/crio-<id>.scope",
    ] {
        assert_eq!(named(path), burstable, "{path}");
    }
    assert_eq!(
        named("/kubepods/burstable/pod<hash>/<id>"),
        is(HASH, QosClass::Burstable, Some(ID)),
        "a manifest's hash keeps its form (rule D.3.6)"
    );
}

#[test]
fn every_form_of_input_is_taken() {
    // Rule D.3.1, CG-6.
    let expected = is(UID, QosClass::Burstable, Some(ID));
    for input in [
        "0::/kubepods/burstable/pod<uid>/<id>",
        "11:cpu,cpuacct:/kubepods/burstable/pod<uid>/<id>\n",
        "1:name=systemd:/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<u_>.slice/crio-<id>.scope",
        "0::/kubepods/burstable/pod<uid>/<id> (deleted)",
        "kubepods/burstable//pod<uid>/<id>/",
        "/sys/fs/cgroup/kubepods/burstable/pod<uid>/<id>",
        "/sys/fs/cgroup/memory/kubepods/burstable/pod<uid>/<id>/cgroup.procs",
    ] {
        assert_eq!(named(input), expected, "{input}");
    }
}

#[test]
fn literal_name_of_slice_runtime_and_id_is_split() {
    // Rule D.3.4a: also below another unit's cgroup.
    let expected = is(UID, QosClass::BestEffort, Some(ID));
    for path in [
        "/kubepods-besteffort-pod<u_>.slice:cri-containerd:<id>",
        "/system.slice/containerd.service/kubepods-besteffort-pod<u_>.slice:cri-containerd:<id>",
        "0::/system.slice/containerd.service/kubepods-besteffort-pod<u_>.slice:cri-containerd:<id>/child",
    ] {
        assert_eq!(named(path), expected, "{path}");
    }
    assert_eq!(named("/user.slice:cri-containerd:<id>"), None);
}

#[test]
fn monitors_and_units_are_no_containers() {
    // Rules D.2.3 and D.3.8, CG-6.
    for last in ["crio-conmon-<id>.scope", "crio-conmon-<id>", "init.scope", "dbus.service", "system.slice"] {
        let path = format!("/kubepods/burstable/pod<uid>/{last}");
        assert_eq!(named(&path), is(UID, QosClass::Burstable, None), "{path}");
    }
    // What a container makes below itself belongs to it.
    for below in ["init.scope", "container", "docker/<node>", "kubepods/podother/x"] {
        let path = format!("/kubepods/burstable/pod<uid>/<id>/{below}");
        assert_eq!(named(&path), is(UID, QosClass::Burstable, Some(ID)), "{path}");
    }
}

#[test]
fn depth_tells_a_containers_own_cgroup_from_those_below() {
    let depth = |path: &str| PodPath::parse(path, &CgroupRoot::default()).unwrap().depth;
    assert_eq!(depth("/kubepods/podx"), 0);
    assert_eq!(depth("/kubepods/podx/c1"), 0);
    assert_eq!(depth("/kubepods/podx/c1/a/b"), 2);
    assert_eq!(depth("/kubepods/podx/init.scope"), 1);
    assert_eq!(depth("/kubepods-podx.slice:crio:c1"), 0);
    assert_eq!(depth("/kubepods-podx.slice:crio:c1/a"), 1);
}

#[test]
fn outermost_pod_wins_even_if_nobody_knows_it() {
    let path = "/kubepods/pododd/c1/kubepods/pod<uid>/<id>".replace("<uid>", UID);
    let pod = PodPath::parse(&path, &CgroupRoot::default()).unwrap();
    assert_eq!((pod.uid, pod.uid.certain()), (UidText::Verbatim("odd"), None));
    assert_eq!(pod.container, Some("c1"));
}

#[test]
fn directories_above_pods_are_told_from_others() {
    let leads = |path: &str, root: &str| leads_to_pods(path, &CgroupRoot::new(root));
    for path in [
        "/kubepods",
        "/kubepods/burstable",
        "/a/kubelet-kubepods.slice",
        "/kubepods.slice/kubepods-burstable.slice",
    ] {
        assert!(leads(path, "/"), "{path}");
    }
    for path in ["/system.slice", "/kubepods2", "/xkubepods.slice"] {
        assert!(!leads(path, "/"), "{path}");
    }
    // The way to the root, the root, and what is a pod's parent below it.
    for path in ["/a", "/a/n", "/a/n/kubepods"] {
        assert!(leads(path, "/a/n"), "{path}");
    }
    for path in ["/kubepods", "/a/kubepods", "/a/n/other"] {
        assert!(!leads(path, "/a/n"), "{path}");
    }
    assert!(leads("/kubepods", "/kubepods") && leads("/kubepods/burstable", "/kubepods"));
}

#[test]
fn root_hides_the_outer_clusters_pod() {
    let outer = "/kubepods/besteffort/pod<hash>/<node>";
    let inner = format!("{outer}/kubelet/kubepods/burstable/pod<uid>/<id>");
    let root = outer.replace("<hash>", HASH).replace("<node>", NODE);
    assert_eq!(named(&inner), is(HASH, QosClass::BestEffort, Some(NODE)));
    assert_eq!(named_below(&root, &inner), is(UID, QosClass::Burstable, Some(ID)));
    assert_eq!(named_below(&root, outer), None);
    assert_eq!(named_below(&root, "/kubepods/burstable/pod<uid>/<id>"), None, "not below the root");
    // The kubelet's --cgroup-root, and the root of the pods themselves.
    let path = "/kubelet/kubepods/burstable/pod<uid>/<id>";
    for root in ["/kubelet", "kubelet/", "/kubelet/kubepods"] {
        assert_eq!(named_below(root, path), is(UID, QosClass::Burstable, Some(ID)), "{root}");
    }
    assert_eq!(
        named_below("/kubelet", "/../kubepods/pod<uid>/<id>"),
        None,
        "nobody sees whether it is below"
    );
}

#[test]
fn what_users_make_in_their_slice_names_no_pod() {
    // systemd delegates user@1000.service to that user, who makes and names what is below.
    let theirs = "/user.slice/user-1000.slice/user@1000.service";
    let forms = [
        "kubepods/burstable/pod<uid>/<id>",
        "kubepods.slice/kubepods-pod<u_>.slice/crio-<id>.scope",
        "app.slice/kubepods-pod<u_>.slice:crio:<id>",
        // A node of the user's own, whose place must be given.
        "user.slice/docker-<node>.scope/kubelet/kubepods/pod<uid>/<id>",
    ];
    for above in [theirs.to_owned(), format!("/docker/<node>{theirs}"), format!("/../..{theirs}")] {
        for path in forms.map(|form| format!("{above}/{form}")) {
            assert_eq!(named(&path), None, "{path}");
            let path = path.replace("<uid>", UID).replace("<u_>", ESCAPED).replace("<id>", ID);
            assert!(PodPath::is_of_user(&path, &CgroupRoot::default()), "{path}");
        }
    }
    let node = format!("{theirs}/user.slice/docker-{NODE}.scope");
    let path = format!("{theirs}/{}", forms[3]);
    assert!(named_below(&node, &path).is_some(), "the root that was given is trusted");
    for path in [format!("{theirs}/session.slice/x.service"), format!("/kubepods/pod{UID}/{ID}{theirs}")] {
        assert!(!PodPath::is_of_user(&path, &CgroupRoot::default()), "{path}");
    }
    assert!(named("/kubepods/pod<uid>/<id>/user.slice/x").is_some(), "within a pod it is the pod's");
}

#[test]
fn siblings_are_seen_from_a_private_cgroup_namespace() {
    // From /kubepods/burstable/podA/a, all others begin with `..`.
    let of = |qos| Some((UID.to_owned(), qos, Some(ID.to_owned())));
    assert_eq!(named("/../../pod<uid>/<id>"), of(None));
    assert_eq!(named("/../../../besteffort/pod<uid>/<id>"), of(Some(QosClass::BestEffort)));
    assert_eq!(named("/../../podman/<id>"), None);
    assert_eq!(named("/../../docker/pod<uid>/<id>"), None);
    assert_eq!(named("/pod<uid>/<id>"), None, "nothing is hidden, and there is no kubepods");
}

#[test]
fn unusual_uids_are_compared_with_known_ones_instead_of_unescaped() {
    // Rule D.3.5, CG-1.
    let systemd =
        PodPath::parse("/kubepods.slice/kubepods-podmy_pod_1.slice/crio-c1.scope", &CgroupRoot::default());
    let systemd = systemd.unwrap();
    assert_eq!(systemd.uid.certain(), None);
    assert!(systemd.uid.names("my_pod-1") && systemd.uid.names("my_pod_1") && systemd.uid.names("my-pod-1"));
    assert!(!systemd.uid.names("my_pod_2") && !systemd.uid.names("my_pod_1x"));
    let cgroupfs = PodPath::parse("/kubepods/podmy_pod_1/c1", &CgroupRoot::default()).unwrap();
    assert!(cgroupfs.uid.names("my_pod_1") && !cgroupfs.uid.names("my-pod-1"));
    // A UID that holds "pod" (rule D.3.10) is read all the same.
    let pod = PodPath::parse("/kubepods.slice/kubepods-podpodpod.slice", &CgroupRoot::default()).unwrap();
    assert!(pod.uid.names("podpod"));
}

#[test]
fn what_is_too_long_or_empty_names_nothing() {
    let long = format!("/kubepods/pod{UID}/{}", "x/".repeat(MAX_PATH_BYTES));
    for path in ["", "/", "::", "0::", "0::/", "/kubepods/pod", "/kubepods/kubepods-pod.slice", &long] {
        assert_eq!(named(path), None, "{path:.40}");
    }
}

proptest! {
    /// The kubelet's two drivers and each runtime's naming, above any prefix and below anything.
    #[test]
    fn any_pod_is_found_wherever_it_lies(
        uid in "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|[0-9a-f]{32}",
        id in "[0-9a-f]{32,64}",
        qos in 0usize..3,
        root in proptest::collection::vec("[a-z]{1,8}", 0..3),
        below in proptest::collection::vec("[a-z.:]{1,12}", 0..4),
        driver in 0usize..3,
        prefix in 0usize..4,
    ) {
        let (part, class) = [
            (None, QosClass::Guaranteed),
            (Some("burstable"), QosClass::Burstable),
            (Some("besteffort"), QosClass::BestEffort),
        ][qos];
        prop_assume!(root.iter().all(|part| !part.starts_with("pod") && part != "user"));
        let mut logical: Vec<String> = root;
        logical.push("kubepods".to_owned());
        logical.extend(part.map(str::to_owned));
        logical.push(format!("pod{uid}"));
        let prefix = CONTAINER_PREFIXES[prefix];
        let path = match driver {
            0 => format!("/{}/{id}", logical.join("/")),
            1 => {
                let escaped: Vec<_> = logical.iter().map(|part| part.replace('-', "_")).collect();
                let slices: Vec<_> = (1..=escaped.len()).map(|n| escaped[..n].join("-") + ".slice").collect();
                format!("/{}/{prefix}{id}.scope", slices.join("/"))
            }
            _ => {
                let escaped: Vec<_> = logical.iter().map(|part| part.replace('-', "_")).collect();
                format!("/{}.slice:{}:{id}", escaped.join("-"), prefix.trim_end_matches('-'))
            }
        };
        let path = below.iter().fold(path, |path, part| format!("{path}/{part}"));
        let whole = CgroupRoot::default();
        let pod = PodPath::parse(&path, &whole).unwrap();
        prop_assert_eq!(pod.uid.certain(), Some(uid.as_str().into()));
        prop_assert!(pod.uid.names(&uid));
        prop_assert_eq!(pod.container, Some(&*id));
        prop_assert_eq!(pod.qos, Some(class));
        prop_assert_eq!(pod.depth, below.iter().filter(|part| *part != ".").count());
    }

    /// What comes below a container changes neither pod nor container.
    #[test]
    fn nothing_below_a_container_changes_what_it_is(below in "[a-z0-9:._/-]{0,80}") {
        let path = format!("/kubepods/burstable/pod{UID}/{ID}/{below}");
        let whole = CgroupRoot::default();
        let pod = PodPath::parse(&path, &whole).unwrap();
        prop_assert_eq!((pod.uid, pod.container), (UidText::Verbatim(UID), Some(ID)));
    }

    #[test]
    fn any_text_is_read_without_panic(text in ".{0,300}", root in ".{0,40}") {
        if let Some(pod) = PodPath::parse(&text, &CgroupRoot::new(&root)) {
            prop_assert!(pod.container.is_none_or(is_container_id));
        }
    }
}
