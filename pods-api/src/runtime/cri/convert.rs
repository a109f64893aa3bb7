//! CRI's messages as the status rules take them. What a runtime sends is taken leniently: a value that makes no sense
//! counts as absent, and never fails the container (rule C.1.4).

use std::collections::BTreeMap;
use std::net::IpAddr;

use pods_api_proto::runtime::v1 as cri;

use super::UID_LABEL;
use crate::pod::{Namespace, PodName, PodUid, SandboxId};
use crate::runtime::status::{
    Container, ContainerMount, Resources, RunState, Sandbox, SandboxNetwork, UnixNanos, User,
};

const POD_NAME_LABEL: &str = "io.kubernetes.pod.name";
const POD_NAMESPACE_LABEL: &str = "io.kubernetes.pod.namespace";
const CONTAINER_NAME_LABEL: &str = "io.kubernetes.container.name";
const RESTART_COUNT_ANNOTATION: &str = "io.kubernetes.container.restartCount";

/// Who a sandbox is, as far as finding a static pod's UID needs it (rule A.7.5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::runtime) struct SandboxIdentity {
    pub(in crate::runtime) uid: PodUid,
    pub(in crate::runtime) namespace: Namespace,
    pub(in crate::runtime) name: PodName,
    pub(in crate::runtime) is_ready: bool,
    pub(in crate::runtime) created_at: Option<UnixNanos>,
    /// All of the pod's labels and some of the runtime's.
    pub(in crate::runtime) labels: BTreeMap<String, String>,
    /// All of the pod's annotations as the kubelet had them.
    pub(in crate::runtime) annotations: BTreeMap<String, String>,
}

impl SandboxIdentity {
    pub(super) fn new(sandbox: cri::PodSandbox) -> Option<Self> {
        Some(Self {
            uid: uid(&sandbox.labels)?,
            namespace: sandbox.labels.get(POD_NAMESPACE_LABEL)?.as_str().into(),
            name: sandbox.labels.get(POD_NAME_LABEL)?.as_str().into(),
            is_ready: sandbox.state == cri::PodSandboxState::SandboxReady as i32,
            created_at: UnixNanos::new(sandbox.created_at),
            labels: sandbox.labels,
            annotations: sandbox.annotations,
        })
    }
}

/// The pod that something belongs to; `None` for what other clients of the runtime made.
pub(super) fn uid(labels: &BTreeMap<String, String>) -> Option<PodUid> {
    labels.get(UID_LABEL).filter(|uid| !uid.is_empty()).map(|uid| uid.as_str().into())
}

pub(super) fn sandbox(status: cri::PodSandboxStatus) -> Sandbox {
    let options = status.linux.and_then(|linux| linux.namespaces).and_then(|namespaces| namespaces.options);
    let network = options.and_then(|options| match cri::NamespaceMode::try_from(options.network) {
        Ok(cri::NamespaceMode::Pod) => Some(SandboxNetwork::Pod),
        Ok(cri::NamespaceMode::Node) => Some(SandboxNetwork::Node),
        _ => None,
    });
    Sandbox {
        id: status.id.into(),
        attempt: status.metadata.map_or(0, |metadata| metadata.attempt),
        created_at: UnixNanos::new(status.created_at),
        is_ready: status.state == cri::PodSandboxState::SandboxReady as i32,
        network,
        has_network_status: status.network.is_some(),
        ips: status
            .network
            .filter(|_| network != Some(SandboxNetwork::Node))
            .map_or_else(Vec::new, |n| addresses(&n)),
    }
}

/// The addresses in order; none at all if one of them is no address (rule C.3.3).
fn addresses(network: &cri::PodSandboxNetworkStatus) -> Vec<IpAddr> {
    if network.ip.is_empty() {
        return Vec::new();
    }
    let all = std::iter::once(&network.ip).chain(network.additional_ips.iter().map(|other| &other.ip));
    all.map(|ip| ip.parse()).collect::<Result<_, _>>().unwrap_or_default()
}

pub(super) fn container(status: cri::ContainerStatus, sandbox: SandboxId, message: String) -> Container {
    let (metadata_name, attempt) = status.metadata.map_or_else(Default::default, |m| (m.name, m.attempt));
    let name = status.labels.get(CONTAINER_NAME_LABEL).unwrap_or(&metadata_name).as_str().into();
    let restart_count = status.annotations.get(RESTART_COUNT_ANNOTATION).and_then(|count| count.parse().ok());
    let stop_signal = cri::Signal::try_from(status.stop_signal).ok();
    Container {
        id: status.id.into(),
        sandbox,
        name,
        attempt,
        restart_count: restart_count
            .filter(|count| *count >= 0)
            .unwrap_or_else(|| i32::try_from(attempt).unwrap_or(i32::MAX)),
        state: match cri::ContainerState::try_from(status.state) {
            Ok(cri::ContainerState::ContainerCreated) => RunState::Created,
            Ok(cri::ContainerState::ContainerRunning) => RunState::Running,
            Ok(cri::ContainerState::ContainerExited) => RunState::Exited,
            Ok(cri::ContainerState::ContainerUnknown) | Err(_) => RunState::Unknown,
        },
        created_at: UnixNanos::new(status.created_at),
        started_at: UnixNanos::new(status.started_at),
        finished_at: UnixNanos::new(status.finished_at),
        exit_code: status.exit_code,
        reason: status.reason.into(),
        message: message.into(),
        image: status.image.map(|image| image.image).unwrap_or_default().into(),
        image_ref: status.image_ref.into(),
        resources: status.resources.and_then(|resources| resources.linux).map(|linux| Resources {
            cpu_period: linux.cpu_period,
            cpu_quota: linux.cpu_quota,
            cpu_shares: linux.cpu_shares,
            memory_limit: linux.memory_limit_in_bytes,
        }),
        user: status.user.and_then(|user| user.linux).map(|linux| User {
            uid: linux.uid,
            gid: linux.gid,
            groups: linux.supplemental_groups,
        }),
        mounts: status
            .mounts
            .into_iter()
            .map(|mount| ContainerMount {
                path: mount.container_path.into(),
                is_recursive_read_only: mount.recursive_read_only,
            })
            .collect(),
        stop_signal: stop_signal
            .filter(|signal| *signal != cri::Signal::RuntimeDefault)
            .map(|signal| signal.as_str_name().trim_start_matches("SIGNAL_").into()),
        unconfirmed_exit: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(ip: &str, others: &[&str]) -> cri::PodSandboxNetworkStatus {
        let additional_ips = others.iter().map(|ip| cri::PodIp { ip: (*ip).to_owned() }).collect();
        cri::PodSandboxNetworkStatus { ip: ip.to_owned(), additional_ips }
    }

    #[test]
    fn one_bad_address_drops_them_all() {
        // Rule C.3.3.
        assert_eq!(addresses(&network("10.0.0.1", &["fd00::1"])).len(), 2);
        assert_eq!(addresses(&network("10.0.0.1", &["nonsense"])), [] as [IpAddr; 0]);
        assert_eq!(addresses(&network("", &[])), [] as [IpAddr; 0]);
    }

    #[test]
    fn host_network_sandbox_has_no_addresses() {
        // Rule C.3.3.
        let status = |mode: cri::NamespaceMode| cri::PodSandboxStatus {
            network: Some(network("192.0.2.1", &[])),
            linux: Some(cri::LinuxPodSandboxStatus {
                namespaces: Some(cri::Namespace {
                    options: Some(cri::NamespaceOption { network: mode as i32, ..Default::default() }),
                }),
            }),
            ..Default::default()
        };
        assert_eq!(sandbox(status(cri::NamespaceMode::Node)).ips.len(), 0);
        assert_eq!(sandbox(status(cri::NamespaceMode::Pod)).ips.len(), 1);
        let bare = sandbox(cri::PodSandboxStatus::default());
        assert_eq!((bare.network, bare.has_network_status), (None, false));
    }

    #[test]
    fn odd_values_count_as_absent() {
        // CRI-1, rules C.1.4, C.2.5.
        let status = |restarts: &str, state: i32| cri::ContainerStatus {
            metadata: Some(cri::ContainerMetadata { name: "from metadata".to_owned(), attempt: 3 }),
            annotations: [(RESTART_COUNT_ANNOTATION.to_owned(), restarts.to_owned())].into(),
            state,
            created_at: 0,
            started_at: -1,
            ..Default::default()
        };
        let odd = container(status("many", 17), "s".into(), String::new());
        assert_eq!((&*odd.name, odd.restart_count, odd.state), ("from metadata", 3, RunState::Unknown));
        assert_eq!((odd.created_at, odd.started_at, odd.stop_signal), (None, None, None));
        assert_eq!(container(status("-1", 1), "s".into(), String::new()).restart_count, 3);
        assert_eq!(container(status("7", 1), "s".into(), String::new()).restart_count, 7);
    }

    #[test]
    fn stop_signal_has_its_usual_name() {
        let status = cri::ContainerStatus { stop_signal: cri::Signal::Sigusr1 as i32, ..Default::default() };
        assert_eq!(container(status, "s".into(), String::new()).stop_signal.as_deref(), Some("SIGUSR1"));
    }

    #[test]
    fn uid_comes_from_the_label_alone() {
        // Rule C.1.5: what has no label is not the kubelet's.
        assert_eq!(uid(&BTreeMap::new()), None);
        assert_eq!(uid(&[(UID_LABEL.to_owned(), String::new())].into()), None);
        assert_eq!(uid(&[(UID_LABEL.to_owned(), "u".to_owned())].into()), Some("u".into()));
    }
}
