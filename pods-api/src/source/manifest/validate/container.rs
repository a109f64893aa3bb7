//! Checks of containers: ordinary, init and (not allowed in a manifest) ephemeral ones.

use super::super::problem::At;
use super::{Checks, entries, items, number, syntax, text};
use crate::wire::{Node, Value};
use std::collections::HashSet;

const PORTS: std::ops::RangeInclusive<i64> = 1..=65_535;

/// What containers of one pod must not have twice.
#[derive(Default)]
struct Taken<'a> {
    names: HashSet<&'a str>,
    host_ports: HashSet<(&'a str, &'a str, i64)>,
}

impl Checks {
    /// Checks all containers of a pod spec, whose volumes have the names `volumes`.
    pub(super) fn containers(&mut self, spec: &Node, volumes: &HashSet<&str>, at: &At<'_>) {
        let mut taken = Taken::default();
        if items(spec, "containers").is_empty() {
            self.problem(spec, &at.field("containers"), "a pod has at least one container");
        }
        if let Some(ephemeral) = spec.get("ephemeralContainers").filter(|list| !list.items().is_empty()) {
            let reason = "ephemeral containers cannot be made with the pod";
            self.problem(ephemeral, &at.field("ephemeralContainers"), reason);
        }
        let host_network = spec.get("hostNetwork").is_some_and(|node| node.value == Value::Bool(true));
        for list in ["containers", "initContainers"] {
            let at = at.field(list);
            for (index, container) in items(spec, list).iter().enumerate() {
                let at = at.index(index);
                self.container(container, volumes, &at);
                self.unique(&mut taken.names, text(container, "name"), container, &at.field("name"));
                // A sidecar has probes and hooks; another init container has none.
                let is_init = list == "initContainers";
                let is_sidecar = text(container, "restartPolicy") == "Always";
                if is_init && !is_sidecar {
                    for field in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
                        if let Some(node) = container.get(field) {
                            let reason = "an init container may have it only with restartPolicy Always";
                            self.problem(node, &at.field(field), reason);
                        }
                    }
                }
                // Init containers run one after another, so only sidecars compete for the ports of the host.
                if !is_init {
                    self.host_ports(container, host_network, &mut taken, &at);
                }
            }
        }
    }

    fn container(&mut self, container: &Node, volumes: &HashSet<&str>, at: &At<'_>) {
        self.needed(container, "name", at, syntax::dns_label);
        let image = container.get("image").unwrap_or(container);
        match image.as_str().unwrap_or_default() {
            "" => self.problem(image, &at.field("image"), "is needed"),
            name if name.trim() != name => {
                self.problem(image, &at.field("image"), "begins or ends with white space");
            }
            _ => {}
        }
        self.one_of(container, "imagePullPolicy", at, &["Always", "IfNotPresent", "Never"]);
        self.one_of(container, "terminationMessagePolicy", at, &["File", "FallbackToLogsOnError"]);
        self.one_of(container, "restartPolicy", at, &["", "Always", "OnFailure", "Never"]);
        self.ports(container, at);
        self.environment(container, at);
        self.mounts(container, volumes, at);
        self.resources(container, at);
        for field in ["livenessProbe", "readinessProbe", "startupProbe"] {
            let Some(probe) = container.get(field) else { continue };
            let at = at.field(field);
            self.probe(probe, &at);
            if field != "readinessProbe" && probe.get("successThreshold").and_then(number) != Some(1) {
                self.problem(probe, &at.field("successThreshold"), "must be 1");
            }
        }
        if let Some(lifecycle) = container.get("lifecycle") {
            let at = at.field("lifecycle");
            for hook in ["postStart", "preStop"] {
                if let Some(handler) = lifecycle.get(hook) {
                    self.handler(handler, &["exec", "httpGet", "tcpSocket", "sleep"], &at.field(hook));
                }
            }
        }
    }

    fn ports(&mut self, container: &Node, at: &At<'_>) {
        let mut names = HashSet::new();
        let at = at.field("ports");
        for (index, port) in items(container, "ports").iter().enumerate() {
            let at = at.index(index);
            if port.get("containerPort").is_none() {
                self.problem(port, &at.field("containerPort"), "is needed");
            }
            self.range(port, "containerPort", &at, PORTS);
            self.range(port, "hostPort", &at, 0..=*PORTS.end());
            self.one_of(port, "protocol", &at, &["TCP", "UDP", "SCTP"]);
            self.optional(port, "name", &at, syntax::port_name);
            self.unique(&mut names, text(port, "name"), port, &at.field("name"));
        }
    }

    fn host_ports<'a>(
        &mut self,
        container: &'a Node,
        host_network: bool,
        taken: &mut Taken<'a>,
        at: &At<'_>,
    ) {
        let at = at.field("ports");
        for (index, port) in items(container, "ports").iter().enumerate() {
            let at = at.index(index);
            let of = |field| port.get(field).and_then(number).unwrap_or_default();
            let (container_port, host_port) = (of("containerPort"), of("hostPort"));
            if host_network && host_port != container_port {
                let reason = "must be the containerPort, as hostNetwork wants";
                self.problem(port, &at.field("hostPort"), reason);
            }
            let key = (text(port, "protocol"), text(port, "hostIP"), host_port);
            if host_port != 0 && !taken.host_ports.insert(key) {
                self.problem(port, &at.field("hostPort"), "is used twice");
            }
        }
    }

    fn environment(&mut self, container: &Node, at: &At<'_>) {
        let env = at.field("env");
        for (index, variable) in items(container, "env").iter().enumerate() {
            let at = env.index(index);
            self.needed(variable, "name", &at, syntax::variable_name);
            let Some(source) = variable.get("valueFrom") else { continue };
            let at = at.field("valueFrom");
            if !text(variable, "value").is_empty() {
                self.problem(source, &at, "cannot stand beside a value");
            }
            const SOURCES: [&str; 5] =
                ["fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef"];
            self.exactly_one(source, &SOURCES, &at);
            for field in ["configMapKeyRef", "secretKeyRef"] {
                if let Some(node) = source.get(field) {
                    self.notice(node, &at.field(field));
                }
            }
        }
        let env_from = at.field("envFrom");
        for (index, source) in items(container, "envFrom").iter().enumerate() {
            let at = env_from.index(index);
            self.exactly_one(source, &["configMapRef", "secretRef"], &at);
            self.notice(source, &at);
        }
    }

    fn mounts(&mut self, container: &Node, volumes: &HashSet<&str>, at: &At<'_>) {
        let mut paths = HashSet::new();
        let mounts = at.field("volumeMounts");
        for (index, mount) in items(container, "volumeMounts").iter().enumerate() {
            let at = mounts.index(index);
            self.volume_name(mount, volumes, &at);
            if text(mount, "mountPath").is_empty() {
                self.problem(mount, &at.field("mountPath"), "is needed");
            }
            self.unique(&mut paths, text(mount, "mountPath"), mount, &at.field("mountPath"));
            for field in ["subPath", "subPathExpr"] {
                self.no_climb(mount, text(mount, field), &at.field(field));
            }
        }
        let devices = at.field("volumeDevices");
        for (index, device) in items(container, "volumeDevices").iter().enumerate() {
            let at = devices.index(index);
            self.volume_name(device, volumes, &at);
            self.path(device, "devicePath", &at);
        }
    }

    fn volume_name(&mut self, mount: &Node, volumes: &HashSet<&str>, at: &At<'_>) {
        let name = text(mount, "name");
        let node = mount.get("name").unwrap_or(mount);
        if name.is_empty() {
            self.problem(node, &at.field("name"), "is needed");
        } else if !volumes.contains(name) {
            self.problem(node, &at.field("name"), "names no volume of the pod");
        }
    }

    fn resources(&mut self, container: &Node, at: &At<'_>) {
        let Some(resources) = container.get("resources") else { return };
        let at = at.field("resources");
        let limits = resources.get("limits");
        for list in ["limits", "requests"] {
            let at = at.field(list);
            for (name, node) in resources.get(list).map(entries).into_iter().flatten() {
                let at = at.key(name);
                self.key_holds(name, node, &at, syntax::qualified_name);
                let Some(quantity) = self.quantity(node, &at) else { continue };
                let limit = limits.filter(|_| list == "requests").and_then(|limits| limits.get(name));
                if let Some(limit) = limit
                    && let Value::String(text) | Value::Number(text) = &limit.value
                    && let Ok(limit) = crate::wire::Quantity::parse(text)
                    && quantity > limit
                {
                    self.problem(node, &at, "is more than the limit");
                }
            }
        }
        if let Some(claims) = resources.get("claims").filter(|claims| !claims.items().is_empty()) {
            self.problem(claims, &at.field("claims"), "a static pod may not use resource claims");
        }
    }

    fn probe(&mut self, probe: &Node, at: &At<'_>) {
        self.handler(probe, &["exec", "httpGet", "tcpSocket", "grpc"], at);
        self.range(probe, "initialDelaySeconds", at, 0..=i64::MAX);
        for field in ["timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"] {
            self.range(probe, field, at, 1..=i64::MAX);
        }
    }

    fn handler(&mut self, handler: &Node, kinds: &[&str], at: &At<'_>) {
        self.exactly_one(handler, kinds, at);
        for field in ["httpGet", "tcpSocket"] {
            let Some(action) = handler.get(field) else { continue };
            let at = at.field(field);
            match action.get("port") {
                None => self.problem(action, &at.field("port"), "is needed"),
                Some(port) => match port.as_str() {
                    Some(_) => self.optional(action, "port", &at, syntax::port_name),
                    None => self.range(action, "port", &at, PORTS),
                },
            }
            if field == "httpGet" {
                self.one_of(action, "scheme", &at, &["HTTP", "HTTPS"]);
            }
        }
    }

    fn exactly_one(&mut self, message: &Node, fields: &[&str], at: &At<'_>) {
        match fields.iter().filter(|field| message.get(field).is_some()).count() {
            1 => {}
            0 => self.problem(message, at, format!("one of {} is needed", fields.join(", "))),
            _ => self.problem(message, at, format!("only one of {} is possible", fields.join(", "))),
        }
    }
}
