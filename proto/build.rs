//! Compiles the schemas with protox (no protoc needed) into prost messages, tonic clients and servers, and one
//! descriptor set that the server embeds.

use anyhow::Context as _;
use prost::Message as _;

const SCHEMAS: &[&str] = &["pods/v1alpha1/api.proto", "pods/documented/api.proto", "podsapi/v1/node.proto"];

fn main() -> anyhow::Result<()> {
    for schema in SCHEMAS {
        println!("cargo::rerun-if-changed={schema}");
    }
    println!("cargo::rerun-if-changed=k8s.io");
    let set = protox::compile(SCHEMAS, ["."]).context("compiling proto/")?;
    let out = std::path::PathBuf::from(std::env::var_os("OUT_DIR").context("OUT_DIR is not set")?);
    std::fs::write(out.join("descriptors.bin"), set.encode_to_vec()).context("writing the descriptor set")?;
    tonic_prost_build::configure()
        .bytes(".v1alpha1")
        .include_file("schemas.rs")
        .compile_fds(set)
        .context("generating messages")?;
    Ok(())
}
