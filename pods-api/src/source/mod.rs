//! Where pods come from; each source only sends updates to `pod/store`.

pub mod manifest;
