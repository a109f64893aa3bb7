//! `proto/` is complete for whoever runs protoc on it.

use std::process::Command;

use crate::harness::{cannot_run, root, succeed};

#[test]
fn protoc_accepts_every_schema() {
    if Command::new("protoc").arg("--version").output().is_err() {
        return cannot_run("protoc is missing");
    }
    let proto = root().join("proto");
    let schemas = schemas_below(&proto);
    assert!(schemas.len() >= 7, "{schemas:?}");
    let out = tempfile::tempdir().unwrap();
    let relative = schemas.iter().map(|path| path.strip_prefix(&proto).unwrap());
    succeed(
        Command::new("protoc")
            .arg("--fatal_warnings")
            .arg("--proto_path")
            .arg(&proto)
            .arg("--descriptor_set_out")
            .arg(out.path().join("descriptors.bin"))
            .args(relative),
    );
}

fn schemas_below(directory: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("target") {
            found.append(&mut schemas_below(&path));
        } else if path.extension().is_some_and(|extension| extension == "proto") {
            found.push(path);
        }
    }
    found
}
