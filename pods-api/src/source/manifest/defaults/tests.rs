use super::*;
use crate::wire::{encode_pod, parse_yaml};
use pods_api_proto::k8s::io::api::core::v1::{Container, Pod, PodSpec, Volume};
use prost::Message as _;

fn spec(text: &str) -> PodSpec {
    let mut pod = parse_yaml(format!("spec: {text}").as_bytes()).unwrap();
    set_defaults(&mut pod);
    Pod::decode(encode_pod(&pod).unwrap()).unwrap().spec.unwrap()
}

fn container(text: &str) -> Container {
    spec(&format!("{{containers: [{text}]}}")).containers.remove(0)
}

fn volume(text: &str) -> Volume {
    spec(&format!("{{volumes: [{text}]}}")).volumes.remove(0)
}

#[test]
fn a_pod_has_the_defaults_of_its_spec() {
    // Rule A.4.1.
    let bare = spec("{}");
    assert_eq!(bare.restart_policy(), "Always");
    assert_eq!(bare.dns_policy(), "ClusterFirst");
    assert_eq!(bare.scheduler_name(), "default-scheduler");
    assert_eq!(bare.termination_grace_period_seconds, Some(30));
    assert_eq!(bare.enable_service_links, Some(true));
    assert!(bare.security_context.is_some());
    // Rule A.4.9: what admission adds is not there.
    assert!(bare.tolerations.is_empty() && bare.volumes.is_empty());
    assert_eq!((bare.service_account_name, bare.priority, bare.preemption_policy), (None, None, None));
    // An empty text counts as missing, a false or zero behind a pointer does not.
    let set = spec("{restartPolicy: '', terminationGracePeriodSeconds: 0, enableServiceLinks: false}");
    assert_eq!(set.restart_policy(), "Always");
    assert_eq!((set.termination_grace_period_seconds, set.enable_service_links), (Some(0), Some(false)));
    assert_eq!(spec("{restartPolicy: Never, dnsPolicy: Default}").restart_policy(), "Never");
}

#[test]
fn the_service_account_has_two_names() {
    // Rule A.4.8.
    for text in
        ["{serviceAccountName: a}", "{serviceAccount: a}", "{serviceAccountName: a, serviceAccount: b}"]
    {
        let spec = spec(text);
        assert_eq!((spec.service_account_name(), spec.service_account()), ("a", "a"), "{text}");
    }
}

#[test]
fn the_pull_policy_follows_the_tag() {
    // Rule A.4.2.
    for (image, policy) in [
        ("a", "Always"),
        ("a:latest", "Always"),
        ("host:5000/a", "Always"),
        ("host:5000/a:latest", "Always"),
        ("a:latest@sha256:00", "Always"),
        ("a:1", "IfNotPresent"),
        ("host:5000/a:1", "IfNotPresent"),
        ("a@sha256:00", "IfNotPresent"),
        ("", "IfNotPresent"),
    ] {
        assert_eq!(pull_policy(image), policy, "{image}");
    }
    assert_eq!(container("{image: a, imagePullPolicy: Never}").image_pull_policy(), "Never");
}

#[test]
fn every_kind_of_container_has_defaults() {
    // Rule A.4.2.
    let text = "[{name: a, ports: [{containerPort: 1}, {containerPort: 2, protocol: UDP}]}]";
    let spec =
        spec(&format!("{{containers: {text}, initContainers: {text}, ephemeralContainers: [{{name: e}}]}}"));
    for container in [&spec.containers[0], &spec.init_containers[0]] {
        assert_eq!(container.termination_message_path(), "/dev/termination-log");
        assert_eq!(container.termination_message_policy(), "File");
        assert_eq!([container.ports[0].protocol(), container.ports[1].protocol()], ["TCP", "UDP"]);
        // Rule A.4.5: without the host's network no host port.
        assert_eq!(container.ports[0].host_port.unwrap_or_default(), 0);
    }
    let ephemeral = spec.ephemeral_containers[0].ephemeral_container_common.as_ref().unwrap();
    assert_eq!(ephemeral.termination_message_policy(), "File");
}

#[test]
fn requests_follow_limits() {
    // Rules A.4.3 and A.4.4.
    let text = "{resources: {limits: {cpu: 1, memory: 1Gi, example.com/x: 2}, requests: {memory: 1Mi}}}";
    let resources = container(text).resources.unwrap();
    let value = |map: &std::collections::HashMap<String, _>, key: &str| -> String {
        let quantity: &pods_api_proto::k8s::io::apimachinery::pkg::api::resource::Quantity = &map[key];
        quantity.string().to_owned()
    };
    let requests = resources.requests.into_iter().collect();
    assert_eq!(value(&requests, "cpu"), "1");
    assert_eq!(value(&requests, "memory"), "1Mi");
    assert_eq!(value(&requests, "example.com/x"), "2");
    let policies = |text: &str| -> Vec<String> {
        let policies = container(text).resize_policy.into_iter();
        policies.map(|policy| format!("{} {}", policy.resource_name(), policy.restart_policy())).collect()
    };
    assert_eq!(policies(text), ["cpu NotRequired", "memory NotRequired"]);
    assert_eq!(policies("{resources: {requests: {memory: 1}}}"), ["memory NotRequired"]);
    assert_eq!(policies("{name: a}"), [""; 0]);
    assert_eq!(
        policies(
            "{resources: {limits: {cpu: 1, memory: 1}}, resizePolicy: [{resourceName: memory, restartPolicy: RestartContainer}]}"
        ),
        ["memory RestartContainer", "cpu NotRequired"]
    );
    let init = spec("{initContainers: [{resources: {limits: {cpu: 1}}}]}").init_containers.remove(0);
    assert!(init.resize_policy.is_empty());
    assert!(init.resources.unwrap().requests.contains_key("cpu"));
}

#[test]
fn quantities_become_canonical_and_are_rounded_up_to_a_thousandth() {
    // Rule A.2.9, MAN-10.
    let requested = |text: &str| {
        let container = container(&format!("{{resources: {{requests: {{cpu: {text}}}}}}}"));
        container.resources.unwrap().requests["cpu"].string().to_owned()
    };
    for (text, canonical) in [
        ("1000m", "1"),
        ("0.5", "500m"),
        (".5", "500m"),
        ("1024Mi", "1Gi"),
        ("1.5Gi", "1536Mi"),
        ("1e3", "1k"),
        ("'1e3'", "1e3"),
        ("0.0001", "1m"),
        ("1500u", "2m"),
        ("100m", "100m"),
        ("0", "0"),
        ("0x10", "16"),
    ] {
        assert_eq!(requested(text), canonical, "{text}");
    }
}

#[test]
fn ports_are_those_of_the_host_on_its_network() {
    // Rule A.4.5.
    let text = "[{name: a, ports: [{containerPort: 80}, {containerPort: 81, hostPort: 81}]}]";
    let spec = spec(&format!("{{hostNetwork: true, containers: {text}, initContainers: {text}}}"));
    for container in [&spec.containers[0], &spec.init_containers[0]] {
        assert_eq!([container.ports[0].host_port(), container.ports[1].host_port()], [80, 81]);
    }
}

#[test]
fn probes_and_hooks_have_defaults() {
    // Rule A.4.6.
    let container = container(
        "{livenessProbe: {httpGet: {port: 1}}, readinessProbe: {grpc: {port: 1}, periodSeconds: 3, timeoutSeconds: 0}, \
         startupProbe: {exec: {command: [a]}}, lifecycle: {preStop: {httpGet: {port: 1, path: /x}}}}",
    );
    let liveness = container.liveness_probe.unwrap();
    assert_eq!(
        [
            liveness.timeout_seconds(),
            liveness.period_seconds(),
            liveness.success_threshold(),
            liveness.failure_threshold()
        ],
        [1, 10, 1, 3]
    );
    let http = liveness.handler.unwrap().http_get.unwrap();
    assert_eq!((http.path(), http.scheme()), ("/", "HTTP"));
    let readiness = container.readiness_probe.unwrap();
    assert_eq!((readiness.period_seconds(), readiness.timeout_seconds()), (3, 1));
    assert_eq!(readiness.handler.unwrap().grpc.unwrap().service, Some(String::new()));
    assert_eq!(container.startup_probe.unwrap().failure_threshold(), 3);
    let hook = container.lifecycle.unwrap().pre_stop.unwrap().http_get.unwrap();
    assert_eq!((hook.path(), hook.scheme()), ("/x", "HTTP"));
}

#[test]
fn volumes_have_defaults() {
    // Rule A.4.7.
    let source = |text: &str| volume(text).volume_source.unwrap();
    assert!(source("{name: a}").empty_dir.is_some());
    assert!(source("{name: a, unheardOf: {}}").empty_dir.is_some());
    assert!(source("{name: a, hostPath: {path: /x}}").empty_dir.is_none());
    assert_eq!(source("{name: a, hostPath: {path: /x}}").host_path.unwrap().r#type, Some(String::new()));
    assert_eq!(source("{name: a, secret: {}}").secret.unwrap().default_mode, Some(0o644));
    assert_eq!(source("{name: a, configMap: {defaultMode: 0}}").config_map.unwrap().default_mode, Some(0));
    let item = "items: [{path: p, fieldRef: {fieldPath: metadata.name}}]";
    let downward = source(&format!("{{name: a, downwardAPI: {{{item}}}}}")).downward_api.unwrap();
    assert_eq!(downward.default_mode, Some(0o644));
    assert_eq!(downward.items[0].field_ref.as_ref().unwrap().api_version(), "v1");
    let sources = format!("[{{serviceAccountToken: {{path: t}}}}, {{downwardAPI: {{{item}}}}}]");
    let projected = source(&format!("{{name: a, projected: {{sources: {sources}}}}}")).projected.unwrap();
    assert_eq!(projected.default_mode, Some(0o644));
    assert_eq!(projected.sources[0].service_account_token.as_ref().unwrap().expiration_seconds, Some(3600));
    let item = &projected.sources[1].downward_api.as_ref().unwrap().items[0];
    assert_eq!(item.field_ref.as_ref().unwrap().api_version(), "v1");
    assert_eq!(source("{name: a, iscsi: {}}").iscsi.unwrap().iscsi_interface(), "default");
    let rbd = source("{name: a, rbd: {}}").rbd.unwrap();
    assert_eq!((rbd.pool(), rbd.user(), rbd.keyring()), ("rbd", "admin", "/etc/ceph/keyring"));
    assert_eq!(source("{name: a, image: {reference: a}}").image.unwrap().pull_policy(), "Always");
    let claim = source("{name: a, ephemeral: {volumeClaimTemplate: {spec: {}}}}").ephemeral.unwrap();
    assert_eq!(claim.volume_claim_template.unwrap().spec.unwrap().volume_mode, Some("Filesystem".to_owned()));
}

#[test]
fn the_list_of_volume_sources_is_that_of_the_schema() {
    let pool = prost_reflect::DescriptorPool::decode(pods_api_proto::DESCRIPTOR_SET).unwrap();
    let message = pool.get_message_by_name("k8s.io.api.core.v1.VolumeSource").unwrap();
    let mut names: Vec<_> = message.fields().map(|field| field.json_name().to_owned()).collect();
    names.sort_unstable();
    assert_eq!(names, VOLUME_SOURCES);
}

#[test]
fn variables_name_the_version_of_the_field() {
    let container = container("{env: [{name: A, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]}");
    assert_eq!(container.env[0].value_from.as_ref().unwrap().field_ref.as_ref().unwrap().api_version(), "v1");
}

#[test]
fn values_of_a_wrong_type_are_left_for_the_conversion_to_report() {
    for text in [
        "spec: 5",
        "spec: {containers: 5, volumes: {a: b}}",
        "spec: {containers: [5], volumes: [a]}",
        "spec: {containers: [{resources: {limits: 5}}]}",
    ] {
        let mut pod = parse_yaml(text.as_bytes()).unwrap();
        set_defaults(&mut pod);
        assert!(encode_pod(&pod).is_err(), "{text}");
    }
}
