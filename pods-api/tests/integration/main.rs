//! Tests of the whole server: the real binary on a temporary socket, driven from outside.

mod cli;
mod clients;
mod harness;
mod protocol;
mod raw;
mod schemas;
