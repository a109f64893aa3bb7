use super::super::defaults::set_defaults;
use super::*;
use crate::wire::parse_yaml;

/// The problems of a pod whose spec is `spec`, as `FIELD: REASON`.
fn problems(spec: &str) -> Vec<String> {
    let mut pod =
        parse_yaml(format!("metadata: {{name: a, namespace: b}}\nspec: {spec}").as_bytes()).unwrap();
    set_defaults(&mut pod);
    texts(&pod)
}

fn texts(pod: &Node) -> Vec<String> {
    let (problems, _) = validate(pod).problems.finish();
    problems.iter().map(|problem| format!("{}: {}", problem.field, problem.reason)).collect()
}

/// A spec with one container that has `fields` beside name and image.
fn with(fields: &str) -> String {
    format!("{{containers: [{{name: c, image: i, {fields}}}], volumes: [{{name: v}}]}}")
}

#[track_caller]
fn accepts(spec: &str) {
    assert_eq!(problems(spec), [""; 0], "{spec}");
}

#[track_caller]
fn refuses(spec: &str, field: &str) {
    let problems = problems(spec);
    let [problem] = &problems[..] else { panic!("{spec}: {problems:?}") };
    assert_eq!(problem.split(": ").next(), Some(field), "{spec}");
}

// All of rule A.2.7.

#[test]
fn metadata_is_checked() {
    let metadata = |text: &str| {
        texts(&parse_yaml(format!("metadata: {text}\nspec: {{containers: []}}").as_bytes()).unwrap())
            .into_iter()
            .filter(|text| text.starts_with("metadata"))
            .map(|text| text.split(": ").next().unwrap_or_default().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        metadata("{name: a.b, namespace: c, labels: {a/b: c, d: ''}, annotations: {A.b/C: any text}}"),
        [""; 0]
    );
    assert_eq!(metadata("{name: A, namespace: b.c}"), ["metadata.name", "metadata.namespace"]);
    assert_eq!(metadata("{}"), ["metadata.name", "metadata.namespace"]);
    assert_eq!(
        metadata("{name: a, namespace: b, labels: {a b: c, d: e f}}"),
        [r#"metadata.labels["a b"]"#, r#"metadata.labels["d"]"#]
    );
    assert_eq!(metadata("{name: a, namespace: b, annotations: {-a: c}}"), [r#"metadata.annotations["-a"]"#]);
    let long = "x".repeat(MAX_ANNOTATION_BYTES);
    assert_eq!(
        metadata(&format!("{{name: a, namespace: b, annotations: {{a: {long}}}}}")),
        ["metadata.annotations"]
    );
}

#[test]
fn containers_are_named_once_and_have_an_image() {
    accepts(&with(""));
    refuses("{}", "spec.containers");
    refuses("{containers: [{image: i}]}", "spec.containers[0].name");
    refuses("{containers: [{name: a.b, image: i}]}", "spec.containers[0].name");
    refuses("{containers: [{name: c}]}", "spec.containers[0].image");
    refuses("{containers: [{name: c, image: ' i'}]}", "spec.containers[0].image");
    refuses("{containers: [{name: c, image: i}, {name: c, image: i}]}", "spec.containers[1].name");
    refuses(
        "{containers: [{name: c, image: i}], initContainers: [{name: c, image: i}]}",
        "spec.initContainers[0].name",
    );
    refuses(
        "{containers: [{name: c, image: i}], ephemeralContainers: [{name: e, image: i}]}",
        "spec.ephemeralContainers",
    );
    refuses(&with("imagePullPolicy: Sometimes"), "spec.containers[0].imagePullPolicy");
    refuses(&with("terminationMessagePolicy: Disk"), "spec.containers[0].terminationMessagePolicy");
}

#[test]
fn ports_are_in_range_and_free() {
    accepts(&with(
        "ports: [{containerPort: 1, name: a-1}, {containerPort: 65535, protocol: SCTP, hostPort: 65535}]",
    ));
    accepts(&with(
        "ports: [{containerPort: 53, hostPort: 53}, {containerPort: 53, hostPort: 53, protocol: UDP}]",
    ));
    let at = "spec.containers[0].ports[0]";
    refuses(&with("ports: [{containerPort: 0}]"), &format!("{at}.containerPort"));
    refuses(&with("ports: [{name: a}]"), &format!("{at}.containerPort"));
    refuses(&with("ports: [{containerPort: 65536}]"), &format!("{at}.containerPort"));
    refuses(&with("ports: [{containerPort: 1, hostPort: -1}]"), &format!("{at}.hostPort"));
    refuses(&with("ports: [{containerPort: 1, protocol: ICMP}]"), &format!("{at}.protocol"));
    refuses(&with("ports: [{containerPort: 1, name: '80'}]"), &format!("{at}.name"));
    let at = "spec.containers[0].ports[1]";
    refuses(
        &with("ports: [{containerPort: 1, name: a}, {containerPort: 2, name: a}]"),
        &format!("{at}.name"),
    );
    refuses(
        &with("ports: [{containerPort: 1, hostPort: 9}, {containerPort: 2, hostPort: 9}]"),
        &format!("{at}.hostPort"),
    );
    refuses(
        "{hostNetwork: true, containers: [{name: c, image: i, ports: [{containerPort: 1, hostPort: 2}]}]}",
        "spec.containers[0].ports[0].hostPort",
    );
}

#[test]
fn mounts_name_a_volume() {
    accepts(&with("volumeMounts: [{name: v, mountPath: /a}, {name: v, mountPath: /b, subPath: x/y}]"));
    let at = "spec.containers[0].volumeMounts[0]";
    refuses(&with("volumeMounts: [{name: w, mountPath: /a}]"), &format!("{at}.name"));
    refuses(&with("volumeMounts: [{mountPath: /a}]"), &format!("{at}.name"));
    refuses(&with("volumeMounts: [{name: v}]"), &format!("{at}.mountPath"));
    refuses(&with("volumeMounts: [{name: v, mountPath: /a, subPath: a/../../b}]"), &format!("{at}.subPath"));
    refuses(
        &with("volumeMounts: [{name: v, mountPath: /a}, {name: v, mountPath: /a}]"),
        "spec.containers[0].volumeMounts[1].mountPath",
    );
}

#[test]
fn volumes_are_named_once_and_have_one_source() {
    let volumes = |text: &str| format!("{{containers: [{{name: c, image: i}}], volumes: {text}}}");
    accepts(&volumes("[{name: a}, {name: b, hostPath: {path: /x..y}}]"));
    refuses(&volumes("[{emptyDir: {}}]"), "spec.volumes[0].name");
    refuses(&volumes("[{name: a}, {name: a}]"), "spec.volumes[1].name");
    refuses(&volumes("[{name: a, emptyDir: {}, hostPath: {path: /}}]"), "spec.volumes[0]");
    refuses(&volumes("[{name: a, hostPath: {}}]"), "spec.volumes[0].hostPath.path");
    refuses(&volumes("[{name: a, hostPath: {path: /a/../b}}]"), "spec.volumes[0].hostPath.path");
    refuses(&volumes("[{name: a, emptyDir: {sizeLimit: -1}}]"), "spec.volumes[0].emptyDir.sizeLimit");
}

#[test]
fn resources_are_not_negative_and_within_limits() {
    accepts(&with("resources: {limits: {cpu: 1, memory: 1Gi}, requests: {cpu: 1000m, memory: 1024Mi}}"));
    let at = "spec.containers[0].resources";
    refuses(&with("resources: {requests: {cpu: -1}}"), &format!(r#"{at}.requests["cpu"]"#));
    refuses(
        &with("resources: {limits: {cpu: 1}, requests: {cpu: 1001m}}"),
        &format!(r#"{at}.requests["cpu"]"#),
    );
    refuses(&with("resources: {requests: {a b: 1}}"), &format!(r#"{at}.requests["a b"]"#));
    refuses(&with("resources: {claims: [{name: r}]}"), &format!("{at}.claims"));
}

#[test]
fn probes_and_hooks_have_one_handler() {
    accepts(&with(
        "livenessProbe: {httpGet: {port: 80}}, readinessProbe: {tcpSocket: {port: http}, successThreshold: 3}",
    ));
    accepts(&with("startupProbe: {grpc: {port: 1}}, lifecycle: {preStop: {sleep: {seconds: 1}}}"));
    let at = "spec.containers[0].livenessProbe";
    refuses(&with("livenessProbe: {periodSeconds: 1}"), at);
    refuses(&with("livenessProbe: {exec: {command: [a]}, grpc: {port: 1}}"), at);
    refuses(&with("livenessProbe: {httpGet: {path: /}}"), &format!("{at}.httpGet.port"));
    refuses(&with("livenessProbe: {httpGet: {port: 0}}"), &format!("{at}.httpGet.port"));
    refuses(&with("livenessProbe: {httpGet: {port: '80'}}"), &format!("{at}.httpGet.port"));
    refuses(&with("livenessProbe: {httpGet: {port: 1, scheme: FTP}}"), &format!("{at}.httpGet.scheme"));
    refuses(&with("livenessProbe: {grpc: {port: 1}, periodSeconds: -1}"), &format!("{at}.periodSeconds"));
    refuses(
        &with("livenessProbe: {grpc: {port: 1}, initialDelaySeconds: -1}"),
        &format!("{at}.initialDelaySeconds"),
    );
    refuses(
        &with("livenessProbe: {grpc: {port: 1}, successThreshold: 2}"),
        &format!("{at}.successThreshold"),
    );
    refuses(&with("lifecycle: {postStart: {}}"), "spec.containers[0].lifecycle.postStart");
}

#[test]
fn only_a_sidecar_among_init_containers_has_probes_and_hooks() {
    let init = |fields: &str| {
        format!("{{containers: [{{name: c, image: i}}], initContainers: [{{name: d, image: i, {fields}}}]}}")
    };
    let probe = "readinessProbe: {grpc: {port: 1}}";
    accepts(&init(&format!("restartPolicy: Always, {probe}")));
    refuses(&init(probe), "spec.initContainers[0].readinessProbe");
    refuses(&init("lifecycle: {preStop: {sleep: {seconds: 1}}}"), "spec.initContainers[0].lifecycle");
}

#[test]
fn variables_have_a_name_and_one_source() {
    accepts(&with(
        "env: [{name: A, value: ''}, {name: b.c-D, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]",
    ));
    let at = "spec.containers[0].env[0]";
    refuses(&with("env: [{value: x}]"), &format!("{at}.name"));
    refuses(&with("env: [{name: 'A=B'}]"), &format!("{at}.name"));
    refuses(&with("env: [{name: A, valueFrom: {}}]"), &format!("{at}.valueFrom"));
    refuses(
        &with("env: [{name: A, value: x, valueFrom: {fieldRef: {fieldPath: a}}}]"),
        &format!("{at}.valueFrom"),
    );
    refuses(&with("envFrom: [{prefix: A}]"), "spec.containers[0].envFrom[0]");
}

#[test]
fn the_pods_own_fields_are_checked() {
    let pod = |fields: &str| format!("{{containers: [{{name: c, image: i}}], {fields}}}");
    accepts(&pod("restartPolicy: OnFailure, dnsPolicy: None, hostname: h, nodeSelector: {a/b: c}"));
    for (fields, field) in [
        ("restartPolicy: Maybe", "restartPolicy"),
        ("dnsPolicy: Cluster", "dnsPolicy"),
        ("nodeSelector: {a: b c}", r#"nodeSelector["a"]"#),
        ("serviceAccountName: A", "serviceAccountName"),
        ("hostname: a.b", "hostname"),
        ("subdomain: '-'", "subdomain"),
        ("terminationGracePeriodSeconds: -1", "terminationGracePeriodSeconds"),
        ("activeDeadlineSeconds: 0", "activeDeadlineSeconds"),
        ("activeDeadlineSeconds: 2147483648", "activeDeadlineSeconds"),
    ] {
        let problems = problems(&pod(fields));
        assert!(
            problems.iter().any(|text| text.starts_with(&format!("spec.{field}: "))),
            "{fields}: {problems:?}"
        );
    }
}

#[test]
fn tolerations_are_consistent() {
    let tolerations = |text: &str| format!("{{containers: [{{name: c, image: i}}], tolerations: [{text}]}}");
    accepts(&tolerations("{operator: Exists}, {key: a/b, value: c, effect: NoSchedule}"));
    accepts(&tolerations("{key: a, operator: Exists, effect: NoExecute, tolerationSeconds: 5}"));
    let at = "spec.tolerations[0]";
    refuses(&tolerations("{operator: Equal}"), &format!("{at}.operator"));
    refuses(&tolerations("{key: a, operator: Like}"), &format!("{at}.operator"));
    refuses(&tolerations("{key: a, operator: Exists, value: b}"), &format!("{at}.value"));
    refuses(&tolerations("{key: a, effect: Never}"), &format!("{at}.effect"));
    refuses(&tolerations("{key: a, tolerationSeconds: 5}"), &format!("{at}.effect"));
    refuses(&tolerations("{key: a b}"), &format!("{at}.key"));
}

#[test]
fn a_pod_without_a_spec_is_refused() {
    let pod = parse_yaml(b"metadata: {name: a, namespace: b}").unwrap();
    assert_eq!(texts(&pod), ["spec: is needed"]);
}
