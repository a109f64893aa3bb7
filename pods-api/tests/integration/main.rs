//! Tests of the whole server: the real binary on a temporary socket, driven from outside.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "test code that clippy takes for the product's")]

mod access;
mod cli;
mod clients;
mod documents;
mod harness;
mod kernel;
mod lookup;
mod operation;
mod protocol;
mod raw;
mod runtime;
