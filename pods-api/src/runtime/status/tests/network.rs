//! Addresses (rules C.3).

use super::super::testing::*;

#[test]
fn addresses_are_those_of_the_active_sandbox() {
    let a = || pod().regular("a");
    check(
        &[
            ("C.3.2", "ready sandbox", scene(a(), view().ready("s")), "10.0.0.1"),
            ("C.3.2", "the newest of two", scene(a(), view().stopped("s0").ready("s1")), "10.0.0.2"),
            (
                "C.3.2",
                "newest not ready: the older one's do not count",
                scene(a(), view().ready("s0").stopped("s1")),
                "",
            ),
            ("C.3.3", "none, as one of them was no address", scene(a(), view().ready("s").ips(&[])), ""),
            (
                "C.3.5",
                "IPv4 first",
                scene(a(), view().ready("s").ips(&["fd00::2", "10.0.0.9"])),
                "10.0.0.9 fd00::2",
            ),
            (
                "C.3.5",
                "the family of the node's first address first",
                scene(a(), view().ready("s").ips(&["10.0.0.9", "fd00::2"]))
                    .node_ips(&["fd00::1", "192.0.2.1"]),
                "fd00::2 10.0.0.9",
            ),
            (
                "C.3.5",
                "one per family",
                scene(a(), view().ready("s").ips(&["10.0.0.8", "10.0.0.9"])),
                "10.0.0.8",
            ),
            (
                "C.3.5",
                "written canonically",
                scene(a(), view().ready("s").ips(&["fd00:0:0::0:0002"])),
                "fd00::2",
            ),
            (
                "C.3.4",
                "a finished pod keeps its address",
                scene(a(), view().stopped("s")).previous(status("Running").pod_ips(&["10.0.0.7"])),
                "10.0.0.7",
            ),
            (
                "C.10.7",
                "between two sandboxes too",
                scene(a(), view().stopped("s0").stopped("s1")).base(status("Running").pod_ips(&["10.0.0.7"])),
                "10.0.0.7",
            ),
            (
                "C.11.1",
                "a new sandbox's address before the kubelet's word",
                scene(a(), view().stopped("s0").ready("s1").running("a", "a0"))
                    .base(status("Running").running("a", "a0").pod_ips(&["10.0.0.1"])),
                "10.0.0.2",
            ),
            (
                "C.3.7",
                "host network, node unknown",
                scene(a().host_network(), view().ready("s").ips(&[])),
                "",
            ),
            (
                "C.3.7",
                "host network",
                scene(a().host_network(), view().ready("s")).node_ips(&["192.0.2.1"]),
                "192.0.2.1",
            ),
            (
                "C.3.7",
                "host network, two families",
                scene(a().host_network(), view()).node_ips(&["192.0.2.1", "2001:db8::1"]),
                "192.0.2.1 2001:db8::1",
            ),
            (
                "C.3.7",
                "host network, one family twice",
                scene(a().host_network(), view()).node_ips(&["192.0.2.1", "192.0.2.2"]),
                "192.0.2.1",
            ),
            (
                "C.3.6",
                "the kubelet's word of the node",
                scene(a().host_network(), view().ready("s").ips(&[]))
                    .base(status("Pending").host_ips(&["192.0.2.5"])),
                "192.0.2.5",
            ),
        ],
        |status| ips(status).join(" "),
    );
}

#[test]
fn host_addresses_are_shown_where_they_are_known() {
    // Rule C.3.6.
    let status = scene(pod().regular("a"), view()).node_ips(&["192.0.2.1", "2001:db8::1"]).derive();
    assert_eq!((status.host_ip(), status.host_i_ps.len()), ("192.0.2.1", 2));
    let status = scene(pod().regular("a"), view()).derive();
    assert_eq!((status.host_ip.as_deref(), status.host_i_ps.len()), (None, 0));
}
