//! `allocatedResources` and `resources` of a container status (rules C.4.15 and C.4.16).

use super::entry::{self, bare_id};
use super::facts::{Role, SpecContainer};
use super::view::{Container, Resources};
use super::{ApiQuantity, ResourceList, v1};
use crate::wire::Quantity;

/// The CPU limit that a cgroup cannot express any finer, in thousandths.
const MIN_CPU_LIMIT_MILLI: i64 = 10;
/// The smallest number of CPU shares, and what it stands for in thousandths of a CPU.
const MIN_CPU_SHARES: i64 = 2;
const SHARES_PER_CPU: i64 = 1024;

/// The requests that the kubelet granted: those of the spec.
pub(super) fn allocated(container: &SpecContainer<'_>) -> ResourceList {
    match container.role {
        Role::Ephemeral => ResourceList::new(),
        _ => container.resources.map(|resources| resources.requests.clone()).unwrap_or_default(),
    }
}

/// The resources in force: the spec's, with the runtime's word on a running container where it differs.
pub(super) fn in_force(
    container: &SpecContainer<'_>,
    newest: &Container,
    is_running: bool,
    old: Option<&v1::ContainerStatus>,
) -> Option<v1::ResourceRequirements> {
    let spec = container.resources?;
    let mut resources = spec.clone();
    if !is_running {
        return Some(resources);
    }
    // What the runtime gives no value for stays as it was reported for this very container.
    let before = old
        .filter(|old| entry::is_running(old) && bare_id(old.container_id()) == newest.id.as_str())
        .and_then(|old| old.resources.as_ref());
    let actual = newest.resources.unwrap_or_default();
    let limits = [("cpu", cpu_limit(&actual, spec)), ("memory", memory_limit(&actual))];
    for (name, value) in limits {
        overlay(&mut resources.limits, name, value, before.map(|before| &before.limits));
    }
    let request = cpu_request(&actual, spec);
    overlay(&mut resources.requests, "cpu", request, before.map(|before| &before.requests));
    Some(resources)
}

/// What the runtime says of one value.
enum Actual {
    Value(Quantity),
    /// The spec's value is below what a cgroup can express: it stands.
    AsInSpec,
    Unknown,
}

/// Sets one value of a list that has any; one that equals the spec's keeps the spec's text.
fn overlay(list: &mut ResourceList, name: &str, actual: Actual, before: Option<&ResourceList>) {
    if list.is_empty() {
        return;
    }
    let value = match actual {
        Actual::AsInSpec => return,
        Actual::Unknown => match before.and_then(|before| before.get(name)) {
            Some(before) => before.clone(),
            None => return,
        },
        Actual::Value(value) if quantity(list, name).is_some_and(|spec| spec == value) => return,
        Actual::Value(value) => ApiQuantity { string: Some(value.to_string()) },
    };
    list.insert(name.to_owned(), value);
}

fn cpu_limit(actual: &Resources, spec: &v1::ResourceRequirements) -> Actual {
    if actual.cpu_quota <= 0 || actual.cpu_period <= 0 {
        return Actual::Unknown;
    }
    let milli =
        (i128::from(actual.cpu_quota) * 1000 / i128::from(actual.cpu_period)).min(i64::MAX.into()) as i64;
    if milli <= MIN_CPU_LIMIT_MILLI && is_at_most(&spec.limits, MIN_CPU_LIMIT_MILLI) {
        return Actual::AsInSpec;
    }
    cpu(milli)
}

fn memory_limit(actual: &Resources) -> Actual {
    if actual.memory_limit <= 0 {
        return Actual::Unknown;
    }
    // Written as a binary quantity, the way memory is.
    let text = if actual.memory_limit % 1024 == 0 {
        format!("{}Ki", actual.memory_limit / 1024)
    } else {
        actual.memory_limit.to_string()
    };
    Quantity::parse(&text).map_or(Actual::Unknown, Actual::Value)
}

fn cpu_request(actual: &Resources, spec: &v1::ResourceRequirements) -> Actual {
    if actual.cpu_shares <= 0 {
        return Actual::Unknown;
    }
    if actual.cpu_shares <= MIN_CPU_SHARES && is_at_most(&spec.requests, MIN_CPU_SHARES) {
        return Actual::AsInSpec;
    }
    // Shares are a request in thousandths, rounded down: rounding up gives back the request.
    let milli =
        (i128::from(actual.cpu_shares) * 1000 + i128::from(SHARES_PER_CPU) - 1) / i128::from(SHARES_PER_CPU);
    let milli = milli.min(i64::MAX.into()) as i64;
    cpu(milli)
}

fn cpu(milli: i64) -> Actual {
    Quantity::parse(&format!("{milli}m")).map_or(Actual::Unknown, Actual::Value)
}

fn quantity(list: &ResourceList, name: &str) -> Option<Quantity> {
    Quantity::parse(list.get(name)?.string()).ok()
}

fn is_at_most(list: &ResourceList, milli: i64) -> bool {
    let bound = Quantity::parse(&format!("{milli}m")).ok();
    quantity(list, "cpu").is_none_or(|value| bound.is_some_and(|bound| value <= bound))
}
