//! The parts of a pod's metadata and spec that its status depends on, in the shape the rules ask for them.

use super::v1;
use v1::ContainerRestartRule;

/// The annotation that tells a static pod (rule A.3.12).
const CONFIG_SOURCE: &str = "kubernetes.io/config.source";

/// What part a container plays in its pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// Runs to its end before the next one starts.
    Init,
    /// An init container with restartPolicy Always: runs beside the regular ones.
    Sidecar,
    Regular,
    Ephemeral,
}

/// One container of the spec.
#[derive(Debug, Clone, Copy)]
pub(super) struct SpecContainer<'a> {
    pub(super) name: &'a str,
    pub(super) role: Role,
    pub(super) image: &'a str,
    pub(super) has_startup_probe: bool,
    pub(super) has_readiness_probe: bool,
    pub(super) resources: Option<&'a v1::ResourceRequirements>,
    pub(super) volume_mounts: &'a [v1::VolumeMount],
    /// Whether the spec names a stop signal: only then does the kubelet report one (rule C.4.19).
    pub(super) names_stop_signal: bool,
    restart_policy: Option<&'a str>,
    restart_rules: &'a [ContainerRestartRule],
}

/// A pod, read once for all rules.
#[derive(Debug)]
pub(super) struct PodFacts<'a> {
    pub(super) spec: &'a v1::PodSpec,
    /// Init containers and sidecars in spec order, then regular ones, then ephemeral ones.
    pub(super) containers: Vec<SpecContainer<'a>>,
    pub(super) is_static: bool,
    pub(super) is_deleted: bool,
    /// `metadata.generation`; 0 for static pods.
    pub(super) generation: i64,
}

static EMPTY_SPEC: std::sync::LazyLock<v1::PodSpec> = std::sync::LazyLock::new(v1::PodSpec::default);

impl<'a> PodFacts<'a> {
    pub(super) fn new(pod: &'a v1::Pod) -> Self {
        let spec = pod.spec.as_ref().unwrap_or(&EMPTY_SPEC);
        let init = spec.init_containers.iter().map(|container| {
            let is_sidecar = container.restart_policy() == "Always";
            SpecContainer::new(container, if is_sidecar { Role::Sidecar } else { Role::Init })
        });
        let regular = spec.containers.iter().map(|container| SpecContainer::new(container, Role::Regular));
        let ephemeral = spec
            .ephemeral_containers
            .iter()
            .filter_map(|container| container.ephemeral_container_common.as_ref())
            .map(SpecContainer::ephemeral);
        let metadata = pod.metadata.as_ref();
        let source = metadata.and_then(|metadata| metadata.annotations.get(CONFIG_SOURCE));
        Self {
            spec,
            containers: init.chain(regular).chain(ephemeral).collect(),
            is_static: source.is_some_and(|source| source != "api"),
            is_deleted: metadata.is_some_and(|metadata| metadata.deletion_timestamp.is_some()),
            generation: metadata.map_or(0, |metadata| metadata.generation()),
        }
    }

    pub(super) fn with_role(&self, role: Role) -> impl Iterator<Item = &SpecContainer<'a>> {
        self.containers.iter().filter(move |container| container.role == role)
    }

    pub(super) fn has_init_containers(&self) -> bool {
        !self.spec.init_containers.is_empty()
    }

    pub(super) fn is_host_network(&self) -> bool {
        self.spec.host_network()
    }

    /// Whether the kubelet starts a container again that ended with `exit_code`, by the spec alone (rule C.4.11).
    pub(super) fn restarts(&self, container: &SpecContainer<'_>, exit_code: i32) -> bool {
        if container.role == Role::Sidecar {
            return true;
        }
        if container.restart_rules.iter().any(|rule| rule_restarts(rule, exit_code)) {
            return true;
        }
        match container.restart_policy.unwrap_or_else(|| self.spec.restart_policy()) {
            "Never" => false,
            "OnFailure" => exit_code != 0,
            // An init container that has done its work is not run again, whatever the pod's policy.
            _ => container.role == Role::Regular || exit_code != 0,
        }
    }

    /// Whether nothing short of a rule starts this container again.
    pub(super) fn never_restarts(&self, container: &SpecContainer<'_>) -> bool {
        container.restart_policy.unwrap_or_else(|| self.spec.restart_policy()) == "Never"
    }
}

fn rule_restarts(rule: &ContainerRestartRule, exit_code: i32) -> bool {
    let Some(codes) = &rule.exit_codes else { return false };
    let is_listed = codes.values.contains(&exit_code);
    let matches = match codes.operator() {
        "In" => is_listed,
        "NotIn" => !is_listed,
        _ => false,
    };
    matches && matches!(rule.action(), "Restart" | "RestartAllContainers")
}

impl<'a> SpecContainer<'a> {
    fn new(container: &'a v1::Container, role: Role) -> Self {
        Self {
            name: container.name(),
            role,
            image: container.image(),
            has_startup_probe: container.startup_probe.is_some(),
            has_readiness_probe: container.readiness_probe.is_some(),
            resources: container.resources.as_ref(),
            volume_mounts: &container.volume_mounts,
            names_stop_signal: container
                .lifecycle
                .as_ref()
                .is_some_and(|lifecycle| lifecycle.stop_signal.is_some()),
            restart_policy: container.restart_policy.as_deref().filter(|policy| !policy.is_empty()),
            restart_rules: &container.restart_policy_rules,
        }
    }

    fn ephemeral(container: &'a v1::EphemeralContainerCommon) -> Self {
        Self {
            name: container.name(),
            role: Role::Ephemeral,
            image: container.image(),
            has_startup_probe: false,
            has_readiness_probe: false,
            resources: container.resources.as_ref(),
            volume_mounts: &container.volume_mounts,
            names_stop_signal: false,
            restart_policy: Some("Never"),
            restart_rules: &[],
        }
    }
}
