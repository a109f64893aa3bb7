//! The connection as a whole: against hand-made frames, against an independent client, and under abuse.

mod abuse;
mod errors;
mod flow;
mod interop;
mod lifecycle;
mod requests;
mod splits;
