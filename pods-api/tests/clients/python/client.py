"""Drives the server as a stock Python gRPC client does: channel options are the defaults unless a check is about one.

Prints one line per check and exits with 1 at the first that fails. The stubs are generated from proto/ on the way.
"""

import argparse
import faulthandler
import importlib
import json
import os
import pathlib
import sys
import tempfile
import time

import grpc
import grpc_tools
from google.protobuf import descriptor_pool, field_mask_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from grpc_tools import protoc

UID = "5a1e0d3c-0000-4000-8000-00000000d001"
ABSENT = "00000000-0000-4000-8000-000000000000"
# For what must come soon; nothing here takes a tenth of it.
PATIENCE = 20
# After this many seconds the whole program shows where it hangs, and ends.
LIMIT = 90


def check(condition, message):
    if not condition:
        sys.exit(f"FAILED: {message}")


def status_of(call):
    try:
        call()
    except grpc.RpcError as error:
        return error.code(), error.details()
    return grpc.StatusCode.OK, ""


def generate_stubs(proto, out):
    files = [str(path.relative_to(proto)) for path in sorted(proto.rglob("*.proto"))]
    check(files, f"no schemas below {proto}")
    well_known = pathlib.Path(grpc_tools.__file__).parent / "_proto"
    arguments = ["protoc", f"-I{proto}", f"-I{well_known}", f"--python_out={out}", f"--grpc_python_out={out}"]
    check(protoc.main(arguments + files) == 0, "protoc refuses the schemas")
    sys.path.insert(0, out)


class Manifest:
    """One static pod with a fixed UID, so that an edit is the same pod, changed."""

    def __init__(self, directory):
        self.path = directory / "python-client.json"

    def write(self, version):
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "python-client", "namespace": "clients", "uid": UID, "labels": {"version": version}},
            "spec": {"containers": [{"name": "main", "image": "registry.example/main:1"}]},
        }
        # Editors and tools replace files; a name with a dot in front is no manifest.
        temporary = self.path.with_name(".python-client.new")
        temporary.write_text(json.dumps(pod))
        os.replace(temporary, self.path)

    def remove(self):
        self.path.unlink(missing_ok=True)


def check_list_and_get(pods, api, v1, expected):
    listed = list(pods.ListPods(api.ListPodsRequest()).pods)
    decoded = [v1.Pod.FromString(data) for data in listed]
    uids = [pod.metadata.uid for pod in decoded]
    check(len(listed) == expected, f"{expected} pods expected, {len(listed)} listed")
    check(uids == sorted(uids) and len(set(uids)) == expected, f"not each pod once in UID order: {uids}")
    for uid, data in zip(uids, listed):
        check(pods.GetPod(api.GetPodRequest(podUID=uid)).pod == data, f"GetPod of {uid} differs from ListPods")
        # Stays below the rate limit of a caller: 100/s after a burst of 10.
        time.sleep(0.02)
    code, details = status_of(lambda: pods.GetPod(api.GetPodRequest(podUID=ABSENT)))
    check(code == grpc.StatusCode.NOT_FOUND, f"an unknown UID gives {code}")
    check(details == f"pod with UID {ABSENT} not found", f"unknown UID: {details!r}")
    return listed, uids


def check_field_masks(pods, api, v1, listed):
    paths = ["metadata.name", "spec.nodeName"]
    expected = []
    for data in listed:
        whole, cut = v1.Pod.FromString(data), v1.Pod()
        cut.metadata.name = whole.metadata.name
        cut.spec.nodeName = whole.spec.nodeName
        expected.append(cut)
    as_text = ("x-kubernetes-fieldmask", ", ".join(paths))
    as_message = ("x-kubernetes-fieldmask-bin", field_mask_pb2.FieldMask(paths=paths).SerializeToString())
    for mask in as_text, as_message:
        answer = pods.ListPods(api.ListPodsRequest(), metadata=[mask])
        check([v1.Pod.FromString(data) for data in answer.pods] == expected, f"{mask[0]} gives {answer}")
    uid = v1.Pod.FromString(listed[0]).metadata.uid
    wrong = [("x-kubernetes-fieldmask", "metadata.name,spec.nope")]
    code, details = status_of(lambda: pods.GetPod(api.GetPodRequest(podUID=uid), metadata=wrong))
    check(code == grpc.StatusCode.INVALID_ARGUMENT and "spec.nope" in details, f"a wrong mask gives {code} {details}")


def check_watch(pods, api, v1, manifest, listed):
    events = pods.WatchPods(api.WatchPodsRequest(), timeout=PATIENCE)
    initial = [next(events) for _ in listed]
    check(all(event.type == api.ADDED for event in initial), "something else than ADDED before the marker")
    check([event.pod for event in initial] == listed, "the initial pods differ from ListPods")
    marker = next(events)
    check(marker.type == api.INITIAL_SYNC_COMPLETE and not marker.pod, f"no marker but {marker}")

    manifest.write("1")
    event = next(events)
    pod = v1.Pod.FromString(event.pod)
    check(event.type == api.ADDED and pod.metadata.uid == UID, f"a new manifest gives {event}")
    check(pod.metadata.labels["version"] == "1", f"labels of the new pod: {pod.metadata.labels}")

    manifest.write("2")
    event = next(events)
    pod = v1.Pod.FromString(event.pod)
    check(event.type == api.MODIFIED and pod.metadata.uid == UID, f"an edited manifest gives {event}")
    check(pod.metadata.labels["version"] == "2", f"labels of the edited pod: {pod.metadata.labels}")

    manifest.remove()
    event = next(events)
    check(event.type == api.DELETED, f"a removed manifest gives {event}")
    stub = v1.Pod()
    stub.metadata.uid = UID
    stub.metadata.name = pod.metadata.name
    stub.metadata.namespace = "clients"
    check(v1.Pod.FromString(event.pod) == stub, "DELETED carries more or less than name, namespace and UID")
    events.cancel()


def check_documented(channel, documented, documented_grpc, manifest, listed, v1):
    pods = documented_grpc.PodsStub(channel)
    known = [v1.Pod.FromString(data) for data in listed]
    check(list(pods.ListPods(documented.PodListRequest()).pods) == known, "the two contracts list different pods")
    uid = known[0].metadata.uid
    check(pods.GetPod(documented.PodGetRequest(podUID=uid)).pod == known[0], "the two contracts differ in GetPod")

    events = pods.WatchPods(documented.PodWatchRequest(), timeout=PATIENCE)
    check([next(events).pod for _ in known] == known, "the documented watch does not begin with all pods")
    manifest.write("1")
    pod = next(events).pod
    check(pod.metadata.uid == UID and pod.metadata.labels["version"] == "1", f"a new manifest gives {pod.metadata}")
    manifest.write("2")
    pod = next(events).pod
    check(pod.metadata.labels["version"] == "2", f"an edited manifest gives {pod.metadata}")
    manifest.remove()
    last = next(events).pod
    check(last.metadata.uid == UID and last.spec == pod.spec, "the last message is not the pod's last state")
    check(last.metadata.HasField("deletionTimestamp"), "a deleted pod has no deletionTimestamp")
    check(last.metadata.annotations["pods-api/deleted"] == "true", "a deleted pod is not annotated")
    events.cancel()


def check_health(channel):
    health = health_pb2_grpc.HealthStub(channel)
    for service in ["", "v1alpha1.Pods", "Pods", "podsapi.v1.Node"]:
        response = health.Check(health_pb2.HealthCheckRequest(service=service))
        check(response.status == health_pb2.HealthCheckResponse.SERVING, f"health of {service!r}: {response}")
    code, _ = status_of(lambda: health.Check(health_pb2.HealthCheckRequest(service="no.such.Service")))
    check(code == grpc.StatusCode.NOT_FOUND, f"health of an unknown service gives {code}")


def check_reflection(channel):
    database = ProtoReflectionDescriptorDatabase(channel)
    services = set(database.get_services())
    check({"v1alpha1.Pods", "Pods", "podsapi.v1.Node"} <= services, f"reflection lists {services}")
    pool = descriptor_pool.DescriptorPool(database)
    methods = [method.name for method in pool.FindServiceByName("v1alpha1.Pods").methods]
    check(sorted(methods) == ["GetPod", "ListPods", "WatchPods"], f"reflection describes {methods}")
    fields = pool.FindMessageTypeByName("k8s.io.api.core.v1.PodStatus").fields_by_name
    check("containerStatuses" in fields, "reflection does not reach core/v1")


def check_deadline_and_cancellation(pods, api, listed):
    start = time.monotonic()
    code, _ = status_of(lambda: list(pods.WatchPods(api.WatchPodsRequest(), timeout=1)))
    check(code == grpc.StatusCode.DEADLINE_EXCEEDED, f"a watch past its deadline ends with {code}")
    check(time.monotonic() - start >= 0.9, "the watch ended before its deadline")

    events = pods.WatchPods(api.WatchPodsRequest())
    next(events)
    events.cancel()
    code, _ = status_of(lambda: list(events))
    check(code == grpc.StatusCode.CANCELLED, f"a cancelled watch ends with {code}")
    check(list(pods.ListPods(api.ListPodsRequest()).pods) == listed, "the connection is unusable after a cancellation")


def check_keepalive(target, api, api_grpc):
    # Ten times as eager as clients are by default, without any call open: still no flood.
    options = [
        ("grpc.keepalive_time_ms", 1_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        # Its own connection, not one shared with the other channels.
        ("grpc.use_local_subchannel_pool", 1),
    ]
    with grpc.insecure_channel(target, options=options) as channel:
        pods = api_grpc.PodsStub(channel)
        pods.ListPods(api.ListPodsRequest())
        states = []
        channel.subscribe(states.append)
        time.sleep(5)
        check(grpc.ChannelConnectivity.TRANSIENT_FAILURE not in states, f"pings cost the connection: {states}")
        check(states[-1:] in ([], [grpc.ChannelConnectivity.READY]), f"pings cost the connection: {states}")
        pods.ListPods(api.ListPodsRequest())


def check_compression(target, api, api_grpc, listed):
    # The server reads no compressed messages and says so; the connection goes on.
    with grpc.insecure_channel(target) as channel:
        pods = api_grpc.PodsStub(channel)
        call = lambda: pods.GetPod(api.GetPodRequest(podUID=ABSENT), compression=grpc.Compression.Gzip)
        code, _ = status_of(call)
        check(code == grpc.StatusCode.UNIMPLEMENTED, f"a compressed request gives {code}")
        check(list(pods.ListPods(api.ListPodsRequest()).pods) == listed, "the connection is unusable afterwards")


def check_large(target, api, api_grpc, v1):
    with grpc.insecure_channel(target) as channel:
        pods = api_grpc.PodsStub(channel)
        code, _ = status_of(lambda: pods.ListPods(api.ListPodsRequest()))
        check(code == grpc.StatusCode.RESOURCE_EXHAUSTED, f"a list above the client's 4 MiB gives {code}")
        # One of the documented remedies: a watch sends one pod at a time.
        count = 0
        for event in pods.WatchPods(api.WatchPodsRequest(), timeout=PATIENCE):
            if event.type == api.INITIAL_SYNC_COMPLETE:
                break
            count += 1
    with grpc.insecure_channel(target, options=[("grpc.max_receive_message_length", 64 << 20)]) as channel:
        response = api_grpc.PodsStub(channel).ListPods(api.ListPodsRequest())
    check(response.ByteSize() > 12_000_000, f"the large list has only {response.ByteSize()} bytes")
    check(len(response.pods) == count, f"{len(response.pods)} pods listed, {count} watched")
    check(v1.Pod.FromString(response.pods[-1]).metadata.uid, "the last pod of the large list is damaged")


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--proto", type=pathlib.Path, required=True)
    arguments.add_argument("--socket", required=True)
    arguments.add_argument("--manifests", type=pathlib.Path, required=True)
    arguments.add_argument("--pods", type=int, required=True)
    arguments.add_argument("--large-socket", required=True)
    arguments = arguments.parse_args()
    faulthandler.dump_traceback_later(LIMIT, exit=True)

    with tempfile.TemporaryDirectory() as out:
        generate_stubs(arguments.proto, out)
        modules = ["pods.v1alpha1.api_pb2", "pods.v1alpha1.api_pb2_grpc", "pods.documented.api_pb2"]
        modules += ["pods.documented.api_pb2_grpc", "k8s.io.api.core.v1.generated_pb2"]
        api, api_grpc, documented, documented_grpc, v1 = map(importlib.import_module, modules)
    print("ok stubs from proto/")

    target = f"unix:{arguments.socket}"
    manifest = Manifest(arguments.manifests)
    with grpc.insecure_channel(target) as channel:
        pods = api_grpc.PodsStub(channel)
        listed, _ = check_list_and_get(pods, api, v1, arguments.pods)
        print("ok list and get")
        check_field_masks(pods, api, v1, listed)
        print("ok field masks")
        check_watch(pods, api, v1, manifest, listed)
        print("ok watch")
        check_documented(channel, documented, documented_grpc, manifest, listed, v1)
        print("ok documented contract")
        check_health(channel)
        print("ok health")
        check_reflection(channel)
        print("ok reflection")
        check_deadline_and_cancellation(pods, api, listed)
        print("ok deadline and cancellation")
    check_keepalive(target, api, api_grpc)
    print("ok keepalive")
    check_compression(target, api, api_grpc, listed)
    print("ok compression")
    check_large(f"unix:{arguments.large_socket}", api, api_grpc, v1)
    print("ok large list")


if __name__ == "__main__":
    main()
