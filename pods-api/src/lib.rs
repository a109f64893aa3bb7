//! The rooms of pods-api. `docs/architecture.md` is the map; imports between rooms go one way only:
//! `wire` ← `pod` ← `watch` ← `grpc` → `access`, and `transport` joins `http2` with `grpc`.

#![deny(unsafe_code)]

pub mod access;
pub mod admin;
pub mod app;
pub mod cli;
pub mod config;
mod dial;
pub mod grpc;
pub mod http2;
pub mod kernel;
pub mod lifecycle;
pub mod metrics;
pub mod pod;
pub mod privileges;
pub mod runtime;
pub mod source;
pub mod telemetry;
#[cfg(test)]
mod testing;
pub mod transport;
pub mod watch;
pub mod wire;
