use super::*;
use crate::wire::parse_json;
use pods_api_proto::k8s::io::api::core::v1::Pod;
use prost::Message as _;

fn encode(json: &str) -> Result<Bytes, FieldError> {
    encode_pod(&parse_json(json.as_bytes()).unwrap())
}

fn pod(json: &str) -> Pod {
    Pod::decode(encode(json).unwrap()).unwrap()
}

fn error(json: &str) -> String {
    encode(json).unwrap_err().to_string()
}

#[test]
fn fields_are_written_in_order_and_maps_by_key() {
    let bytes = encode(
        r#"{"status": {"phase": "Running"}, "kind": "Pod", "spec": {"nodeName": "n", "restartPolicy": "Never"},
            "metadata": {"labels": {"b": "2", "a": "1"}, "name": "x"}}"#,
    );
    let expected: &[u8] = b"\x0a\x13\x0a\x01x\x5a\x06\x0a\x01a\x12\x011\x5a\x06\x0a\x01b\x12\x012\
        \x12\x0a\x1a\x05Never\x52\x01n\x1a\x09\x0a\x07Running";
    assert_eq!(bytes.unwrap(), expected);
}

// rule A.2.5
#[test]
fn unknown_and_differently_spelled_names_are_dropped_and_the_last_duplicate_counts() {
    let bytes = encode(
        r#"{"Metadata": {"name": "no"}, "metadata": {"name": "a", "Name": "b", "name": "c"}, "x": [1]}"#,
    );
    assert_eq!(bytes, encode(r#"{"metadata": {"name": "c"}}"#));
    assert_eq!(
        encode(r#"{"metadata": {"labels": {"a": "1", "a": "2"}}}"#),
        encode(r#"{"metadata": {"labels": {"a": "2"}}}"#)
    );
}

// rule A.2.5, rule E.9.9, MAN-5
#[test]
fn a_value_of_the_wrong_type_is_named_with_its_path() {
    for (json, expected) in [
        (
            r#"{"metadata": {"labels": {"version": 5}}}"#,
            "metadata.labels[version]: expected a string (put it in quotes), found a number",
        ),
        (
            r#"{"metadata": {"labels": {"on": true}}}"#,
            "metadata.labels[on]: expected a string (put it in quotes), found a boolean",
        ),
        (
            r#"{"spec": {"containers": [{}, {"ports": [{"containerPort": "80"}]}]}}"#,
            "spec.containers[1].ports[0].containerPort: expected an integer (without quotes), found a string",
        ),
        (
            r#"{"spec": {"priority": 2147483648}}"#,
            "spec.priority: must be between -2147483648 and 2147483647",
        ),
        (r#"{"spec": {"priority": 1.0}}"#, "spec.priority: expected an integer, found a number"),
        (r#"{"spec": {"priority": 1e3}}"#, "spec.priority: expected an integer, found a number"),
        (r#"{"spec": {"hostNetwork": "yes"}}"#, "spec.hostNetwork: expected true or false, found a string"),
        (r#"{"spec": {"containers": {}}}"#, "spec.containers: expected a list, found an object"),
        (r#"{"spec": []}"#, "spec: expected an object, found a list"),
        (r#"[]"#, "pod: expected an object, found a list"),
        (
            r#"{"spec": {"volumes": [{"hostPath": {"path": 1}}]}}"#,
            "spec.volumes[0].hostPath.path: expected a string (put it in quotes), found a number",
        ),
        (
            r#"{"metadata": {"creationTimestamp": "yesterday"}}"#,
            "metadata.creationTimestamp: expected a time such as 2026-01-31T12:00:00Z, found a string",
        ),
    ] {
        assert_eq!(error(json), expected);
    }
    let located = encode("{\"metadata\": {\n\"labels\": {\n\"a\": 5}}}").unwrap_err();
    assert_eq!(located.line, 3);
}

// rule E.9.9
#[test]
fn null_is_absence() {
    let nulls = r#"{"metadata": {"name": "a", "labels": null, "creationTimestamp": null}, "spec": null}"#;
    assert_eq!(encode(nulls), encode(r#"{"metadata": {"name": "a"}}"#));
    // In a list or a map there is no absence: the zero value stands there.
    let pod =
        pod(r#"{"metadata": {"labels": {"a": null}, "finalizers": [null]}, "spec": {"containers": [null]}}"#);
    assert_eq!(pod.metadata.as_ref().unwrap().labels["a"], "");
    assert_eq!(pod.metadata.unwrap().finalizers, [""]);
    assert_eq!(pod.spec.unwrap().containers.len(), 1);
}

// rule A.4.10
#[test]
fn zeros_are_written_only_where_they_mean_something() {
    let spec =
        pod(r#"{"spec": {"hostNetwork": false, "hostname": "", "priority": 0, "enableServiceLinks": false,
        "securityContext": {}, "runtimeClassName": ""}}"#)
        .spec
        .unwrap();
    assert_eq!((spec.host_network, spec.hostname), (None, None));
    assert_eq!((spec.priority, spec.enable_service_links), (Some(0), Some(false)));
    assert_eq!(spec.runtime_class_name.as_deref(), Some(""));
    assert!(spec.security_context.is_some());
}

// rule E.9.7
#[test]
fn inlined_messages_are_nested() {
    let spec = pod(r#"{"spec": {
        "volumes": [{"name": "v", "emptyDir": {}}, {"name": "none"}],
        "containers": [{"livenessProbe": {"httpGet": {"port": "web"}, "periodSeconds": 5},
            "envFrom": [{"configMapRef": {"name": "c", "optional": true}}, {"secretRef": {"optional": false}}]}],
        "ephemeralContainers": [{"name": "e", "targetContainerName": "t", "image": "i"}]}}"#)
    .spec
    .unwrap();
    assert!(spec.volumes[0].volume_source.as_ref().unwrap().empty_dir.is_some());
    assert!(spec.volumes[1].volume_source.is_none());
    let probe = spec.containers[0].liveness_probe.as_ref().unwrap();
    let port = probe.handler.as_ref().unwrap().http_get.as_ref().unwrap().port.as_ref().unwrap();
    assert_eq!((port.r#type, port.str_val.as_deref(), probe.period_seconds), (Some(1), Some("web"), Some(5)));
    let config_map = spec.containers[0].env_from[0].config_map_ref.as_ref().unwrap();
    assert_eq!(config_map.local_object_reference.as_ref().unwrap().name.as_deref(), Some("c"));
    assert_eq!(config_map.optional, Some(true));
    assert!(spec.containers[0].env_from[1].secret_ref.as_ref().unwrap().local_object_reference.is_none());
    let ephemeral = &spec.ephemeral_containers[0];
    assert_eq!(ephemeral.ephemeral_container_common.as_ref().unwrap().image.as_deref(), Some("i"));
    assert_eq!(ephemeral.target_container_name.as_deref(), Some("t"));
}

// rule E.9.5, rule E.9.6, rule A.2.9
#[test]
fn leaves_have_their_own_forms() {
    let pod = pod(r#"{"metadata": {"creationTimestamp": "2026-07-01T12:30:15.7Z",
            "deletionTimestamp": "0001-01-01T00:00:00Z",
            "managedFields": [{"fieldsV1": {"f:spec": {".": {}, "n": 1.50}}}]},
        "spec": {"overhead": {"cpu": 0.5, "memory": " 1024Mi "},
            "containers": [{"livenessProbe": {"tcpSocket": {"port": 8080}}}]}}"#);
    let metadata = pod.metadata.unwrap();
    assert_eq!(metadata.creation_timestamp.unwrap().seconds, Some(1_782_909_015));
    assert_eq!(metadata.deletion_timestamp, None);
    let fields = metadata.managed_fields[0].fields_v1.as_ref().unwrap();
    assert_eq!(fields.raw.as_deref(), Some(&br#"{"f:spec":{".":{},"n":1.50}}"#[..]));
    let spec = pod.spec.unwrap();
    assert_eq!(spec.overhead["cpu"].string.as_deref(), Some("500m"));
    assert_eq!(spec.overhead["memory"].string.as_deref(), Some("1Gi"));
    let handler = spec.containers[0].liveness_probe.as_ref().unwrap().handler.as_ref().unwrap();
    let port = handler.tcp_socket.as_ref().unwrap().port.as_ref().unwrap();
    assert_eq!((port.r#type, port.int_val), (Some(0), Some(8080)));
}

#[test]
fn values_are_not_in_messages_and_long_keys_are_cut() {
    for json in [
        r#"{"spec": {"containers": [{"env": [{"value": 8675309}]}]}}"#,
        r#"{"spec": {"overhead": {"cpu": "8675309x"}}}"#,
        r#"{"spec": {"priority": 86753098675309}}"#,
        r#"{"spec": {"priority": 8675309.5}}"#,
        r#"{"spec": {"priority": "8675309"}}"#,
        r#"{"spec": {"hostNetwork": "8675309"}}"#,
        r#"{"spec": {"containers": "8675309"}}"#,
        r#"{"metadata": {"labels": "8675309", "creationTimestamp": "8675309"}}"#,
        r#"{"metadata": {"creationTimestamp": "8675309"}}"#,
    ] {
        assert!(!error(json).contains("8675309"), "{}", error(json));
    }
    let message = error(&format!(r#"{{"metadata": {{"labels": {{"{}": 1}}}}}}"#, "9x".repeat(5000)));
    assert!(message.len() < 300, "{message}");
}
