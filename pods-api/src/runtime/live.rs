//! One pod's runtime state as the store asks for it: decodes, applies the status rules, encodes. Runs on the store's
//! thread; shares nothing mutable with the `runtime` thread but the divergence counters.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use pods_api_proto::k8s::io::api::core::v1;
use prost::Message as _;

use super::hints::RuntimeHints;
use super::status::{
    Field, NodeFacts, RuntimePod, StatusInputs, derive, divergence, names_unknown_container,
};
use crate::pod::{Base, ContainerRef, LiveInputs, LiveStatus};
use crate::wire::varint::Fields;

/// Field 3 of Pod.
const STATUS: u32 = 3;
/// The last field of PodStatus that this build knows.
const LAST_KNOWN_STATUS_FIELD: u32 = 22;

/// How often the kubelet's status differed from the one derived from the runtime, by field.
///
/// Counted on the store's thread, read by scrapes: each counter on its own, so Relaxed is enough.
#[derive(Debug, Default)]
pub struct Divergences {
    comparisons: AtomicU64,
    differences: [AtomicU64; Field::ALL.len()],
}

impl Divergences {
    fn count(&self, fields: &[Field]) {
        self.comparisons.fetch_add(1, Ordering::Relaxed);
        for field in fields {
            self.differences[*field as usize].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How often the two were compared: without comparisons, no difference says nothing.
    pub fn comparisons(&self) -> u64 {
        self.comparisons.load(Ordering::Relaxed)
    }

    /// Every field with its count.
    pub fn iter(&self) -> impl Iterator<Item = (Field, u64)> {
        Field::ALL.iter().map(|field| (*field, self.differences[*field as usize].load(Ordering::Relaxed)))
    }
}

/// What is the same for all pods.
#[derive(Debug)]
pub(super) struct Surroundings {
    /// The scheme of `containerID`.
    pub(super) runtime_name: String,
    pub(super) node: NodeFacts,
    pub(super) divergences: Arc<Divergences>,
    pub(super) hints: RuntimeHints,
}

/// A pod's runtime state, ready to be asked for the pod's status.
#[derive(Debug)]
pub(super) struct LivePod {
    runtime: RuntimePod,
    surroundings: Arc<Surroundings>,
}

impl LivePod {
    pub(super) fn new(runtime: RuntimePod, surroundings: Arc<Surroundings>) -> Self {
        Self { runtime, surroundings }
    }
}

impl LiveStatus for LivePod {
    fn status(&self, inputs: &LiveInputs<'_>) -> Option<Bytes> {
        let pod = v1::Pod::decode(inputs.pod)
            .inspect_err(|error| tracing::debug!(%error, "pod cannot be decoded: its status stays as it is"))
            .ok()?;
        let base_bytes = inputs.base.and_then(|base| status_of(&base.pod));
        let base = base_bytes.and_then(|status| v1::PodStatus::decode(status).ok());
        let last_base = inputs.last_base.filter(|_| base.is_none()).and_then(|last| status_of(&last.pod));
        let last_base = last_base.and_then(|status| v1::PodStatus::decode(status).ok());
        let previous = inputs.previous.and_then(status_of);
        let previous = previous.and_then(|status| v1::PodStatus::decode(status).ok());
        let is_base_newer =
            inputs.base.is_some_and(|Base { received, .. }| *received > self.runtime.read_began());
        let inputs = StatusInputs {
            pod: &pod,
            base: base.as_ref(),
            last_base: base.as_ref().or(last_base.as_ref()),
            is_base_newer,
            previous: previous.as_ref(),
            runtime: &self.runtime,
            runtime_name: &self.surroundings.runtime_name,
            node: &self.surroundings.node,
            now: inputs.now.unix_seconds,
        };
        let status = derive(&inputs);
        if names_unknown_container(&inputs) {
            // Only a read that begins from now on can tell which of the two is the older.
            self.surroundings
                .hints
                .ask_again(pod.metadata.as_ref().map_or("", |metadata| metadata.uid()).into());
        }
        // The kubelet has just spoken, so both are of one time: later the runtime's view runs ahead of its words.
        if is_base_newer && let Some(fields) = divergence(&inputs) {
            self.surroundings.divergences.count(&fields);
        }
        let base_bytes = base_bytes.filter(|_| base.is_some());
        if let Some(bytes) = base_bytes.filter(|_| base.as_ref() == Some(&status)) {
            return Some(Bytes::copy_from_slice(bytes));
        }
        let mut encoded = status.encode_to_vec();
        base_bytes.into_iter().for_each(|bytes| put_unknown_fields(&mut encoded, bytes));
        Some(encoded.into())
    }

    fn is_running(&self) -> bool {
        self.runtime.is_running()
    }

    fn containers(&self) -> Vec<ContainerRef> {
        let sandboxes = self.runtime.sandboxes().iter();
        let sandboxes = sandboxes.map(|it| ContainerRef { id: it.id.as_str().into(), is_sandbox: true });
        let containers = self.runtime.containers().iter();
        let containers = containers.map(|it| ContainerRef { id: it.id.clone(), is_sandbox: false });
        sandboxes.chain(containers).collect()
    }

    fn is_absent(&self) -> bool {
        self.runtime.is_absent()
    }
}

/// Stands for a pod that the runtime has, but that could not be read yet: its source's status stays, and so does the
/// pod.
#[derive(Debug)]
pub(super) struct Unread;

impl LiveStatus for Unread {
    fn status(&self, _: &LiveInputs<'_>) -> Option<Bytes> {
        None
    }

    fn is_running(&self) -> bool {
        true
    }

    fn is_absent(&self) -> bool {
        false
    }
}

/// The encoded status of an encoded Pod.
fn status_of(pod: &[u8]) -> Option<&[u8]> {
    Fields::new(pod).filter_map(Result::ok).filter(|field| field.number == STATUS).last()?.bytes()
}

/// Carries over what a newer kubelet says in fields that this build does not know.
fn put_unknown_fields(encoded: &mut Vec<u8>, base: &[u8]) {
    for field in Fields::new(base).filter_map(Result::ok) {
        if field.number > LAST_KNOWN_STATUS_FIELD {
            encoded.extend_from_slice(field.raw);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::super::status::testing::{pod, status, view};
    use super::*;
    use crate::pod::Now;

    fn live(view: super::super::status::testing::View, divergences: &Arc<Divergences>) -> LivePod {
        let surroundings = Surroundings {
            runtime_name: "containerd".to_owned(),
            node: NodeFacts::default(),
            divergences: divergences.clone(),
            hints: RuntimeHints::new(Arc::default()).0,
        };
        LivePod::new(view.build(), Arc::new(surroundings))
    }

    fn ask(live: &LivePod, base: Option<(&v1::PodStatus, &[u8], Instant)>) -> Vec<u8> {
        let pod = pod().regular("a").build();
        let base = base.map(|(status, unknown, received)| {
            let mut status = status.encode_to_vec();
            status.extend_from_slice(unknown);
            let mut pod = pod.encode_to_vec();
            crate::wire::varint::put_length_field(&mut pod, STATUS, &status);
            Base { pod: pod.into(), received }
        });
        let inputs = LiveInputs {
            pod: &pod.encode_to_vec(),
            base: base.as_ref(),
            last_base: None,
            previous: None,
            now: Now { instant: Instant::now(), unix_seconds: 1 },
        };
        live.status(&inputs).unwrap().to_vec()
    }

    fn runs() -> super::super::status::testing::View {
        view().ready("s").running("a", "a0")
    }

    #[test]
    fn unknown_fields_of_the_kubelets_status_survive() {
        let unknown = [0xfa, 0x3e, 0x01, b'x'];
        let base = status("Running").running("a", "a0").ready().pod_ips(&["10.0.0.1"]).build();
        let received = Instant::now();
        let divergences = Arc::default();
        let kept = ask(&live(runs(), &divergences), Some((&base, &unknown, received)));
        assert_eq!(kept, [&base.encode_to_vec()[..], &unknown].concat(), "the kubelet's own bytes");
        let ended = view().ready("s").exited("a", "a0", 1);
        let overlaid = ask(&live(ended, &divergences), Some((&base, &unknown, received)));
        assert!(overlaid.ends_with(&unknown));
        assert!(!v1::PodStatus::decode(&*overlaid).unwrap().container_statuses[0].ready());
    }

    #[test]
    fn divergence_is_counted_when_the_kubelet_speaks_after_the_read() {
        let base = status("Pending").running("a", "a0").ready().pod_ips(&["10.0.0.1"]).build();
        let divergences = Arc::new(Divergences::default());
        let live = live(runs(), &divergences);
        let count = || divergences.iter().find(|(field, _)| *field == Field::Phase).unwrap().1;
        let before = live.runtime.read_began().checked_sub(Duration::from_secs(1)).unwrap();
        ask(&live, Some((&base, &[], before)));
        assert_eq!((count(), divergences.comparisons()), (0, 0), "the runtime's view runs ahead");
        ask(&live, Some((&base, &[], live.runtime.read_began() + Duration::from_secs(1))));
        assert_eq!((count(), divergences.comparisons()), (1, 1));
    }

    #[test]
    fn agreement_is_counted_as_a_comparison() {
        let base = status("Running").running("a", "a0").ready().pod_ips(&["10.0.0.1"]).build();
        let divergences = Arc::new(Divergences::default());
        let live = live(runs(), &divergences);
        ask(&live, None);
        assert_eq!(divergences.comparisons(), 0, "there is nothing to compare with");
        ask(&live, Some((&base, &[], live.runtime.read_began() + Duration::from_secs(1))));
        assert_eq!(divergences.comparisons(), 1);
    }

    #[test]
    fn unreadable_pod_has_no_status() {
        let live = live(runs(), &Arc::default());
        let inputs = LiveInputs {
            pod: &[0x0a, 0xff],
            base: None,
            last_base: None,
            previous: None,
            now: Now { instant: Instant::now(), unix_seconds: 1 },
        };
        assert_eq!(live.status(&inputs), None);
    }

    #[test]
    fn readiness_stays_when_the_source_of_the_kubelets_word_drops_the_pod() {
        // STAT-1, STAT-3.
        let pod = pod().regular("a").readiness_probe().startup_probe().build();
        let told = status("Running").running("a", "a0").ready().build();
        let base = v1::Pod { status: Some(told), ..pod.clone() };
        let base = Base { pod: base.encode_to_vec().into(), received: Instant::now() };
        let ready = |view, last_base| {
            let inputs = LiveInputs {
                pod: &pod.encode_to_vec(),
                base: None,
                last_base,
                previous: None,
                now: Now { instant: Instant::now(), unix_seconds: 1 },
            };
            let status = live(view, &Arc::default()).status(&inputs).unwrap();
            let entry = v1::PodStatus::decode(status).unwrap().container_statuses.remove(0);
            (entry.started(), entry.ready())
        };
        assert_eq!(ready(runs(), Some(&base)), (true, true));
        assert_eq!(ready(runs(), None), (false, false));
        let replaced = view().ready("s").running("a", "a1");
        assert_eq!(ready(replaced, Some(&base)), (false, false), "not inherited");
        assert_eq!(ready(view().ready("s").exited("a", "a0", 0), Some(&base)), (false, false));
    }
}
