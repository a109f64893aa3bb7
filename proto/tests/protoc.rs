//! Everybody's compiler accepts the schemas: protoc reads every file of `proto/` and finds in them what protox,
//! which builds this crate, finds.

use std::path::{Path, PathBuf};
use std::process::Command;

use prost_reflect::{DescriptorPool, FieldDescriptor, MessageDescriptor};

fn schemas(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).expect("proto/ is readable") {
        let path = entry.expect("proto/ is readable").path();
        if path.is_dir() {
            schemas(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "proto") {
            found.push(path);
        }
    }
}

fn describe(field: &FieldDescriptor) -> String {
    format!("{} = {}: {:?} {:?}", field.full_name(), field.number(), field.cardinality(), field.kind())
}

fn fields(message: &MessageDescriptor) -> Vec<String> {
    message.fields().map(|field| describe(&field)).collect()
}

#[test]
fn protoc_reads_the_schemas_as_this_crate_does() {
    if Command::new("protoc").arg("--version").output().is_err() {
        assert!(std::env::var_os("CI").is_none(), "protoc is not installed");
        eprintln!("skipped: protoc is not installed");
        return;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    schemas(root, &mut files);
    assert!(files.len() >= 7, "{files:?}");
    let out = tempfile::NamedTempFile::new().unwrap();
    let status = Command::new("protoc")
        .arg("--include_imports")
        .arg(format!("--descriptor_set_out={}", out.path().display()))
        .arg(format!("--proto_path={}", root.display()))
        .args(&files)
        .status()
        .unwrap();
    assert!(status.success());
    let theirs = DescriptorPool::decode(&*std::fs::read(out.path()).unwrap()).unwrap();
    let ours = DescriptorPool::decode(pods_api_proto::DESCRIPTOR_SET).unwrap();
    assert!(ours.all_messages().count() > 150);
    for message in ours.all_messages() {
        let same = theirs.get_message_by_name(message.full_name()).unwrap_or_else(|| panic!("{message:?}"));
        assert_eq!(fields(&same), fields(&message));
    }
    for service in ours.services() {
        let same = theirs.get_service_by_name(service.full_name()).unwrap_or_else(|| panic!("{service:?}"));
        let methods = |service: &prost_reflect::ServiceDescriptor| -> Vec<_> {
            service.methods().map(|method| (method.name().to_owned(), method.is_server_streaming())).collect()
        };
        assert_eq!(methods(&same), methods(&service));
    }
}
