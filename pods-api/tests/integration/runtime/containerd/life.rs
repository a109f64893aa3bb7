//! A pod's life in every variety. containerd is started once for all steps, which takes seconds; each step has a pod of
//! its own.

use super::{FOREVER, Stage, WAITS, get, pod, pod_ips};
use crate::harness::{PATIENCE, binary, cannot_run, eventually, succeed};
use crate::runtime::node::{IMAGE, Recipe, SandboxOptions, missing};

#[test]
fn status_follows_a_real_containerd() {
    if let Some(why) = missing() {
        return cannot_run(&why);
    }
    let mut stage = Stage::new();
    runs_and_ends(&mut stage);
    fails_in_every_way(&mut stage);
    restarts(&mut stage);
    runs_in_order(&mut stage);
    has_addresses(&mut stage);
    is_resized(&mut stage);
    gets_the_kubelets_uid(&mut stage);
    leaves(&mut stage);
    let admin = stage.server.admin().unwrap().to_string();
    let report = succeed(binary().args(["doctor", "--admin", &admin]));
    assert!(report.contains("events: containerd") && report.contains("status: not compared"), "{report}");
}

fn runs_and_ends(stage: &mut Stage) {
    let (_, a) =
        stage.simple("exit-0", "Never", &["/bin/sh", "-c", "sleep 0.5; echo done > /dev/termination-log"]);
    let ids = [("a", &*a)];
    stage.shows("exit-0", "Succeeded a:0/Completed($a) r0", &ids);
    stage.saw("exit-0", &[WAITS, "Running a:running($a) r0 ready", "Succeeded a:0/Completed($a) r0"], &ids);

    let (_, a) = stage.simple("exit-7", "Never", &["/bin/sh", "-c", "sleep 0.5; exit 7"]);
    let ids = [("a", &*a)];
    stage.shows("exit-7", "Failed a:7/Error($a) r0", &ids);
    stage.saw("exit-7", &[WAITS, "Running a:running($a) r0 ready", "Failed a:7/Error($a) r0"], &ids);

    // A process executed in a container ends: the container does not.
    let (_, a) = stage.simple("exec", "Always", FOREVER);
    let ids = [("a", &*a)];
    stage.shows("exec", "Running a:running($a) r0 ready", &ids);
    let events = stage.watch.history("exec").len();
    stage.node.execute(&a, "exit 0");
    // What comes after it shows that nothing came of it.
    stage.node.stop(&a);
    stage.shows("exec", "Running a:137/Error($a) r0", &ids);
    let after = stage.watch.history("exec").split_off(events);
    assert!(after.iter().all(|text| text.contains(":137/")), "{after:?}");
}

fn fails_in_every_way(stage: &mut Stage) {
    let uid = "start-error";
    stage.pod(uid, &format!("restartPolicy: Never, containers: [{{name: a, image: '{IMAGE}'}}]"));
    let sandbox = stage.node.sandbox(uid, uid, 0, SandboxOptions::default());
    let a = stage.node.create(&sandbox, &Recipe::shell("a", &["/no/such/program"]));
    assert!(!stage.node.try_start(&a));
    stage.shows(uid, "Failed a:128/StartError($a) r0", &[("a", &a)]);

    let limited = |stage: &mut Stage, uid: &str, script: &str| {
        stage.pod(uid, &format!("restartPolicy: Never, containers: [{{name: a, image: '{IMAGE}'}}]"));
        let sandbox = stage.node.sandbox(uid, uid, 0, SandboxOptions::default());
        let command = ["/bin/sh", "-c", script];
        let recipe = Recipe { memory_limit: 16 << 20, ..Recipe::shell("a", &command) };
        stage.node.run(&sandbox, &recipe)
    };
    let a = limited(stage, "oom", "exec /bin/busybox dd if=/dev/zero of=/dev/null bs=200M count=1");
    stage.shows("oom", "Failed a:137/OOMKilled($a) r0", &[("a", &a)]);
    let a = limited(stage, "oom-child", "/bin/busybox dd if=/dev/zero of=/dev/null bs=200M count=1; exit 0");
    stage.shows("oom-child", "Succeeded a:0/OOMKilled($a) r0", &[("a", &a)]);
    // STAT-5: killed, and memory has nothing to do with it.
    let (_, a) = stage.simple("killed", "Never", FOREVER);
    stage.shows("killed", "Running a:running($a) r0 ready", &[("a", &a)]);
    stage.node.stop(&a);
    stage.shows("killed", "Failed a:137/Error($a) r0", &[("a", &a)]);
}

fn restarts(stage: &mut Stage) {
    let (sandbox, first) = stage.simple("restart", "Always", &["/bin/sh", "-c", "sleep 0.5; exit 3"]);
    let ids = [("a", &*first)];
    stage.shows("restart", "Running a:3/Error($a) r0", &ids);
    let second = stage.node.run(&sandbox, &Recipe { attempt: 1, ..Recipe::shell("a", FOREVER) });
    let ids = [("a", &*first), ("b", &*second)];
    stage.shows("restart", "Running a:running($b) r1 ready last=3/Error", &ids);
    let steps = [
        WAITS,
        "Running a:running($a) r0 ready",
        "Running a:3/Error($a) r0",
        "Running a:running($b) r1 ready last=3/Error",
    ];
    stage.saw("restart", &steps, &ids);

    // STAT-2: dead containers are removed, and one that knows nothing of those before it takes their place.
    stage.node.kubelet().remove(&first).unwrap();
    stage.node.stop(&second);
    stage.shows("restart", "Running a:137/Error($b) r1 last=3/Error", &ids);
    stage.node.kubelet().remove(&second).unwrap();
    let third = stage.node.run(&sandbox, &Recipe::shell("a", FOREVER));
    stage.shows("restart", "Running a:running($c) r1 ready last=137/Error", &[("c", &third)]);

    // The sandbox is stopped, and another one takes its place.
    let (sandbox, first) = stage.simple("sandbox", "Always", FOREVER);
    stage.shows("sandbox", "Running a:running($a) r0 ready", &[("a", &first)]);
    let ip = stage.node.ip(&sandbox);
    stage.node.stop_sandbox(&sandbox);
    stage.shows("sandbox", "Running a:137/Error($a) r0", &[("a", &first)]);
    assert_eq!(pod_ips(stage, "sandbox"), [ip], "rule C.3.4");
    let sandbox = stage.node.sandbox("sandbox", "sandbox-node-1", 1, SandboxOptions::default());
    let second = stage.node.run(&sandbox, &Recipe { attempt: 1, ..Recipe::shell("a", FOREVER) });
    stage.shows("sandbox", "Running a:running($a) r1 ready last=137/Error", &[("a", &second)]);
    let ip = stage.node.ip(&sandbox);
    assert_eq!(pod_ips(stage, "sandbox"), [ip]);
}

fn runs_in_order(stage: &mut Stage) {
    let uid = "init";
    let containers = format!(
        "restartPolicy: Never, initContainers: [{{name: i, image: '{IMAGE}'}}, \
         {{name: s, image: '{IMAGE}', restartPolicy: Always}}], \
         containers: [{{name: b, image: '{IMAGE}'}}, {{name: a, image: '{IMAGE}'}}]"
    );
    stage.pod(uid, &containers);
    let sandbox = stage.node.sandbox(uid, uid, 0, SandboxOptions::default());
    let short = ["/bin/sh", "-c", "sleep 0.3"];
    let i = stage.node.run(&sandbox, &Recipe::shell("i", &short));
    let waits = "s:waiting(PodInitializing) r0 a:waiting(PodInitializing) r0 b:waiting(PodInitializing) r0";
    stage.shows(uid, &format!("Pending i:0/Completed($i) r0 ready {waits}"), &[("i", &i)]);
    let s = stage.node.run(&sandbox, &Recipe::shell("s", FOREVER));
    let waits = "a:waiting(PodInitializing) r0 b:waiting(PodInitializing) r0";
    let ids = [("i", &*i), ("s", &*s)];
    stage.shows(uid, &format!("Pending i:0/Completed($i) r0 ready s:running($s) r0 ready {waits}"), &ids);
    let a = stage.node.run(&sandbox, &Recipe::shell("a", &short));
    let b = stage.node.run(&sandbox, &Recipe::shell("b", FOREVER));
    let done = "i:0/Completed($i) r0 ready s:running($s) r0 ready";
    let ids = [("i", &*i), ("s", &*s), ("a", &*a), ("b", &*b)];
    stage.shows(uid, &format!("Running {done} a:0/Completed($a) r0 b:running($b) r0 ready"), &ids);
    stage.node.stop(&b);
    // Rule C.7.6 h: the sidecar still runs.
    stage.shows(uid, &format!("Running {done} a:0/Completed($a) r0 b:137/Error($b) r0"), &ids);
    stage.node.stop(&s);
    let done = "i:0/Completed($i) r0 ready s:137/Error($s) r0";
    stage.shows(uid, &format!("Failed {done} a:0/Completed($a) r0 b:137/Error($b) r0"), &ids);
}

fn has_addresses(stage: &mut Stage) {
    let (sandbox, a) = stage.simple("address", "Always", FOREVER);
    stage.shows("address", "Running a:running($a) r0 ready", &[("a", &a)]);
    let ip = stage.node.ip(&sandbox);
    assert!(ip.starts_with("10.213."), "{ip}");
    assert_eq!(pod_ips(stage, "address"), [ip]);

    // CRI-3: a sandbox alone is a pod too.
    let uid = "sandbox-only";
    stage.pod(uid, &format!("containers: [{{name: a, image: '{IMAGE}'}}]"));
    let sandbox = stage.node.sandbox(uid, uid, 0, SandboxOptions::default());
    let ip = stage.node.ip(&sandbox);
    eventually("the sandbox's address", PATIENCE, || (pod_ips(stage, uid) == [&*ip]).then_some(()));
    assert_eq!(get(&stage.server, uid), WAITS);

    let uid = "host-network";
    stage.pod(uid, &format!("hostNetwork: true, containers: [{{name: a, image: '{IMAGE}'}}]"));
    let options = SandboxOptions { is_host_network: true, ..SandboxOptions::default() };
    let sandbox = stage.node.sandbox(uid, uid, 0, options);
    let a = stage.node.run(&sandbox, &Recipe::shell("a", FOREVER));
    stage.shows(uid, "Running a:running($a) r0 ready", &[("a", &a)]);
    // Rule C.3.6: nothing tells the node's address here.
    assert_eq!(pod_ips(stage, uid), [] as [&str; 0]);
    let ready = |uid| {
        let status = pod(&stage.server, uid).status.unwrap();
        let kind = "PodReadyToStartContainers";
        status.conditions.iter().any(|condition| condition.r#type() == kind && condition.status() == "True")
    };
    assert!(ready("address") && ready(uid));
}

/// Rule C.4.16: limits changed in place are shown as they are in force, long before the pod is due for a read.
fn is_resized(stage: &mut Stage) {
    if stage.node.kubelet().version().unwrap().starts_with("1.6") {
        // It does not tell of resources.
        return;
    }
    let uid = "resized";
    let limits = "resources: {limits: {memory: 64Mi}}";
    stage.pod(uid, &format!("hostNetwork: true, containers: [{{name: a, image: '{IMAGE}', {limits}}}]"));
    let options = SandboxOptions { is_host_network: true, ..SandboxOptions::default() };
    let sandbox = stage.node.sandbox(uid, uid, 0, options);
    let recipe = Recipe { memory_limit: 64 << 20, ..Recipe::shell("a", FOREVER) };
    let a = stage.node.run(&sandbox, &recipe);
    stage.shows(uid, "Running a:running($a) r0 ready", &[("a", &a)]);
    let limit = || {
        let status = pod(&stage.server, uid).status?;
        Some(status.container_statuses[0].resources.as_ref()?.limits.get("memory")?.string().to_owned())
    };
    assert_eq!(limit().as_deref(), Some("64Mi"));
    stage.node.kubelet().resize(&a, 128 << 20).unwrap();
    eventually("the new limit", PATIENCE, || limit().filter(|limit| limit == "128Mi"));
}

/// MAN-8, rule A.7.5: a manifest without a UID is listed under the one that its sandbox carries.
fn gets_the_kubelets_uid(stage: &mut Stage) {
    let uid = "0123456789abcdef0123456789abcdef";
    let annotations = [("kubernetes.io/config.source", "file"), ("kubernetes.io/config.hash", uid)];
    let options = SandboxOptions { annotations: &annotations, ..SandboxOptions::default() };
    let text = format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: static}}\nspec: {{containers: [{{name: a, image: '{IMAGE}'}}]}}\n"
    );
    stage.server.write_manifest("static.yaml", &text);
    let sandbox = stage.node.sandbox(uid, "static-node-1", 0, options);
    let a = stage.node.run(&sandbox, &Recipe::shell("a", FOREVER));
    stage.shows(uid, "Running a:running($a) r0 ready", &[("a", &a)]);
    let metadata = pod(&stage.server, uid).metadata.unwrap();
    assert_eq!(
        (metadata.name(), &*metadata.annotations["kubernetes.io/config.hash"]),
        ("static-node-1", uid)
    );
    let listed = String::from_utf8(stage.server.client(&["get", "pods", "-o", "name"]).stdout).unwrap();
    assert_eq!(listed.matches("static-node-1").count(), 1, "{listed}");
}

fn leaves(stage: &mut Stage) {
    let (sandbox, a) = stage.simple("leaves", "Always", FOREVER);
    stage.shows("leaves", "Running a:running($a) r0 ready", &[("a", &a)]);
    stage.server.remove_manifest("leaves.yaml");
    eventually("a deletion timestamp", PATIENCE, || {
        pod(&stage.server, "leaves").metadata?.deletion_timestamp
    });
    // It runs, so it is there.
    assert_eq!(get(&stage.server, "leaves"), format!("Running a:running({a}) r0 ready"));
    stage.node.remove_sandbox(&sandbox);
    stage.watch.wait_for("leaves", |text| text == "deleted");
    assert_eq!(get(&stage.server, "leaves"), "NotFound");
    let history = stage.watch.history("leaves");
    assert_eq!(history.iter().filter(|text| *text == "deleted").count(), 1, "{history:?}");
}
