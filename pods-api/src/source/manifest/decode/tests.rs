use super::*;
use pods_api_proto::k8s::io::api::core::v1::Pod;
use prost::Message as _;

fn decode_text(text: impl AsRef<[u8]>) -> Result<StaticPod, DecodeError> {
    let origin = Origin { node_name: &"node-1".into(), path: Path::new("/m/a.yaml") };
    decode(text.as_ref(), origin, |_| "2026-01-02T03:04:05.6Z".to_owned())
}

fn pod_of(text: impl AsRef<[u8]>) -> Pod {
    let decoded = decode_text(text).unwrap_or_else(|error| panic!("{error}"));
    Pod::decode(decoded.pod.pod).unwrap()
}

#[track_caller]
fn fails(text: impl AsRef<[u8]>, expected: &str) {
    match decode_text(text) {
        Ok(pod) => panic!("decoded as {}", pod.pod.name),
        Err(error) => assert_eq!(error.to_string(), expected),
    }
}

const MINIMAL: &str = "apiVersion: v1
kind: Pod
metadata:
  name: web
spec:
  containers:
  - name: c
    image: i
";

#[test]
fn a_manifest_becomes_a_pod_of_this_node() {
    let decoded = decode_text(MINIMAL).unwrap();
    assert_eq!(decoded.pod.name.as_str(), "web-node-1");
    assert_eq!(decoded.pod.namespace.as_str(), "default");
    assert_eq!(decoded.pod.uid.as_str().len(), 32);
    let pod = Pod::decode(decoded.pod.pod).unwrap();
    let metadata = pod.metadata.unwrap();
    assert_eq!(metadata.uid(), decoded.pod.uid.as_str());
    let annotations = metadata.annotations;
    assert_eq!(annotations["kubernetes.io/config.hash"], decoded.pod.uid.as_str());
    assert_eq!(annotations["kubernetes.io/config.source"], "file");
    assert_eq!(annotations["kubernetes.io/config.seen"], "2026-01-02T03:04:05.6Z");
    assert_eq!(pod.spec.unwrap().node_name(), "node-1");
    assert_eq!(pod.status.unwrap().phase(), "Pending");
    // Rule A.3.11.
    assert!(metadata.owner_references.is_empty());
    assert_eq!(metadata.resource_version, None);
}

#[test]
fn json_is_told_from_yaml_by_its_first_byte() {
    // Rule A.2.1: what is legal in YAML only is an error after `{`.
    let json = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[{"name":"c","image":"i"}]}}"#;
    assert_eq!(decode_text(format!("\n\t {json}\n")).unwrap().pod.name.as_str(), "a-node-1");
    assert!(decode_text(json.replace('"', "'")).is_err());
    // With a byte order mark or a comment before it, it is YAML, which takes both.
    assert!(decode_text(format!("\u{feff}{}", json.replace('"', "'"))).is_ok());
    assert!(decode_text(format!("# comment\n{json}")).is_ok());
    // Rule A.2.3.
    assert!(decode_text(format!("{json} x")).is_err());
}

#[test]
fn the_first_document_alone_counts() {
    // Rule A.2.2.
    let other = MINIMAL.replace("web", "other");
    let text = format!("# first\n---\n{MINIMAL}---\n{other}---\nnot: [closed\n");
    assert_eq!(decode_text(text).unwrap().pod.name.as_str(), "web-node-1");
    fails(format!("---\n---\n{MINIMAL}"), "2: column 1: the first document is empty");
    fails("", "1: column 1: the file has no document");
}

#[test]
fn only_a_v1_pod_is_taken() {
    // Rule A.2.4.
    fails("kind: Pod\n", "1: apiVersion: is needed, with the value v1");
    fails("apiVersion: v1\n", "1: kind: is needed, with the value Pod");
    fails("apiVersion: v2\nkind: Pod\n", "1: apiVersion: must be the string v1");
    for kind in ["List", "PodList", "Deployment", "pod"] {
        fails(format!("apiVersion: v1\nkind: {kind}\nitems: []\n"), "2: kind: must be the string Pod");
    }
    fails("apiVersion: 1\nkind: Pod\n", "1: apiVersion: must be the string v1");
    fails("[]", "1: the manifest is not an object");
    fails("just text", "1: the manifest is not an object");
}

#[test]
fn unknown_fields_are_dropped_and_names_are_case_sensitive() {
    // Rule A.2.5.
    let pod = pod_of(
        MINIMAL.replace("spec:", "other: 1\nMetadata: {name: x}\nspec:\n  Hostname: h\n  new: {a: [1]}"),
    );
    assert_eq!(pod.metadata.unwrap().name(), "web-node-1");
    assert_eq!(pod.spec.unwrap().hostname(), "");
    // Of equal keys the last one counts.
    assert_eq!(
        pod_of(MINIMAL.replace("name: web", "name: x\n  name: web")).metadata.unwrap().name(),
        "web-node-1"
    );
    fails(MINIMAL.replace("metadata", "Metadata"), "1: metadata.name: is needed");
}

#[test]
fn a_name_is_needed() {
    // Rule A.2.6.
    fails(MINIMAL.replace("name: web", "generateName: web-"), "4: metadata.name: is needed");
    fails(MINIMAL.replace("name: web", "name: ''"), "4: metadata.name: is needed");
}

#[test]
fn a_value_of_another_type_is_named_with_its_line() {
    // MAN-5: YAML reads these as number and boolean, and a label is a string.
    let labelled =
        |value: &str| MINIMAL.replace("name: web", &format!("name: web\n  labels:\n    version: {value}"));
    for value in ["5", "yes", "1.5"] {
        let error = decode_text(labelled(value)).unwrap_err();
        let [problem] = error.problems() else { panic!("{error}") };
        assert_eq!(problem.line, 6);
        assert!(problem.field.contains("metadata.labels") && problem.field.contains("version"), "{error}");
        assert!(
            error.describe(Path::new("/m/a.yaml")).starts_with("/m/a.yaml:6: metadata.labels"),
            "{error}"
        );
    }
    let error =
        decode_text(MINIMAL.replace("image: i", "image: i\n    ports: [{containerPort: '80'}]")).unwrap_err();
    assert_eq!(
        (error.problems()[0].line, &*error.problems()[0].field),
        (9, "spec.containers[0].ports[0].containerPort")
    );
}

#[test]
fn no_value_is_repeated_in_a_message() {
    // Whoever reads the log or /readyz?verbose need not be one who may read the manifests.
    let at = |field: &str, value: &str| {
        MINIMAL.replace("    image: i\n", &format!("    image: i\n    {field}: {value}\n"))
    };
    let manifests = [
        MINIMAL.replace("apiVersion: v1", "apiVersion: s3cret"),
        MINIMAL.replace("kind: Pod", "kind: s3cret"),
        MINIMAL.replace("name: web", "name: S3CRET"),
        MINIMAL.replace("name: web", "name: web\n  labels: {a: s3cret s3cret}"),
        MINIMAL.replace("image: i", "image: ' s3cret'"),
        MINIMAL.replace("spec:", "spec:\n  restartPolicy: s3cret"),
        MINIMAL.replace("spec:", "spec:\n  volumes: [{name: v, hostPath: {path: /s3cret/..}}]"),
        MINIMAL.replace("spec:", "spec:\n  volumes: [{name: v, emptyDir: {sizeLimit: s3cret}}]"),
        MINIMAL.replace("spec:", "spec:\n  volumes: [{name: s3cret}, {name: s3cret}]"),
        at("env", "[{name: A, value: 8675309}]"),
        at("env", "[{name: A, value: yes}]"),
        at("env", "[{name: A, value: !!int s3cret}]"),
        at("env", "[{name: A, value: !!float .inf}]"),
        at("env", "[{name: 's3cret=', value: a}]"),
        at("ports", "[{containerPort: 8675309}]"),
        at("ports", "[{containerPort: s3cret}]"),
        at("ports", "[{containerPort: 1, hostPort: 77}, {containerPort: 2, hostPort: 77}]"),
        at("volumeMounts", "[{name: s3cret, mountPath: /a}]"),
        at("resources", "{limits: {cpu: -8675309}}"),
        at("resources", "{limits: {cpu: s3cret}}"),
        at("resources", "{limits: {cpu: 1}, requests: {cpu: 8675309}}"),
    ];
    for text in manifests {
        let message = decode_text(&text).expect_err(&text).describe(Path::new("/m/a.yaml"));
        for value in ["8675309", "s3cret", "S3CRET", "77", "yes", ".inf"] {
            assert!(!message.contains(value), "{message}");
        }
    }
}

#[test]
fn the_uid_follows_what_the_pod_is_not_how_it_is_written() {
    let uid = |text: &str| decode_text(text).unwrap().pod.uid;
    let base = uid(MINIMAL);
    assert_eq!(base, uid(&format!("# a comment\n{MINIMAL}")));
    assert_eq!(base, uid(&MINIMAL.replace("image: i", "image: \"i\"\n    imagePullPolicy: Always")));
    // Rule A.3.3: any edit of the pod, even of a label, gives a new one.
    assert_ne!(base, uid(&MINIMAL.replace("name: web", "name: web\n  labels: {a: b}")));
    // With a UID of its own it is an update in place.
    let own = MINIMAL.replace("name: web", "name: web\n  uid: 0a1b");
    assert_eq!(uid(&own).as_str(), "0a1b");
    assert_eq!(uid(&own), uid(&own.replace("image: i", "image: j")));
}

#[test]
fn the_uid_differs_between_nodes() {
    // MAN-9.
    let on = |node: &str| {
        let origin = Origin { node_name: &node.into(), path: Path::new("/m/a.yaml") };
        decode(MINIMAL.as_bytes(), origin, |_| String::new()).unwrap().pod
    };
    assert_ne!(on("n1").uid, on("n2").uid);
    assert_eq!(on("n1").uid, on("n1").uid);
}

#[test]
fn references_to_the_api_are_accepted_with_a_notice() {
    // Rule A.2.8.
    let text = MINIMAL
        .replace("spec:", "spec:\n  serviceAccountName: sa\n  volumes: [{name: v, secret: {secretName: s}}]");
    let fields: Vec<_> = decode_text(text).unwrap().notices.into_iter().map(|notice| notice.field).collect();
    assert_eq!(fields, ["spec.serviceAccountName", "spec.volumes[0].secret"]);
    let claims = MINIMAL.replace("spec:", "spec:\n  resourceClaims: [{name: r}]");
    fails(claims, "6: spec.resourceClaims: a static pod may not use resource claims");
    let bundle = "spec:\n  volumes: [{name: v, projected: {sources: [{clusterTrustBundle: {path: p}}]}}]";
    fails(
        MINIMAL.replace("spec:", bundle),
        "6: spec.volumes[0].projected.sources[0].clusterTrustBundle: a static pod may not use cluster trust bundles",
    );
}

#[test]
fn several_problems_are_told_at_once_in_the_order_of_the_file() {
    let text = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: Web\nspec:\n  containers:\n  - name: c_1\n  restartPolicy: Sometimes\n";
    let error = decode_text(text).unwrap_err();
    let message = error.describe(Path::new("/m/a.yaml"));
    let places: Vec<_> =
        message.split("; ").map(|part| part.split(": ").take(2).collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(
        places,
        [
            "/m/a.yaml:4 metadata.name",
            "/m/a.yaml:7 spec.containers[0].name",
            "/m/a.yaml:7 spec.containers[0].image",
            "/m/a.yaml:8 spec.restartPolicy"
        ]
    );
}

#[test]
fn the_names_limits_hold_after_the_suffix() {
    // Rule A.2.7: 253 characters with "-node-1".
    let named = |length: usize| MINIMAL.replace("name: web", &format!("name: {}", "a".repeat(length)));
    assert!(decode_text(named(246)).is_ok());
    assert!(decode_text(named(247)).is_err());
}

#[test]
fn the_examples_are_good_manifests() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/manifests");
    let mut names = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let origin = Origin { node_name: &"cp-1".into(), path: &path };
        let decoded = decode(&std::fs::read(&path).unwrap(), origin, |_| String::new())
            .unwrap_or_else(|error| panic!("{}", error.describe(&path)));
        assert_eq!(decoded.notices, []);
        names.push(decoded.pod.name.to_string());
    }
    names.sort_unstable();
    assert_eq!(
        names,
        [
            "etcd-cp-1",
            "kube-apiserver-cp-1",
            "kube-controller-manager-cp-1",
            "kube-scheduler-cp-1",
            "node-check-cp-1",
            "web-cp-1"
        ]
    );
}
