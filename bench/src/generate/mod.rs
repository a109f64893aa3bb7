//! Generates realistic pods: the same seed gives the same node, as protobuf and as static pod manifests.
//!
//! Real pods of a service node are mostly environment, probes, mounts and status; their size is reached here by
//! adding environment variables, because that is what makes real pods large too.

mod encode;
mod manifest;
mod random;

pub(crate) use encode::encode;
pub(crate) use manifest::{SEQUENCE_DIGITS, Template, manifest, sequence_of};
pub(crate) use random::Random;

/// Annotation whose value, a number of [`SEQUENCE_DIGITS`] digits, says which change a received pod shows.
pub(crate) const SEQUENCE_ANNOTATION: &str = "pods-bench/sequence";

/// Which pods to generate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) pods: usize,
    /// Wanted size of each encoded pod; the smallest pod generated is about 2 kB.
    pub(crate) pod_bytes: usize,
    pub(crate) seed: u64,
}

/// A pod in the terms that both renderers share.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Shape {
    pub(crate) index: usize,
    pub(crate) uid: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) app: String,
    pub(crate) containers: Vec<Container>,
    /// Whether the pod has the status of a running pod; static pods get theirs from the server.
    pub(crate) running: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Container {
    pub(crate) name: String,
    pub(crate) image: String,
    pub(crate) port: u16,
    pub(crate) id: String,
    pub(crate) environment: Vec<(String, String)>,
}

/// Returns the shapes of a plan; `running` decides whether they carry a status.
pub(crate) fn shapes(plan: Plan, running: bool) -> Vec<Shape> {
    (0..plan.pods).map(|index| shape(plan, index, running)).collect()
}

fn shape(plan: Plan, index: usize, running: bool) -> Shape {
    let mut random = Random::new(plan.seed ^ (index as u64).wrapping_mul(0x2545_f491_4f6c_dd1d));
    let app = format!("{}-{}", random.pick(&APPS), random.pick(&ROLES));
    let containers = (0..1 + random.below(3))
        .map(|number| Container {
            name: if number == 0 { app.clone() } else { format!("{}-{number}", random.pick(&SIDECARS)) },
            image: format!(
                "registry.example.com/{}/{}:v{}.{}",
                app,
                number,
                random.below(9),
                random.below(40)
            ),
            port: 8000 + random.below(1000) as u16,
            id: random.hex(64),
            environment: Vec::new(),
        })
        .collect();
    let mut shape = Shape {
        index,
        uid: random.uuid(),
        namespace: random.pick(&NAMESPACES).to_owned(),
        name: format!("{app}-{}-{index:05}", random.hex(10)),
        app,
        containers,
        running,
    };
    fill(&mut shape, plan.pod_bytes, &mut random);
    shape
}

/// Adds environment variables, container by container, until the pod has the wanted size.
fn fill(shape: &mut Shape, wanted_bytes: usize, random: &mut Random) {
    let mut missing = wanted_bytes.saturating_sub(encode(shape).len());
    let containers = shape.containers.len();
    for number in 0.. {
        // A variable costs its text and about eight bytes of tags and lengths.
        let name = format!("{}_{}_{number}", random.pick(&VARIABLES), random.pick(&SUFFIXES));
        let overhead = name.len() + 8;
        if missing <= overhead {
            break;
        }
        let length = (24 + random.below(120)).min(missing - overhead);
        missing -= overhead + length;
        let value = format!("https://{}.svc.cluster.local/{}", random.pick(&APPS), random.hex(160));
        shape.containers[number % containers].environment.push((name, value[..length].to_owned()));
    }
}

const NAMESPACES: [&str; 6] =
    ["default", "payments", "observability", "ingress", "ml-serving", "kube-system"];
const APPS: [&str; 8] =
    ["checkout", "ledger", "search", "gateway", "profile", "inference", "indexer", "billing"];
const ROLES: [&str; 5] = ["api", "worker", "cache", "consumer", "proxy"];
const SIDECARS: [&str; 3] = ["mesh-proxy", "log-shipper", "token-refresher"];
const VARIABLES: [&str; 6] = ["UPSTREAM", "DATABASE", "FEATURE", "OTEL_EXPORTER", "QUEUE", "CACHE"];
const SUFFIXES: [&str; 5] = ["ENDPOINT", "TIMEOUT_SECONDS", "OPTIONS", "CREDENTIALS_FILE", "SHARD"];

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;

    const PLAN: Plan = Plan { pods: 20, pod_bytes: 6_000, seed: 1 };

    #[test]
    fn same_seed_gives_the_same_pods() {
        assert_eq!(shapes(PLAN, true), shapes(PLAN, true));
        assert_ne!(shapes(PLAN, true), shapes(Plan { seed: 2, ..PLAN }, true));
    }

    #[test]
    fn pods_have_the_wanted_size_and_distinct_identities() {
        for pod_bytes in [3_500, 6_000, 15_000, 40_000] {
            for running in [true, false] {
                for shape in shapes(Plan { pod_bytes, ..PLAN }, running) {
                    let length = encode(&shape).len();
                    assert!(length.abs_diff(pod_bytes) < 64 + pod_bytes / 50, "{length} for {pod_bytes}");
                }
            }
        }
        let mut uids: Vec<_> = shapes(PLAN, true).into_iter().map(|shape| shape.uid).collect();
        uids.sort();
        uids.dedup();
        assert_eq!(uids.len(), PLAN.pods);
    }

    #[test]
    fn encoded_pod_and_manifest_tell_the_same_identity() {
        for shape in shapes(PLAN, false) {
            let pod = pods_api_proto::k8s::io::api::core::v1::Pod::decode(&encode(&shape)[..]).unwrap();
            let json: serde_json::Value = serde_json::from_str(&manifest(&shape).text(0)).unwrap();
            let metadata = pod.metadata.unwrap();
            assert_eq!(json["metadata"]["uid"], metadata.uid.unwrap());
            assert_eq!(json["metadata"]["name"], metadata.name.unwrap());
            let spec = pod.spec.unwrap();
            assert_eq!(json["spec"]["containers"].as_array().unwrap().len(), spec.containers.len());
            for (json, container) in
                json["spec"]["containers"].as_array().unwrap().iter().zip(&spec.containers)
            {
                assert_eq!(json["env"].as_array().unwrap().len(), container.env.len());
            }
        }
    }
}
