//! Projection of pods to field masks, and what it is measured against: copying the pod.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use pods_api::wire::testing::plausible_pod;
use pods_api::wire::{Mask, PodView, canonical_pod, pod_to_json};

/// What a service mesh's node agent reads of each pod.
const MESH: &str = "metadata.name,metadata.namespace,metadata.uid,metadata.labels,metadata.annotations,\
    metadata.deletionTimestamp,spec.serviceAccountName,spec.hostNetwork,status.phase,status.podIPs";
const ADDRESSES: &str = "status.phase,status.podIPs";
const IMAGES: &str = "metadata.uid,spec.containers.image,status.containerStatuses.imageID";

fn projection(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("project");
    for size in [6 << 10, 40 << 10] {
        let pod = plausible_pod(7, size);
        group.throughput(Throughput::Bytes(pod.len() as u64));
        for (name, paths) in [("copy", "*"), ("mesh", MESH), ("addresses", ADDRESSES), ("images", IMAGES)] {
            let mask = Mask::parse(paths).expect("these are fields of a Pod");
            let mut out = Vec::with_capacity(pod.len());
            group.bench_function(BenchmarkId::new(name, pod.len()), |bencher| {
                bencher.iter(|| {
                    out.clear();
                    mask.project(black_box(&pod), &mut out).expect("the pod is well-formed");
                    out.len()
                });
            });
        }
    }
    group.finish();
}

fn ingest(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("ingest");
    let pod = plausible_pod(7, 6 << 10);
    group.throughput(Throughput::Bytes(pod.len() as u64));
    group.bench_function("canonical", |bencher| bencher.iter(|| canonical_pod(black_box(&pod))));
    group.bench_function("view", |bencher| {
        bencher.iter(|| PodView::parse(black_box(&pod)).map(|view| view.pod_ips.len()));
    });
    group.bench_function("json", |bencher| bencher.iter(|| pod_to_json(black_box(&pod))));
    group.finish();
}

fn masks(criterion: &mut Criterion) {
    criterion.bench_function("mask/parse mesh", |bencher| bencher.iter(|| Mask::parse(black_box(MESH))));
}

criterion_group!(benches, projection, ingest, masks);
criterion_main!(benches);
