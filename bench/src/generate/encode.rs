//! Renders a [`Shape`] as an encoded core/v1 Pod, as the API server or the kubelet would hand it out.

use std::collections::BTreeMap;

use pods_api_proto::k8s::io::api::core::v1 as core;
use pods_api_proto::k8s::io::apimachinery::pkg::api::resource::Quantity;
use pods_api_proto::k8s::io::apimachinery::pkg::apis::meta::v1 as meta;
use pods_api_proto::k8s::io::apimachinery::pkg::util::intstr::IntOrString;
use prost::Message as _;

use super::{Container, SEQUENCE_ANNOTATION, SEQUENCE_DIGITS, Shape};

/// When every generated pod started (2026-01-01T00:00:00Z).
const STARTED: i64 = 1_767_225_600;

/// Returns the encoded pod, its sequence annotation at zero.
pub(crate) fn encode(shape: &Shape) -> Vec<u8> {
    let pod = core::Pod {
        metadata: Some(metadata(shape)),
        spec: Some(spec(shape)),
        status: shape.running.then(|| status(shape)),
    };
    pod.encode_to_vec()
}

fn metadata(shape: &Shape) -> meta::ObjectMeta {
    let owned = |owner: &str| meta::OwnerReference {
        kind: some("ReplicaSet"),
        name: some(owner),
        uid: some(&shape.uid),
        api_version: some("apps/v1"),
        controller: Some(true),
        block_owner_deletion: Some(true),
    };
    meta::ObjectMeta {
        name: some(&shape.name),
        namespace: some(&shape.namespace),
        uid: some(&shape.uid),
        resource_version: shape.running.then(|| format!("{}", 1_000_000 + shape.index)),
        creation_timestamp: Some(time()),
        labels: labels(shape),
        annotations: BTreeMap::from([
            (SEQUENCE_ANNOTATION.to_owned(), "0".repeat(SEQUENCE_DIGITS)),
            ("prometheus.io/scrape".to_owned(), "true".to_owned()),
            ("prometheus.io/port".to_owned(), shape.containers[0].port.to_string()),
        ]),
        owner_references: if shape.running { vec![owned(&shape.app)] } else { Vec::new() },
        ..Default::default()
    }
}

fn labels(shape: &Shape) -> BTreeMap<String, String> {
    super::manifest::labels(shape).map(|(name, value)| (name.to_owned(), value)).into()
}

fn spec(shape: &Shape) -> core::PodSpec {
    core::PodSpec {
        volumes: vec![volume("scratch", None), volume("localtime", Some("/etc/localtime"))],
        containers: shape.containers.iter().map(container).collect(),
        restart_policy: some("Always"),
        termination_grace_period_seconds: Some(30),
        dns_policy: some("ClusterFirst"),
        node_name: shape.running.then(|| "bench".to_owned()),
        scheduler_name: some("default-scheduler"),
        enable_service_links: Some(true),
        ..Default::default()
    }
}

fn volume(name: &str, host_path: Option<&str>) -> core::Volume {
    let source = core::VolumeSource {
        host_path: host_path
            .map(|path| core::HostPathVolumeSource { path: some(path), ..Default::default() }),
        empty_dir: host_path.is_none().then(core::EmptyDirVolumeSource::default),
        ..Default::default()
    };
    core::Volume { name: some(name), volume_source: Some(source) }
}

fn container(container: &Container) -> core::Container {
    let quantity = |text: &str| Quantity { string: some(text) };
    let resources = |cpu: &str, memory: &str| {
        BTreeMap::from([("cpu".to_owned(), quantity(cpu)), ("memory".to_owned(), quantity(memory))])
    };
    core::Container {
        name: some(&container.name),
        image: some(&container.image),
        args: vec![format!("--listen=:{}", container.port), "--log-format=json".to_owned()],
        ports: vec![core::ContainerPort {
            name: some("http"),
            container_port: Some(container.port.into()),
            protocol: some("TCP"),
            ..Default::default()
        }],
        env: container
            .environment
            .iter()
            .map(|(name, value)| core::EnvVar { name: some(name), value: some(value), ..Default::default() })
            .collect(),
        resources: Some(core::ResourceRequirements {
            limits: resources("2", "1Gi"),
            requests: resources("250m", "256Mi"),
            ..Default::default()
        }),
        volume_mounts: vec![core::VolumeMount {
            name: some("scratch"),
            mount_path: some("/var/cache/app"),
            ..Default::default()
        }],
        readiness_probe: Some(core::Probe {
            handler: Some(core::ProbeHandler {
                http_get: Some(core::HttpGetAction {
                    path: some("/readyz"),
                    port: Some(IntOrString { int_val: Some(container.port.into()), ..Default::default() }),
                    scheme: some("HTTP"),
                    ..Default::default()
                }),
                ..Default::default()
            }),
            timeout_seconds: Some(1),
            period_seconds: Some(10),
            success_threshold: Some(1),
            failure_threshold: Some(3),
            ..Default::default()
        }),
        termination_message_path: some("/dev/termination-log"),
        image_pull_policy: some("IfNotPresent"),
        termination_message_policy: some("File"),
        ..Default::default()
    }
}

fn status(shape: &Shape) -> core::PodStatus {
    let condition = |kind: &str| core::PodCondition {
        r#type: some(kind),
        status: some("True"),
        last_transition_time: Some(time()),
        ..Default::default()
    };
    let ip = format!("10.244.{}.{}", shape.index / 250 % 250, shape.index % 250 + 2);
    core::PodStatus {
        phase: some("Running"),
        conditions: ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"]
            .map(condition)
            .into(),
        host_ip: some("192.0.2.10"),
        pod_ip: some(&ip),
        start_time: Some(time()),
        container_statuses: shape.containers.iter().map(container_status).collect(),
        qos_class: some("Burstable"),
        pod_i_ps: vec![core::PodIp { ip: some(&ip) }],
        host_i_ps: vec![core::HostIp { ip: some("192.0.2.10") }],
        ..Default::default()
    }
}

fn container_status(container: &Container) -> core::ContainerStatus {
    core::ContainerStatus {
        name: some(&container.name),
        state: Some(core::ContainerState {
            running: Some(core::ContainerStateRunning { started_at: Some(time()) }),
            ..Default::default()
        }),
        ready: Some(true),
        restart_count: Some(0),
        image: some(&container.image),
        image_id: Some(format!("registry.example.com/{}@sha256:{}", container.name, container.id)),
        container_id: Some(format!("containerd://{}", container.id)),
        started: Some(true),
        ..Default::default()
    }
}

fn time() -> meta::Time {
    meta::Time { seconds: Some(STARTED), nanos: Some(0) }
}

fn some(text: &str) -> Option<String> {
    Some(text.to_owned())
}
