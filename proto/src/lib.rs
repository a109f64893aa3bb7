//! Messages, clients and services generated from the `.proto` files beside this crate, and their descriptor set.
//!
//! One schema serves everything: prost messages and tonic services here, and through [`DESCRIPTOR_SET`] field
//! masks, JSON conversion and server reflection.

#![forbid(unsafe_code)]

#[allow(missing_docs, clippy::all, unreachable_pub, unused_qualifications)]
mod schemas {
    include!(concat!(env!("OUT_DIR"), "/schemas.rs"));
}

#[allow(missing_docs, clippy::all, unreachable_pub, unused_qualifications)]
mod runtime_schemas {
    include!(concat!(env!("OUT_DIR"), "/runtime_schemas.rs"));
}

pub use runtime_schemas::{containerd, runtime};
pub use schemas::k8s;
pub use schemas::podsapi;
pub use schemas::v1alpha1;

/// The service as kubernetes.io documents it (package-less `Pods`).
pub mod documented {
    pub use super::schemas::{
        PodGetRequest, PodGetResponse, PodListRequest, PodListResponse, PodWatchRequest, PodWatchResponse,
        pods_client, pods_server,
    };
}

/// The encoded `google.protobuf.FileDescriptorSet` of every schema in `proto/`, dependencies included.
pub static DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
