//! The QoS class (rules C.9).

use super::facts::{PodFacts, Role};
use super::v1;
use crate::wire::Quantity;

const GUARANTEED: &str = "Guaranteed";
const BURSTABLE: &str = "Burstable";
const BEST_EFFORT: &str = "BestEffort";

/// The class of a pod by its spec: that of its containers if they agree, Burstable if they do not.
pub(super) fn class(facts: &PodFacts<'_>) -> &'static str {
    if let Some(resources) = facts.spec.resources.as_ref().filter(|resources| names_cpu_or_memory(resources))
    {
        return class_of(Some(resources));
    }
    let mut classes = facts
        .containers
        .iter()
        .filter(|container| container.role != Role::Ephemeral)
        .map(|container| class_of(container.resources));
    let first = classes.next().unwrap_or(BEST_EFFORT);
    if classes.all(|class| class == first) { first } else { BURSTABLE }
}

fn names_cpu_or_memory(resources: &v1::ResourceRequirements) -> bool {
    ["cpu", "memory"]
        .iter()
        .any(|name| resources.requests.contains_key(*name) || resources.limits.contains_key(*name))
}

/// Rule C.9.4, with requests that were not defaulted from the limits taken as if they were (rule A.4.3).
fn class_of(resources: Option<&v1::ResourceRequirements>) -> &'static str {
    let pairs = ["cpu", "memory"].map(|name| {
        let of = |list: &super::ResourceList| list.get(name).and_then(positive);
        let limit = resources.and_then(|resources| of(&resources.limits));
        let request = resources.and_then(|resources| of(&resources.requests)).or_else(|| limit.clone());
        (request, limit)
    });
    if pairs.iter().all(|(request, limit)| request.is_none() && limit.is_none()) {
        BEST_EFFORT
    } else if pairs.iter().all(|(request, limit)| limit.is_some() && request == limit) {
        GUARANTEED
    } else {
        BURSTABLE
    }
}

/// The value of a quantity; none for zero, which counts as not set (rule C.9.2), and for what is no quantity.
fn positive(quantity: &super::ApiQuantity) -> Option<Quantity> {
    Quantity::parse(quantity.string()).ok().filter(|value| !value.is_zero() && !value.is_negative())
}

#[cfg(test)]
mod tests {
    use super::super::testing::{self, PodBuilder};
    use super::*;

    fn class_for(build: impl FnOnce(PodBuilder) -> PodBuilder) -> &'static str {
        let pod = build(testing::pod()).build();
        class(&PodFacts::new(&pod))
    }

    #[test]
    fn class_follows_requests_and_limits() {
        type Row = (&'static str, &'static [(&'static str, &'static str)], &'static str);
        let cases: &[Row] = &[
            // Rule C.9.4.
            ("nothing", &[], BEST_EFFORT),
            ("limits alone are requests too", &[("l.cpu", "1"), ("l.memory", "1Gi")], GUARANTEED),
            (
                "equal",
                &[("l.cpu", "1"), ("l.memory", "1Gi"), ("r.cpu", "1000m"), ("r.memory", "1024Mi")],
                GUARANTEED,
            ),
            ("request below limit", &[("l.cpu", "1"), ("l.memory", "1Gi"), ("r.cpu", "500m")], BURSTABLE),
            ("cpu alone", &[("l.cpu", "1"), ("r.cpu", "1")], BURSTABLE),
            ("request alone", &[("r.memory", "64Mi")], BURSTABLE),
            // Rule C.9.2.
            ("zero is none", &[("r.cpu", "0"), ("l.memory", "0")], BEST_EFFORT),
            (
                "other resources do not count",
                &[("l.nvidia.com/gpu", "1"), ("r.ephemeral-storage", "1Gi")],
                BEST_EFFORT,
            ),
        ];
        for (what, resources, expected) in cases {
            assert_eq!(class_for(|pod| pod.regular("a").resources(resources)), *expected, "{what}");
        }
    }

    #[test]
    fn containers_that_differ_make_a_pod_burstable() {
        let full = [("l.cpu", "1"), ("l.memory", "1Gi")];
        assert_eq!(
            class_for(|pod| pod.regular("a").resources(&full).regular("b").resources(&full)),
            GUARANTEED
        );
        assert_eq!(class_for(|pod| pod.regular("a").resources(&full).regular("b")), BURSTABLE);
        // Init containers count, ephemeral ones do not (rule C.9.2).
        assert_eq!(class_for(|pod| pod.init("i").regular("a").resources(&full)), BURSTABLE);
        assert_eq!(class_for(|pod| pod.regular("a").resources(&full).ephemeral("debug")), GUARANTEED);
    }

    #[test]
    fn pod_level_resources_decide_alone() {
        // Rule C.9.3.
        let mut pod = testing::pod().regular("a").build();
        let resources = testing::requirements(&[("l.cpu", "1"), ("l.memory", "1Gi")]);
        pod.spec.as_mut().unwrap().resources = Some(resources);
        assert_eq!(class(&PodFacts::new(&pod)), GUARANTEED);
    }
}
