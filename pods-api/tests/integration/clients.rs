//! Stock gRPC clients of other languages against the server: each program under `tests/clients/` makes its own checks
//! and names the one that failed.

use std::path::PathBuf;
use std::process::Command;

use crate::harness::{Server, Setup, cannot_run, root, succeed};

/// Pods of the large list: 64 of 200 KB are 12.8 MB, above every client's default limit of 4 MiB.
const LARGE_PODS: usize = 64;
const LARGE_POD_BYTES: usize = 200_000;

/// The servers that a client program is pointed at.
struct Servers {
    standard: Server,
    pods: usize,
    large: Server,
}

/// The drivers that every client is served by.
const DRIVERS: [&str; 2] = ["io_uring", "epoll"];

impl Servers {
    fn start(driver: &str) -> Self {
        let setup = || Setup::new().argument(&format!("--transport={driver}"));
        let standard = setup().examples().start();
        let pods = std::fs::read_dir(standard.manifests()).unwrap().count();
        let large = (0..LARGE_PODS).fold(setup(), |setup, number| {
            setup.manifest(&format!("large-{number}.json"), &large_manifest(number))
        });
        Self { standard, pods, large: large.start() }
    }

    /// Runs a client program, which must pass every check.
    fn drive(&self, program: &mut Command) {
        let printed = succeed(
            program
                .arg("--socket")
                .arg(self.standard.socket())
                .arg("--manifests")
                .arg(self.standard.manifests())
                .arg("--pods")
                .arg(self.pods.to_string())
                .arg("--large-socket")
                .arg(self.large.socket()),
        );
        assert!(
            printed.lines().any(|line| line == "ok large list"),
            "stopped before its last check:\n{printed}"
        );
    }
}

fn large_manifest(number: usize) -> String {
    let filler = "x".repeat(LARGE_POD_BYTES);
    format!(
        r#"{{"apiVersion": "v1", "kind": "Pod",
            "metadata": {{"name": "large-{number}", "annotations": {{"example.com/filler": "{filler}"}}}},
            "spec": {{"containers": [{{"name": "main", "image": "registry.example/main:1"}}]}}}}"#
    )
}

/// Where `cargo xtask setup` puts what the client programs need.
fn installed() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("clients")
}

fn program(language: &str) -> PathBuf {
    root().join("pods-api/tests/clients").join(language)
}

// GRPC-1, GRPC-4, GRPC-5, GRPC-6, GRPC-7, GRPC-10
#[test]
fn python_grpcio_is_served_with_its_default_options() {
    let python = installed().join("python/bin/python");
    if !python.exists() {
        return cannot_run("the Python gRPC packages are missing");
    }
    for driver in DRIVERS {
        Servers::start(driver).drive(
            Command::new(&python).arg(program("python/client.py")).arg("--proto").arg(root().join("proto")),
        );
    }
}

// GRPC-4, GRPC-5, GRPC-6, GRPC-10
#[test]
fn node_grpc_js_is_served_with_its_default_options() {
    if !program("node/node_modules/@grpc/grpc-js").exists() {
        return cannot_run("the Node.js gRPC packages are missing");
    }
    for driver in DRIVERS {
        Servers::start(driver).drive(
            Command::new("node").arg(program("node/client.js")).arg("--proto").arg(root().join("proto")),
        );
    }
}

// GRPC-2, GRPC-4, GRPC-5, GRPC-6, GRPC-7, GRPC-10
#[test]
fn grpc_go_is_served_with_its_default_options() {
    // Debian's packages: nothing is downloaded.
    const LIBRARIES: &str = "/usr/share/gocode";
    if !std::path::Path::new(LIBRARIES).join("src/google.golang.org/grpc").exists() {
        return cannot_run("grpc-go is missing");
    }
    let built = tempfile::tempdir().unwrap();
    let client = built.path().join("client");
    succeed(
        Command::new("go")
            .current_dir(program("go"))
            .args(["build", "-o"])
            .arg(&client)
            .arg(".")
            .envs([("GO111MODULE", "off"), ("GOPATH", LIBRARIES), ("GOFLAGS", "")])
            .env("GOCACHE", installed().join("go-cache")),
    );
    // Side by side, because the client waits out three keepalives of ten seconds.
    std::thread::scope(|scope| {
        for driver in DRIVERS {
            scope.spawn(|| Servers::start(driver).drive(&mut Command::new(&client)));
        }
    });
}

// The address form that the README gives Rust clients.
#[test]
fn tonic_is_served_by_its_unix_address() {
    use pods_api_proto::v1alpha1::ListPodsRequest;
    use pods_api_proto::v1alpha1::pods_client::PodsClient;

    let server = Setup::new().examples().start();
    let address = format!("unix://{}", server.socket().display());
    let list = async {
        let channel = tonic::transport::Endpoint::try_from(address).unwrap().connect().await.unwrap();
        let mut client = PodsClient::new(channel);
        let mut masked = tonic::Request::new(ListPodsRequest {});
        masked.metadata_mut().insert("x-kubernetes-fieldmask", "metadata.name".parse().unwrap());
        let cut: usize =
            client.list_pods(masked).await.unwrap().into_inner().pods.iter().map(|pod| pod.len()).sum();
        let listed = client.list_pods(ListPodsRequest {}).await.unwrap().into_inner();
        assert!(cut > 0 && cut * 10 < listed.pods.iter().map(|pod| pod.len()).sum(), "{cut} bytes of names");
        listed
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let listed = runtime.block_on(list);
    assert_eq!(listed.pods.len(), std::fs::read_dir(server.manifests()).unwrap().count());
}

// GRPC-4: what the README tells a client to do about a list above its limit.
#[test]
fn a_masked_list_fits_the_limit_that_a_whole_one_exceeds() {
    use pods_api_proto::v1alpha1::ListPodsRequest;
    use pods_api_proto::v1alpha1::pods_client::PodsClient;

    let servers = Servers::start("auto");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let address = format!("unix://{}", servers.large.socket().display());
        let channel = tonic::transport::Endpoint::try_from(address).unwrap().connect().await.unwrap();
        let mut client = PodsClient::new(channel);
        let status = client.list_pods(ListPodsRequest {}).await.unwrap_err();
        assert_eq!(status.code(), tonic::Code::OutOfRange, "{status}");
        let mut masked = tonic::Request::new(ListPodsRequest {});
        let mask = "metadata.name,metadata.namespace,status.phase,status.podIPs";
        masked.metadata_mut().insert("x-kubernetes-fieldmask", mask.parse().unwrap());
        assert_eq!(client.list_pods(masked).await.unwrap().into_inner().pods.len(), LARGE_PODS);
    });
    let table = succeed(&mut servers.large.client_command(&["get", "pods", "-A"]));
    assert_eq!(table.lines().count(), 1 + LARGE_PODS);
}
