//! Compiles the schemas with protox (no protoc needed) into prost messages, tonic clients and servers, and one
//! descriptor set that the server embeds.

use anyhow::Context as _;
use prost::Message as _;

/// What this server serves. Only these are in the descriptor set that it embeds and shows by reflection.
const SCHEMAS: &[&str] = &["pods/v1alpha1/api.proto", "pods/documented/api.proto", "podsapi/v1/node.proto"];
/// What container runtimes serve.
const RUNTIME_SCHEMAS: &[&str] =
    &["runtime/v1/api.proto", "containerd/services/events/v1/events.proto", "containerd/events/task.proto"];

fn main() -> anyhow::Result<()> {
    for schema in SCHEMAS.iter().chain(RUNTIME_SCHEMAS) {
        println!("cargo::rerun-if-changed={schema}");
    }
    println!("cargo::rerun-if-changed=k8s.io");
    let set = protox::compile(SCHEMAS, ["."]).context("compiling proto/")?;
    let out = std::path::PathBuf::from(std::env::var_os("OUT_DIR").context("OUT_DIR is not set")?);
    std::fs::write(out.join("descriptors.bin"), set.encode_to_vec()).context("writing the descriptor set")?;
    tonic_prost_build::configure()
        .bytes(".v1alpha1")
        // Maps sorted by key: a message has one encoding.
        .btree_map(".")
        .include_file("schemas.rs")
        .compile_fds(set)
        .context("generating messages")?;
    let runtime = protox::compile(RUNTIME_SCHEMAS, ["."]).context("compiling the runtime's schemas")?;
    tonic_prost_build::configure()
        .btree_map(".")
        .include_file("runtime_schemas.rs")
        .compile_fds(runtime)
        .context("generating the runtime's messages")?;
    Ok(())
}
